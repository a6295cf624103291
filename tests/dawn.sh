#!/usr/bin/env bash
# A second WGSL front end: Tint, in Dawn, from the npm package `webgpu`, on SwiftShader. It has to accept every kernel in
# standard WGSL, and MTTKRPs run there are compared with the CPU's. Needs node and npm; nothing is installed outside FOLDER.
#
#   bash tests/dawn.sh FOLDER
#
# FOLDER is made on the first run (some 60 MB to fetch) and used again by later ones. Exits with 3 where something cannot be
# had: node, npm, a package.
# To change: WEBGPU, the version of the package.
set -euo pipefail
folder=${1:?usage: dawn.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
command -v node >/dev/null && command -v npm >/dev/null || { echo "needs node and npm" >&2; exit 3; }
if [ ! -e "$folder/node_modules/webgpu" ]; then
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "webgpu@${WEBGPU:-0.6.2}" || exit 3
fi
icd=$(bash tests/swiftshader.sh "$folder/swiftshader" --driver) || exit 3
POLYAD_DAWN_DIR=$folder cargo test --locked --test dawn
env VK_DRIVER_FILES="$icd" VK_ICD_FILENAMES="$icd" VK_LOADER_LAYERS_DISABLE='~implicit~' node tests/dawn.mjs "$folder"
