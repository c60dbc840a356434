#!/usr/bin/env bash
# ashlar launch --nodes: ranks on several nodes, reached through the network, give the bits of one process.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
"$ASHLAR" version | grep -q 'libfabric [0-9]' || exit 77
# In a network of its own, where that is permitted: it counts interfaces, and other tests make some.
if [ -z "${APART:-}" ] && unshare --net ip link set dev lo up 2> "$SCRATCH/out"; then APART=1 exec unshare --net bash -c 'ip link set dev lo up && exec bash "$0"' "$0"; fi

words="train.grains=8 train.steps=10 model.vocab=64"
train one $words
expect 0 "one process"
bits_of one > "$SCRATCH/expected"
# nodes_give NAME [launch's flags] -- [words]
nodes_give() {
    local name=$1 flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch "${flags[@]}" train "$SCRATCH/job.yaml" --out "$SCRATCH/many" $words "$@"
    expect 0 "$name"
    bits_of many | cmp -s - "$SCRATCH/expected" || fail "$name: other bits"
    [ ! -s "$SCRATCH/err" ] || fail "$name: $(cat "$SCRATCH/err")"
}
nodes_give "2 nodes of 3, which cut a pair of tp" --procs 6 --nodes 2 -- mesh.tp=2 mesh.dp=3
nodes_give "the same, sharded" --procs 6 --nodes 2 -- mesh.tp=2 mesh.fsdp=3 mesh.zero=3
nodes_give "3 nodes of 1, flat" --procs 3 --nodes 3 -- group.algorithm=flat

# The same with a network of its own for each node, where that is permitted.
try "$ASHLAR" launch --procs 2 --nodes 2 --netns --program sh -c 'echo "$MASTER_ADDR $(ls /sys/class/net 2> /dev/null | wc -l)"'
if [ "$code" -ne 0 ]; then
    grep -q 'need root\|iproute2\|networks of their own' "$SCRATCH/err" || fail "--netns: $(cat "$SCRATCH/err")"
    echo "skipped: $(cat "$SCRATCH/err")"
    finish
    exit 77
fi
before=$(ip -o link | wc -l)
nodes_give "2 nodes of 2 with their own networks" --procs 4 --nodes 2 --netns --
nodes_give "2 nodes of 2 on slow links" --procs 4 --nodes 2 --netns --link-rate 1gbit --
nodes_give "2 nodes of 2 on slow links, sharded" --procs 4 --nodes 2 --netns --link-rate 1gbit -- mesh.fsdp=4 mesh.zero=3
same "interfaces of this machine" "$before" "$(ip -o link | wc -l)"

# A node whose cable is cut while calls are under way, overlapped with layers: the side with the first rank says who is silent and continues to the bits
# of one process; the other ends. Nothing is left of the networks.
"$ASHLAR" launch --procs 2 --nodes 2 --netns train "$SCRATCH/job.yaml" --out "$SCRATCH/cut" $endless \
    mesh.fsdp=2 mesh.zero=3 group.silent_timeout=5 fabric.silence_ms=5000 > "$SCRATCH/out" 2> "$SCRATCH/cut.err" &
launcher=$!
wait_for "some steps" grep -qs '"step":20,' "$SCRATCH/cut/log.jsonl"
victim=$(pgrep -P $launcher | tail -n 1)
nsenter -t "$victim" -n ip link set eth0 down
wait_for "the name of the silent rank" grep -q 'silent for.*1 rank continues from step' "$SCRATCH/cut.err"
wait_for "why the other side ends" grep -q 'may continue\|went on without this process' "$SCRATCH/cut.err" || cat "$SCRATCH/cut.err"
stop_run cut
wait $launcher
check_bits cut

# A launcher that is killed takes ranks and networks with it.
"$ASHLAR" launch --procs 2 --nodes 2 --netns --program sh -c 'touch "$0.$RANK"; exec sleep 100' "$SCRATCH/up" > "$SCRATCH/out" 2> "$SCRATCH/err" &
launcher=$!
wait_for "two nodes" test -e "$SCRATCH/up.0" -a -e "$SCRATCH/up.1"
ranks=$(pgrep -P $launcher)
kill -9 $launcher
wait $launcher 2> /dev/null
for rank in $ranks; do wait_for "the end of a rank" sh -c "! kill -0 $rank 2> /dev/null"; done
same "interfaces of this machine in the end" "$before" "$(ip -o link | wc -l)"
try "$ASHLAR" launch --procs 2 --nodes 2 --netns --link-rate 'a b' version
expect_error 1 "a rate that is none" "link rate"
try "$ASHLAR" launch --procs 2 --nodes 2 --link-rate 1gbit version
expect_error 2 "a rate of no link" "--netns"
finish
