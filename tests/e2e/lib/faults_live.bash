# The live part of faults.sh: jobs of four nodes with networks of their own, and loads of this machine. Everything is put right after each
# fault; the last ones stay in the kernel log, where agents and `ashlar check node` read them until the next boot. Sourced by faults.sh.

# ---- jobs ------------------------------------------------------------------------------------------------------------
cat > "$SCRATCH/nodes.yaml" << YAML
model: {type: llama, hidden: 64, layers: 2, heads: 4, ffn: 128}
data: {train: $SCRATCH/train, seq: 32}
train: {steps: 1000000, global_batch: 16, grains: 4, valid_every: 0, save_every: 0}
schedule: {kind: constant}
group: {silent_timeout: 600}
YAML
steps_done() { [ "$(cat "$SCRATCH/$1/log.jsonl" 2> "$SCRATCH/err" | wc -l)" -ge "$2" ]; }
# job_start NAME PROCS WORDS: a job, and the process of each rank in ${ranks[@]}.
job_start() {
    local name=$1 procs=$2 ring
    shift 2
    rm -rf "$SCRATCH/pages"
    "$ASHLAR" launch --procs "$procs" "${launch_words[@]}" train "$SCRATCH/nodes.yaml" --out "$SCRATCH/$name" --pages "$SCRATCH/pages" "$@" > "$SCRATCH/$name.out" 2>&1 &
    job=$!
    undo "kill -INT $job; wait $job"
    wait_for "80 steps of $name" steps_done "$name" 80
    ranks=()
    for ring in "$SCRATCH"/pages/*.steps; do ranks[$(strings "$ring" | sed -n 's/.*rank="\([0-9]*\)".*/\1/p' | head -n 1)]=$(basename "${ring%%-*}"); done
}
more_steps() { wait_for "$2 more steps" steps_done "$1" $(($(wc -l < "$SCRATCH/$1/log.jsonl") + $2)); }
in_node() { nsenter --target "${ranks[$1]}" --net "${@:2}"; }

launch_words=(--nodes 4 --netns --link-rate 1gbit)
job_start nodes 4
agents=
for node in 0 1 2 3; do
    in_node $node unshare --mount sh -c "mount -t sysfs sysfs /sys; exec '$ASHLAR' agent --address 10.77.0.$((node + 1)) --token t --port 9470 --state '' --pages '$SCRATCH/none'" > "$SCRATCH/agent-$node.out" 2>&1 &
    undo "kill -KILL $!"
    agents+=${agents:+,}node$node=10.77.0.$((node + 1)):9470
    in_node $node ip link add eth1 type veth peer name veth1
    in_node $node ip link set eth1 up
    in_node $node ip link set veth1 up
done
cluster() { # what, layer, where, metric, words: asked from the first node
    try in_node 0 "$ASHLAR" diagnose --agents "$agents" --token t "${@:5}"
    expect 0 "$1"
    judge "$1" "$2" "$3" "$4"
}
agents_answer() { in_node 0 "$ASHLAR" diagnose --agents "$agents" --token t --wait 0 > "$SCRATCH/out" 2>&1 && ! grep -q ' agent: ' "$SCRATCH/out"; }
wait_for "four agents" agents_answer
in_node 2 ip link set veth1 down
cluster "one card of two down" network "node2 device eth1" node_network_up --wait 1
in_node 2 ip link set veth1 up
in_node 3 tc qdisc replace dev eth0 root tbf rate 16mbit burst 64kb latency 50ms
slow_link() { [ -n "$(look "$ASHLAR" diagnose --ranks "$SCRATCH/pages" | grep ashlar_rank_slow_link: )" ]; }
slow_link_gone() { ! slow_link; }
wait_for "the job to time its links" slow_link
verdict "a link at a tenth" network "rank 3" ashlar_rank_slow_link --ranks "$SCRATCH/pages"
verdict "a link at a tenth, by the output" network "rank 3 (host" log --log "$SCRATCH/nodes.out"
in_node 3 tc qdisc replace dev eth0 root tbf rate 1gbit burst 256k latency 50ms
wait_for "the job to find its links well" slow_link_gone
kill -STOP "$job" "${ranks[1]}" # the launcher must not take the rank for hung
sleep 3
verdict "a rank that is stopped" step "rank 1" "collective calls" --run "$SCRATCH/nodes" --ranks "$SCRATCH/pages"
kill -CONT "${ranks[1]}" "$job"
in_node 1 ip link set eth0 down
cluster "a cut link" network node1 agent --wait 0
for i in 1 2 3 4; do undo_last; done
undo_last

