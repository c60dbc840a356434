#!/usr/bin/env bash
# Runs bench/*.sh, each of which appends rows of JSON to $BENCH_ROWS, and prints them as one table; build/bench.json has the same rows.
# An argument is an extended regular expression on row names (group/row): a group whose file cannot hold a match is not run.
# Settings: BENCH_ROUNDS (measurements per figure; the median counts), BENCH_LONG=1 (larger shapes too),
# BENCH_LLAMA=/path/to/llama-bench (a native build of llama.cpp, in addition to npm's), BENCH_LLAMA_SERVER=/path/to/llama-server
# (the peer of rows about a server as its clients see it), BENCH_TRACE=/path/to/trace.jsonl (for serve/prefix-trace).
set -euo pipefail
cd "$(dirname "$0")/.."
pattern=${1:-}
export SOURCE=$PWD BUILD=$PWD/build ASHLAR=$PWD/build/ashlar
export BENCH_ROWS=$BUILD/bench-rows.jsonl BENCH_PATTERN=$pattern
: > "$BENCH_ROWS"
group=${pattern%%/*}
for script in bench/*.sh; do
    name=$(basename "$script" .sh)
    grep -qE "$group" <<< "$name" || continue
    echo "bench: $name" >&2
    bash "$script" || echo "bench: $name failed; rows of it may be missing" >&2
done
"$BUILD/bench/table" "$BENCH_ROWS" "$BUILD/bench.json" "$pattern"
