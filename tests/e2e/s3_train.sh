#!/usr/bin/env bash
# Training from a bucket: the same bits as from local files in every order, with a cache smaller than the data, on several
# ranks, through faults; a model to start from in a bucket; tokenizing and converting into one. A real S3 server (radosgw).
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone python3; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
s3_world_start

# ---- data in a bucket: the same bits -------------------------------------------------------------------------------------
"$ASHLAR" data arithmetic --out "$SCRATCH/train" --count 4000 --overwrite --shard-tokens 20000 > out 2>&1 || fail "data: $(cat out)"
rclone copy train r:bucket/data/train && rclone copy valid r:bucket/data/valid || fail "rclone does not write"
remote=(data.train=s3://bucket/data/train data.valid=s3://bucket/data/valid)
for order in full block; do
    words=(data.shuffle=$order data.block_tokens=512 data.mixed_blocks=4)
    train "local_$order" "${words[@]}"
    expect 0 "train from local files, $order order"
    export ASHLAR_CACHE_DIR=$SCRATCH/cache_$order
    train "remote_$order" "${words[@]}" "${remote[@]}"
    expect 0 "train from a bucket, $order order"
    same "the bits of $order order" "$(bits_of "local_$order")" "$(bits_of "remote_$order")"
    ASHLAR_CACHE_BYTES=65536 train "small_$order" "${words[@]}" "${remote[@]}"
    expect 0 "train with a small cache, $order order"
    same "the bits with a small cache" "$(bits_of "local_$order")" "$(bits_of "small_$order")"
done
same "orders differ" 1 "$([ "$(bits_of local_full)" != "$(bits_of local_block)" ] && echo 1)"
cmp -s local_full/model/tokenizer.json remote_full/model/tokenizer.json || fail "the tokenizer next to remote data was not taken along"
train resumed "${remote[@]}" train.save_every=10
expect 0 "a run that is gone on with later"
rm -rf resumed/checkpoints/step-00000040 resumed/checkpoints/*40
try "$ASHLAR" train --resume --out "$SCRATCH/resumed"
expect 0 "resumed"
same "the bits after a resume" "$(bits_of local_full | tail -n 2)" "$(bits_of resumed | tail -n 2)"
export ASHLAR_CACHE_DIR=$SCRATCH/cache_ranks
try "$ASHLAR" launch --procs 4 train "$SCRATCH/job.yaml" --out "$SCRATCH/ranks" "${remote[@]}" mesh.pp=2
expect 0 "four ranks: $(tail -n 3 err)"
same "the bits of four ranks" "$(bits_of local_full)" "$(bits_of ranks)"

# ---- bytes: a cache of a quarter of the data ---------------------------------------------------------------------------------
"$ASHLAR" data arithmetic --out "$SCRATCH/epoch" --count 20000 > out 2>&1 || fail "data: $(cat out)"
rclone copy epoch r:bucket/epoch || fail "rclone does not write"
bytes=$(cat epoch/* | wc -c)
tokens=$(grep -o '"tokens": *[0-9]*' epoch/manifest.json | head -n 1 | grep -o '[0-9]*$')
for order in full block; do # a request per window, for a while; an epoch of blocks
    steps=$([ $order = full ] && echo 6 || echo $((tokens / 4096)))
    ASHLAR_CACHE_DIR=$SCRATCH/cache_epoch_$order ASHLAR_CACHE_BYTES=$((bytes / 4)) train "epoch_$order" data.train=s3://bucket/epoch data.seq=64 \
        train.global_batch=64 "train.steps=$steps" train.valid_every=0 train.hash_every=0 data.shuffle=$order data.block_tokens=4096 data.mixed_blocks=2 runtime.threads=1
    expect 0 "a cache of a quarter of the data, $order order"
    [ -e "epoch_$order/model/tokenizer.json" ] || fail "$order order: the tokenizer has left the cache, and the model is saved without one"
    read -r used fetched < <(sed -n 's/.*read \([0-9]*\) bytes, fetched \([0-9]*\) .*/\1 \2/p' err)
    if [ $order = full ]; then
        [ $((10 * fetched)) -le $((11 * used)) ] || fail "full order: fetched $fetched bytes for $used that were read"
    else
        [ $((100 * fetched)) -le $((102 * bytes)) ] || fail "block order: fetched $fetched bytes of data of $bytes"
    fi
done

# ---- tokenizing and converting into a bucket ----------------------------------------------------------------------------
export ASHLAR_CACHE_DIR=$SCRATCH/cache_write
python3 -c 'for i in range(60000): print("once upon a time there was a", i, "and it was", i * 7919 % 1000)' > text.txt
words=(--tokenizer "$stories" --split line --shard-tokens 100000 --threads 1 text.txt)
try "$ASHLAR" data tokenize --out tokens "${words[@]}"
expect 0 "tokenize into a folder"
grep -v 'tokens in' out > facts
leak_free "$ASHLAR" data tokenize --out s3://bucket/tokens "${words[@]}"
expect 0 "tokenize into a bucket"
rclone copy r:bucket/tokens by_rclone && diff -r -x state.json tokens by_rclone || fail "other shards in the bucket"
[ ! -e "$ASHLAR_CACHE_DIR"/staging/* ] || fail "the staging folder is left: $(find "$ASHLAR_CACHE_DIR/staging")"
try "$ASHLAR" data tokenize --out s3://bucket/tokens "${words[@]}"
expect_error 1 "a place with finished data" "--overwrite"
# Killed again and again, with a limit of two shards; the last time it may take as long as it likes. In the foreground
# `timeout` outlives it, so the folder's lock is free when the next one begins.
for round in $(seq 20); do
    limit="0.$((10 + 2 * round))"
    [ $round -lt 20 ] || limit=0
    ASHLAR_CACHE_BYTES=500000 timeout --foreground -s KILL $limit "$ASHLAR" data tokenize --out s3://bucket/killed "${words[@]}" > out 2> err
    code=$?
    [ $code -eq 137 ] || break
done
[ $code -ne 1 ] || [ "$round" -eq 1 ] || ! grep -q 'it holds finished data' err || code=0 # killed after its last act
expect 0 "tokenize that was killed $((round - 1)) times"
rclone copy r:bucket/killed by_killed && diff -r -x state.json tokens by_killed || fail "other shards after kills"
try "$ASHLAR" store status s3://bucket/killed --json
grep -q '"local": 0' out || fail "something still waits: $(cat out)"
try "$ASHLAR" model convert "$stories" s3://bucket/models/bf16 --dtype bf16
expect 0 "convert into a bucket"
try "$ASHLAR" model convert "$stories" bf16 --dtype bf16
rclone copy r:bucket/models/bf16 by_convert && cmp bf16/model.safetensors by_convert/model.safetensors || fail "another model in the bucket"
try "$ASHLAR" model convert "$stories" s3://bucket/models/bf16 --dtype bf16
expect_error 1 "a place with a model" "already exists"
try "$ASHLAR" model convert s3://bucket/models/bf16 f32 --dtype f32
expect 0 "convert out of a bucket: $(cat err)"
try "$ASHLAR" train job.yaml --out from_local model.from="$SCRATCH/bf16" data.train=tokens train.valid_every=0 train.steps=3 schedule.warmup=0
expect 0 "train from a local model: $(cat err)"
try "$ASHLAR" train job.yaml --out from_remote model.from=s3://bucket/models/bf16 data.train=s3://bucket/tokens train.valid_every=0 train.steps=3 schedule.warmup=0
expect 0 "train from a model in a bucket: $(cat err)"
same "the bits of a model in a bucket" "$(bits_of from_local)" "$(bits_of from_remote)"

# ---- what of a bucket is here --------------------------------------------------------------------------------------------
export ASHLAR_CACHE_DIR=$SCRATCH/cache_state
head -c 9000000 /dev/urandom > blob
leak_free "$ASHLAR" store put blob s3://bucket/states/blob --defer
expect 0 "put that is deferred"
grep -q 'durable on this machine .* not yet in s3://bucket/states' out || fail "where it is durable: $(cat out)"
try "$ASHLAR" store stat s3://bucket/states/blob
grep -q 'here *local, 9.00 MB' out || fail "stat of a local object: $(cat out err)"
rclone lsf r:bucket/states | grep -q blob && fail "it is in the bucket already"
try "$ASHLAR" store release s3://bucket/states/blob
expect_error 1 "release of a local object" "not exported yet"
try "$ASHLAR" store status s3://bucket/states/ --json
grep -q '"not_durable_bytes": 9000000' out || fail "status: $(cat out)"
leak_free "$ASHLAR" store status s3://bucket/ --export
expect 0 "export"
grep -q '^exported  1 objects' out || fail "status after the export: $(cat out)"
rclone copyto r:bucket/states/blob blob_back && cmp -s blob blob_back || fail "other bytes after the export"
try "$ASHLAR" store release s3://bucket/states/ --recursive
same "release" "released 1 objects, 9.00 MB" "$(cat out)"
try "$ASHLAR" store status s3://bucket/states --recursive
grep -q '^released *9000000 *0 .*states/blob' out || fail "status of a released object: $(cat out)"
# A folder is a folder: run is not run2, unless a * says so.
for name in run/a run/b/c run2/a runner; do
    "$ASHLAR" store put blob "s3://bucket/gone/$name" > out || fail "put $name: $(cat out)"
done
left_of() { "$ASHLAR" store ls s3://bucket/gone/ --recursive 2> err | awk '{ print $NF }' | xargs; }
try "$ASHLAR" store rm s3://bucket/gone/run --recursive
expect 0 "rm of a folder"
same "what is beside it" "run2/a runner" "$(left_of)"
try "$ASHLAR" store rm 's3://bucket/gone/run*' --recursive
expect 0 "rm of what begins so"
same "nothing" "" "$(left_of)"
leak_free "$ASHLAR" store pin s3://bucket/states/blob
expect 0 "pin"
try "$ASHLAR" store release s3://bucket/states/blob
expect_error 1 "release of a pinned object" "pinned"
cmp -s blob "$(find cache_state -path '*/data/states/blob')" || fail "a pinned object is not here"
try "$ASHLAR" store pin s3://bucket/states/blob --off
try "$ASHLAR" store release s3://bucket/states/blob
expect 0 "release of what is not pinned any more"

# ---- faults --------------------------------------------------------------------------------------------------------------
direct=$AWS_ENDPOINT_URL
faults() { # PORT_FILE SEED RATE KINDS
    helper "port_$1" python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/port_$1" "${s3_endpoint##*:}" "$2" "$3" "$4"
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port ASHLAR_CACHE_DIR=$SCRATCH/cache_$1
}
faults broken 7 0.3 503,500,reset,cut,slow,babble
train broken "${remote[@]}"
expect 0 "train through faults"
same "the bits through faults" "$(bits_of local_full)" "$(bits_of broken)"
[ "$(wc -l < port_broken.out)" -ge 10 ] || fail "only $(wc -l < port_broken.out) faults were met"
free_ports # so that nobody else takes the port while the server is away
S3_FAULTS_PORT=$port faults down 8 0 ""
longer=(train.steps=300 train.valid_every=0 train.hash_every=100)
train long "${longer[@]}" data.train=tokens
"$ASHLAR" train job.yaml --out "$SCRATCH/down" "${longer[@]}" data.train=s3://bucket/tokens > down.out 2> down.err & # the server goes away
trainer=$!
wait_for "the first steps" grep -qs '"step":20,' "$SCRATCH/down/log.jsonl"
kill "${helpers[-1]}"
wait_for "what it waits for" grep -qs 'warning: s3://bucket/tokens.*again' down.err
S3_FAULTS_PORT=$port helper port_again python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/port_again" "${s3_endpoint##*:}" 8 0 ""
wait $trainer || fail "a server that was away: $(cat down.err)"
same "the bits of a server that was away" "$(bits_of long)" "$(bits_of down)"
kill "${helpers[-1]}"
ASHLAR_S3_RETRY_S=1 train away "${remote[@]}"
expect 1 "a server that is away for good"
grep -q '^ashlar: error: .*s3://bucket/.*attempts' err || fail "a server that is away for good: $(cat err)"
helper keys python3 "$SOURCE/tests/e2e/lib/keys_server.py" "$SCRATCH/keys"
keys=(env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:$port/creds"
    AWS_CONTAINER_AUTHORIZATION_TOKEN=sesame)
for kind in expired skewed; do
    if [ $kind = expired ]; then
        faults "$kind" 9 0 "$kind"
        try "${keys[@]}" "$ASHLAR" store get s3://bucket/states/blob "by_$kind"
        expect 0 "$kind"
        cmp -s blob "by_$kind" || fail "other bytes with $kind"
    fi
    faults "${kind}_still" 9 1 "$kind"
    try "${keys[@]}" "$ASHLAR" store get s3://bucket/states/blob "by_still"
    expect_error 1 "$kind for ever" "$([ $kind = expired ] && echo "the keys have expired" || echo "clock")"
done
export AWS_ENDPOINT_URL=$direct ASHLAR_CACHE_DIR=$SCRATCH/cache_mistakes

# ---- mistakes ------------------------------------------------------------------------------------------------------------
train mistake data.train=s3://bucket/nothing
expect_error 2 "no data there" "data.train" "s3://bucket/nothing" "manifest.json"
train mistake data.train=s3://nobucket/data
expect_error 2 "no such bucket" "data.train" "there is no bucket 'nobucket'"
AWS_SECRET_ACCESS_KEY=wrong train mistake "${remote[@]}"
expect_error 1 "a wrong key" "data.train" "secret key"
train mistake model.from=s3://bucket/nothing "${remote[@]}"
expect_error 2 "no model there" "model.from" "nothing"
mkdir -p bad && cp train/* bad/ && echo '{"format":' > bad/manifest.json && rclone copy bad r:bucket/bad
train mistake data.train=s3://bucket/bad
expect 2 "a manifest that is none" && grep -q 'data.train.*manifest.json' err || fail "a manifest that is none: $(cat err)"
cp train/manifest.json bad/ && head -c 1000 train/shard-00000.safetensors > bad/shard-00000.safetensors && rclone copy bad r:bucket/bad2
train mistake data.train=s3://bucket/bad2
expect 2 "a shard that is cut" && grep -q 'data.train.*shard-00000' err || fail "a shard that is cut: $(cat err)"
finish
