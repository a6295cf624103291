#!/usr/bin/env python3
"""Races polyad's CPU backend against the dense MTTKRPs of Python, on the same cores in one run.

    python3 benches/peers_cpu.py --install FOLDER            # a virtual environment with the peers
    FOLDER/bin/python benches/peers_cpu.py --polyad PEER     # PEER: the program that `cargo bench --bench peer --no-run` names

A process for each peer and case holds the same tensor and factors. The coordinator asks them in turn, in shuffled
rounds, for short batches, so that other load on the machine hits all alike; a time is the median over rounds of a
batch's median. Flop model: 2 N R for an MTTKRP, N entries, whatever a peer really does. Every result, polyad's too, is
compared with NumPy's in f64, entry by entry (all numbers are positive); one that is off by more than TOLERANCE, or is
not a number, is out. --cases REGEX and --peers REGEX take a part of it, --json FILE keeps the numbers, --als adds seconds
of a CP-ALS sweep, --products compares with plain matrix products of the same sizes, --genten FOLDER takes in GenTen
(benches/genten.sh builds it).
"""
import argparse, json, math, os, random, re, shutil, statistics, subprocess, sys, tempfile, time, venv

PACKAGES = ["numpy", "tensorly", "pyttb", "opt_einsum"]
CASES = [  # dims, rank
    ((200,) * 3, 8), ((200,) * 3, 16), ((200,) * 3, 64), ((200,) * 3, 128), ((400, 300, 200), 32), ((60,) * 4, 16),
    ((60,) * 4, 64), ((24,) * 5, 16), ((2000, 50, 50), 10), ((5, 201, 61), 16),
]
PEERS = {
    "polyad": "this crate, method auto",
    "np_einsum": "numpy.einsum, optimize=True",
    "np_2step": "numpy: tensordot over an end mode, einsum over the rest",
    "np_phan": "numpy: explicit Khatri-Rao product and a product without copies; middle modes: product, then einsum",
    "torch_phan": "the same in PyTorch",
    "tensorly_np": "TensorLy's unfolding_dot_khatri_rao, numpy",
    "tensorly_torch": "the same, PyTorch",
    "pyttb": "pyttb: tensor.mttkrp, cp_als",
    "genten_row": "GenTen, OpenMP: row-based MTTKRP",
    "genten_phan": "GenTen: as np_phan",
    "genten_perm": "GenTen: permuted tiles",
}
# Largest relative error of an entry. A sum in f32 may have 6e5 terms, one after the other.
TOLERANCE = {"float32": 1e-3, "float64": 1e-10}


def install(folder):
    venv.create(folder, with_pip=True)
    pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run(pip + PACKAGES, check=True)
    # PyTorch without GPU libraries where its own index can be reached, else with them.
    cpu = ["--retries", "0", "torch", "--index-url", "https://download.pytorch.org/whl/cpu"]
    if subprocess.run(pip + cpu, stderr=subprocess.DEVNULL).returncode:
        subprocess.run(pip + ["torch"], check=False)


# ---- a peer: a process that answers commands


def khatri_rao(factors, modes):
    product = factors[modes[0]]
    for m in modes[1:]:
        product = (product[:, None, :] * factors[m][None, :, :]).reshape(-1, product.shape[1])
    return product


def phan(x, factors, dims, times_and_sum):
    """No copies of x: one product for an end mode; for a middle one, with the larger side, then the other by sums."""
    order, rank = len(dims), factors[0].shape[1]

    def mttkrp(n):
        left = right = 1
        for d in dims[:n]:
            left *= d
        for d in dims[n + 1 :]:
            right *= d
        if n == 0:
            return x.reshape(dims[0], right) @ khatri_rao(factors, range(1, order))
        if n == order - 1:
            return x.reshape(left, dims[n]).T @ khatri_rao(factors, range(order - 1))
        before, behind = range(n), range(n + 1, order)
        if left >= right:
            part = (x.reshape(left, dims[n] * right).T @ khatri_rao(factors, before)).reshape(dims[n], right, rank)
            return times_and_sum("nkr,kr->nr", part, khatri_rao(factors, behind))
        part = (x.reshape(left * dims[n], right) @ khatri_rao(factors, behind)).reshape(left, dims[n], rank)
        return times_and_sum("knr,kr->nr", part, khatri_rao(factors, before))

    return mttkrp


