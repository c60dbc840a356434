#!/usr/bin/env bash
# Parquet files that other programs write (arrow-rs as npm's parquet-wasm, hyparquet-writer, DuckDB): `ashlar data tokenize` makes the
# same shards of them as of the same documents in JSON lines. Skips where Node.js or the npm registry is not to be had.
set -euo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) echo "parquet_world: skipped: no DuckDB for $(uname -m)"; exit 77 ;; esac
need_npm parquet_world parquet-wasm apache-arrow hyparquet-writer @duckdb/node-api @duckdb/node-bindings "@duckdb/node-bindings-linux-$arch"
cd "$SCRATCH"
find . -mindepth 1 -maxdepth 1 ! -name node_modules -exec rm -rf {} +
cp "$SOURCE/tests/e2e/parquet_world.mjs" "$SOURCE/tests/e2e/mixed_text.mjs" . # modules are found from where a script lies
exec node parquet_world.mjs "$ASHLAR" "$SOURCE/tests/golden/tokenizers/gpt2-bytelevel"
