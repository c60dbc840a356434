#!/usr/bin/env bash
# 1,500 clients that connect, send nothing and close: serve, agent and dash answer meanwhile and afterwards. Pages of other names are refused.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
program=
trap '[ -z "$program" ] || kill -KILL "$program" 2> "$SCRATCH/kill"' EXIT

check() { # path, words of the program
    local path=$1 url
    shift
    : > "$SCRATCH/out"
    "$ASHLAR" "$@" --port 0 --pages "$SCRATCH/pages" > "$SCRATCH/out" 2>&1 &
    program=$!
    wait_for "$1" grep -q 'http://\|port [0-9]' "$SCRATCH/out"
    port=$(sed -n 's/.*127.0.0.1\(:\| port \)\([0-9]*\).*/\2/p' "$SCRATCH/out" | head -n 1)
    python3 "$SOURCE/tests/e2e/lib/idle_clients.py" "$port" "$path" 1500 || fail "$1 does not answer after idle connections"
    url=http://127.0.0.1:$port$path
    [ "$(curl -s -o "$SCRATCH/page" -w '%{http_code}' -H 'Host: evil.com' "$url")" = 403 ] || fail "$1 answers to any name"
    [ "$(curl -s -o "$SCRATCH/page" -w '%{http_code}' -H 'Host: my.host:1' "$url")" = 200 ] || fail "$1 does not answer to an allowed name"
    kill "$program" && wait "$program" 2> "$SCRATCH/kill"
    program=
}
mkdir -p "$SCRATCH/pages"
check /health serve --model "$SOURCE/tests/golden/stories260K" --allowed-hosts my.host
check /healthz agent --state '' --allowed-hosts my.host
check / dash --allowed-hosts my.host
finish
