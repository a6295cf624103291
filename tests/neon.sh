#!/usr/bin/env bash
# Builds the library for aarch64 and runs its CPU tests under QEMU's user mode: the vectors of NEON against the portable ones,
# and against the derived bound. Installs a cross linker and QEMU by apt.
#
#   bash tests/neon.sh [arguments of cargo test]
#
# Without arguments: MTTKRP on the CPU, and the unit tests of the CPU backend and of CP-ALS's algebra (six minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
  command -v apt-get >/dev/null || { echo "needs Debian's apt-get" >&2; exit 1; }
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo apt-get install -qq --no-install-recommends qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null
fi
target=aarch64-unknown-linux-gnu
rustup target list --installed | grep -qx "$target" || rustup target add "$target"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
run() { cargo test --locked --no-default-features --target "$target" "$@"; }
if [ $# = 0 ]; then
  # The one left out starts itself, which the emulator does not follow.
  run --test cpu -- --skip a_callers_pool_does_the_work
  run --lib -- cpu:: als::
else
  run "$@"
fi
