#!/usr/bin/env bash
# S3 on this machine (Ceph's radosgw): an object read and written, compared with `curl --parallel` on presigned addresses of parts
# and with awscli; training from a bucket with a cache of a quarter of the data, compared with local files; the first token of a
# model in a bucket, compared with the longer of fetching it and a start from local files. Server and clients share the cores.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
. "$SOURCE/tests/e2e/lib/radosgw.bash"
rounds=${BENCH_ROUNDS:-3} mib=${BENCH_S3_MIB:-1024} connections=8
for tool in "${radosgw_tools[@]}" python3; do
    command -v "$tool" > /dev/null || { note "no $tool (scripts/deps.sh test installs it): no rows of S3"; exit 0; }
done
work=$(mktemp -d /dev/shm/bench-s3.XXXXXX) server=$(mktemp -d /tmp/s3b.XXXXXX)
trap 'radosgw_stop; rm -rf "$work" "$server"' EXIT
radosgw_memory=12G radosgw_start "$server" || { note "radosgw does not start"; exit 0; }
export AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=testsecret AWS_ENDPOINT_URL=$s3_endpoint AWS_DEFAULT_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true ASHLAR_CACHE_DIR=$work/cache
cd "$work"
now() { date +%s.%N; }
presign() { python3 "$SOURCE/bench/lib/presign.py" "$1" "$s3_endpoint" bucket "${@:2}"; }
presign bucket ''
rate() { awk "BEGIN { print $mib * 1.048576 / ($2 - $1) }"; } # MB/s between two times
part_mib=8 parts=$((mib / 8))

curl_get() { # KEY: ranges of one presigned address, several at a time
    local url i
    url=$(presign get "$1")
    mkdir -p got
    for ((i = 0; i < parts; i++)); do
        printf 'url="%s"\nrange=%d-%d\noutput=got/%d\n' "$url" $((i * part_mib * 1048576)) $(((i + 1) * part_mib * 1048576 - 1)) "$i"
        [ $((i + 1)) -eq "$parts" ] || echo next
    done > curl.conf
    began=$(now)
    curl -s --no-progress-meter --fail --parallel --parallel-max $connections --config curl.conf 2> said
    ended=$(now)
    rm -r got
}
curl_put() { # KEY: parts that lie in files of their own
    local upload i=0 url
    upload=$(presign create "$1")
    presign parts "$1" "$upload" "$parts" | while read -r url; do
        [ $i -eq 0 ] || echo next
        printf 'url="%s"\nupload-file=part.%03d\noutput=/dev/null\n' "$url" $i
        i=$((i + 1))
    done > curl.conf
    began=$(now)
    curl -s --no-progress-meter --fail --parallel --parallel-max $connections --config curl.conf 2> said
    presign complete "$1" "$upload"
    ended=$(now)
}
timed() { # COMMAND...: sets began and ended
    began=$(now)
    "$@" > said 2>&1 || { note "$1 $2 failed: $(tail -n 1 said)"; return 1; }
    ended=$(now)
}

