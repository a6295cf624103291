#!/usr/bin/env bash
# Installs what the tests need (a software Vulkan driver, on Debian and Ubuntu), then runs all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v apt-get >/dev/null && ! ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libvulkan1 mesa-vulkan-drivers
fi
cargo test --locked "$@"
