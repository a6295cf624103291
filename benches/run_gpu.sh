#!/usr/bin/env bash
# The driver and the PyTorch peers in one go on one GPU, then their ratios. Everything is written into $OUT.
#
#   OUT=results bash benches/run_gpu.sh DRIVER BUDGET_SECONDS
#
# DRIVER is the executable that `cargo bench --bench mttkrp --no-run` names. Of the budget the driver's f32 run gets
# 35 %, CP-ALS 5 %, its f64 run 10 % and the peers 50 %; what is not reached in time is skipped and counted.
# To change what is run: CASES, RANKS, METHODS, PRECISIONS (float32 fast), WARM_UP (seconds), PYTHON; ALS (ranks; empty
# for none) and ALS_CASE (the first case), F64_RANKS (on the first case; empty for none). SLOW="slice,tile:8,gemm" adds
# those methods on ALS_CASE at SLOW_RANKS (16,64), with what is left of the budget.
set -euo pipefail
driver=${1:?usage: run_gpu.sh DRIVER BUDGET_SECONDS}
budget=${2:?usage: run_gpu.sh DRIVER BUDGET_SECONDS}
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-.}
mkdir -p "$out"
cases=${CASES:-cube1024,160^4,60^5,401x201x5x501,48x4800x4800,2000x50x50}
ranks=${RANKS:-1,8,16,32,64,256,512,2000}
methods=${METHODS:-auto}
als=${ALS-64,512}
als_case=${ALS_CASE:-${cases%%,*}}
python=${PYTHON:-python3}
common=(--device gpu --warm-up "${WARM_UP:-0.3}" --seconds 0.2 --csv "$out/polyad.csv")
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
  part polyad-als "$driver" --case "$als_case" --methods none --als "$als" --budget "$(share 5)" "${common[@]}"
fi
f64_ranks=${F64_RANKS-1,8,16,64,512}
if [ -n "$f64_ranks" ]; then
  part polyad-f64 "$driver" --case "${cases%%,*}" --ranks "$f64_ranks" --methods "$methods" --dtype f64 \
    --budget "$(share 10)" "${common[@]}"
fi
part peers "$python" -u "$here/peers_gpu.py" --budget "$(share 50)" --cases "$cases" --ranks "$ranks" \
  --precisions "tf32_off,tf32_on${f64_ranks:+,f64}" --als "$als" --als-cases "$als_case" --warm-up "${WARM_UP:-0.3}" --csv "$out/peers.csv"
left=$((budget - (SECONDS - start)))
if [ -n "${SLOW:-}" ] && [ "$left" -gt 10 ]; then
  part polyad-slow "$driver" --case "$als_case" --ranks "${SLOW_RANKS:-16,64}" --methods "$SLOW" --budget "$left" "${common[@]}"
fi
part ratios "$python" "$here/ratios.py" "$out/polyad.csv" "$out/peers.csv"
exit "$failed"
