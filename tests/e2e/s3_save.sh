#!/usr/bin/env bash
# Checkpoints in a bucket: saved to a folder and a bucket at once, each with its own number; resumed from the bucket alone on another
# mesh; `ashlar checkpoint` on it; a flipped object; a server that goes away; settings that are wrong. A real S3 server (radosgw).
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
skip() {
    echo "skipped: $*"
    exit 77
}
for tool in "${radosgw_tools[@]}" rclone python3 openssl; do
    command -v "$tool" > "$SCRATCH/out" || skip "needs $tool (scripts/deps.sh test installs radosgw and rclone)"
done
"$ASHLAR" version | grep -q 'libcurl [0-9]' || skip "the build has no S3"
. "$SOURCE/tests/e2e/lib/s3_client.bash" || exit 1
s3_world_start
sed -i "s/^schedule:.*/schedule: {kind: constant, warmup: 5}/" job.yaml # runs of any length have the same steps
direct=$AWS_ENDPOINT_URL
faults() { # NAME RATE KINDS [CERTIFICATE KEY]
    helper "port_$1" python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/port_$1" "${s3_endpoint##*:}" 7 "${@:2}"
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port
}
steps_in() { "$ASHLAR" checkpoint ls "$1" 2> ls.err | awk '$1 ~ /^[0-9]+$/ { print $1 }' | xargs; }
hash_of() { grep -o 'state_hash.*' "$SCRATCH/$1/log.jsonl" | tail -n 1; }

# ---- a folder and a bucket -----------------------------------------------------------------------------------------------------
train quiet train.steps=60
expect 0 "the quiet run"
try "$ASHLAR" launch --procs 2 train job.yaml --out "$SCRATCH/run" mesh.fsdp=2 train.save_every=10 "save.to=$SCRATCH/near,s3://bucket/far" save.keep=3,1
expect 0 "saves to a folder and a bucket: $(cat err)"
same "kept in the folder" "40 30 20" "$(steps_in near)"
same "kept in the bucket" 40 "$(steps_in s3://bucket/far)"
rclone copy r:bucket/far by_rclone && diff -r near/step-000040 by_rclone/step-000040 || fail "other files in the bucket"

# ---- resumed from the bucket alone, on other meshes, where nothing else is left ----------------------------------------------
rm -rf near run
resume() { # STEPS OUT WORDS...
    local steps=$1 out=$2
    shift 2
    try "$ASHLAR" launch --procs 4 train job.yaml --resume --allow-change --out "$SCRATCH/$out" train.save_every=10 "train.steps=$steps" "$@"
}
resume 50 second mesh.pp=2 mesh.fsdp=2 save.to=s3://bucket/far save.keep=2
expect 0 "resumed from the bucket, four ranks: $(cat err)"
grep -q 'step 40 comes from s3://bucket/far' err || fail "it does not say where the checkpoint is from: $(cat err)"
grep -q 'resumed *at step 40' out || fail "it did not begin at step 40: $(cat out)"
same "the bucket continues" "50 40" "$(steps_in s3://bucket/far)"

# ---- the command ---------------------------------------------------------------------------------------------------------------
try "$ASHLAR" checkpoint verify s3://bucket/far
expect 0 "verify in a bucket"
try "$ASHLAR" checkpoint copy s3://bucket/far s3://bucket/copy --step 40
expect 0 "copy inside a bucket"
try "$ASHLAR" checkpoint copy s3://bucket/far near
expect 0 "copy from a bucket"
rclone check near/step-000050 r:bucket/far/step-000050 || fail "a copy with other bytes"
try "$ASHLAR" checkpoint copy near s3://bucket/copy
expect 0 "copy into a bucket"
same "copies" "50 40" "$(steps_in s3://bucket/copy)"
try "$ASHLAR" checkpoint prune s3://bucket/copy --keep 1
same "pruned" "1 removed 50" "$(cat out) $(steps_in s3://bucket/copy)"
same "nothing is left of it" "" "$(rclone lsf -R r:bucket/copy/step-000040)"

# ---- a flipped bit: found, and the checkpoint before is used -----------------------------------------------------------------
cp near/step-000050/optimizer.safetensors flipped && printf '\377' | dd of=flipped bs=1 seek=5000 conv=notrunc 2> dd.err
rclone copyto flipped r:bucket/far/step-000050/optimizer.safetensors
try "$ASHLAR" checkpoint verify s3://bucket/far
expect_error 1 "verify of a flipped object" "s3://bucket/far/step-000050/optimizer.safetensors" "damaged"
resume 60 third mesh.tp=1 mesh.fsdp=4 save.to=s3://bucket/far save.keep=2
expect 0 "resumed from the one before: $(cat err)"
grep -q 'going back to step 40: .*step-000050/optimizer.safetensors' err || fail "it does not say what is damaged: $(cat err)"
same "the bits of a run without a break" "$(hash_of quiet)" "$(hash_of third)"
try "$ASHLAR" checkpoint verify s3://bucket/far
expect 0 "the newest in the bucket is right again"

# ---- the server goes away: steps continue, the end waits for it and says for whom --------------------------------------------------
free_ports # so that nobody else takes the port meanwhile
S3_FAULTS_PORT=$port faults away 0 ""
kill "${helpers[-1]}"
wait "${helpers[-1]}" 2> kill.err
"$ASHLAR" train job.yaml --out "$SCRATCH/patient" train.save_every=10 save.to="$SCRATCH/here,s3://bucket/patient" > patient.out 2> patient.err < /dev/null &
trainer=$!
wait_for "the last step" grep -qs '"step":40,' patient/log.jsonl
wait_for "what it waits for" grep -qs 'waiting for the copy of the last checkpoint to s3://bucket/patient' patient.err
S3_FAULTS_PORT=$port helper port_back python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/port_back" "${s3_endpoint##*:}" 8 0 ""
wait $trainer || fail "a server that came back: $(cat patient.err)"
same "the bits while the server was away" "$(bits_of quiet | head -n 40)" "$(bits_of patient | head -n 40)"
same "what came after all" 40 "$(steps_in s3://bucket/patient | cut -d' ' -f1)"
kill "${helpers[-1]}"
ASHLAR_S3_RETRY_S=0.2 train gone save.to="$SCRATCH/there,s3://bucket/gone" train.save_every=20
expect 75 "a server that stays away"
grep -q "^not in .*s3://bucket/gone: ashlar checkpoint copy $SCRATCH/there s3://bucket/gone" out || fail "it does not say how to copy: $(cat out)"
grep -q "save.to: s3://bucket/.*checkpoints wait for it in $SCRATCH/there" err || fail "nothing is said at the beginning: $(cat err)"
grep -q 'step 40 was not copied to s3://bucket/gone' err || fail "nothing is said at the end: $(cat err)"
same "here all is well" "40 20" "$(steps_in there)"

AWS_ENDPOINT_URL=$direct try "$ASHLAR" train --resume --out "$SCRATCH/gone"
expect 0 "a run that has finished, and its server is back: $(cat err)"
same "what is copied after all" 40 "$(AWS_ENDPOINT_URL=$direct steps_in s3://bucket/gone)"

# ---- a bucket that holds another run: nothing of it is removed, and nothing is mixed -----------------------------------------------
AWS_ENDPOINT_URL=$direct train another train.seed=21 train.save_every=10 "save.to=$SCRATCH/another_here,s3://bucket/gone"
expect_error 2 "a new run into another's prefix" "save.to: s3://bucket/gone holds checkpoints already (step 40)" "--resume"
[ -e another ] && fail "a refused run leaves a folder"
ASHLAR_S3_RETRY_S=0.2 train another train.seed=21 train.save_every=10 "save.to=$SCRATCH/another_here,s3://bucket/later"
expect 75 "a new run, the server away"
AWS_ENDPOINT_URL=$direct try "$ASHLAR" checkpoint copy there s3://bucket/later --step 20
AWS_ENDPOINT_URL=$direct try "$ASHLAR" train --resume --out "$SCRATCH/another"
expect 75 "another run came into the prefix meanwhile"
grep -q 's3://bucket/later holds checkpoints of another run (step 20)' err || fail "nothing is said of the other run: $(cat err)"
same "the other run's checkpoint is left alone" 20 "$(AWS_ENDPOINT_URL=$direct steps_in s3://bucket/later)"

# ---- a bucket in other hands: a process that was left behind writes nothing more to it --------------------------------------------
export AWS_ENDPOINT_URL=$direct
"$ASHLAR" train job.yaml --out "$SCRATCH/left" train.steps=1000000 train.save_every=50 save.keep=2,0 save.to="$SCRATCH/left_here,s3://bucket/left" > left.out 2> left.err \
    < /dev/null &
trainer=$!
in_bucket() { rclone lsf r:bucket/left/ | grep -q '^step-'; }
wait_for "a checkpoint in the bucket" in_bucket
grep -qx '[0-9a-f]\{16\}' <(rclone cat r:bucket/left/lease) || fail "no lease: $(rclone cat r:bucket/left/lease)"
echo 00000000deadbeef > other && rclone copyto other r:bucket/left/lease
wait_for "the warning" grep -qs 'was not copied to s3://bucket/left.*another process saves to s3://bucket/left' left.err
steps_in s3://bucket/left > before
kill -TERM $trainer
wait $trainer
steps_in s3://bucket/left > after
cmp -s before after || fail "a process that was left behind wrote to the bucket: $(cat after)"
cmp -s other <(rclone cat r:bucket/left/lease) || fail "it took the bucket again"
"$ASHLAR" train --resume --allow-change --out "$SCRATCH/left" train.steps=$(($(cut -d' ' -f1 <(steps_in left_here)) + 5)) > left.out 2> left.err < /dev/null || fail "resumed: $(cat left.err)"
cmp -s other <(rclone cat r:bucket/left/lease) && fail "whoever continues did not take the bucket"
cmp -s before <(steps_in s3://bucket/left) && fail "whoever continues did not save to the bucket"

# ---- settings that are wrong: one sentence, before the first step ------------------------------------------------------------
wrong() { # WHAT WORDS...: with a save to a bucket. Settings that no other start would accept have another exit code
    train mistake save.to=s3://bucket/ck
    expect_error "${wrong_code:-1}" "$1" "save.to" "${@:2}"
    [ ! -e mistake/log.jsonl ] || fail "$1: a run was begun"
}
export AWS_ENDPOINT_URL=$direct
train mistake save.to=s3://nobucket/ck
expect_error 2 "no such bucket" "save.to" "there is no bucket 'nobucket'"
AWS_ACCESS_KEY_ID=NOBODY wrong "an unknown key" "'NOBODY'"
AWS_SECRET_ACCESS_KEY=wrong wrong "a wrong secret" "secret key"
faults region 1 region
wrong_code=2 wrong "another region" "region eu-west-1, not us-east-1" "s3.region=eu-west-1"
faults clock 1 skewed
wrong "a wrong clock" "clock"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.pem -days 2 -subj /CN=127.0.0.1 \
    -addext subjectAltName=IP:127.0.0.1 2> openssl.err || fail "openssl: $(cat openssl.err)"
faults tls 0 "" tls.pem tls.key
AWS_ENDPOINT_URL=https://127.0.0.1:$port wrong "an unknown certificate" "certificate" "s3.ca_file"
finish
