#!/usr/bin/env bash
# Checkpoints in several places, as a user has them: copies, retention, damage that is mended or passed over, a folder that goes away,
# and `ashlar checkpoint`.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
a=$SCRATCH/a b=$SCRATCH/b
train quiet
expect 0 "the quiet run"
places() { ls "$1" | tr '\n' ' ' | sed 's/ $//'; }

# ---- two places, each with its own number of checkpoints ---------------------------------------------------------------------
try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/run" mesh.fsdp=2 train.save_every=10 "save.to=$a,$b" save.keep=2,1
expect 0 "two places"
same "kept in the first" 2 "$(ls "$a" | wc -l)"
same "kept in the second" step-000040 "$(places "$b")"
diff -r "$a/step-000040" "$b/step-000040" > "$SCRATCH/diff" || fail "the copy differs: $(cat "$SCRATCH/diff")"
same "the bits of one process" "$(grep -o 'state_hash.*' "$SCRATCH/quiet/log.jsonl" | tail -n 1)" "$(grep -o 'state_hash.*' "$SCRATCH/run/log.jsonl" | tail -n 1)"

# ---- the command -------------------------------------------------------------------------------------------------------------
try "$ASHLAR" checkpoint ls "$a"
expect 0 "ls"
grep -q '^ *40 .*kB  [0-9a-f]\{16\}$' "$SCRATCH/out" || fail "ls: $(cat "$SCRATCH/out")"
try "$ASHLAR" checkpoint verify "$a"
expect 0 "verify"
try "$ASHLAR" checkpoint copy "$a" "$SCRATCH/c"
expect 0 "copy"
diff -r "$a/step-000040" "$SCRATCH/c/step-000040" > /dev/null || fail "copy: it differs"
try "$ASHLAR" checkpoint ls "$SCRATCH/run"
expect_error 1 "ls of a run that saves elsewhere" "the run saves to $a"
try "$ASHLAR" checkpoint verify "$a" --step 41
expect_error 1 "verify of a step that is not there" "no complete checkpoint of step 41" "of steps 30 to 40"
try "$ASHLAR" checkpoint verify "$SCRATCH/none"
expect_error 1 "verify of nothing" "no complete checkpoint"
try "$ASHLAR" checkpoint prune "$a"
expect_error 1 "prune without a number" "at least 1"
try "$ASHLAR" checkpoint copy "$a"
expect 2 "copy to nowhere"

# ---- a flipped bit, a file that is gone: that piece from the other place -----------------------------------------------------
flip() { printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null; }
flip "$a/step-000040/optimizer.safetensors" 5000
rm "$a/step-000040/config.json"
try "$ASHLAR" checkpoint verify "$a"
expect 1 "verify of a damaged one"
more() { try "$ASHLAR" launch --procs 2 train --resume --allow-change --out "$SCRATCH/run" "train.steps=$1"; }
more 45
expect 0 "resumed from two places"
grep -q 'optimizer.safetensors: damaged or missing parts come from' "$SCRATCH/err" || fail "it does not say what was mended: $(cat "$SCRATCH/err")"
try "$ASHLAR" checkpoint verify "$a" --step 40
expect 0 "mended"

# ---- all of the first place is gone ------------------------------------------------------------------------------------------
rm -rf "$a"
more 50
expect 0 "resumed from the second place: $(cat "$SCRATCH/err")"
try "$ASHLAR" checkpoint verify "$a"
expect 0 "both have the last step again"

