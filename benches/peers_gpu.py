#!/usr/bin/env python3
"""Times the same MTTKRPs and CP-ALS sweeps in PyTorch, on the same cases as the driver, and writes CSV.

  python3 peers_gpu.py --budget 280 --cases cube1024,160^4 --ranks 16,64 --csv peers.csv

Methods
  tensorly  unfold (a copy for every mode but the first), explicit Khatri-Rao product, matmul; by the package where it
            can be imported (the first line printed says so), otherwise by the same steps
  einsum    torch.einsum over the tensor and the other factors, contraction order by opt_einsum where it is installed
  gemm      explicit Khatri-Rao product and a matrix product without copying X: the first and the last mode in one
            product; a middle mode by a product over its larger side, then times the rows of the other side and summed
  compiled  gemm through torch.compile, for a few rows while time is left
Precisions: tf32_off and tf32_on (both f32 data), f64.

Times are medians of CUDA-event times after --warm-up seconds; short calls are repeated between two events until they
take about 2 ms. Error: relative Frobenius norm over up to 8 rows and 64 columns of the result against f64, as the
driver measures it. extra_bytes: most memory allocated during a call beyond what was there before it.
A mode of `sweep` is a sweep of plain CP-ALS: MTTKRP by the method, Cholesky solve, column norms, grams, and the fit from
the last MTTKRP, one number a sweep brought to the host.
"""

import argparse
import csv
import math
import statistics
import time

import torch

START = time.monotonic()
# Seconds after which an idle GPU has lower clocks, and seconds of work that raise them again (as the driver of polyad has it).
IDLE, AWAKE = 0.5, 1.5
CASES = ["cube1024", "160^4", "401x201x5x501", "60^5", "48x4800x4800", "2000x50x50"]
RANKS = [1, 4, 8, 10, 16, 32, 50, 64, 128, 200, 256, 512, 1024, 2000]
# Without --ranks: everything for the cube, the rest at a few. The order is that of importance, for when time runs out.
CUBE_RANKS = [16, 64, 512, 1, 8, 32, 256, 1024, 2000, 10, 128, 4, 50, 200]
OTHER_RANKS = [16, 1, 64, 512]
COLUMNS = ["case", "dtype", "precision", "method", "rank", "mode", "seconds", "error", "extra_bytes"]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=float, default=280.0, help="no row is started after this many seconds; cases share it equally")
parser.add_argument("--cases", default="all", help="as the driver's --case, comma-separated")
parser.add_argument("--ranks", default="", help="comma-separated, or all; default: a choice for each case")
parser.add_argument("--precisions", default="tf32_off,tf32_on,f64")
parser.add_argument("--methods", default="tensorly,einsum,gemm")
parser.add_argument("--als", default="64,512", help="ranks for CP-ALS sweeps (cube1024 only unless --als-cases)")
parser.add_argument("--als-cases", default="cube1024")
parser.add_argument("--compiled", default="16,64,512", help="ranks for torch.compile on cube1024; empty for none")
parser.add_argument("--seconds", type=float, default=0.2, help="measured time of each row")
parser.add_argument("--warm-up", type=float, default=0.3)
parser.add_argument("--csv", default="peers.csv", help="written anew")
parser.add_argument("--cpu-dry-run", action="store_true", help="tiny tensors on the CPU: checks the script, times nothing of use")


def listed(text, everything, convert=str):
    return everything if text == "all" else [convert(part) for part in text.split(",") if part]


def dims_of(case):
    if case.startswith("cube"):
        return [int(case[4:])] * 3
    if "^" in case:
        dim, order = case.split("^")
        return [int(dim)] * int(order)
    return [int(dim) for dim in case.split("x")]


# ---- the methods


