#!/usr/bin/env bash
# Matrix products as a share of the measured peak, compared with OpenBLAS (opened at run time where it is installed).
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
ldconfig -p | grep 'libopenblas\.so\.0' > /dev/null || apt_get libopenblas0-pthread || note "no OpenBLAS: rows without it"
sizes=(256 512 1024 2048)
[ "${BENCH_LONG:-0}" = 1 ] && sizes+=(4096)
"$BUILD/bench/gemm" "$BENCH_ROWS" "${BENCH_ROUNDS:-5}" "${sizes[@]}"
"$BUILD/bench/quant" "$BENCH_ROWS" "${BENCH_ROUNDS:-5}" 1024 2048