copies() {
    local ours=() theirs=() aws=() up=() up_curl=() up_aws=() round
    head -c $((mib * 1048576)) /dev/urandom > big
    split -b ${part_mib}M -d -a 3 big part.
    for ((round = 0; round < rounds; round++)); do
        timed "$ASHLAR" store put big s3://bucket/big s3.connections=$connections && up+=("$(rate "$began" "$ended")")
        curl_put curl && up_curl+=("$(rate "$began" "$ended")")
        timed "$ASHLAR" store get s3://bucket/big back s3.connections=$connections && ours+=("$(rate "$began" "$ended")")
        curl_get big && theirs+=("$(rate "$began" "$ended")")
        command -v aws > /dev/null || continue
        timed aws s3 cp --quiet big s3://bucket/aws && up_aws+=("$(rate "$began" "$ended")")
        timed aws s3 cp --quiet s3://bucket/big by_aws && aws+=("$(rate "$began" "$ended")")
        rm -f back by_aws
    done
    "$BUILD/bench/row" "$BENCH_ROWS" s3/get MB/s 'curl --parallel' 0.9 higher "${ours[@]}" -- "${theirs[@]}"
    "$BUILD/bench/row" "$BENCH_ROWS" s3/put MB/s 'curl --parallel' 0.75 higher "${up[@]}" -- "${up_curl[@]}"
    if [ ${#aws[@]} -gt 0 ]; then
        "$BUILD/bench/row" "$BENCH_ROWS" s3/get-aws MB/s awscli 2 higher "${ours[@]}" -- "${aws[@]}"
        "$BUILD/bench/row" "$BENCH_ROWS" s3/put-aws MB/s awscli 2 higher "${up[@]}" -- "${up_aws[@]}"
    fi
    rm -f big part.*
}

# tokens/s of a run: of all its steps but the first two
speed_of() {
    python3 -c 'import json, sys
s = [json.loads(l) for l in open(sys.argv[1]) if "\"step\"" in l]
print((s[-1]["tokens"] - s[1]["tokens"]) / (s[-1]["time_s"] - s[1]["time_s"]))' "$1/log.jsonl"
}
# GPT-2 124M on 1,024 tokens: its speed
training() {
    local order local_s remote_s round
    cat > job.yaml << YAML
model: {type: gpt2, hidden: 768, layers: 12, heads: 12, ffn: 3072, vocab: 50257}
data: {train: $work/data, seq: 1024, block_tokens: 16384, mixed_blocks: 8}
train: {steps: 8, global_batch: 4, valid_every: 0, save_every: 0, hash_every: 0, precision: bf16}
schedule: {warmup: 1}
YAML
    for order in full block; do
        local_s=() remote_s=()
        for ((round = 0; round < rounds; round++)); do
            rm -rf run cache
            timed "$ASHLAR" train job.yaml --out run data.shuffle=$order && local_s+=("$(speed_of run)")
            rm -rf run
            ASHLAR_CACHE_BYTES=$((bytes / 4)) timed "$ASHLAR" train job.yaml --out run data.shuffle=$order data.train=s3://bucket/data &&
                remote_s+=("$(speed_of run)")
        done
        "$BUILD/bench/row" "$BENCH_ROWS" "s3/train-$order" tokens/s 'local files' 0.98 higher "${remote_s[@]}" -- "${local_s[@]}"
    done
}
# A small model over an epoch: the bytes that it fetched
fetching() {
    local order used fetched peer=() most
    for order in full block; do
        rm -rf run cache
        ASHLAR_CACHE_BYTES=$((bytes / 4)) timed "$ASHLAR" train --out run data.train=s3://bucket/data data.shuffle=$order data.seq=64 \
            data.block_tokens=4096 data.mixed_blocks=8 model.type=gpt2 model.hidden=32 model.layers=1 model.heads=2 model.ffn=64 \
            train.tokens=$((bytes / 2)) train.global_batch=256 train.valid_every=0 train.save_every=0 train.hash_every=0 || return 0
        read -r used fetched < <(sed -n 's/.*read \([0-9]*\) bytes, fetched \([0-9]*\) .*/\1 \2/p' said)
        # The goals are limits, and the table's ratio is the peer's figure over ours.
        if [ $order = full ]; then peer=('bytes used' "$used") most=1.1; else peer=('the data' "$bytes") most=1.02; fi
        "$BUILD/bench/row" "$BENCH_ROWS" "s3/train-$order-fetched" bytes "${peer[0]}" "$(awk "BEGIN { print 1 / $most }")" lower \
            "$fetched" -- "${peer[1]}"
    done
}

first_token() {
    local ours=() longer=() round fetching starting
    "$BUILD/bench/random_llama" model 4 > said
    "$ASHLAR" store put model s3://bucket/model --recursive > said 2>&1
    for ((round = 0; round < rounds; round++)); do
        rm -rf cache got
        timed "$ASHLAR" generate --model s3://bucket/model --prompt x --max-tokens 1 --temperature 0 &&
            ours+=("$(awk "BEGIN { print $ended - $began }")")
        timed "$ASHLAR" store get s3://bucket/model got --recursive && fetching=$(awk "BEGIN { print $ended - $began }")
        timed "$ASHLAR" generate --model model --prompt x --max-tokens 1 --temperature 0 && starting=$(awk "BEGIN { print $ended - $began }")
        longer+=("$(awk "BEGIN { print ($fetching > $starting ? $fetching : $starting) }")")
    done
    "$BUILD/bench/row" "$BENCH_ROWS" s3/first-token s 'the longer of both' 0.87 lower "${ours[@]}" -- "${longer[@]}"
}

if wanted s3/{get,put}{,-aws}; then copies; fi
if wanted s3/train-{full,block}{,-fetched}; then
    "$ASHLAR" data arithmetic --out data --count 60k > said 2>&1
    "$ASHLAR" store put data s3://bucket/data --recursive > said 2>&1
    bytes=$(du -sb data | cut -f1)
    training
    fetching
fi
if wanted s3/first-token; then first_token; fi
