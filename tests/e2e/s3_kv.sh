#!/usr/bin/env bash
# Pages of the key-value cache in a bucket: a server that begins with an empty cache finds those that a killed one computed, and
# answers the same; without the bucket's server the answer is the same again. Skips where Debian's packages are not there.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"
world=$server
s3_world_start
s3_home=$server server=$world
trap 'stop_server KILL; server=$s3_home; s3_world_stop' EXIT
body=$(printf '{"prompt": [1%s], "max_tokens": 12, "temperature": 0, "logprobs": 1}' "$(printf ', %d' $(seq 10 7 1800 | head -n 250 | awk '{ print 3 + $1 % 500 }'))")
text() { grep -o '"system_fingerprint".*"usage"' "$SCRATCH/answer"; }
tier() { ask GET /metrics; sed -n "s/^ashlar_kv_tier_$1{[^}]*tier=\"remote\"} //p" "$SCRATCH/answer"; }
has_pages() { [ "$(rclone lsf -R --files-only r:bucket/kv | grep -c '\.kv$')" -ge 4 ]; }
start_server --model "$stories" --kv-remote s3://bucket/kv || exit 1
fingerprint() { ask POST /v1/completions '{"prompt": "x", "max_tokens": 1}'; grep -q '"system_fingerprint":"fp_' "$SCRATCH/answer"; }
wait_for "the fingerprint" fingerprint
ask POST /v1/completions "$body"
want=$(text)
wait_for "pages in the bucket" has_pages
stop_server KILL
start_server --model "$stories" --kv-remote s3://bucket/kv || exit 1
is_listed() { fingerprint && [ "$(tier pages)" = 4 ]; } # figures are those of the last step
wait_for "the list of the bucket" is_listed
ask POST /v1/completions "$body"
same "an answer from pages of the bucket" "$want" "$(text)"
same "tokens from the bucket" 192 "$(tier hit_tokens_total)"
radosgw_stop
ask POST /v1/completions '{"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0}'
same "the status without the bucket" 200 "$status"
finish
