#!/usr/bin/env bash
# train.precision=fp8: the same bits for every layout, batch and number of threads, after a stop;
# a loss like bf16's; what it does not go with is said.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
small="train.precision=fp8 model.hidden=32 model.kv_heads=1 model.ffn=48 train.steps=4 train.valid_every=0 train.hash_every=2
    schedule.warmup=0"
# hash_of NAME WORD...: the state hash at the end of a run that this command begins
hash_of() {
    local name=$1
    shift
    rm -rf "${SCRATCH:?}/$name"
    try "$@" --out "$SCRATCH/$name"
    expect 0 "$name: $*"
    sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p' "$SCRATCH/out" | tail -n 1
}
job="train $SCRATCH/job.yaml $small"
want=$(hash_of one "$ASHLAR" $job)
[[ $want =~ ^[0-9a-f]{16}$ ]] || fail "no state: '$want'"
grep -q 'machine .*, fp8' "$SCRATCH/out" || fail "it does not say fp8: $(grep machine "$SCRATCH/out")"
for words in train.micro_batch=1 "runtime.threads=3 train.recompute=full"; do
    same "$words" "$want" "$(hash_of other "$ASHLAR" $job $words)"
done
for words in mesh.dp=2 "mesh.fsdp=2 mesh.zero=3" mesh.pp=2; do
    same "$words" "$want" "$(hash_of ranks "$ASHLAR" launch --procs 2 $job $words)"
done
hash_of stopped "$ASHLAR" $job train.save_every=2 > "$SCRATCH/hash"
rm -rf "$SCRATCH/stopped/checkpoints/step-000004" "$SCRATCH/stopped/model"
try "$ASHLAR" train --resume --out "$SCRATCH/stopped"
expect 0 "resumed"
grep -q "state $want" "$SCRATCH/out" || fail "resumed, it has other bits: $(tail -n 5 "$SCRATCH/out")"
# Another arithmetic than bf16's, with about its loss; experts too.
[ "$(hash_of bf16 "$ASHLAR" $job train.precision=bf16)" != "$want" ] || fail "fp8 has the bits of bf16"
loss_of() { sed -n 's/.* loss \([0-9.]*\), .*/\1/p' "$SCRATCH/out" | tail -n 1; }
rounded=$(loss_of)
hash_of one "$ASHLAR" $job > "$SCRATCH/hash"
awk -v fp8="$(loss_of)" -v bf16="$rounded" 'BEGIN { exit !(fp8 > 0.98 * bf16 && fp8 < 1.02 * bf16) }' ||
    fail "a loss of $(loss_of), and of $rounded in bf16"
experts="$job model.type=mixtral model.experts=4 model.experts_per_token=2"
same "experts on two ranks" "$(hash_of experts "$ASHLAR" $experts)" "$(hash_of ranks "$ASHLAR" launch --procs 2 $experts mesh.ep=2)"
# What it does not go with.
try "$ASHLAR" launch --procs 2 $job mesh.tp=2 --out "$SCRATCH/refused"
[ "$code" = 2 ] || fail "tp: exit code $code"
grep -q "train.precision=fp8 has scales of 128 values, which mesh.tp and mesh.cp would cut" "$SCRATCH/err" || fail "tp: $(cat "$SCRATCH/err")"
try "$ASHLAR" $job runtime.backend=cuda --out "$SCRATCH/refused"
expect_error 2 "a GPU" "train.precision=fp8 runs on CPUs alone"
finish
