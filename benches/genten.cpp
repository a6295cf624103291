// GenTen as one of the peers of peers_cpu.py: `genten FOLDER METHOD`, FOLDER with x.npy, factor_0.npy, ... of ttb_real;
// METHOD row, phan or perm. Answers the lines `mt MODE SECONDS`, `save MODE FILE` (the MTTKRP as raw row-major numbers),
// `rss` and `quit` with lines of JSON, as peer.rs does. genten.sh builds it.

#include "Genten_AlgParams.hpp"
#include "Genten_Ktensor.hpp"
#include "Genten_MixedFormatOps.hpp"
#include "Genten_Tensor.hpp"
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using Space = Kokkos::OpenMP;

// The numbers of an .npy file in row-major order, and its dims.
static std::vector<ttb_real> load(const std::string& path, std::vector<size_t>& dims) {
  std::ifstream in(path, std::ios::binary);
  char magic[10];
  if (!in.read(magic, 10)) throw std::runtime_error("cannot read " + path);
  std::string header((unsigned char)magic[8] + 256 * (unsigned char)magic[9], ' ');
  in.read(&header[0], header.size());
  if (header.find(sizeof(ttb_real) == 4 ? "<f4" : "<f8") == std::string::npos) throw std::runtime_error("another dtype: " + path);
  std::istringstream shape(header.substr(header.find('(') + 1));
  dims.clear();
  for (size_t d; shape >> d; shape.ignore()) dims.push_back(d);
  size_t count = 1;
  for (size_t d : dims) count *= d;
  std::vector<ttb_real> data(count);
  in.read((char*)data.data(), count * sizeof(ttb_real));
  return data;
}

static double status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return atof(line.c_str() + key.size() + 1) / 1024;
  return NAN;
}

static void serve(const std::string& folder, const std::string& method) {
  std::vector<size_t> dims, matrix;
  auto data = load(folder + "/x.npy", dims);
  const size_t order = dims.size();
  Genten::IndxArrayT<Space> size(order);
  for (size_t m = 0; m < order; ++m) size[m] = dims[m];
  // Its own layout, in which the first mode runs fastest.
  Genten::TensorT<Space> x(size, ttb_real(0));
  std::vector<size_t> index(order, 0);
  for (ttb_real v : data) {
    size_t at = 0;
    for (size_t m = order; m-- > 0;) at = at * dims[m] + index[m];
    x[at] = v;
    for (size_t m = order; m-- > 0;) {
      if (++index[m] < dims[m]) break;
      index[m] = 0;
    }
  }
  std::vector<ttb_real>().swap(data);
  std::vector<std::vector<ttb_real>> factors;
  for (size_t m = 0; m < order; ++m) factors.push_back(load(folder + "/factor_" + std::to_string(m) + ".npy", matrix));
  const size_t rank = matrix[1];
  Genten::KtensorT<Space> u(rank, order, size);
  u.setWeights(ttb_real(1));
  for (size_t m = 0; m < order; ++m)
    for (size_t i = 0; i < dims[m]; ++i)
      for (size_t r = 0; r < rank; ++r) u[m].entry(i, r) = factors[m][i * rank + r];
  Genten::AlgParams params;
  params.mttkrp_method = method == "phan" ? Genten::MTTKRP_Method::Phan
                         : method == "perm" ? Genten::MTTKRP_Method::Perm : Genten::MTTKRP_Method::RowBased;
  params.rank = rank;
  std::vector<Genten::FacMatrixT<Space>> g;
  for (size_t m = 0; m < order; ++m) g.emplace_back(dims[m], rank);
  auto mttkrp = [&](size_t n) { Genten::mttkrp(x, u, n, g[n], params, true); Kokkos::fence(); };
  std::ofstream("/proc/self/clear_refs") << "5";
  double base = status("VmRSS");
  std::cout << "{\"ready\": true, \"als\": false}" << std::endl;
  using Clock = std::chrono::steady_clock;
  auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    size_t mode = 0;
    words >> command;
    if (command == "mt") {
      double seconds;
      words >> mode >> seconds;
      mttkrp(mode);
      std::ostringstream times;
      times.precision(9);
      auto begin = Clock::now();
      for (int count = 0; count == 0 || (count < 200 && since(begin) < seconds); ++count) {
        auto start = Clock::now();
        mttkrp(mode);
        times << (count ? ", " : "") << since(start);
      }
      std::cout << "{\"ts\": [" << times.str() << "]}" << std::endl;
    } else if (command == "save") {
      std::string path;
      words >> mode >> path;
      mttkrp(mode);
      std::ofstream out(path, std::ios::binary);
      for (size_t i = 0; i < dims[mode]; ++i)
        for (size_t r = 0; r < rank; ++r) {
          ttb_real v = g[mode].entry(i, r);
          out.write((char*)&v, sizeof v);
        }
      out.close();
      std::cout << "{\"saved\": " << (out ? "true" : "false") << "}" << std::endl;
    } else if (command == "rss") {
      std::cout << "{\"extra\": " << status("VmHWM") - base << "}" << std::endl;
      std::ofstream("/proc/self/clear_refs") << "5";
    } else {
      return;
    }
  }
}

int main(int argc, char* argv[]) {
  if (argc != 3) return 2;
  Kokkos::initialize();
  int failed = 0;
  try {
    serve(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    failed = 1;
  }
  Kokkos::finalize();
  return failed;
}
