#!/usr/bin/env bash
# chaos campaign, ashlar chaos run: drawn jobs whose ranks are killed by real signals end with the bits of one process; a job of one's own can be disturbed.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
mkdir "$SCRATCH/campaign" && echo important > "$SCRATCH/campaign/thesis.txt"
try "$BUILD/tests/chaos" campaign --seed 1 --runs 8 --scratch "$SCRATCH/campaign" --keep
expect 0 "8 drawn runs: $(cat "$SCRATCH/out")"
grep -q '^8 of 8 runs have the bits of one process$' "$SCRATCH/out" || fail "campaign: $(tail -n 3 "$SCRATCH/out")"
same "what is in the folder afterwards" thesis.txt "$(ls "$SCRATCH/campaign")"

train straight train.steps=200 train.valid_every=0
expect 0 "one process"
for first in 0.3 1 3 10; do # a rank that is killed before all have met ends the job: a busy machine needs longer for its first step
    rm -rf "$SCRATCH/hit"
    try "$ASHLAR" chaos run --seed 3 --first $first --every 0.3 --kills 2 launch --procs 4 train "$SCRATCH/job.yaml" --out "$SCRATCH/hit" train.steps=200 train.valid_every=0 mesh.fsdp=4
    [ "$code" -ne 0 ] && [ ! -s "$SCRATCH/hit/log.jsonl" ] || break
done
expect 0 "a disturbed job"
grep -q '^chaos: [0-9]* ranks killed (seed 3)$' "$SCRATCH/out" || fail "it does not say what it did: $(tail -n 3 "$SCRATCH/out")"
bits_of hit | cmp -s - <(bits_of straight) || fail "a disturbed job has other bits"

try "$ASHLAR" chaos run train job.yaml
expect_error 2 "a job that is not launched" "launch"
try "$BUILD/tests/chaos" campaign --runs 0
expect_error 2 "no runs" "runs"
finish
