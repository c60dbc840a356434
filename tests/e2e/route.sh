#!/usr/bin/env bash
# `ashlar route` in front of three servers that are killed, stopped, drained and added while they answer: every answer is that of one
# server. ASHLAR_TEST_REQUESTS draws more requests, ASHLAR_TEST_SEED others. Skips where Node.js is not to be had.
command -v node > /dev/null || { echo "SKIP: needs node"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
total=${ASHLAR_TEST_REQUESTS:-48} seed=${ASHLAR_TEST_SEED:-1}
try "$ASHLAR" route
expect_usage() { expect 2 "$1"; grep -qF -- "$2" "$SCRATCH/err" || fail "$1: '$2' is not in: $(cat "$SCRATCH/err")"; }
expect_usage "no replicas" "--to http://HOST:PORT"
try "$ASHLAR" route --to https://127.0.0.1:1
expect_error 1 "TLS" "https://127.0.0.1:1" "http://"
try "$ASHLAR" route --to-file "$SCRATCH/none"
expect_error 1 "no file" "$SCRATCH/none"
printf 'http://127.0.0.1:1\n\nnonsense\n' > "$SCRATCH/wrong"
try "$ASHLAR" route --to-file "$SCRATCH/wrong"
expect_error 1 "a wrong line" "$SCRATCH/wrong:3" "nonsense"

# Servers that one command starts: one that dies is started again, and Ctrl-C ends all.
. "$SOURCE/tests/e2e/serve_lib.bash"
"$ASHLAR" serve --model "$stories" --replicas 2 --port 0 --pages "" > /dev/null 2> "$SCRATCH/server.log" &
server=$!
wait_for_line 'ready after .* 2 replicas' "$SCRATCH/server.log" || exit 1
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' "$SCRATCH/server.log" | head -n 1)
body='{"prompt": "Once upon", "max_tokens": 20, "seed": 5}'
text() { ask POST /v1/completions "$body"; sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$SCRATCH/answer"; }
before=$(text)
[ -n "$before" ] || fail "no answer: $(cat "$SCRATCH/answer")"
pids=$(sed -n 's/.*is process \([0-9]*\), port.*/\1/p' "$SCRATCH/server.log")
kill -9 $(head -n 1 <<< "$pids")
same "the answer after a replica was killed" "$before" "$(text)"
started_again() { [ "$(grep -c 'replica 0 is process' "$SCRATCH/server.log")" -eq 2 ]; }
wait_for "the replica to start again" started_again
pids=$(sed -n 's/.*is process \([0-9]*\), port.*/\1/p' "$SCRATCH/server.log")
stop_server INT
same "exit code after Ctrl-C" 0 "$server_code"
for pid in $pids; do [ ! -d "/proc/$pid" ] || fail "process $pid outlives its router"; done
try "$ASHLAR" serve --model "$SCRATCH/none" --replicas 2 --port 0
expect 1 "a model that is not there"
grep -q "there is no model folder" "$SCRATCH/err" || fail "no reason: $(cat "$SCRATCH/err")"

node "$SOURCE/tests/e2e/route.mjs" "$ASHLAR" "$stories" "$SCRATCH" "$total" "$seed" || fail "seed $seed: the reason is above"
finish
