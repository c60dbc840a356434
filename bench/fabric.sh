#!/usr/bin/env bash
# Transfers between two processes compared with libfabric's own ping-pong (fi_pingpong), on shared memory and on loopback TCP.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
command -v fi_pingpong > /dev/null || apt_get libfabric-bin || note "no fi_pingpong: rows without it"

# pingpong PROVIDER SIZE ITERATIONS FIELD: a column of its table (6: MB/s, 7: microseconds per message); 0 where it fails.
pingpong() {
    local port=$((20000 + RANDOM % 20000)) server value
    timeout 60 fi_pingpong -p "$1" -e rdm -I "$3" -S "$2" -B "$port" > /dev/null 2>&1 &
    server=$!
    sleep 0.5 # it has no way to say that it listens
    value=$(timeout 60 fi_pingpong -p "$1" -e rdm -I "$3" -S "$2" -P "$port" 127.0.0.1 2> /dev/null | awk -v f="$4" 'END { print $f }')
    wait "$server" || true
    [[ $value =~ ^[0-9.]+$ ]] && echo "$value" || echo 0
}

peers=()
for provider in shm 'tcp;ofi_rxm'; do
    us=0 mbs=0
    if command -v fi_pingpong > /dev/null; then
        us=$(pingpong "$provider" 64 10000 7)
        mbs=$(pingpong "$provider" 1048576 1000 6)
    fi
    peers+=("$us" "$(awk -v m="$mbs" 'BEGIN { print m / 1000 }')")
done
"$BUILD/bench/fabric" "$BENCH_ROWS" "${BENCH_ROUNDS:-5}" "${peers[@]}"
