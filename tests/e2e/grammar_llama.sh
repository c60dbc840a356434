#!/usr/bin/env bash
# GBNF against llama.cpp itself (npm's node-llama-cpp): the same tokens allowed in every state of drawn walks. Skips where Node.js or the
# npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) echo "grammar_llama: skipped: no llama.cpp for $(uname -m)"; exit 77 ;; esac
need_npm grammar_llama node-llama-cpp "@node-llama-cpp/linux-$arch"
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/grammar_llama.mjs" . # modules are found from where a script lies
rm -rf stories
"$ASHLAR" model convert "$SOURCE/tests/golden/stories260K" stories --dtype f16 --gguf > /dev/null
exec node grammar_llama.mjs "$BUILD/bench/grammar_walk" "$SOURCE/tests/golden/stories260K" stories/*.gguf
