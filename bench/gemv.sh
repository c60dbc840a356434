#!/usr/bin/env bash
# One to eight rows by a quantised matrix that no cache holds (decoding), compared with the read bandwidth.
set -euo pipefail
"$BUILD/bench/quant" "$BENCH_ROWS" "${BENCH_ROUNDS:-5}"