# A rank that is stopped for a share of each hundredth of a second: 10, 20 and 50 % slower.
cat > "$SCRATCH/slow.py" << 'PY'
import os, signal, sys, time
pid, share = int(sys.argv[1]), float(sys.argv[2]) / 100
while True:
    start = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.01 * share)
    os.kill(pid, signal.SIGCONT)
    time.sleep(max(0.01 * (1 + share) - (time.monotonic() - start), 0))
PY
sed -i 's/hidden: 64, layers: 2/hidden: 128, layers: 4/' "$SCRATCH/nodes.yaml"
for slower in 10 20 50; do
    launch_words=()
    job_start "slow-$slower" 2 train.grains=2
    python3 "$SCRATCH/slow.py" "${ranks[1]}" "$slower" 2> "$SCRATCH/err" &
    undo "kill -KILL $!; kill -CONT ${ranks[1]}"
    more_steps "slow-$slower" 40
    slow_rank() { look "$ASHLAR" diagnose --run "$SCRATCH/slow-$slower" --ranks "$SCRATCH/pages" | grep -q 'rank 1 .*own work by step:'; }
    wait_for "the rank to be named" slow_rank # on a busy machine that takes more steps
    verdict "a rank slower by $slower %" step "rank 1" "own work by step" --run "$SCRATCH/slow-$slower" --ranks "$SCRATCH/pages"
    undo_last
    undo_last
done

# Data on a mount, and in a bucket, that give a few windows each second.
"$ASHLAR" data arithmetic --out "$SCRATCH/much" --count 2000000 > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
mkdir -p "$SCRATCH/slow-data"
if bindfs --read-rate=1M "$SCRATCH/much" "$SCRATCH/slow-data" 2> "$SCRATCH/err"; then
    undo "umount -l '$SCRATCH/slow-data'"
    "$ASHLAR" train "$SCRATCH/nodes.yaml" --out "$SCRATCH/throttled" --pages "$SCRATCH/pages" data.train="$SCRATCH/slow-data" train.global_batch=4 > "$SCRATCH/throttled.out" 2>&1 &
    undo "kill -KILL $!"
    wait_for "50 steps from a slow mount" steps_done throttled 50
    verdict "data on a throttled mount" storage "" node_pressure_io_waiting_seconds_total --run "$SCRATCH/throttled" --here --wait 3
    undo_last
    undo_last
    # A slow loader: the second rank's data alone come through such a mount, as on a node whose own mount is slow. Who asks the ranks hears which
    # one waits for its data; who asks the node too hears that its storage is why.
    cat > "$SCRATCH/loader" << SH
#!/bin/bash
if [ "\$RANK" = 1 ]; then bindfs --read-rate=1M '$SCRATCH/much' '$SCRATCH/slow-data'; else mount --bind '$SCRATCH/much' '$SCRATCH/slow-data'; fi || exit 9
exec '$ASHLAR' train '$SCRATCH/nodes.yaml' --out '$SCRATCH/loader-run' --pages '$SCRATCH/pages' data.train='$SCRATCH/slow-data' train.global_batch=4 train.grains=2
SH
    rm -rf "$SCRATCH/pages"
    "$ASHLAR" launch --procs 2 --program unshare --mount bash "$SCRATCH/loader" > "$SCRATCH/loader.out" 2>&1 &
    undo "kill -INT $!; wait $!"
    wait_for "50 steps with a slow loader" steps_done loader-run 50
    verdict "a slow loader" step "rank 1 " "data wait by step" --run "$SCRATCH/loader-run" --ranks "$SCRATCH/pages"
    verdict "a slow loader and its storage" storage "" node_pressure_io_waiting_seconds_total --run "$SCRATCH/loader-run" --ranks "$SCRATCH/pages" --here --wait 3
    undo_last
fi

