#!/usr/bin/env bash
# Power cuts: ext4 on a loop device whose image is copied at many moments while a run saves all the time. Each copy is what a disk has
# that lost its power then: mounted again, every checkpoint that has a manifest must verify, and the newest is at least the one that
# was reported before the copy began. Skips where loop devices cannot be mounted.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
moments=${POWER_MOMENTS:-12}
for tool in mkfs.ext4 losetup mount; do command -v $tool > /dev/null || PATH=$PATH:/usr/sbin; done
truncate -s 24M "$SCRATCH/image"
mkdir -p "$SCRATCH/disk" "$SCRATCH/after"
if ! mkfs.ext4 -q -F "$SCRATCH/image" 2> /dev/null || ! mount -o loop,commit=1 "$SCRATCH/image" "$SCRATCH/disk" 2> /dev/null; then
    echo "skipped: no loop devices here"
    exit 77
fi
trap 'umount "$SCRATCH/after" 2> /dev/null; umount "$SCRATCH/disk" 2> /dev/null' EXIT
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/disk/run" mesh.fsdp=2 train.steps=100000000 train.save_every=5 train.valid_every=0 \
    model.hidden=64 runtime.log_level=debug > "$SCRATCH/out" 2> "$SCRATCH/err" < /dev/null &
job=$!
newest() { "$ASHLAR" checkpoint ls "$1" --json 2> /dev/null | grep -o '"step": [0-9]*' | head -n 1 | grep -o '[0-9]*'; }
# A signal does not end a write that the kernel has begun, and the kernel itself may still write what is left: two equal copies are one moment.
stopped() { ! cat $(pgrep -P $job | sed 's|.*|/proc/&/task/*/stat|') 2> /dev/null | sed 's/.*) //' | grep -qv '^T'; }
copied() { cp --sparse=always "$SCRATCH/image" "$1" && cmp -s "$SCRATCH/image" "$1"; }
wait_for "a checkpoint" sh -c "ls '$SCRATCH'/disk/run/checkpoints/step-*/manifest.json > /dev/null 2>&1"
for i in $(seq "$moments"); do
    before=$(grep -o 'step [0-9]* is durable' "$SCRATCH/err" | tail -n 1 | grep -o '[0-9]*')
    pkill -STOP -P $job # nobody writes while the image is copied
    wait_for "ranks that stand still" stopped
    wait_for "a copy of one moment" copied "$SCRATCH/cut.$i"
    pkill -CONT -P $job
    echo "${before:-0}" > "$SCRATCH/cut.$i.step"
done
kill -TERM $job
wait $job
umount "$SCRATCH/disk"
checked=0
for i in $(seq "$moments"); do
    if ! mount -o loop "$SCRATCH/cut.$i" "$SCRATCH/after" 2> "$SCRATCH/mount"; then
        fail "cut $i: cannot be mounted: $(cat "$SCRATCH/mount")"
        continue
    fi
    for dir in "$SCRATCH"/after/run/checkpoints/step-*; do
        [ -e "$dir/manifest.json" ] || continue
        step=$(basename "$dir" | sed 's/step-0*//')
        "$ASHLAR" checkpoint verify "$SCRATCH/after/run" --step "$step" > "$SCRATCH/out" 2> "$SCRATCH/why" ||
            fail "cut $i: step $step has a manifest and is no good: $(cat "$SCRATCH/why")"
        checked=$((checked + 1))
    done
    after=$(newest "$SCRATCH/after/run")
    [ "${after:-0}" -ge "$(cat "$SCRATCH/cut.$i.step")" ] || fail "cut $i: step $(cat "$SCRATCH/cut.$i.step") was durable, and ${after:-none} is left"
    umount "$SCRATCH/after"
    rm "$SCRATCH/cut.$i"
done
[ "$checked" -ge "$moments" ] || fail "only $checked checkpoints in $moments images"
echo "$moments power cuts, $checked checkpoints verified"
finish
