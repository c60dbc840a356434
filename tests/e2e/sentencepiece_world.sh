#!/usr/bin/env bash
# SentencePiece's files, written here, read by us and by SentencePiece itself (npm's sentencepiece-js): the same ids. Skips where Node.js
# or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
[ -x "$BUILD/bench/tokenize_file" ] || { echo "sentencepiece_world: skipped: bench/tokenize_file is not built"; exit 77; }
need_npm sentencepiece_world sentencepiece-js
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/sentencepiece_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node sentencepiece_world.mjs "$BUILD/bench/tokenize_file" "$SOURCE" 2> /dev/null
