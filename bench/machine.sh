#!/usr/bin/env bash
# This machine's own limits: memory bandwidth and multiply-add peaks, on one core and on all.
set -euo pipefail
"$BUILD/bench/machine" "$BENCH_ROWS" "${BENCH_ROUNDS:-5}"
