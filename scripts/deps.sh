#!/usr/bin/env bash
# Installs what building and testing need (apt, on Debian and Ubuntu); elsewhere says exactly what is missing.
set -euo pipefail
packages=(build-essential cmake ninja-build pkg-config libjansson-dev libyaml-dev libpcre2-dev libxxhash-dev
          libmicrohttpd-dev libutf8proc-dev libcmocka-dev clang libclang-rt-14-dev)
# What the tests and the build ask for, as things that can be looked for on any system.
commands=(cc cmake ninja pkg-config)
modules=(jansson yaml-0.1 libpcre2-8 libxxhash libmicrohttpd libutf8proc cmocka)

missing=()
for c in "${commands[@]}"; do command -v "$c" > /dev/null || missing+=("$c"); done
if command -v pkg-config > /dev/null; then
    for m in "${modules[@]}"; do pkg-config --exists "$m" || missing+=("$m"); done
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get > /dev/null; then
    echo "ashlar: missing: ${missing[*]}" >&2
    echo "ashlar: install them with this system's package manager (on Debian: apt-get install ${packages[*]})" >&2
    exit 1
fi
echo "ashlar: installing ${missing[*]} with apt"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
available=()
for p in "${packages[@]}"; do apt-cache show "$p" > /dev/null 2>&1 && available+=("$p"); done
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${available[@]}" > /dev/null
