#!/usr/bin/env bash
# Clients that leave: thousands of them, and the server is as large as before. Skips where Node.js is not to be had.
command -v node > /dev/null || { echo "SKIP: needs node"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
count=${ASHLAR_TEST_CANCELS:-4000}
start_server --model "$stories" --no-access-log --kv-cache-memory 64mi || exit 1
node "$SOURCE/tests/e2e/serve_cancels.mjs" "$port" "$server" "$count" || fail "memory grew, or an answer was wrong"
stop_server TERM
same "exit code after SIGTERM" 0 "$server_code"
finish