def khatri_rao(factors):
    """Rows in row-major order of the modes: the last factor's index runs fastest."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product.unsqueeze(1) * factor.unsqueeze(0)).reshape(-1, factor.shape[1])
    return product


try:
    import tensorly
    from tensorly.cp_tensor import unfolding_dot_khatri_rao

    tensorly.set_backend("pytorch")
    TENSORLY = "tensorly " + tensorly.__version__
except ImportError:
    unfolding_dot_khatri_rao = None
    TENSORLY = "its steps, the package is not installed"


def by_tensorly(x, factors, mode):
    if unfolding_dot_khatri_rao is not None:
        return unfolding_dot_khatri_rao(x, (None, factors), mode)
    unfolded = torch.moveaxis(x, mode, 0).reshape(x.shape[mode], -1)
    return unfolded @ khatri_rao([f for m, f in enumerate(factors) if m != mode])


def by_einsum(x, factors, mode):
    letters = "abcdefgh"[: x.ndim]
    others = [m for m in range(x.ndim) if m != mode]
    inputs = ",".join([letters] + [letters[m] + "r" for m in others])
    return torch.einsum(f"{inputs}->{letters[mode]}r", x, *[factors[m] for m in others])


def by_gemm(x, factors, mode):
    rows = x.shape[mode]
    left, right = math.prod(x.shape[:mode]), math.prod(x.shape[mode + 1 :])
    if mode == 0:
        return x.reshape(rows, right) @ khatri_rao(factors[1:])
    if mode == x.ndim - 1:
        return x.reshape(left, rows).T @ khatri_rao(factors[:-1])
    lefts, rights = khatri_rao(factors[:mode]), khatri_rao(factors[mode + 1 :])
    if left > right:
        partial = x.reshape(left, rows * right).T @ lefts
        return (partial.view(rows, right, -1) * rights).sum(1)
    partial = x.reshape(left * rows, right) @ rights
    return (partial.view(left, rows, -1) * lefts.unsqueeze(1)).sum(0)


METHODS = {"tensorly": by_tensorly, "einsum": by_einsum, "gemm": by_gemm}


class Sampled:
    """Some rows and columns of the result in f64, one mode contracted after the other."""

    def __init__(self, x, factors, mode):
        spread = lambda count, most: [s * (count - 1) // max(min(count, most) - 1, 1) for s in range(min(count, most))]
        index = lambda values: torch.tensor(values, device=x.device)
        self.rows, self.columns = index(spread(x.shape[mode], 8)), index(spread(factors[mode].shape[1], 64))
        values = []
        for row in self.rows:
            part = x.select(mode, int(row)).double().unsqueeze(-1)
            others = [f.index_select(1, self.columns).double() for m, f in enumerate(factors) if m != mode]
            if others:
                part = part.squeeze(-1) @ others[-1]
            for factor in reversed(others[:-1]):
                part = (part * factor).sum(-2)
            values.append(part)
        self.values = torch.stack(values)

    def error(self, g):
        sampled = g.index_select(0, self.rows).index_select(1, self.columns).double()
        return float((sampled - self.values).norm() / self.values.norm())


# ---- one plain CP-ALS sweep


class Als:
    def __init__(self, x, rank, method):
        self.x, self.method = x, METHODS[method]
        self.norm = torch.linalg.vector_norm(x)
        self.factors = [noise([dim, rank], x.dtype, x.device) for dim in x.shape]
        self.grams = [f.T @ f for f in self.factors]

    def sweep(self):
        for mode in range(self.x.ndim):
            g = self.method(self.x, self.factors, mode)
            v = math.prod(gram for m, gram in enumerate(self.grams) if m != mode)
            triangle, _ = torch.linalg.cholesky_ex(v)
            solution = torch.cholesky_solve(g.T, triangle).T
            weights = torch.linalg.vector_norm(solution, dim=0)
            self.factors[mode] = solution / weights
            self.grams[mode] = self.factors[mode].T @ self.factors[mode]
        inner = (g * self.factors[-1] @ weights).sum()
        model = weights @ math.prod(self.grams) @ weights
        residual = (self.norm**2 - 2 * inner + model).clamp(min=0).sqrt()
        return float(1 - residual / self.norm)


# ---- measuring


def noise(dims, dtype, device):
    return torch.rand(dims, dtype=dtype, device=device).mul_(2).sub_(1)


def set_tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


class Bench:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cpu" if args.cpu_dry_run else "cuda")
        self.cuda = not args.cpu_dry_run
        self.skipped = 0
        self.last_use = -math.inf
        self.deadline = args.budget
        self.file = open(args.csv, "w", newline="", encoding="utf-8")
        self.csv = csv.writer(self.file)
        self.csv.writerow(COLUMNS)

    def time_left(self):
        return self.deadline - (time.monotonic() - START)

    def share(self, parts):
        """Gives the part at hand an equal share of the time left to it and the parts behind it."""
        now = time.monotonic() - START
        self.deadline = now + (self.args.budget - now) / parts

    def once(self, call, repeats):
        """Seconds of that many calls, back to back."""
        if not self.cuda:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(repeats):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e-3

    def median(self, call):
        one = self.once(call, 1)
        start = time.perf_counter()
        # A GPU that was idle, while something compiled for instance, has low clocks.
        idle = self.cuda and start - self.last_use > IDLE
        warm_up = max(self.args.warm_up, AWAKE) if idle else self.args.warm_up
        while True:
            repeats = int(min(max(2e-3 / max(one, 1e-7), 1), 20))
            if time.perf_counter() - start >= warm_up:
                break
            one = self.once(call, repeats) / repeats
        runs = int(min(max(self.args.seconds / max(one * repeats, 1e-9), 1), 25))
        seconds = statistics.median(self.once(call, repeats) for _ in range(runs)) / repeats
        self.last_use = time.perf_counter()
        return seconds

    def extra_bytes(self, call):
        """What the call returns, and the most it had allocated."""
        if not self.cuda:
            return call(), 0
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = call()
        torch.cuda.synchronize()
        return result, torch.cuda.max_memory_allocated() - before

    def row(self, key, call, error_of):
        """Measures one row; a failure (no memory, say) is printed and leaves no row."""
        case, dtype, precision, method, rank, mode = key
        name = f"{case:>14} {precision:>8} {method:>8} {rank:>5} {mode:>5}"
        if self.time_left() <= 0:
            self.skipped += 1
            return
        try:
            result, extra = self.extra_bytes(call)
            error = error_of(result)
            del result
            seconds = self.median(call)
        except Exception as failure:  # no memory, a size PyTorch refuses, no compiler: the other rows are wanted
            reason = (str(failure).splitlines() or [""])[0][:90]
            print(f"{name} {type(failure).__name__}: {reason}", flush=True)
        else:
            print(f"{name} {seconds * 1e3:11.4f} ms {error:9.1e} {extra:13d}", flush=True)
            # A sweep has no exact result: its fit is printed in the place of an error, and not written.
            error = "" if mode == "sweep" else f"{error:.3e}"
            self.csv.writerow([case, dtype, precision, method, rank, mode, f"{seconds:e}", error, extra])
            self.file.flush()
        if self.cuda:
            torch.cuda.empty_cache()

    def mttkrps(self, case, x, precision, rank, methods):
        dtype = "f64" if precision == "f64" else "f32"
        factors = [noise([dim, rank], x.dtype, x.device) for dim in x.shape]
        for mode in range(x.ndim):
            if self.time_left() <= 0:
                self.skipped += len(methods)
                continue
            set_tf32(False)
            sampled = Sampled(x, factors, mode)
            for method in methods:
                set_tf32(precision == "tf32_on")
                if method == "compiled":
                    torch._dynamo.reset()
                    compiled = torch.compile(by_gemm, dynamic=False)
                    call = lambda: compiled(x, factors, mode)
                else:
                    call = lambda: METHODS[method](x, factors, mode)
                self.row((case, dtype, precision, method, rank, mode), call, sampled.error)

    def sweeps(self, case, x, precision, rank):
        dtype = "f64" if precision == "f64" else "f32"
        for method in ("gemm", "tensorly"):
            if self.time_left() <= 0:
                self.skipped += 1
                continue
            set_tf32(precision == "tf32_on")
            try:
                als = Als(x, rank, method)
            except torch.OutOfMemoryError:
                continue
            self.row((case, dtype, precision, method, rank, "sweep"), als.sweep, lambda fit: fit)


def main():
    args = parser.parse_args()
    if args.cpu_dry_run:
        args.warm_up, args.seconds = 0.0, 0.0
    bench = Bench(args)
    where = torch.cuda.get_device_name(0) if bench.cuda else "CPU dry run, tiny tensors"
    print(f"# {where} | torch {torch.__version__}, cuda {torch.version.cuda} | tensorly: {TENSORLY}")
    print(f"# opt_einsum {'on' if torch.backends.opt_einsum.is_available() else 'not installed'}")
    print("# case, precision, method, R, mode, time, error (of a sweep: its fit), extra bytes")
    cases, methods = listed(args.cases, CASES), listed(args.methods, list(METHODS))
    compiled, als_cases = listed(args.compiled, CUBE_RANKS, int), listed(args.als_cases, CASES)
    precisions = listed(args.precisions, ["tf32_off", "tf32_on", "f64"])
    parts = [("mttkrp", precision, case) for precision in precisions for case in cases]
    if compiled and "cube1024" in cases:
        parts += [("compiled", precision, "cube1024") for precision in precisions]
    for index, (stage, precision, case) in enumerate(parts):
        bench.share(len(parts) - index)
        torch.manual_seed(0)
        dims = dims_of(case)
        if args.cpu_dry_run:
            dims = [min(dim, 24 // len(dims) + 3) for dim in dims]
        x = noise(dims, torch.float64 if precision == "f64" else torch.float32, bench.device)
        if stage == "compiled":
            for rank in compiled:
                bench.mttkrps(case, x, precision, rank, ["compiled"])
            continue
        if case in als_cases:
            for rank in listed(args.als, [64, 512], int):
                bench.sweeps(case, x, precision, rank)
        chosen = CUBE_RANKS if case == "cube1024" else OTHER_RANKS
        for rank in listed(args.ranks, RANKS, int) if args.ranks else chosen:
            bench.mttkrps(case, x, precision, rank, methods)
        del x
    print(f"# {time.monotonic() - START:.0f} s; {bench.skipped} rows skipped because time was up")


if __name__ == "__main__":
    main()
