#!/usr/bin/env python3
"""Compares one run of the driver with one run of the PyTorch peers on the same machine.

  python3 ratios.py polyad.csv [peers.csv] [--method fused] [--check]

First which of the named cases and ranks were not measured. Then, for each case, rank and precision: milliseconds, mean
over the modes, of ours, of the fastest peer of each mode, and of the fastest single peer; ours over both; and the worst
single mode against that mode's fastest peer. Precisions meet as float32 with tf32_off, fast with tf32_on, f64 with f64.
Targets are held against the fastest peer of each mode, the stricter of the two. A row with fewer modes than the case has
says so and is held against no target of a mean.
"""

import argparse
import csv
import sys
from collections import defaultdict
from statistics import mean

PRECISIONS = {"float32": "tf32_off", "fast": "tf32_on", "f64": "f64"}
PREFERRED = ["fused", "auto"]
# The driver's --case all and --ranks all.
CASES = ["cube1024", "160^4", "401x201x5x501", "60^5", "48x4800x4800", "2000x50x50"]
RANKS = [1, 4, 8, 10, 16, 32, 50, 64, 128, 200, 256, 512, 1024, 2000]
EVERY_MODE = 1.05
LARGEST_ERROR = 5e-6


def target(case, precision, rank):
    """(largest ratio, whether against the eager forms only) of the mean over the modes, or None."""
    cube = case == "cube1024"
    if precision == "float32" and cube:
        for fits, most in (
            (rank == 1, 1.05),
            (8 <= rank <= 16, 0.45),
            (rank == 32, 0.55),
            (rank == 64, 0.62),
            (rank >= 256, 0.45),
        ):
            if fits:
                return most, False
    if precision == "float32" and case in ("160^4", "60^5") and rank == 16:
        return 0.45, False
    if precision == "fast" and 8 <= rank <= 32:
        return 0.85, False
    if precision == "fast" and rank >= 64:
        return 1.0, True
    return None


# Least speed of a tree that is chosen by itself, relative to one MTTKRP a mode.
TREE_SPEED = 1.3


def sweep_target(case, precision, rank, tree):
    if case == "cube1024" and precision == "float32":
        targets = {"none": {64: 0.7, 512: 0.6}, "auto": {64: 0.5, 512: 0.4}}
        return targets.get(tree, {}).get(rank)
    return None


def roofline_target(precision, rank):
    """Smallest share of the roofline."""
    if precision == "float32" and rank <= 8:
        return 0.85
    if precision == "f64":
        return 1 / 1.15 if rank <= 8 else 1 / 1.3 if rank == 16 else None
    return None


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def order_of(case):
    if case.startswith("cube"):
        return 3
    return int(case.split("^")[1]) if "^" in case else case.count("x") + 1


def by_mode(rows):
    """{(case, precision, rank): {mode: {method: row}}}; of rows measured twice the last counts. Of our sweeps the method
    is the tree."""
    table = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        key = (row["case"], row["precision"], int(row["rank"]))
        table[key][row["mode"]][row.get("tree") or row["method"]] = row
    return table


def seconds(row):
    return float(row["seconds"])


def choose(modes, asked):
    """Which of our methods stands for us: the one asked for, else fused, auto, or the fastest on average."""
    counts = defaultdict(list)
    for methods in modes.values():
        for method, row in methods.items():
            counts[method].append(seconds(row))
    if asked:
        return asked if asked in counts else None
    for method in PREFERRED:
        if method in counts:
            return method
    most = max(map(len, counts.values()))
    return min((m for m in counts if len(counts[m]) == most), key=lambda m: mean(counts[m]))


class Verdicts:
    def __init__(self):
        self.met = 0
        self.missed = []

    def hold(self, what, met):
        if met:
            self.met += 1
        else:
            self.missed.append(what)
        return "met" if met else "MISSED"


