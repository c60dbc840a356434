#!/usr/bin/env bash
# A real S3 server (Ceph's radosgw) and other clients (awscli, rclone): they read ours and write for us; a proxy that answers with
# 503 and 500, resets connections, cuts and changes bodies; wrong keys, buckets, certificates; keys from every place. Skips where
# Debian's packages are not there.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone python3 openssl; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"

s3_world_start

# ---- every tier does the same ------------------------------------------------------------------------------------------
if [ -x "$BUILD/tests/test_tier" ]; then
    try env TIER_TEST_URL=s3://bucket "$BUILD/tests/test_tier"
    expect 0 "the suite of all tiers: $(grep -A3 'FAILED\|ERROR' err out | head -n 20)"
    grep -q 'again in s3://bucket' out || fail "the suite did not run on the bucket"
    try env S3_TEST_BUCKET=bucket "$BUILD/tests/test_s3_server"
    expect 0 "what only S3 has: $(grep -A3 'FAILED\|ERROR' err out | head -n 20)"
    grep -q 'SKIPPED' out err && fail "tests of the server were skipped"
fi

# ---- others read ours, and write for us --------------------------------------------------------------------------------
mkdir -p from/sub
head -c 21000000 /dev/urandom > from/big
head -c 100000 /dev/urandom > 'from/sub/a b+c%41é'
: > from/empty
leak_free "$ASHLAR" store put from s3://bucket/ours --recursive
expect 0 "put a folder"
rclone check from r:bucket/ours || fail "rclone finds other files"
rclone copy r:bucket/ours by_rclone && diff -r from by_rclone || fail "rclone reads other bytes"
rclone copy from r:bucket/rclone --s3-upload-cutoff 5M --s3-chunk-size 5M || fail "rclone does not write"
leak_free "$ASHLAR" store get s3://bucket/rclone got --recursive
expect 0 "get what rclone wrote"
diff -r from got || fail "get: other bytes than rclone wrote"
try "$ASHLAR" store verify s3://bucket --recursive
expect 0 "verify all"
same "verified" "6 0" "$(grep -c ^right out) $(grep -cv ^right out)"
if command -v aws > "$SCRATCH/out"; then
    aws() { command aws --endpoint-url "$s3_endpoint" "$@"; }
    aws s3 cp --quiet s3://bucket/ours/big by_aws && cmp by_aws from/big || fail "awscli reads other bytes"
    aws s3 cp --quiet from/big s3://bucket/aws/big || fail "awscli does not write"
    try "$ASHLAR" store verify s3://bucket/aws/big
    grep -q ^right out || fail "verify what awscli wrote: $(cat out err)"
fi
try "$ASHLAR" store ls s3://bucket/ours/
same "ls" "big empty sub/" "$(awk '{ print $NF }' out | xargs)"
try env AWS_ENDPOINT_URL="http://localhost:${s3_endpoint##*:}" "$ASHLAR" store stat s3://bucket/ours/big s3.addressing=host
expect 0 "the bucket in the host's name"

# ---- a model in a bucket: fetched once, and what has changed again -----------------------------------------------------
export ASHLAR_CACHE_DIR=$SCRATCH/cache
words=(--prompt 'Once upon a time' --max-tokens 16 --temperature 0)
try "$ASHLAR" generate --model "$stories" "${words[@]}"
cp out expected
rclone copy "$stories" r:bucket/models/stories || fail "rclone does not write the model"
for turn in first second; do
    leak_free "$ASHLAR" generate --model s3://bucket/models/stories "${words[@]}"
    expect 0 "generate from a bucket, the $turn time"
    cmp -s out expected || fail "another text from a bucket, the $turn time"
    find cache -name '*.safetensors' -printf '%i %T@\n' > "$turn"
done
cmp -s first second && [ -s first ] || fail "the model was fetched a second time"
model=$(find cache -name config.json)
echo '{}' > "$model"
try "$ASHLAR" generate --model s3://bucket/models/stories/ "${words[@]}"
cmp -s out expected || fail "a file of the cache with another size was used"
echo damaged > notes.txt
rclone copy notes.txt r:bucket/models/stories
try "$ASHLAR" generate --model s3://bucket/models/stories "${words[@]}"
[ -e "$(dirname "$model")/notes.txt" ] || fail "a new object was not fetched"
rclone deletefile r:bucket/models/stories/notes.txt
try "$ASHLAR" generate --model s3://bucket/models/stories "${words[@]}"
[ ! -e "$(dirname "$model")/notes.txt" ] || fail "an object that is gone is still in the cache"
rm -r cache
for turn in 1 2 3; do # together: one fetches, the others wait for it
    "$ASHLAR" generate --model s3://bucket/models/stories "${words[@]}" > "together.$turn" 2> "together.$turn.err" < /dev/null &
    pids[turn]=$!
done
for turn in 1 2 3; do
    wait "${pids[turn]}" && cmp -s "together.$turn" expected || fail "three at a time: $(cat "together.$turn.err")"
