#!/usr/bin/env bash
# What drawn histories of the step boundary (tests/unit/train/elastic) have found, with processes: two losses, the second one while the others
# finish the step of the first: each step is in the log once. Copies that differ, with a spare: all ranks load the checkpoint.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
points=12 after_update=6 transfer=10 # base/fault_point.h
words="train.grains=4 runtime.threads=1 group.silent_timeout=600"
dir=$SCRATCH/many

# ask RANK POINT: that rank is to die there.
ask() {
    echo "{\"die\": $((1 + points * $1 + $2))}" > "$dir/new.json"
    mv "$dir/new.json" "$dir/request.json"
}
# wait_for COMMAND...: until it is true, a minute at most.
wait_for() {
    for ((i = 0; i < 6000; i++)); do
        "$@" && return
        sleep 0.01
    done
    fail "it never comes: $*: $(cat "$SCRATCH/log")"
}
is_taken() { [ ! -e "$dir/request.json" ]; }
are_two_left() { grep -q "2 ranks continue" "$SCRATCH/log"; }
for axis in mesh.dp mesh.fsdp; do
    rm -rf "$dir"
    mkdir "$dir"
    ask 2 $transfer
    "$ASHLAR" launch --procs 4 train "$SCRATCH/job.yaml" --out "$dir" $endless $words $axis=4 > /dev/null 2> "$SCRATCH/log" &
    pid=$!
    wait_for is_taken
    ask 0 $after_update
    wait_for are_two_left
    stop_run many
    wait $pid
    check_bits many $words
done

rm -rf "$dir"
mkdir "$dir"
echo '{"flip": 1}' > "$dir/request.json"
try timeout 120 "$ASHLAR" launch --procs 3 train "$SCRATCH/job.yaml" --out "$dir" train.steps=60 train.save_every=20 recover.check_every=20 \
    recover.spares=1 mesh.fsdp=2 runtime.threads=1
expect 0 "damage with a spare"
grep -q "rank 0 and its copy on rank 1 differ" "$SCRATCH/err" || fail "damage with a spare: not found: $(cat "$SCRATCH/err")"
same "damage with a spare: steps" 60 "$(steps_of many)"
finish
