#!/usr/bin/env bash
# Builds GenTen's MTTKRP for peers_cpu.py: FOLDER/genten_float and FOLDER/genten_double, from the sources of the PyPI
# package pygenten (whose wheel is f64 alone, for any x86-64, and times CP-ALS only), with Kokkos on OpenMP for this CPU.
#
#     bash benches/genten.sh FOLDER        # g++, python3 with venv, OpenBLAS (or BLAS=...: what to link) and a few minutes
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$1"; cd "$1"
version=0.1.5
[ -d tools ] || { python3 -m venv tools; tools/bin/pip install --quiet cmake ninja; }
export PATH="$PWD/tools/bin:$PATH"
if [ ! -d "pygenten-$version" ]; then
  url="$(curl -sSL https://pypi.org/simple/pygenten/ | grep -o "https://[^\"#]*pygenten-$version\.tar\.gz" | head -n 1)"
  curl -sSL "$url" | tar xz
fi
genten="$PWD/pygenten-$version"
if [ ! -d kokkos ]; then
  cmake -S "$genten/tpls/kokkos" -B kokkos-build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PWD/kokkos" \
    -DCMAKE_INSTALL_LIBDIR=lib -DKokkos_ENABLE_OPENMP=ON -DKokkos_ARCH_NATIVE=ON
  ninja -C kokkos-build install
fi
json="-I$genten/tpls/json/single_include -I$genten/tpls/json/single_include/nlohmann
  -I$genten/tpls/json-validator/src -I$genten/tpls/json-validator/src/nlohmann"
sources="Array AlgParams FacMatArray FacMatrix IndxArray Ktensor MathLibs_Wpr MixedFormatOps Sptensor Tensor Util portability"
{
  mkdir -p json
  for source in "$genten"/tpls/json-validator/src/*.cpp; do
    echo g++ -std=c++17 -O1 -w $json -c "$source" -o "json/$(basename "$source").o"
  done
  for real in float double; do
    # What GenTen's own configuration would write.
    mkdir -p $real
    printf '%s\n' '#pragma once' '#include <cstddef>' '#include <cstdint>' "typedef $real ttb_real;" \
      'typedef std::uint64_t ttb_indx;' '#define HAVE_OPENMP' '#define HAVE_KOKKOS' > $real/CMakeInclude.h
    flags="-std=c++17 -O3 -march=native -fopenmp -DNDEBUG -DLAPACK_FOUND -w -I$real -I$genten/src -I$genten/src/mathlib -Ikokkos/include"
    for source in $sources; do
      echo g++ $flags $json -c "$genten/src/Genten_$source.cpp" -o "$real/$source.o"
    done
    echo g++ $flags $json -c "$genten/src/mathlib/Genten_RandomMT.cpp" -o $real/random.o
    echo g++ $flags $json -c "$here/genten.cpp" -o $real/genten.o
  done
} | xargs -P "$(nproc)" -I{} sh -c "{}"
for real in float double; do
  g++ -fopenmp $real/*.o json/*.o -o genten_$real -Lkokkos/lib -lkokkoscore -lkokkossimd ${BLAS:--lopenblas} -ldl -lpthread
done
