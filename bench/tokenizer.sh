#!/usr/bin/env bash
# Tokens per second on real tokenizer files compared with npm's @huggingface/tokenizers (which needs Node.js and the npm registry), and
# MB/s of training one compared with the Hugging Face library's native build.
set -euo pipefail
SCRATCH=$BUILD/e2e/tokenizer_world bash "$SOURCE/tests/e2e/tokenizer_world.sh" >&2 || [ $? -eq 77 ]
SCRATCH=$BUILD/e2e/train_tokenizer_world bash "$SOURCE/tests/e2e/train_tokenizer_world.sh" >&2 || [ $? -eq 77 ]
