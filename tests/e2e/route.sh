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
node "$SOURCE/tests/e2e/route.mjs" "$ASHLAR" "$stories" "$SCRATCH" "$total" "$seed" || fail "seed $seed: an answer changed, or was lost"
finish
