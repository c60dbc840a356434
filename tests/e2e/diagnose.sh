#!/usr/bin/env bash
# diagnose at the command line: a verdict, what was ruled out and what not judged, JSON, mistakes; a real run whose rank is stopped.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

mkdir -p "$SCRATCH/now" "$SCRATCH/before"
for when in before now; do
    for node in 1 2; do
        for gpu in 0 1 2 3; do
            drops=5
            [ $when$node$gpu = now23 ] && drops=9
            echo "DCGM_FI_DEV_GPU_TEMP{gpu=\"$gpu\",Hostname=\"node$node\"} 50"
            echo "DCGM_FI_DEV_SM_CLOCK{gpu=\"$gpu\",Hostname=\"node$node\"} 1980"
            echo "node_amazonefa_rx_drops{device=\"efa$gpu\",port=\"1\"} $drops"
        done > "$SCRATCH/$when/n$node.prom"
    done
done
leak_free "$ASHLAR" diagnose "$SCRATCH"/now/*.prom --before "$SCRATCH/before" --seconds 60
expect 0 "diagnose"
head -1 "$SCRATCH/out" | grep -q '^network is the first abnormal layer: node2 device efa3 port 1, .*grew by 4 in 60 s' ||
    fail "the verdict: $(head -1 "$SCRATCH/out")"
grep -q '  GPU .*DCGM_FI_DEV_SM_CLOCK (8)' "$SCRATCH/out" || fail "what was ruled out is not listed"
tr '\n' ' ' < "$SCRATCH/out" | grep -q 'not in the scrapes: .*node_load1' || fail "what could not be judged is not listed"
grep -q '  GPU .*GPUs seen (8)' "$SCRATCH/out" || fail "the number of GPUs is not named"
awk '{ if (length($0) > 130 && !/normal: /) exit 1 }' "$SCRATCH/out" || fail "a line is too long"
cp "$SCRATCH/out" "$SCRATCH/files"
try "$ASHLAR" diagnose "$SCRATCH/now" --before "$SCRATCH/before" --seconds 60
expect 0 "a folder of scrapes"
cmp -s "$SCRATCH/out" "$SCRATCH/files" || fail "a folder is not its files: $(diff "$SCRATCH/files" "$SCRATCH/out")"
try "$ASHLAR" plan diagnose "$SCRATCH/now" --before "$SCRATCH/before" --seconds 60
expect 0 "the command's old name"
cmp -s "$SCRATCH/out" "$SCRATCH/files" || fail "the old name answers otherwise"
grep -q '`ashlar diagnose`' "$SCRATCH/err" || fail "the old name does not say the new one"
mkdir -p "$SCRATCH/spare/now" "$SCRATCH/spare/before"
for node in 1 2 3 4; do # the fourth is a spare: its GPUs idle, and its devices send nothing
    for part in 0 1 2 3; do
        util=97 sent=$((node < 4 ? 900000000 : 0))
        [ $node -lt 4 ] || util=0
        echo "DCGM_FI_DEV_GPU_UTIL{gpu=\"$part\",Hostname=\"node$node\"} $util" | tee -a "$SCRATCH/spare/before/n$node.prom"
        echo "node_amazonefa_tx_bytes{device=\"efa$part\",port=\"1\"} $((1000 + sent))"
        echo "node_amazonefa_tx_bytes{device=\"efa$part\",port=\"1\"} 1000" >> "$SCRATCH/spare/before/n$node.prom"
    done > "$SCRATCH/spare/now/n$node.prom"
done
try "$ASHLAR" diagnose "$SCRATCH"/spare/now/*.prom --before "$SCRATCH/spare/before" --seconds 60
expect 0 "a spare node"
grep -q '^nothing abnormal' "$SCRATCH/out" || fail "an idle spare node is called slow: $(head -3 "$SCRATCH/out")"
sed -i 's/} 0$/} 98/' "$SCRATCH/spare/now/n4.prom"
try "$ASHLAR" diagnose "$SCRATCH"/spare/now/*.prom --before "$SCRATCH/spare/before" --seconds 60
head -1 "$SCRATCH/out" | grep -q '^network is the first abnormal layer: node4' || fail "a node that works and sends nothing: $(head -3 "$SCRATCH/out")"
try "$ASHLAR" diagnose "$SCRATCH"/now/*.prom
expect 0 "one scrape"
grep -q '^nothing abnormal' "$SCRATCH/out" || fail "one scrape: $(head -1 "$SCRATCH/out")"
grep -q 'needs a second scrape.*rx_drops' "$SCRATCH/out" || fail "what needs a second scrape is not named"
echo 'x: CUDA error 802: system not yet initialized' > "$SCRATCH/job.log"
try "$ASHLAR" diagnose "$SCRATCH/now/n1.prom" --log "$SCRATCH/job.log" --json
expect 0 "--log --json"
for key in '"first_layer": "software"' '"healthy": false' 'fabric manager' '"checks"' '"nodes": 1'; do
    grep -q -- "$key" "$SCRATCH/out" || fail "the JSON lacks $key"
done
try "$ASHLAR" diagnose --log "$SCRATCH/job.log"
expect 0 "a log alone"
grep -q '^software is the first abnormal layer' "$SCRATCH/out" || fail "a log alone: $(head -3 "$SCRATCH/out")"
grep -q 'needs scrapes' "$SCRATCH/out" || fail "a log alone does not say what scrapes are for"
code=0
"$ASHLAR" diagnose --log <(cat "$SCRATCH/job.log") > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect 0 "a log from a pipe"
grep -q '^software is the first abnormal layer' "$SCRATCH/out" || fail "a log from a pipe: $(head -3 "$SCRATCH/out")"
code=0
"$ASHLAR" diagnose <(cat "$SCRATCH/now/n1.prom") > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect 0 "a scrape from a pipe"
mkdir -p "$SCRATCH/hollow"
try "$ASHLAR" diagnose "$SCRATCH/hollow"
expect_error 1 "a folder without scrapes" hollow
try "$ASHLAR" diagnose --before "$SCRATCH/before" --log "$SCRATCH/job.log"
expect_error 2 "only earlier scrapes" "--before"
try "$ASHLAR" diagnose
expect_error 2 "no file" "which scrapes"
echo '<html>404</html>' > "$SCRATCH/page.prom"
try "$ASHLAR" diagnose "$SCRATCH/page.prom"
expect_error 1 "a web page" page.prom Prometheus
try "$ASHLAR" diagnose "$SCRATCH/none.prom"
expect_error 1 "a missing file" none.prom
try "$ASHLAR" diagnose "$SCRATCH/now/n1.prom" --before "$SCRATCH"
expect_error 1 "a folder without earlier scrapes" n1.prom

# 100,000 series: the one that is wrong is found.
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "node_filesystem_device_error{mountpoint=\"/m%d\"} %d\n", i, i == 76543 }' > "$SCRATCH/many.prom"
try "$ASHLAR" diagnose "$SCRATCH/many.prom"
expect 0 "100,000 series"
grep -q 'mountpoint /m76543' "$SCRATCH/out" || fail "100,000 series: $(head -c 600 "$SCRATCH/out")"
rm "$SCRATCH/many.prom"

# ---- recorded trees: layer, node and part, counter. A clean tree blames nobody, nor does what happens to healthy nodes. ----------------
tree=$SCRATCH/tree
mkdir -p "$tree"/dev "$tree"/proc/{1,2,sys/kernel} "$tree"/sys/devices/system/edac/mc/mc0 "$tree"/sys/class/infiniband/rdmap0s0/ports/1/hw_counters
echo node7 > "$tree/proc/sys/kernel/hostname"
echo kthreadd > "$tree/proc/2/comm"
cp /proc/stat /proc/meminfo "$tree/proc"
: > "$tree/proc/1/mounts"
echo 3 | tee "$tree/sys/devices/system/edac/mc/mc0/ue_count" > "$tree/sys/class/infiniband/rdmap0s0/ports/1/hw_counters/tx_bytes"
# in_tree LINE WORDS [flags]: the first line of the answer for a kernel log with that line.
in_tree() {
    printf '6,1,1,-;Linux version 6.1\n4,2,2,-;%s\n' "$1" > "$tree/dev/kmsg"
    try "$ASHLAR" diagnose --root "$tree" --nvml "$BUILD/standin/libnvidia-ml.so.1" --wait 0 "${@:3}"
    expect 0 "a recorded tree"
    head -n 1 "$SCRATCH/out" | grep -q "^$2" || fail "$1: $(head -n 3 "$SCRATCH/out")"
}
in_tree 'eth0: renamed from veth1' 'nothing abnormal'
in_tree 'mlx5_core 0000:18:00.0 eth2: Link down' 'nothing abnormal'
in_tree 'NVRM: Xid (PCI:0000:b9:00): 45, pid=7, Ch 00000008' 'nothing abnormal'
in_tree 'NVRM: Xid (PCI:0000:b9:00): 79, pid=7, GPU has fallen off the bus.' 'GPU is .*: node7 0000:b9:00, kernel log: '
in_tree 'mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 4: be00000000800400' 'host is .*: node7, kernel log: '
in_tree 'LustreError: 167-0: fs-MDT0000-mdc: This client was evicted by fs-MDT0000' 'storage is .*: node7, kernel log: '
in_tree 'nvme 0000:c1:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer' 'storage is .*: node7 0000:c1:00.0, kernel log: '
ASHLAR_STANDIN_GPUS=7 in_tree x 'GPU is .*: node7, ashlar_gpus: 7 GPUs of 8' --gpus 8
in_tree x 'network is .*: node7, RDMA devices: 1 network devices of 32' --machine p5.48xlarge
mkdir -p "$tree/proc/driver/nvidia-nvswitch/devices/0000:05:00.0"
in_tree x 'software is .*: node7, ashlar_fabric_manager_up: 0'
printf '[    1.000000] Linux version 6.1\n[   12.345678] EDAC MC0: 1 UE memory read error on CPU_SrcID#0\n' > "$SCRATCH/dmesg"
printf 'x blocked for more than one task\nNov 18 09:00:00 n7 kernel: INFO: task python:77 blocked for more than 120 seconds.\n' > "$SCRATCH/syslog"
try "$ASHLAR" diagnose --log "$SCRATCH/dmesg,$SCRATCH/syslog"
head -n 1 "$SCRATCH/out" | grep -q '^host is .*: dmesg:2 EDAC MC0, log: ' || fail "a kernel log: $(head -n 3 "$SCRATCH/out")"
grep -q 'slow   host  *syslog:2 ' "$SCRATCH/out" || fail "a system log: $(cat "$SCRATCH/out")"

# ---- a run -----------------------------------------------------------------------------------------------------------
trainer= watcher= pages=
end() {
    local pid
    for pid in $trainer $watcher $pages $(sed -n 's/^.*pid //p' "$SCRATCH/ranks" 2> "$SCRATCH/kill"); do kill -KILL "$pid" 2> "$SCRATCH/kill"; done
    wait 2> "$SCRATCH/kill"
}
trap end EXIT
try "$ASHLAR" diagnose --run "$SCRATCH/now"
expect_error 1 "a folder that is no run" "log.jsonl"
try "$ASHLAR" diagnose --run "$SCRATCH/live" --watch --json
expect_error 2 "--watch as JSON" "--json"
try env PATH="$SCRATCH/no-slurm" "$ASHLAR" diagnose --slurm 4711
expect_error 1 "--slurm without Slurm" "scontrol"
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/live" --pages "$SCRATCH/pages" train.steps=10000000 \
    group.silent_timeout=600 > "$SCRATCH/train.out" 2>&1 &
trainer=$!
some_steps() { [ "$(wc -l < "$SCRATCH/live/log.jsonl")" -gt 50 ]; }
wait_for "the run's log" test -s "$SCRATCH/live/log.jsonl"
wait_for "fifty steps" some_steps
for ring in "$SCRATCH"/pages/*.steps; do ring=${ring##*/}; echo "pid ${ring%%-*}"; done > "$SCRATCH/ranks"
same "ranks that publish" 2 "$(wc -l < "$SCRATCH/ranks")"
# Between two looks both ranks must have made some steps: as long as the last twenty took, on a busy machine.
looks=$(sed -n 's/.*"time_s":\([0-9.]*\).*/\1/p' "$SCRATCH/live/log.jsonl" | tail -n 21 |
    awk 'NR == 1 { first = $1 } { last = $1 } END { wait = last - first; print (wait > 0.2 ? wait : 0.2) }')