def make_peer(name, folder, order):
    """(mttkrp of a mode, seconds of that many sweeps or None)"""
    import numpy as np

    threads = int(os.environ["OMP_NUM_THREADS"])
    x = np.load(os.path.join(folder, "x.npy"))
    factors = [np.load(os.path.join(folder, f"factor_{m}.npy")) for m in range(order)]
    dims, rank, letters = x.shape, factors[0].shape[1], "abcdefgh"
    others = lambda n: [m for m in range(order) if m != n]
    if name == "np_einsum":
        text = lambda n: letters[:order] + "".join("," + letters[m] + "r" for m in others(n)) + "->" + letters[n] + "r"
        return lambda n: np.einsum(text(n), x, *[factors[m] for m in others(n)], optimize=True), None
    if name == "np_2step":

        def two_steps(n):
            end = order - 1 if n != order - 1 else 0
            part, rest = np.tensordot(x, factors[end], axes=(end, 0)), [m for m in others(n) if m != end]
            have = "".join(letters[m] for m in range(order) if m != end)
            rows = "".join("," + letters[m] + "r" for m in rest)
            return np.einsum(f"{have}r{rows}->{letters[n]}r", part, *[factors[m] for m in rest])

        return two_steps, None
    if name == "np_phan":
        return phan(x, factors, dims, np.einsum), None
    if name == "torch_phan":
        import torch

        torch.set_num_threads(threads)
        sums = {"nkr,kr->nr": lambda a, b: (a * b[None]).sum(1), "knr,kr->nr": lambda a, b: (a * b[:, None]).sum(0)}
        tensors = [torch.from_numpy(f) for f in factors]
        return phan(torch.from_numpy(x), tensors, dims, lambda text, a, b: sums[text](a, b)), None
    if name == "product":

        def product(n):
            if n not in made:
                made.clear()
                made[n] = np.random.default_rng(1).random((x.size // dims[n], rank), dtype=x.dtype)
            return x.reshape(dims[n], -1) @ made[n]

        made = {}
        return product, None
    if name.startswith("tensorly"):
        import tensorly as tl
        from tensorly.cp_tensor import CPTensor, unfolding_dot_khatri_rao
        from tensorly.decomposition import parafac

        if name.endswith("torch"):
            import torch

            torch.set_num_threads(threads)
            tl.set_backend("pytorch")
            x, factors = torch.from_numpy(x), [torch.from_numpy(f) for f in factors]
        ones = tl.ones(rank, **tl.context(x))

        def sweeps(count):
            start = CPTensor((ones, [tl.copy(f) for f in factors]))
            begin = time.perf_counter()
            parafac(x, rank, n_iter_max=count, init=start, tol=0)
            return time.perf_counter() - begin

        return lambda n: unfolding_dot_khatri_rao(x, (None, factors), n), sweeps
    if name == "pyttb":
        import pyttb as ttb

        tensor = ttb.tensor(np.asfortranarray(x), copy=False)
        columns = [np.asfortranarray(f) for f in factors]

        def sweeps(count):
            start = ttb.ktensor([f.copy() for f in columns])
            begin = time.perf_counter()
            ttb.cp_als(tensor, rank, stoptol=0.0, maxiters=count, init=start, printitn=0)
            return time.perf_counter() - begin

        # Its ktensor takes f64 alone.
        return lambda n: tensor.mttkrp(columns, n), sweeps if x.dtype == np.float64 else None
    raise SystemExit(f"no peer {name}")


def worker(name, folder, order):
    import numpy as np

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library's own words are not answers

    def say(answer):
        print(json.dumps(answer), file=out, flush=True)

    def memory(key):
        for line in open("/proc/self/status"):
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        return float("nan")

    def reset_peak():
        try:
            open("/proc/self/clear_refs", "w").write("5")
        except OSError:
            pass

    mttkrp, sweeps = make_peer(name, folder, order)
    dtype = np.load(os.path.join(folder, "factor_0.npy"), mmap_mode="r").dtype
    square = np.ones((512, 512))
    square @ square  # the BLAS allocates its own buffers before memory is counted
    reset_peak()
    base = memory("VmRSS")
    say({"ready": True, "als": sweeps is not None})
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "mt":
            mode, seconds = int(rest[0]), float(rest[1])
            mttkrp(mode)
            begin, times = time.perf_counter(), []
            while not times or len(times) < 200 and time.perf_counter() - begin < seconds:
                start = time.perf_counter()
                mttkrp(mode)
                times.append(time.perf_counter() - start)
            say({"ts": times})
        elif command == "als":
            one = sweeps(1)
            say({"sweep": (sweeps(1 + int(rest[0])) - one) / int(rest[0])})
        elif command == "save":
            np.ascontiguousarray(mttkrp(int(rest[0])), dtype=dtype).tofile(rest[1])
            say({"saved": True})
        elif command == "rss":
            say({"extra": memory("VmHWM") - base})
            reset_peak()
        else:
            return


# ---- the coordinator


class Peer:
    def __init__(self, name, command):
        self.name, self.times, self.error, self.sweeps, self.extra, self.products = name, {}, None, [], None, {}
        self.off = 0.0  # largest relative error
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        ready = self.answer()
        self.als = ready.get("als", False)

    def answer(self):
        try:
            return json.loads(self.process.stdout.readline())
        except ValueError:
            self.error = "it ended"
            return {}

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            self.error = "it ended"
            return {}
        return self.answer()

    def close(self):
        try:
            self.process.stdin.write("quit\n")
            self.process.stdin.flush()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()

    def seconds(self, mode):
        return statistics.median(self.times[mode])


def reference(x, factors, n):
    """The MTTKRP in f64: an unfolding times an explicit Khatri-Rao product."""
    import numpy as np

    others = [m for m in range(x.ndim) if m != n]
    unfolded = np.ascontiguousarray(np.moveaxis(x, n, 0), dtype=np.float64).reshape(x.shape[n], -1)
    return unfolded @ khatri_rao([f.astype(np.float64) for f in factors], others)


def error(path, dtype, exact):
    """The largest relative error of an entry; infinite where there is none to compare or it is not a number."""
    import numpy as np

    try:
        found = np.fromfile(path, dtype=dtype).astype(np.float64)
    except OSError:
        return math.inf
    if found.size != exact.size:
        return math.inf
    off = float((np.abs(found.reshape(exact.shape) - exact) / exact).max())
    return off if math.isfinite(off) else math.inf


def race(args, dims, rank, dtype):
    import numpy as np

    folder = tempfile.mkdtemp()
    rng = np.random.default_rng(0)
    x = rng.random(dims, dtype=dtype)
    factors = [rng.random((d, rank), dtype=dtype) for d in dims]
    np.save(os.path.join(folder, "x.npy"), x)
    for m, factor in enumerate(factors):
        np.save(os.path.join(folder, f"factor_{m}.npy"), factor)
    peers, order = [], len(dims)
    exact = [reference(x, factors, n) for n in range(order)]
    del x
    try:
        for name in [*PEERS, *(["product"] if args.products else [])]:
            if not re.search(args.peers, name) and name not in ("polyad", "product"):
                continue
            if name == "polyad":
                short = {"float32": "f32", "float64": "f64"}[dtype]
                command = [args.polyad, folder, short, args.method, str(args.threads)]
            elif name.startswith("genten"):
                if not args.genten:
                    continue
                program = os.path.join(args.genten, {"float32": "genten_float", "float64": "genten_double"}[dtype])
                command = [program, folder, name.split("_")[1]]
            else:
                command = [sys.executable, __file__, "--worker", name, folder, str(order)]
            peers.append(Peer(name, command))
        result = os.path.join(folder, "result")
        for peer in peers:
            if peer.name == "product":
                continue
            for mode in range(order):
                off = math.inf
                if peer.ask(f"save {mode} {result}").get("saved"):
                    off = error(result, dtype, exact[mode])
                    os.remove(result)
                peer.off = max(peer.off, off)
                if not off <= TOLERANCE[dtype]:
                    peer.error = peer.error or f"mode {mode}: relative error {off:.1e}"
                    break
        for peer in peers:
            if not peer.error:
                peer.extra = peer.ask("rss").get("extra")
        for _ in range(args.rounds):
            turn = [p for p in peers if not p.error]
            random.shuffle(turn)
            for peer in turn:
                for mode in range(order):
                    times = peer.ask(f"mt {mode} {args.batch}").get("ts")
                    if times:
                        peer.times.setdefault(mode, []).append(statistics.median(times))
                    if args.products and peer.name == "polyad":
                        times = peer.ask(f"product {mode} {args.batch}").get("ts")
                        peer.products.setdefault(mode, []).append(statistics.median(times))
                time.sleep(0.08)  # a BLAS's idle threads spin for a while
        if args.als:
            for _ in range(3):
                for peer in peers:
                    if peer.als and not peer.error:
                        if peer.name == "polyad":
                            peer.ask("als 1")
                            one, more = peer.ask("als 1"), peer.ask("als 11")
                            peer.parts = {k: (more[k] - one[k]) / 10 for k in more}
                            peer.sweeps.append(peer.parts["total"])
                        else:
                            peer.sweeps.append(peer.ask("als 5")["sweep"])
                        time.sleep(0.08)
    finally:
        for peer in peers:
            peer.close()
        shutil.rmtree(folder)
    return peers


def report(dims, rank, dtype, peers):
    """Prints a case; the ratio of the fastest peer's time to polyad's."""
    flops = 2.0 * rank
    for d in dims:
        flops *= d
    name = "x".join(map(str, dims))
    print(f"\n### {name}, R = {rank}, {dtype}\n")
    print("| peer | ms by mode | all modes, ms | GFLOP/s | extra MiB | error | sweep, ms |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    total = {}
    for peer in peers:
        if peer.error or len(peer.times) < len(dims):
            print(f"| {peer.name} | {peer.error or 'no result'} | | | | | |")
            continue
        each = [peer.seconds(m) for m in range(len(dims))]
        total[peer.name] = sum(each)
        modes = " / ".join(f"{t * 1e3:.2f}" if t > 1e-3 else f"{t * 1e3:.3f}" for t in each)
        sweep = f"{statistics.median(peer.sweeps) * 1e3:.2f}" if peer.sweeps else ""
        rate = len(dims) * flops / sum(each) / 1e9
        print(f"| {peer.name} | {modes} | {sum(each) * 1e3:.3f} | {rate:.1f} | {peer.extra or 0:.1f} | {peer.off:.0e} | {sweep} |")
    rest = {k: v for k, v in total.items() if k not in ("polyad", "product")}
    ratio = None
    if "polyad" not in total:
        print("\npolyad has no result", flush=True)
    if rest and "polyad" in total:
        best = min(rest, key=rest.get)
        ratio = rest[best] / total["polyad"]
        print(f"\nfastest peer {best}: {ratio:.2f} times polyad's time", flush=True)
    ours, plain = (next((p for p in peers if p.name == n), None) for n in ("polyad", "product"))
    if ours and plain and not ours.error and not plain.error:
        # The faster of the two libraries' plain products of the same sizes, by mode: theirs without forming KR.
        faer = [statistics.median(ours.products[m]) for m in range(len(dims))]
        numpy = [plain.seconds(m) for m in range(len(dims))]
        rates = [100 * min(f, n) / ours.seconds(m) for m, (f, n) in enumerate(zip(faer, numpy))]
        print("plain products, ms by mode: numpy " + " / ".join(f"{t * 1e3:.2f}" for t in numpy) + ", faer "
              + " / ".join(f"{t * 1e3:.2f}" for t in faer) + "; polyad at " + " / ".join(f"{r:.0f}" for r in rates) + " % of it", flush=True)
    for peer in peers:
        parts = getattr(peer, "parts", None)
        if parts:
            # Beside these parts a sweep has the upload of factors alone.
            outside = parts["gram"] + parts["solve"] + max(parts["fit"], 0)
            share = 100 * outside / (outside + parts["mttkrp"])
            listed = ", ".join(f"{k} {v * 1e3:.2f}" for k, v in parts.items())
            print(f"polyad's sweep, ms: {listed}; outside MTTKRP {share:.0f} %", flush=True)
    return {"case": name, "rank": rank, "dtype": dtype, "seconds": total, "ratio": ratio}


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", metavar="FOLDER")
    parser.add_argument("--polyad", metavar="PEER", help="the executable of the bench `peer`")
    parser.add_argument("--genten", metavar="FOLDER", help="with genten_float and genten_double, as genten.sh builds them")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default=".")
    parser.add_argument("--peers", default=".")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=float, default=0.05, help="seconds of a batch")
    parser.add_argument("--als", action="store_true")
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.install:
        return install(args.install)
    if not args.polyad:
        parser.error("--polyad or --install")
    threads = str(args.threads)
    os.environ.update(OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="1000")
    random.seed(1)
    print(f"# {args.threads} threads, {args.rounds} rounds of {args.batch} s; flop model 2 N R")
    for name, what in PEERS.items():
        print(f"# {name}: {what}")
    results = []
    for dtype in args.dtypes.split(","):
        ratios = []
        for dims, rank in CASES:
            if re.search(args.cases, "x".join(map(str, dims)) + f" R={rank}"):
                result = report(dims, rank, dtype, race(args, dims, rank, dtype))
                results.append(result)
                if result["ratio"]:
                    ratios.append(result["ratio"])
        if ratios:
            print(f"\n{dtype}: fastest peer / polyad over {len(ratios)} cases: geometric mean "
                  f"{statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}", flush=True)
    if args.json:
        json.dump(results, open(args.json, "w"), indent=1)
    if any(r["ratio"] is None for r in results):
        raise SystemExit("polyad or all of its peers have no result")


if __name__ == "__main__":
    main()
