#!/usr/bin/env bash
# Runs tests/coop.rs on a software Vulkan driver that has f16 matrix units: lavapipe of a newer Mesa, from Debian
# unstable. Needs a Debian or Ubuntu with the package debian-archive-keyring. Nothing is installed: the driver, and the
# C library that it wants, are unpacked into FOLDER (about 75 MB to fetch, 360 MB unpacked) and used from there.
#
#   bash tests/coop.sh FOLDER [arguments of the test program]
#
# FOLDER is made on the first run and used again by later ones. All tests take some minutes; a word runs those with it
# in their name: bash tests/coop.sh FOLDER any_magnitude
# To change: MIRROR, the Debian archive.
set -euo pipefail
folder=${1:?usage: coop.sh FOLDER [arguments of the test program]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."

driver() { find "$folder" -name libvulkan_lvp.so -print -quit; }

# Package lists, cache and "nothing is installed" of apt's own, so that it resolves every library afresh and needs no
# root.
fetch() {
  local apt=$folder/apt keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$keyring" ] || { echo "needs $keyring (package debian-archive-keyring)" >&2; return 1; }
  mkdir -p "$apt"/{lists,cache/archives}/partial
  : >"$apt/status"
  echo "deb [signed-by=$keyring] ${MIRROR:-http://deb.debian.org/debian} sid main" >"$apt/sources.list"
  local options=(
    -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$apt/lists"
    -o Dir::State::Status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Install-Recommends=false
    -o Acquire::Languages=none
  )
  # The user apt downloads as may not enter the folder.
  if [ "$(id -u)" = 0 ]; then options+=(-o APT::Sandbox::User=root); fi
  apt-get "${options[@]}" update
  apt-get "${options[@]}" --yes --download-only install mesa-vulkan-drivers libvulkan1 >/dev/null
  local package
  for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$folder/files"; done
  rm -r "$apt"
}

if [ -z "$(driver)" ]; then fetch; fi
libraries=$(dirname "$(driver)")
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*.so.*' -print -quit)
icd=$folder/lavapipe.json
printf '{"file_format_version": "1.0.1", "ICD": {"api_version": "1.4.0", "library_path": "%s"}}\n' "$(driver)" >"$icd"

cargo test --locked --test coop --no-run
program=$(cargo test --locked --test coop --no-run --message-format=json 2>/dev/null |
  sed -n '/"name":"coop"/s/.*"executable":"\([^"]*\)".*/\1/p')

# Layers of the installed Mesa would be loaded into the newer one.
export VK_DRIVER_FILES=$icd VK_LOADER_LAYERS_DISABLE='~implicit~' POLYAD_REQUIRE_GPU=1 POLYAD_REQUIRE_COOP=1
unset WGPU_BACKEND WGPU_ADAPTER_NAME
"$loader" --library-path "$libraries" "$program" --nocapture "$@"
