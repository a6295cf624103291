#!/usr/bin/env bash
# Installs what the tests need (on Debian and Ubuntu a software Vulkan driver and spirv-val), then runs all of them.
# Arguments go to cargo test: bash tests/run.sh --test cpu
set -euo pipefail
cd "$(dirname "$0")/.."
packages=()
ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1 || packages+=(libvulkan1 mesa-vulkan-drivers)
command -v spirv-val >/dev/null || packages+=(spirv-tools)
if command -v apt-get >/dev/null && [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${packages[@]}"
fi
# Without a desktop session Mesa's layer that looks for the desktop's card complains on stderr, once per device.
if [ -z "${XDG_RUNTIME_DIR:-}" ]; then export NODEVICE_SELECT=1; fi
cargo test --locked "$@"
