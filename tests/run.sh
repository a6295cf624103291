#!/usr/bin/env bash
# Installs what the tests need (a software Vulkan driver, on Debian and Ubuntu), then runs all of them.
# Arguments go to cargo test: bash tests/run.sh --test cpu
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v apt-get >/dev/null && ! ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libvulkan1 mesa-vulkan-drivers
fi
# Without a desktop session Mesa's layer that looks for the desktop's card complains on stderr, once per device.
if [ -z "${XDG_RUNTIME_DIR:-}" ]; then export NODEVICE_SELECT=1; fi
cargo test --locked "$@"
