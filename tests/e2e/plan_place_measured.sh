#!/usr/bin/env bash
# Placement as predicted and as measured: four hosts below two switches whose joint uplink carries a quarter of what the hosts could send
# (network namespaces, bridges, veth, tbf). Pairs of data-parallel ranks sum at the same time, once inside the switches and once across:
# `plan place` must say which is faster, and by how much.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
"$ASHLAR" version | grep -q 'libfabric [0-9]' || { echo "skipped: no libfabric"; exit 77; }
if [ -z "${PLACED:-}" ]; then # again, in a network of its own
    own=(unshare --net)
    [ "$(id -u)" -eq 0 ] || own=(unshare --user --map-root-user --net)
    "${own[@]}" sh -c 'ip link add name t type bridge && tc qdisc add dev t root tbf rate 1mbit burst 256k latency 50ms' 2> /dev/null ||
        { echo "skipped: no network namespaces here"; exit 77; }
    PLACED=1 exec "${own[@]}" bash "$0"
fi

holders=()
mkfifo "$SCRATCH/ready"
trap 'kill "${holders[@]}" 2> /dev/null' EXIT
inside() { local host=$1; shift; nsenter --net="/proc/${holders[$host]}/ns/net" "$@"; }
# Links are slow enough that a sum takes a fifth of a second: what processors add to it on a busy machine is little.
limit() { tc qdisc add dev "$1" root tbf rate "$2" burst 128k latency 200ms; }

ip link add name leaf_a type bridge && ip link add name leaf_b type bridge && ip link add name from_a type veth peer name from_b || fail "no switches"
ip link set dev from_a master leaf_a up && ip link set dev from_b master leaf_b up && ip link set dev leaf_a up && ip link set dev leaf_b up || fail "no uplink"
limit from_a 25mbit && limit from_b 25mbit || fail "the uplink is not limited"
for host in 0 1 2 3; do # n0 and n1 below a, n2 and n3 below b
    unshare --net sh -c 'echo > "$0"; exec sleep 3000' "$SCRATCH/ready" &
    holders+=($!)
    read -r < "$SCRATCH/ready"
    ip link add name "n$host" type veth peer name eth0 netns "${holders[$host]}" || fail "no cable to n$host"
    ip link set dev "n$host" master "leaf_$([ "$host" -lt 2 ] && echo a || echo b)" up
    limit "n$host" 50mbit
    inside "$host" ip link set dev lo up && inside "$host" ip addr add "10.78.0.$((host + 1))/16" dev eth0 && inside "$host" ip link set dev eth0 up &&
        inside "$host" tc qdisc add dev eth0 root tbf rate 50mbit burst 128k latency 200ms || fail "n$host has no network"
done
[ "$failures" -eq 0 ] || finish

rank() { # pair, rank, host, host of the first rank, rounds
    exec nsenter --net="/proc/${holders[$3]}/ns/net" env RANK="$2" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR="10.78.0.$(($4 + 1))" MASTER_PORT=$((29600 + $1)) \
        "$ASHLAR" bench collective --op all_reduce --min 1mi --max 1mi --rounds "$5" --json group.node="n$3" fabric.provider=tcp \
        > "$SCRATCH/pair$1.$2" 2> "$SCRATCH/pair$1.$2.err"
}
sent_by() { ip -s link show dev "n$1" | awk 'is_next { print $1; exit } /RX:/ { is_next = 1 }'; } # bytes of this host
has_sent() { [ "$(sent_by "$1")" -ge "$2" ]; }
have_sent() { [ $(($(sent_by "$1") + $(sent_by "$2"))) -ge "$3" ]; }
# measure NAME HOSTS TIMES ENOUGH: both pairs sum again and again; once both do, how long do 8 MiB take them together? Milliseconds into
# $measured, the best of some times, of fewer once one is as short as ENOUGH: the links bound it from below, and a busy machine only adds.
measure() {
    local hosts=($2) jobs=() first second pair r began took
    for pair in 0 1; do
        for r in 0 1; do
            rank "$pair" "$r" "${hosts[$((2 * pair + r))]}" "${hosts[$((2 * pair))]}" 101 &
            jobs+=($!)
        done
    done
    first=${hosts[0]} second=${hosts[2]} measured=0
    for r in "$first" "$second"; do wait_for "$1: n$r to send" has_sent "$r" $(($(sent_by "$r") + 3000000)); done
    for r in $(seq "$3"); do
        began=$(date +%s%N)
        wait_for "$1: bytes" have_sent "$first" "$second" $(($(sent_by "$first") + $(sent_by "$second") + (8 << 20)))
        took=$((($(date +%s%N) - began) / 1000000))
        [ "$measured" -gt 0 ] && [ "$measured" -le "$took" ] || measured=$took
        [ "$measured" -gt "$4" ] || break
    done
    for r in "${jobs[@]}"; do kill -0 "$r" || fail "$1: a rank ended too soon: $(cat "$SCRATCH"/pair*)"; done
    kill -9 "${jobs[@]}"
    wait "${jobs[@]}" 2> "$SCRATCH/killed"
}
printf 'SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nSwitchName=top Switches=a,b\n' > "$SCRATCH/topology.conf"
echo 'machines: [{name: host, gpu: H100, gpus: 1, nvlink_domain: 1, network_gbps: 100}]' > "$SCRATCH/host.yaml"
# predict HOSTS: the share of the network that data-parallel traffic keeps, in thousandths, into $share.
predict() {
    try "$ASHLAR" plan place --topology "$SCRATCH/topology.conf" --catalog "$SCRATCH/host.yaml" --model gpt2-124m --machine host \
        --layout pp=2,zero=0 --global-batch 8 --seq 1024 --hosts "$1" --uplink-share 0.25 --json
    expect 0 "plan place --hosts $1"
    share=$(grep -A5 '"axis": "dp"' "$SCRATCH/out" | sed -n 's/.*"net_share": \([0-9.]*\).*/\1/p' | awk '{ printf "%d", 1000 * $1 }')
}
predict n0,n1,n2,n3
near_share=$share
predict n0,n2,n1,n3
grep -q '"verdict": "reorder the ranks' "$SCRATCH/out" || fail "plan place does not advise the other order: $(cat "$SCRATCH/out")"
measure "inside the switches" "0 1 2 3" 6 0
near=$measured
measure "across the uplink" "0 2 1 3" 12 $((near * near_share / share * 11 / 10))
far=$measured
measured=$((1000 * far / near))
predicted=$((1000 * near_share / share))
echo "sums of two pairs take $near ms inside the switches and $far ms across: $measured thousandths; predicted: $predicted"
[ $((100 * measured)) -ge $((70 * predicted)) ] && [ $((100 * measured)) -le $((140 * predicted)) ] ||
    fail "predicted $predicted thousandths, measured $measured"
finish