def show(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def compare(ours, peers, asked, verdicts):
    print(f"{'case':>14} {'precision':>9} {'R':>5} {'ours':>8} {'ms':>10} {'peers ms':>10} {'one peer ms':>20} "
          f"{'ratio':>6} {'/one':>6} {'/compiled':>9} {'worst mode':>11}  target")
    for key in sorted(ours, key=lambda k: (k[0], k[1], k[2])):
        case, precision, rank = key
        mine = {mode: methods for mode, methods in ours[key].items() if mode != "sweep"}
        theirs = peers.get((case, PRECISIONS.get(precision), rank), {})
        method = choose(mine, asked) if mine else None
        modes = [mode for mode in mine if method in mine[mode] and theirs.get(mode)]
        if not modes:
            continue
        wanted = target(case, precision, rank)
        eager_only = wanted is not None and wanted[1]
        fastest, worst, tally, compiled = [], (0.0, ""), defaultdict(list), []
        for mode in modes:
            others = {m: seconds(row) for m, row in theirs[mode].items()}
            if "compiled" in others:
                compiled.append(others["compiled"])
            if eager_only:
                others.pop("compiled", None)
            for peer, took in others.items():
                tally[peer].append(took)
            best = min(others.values(), default=None)
            if best is None:
                continue
            fastest.append(best)
            worst = max(worst, (seconds(mine[mode][method]) / best, mode))
        if not fastest:
            continue
        whole = len(modes) == order_of(case)
        my_mean, peer_mean = mean(seconds(mine[mode][method]) for mode in modes), mean(fastest)
        singles = {peer: mean(times) for peer, times in tally.items() if len(times) == len(modes)}
        single = min(singles, key=singles.get) if singles else None
        ratio = my_mean / peer_mean
        notes = []
        name = f"{case} {precision} R={rank}"
        if not whole:
            notes.append(f"only {len(modes)} of {order_of(case)} modes")
        elif wanted:
            verdict = verdicts.hold(f"{name}: {ratio:.3f} of the fastest peer, at most {wanted[0]}", ratio <= wanted[0])
            notes.append(f"<= {wanted[0]} {verdict}" + (" (eager)" if eager_only else ""))
        if precision == "float32":
            what = f"{name} mode {worst[1]}: {worst[0]:.3f} of its fastest peer, at most {EVERY_MODE}"
            if verdicts.hold(what, worst[0] <= EVERY_MODE) == "MISSED":
                notes.append(f"a mode > {EVERY_MODE} MISSED")
        one = f"{single} {singles[single] * 1e3:.4f}" if single else "-"
        against_one = my_mean / singles[single] if single else None
        against_compiled = my_mean / mean(compiled) if len(compiled) == len(modes) else None
        print(f"{case:>14} {precision:>9} {rank:>5} {method:>8} {my_mean * 1e3:>10.4f} {peer_mean * 1e3:>10.4f} {one:>20} "
              f"{ratio:>6.3f} {show(against_one):>6} {show(against_compiled):>9} {worst[0]:>6.3f} in {worst[1]}  "
              + "; ".join(notes))


def compare_sweeps(ours, peers, verdicts):
    for key in sorted(ours):
        case, precision, rank = key
        theirs = peers.get((case, PRECISIONS.get(precision), rank), {}).get("sweep", {})
        mine = ours[key].get("sweep", {})
        for tree, row in mine.items():
            line = (f"{case:>14} {precision:>9} {rank:>5} tree {tree:>5}, {float(row['passes']):.2f} passes "
                    f"{seconds(row) * 1e3:>10.3f} ms a CP-ALS sweep")
            if "none" in mine and tree != "none":
                speed = seconds(mine["none"]) / seconds(row)
                line += f", {speed:.2f} times the speed of none"
                if tree == "auto" and case == "cube1024" and precision == "float32" and rank in (64, 512):
                    what = f"{case} {precision} R={rank}: a tree is {speed:.2f} times as fast, at least {TREE_SPEED}"
                    line += f" >= {TREE_SPEED} {verdicts.hold(what, speed >= TREE_SPEED)}"
            if theirs:
                peer = min(theirs, key=lambda m: seconds(theirs[m]))
                ratio = seconds(row) / seconds(theirs[peer])
                line += f", {peer} {seconds(theirs[peer]) * 1e3:.3f}: ratio {ratio:.3f}"
                most = sweep_target(*key, tree)
                if most:
                    what = (f"{case} {precision} R={rank} tree {tree}: a sweep takes {ratio:.3f} of the fastest peer's, "
                            f"at most {most}")
                    line += f" <= {most} {verdicts.hold(what, ratio <= most)}"
            print(line)


def compare_errors(ours, peers, asked, verdicts):
    """What does not show in the ratios: error and share of the roofline."""
    worst = {}
    for key, modes in ours.items():
        case, precision, rank = key
        mine = {mode: methods for mode, methods in modes.items() if mode != "sweep"}
        method = choose(mine, asked) if mine else None
        rows = [methods[method] for methods in mine.values() if method in methods]
        if not rows:
            continue
        name = f"{case} {precision} R={rank}"
        error = max(float(row["error"]) for row in rows)
        worst[precision] = max(worst.get(precision, (0.0, "")), (error, name))
        if precision == "float32":
            verdicts.hold(f"{name}: error {error:.1e}, at most {LARGEST_ERROR:.0e}", error <= LARGEST_ERROR)
        if precision == "fast":
            theirs = peers.get((case, PRECISIONS.get(precision), rank), {})
            errors = [float(row["error"]) for mode in mine for row in theirs.get(mode, {}).values() if row["error"]]
            if errors:
                what = f"{name}: error {error:.1e}, at most 1.5 x {max(errors):.1e} (TF32)"
                verdicts.hold(what, error <= 1.5 * max(errors))
        least = roofline_target(precision, rank)
        shares = [float(row["roofline_share"]) for row in rows if row["roofline_share"]]
        if least and shares:
            verdicts.hold(f"{name}: {mean(shares):.3f} of the roofline, at least {least:.2f}", mean(shares) >= least)
    for precision, (error, name) in sorted(worst.items()):
        print(f"largest error, {precision}: {error:.1e} ({name})")


def compare_own(ours, asked):
    """Our methods against each other: times of the chosen one."""
    for key in sorted(ours):
        mine = {mode: methods for mode, methods in ours[key].items() if mode != "sweep"}
        chosen = choose(mine, asked) if mine else None
        parts = []
        for method in sorted({m for methods in mine.values() for m in methods if m != chosen}):
            both = [methods for methods in mine.values() if chosen in methods and method in methods]
            if both:
                took, base = (mean(seconds(methods[m]) for methods in both) for m in (method, chosen))
                parts.append(f"{method} {took * 1e3:.3f} ms = {took / base:.2f}x")
        if parts:
            print(f"{key[0]:>14} {key[1]:>9} {key[2]:>5} {chosen:>8} against " + ", ".join(parts))


def missing(ours):
    """Which of the named cases and ranks have no row: what time or memory did not allow."""
    measured = defaultdict(set)
    for case, precision, rank in ours:
        measured[precision, case].add(rank)
    for precision, case in sorted(measured):
        ranks = [rank for rank in RANKS if rank not in measured[precision, case]]
        if ranks and case in CASES:
            print(f"no rows of {case}, {precision}, at R = {', '.join(map(str, ranks))}")
    for precision in sorted({precision for precision, _ in measured}):
        cases = [case for case in CASES if (precision, case) not in measured]
        if cases:
            print(f"no rows of {', '.join(cases)}, {precision}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver", help="CSV of the driver")
    parser.add_argument("peers", nargs="?", help="CSV of peers_gpu.py; without it ours are compared among themselves")
    parser.add_argument("--method", help="which of our methods is compared (default: fused, else auto, else the fastest)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    ours, peers, verdicts = by_mode(read(args.driver)), by_mode(read(args.peers) if args.peers else []), Verdicts()
    missing(ours)
    compare(ours, peers, args.method, verdicts)
    print()
    compare_sweeps(ours, peers, verdicts)
    print()
    compare_own(ours, args.method)
    print()
    compare_errors(ours, peers, args.method, verdicts)
    print(f"targets: {verdicts.met} met, {len(verdicts.missed)} missed")
    for what in verdicts.missed:
        print(f"  missed: {what}")
    sys.exit(1 if args.check and verdicts.missed else 0)


if __name__ == "__main__":
    main()