try "$ASHLAR" diagnose --run "$SCRATCH/live" --ranks "$SCRATCH/pages" --here --wait "$looks"
expect 0 "a run and this machine"
tr '\n' ' ' < "$SCRATCH/out" | grep -q 'ruled out .*step .*collective calls (2).*loss (' || fail "what was ruled out of the run: $(cat "$SCRATCH/out")"
grep -q 'node_filesystem_device_error (' "$SCRATCH/out" || fail "this machine was not looked at: $(cat "$SCRATCH/out")"
"$ASHLAR" diagnose --run "$SCRATCH/live" --ranks "$SCRATCH/pages" --watch --wait "$looks" > "$SCRATCH/watch.out" 2>&1 &
watcher=$!
wait_for "the first verdict" test -s "$SCRATCH/watch.out"
kill -STOP "$trainer" # it must not take the rank for hung
stopped=$(sed -n 's/^pid //p' "$SCRATCH/ranks" | head -n 1)
said() { grep -q -e "$1 broken step: rank [01], collective calls" "$SCRATCH/watch.out"; }
kill -STOP "$stopped" # in a call or between two
wait_for "a stopped rank to be named" said +
said + || fail "the stopped rank is not named: $(cat "$SCRATCH/watch.out")"
rank=$(sed -n 's/.*+ broken step: rank \([01]\), .*/\1/p' "$SCRATCH/watch.out" | head -n 1)
grep -q "rank=\"$rank\"" <(strings "$SCRATCH/pages/$stopped"-*.steps) || fail "rank $rank is blamed, not process $stopped: $(cat "$SCRATCH/watch.out")"
try "$ASHLAR" diagnose --run "$SCRATCH/live" --ranks "$SCRATCH/pages" --json
grep -q '"first_layer": "step"' "$SCRATCH/out" || fail "a stopped rank: $(head -c 600 "$SCRATCH/out")"
grep -q 'is stopped, by a signal or a debugger' "$SCRATCH/out" || fail "a stopped rank: $(head -c 600 "$SCRATCH/out")"
# Another run of the same name has nothing to do with these ranks.
mkdir -p "$SCRATCH/other"
cp -r "$SCRATCH/live" "$SCRATCH/other"
try "$ASHLAR" diagnose --run "$SCRATCH/other/live" --ranks "$SCRATCH/pages" --json
expect 0 "a run of the same name"
! grep -q 'is stopped, by a signal' "$SCRATCH/out" || fail "another run's rank is blamed: $(head -c 600 "$SCRATCH/out")"
ranks_shown() {
    "$ASHLAR" dash "$1" --pages "$SCRATCH/pages" --port 0 > "$SCRATCH/dash.out" 2>&1 &
    pages=$!
    wait_for "the page" grep -q http "$SCRATCH/dash.out"
    same "ranks on the page of $1" "$2" "$(curl -s "$(sed -n 's/^page: //p' "$SCRATCH/dash.out")v1/board" | grep -o '"rank":' | wc -l)"
    kill "$pages"
    wait "$pages"
    pages=
}
ranks_shown "$SCRATCH/live" 2
ranks_shown "$SCRATCH/other/live" 0
try "$ASHLAR" flight "$SCRATCH/pages"
grep -q "process of rank $rank is stopped" "$SCRATCH/out" || fail "flight, with a stopped rank: $(head -c 600 "$SCRATCH/out")"
kill -CONT "$stopped"
wait_for "its end" said -
kill -INT "$watcher"
wait "$watcher" || fail "--watch ended with $?"
watcher=
kill -CONT "$trainer"
finish
