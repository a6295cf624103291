#!/usr/bin/env bash
# Runs tests on a second software Vulkan driver: SwiftShader, as Debian packages it with Chromium. Nothing is installed: its
# library is unpacked into FOLDER (32 MB to fetch) and used from there. It has no f64, no f32 atomics and no matrix units.
#
#   bash tests/swiftshader.sh FOLDER [arguments of cargo test]
#
# FOLDER is made on the first run and used again by later ones. Without arguments: kernels, streaming, borrowed devices and
# failures. With `--driver` as the only argument it prints the driver's file and runs nothing.
set -euo pipefail
folder=${1:?usage: swiftshader.sh FOLDER [arguments of cargo test]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
library=$folder/usr/lib/chromium/libvk_swiftshader.so
icd=$folder/usr/lib/chromium/vk_swiftshader_icd.json

if [ ! -e "$icd" ]; then
  command -v apt-get >/dev/null || { echo "needs Debian's apt-get" >&2; exit 1; }
  if ! apt-cache show chromium-common >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
    $sudo apt-get update -qq
  fi
  (cd "$folder" && apt-get download -qq chromium-common 2>/dev/null)
  dpkg-deb --fsys-tarfile "$folder"/chromium-common_*.deb |
    tar -x -C "$folder" "./${library#"$folder"/}" "./${icd#"$folder"/}"
  rm "$folder"/chromium-common_*.deb
fi
if [ "$*" = --driver ]; then echo "$icd"; exit; fi

export VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd VK_LOADER_LAYERS_DISABLE='~implicit~' NODEVICE_SELECT=1
export POLYAD_REQUIRE_GPU=1
unset WGPU_BACKEND WGPU_ADAPTER_NAME
if [ $# = 0 ]; then set -- --test gpu --test streaming --test borrowed --test failures; fi
cargo test --locked "$@"
