#!/usr/bin/env bash
# All figures of one GPU and the tile widths in one go, the most important first.
#
#   bash benches/figures/run_gpu.sh POLYAD FOLDER SECONDS
#
# POLYAD is the executable, FOLDER gets NAME.csv, NAME.svg and NAME.log of every figure, SECONDS is the budget of all: a
# figure gets no more than its limit and what is left, points that do not fit it are left out, and figures after the end of
# the budget are skipped. On an H200 about 700 seconds do, most of them for SLICE and for tile widths.
# To change what is measured: DEVICE (gpu), DIMS3 and DIMS4, RANKS (of variants and models), ALS_RANKS, MEMORY_RANKS (all
# by default), METHODS, ROW_SECONDS (of a point), TILE_DIMS, TILE_RANKS, TILE_MODES, F64 (empty for no f64),
# MORE (options of every command), STEPS (names of steps, all by default).
set -euo pipefail
usage="usage: run_gpu.sh POLYAD FOLDER SECONDS"
polyad=${1:?$usage} out=${2:?$usage} budget=${3:?$usage}
device=${DEVICE:-gpu} dims3=${DIMS3:-48x4800x4800} dims4=${DIMS4:-48x280x280x280}
ranks=${RANKS:-16,64} als_ranks=${ALS_RANKS:-16,64,256} memory_ranks=${MEMORY_RANKS:-}
methods=${METHODS:-fused,tile,slice,gemm} seconds=${ROW_SECONDS:-0.05} f64=${F64-f64}
tile_ranks=${TILE_RANKS:-16,64} tile_modes=${TILE_MODES:-0,1}
read -ra tile_dims <<<"${TILE_DIMS:-256x256x256 48x1200x1200 2000x50x50 100x100x100x100 40x40x40x40x40 8000x8000}"
read -ra more <<<"${MORE:-}"
polyad=$(cd "$(dirname "$polyad")" && pwd)/$(basename "$polyad")
mkdir -p "$out"
# The figures name their command: no paths of this machine.
cd "$out"
start=$SECONDS failed=0

# step NAME LIMIT SHOW COMMAND..: what is printed is in NAME.log; SHOW prints the result in a line.
step() {
  local name=$1 limit=$2 show=$3 left=$((budget - (SECONDS - start))) begun=$SECONDS rc=0
  shift 3
  [[ -z ${STEPS:-} || " $STEPS " == *" $name "* ]] || return 0
  if [ "$left" -lt 5 ]; then
    echo "$name: skipped, the budget is used up"
    return
  fi
  [ "$left" -gt "$limit" ] || limit=$left
  # A point that was begun may take a while to end.
  timeout "$limit" "$polyad" "$@" --budget $((limit * 3 / 4)) "${more[@]}" >"$name.log" 2>&1 || rc=$?
  echo "$name: $((SECONDS - begun)) s of at most $limit$([ $rc = 0 ] || echo ", exit status $rc")"
  if [ $rc = 0 ]; then $show "$name"; else failed=1 && tail -n 1 "$name.log" | cut -c1-200; fi
}
quiet() { :; }
last() { tail -n 1 "$1.log"; }
# Columns by name of FIGURE.csv: method, rank and a number.
rows() {
  awk -F, -v column="$2" '/^#/ { next } { gsub(/"[^"]*"/, "-") } !at { for (i = 1; i <= NF; i++) if ($i == column) at = i; next }
    { printf "  %s R %s %.4g", $2, $3, $at } END { print "  (" column ")" }' "$1.csv"
}
rates() { rows "variants-$1" gflops; }
sweeps() { rows "$1" sweep_seconds; }

bench=(bench --device "$device" --seconds "$seconds" -o .)
measure=("${bench[@]}" --figure "variants,models" --methods "$methods" --ranks "$ranks")
als=("${bench[@]}" --figure als --methods fused,tile,gemm --ranks "$als_ranks")
memory=("${bench[@]}" --figure memory ${memory_ranks:+--ranks "$memory_ranks"})
for dtype in f32 $f64; do
  step "memory-3way-$dtype" 20 quiet "${memory[@]}" --dims "$dims3" --dtype "$dtype" --name "memory-3way-$dtype"
  step "memory-4way-$dtype" 20 quiet "${memory[@]}" --dims "$dims4" --dtype "$dtype" --name "memory-4way-$dtype"
done
step 3way-f32 110 rates "${measure[@]}" --dims "$dims3" --name 3way-f32
step als-3way-f32 60 sweeps "${als[@]}" --dims "$dims3" --name als-3way-f32
tiles=(--ranks "$tile_ranks" --modes "$tile_modes" --seconds "$seconds" --csv tile-widths.csv -q)
step tile-widths 100 last sweep-tile --device "$device" "${tile_dims[@]/#/--dims=}" "${tiles[@]}"
step 4way-f32 170 rates "${measure[@]}" --dims "$dims4" --name 4way-f32
step als-4way-f32 60 sweeps "${als[@]}" --dims "$dims4" --name als-4way-f32
if [ -n "$f64" ]; then
  step 3way-f64 150 rates "${measure[@]}" --dims "$dims3" --dtype f64 --name 3way-f64
  # SLICE would take half a minute an MTTKRP.
  step 4way-f64 70 rates "${bench[@]}" --figure "variants,models" --methods fused,tile,gemm --ranks "$ranks" --dims "$dims4" \
    --dtype f64 --name 4way-f64
  step als-3way-f64 60 sweeps "${als[@]}" --dims "$dims3" --dtype f64 --name als-3way-f64
  step als-4way-f64 60 sweeps "${als[@]}" --dims "$dims4" --dtype f64 --name als-4way-f64
fi
echo "all: $((SECONDS - start)) s; results in $out"
exit $failed
