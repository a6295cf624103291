#!/usr/bin/env bash
# The driver and the PyTorch peers in one go on one GPU, then their ratios. Everything is written into $OUT.
#
#   OUT=results bash benches/run_gpu.sh DRIVER --budget SECONDS [--case all|LIST] [--ranks all|LIST]
#
# DRIVER is the executable that `cargo bench --bench mttkrp --no-run` names. Of the budget the driver's f32 run gets
# 35 %, CP-ALS 10 %, its f64 run 10 % and the peers 45 %; within a run every case gets an equal share, and what is not
# reached in time is skipped and counted. Without --case and --ranks: all cases, at eight ranks.
# To change what is run: METHODS, PRECISIONS (float32 fast), WARM_UP and ROW_SECONDS (of each row), PYTHON; ALS (ranks; empty
# for none), ALS_CASE (the first case; a list of several) and TREES (none,two,multi,auto), F64_RANKS (on the first case; empty for none). SLOW="slice,tile:8,gemm" adds
# those methods on SLOW_CASE (ALS_CASE; all for every case) at SLOW_RANKS (16,64), with what is left of the budget.
# DEVICE (gpu) is the driver's --device; PEERS is what peers_gpu.py gets beside its cases (--cpu-dry-run, to try the
# scripts), or none to leave it out.
set -euo pipefail
usage="usage: run_gpu.sh DRIVER --budget SECONDS [--case all|LIST] [--ranks all|LIST]"
driver=${1:?$usage}
shift
cases=all ranks=1,8,16,32,64,256,512,2000 budget=
while [ $# -gt 0 ]; do
  case $1 in
    --case) cases=${2:?$usage} ;;
    --ranks) ranks=${2:?$usage} ;;
    --budget) budget=${2:?$usage} ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift 2
done
: "${budget:?$usage}"
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-.}
mkdir -p "$out"
methods=${METHODS:-auto}
als=${ALS-64,512}
first_case=${cases%%,*}
[ "$first_case" != all ] || first_case=cube1024
als_case=${ALS_CASE:-$first_case}
python=${PYTHON:-python3}
common=(
  --device "${DEVICE:-gpu}" --warm-up "${WARM_UP:-0.3}" --seconds "${ROW_SECONDS:-0.2}" --csv "$out/polyad.csv"
)
rm -f "$out/polyad.csv" "$out/peers.csv"
start=$SECONDS
share() { echo $((budget * $1 / 100)); }
# One failing part leaves the others their turn; the exit status says that one failed.
failed=0
part() {
  local log=$1
  shift
  echo "== $log: $* (at $((SECONDS - start)) s)"
  "$@" 2>&1 | tee "$out/$log.log" || failed=1
}

read -ra precisions <<<"${PRECISIONS:-float32}"
first=$(($(share 35) / ${#precisions[@]}))
for precision in "${precisions[@]}"; do
  part "polyad-$precision" "$driver" --case "$cases" --ranks "$ranks" --methods "$methods" --precision "$precision" \
    --budget "$first" "${common[@]}"
done
if [ -n "$als" ]; then
  part polyad-als "$driver" --case "$als_case" --methods none --als "$als" --trees "${TREES:-none,two,multi,auto}" --budget "$(share 10)" "${common[@]}"
fi
f64_ranks=${F64_RANKS-1,8,16,64,512}
if [ -n "$f64_ranks" ]; then
  part polyad-f64 "$driver" --case "$first_case" --ranks "$f64_ranks" --methods "$methods" --dtype f64 \
    --budget "$(share 10)" "${common[@]}"
fi
read -ra peers <<<"${PEERS:-}"
if [ "${PEERS:-}" != none ]; then
  part peers "$python" -u "$here/peers_gpu.py" --budget "$(share 45)" --cases "$cases" --ranks "$ranks" \
    --precisions "tf32_off,tf32_on${f64_ranks:+,f64}" --als "$als" --als-cases "$als_case" --warm-up "${WARM_UP:-0.3}" --seconds "${ROW_SECONDS:-0.2}" \
    --csv "$out/peers.csv" ${peers[@]+"${peers[@]}"}
fi
left=$((budget - (SECONDS - start)))
if [ -n "${SLOW:-}" ] && [ "$left" -gt 10 ]; then
  part polyad-slow "$driver" --case "${SLOW_CASE:-$als_case}" --ranks "${SLOW_RANKS:-16,64}" --methods "$methods,$SLOW" \
    --budget "$left" "${common[@]}"
fi
csvs=("$out/polyad.csv")
[ ! -s "$out/peers.csv" ] || csvs+=("$out/peers.csv")
part ratios "$python" "$here/ratios.py" "${csvs[@]}"
exit "$failed"
