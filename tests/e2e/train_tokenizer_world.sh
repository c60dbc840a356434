#!/usr/bin/env bash
# Trained tokenizers against the Hugging Face library itself (its native build for Node.js, and npm's @huggingface/tokenizers): its own
# trainer learns the same merges from the same text, and both read the files to our ids. Skips where Node.js or the npm registry is not
# to be had, and on other processors than x86-64.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm train_tokenizer_world tokenizers-linux-x64-gnu @huggingface/tokenizers
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/train_tokenizer_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node --max-old-space-size=4096 train_tokenizer_world.mjs "$ASHLAR" "$BUILD/bench/tokenize_file" "$SOURCE"
