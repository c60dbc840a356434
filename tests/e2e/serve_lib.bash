# What the tests of `ashlar serve` share. start_server FLAGS... sets $port and $server; it is stopped at the end.
server=
stop_server() { # signal
    [ -n "$server" ] || return 0
    kill "-${1:-TERM}" "$server" 2> /dev/null
    server_code=0
    wait "$server" || server_code=$?
    server=
}
trap 'stop_server KILL' EXIT
# Wait until `grep PATTERN FILE` finds something, two minutes at most.
wait_for_line() { # pattern, file
    local end=$((SECONDS + 120))
    while [ $SECONDS -lt $end ]; do
        grep -q "$1" "$2" 2> /dev/null && return 0
        kill -0 "$server" 2> /dev/null || { echo "the server ended: $(tail -n 3 "$2")" >&2; return 1; }
        sleep 0.05
    done
    echo "waited for '$1' in: $(tail -n 3 "$2")" >&2
    return 1
}
start_server() {
    : > "$SCRATCH/server.log"
    "$ASHLAR" serve --port 0 "$@" > "$SCRATCH/server.out" 2> "$SCRATCH/server.log" &
    server=$!
    wait_for_line 'ready after' "$SCRATCH/server.log" || return 1
    port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' "$SCRATCH/server.log")
}
# ask METHOD PATH [BODY [HEADER...]]: the answer is in $SCRATCH/answer, its status in $status.
ask() {
    local method=$1 path=$2 body=${3:-} header
    shift $(($# < 3 ? $# : 3))
    exec 3<> "/dev/tcp/127.0.0.1/$port" || { status=none; return; }
    {
        printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n' "$method" "$path" "${#body}"
        for header in "$@"; do printf '%s\r\n' "$header"; done
        printf '\r\n%s' "$body"
    } >&3
    timeout 120 cat <&3 > "$SCRATCH/answer"
    exec 3>&-
    status=$(head -n 1 "$SCRATCH/answer" | cut -d' ' -f2)
}
