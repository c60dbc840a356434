#!/usr/bin/env bash
# A disk that fills up while training: the run continues and says so, earlier saves stay good, a failed last save is an error, and
# with room again --resume ends with the bits of a quiet run.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

words=(train.save_every=5 train.keep=0 train.save_wait=0)
train quiet "${words[@]}"
expect 0 "the quiet run"
bytes=$(du -sb "$SCRATCH/quiet/checkpoints/step-000005" | cut -f1)

check_full() { # folder
    expect 1 "$1: a full disk"
    grep -q 'was not saved, the next save will try again and step .* is kept' "$SCRATCH/err" || fail "$1: no warning: $(cat "$SCRATCH/err")"
    grep -q '^ashlar: error: the last step (40) could not be saved' "$SCRATCH/err" || fail "$1: no error: $(cat "$SCRATCH/err")"
    [ -e "$SCRATCH/$1/checkpoints/step-000040" ] && fail "$1: the last step is there"
    for step in "$SCRATCH/$1"/checkpoints/* "$SCRATCH/$1"/checkpoints/.[!.]*; do
        [ -e "$step" ] || continue
        [ -s "$step/manifest.json" ] || fail "$1: $step is half-written"
    done
}
check_resumed() { # folder
    train "$1" "${words[@]}" --resume
    expect 0 "$1: resumed"
    same "$1: bits" "$(bits_of quiet | md5sum)" "$(bits_of "$1" | md5sum)"
}

# A real file system of two and a half checkpoints, where this user may mount one.
mkdir "$SCRATCH/mount"
if mount -t tmpfs -o "size=$((bytes * 7 / 2))" tmpfs "$SCRATCH/mount" 2> /dev/null; then
    trap 'umount "$SCRATCH/mount"' EXIT
    train mount/run "${words[@]}"
    check_full mount/run
    grep -q '^ashlar: warning: .*/mount/run has .* free, and this run writes up to .* (8 checkpoints of .* at once, and the model)' "$SCRATCH/err" ||
        fail "no warning of a small disk at the start: $(head -n 1 "$SCRATCH/err")"
    mount -o "remount,size=$((bytes * 40))" "$SCRATCH/mount"
    check_resumed mount/run
    rm -rf "$SCRATCH/mount/run"

    # With train.keep older checkpoints go before the newest step does. The report takes room, too, and the word in the run's lock a page.
    mount -o "remount,size=$((bytes * 7 / 2 + 4096 + $(stat -c %s "$SCRATCH/quiet/report.html")))" "$SCRATCH/mount"
    head -c $((bytes / 2)) /dev/zero > "$SCRATCH/mount/others"
    train mount/keep train.save_every=5 train.keep=2 train.save_wait=0
    expect 0 "a disk for two and a half checkpoints, two kept: $(cat "$SCRATCH/err")"
    grep -q 'only the newest checkpoint is kept from now on' "$SCRATCH/err" || fail "it does not say what was removed: $(cat "$SCRATCH/err")"
    rm -rf "$SCRATCH/mount/keep"

    # The last step waits for room.
    "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/mount/wait" train.save_every=5 train.keep=0 train.save_wait=100 > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
    pid=$!
    wait_for "a full disk" grep -q 'the last step waits for .* of room' "$SCRATCH/err"
    mount -o "remount,size=$((bytes * 40))" "$SCRATCH/mount"
    code=0
    wait $pid || code=$?
    expect 0 "room at last"
    [ -s "$SCRATCH/mount/wait/checkpoints/step-000040/manifest.json" ] || fail "the last step was not saved"
    rm -rf "$SCRATCH/mount/wait"

    # Not even one checkpoint.
    rm -f "$SCRATCH/mount/others"
    mount -o "remount,size=$((bytes / 2))" "$SCRATCH/mount"
    train mount/none
    expect_error 1 "a disk without room" "nothing could be saved"
    [ -e "$SCRATCH/mount/none" ] && fail "a refused start leaves: $(ls -A "$SCRATCH/mount/none")"
fi

# A limit on the size of files is the same to a program: resumed from step 5, it cannot write weights any more.
train limit "${words[@]}"
rm -rf "$SCRATCH/limit/checkpoints/step-0000"[1-4]* "$SCRATCH/limit/model"
code=0
(ulimit -f 8; "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/limit" "${words[@]}" --resume) > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null || code=$?
check_full limit
check_resumed limit
finish
