#!/usr/bin/env bash
# Packs the sources of the last commit into build/dist/ashlar-VERSION.tar.gz. The same commit gives the same bytes.
# usage: scripts/dist.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/dist}
version=$(sed -n 's/^project(ashlar VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
git rev-parse --git-dir > /dev/null 2>&1 || { echo "ashlar: make dist packs a commit, and this is no git checkout" >&2; exit 1; }
mkdir -p "$out"
git archive --format=tar --prefix="ashlar-$version/" HEAD | gzip -9n > "$out/ashlar-$version.tar.gz"
echo "$out/ashlar-$version.tar.gz"
