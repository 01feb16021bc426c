#!/usr/bin/env bash
# Compiles the tool source and the policy, and writes a configuration that names both by digest:
#   examples/edge-host/compile.sh FOLDER [aarch64-unknown-linux-gnu | x86_64-unknown-linux-gnu | pulley64]
# Needs a `portcullis` of the same version: the one in PATH, or the program that PORTCULLIS names.
set -euo pipefail

folder=${1:?"usage: compile.sh FOLDER [TARGET]"}
portcullis=${PORTCULLIS:-portcullis}
mkdir -p "$folder"
cd "$folder"

compile() {
    "$portcullis" plugin compile "builtin:$1" "$1.cwasm" ${target:+--target "$target"}
}
target=${2:-}
cat >portcullis.toml <<TOML
[sources.calc]
component = "$(compile calculator)"

[[policies]]
plugin = "$(compile rules)"
settings = { deny = ["calc__divide"] }
TOML
echo "written: $folder/portcullis.toml"
