#!/usr/bin/env bash
# Tokens per second on real tokenizer files compared with npm's @huggingface/tokenizers (which needs Node.js and the npm registry).
set -euo pipefail
SCRATCH=$BUILD/e2e/tokenizer_world bash "$SOURCE/tests/e2e/tokenizer_world.sh" >&2 || [ $? -eq 77 ]
