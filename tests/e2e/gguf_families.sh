#!/usr/bin/env bash
# Small models of each family that `ashlar model convert` writes as GGUF files: llama.cpp (npm's node-llama-cpp) computes the logits that
# the family's own library gives. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) echo "gguf_families: skipped: no llama.cpp for $(uname -m)"; exit 77 ;; esac
[ -x "$BUILD/bench/llama_library" ] || { echo "gguf_families: skipped: bench/llama_library is not built"; exit 77; }
need_npm gguf_families node-llama-cpp "@node-llama-cpp/linux-$arch"
cd "$SCRATCH"
exec node "$SOURCE/tests/e2e/gguf_families.mjs" "$ASHLAR" "$SOURCE" "$BUILD/bench/llama_library" "node_modules/@node-llama-cpp/linux-$arch/bins/linux-$arch"
