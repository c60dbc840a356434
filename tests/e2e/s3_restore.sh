#!/usr/bin/env bash
# A checkpoint that is only in a bucket, on several nodes: each rank reads the pieces that it needs straight from the server, whether
# the nodes see one folder or have a disk each, and nothing is left of that. Several ranks send one file of a checkpoint. A real S3
# server (radosgw) counts what was read.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
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
"$ASHLAR" version | grep -q 'libfabric [0-9]' || skip "the build has no network between nodes"
s3_world_start
sed -i "s/^schedule:.*/schedule: {kind: constant, warmup: 1}/; s/^train:.*/train: {steps: 4, global_batch: 4, grains: 4, valid_every: 0, save_every: 0, hash_every: 1}/" job.yaml
# Some 50 MB: twelve pieces, of which a stage of four needs few.
words=(model.hidden=256 model.layers=8 model.heads=4 model.ffn=512 model.vocab=512)
steps_in() { "$ASHLAR" checkpoint ls "$1" 2> ls.err | awk '$1 ~ /^[0-9]+$/ { print $1 }' | xargs; }

train straight "${words[@]}"
expect 0 "a run without a break"
train first "${words[@]}" train.steps=2 save.to=s3://bucket/far
expect 0 "two steps, saved to a bucket: $(cat err)"
same "in the bucket" 2 "$(steps_in s3://bucket/far)"

# What the server sent of large files since the last call, in bytes.
seen=0
sent() {
    local all
    all=$(grep -o '"GET /bucket/far/step-[0-9]*/[a-z]*.safetensors HTTP/1.1" 20[06] [0-9]*' "$server/log/client.rgw.log" | awk '{ n += $NF } END { print n + 0 }')
    bytes=$((all - seen)) seen=$all
}
nothing_left() { # NAME FOLDER
    same "$1: what is left" "" "$(find "$2" -name '*.rank-*')"
}
total=$(rclone lsf --format s -R r:bucket/far/step-000002 | awk '{ n += $1 } END { print n }')
[ "$total" -gt 40000000 ] || fail "the checkpoint is too small for this test: $total bytes"
sent

# ---- one folder that all nodes see ----------------------------------------------------------------------------------------------
try "$ASHLAR" launch --procs 4 --nodes 2 train job.yaml --resume --allow-change --out "$SCRATCH/shared" mesh.pp=4 "${words[@]}" save.to=s3://bucket/far save.keep=0
expect 0 "resumed on two nodes: $(cat err)"
grep -q 'resumed *at step 2' out || fail "it did not begin at step 2: $(cat out)"
same "the bits, resumed on two nodes" "$(bits_of straight | tail -n 6)" "$(bits_of shared | tail -n 6)"
sent
[ "$bytes" -gt $((total / 2)) ] && [ "$bytes" -lt $((4 * total * 6 / 10)) ] || fail "four ranks, of which each needs a quarter, read $bytes bytes of $total"
nothing_left "two nodes" shared
same "the bucket continues" "4 2" "$(steps_in s3://bucket/far)"

# ---- nodes with a disk each -----------------------------------------------------------------------------------------------------
rm -rf first shared
apart() { # WORDS...: each rank in a folder of its own
    try "$ASHLAR" launch --procs 2 --nodes 2 --program sh -c 'mkdir -p "disk.$RANK" && cd "disk.$RANK" && exec "$0" "$@"' "$ASHLAR" train "$SCRATCH/job.yaml" --resume \
        --allow-change --out run mesh.pp=2 "${words[@]}" save.to=s3://bucket/far save.keep=0 "$@"
}
apart train.steps=6
expect 0 "nodes with a disk each: $(cat err)"
grep -q 'resumed *at step 4' out || fail "disks: it did not begin at step 4: $(cat out)"
for disk in disk.0 disk.1; do nothing_left "$disk" $disk; done
train straight2 "${words[@]}" train.steps=8
# now the first node has the newest in its folder, and the other has not
apart train.steps=8
expect 0 "the first node has it, the second has not: $(cat err)"
grep -q 'resumed *at step 6' out || fail "disks: it did not begin at step 6: $(cat out)"
same "the bits, on disks apart" "$(bits_of straight2 | tail -n 3)" "$(bits_of disk.0/run | tail -n 3)"

# ---- a flipped bit in a piece that a rank needs: the checkpoint before ----------------------------------------------------------
rclone cat r:bucket/far/step-000008/optimizer.safetensors > flipped && printf '\377' | dd of=flipped bs=1 seek=5000 conv=notrunc 2> dd.err
rclone copyto flipped r:bucket/far/step-000008/optimizer.safetensors
rm -rf disk.0 disk.1
apart train.steps=8
expect 0 "a flipped bit: $(cat err)"
grep -q 'resumed *at step 6' out && grep -q 'going back to step 6: .*step-000008.*optimizer.safetensors' err || fail "a flipped bit: $(cat out err)"
same "the bits after a flipped bit" "$(bits_of straight2 | tail -n 3)" "$(bits_of disk.0/run | tail -n 3)"

# ---- several ranks send one checkpoint: each its share of the parts of a file ----------------------------------------------------
"$ASHLAR" launch --procs 4 train job.yaml --out "$SCRATCH/fed" mesh.fsdp=4 "${words[@]}" train.steps=1000000 train.save_every=4 runtime.log_level=debug save.keep=2,2 \
    save.to="$SCRATCH/fed_here,s3://bucket/fed" > fed.out 2> fed.err < /dev/null &
trainer=$!
shares() { [ "$(grep -c 'sent its share of step .* to s3://bucket/fed' fed.err)" -ge 4 ]; }
wait_for "shares of other ranks" shares
kill -TERM $trainer
wait $trainer
last=$(steps_in s3://bucket/fed | cut -d' ' -f1)
same "the last is there" "$(steps_in fed_here | cut -d' ' -f1)" "$last"
rclone check "fed_here/step-$(printf %06d "$last")" "r:bucket/fed/step-$(printf %06d "$last")" || fail "a copy with other bytes"
try "$ASHLAR" checkpoint verify s3://bucket/fed
expect 0 "what several ranks have sent: $(cat err)"
finish