# Data in a bucket whose every answer comes 1.2 s late: a real server (radosgw) behind a proxy.
missing=$(for tool in "${radosgw_tools[@]}" rclone; do command -v "$tool" > "$SCRATCH/err" || echo "$tool"; done)
s3=$(mktemp -d /tmp/s3f.XXXXXX)
undo "rm -rf '$s3'"
if [ -z "$missing" ] && radosgw_start "$s3"; then
    undo radosgw_stop
    unset "${!AWS_@}"
    export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=testsecret AWS_DEFAULT_REGION=us-east-1 AWS_ENDPOINT_URL=$s3_endpoint
    printf '[r]\ntype = s3\nprovider = Ceph\naccess_key_id = TESTKEY\nsecret_access_key = testsecret\nendpoint = %s\nforce_path_style = true\n' "$s3_endpoint" > "$SCRATCH/rclone.conf"
    rclone --config "$SCRATCH/rclone.conf" --quiet copy "$SCRATCH/much" r:bucket/much > "$SCRATCH/out" 2>&1 || fail "rclone: $(cat "$SCRATCH/out")"
    rm -f "$SCRATCH/port"
    S3_FAULTS_DELAY=1.2 python3 "$SOURCE/tests/e2e/lib/s3_faults.py" "$SCRATCH/port" "${s3_endpoint##*:}" 1 1 slow > "$SCRATCH/proxy.out" 2>&1 &
    undo "kill -KILL $!"
    wait_for "the proxy" test -s "$SCRATCH/port"
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$SCRATCH/port") ASHLAR_CACHE_DIR=$SCRATCH/bucket-cache "$ASHLAR" train "$SCRATCH/nodes.yaml" --out "$SCRATCH/bucket" \
        --pages "$SCRATCH/pages" data.train=s3://bucket/much data.shuffle=full train.global_batch=4 > "$SCRATCH/bucket.out" 2>&1 &
    undo "kill -KILL $!"
    wait_for "42 steps from a slow bucket" steps_done bucket 42
    verdict "data in a slow bucket" storage "" ashlar_s3_call_seconds_total --run "$SCRATCH/bucket" --ranks "$SCRATCH/pages" --here --wait 5
    undo_last
    undo_last
    undo_last
else
    not_here "radosgw${missing:+: no $missing}"
fi
undo_last

# A job that reads the same pages again and again, because its memory is too small to keep them.
if group memory && limit_memory $((64 << 20)); then
    in_group "head -c $((192 << 20)) /dev/urandom > '$SCRATCH/pages.bin'; while :; do cat '$SCRATCH/pages.bin' > /dev/null; echo >> '$SCRATCH/rounds'; done"
    rounds() { [ "$(wc -l < "$SCRATCH/rounds")" -ge "$1" ]; }
    : > "$SCRATCH/rounds"
    wait_for "two rounds through its pages" rounds 2
    twice "sleep 3" "a job that thrashes" host "job $group_job" ashlar_job_refault_bytes_total
    end_group
    rm "$SCRATCH"/{pages.bin,rounds}
else
    not_here "control groups of memory"
fi

# A process whose child has its memory (vfork) waits in D, as those do that wait in a driver.
cat > "$SCRATCH/stuck.c" << 'C'
#include <unistd.h>
int main(void) { if (vfork() == 0) { sleep(60); _exit(0); } return 0; }
C
if cc -o "$SCRATCH/stuck" "$SCRATCH/stuck.c" 2> "$SCRATCH/err"; then
    "$SCRATCH/stuck" &
    undo "kill -KILL $!"
    verdict "a process in D" host "" ashlar_processes_stuck --here --wait 11
    undo_last
fi
for ((i = 0; i < 4 * $(nproc); i++)); do
    (while :; do :; done) &
    undo "kill -KILL $!"
done
sleep 1
twice "sleep 3" "a noisy neighbour" host "" node_pressure_cpu_waiting_seconds_total
for ((i = 0; i < 4 * $(nproc); i++)); do undo_last; done

# ---- what stays in the kernel log --------------------------------------------------------------------------------------
mount -o loop,errors=remount-ro "$SCRATCH/image" "$SCRATCH/disk"
undo "umount '$SCRATCH/disk'"
device=$(awk -v at="$SCRATCH/disk" '$2 == at { sub("/dev/", "", $1); print $1 }' /proc/mounts)
if [ -w "/sys/fs/ext4/$device/trigger_fs_error" ]; then
    twice "echo wrong > /sys/fs/ext4/$device/trigger_fs_error" "a disk that fails" storage "device $device" ashlar_ext4_errors_total
else
    not_here "ext4 that fails when told to"
fi
undo_last
if group memory && limit_memory 33554432; then
    twice "(enter_group; exec python3 -c 'bytearray(200 << 20)')" "a job out of memory" host "job $group_job" ashlar_job_oom_kills_total
    end_group
fi
