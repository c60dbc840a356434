#!/usr/bin/env bash
# Real faults of this machine, and the verdict of `ashlar diagnose`: layer, part and counter. Mounts that hang, fail, are full or turn
# read-only, a control group without CPU, mismatched calls, forced kernels, NCCL on sockets. FAULTS=live adds, in some minutes on a quiet machine, faults of
# jobs that run (links cut and throttled, a card of two, slowed ranks, slow loaders and storage) and those that stay in the kernel log (a failing disk,
# the OOM killer). What cannot be had here is said.
# FAULTS=clean draws runs in which nothing is wrong (RUNS, SEED): nobody may be blamed.
#   SOURCE=. BUILD=build ASHLAR=build/ashlar SCRATCH=/tmp/faults FAULTS=live tests/e2e/faults.sh
if [ -z "${FAULTS_INSIDE:-}" ]; then # nobody else sees these mounts and processes, and all end with the script
    unshare --mount --pid --fork --mount-proc --kill-child true 2> /dev/null || { echo "skipped: no right to make namespaces"; exit 77; }
    FAULTS_INSIDE=1 exec unshare --mount --pid --fork --mount-proc --kill-child bash "$0"
fi
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/faults.bash" || exit 1
. "$SOURCE/tests/e2e/lib/radosgw.bash" || exit 1
trap undo_all EXIT
if [ "${FAULTS:-}" = clean ]; then
    . "$SOURCE/tests/e2e/lib/clean_runs.bash"
    finish
fi
agent_start

# ---- storage ---------------------------------------------------------------------------------------------------------
mkdir -p "$SCRATCH"/{under,mount,disk}
if bindfs "$SCRATCH/under" "$SCRATCH/mount" 2> "$SCRATCH/err"; then
    undo "umount -l '$SCRATCH/mount'"
    daemon=$(pgrep -f "^bindfs $SCRATCH/under " | head -n 1)
    mount_answers() { ! look "$ASHLAR" diagnose --here --wait 0 | grep "$SCRATCH/mount" | grep -q device_error; }
    wait_for "a FUSE mount that answers" mount_answers
    kill -STOP "$daemon"
    here "a FUSE mount that hangs" storage "mountpoint $SCRATCH/mount" node_filesystem_device_error
    kill -KILL "$daemon"
    here "a FUSE mount whose server died" storage "mountpoint $SCRATCH/mount" node_filesystem_device_error
    undo_last
else
    not_here "FUSE: $(head -n 1 "$SCRATCH/err")"
fi
truncate -s 16M "$SCRATCH/image" && mkfs.ext4 -q "$SCRATCH/image" 2> "$SCRATCH/err"
if mount -o loop "$SCRATCH/image" "$SCRATCH/disk" 2> "$SCRATCH/err"; then
    undo "umount '$SCRATCH/disk'"
    dd if=/dev/zero of="$SCRATCH/disk/full" bs=64k 2> "$SCRATCH/err"
    here "a full disk" storage "mountpoint $SCRATCH/disk" node_filesystem_avail_bytes
    rm "$SCRATCH/disk/full"
    twice "mount -o remount,ro '$SCRATCH/disk'" "a mount that turns read-only" storage "mountpoint $SCRATCH/disk" node_filesystem_readonly
    undo_last
else
    not_here "loop devices: $(head -n 1 "$SCRATCH/err")"
fi

# ---- host ------------------------------------------------------------------------------------------------------------
if group cpu && starve_cpu 0.01; then
    in_group "while :; do :; done"
    throttled() { [ "$(throttled_ms)" -gt "$1" ]; }
    is_held() { wait_for "the group to be throttled" throttled $(($(throttled_ms) + 500)); }
    twice is_held "a job without CPU" host "job $group_job" ashlar_job_cpu_throttled_seconds_total
    end_group
else
    not_here "control groups of cpu"
fi

# ---- step ------------------------------------------------------------------------------------------------------------
# One rank of three makes another call than its peers: its calls name it, the job's output says that there is one.
who=0
for kind in size type max gather more; do
    rm -rf "$SCRATCH/calls"
    mkdir "$SCRATCH/calls"
    "$ASHLAR" launch --procs 3 --program "$BUILD/tests/calls_differ" "$SCRATCH/calls" $who $kind > "$SCRATCH/calls.out" 2>&1 && fail "a mismatched call ($kind) is no error"
    verdict "a mismatched call ($kind)" step "rank $who " "collective calls" --ranks "$SCRATCH/calls"
    try "$ASHLAR" flight "$SCRATCH/calls"
    grep -q "^world, call 6: rank $who: .*, while the others: all_reduce of 256 bytes f32$" "$SCRATCH/out" || fail "flight ($kind): $(cat "$SCRATCH/out")"
    who=$(((who + 1) % 3))
done
verdict "a mismatched call, by the output" step "calls.out:" log --log "$SCRATCH/calls.out"

# ---- software --------------------------------------------------------------------------------------------------------
"$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/slow" --pages "$SCRATCH/pages" runtime.backend=ref $endless > "$SCRATCH/train.out" 2>&1 &
undo "kill -KILL $!"
wait_for "its first steps" grep -qs '"step":3' "$SCRATCH/slow/log.jsonl"
verdict "forced kernels" software "rank 0" ashlar_kernels_forced --ranks "$SCRATCH/pages"
undo_last
printf '%s\n' 'node7:812:901 [3] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>' 'node7:812:901 [3] NCCL INFO Using network Socket' > "$SCRATCH/job.log"
verdict "NCCL on sockets" software "node7 gpu 3" log --log "$SCRATCH/job.log"
[ "${FAULTS:-}" != live ] || . "$SOURCE/tests/e2e/lib/faults_live.bash"
finish