# ---- damaged everywhere: the one before ----------------------------------------------------------------------------------------
try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/alone" train.save_every=20 train.keep=0
expect 0 "one place"
flip "$SCRATCH/alone/checkpoints/step-000040/model.safetensors" 3000
mkdir "$SCRATCH/alone/checkpoints/step-000060"
touch "$SCRATCH/alone/checkpoints/step-000060/.unfinished" # a save that was killed
try "$ASHLAR" train --resume --allow-change --out "$SCRATCH/alone" train.steps=40
expect 0 "resumed from the one before: $(cat "$SCRATCH/err")"
grep -q 'going back to step [0-9]*: .*step-000040/model.safetensors: it is damaged' "$SCRATCH/err" || fail "it does not say why: $(cat "$SCRATCH/err")"
grep -q 'step-000060: this save was not finished' "$SCRATCH/err" || fail "it does not say what was killed: $(cat "$SCRATCH/err")"
[ -e "$SCRATCH/alone/checkpoints/step-000060" ] && fail "the killed save is still there"
[ -e "$SCRATCH/alone/checkpoints/step-000040.damaged" ] || fail "the damaged one is gone"
same "the bits again" "$(grep -o 'state_hash.*' "$SCRATCH/quiet/log.jsonl" | tail -n 1)" "$(grep -o 'state_hash.*' "$SCRATCH/alone/log.jsonl" | tail -n 1)"

# ---- a folder that cannot be written: training continues, and saves elsewhere ----------------------------------------------------
if mkdir "$SCRATCH/full" && mount -t tmpfs -o size=64k tmpfs "$SCRATCH/full" 2> /dev/null; then
    trap 'umount "$SCRATCH/full"' EXIT
    try "$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/elsewhere" train.save_every=5 "save.to=$SCRATCH/full,$SCRATCH/room" train.keep=0
    expect 0 "a full place: $(cat "$SCRATCH/err")"
    grep -q 'was not saved' "$SCRATCH/err" || fail "it does not say that a save failed: $(cat "$SCRATCH/err")"
    grep -q "checkpoints go to $SCRATCH/room from now on" "$SCRATCH/err" || fail "it does not say where they go: $(cat "$SCRATCH/err")"
    try "$ASHLAR" checkpoint verify "$SCRATCH/room" --step 40
    expect 0 "the last step is elsewhere"
fi

# ---- copies on a stripe of folders: resumed from it alone; one of its folders is lost --------------------------------------------
stripe=stripe:$SCRATCH/s1,$SCRATCH/s2
{ cat "$SCRATCH/job.yaml" && echo "save: {to: [$SCRATCH/s0, \"$stripe\"], keep: [1, 2]}"; } > "$SCRATCH/striped.yaml"
striped() { try "$ASHLAR" train "$SCRATCH/striped.yaml" --out "$SCRATCH/striped" train.save_every=10 "$@"; }
striped
expect 0 "saves to a folder and a stripe: $(cat "$SCRATCH/err")"
rm -rf "$SCRATCH/s0" "$SCRATCH/striped" "$SCRATCH"/s[12]/step-000040
striped --resume
expect 0 "resumed from a stripe: $(cat "$SCRATCH/err")"
grep -q "step [123]0 comes from $stripe" "$SCRATCH/err" || fail "it does not say where it is from: $(cat "$SCRATCH/err")"
same "the bits from a stripe" "$(grep -o 'state_hash.*' "$SCRATCH/quiet/log.jsonl" | tail -n 1)" "$(grep -o 'state_hash.*' "$SCRATCH/striped/log.jsonl" | tail -n 1)"
striped --out "$SCRATCH/intruder" "save.to=$SCRATCH/intruder_here,$SCRATCH/s0"
expect_error 2 "a new run into another's places" "save.to: $SCRATCH/s0 holds checkpoints already" "--resume"
rm -rf "$SCRATCH/s0" "$SCRATCH"/s[12] "$SCRATCH/striped" && touch "$SCRATCH/s2"
striped
expect 0 "a stripe that has lost a folder: $(cat "$SCRATCH/err")"
grep -q "$SCRATCH/s2 is left out" "$SCRATCH/err" || fail "it does not say which folder is lost: $(cat "$SCRATCH/err")"
try "$ASHLAR" checkpoint verify "$stripe" --step 40
expect 0 "what was copied without that folder"

# ---- mistakes ----------------------------------------------------------------------------------------------------------------
train twice "save.to=$a,$a"
expect_error 2 "a place that is there twice" "there twice"
train bad "save.to=$a" save.keep=x
expect_error 2 "a number that is none" "save.keep"
train bad save.to=stripe:/a,/b
expect_error 2 "a stripe that was cut into words" "job file"
finish