done
try "$ASHLAR" generate --model s3://bucket/models/none "${words[@]}"
expect_error 1 "no such model" "nothing at s3://bucket/models/none"

# ---- faults ------------------------------------------------------------------------------------------------------------
for seed in 1 2; do
    helper faults python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/faults" "${s3_endpoint##*:}" $seed 0.3 503,500,reset,cut,babble
    try env AWS_ENDPOINT_URL="http://127.0.0.1:$port" "$ASHLAR" store put from s3://bucket/faulty --recursive s3.part_bytes=5242880
    expect 0 "put through faults (seed $seed)"
    rclone check from r:bucket/faulty || fail "other bytes after faults (seed $seed)"
    rm -rf got
    try env AWS_ENDPOINT_URL="http://127.0.0.1:$port" "$ASHLAR" store get s3://bucket/faulty got --recursive s3.part_bytes=5242880
    expect 0 "get through faults (seed $seed)"
    diff -r from got || fail "get: other bytes after faults (seed $seed)"
    [ "$(wc -l < faults.out)" -ge 3 ] || fail "only $(wc -l < faults.out) faults were met (seed $seed)"
done
helper flips python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/flips" "${s3_endpoint##*:}" 3 1 flip
for object in 'sub/a b+c%41é' big; do
    try env AWS_ENDPOINT_URL="http://127.0.0.1:$port" "$ASHLAR" store get "s3://bucket/ours/$object" flipped
    expect_error 1 "a flipped bit in $object" "s3://bucket/ours/"
    [ ! -e flipped ] || fail "a damaged object became a file"
done
helper down python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/down" "${s3_endpoint##*:}" 4 1 503
try env AWS_ENDPOINT_URL="http://127.0.0.1:$port" "$ASHLAR" store stat s3://bucket/ours/big s3.retry_s=1
expect 1 "a server that is down"
grep -q '^ashlar: error: .*503.*attempts' err || fail "a server that is down: $(cat err)"

# ---- mistakes ----------------------------------------------------------------------------------------------------------
try "$ASHLAR" store get s3://bucket/none none
expect_error 1 "no such object" "there is no such object"
[ ! -e none ] || fail "a file was made of nothing"
try "$ASHLAR" store ls s3://nobucket
expect_error 1 "no such bucket" "there is no bucket 'nobucket'"
AWS_ACCESS_KEY_ID=NOBODY try "$ASHLAR" store stat s3://bucket/ours/big
expect_error 1 "unknown access key" "'NOBODY'"
AWS_SECRET_ACCESS_KEY=wrong try "$ASHLAR" store stat s3://bucket/ours/big
expect_error 1 "wrong secret key" "secret key"
grep -q wrong err && fail "the secret is in the message"

# ---- TLS ---------------------------------------------------------------------------------------------------------------
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.pem -days 2 -subj /CN=127.0.0.1 \
    -addext subjectAltName=IP:127.0.0.1 2> openssl.err || fail "openssl: $(cat openssl.err)"
helper tls python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/tls" "${s3_endpoint##*:}" 5 0 "" tls.pem tls.key
export AWS_ENDPOINT_URL=https://127.0.0.1:$port
try "$ASHLAR" store stat s3://bucket/ours/big
expect_error 1 "unknown certificate" "certificate" "s3.ca_file"
try "$ASHLAR" store get s3://bucket/ours/big by_tls s3.ca_file=tls.pem
expect 0 "a certificate that is trusted"
cmp by_tls from/big || fail "other bytes over TLS"
export AWS_ENDPOINT_URL=$s3_endpoint

# ---- keys from elsewhere -----------------------------------------------------------------------------------------------
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_ENDPOINT_URL
mkdir -p home/.aws
printf '[work]\naws_access_key_id = TESTKEY\naws_secret_access_key = testsecret\n' > home/.aws/credentials
printf '[profile work]\nendpoint_url = %s\ns3 =\n  addressing_style = path\n' "$s3_endpoint" > home/.aws/config
AWS_PROFILE=work try "$ASHLAR" store stat s3://bucket/ours/big
expect 0 "keys of a profile"
try "$ASHLAR" store stat s3://bucket/ours/big s3.profile=work
expect 0 "keys of a profile by setting"
rm -r home/.aws
helper keys python3 "$SOURCE/tests/e2e/lib/keys_server.py" "$SCRATCH/keys"
export AWS_ENDPOINT_URL=$s3_endpoint
try env AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:$port/creds" AWS_CONTAINER_AUTHORIZATION_TOKEN=sesame \
    "$ASHLAR" store stat s3://bucket/ours/big
expect 0 "keys of a container's endpoint"
try env AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:$port/creds" "$ASHLAR" store stat s3://bucket/ours/big
expect_error 1 "a container's endpoint that refuses" "container"
try env AWS_CONTAINER_CREDENTIALS_FULL_URI="http://example.com/creds" "$ASHLAR" store stat s3://bucket/ours/big
expect_error 1 "keys over plain HTTP from afar" "https"
try env AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:$port" "$ASHLAR" store stat s3://bucket/ours/big
expect 0 "keys of an instance"
finish
