#!/usr/bin/env bash
# Models in a bucket, safetensors and GGUF: weights stream by ranges into packing while the first pass runs, with the text of local files; the cache may
# be smaller than the model; a second start asks the server for none of them; ranks share what is read. Through a proxy that fails,
# counts bytes and goes away. Skips where Debian's packages are not there.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone python3; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"
s3_world_start

# ---- models of some megabytes: one file, and shards; matrices stored either way round -------------------------------------
words=(--prompt '12+34=' --max-tokens 12 --temperature 0)
weights_of() { find "$ASHLAR_CACHE_DIR" -name '*.safetensors' -printf '%f %i %T@\n' | sort; }
for family in llama gpt2; do
    train "made_$family" model.type=$family model.hidden=128 model.layers=6 model.heads=4 model.ffn=512 model.vocab=2048 train.steps=1 schedule.warmup=0 \
        train.valid_every=0 model.max_positions=64
    expect 0 "a $family model"
    try "$ASHLAR" model convert "made_$family/model" "model_$family" --dtype f32 --max-shard-size "$([ $family = llama ] && echo 0 || echo 3m)"
    expect 0 "a $family model in float32"
    bytes=$(cat "model_$family"/*.safetensors | wc -c)
    [ "$bytes" -gt 4000000 ] || fail "the $family model is too small for this test: $bytes bytes"
    rclone copy "model_$family" "r:bucket/models/$family" || fail "rclone does not write the model"
    for precision in bf16 fp32; do
        try "$ASHLAR" generate --model "model_$family" "${words[@]}" --precision $precision
        expect 0 "generate from local files"
        cp out expected_$family.$precision
        export ASHLAR_CACHE_DIR=$SCRATCH/cache_$family.$precision
        for turn in first second; do
            leak_free "$ASHLAR" generate --model "s3://bucket/models/$family" "${words[@]}" --precision $precision
            expect 0 "$family, $precision, from a bucket, the $turn time"
            cmp -s out expected_$family.$precision || fail "$family, $precision: another text from a bucket, the $turn time"
            weights_of > $turn
        done
        cmp -s first second && [ -s first ] || fail "$family, $precision: weights were fetched a second time"
    done
done
same "shards" 1 "$([ "$(ls model_gpt2/*.safetensors | wc -l)" -gt 1 ] && echo 1)"

# ---- a GGUF file: in a folder, or an object of its own; a cache that is smaller; a second start -----------------------------
try "$ASHLAR" model convert made_llama/model model_gguf --quant q8w
expect 0 "a llama model in 8 bits"
[ "$(stat -c %s model_gguf/model.gguf)" -gt 1500000 ] || fail "the GGUF file is too small for this test"
mkdir alone && cp model_gguf/model.gguf alone/one.gguf # whose vocabulary is its own
for place in model_gguf alone/one.gguf; do
    try "$ASHLAR" generate --model $place "${words[@]}"
    expect 0 "generate from a local GGUF file, $place"
    cp out "expected_${place##*[/_]}"
done
rclone copy model_gguf r:bucket/models/gguf && rclone copyto model_gguf/model.gguf r:bucket/models/one.gguf || fail "rclone does not write the GGUF file"
for place in gguf one.gguf; do
    export ASHLAR_CACHE_DIR=$SCRATCH/cache_$place
    ASHLAR_CACHE_BYTES=1000000 leak_free "$ASHLAR" generate --model s3://bucket/models/$place "${words[@]}"
    expect 0 "$place with a cache that is smaller"
    cmp -s out expected_$place || fail "$place: another text with a small cache"
    for turn in first second; do
        try "$ASHLAR" generate --model s3://bucket/models/$place "${words[@]}"
        expect 0 "$place, the $turn time"
        cmp -s out expected_$place || fail "$place: another text from a bucket, the $turn time"
        find "$ASHLAR_CACHE_DIR" -name '*.gguf' -printf '%f %i %T@\n' > $turn
    done
    cmp -s first second && [ -s first ] || fail "$place: weights were fetched a second time"
done

# ---- a cache that is smaller than the model; faults; several starts at a time ---------------------------------------------
export ASHLAR_CACHE_DIR=$SCRATCH/cache_small
for turn in first second; do
    ASHLAR_CACHE_BYTES=1000000 leak_free "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --precision bf16
    expect 0 "a cache that is smaller than the model, the $turn time"
    cmp -s out expected_llama.bf16 || fail "another text with a small cache, the $turn time"
    held=$(find cache_small -name '*.safetensors' -printf '%b\n' | awk '{ n += $1 * 512 } END { print n + 0 }')
    [ "$held" -lt 3000000 ] || fail "a cache of 1,000,000 bytes holds $held of weights"
done
export ASHLAR_CACHE_DIR=$SCRATCH/cache_faults
helper faults python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/faults" "${s3_endpoint##*:}" 1 0.3 503,500,reset,cut,babble
AWS_ENDPOINT_URL=http://127.0.0.1:$port try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --precision bf16
expect 0 "through faults"
cmp -s out expected_llama.bf16 || fail "another text through faults"
[ "$(wc -l < faults.out)" -ge 3 ] || fail "only $(wc -l < faults.out) faults were met"
# A bit flips on the way: the ETag tells, once a file is all here. No text, and nothing wrong stays in the cache.
export ASHLAR_CACHE_DIR=$SCRATCH/cache_flips
helper flips python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/flips" "${s3_endpoint##*:}" 3 1 flip-large
AWS_ENDPOINT_URL=http://127.0.0.1:$port try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --precision bf16
expect_error 1 "flipped bits in weights" "models/llama/model.safetensors is damaged"
! grep -q "[^[:space:]]" out || fail "a text from damaged weights: $(cat out)"
try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --precision bf16
expect 0 "after flipped bits"
cmp -s out expected_llama.bf16 || fail "another text after flipped bits"
export ASHLAR_CACHE_DIR=$SCRATCH/cache_together
for turn in 1 2 3; do
    "$ASHLAR" generate --model s3://bucket/models/gpt2 "${words[@]}" --precision fp32 > "together.$turn" 2> "together.$turn.err" < /dev/null &
    pids[turn]=$!
done
for turn in 1 2 3; do
    wait "${pids[turn]}" && cmp -s "together.$turn" expected_gpt2.fp32 || fail "three at a time: $(cat "together.$turn.err")"
done
rm -rf cache_gone
export ASHLAR_CACHE_DIR=$SCRATCH/cache_gone # what the folder needs is there, then the server is away
try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --max-tokens 1
find cache_gone -name '*.safetensors' -delete
AWS_ENDPOINT_URL=http://127.0.0.1:9 ASHLAR_S3_RETRY_S=1 try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}"
expect 1 "a server that is away"
grep -q '^ashlar: error: .*s3://bucket' err || fail "a server that is away: $(cat err)"
echo damaged > model_llama/model.safetensors.new
truncate -s 3000000 model_llama/model.safetensors.new
rclone copyto model_llama/model.safetensors.new r:bucket/models/broken/model.safetensors
rclone copyto model_llama/config.json r:bucket/models/broken/config.json
rclone copyto model_llama/tokenizer.json r:bucket/models/broken/tokenizer.json
try "$ASHLAR" generate --model s3://bucket/models/broken "${words[@]}"
expect_error 1 "weights that are none" "safetensors"

# ---- a new version is a new model ------------------------------------------------------------------------------------------
export ASHLAR_CACHE_DIR=$SCRATCH/cache_llama.bf16
train other model.type=llama model.hidden=128 model.layers=6 model.heads=4 model.ffn=512 model.vocab=2048 train.steps=1 schedule.warmup=0 train.seed=9 \
    train.valid_every=0 model.max_positions=64
try "$ASHLAR" model convert other/model model_other --dtype f32 --max-shard-size 0
try "$ASHLAR" generate --model model_other "${words[@]}" --precision bf16
cp out expected_other
rclone copy model_other r:bucket/models/llama || fail "rclone does not write the model"
try "$ASHLAR" generate --model s3://bucket/models/llama "${words[@]}" --precision bf16
cmp -s out expected_other || fail "an old version of the weights was used"

# ---- training from it: each rank reads what it holds -----------------------------------------------------------------------
start=(train.steps=2 schedule.warmup=0 train.valid_every=0 train.hash_every=1)
train from_local "${start[@]}" model.from="$SCRATCH/model_other"
expect 0 "train from local weights"
for mesh in "1 mesh.dp=1" "2 mesh.tp=2" "2 mesh.pp=2" "4 mesh.fsdp=4 mesh.zero=3"; do
    read -r ranks layout <<< "$mesh"
    export ASHLAR_CACHE_DIR="$SCRATCH/cache_train.${layout// /.}"
    # shellcheck disable=SC2086 # several words
    try "$ASHLAR" launch --procs "$ranks" train "$SCRATCH/job.yaml" --out "$SCRATCH/from_${layout// /_}" "${start[@]}" model.from=s3://bucket/models/llama $layout
    expect 0 "train from weights in a bucket, $layout: $(tail -n 3 err)"
    same "the bits of $layout" "$(bits_of from_local)" "$(bits_of "from_${layout// /_}")"
done

# ---- adapters over it ------------------------------------------------------------------------------------------------------
train lora_local "${start[@]}" model.from="$SCRATCH/model_other" lora.rank=2
expect 0 "adapters over local weights"
export ASHLAR_CACHE_DIR=$SCRATCH/cache_lora
train lora_bucket "${start[@]}" model.from=s3://bucket/models/llama lora.rank=2
expect 0 "adapters over weights in a bucket: $(tail -n 3 err)"
same "the bits of adapters" "$(bits_of lora_local)" "$(bits_of lora_bucket)"
grep -q '"base_model_name_or_path": "s3://bucket/models/llama"' lora_bucket/model/adapter_config.json || fail "adapters name the cache as their base"
try "$ASHLAR" generate --model "$SCRATCH/model_other" --lora lora_bucket/model "${words[@]}"
cp out expected_lora
leak_free "$ASHLAR" generate --model s3://bucket/models/llama --lora lora_bucket/model "${words[@]}"
expect 0 "adapters over a bucket's model"
cmp -s out expected_lora || fail "adapters over a bucket's model: another text"
finish
