#!/usr/bin/env bash
# The agent as its users see it: real figures compared with node_exporter's, a recorded tree with a stand-in for NVIDIA's library, XIDs in a
# kernel log, restarts by SIGKILL, ranks that are killed, a GPU call that hangs, jobs that are told, a stand-in of Kubernetes, 500 scrapers at once, tokens.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
agent= exporter= trainer= api=
end() {
    local pid
    for pid in $agent $exporter $trainer $api; do kill -KILL "$pid" 2> "$SCRATCH/kill"; done
    wait 2> "$SCRATCH/kill"
}
trap end EXIT

# start_agent [words]: its address is in $url.
start_agent() {
    : > "$SCRATCH/agent.out"
    "$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --judge-seconds 0.3 "$@" > "$SCRATCH/agent.out" 2> "$SCRATCH/agent.err" &
    agent=$!
    wait_for "the agent" grep -q http "$SCRATCH/agent.out" || { cat "$SCRATCH/agent.err"; exit 1; }
    url=$(grep -o 'http://[^ ]*' "$SCRATCH/agent.out")
}
stop_agent() { kill "-$1" "$agent"; wait "$agent" 2> "$SCRATCH/kill"; agent=; }
scrape() { curl -s --max-time 120 "$url"metrics > "$SCRATCH/metrics"; }
value() { scrape; grep -F "$1" "$SCRATCH/metrics" | grep -v '^#' | head -n 1 | sed 's/.* //'; }
status_is() { curl -s "$url"v1/verdict | grep -q "\"status\": \"$1\""; }

# ---- this machine ----------------------------------------------------------------------------------------------------
start_agent --state "$SCRATCH/live.json"
scrape
for family in node_cpu_seconds_total node_memory_MemAvailable_bytes node_load1 node_network_receive_bytes_total node_filesystem_avail_bytes; do
    grep -q "^$family" "$SCRATCH/metrics" || fail "no $family"
done
# promtool's taste is not node_exporter's: names with capitals are theirs.
promtool check metrics < "$SCRATCH/metrics" 2>&1 | grep -v 'camelCase\|node_netstat\|node_vmstat\|node_disk\|node_filesystem\|process_' > "$SCRATCH/promtool.txt"
! grep -q 'ashlar_\|error' "$SCRATCH/promtool.txt" || fail "promtool: $(grep 'ashlar_\|error' "$SCRATCH/promtool.txt" | head -n 5)"
if command -v prometheus-node-exporter > "$SCRATCH/out"; then
    free_ports
    prometheus-node-exporter --web.listen-address="127.0.0.1:$port" > "$SCRATCH/exporter.log" 2>&1 &
    exporter=$!
    wait_for "node_exporter" curl -s -o "$SCRATCH/theirs" "http://127.0.0.1:$port/metrics"
    python3 "$SOURCE/tests/e2e/lib/same_series.py" "$url"metrics "http://127.0.0.1:$port/metrics" || fail "the agent and node_exporter differ"
    kill "$exporter"; wait "$exporter"; exporter=
fi
# 500 at once, while 20 others have stopped in the middle of a request or do not read their answer: all are answered.
python3 "$SOURCE/tests/e2e/lib/many_scrapers.py" "$url"metrics 500 20 || fail "500 scrapers at once"

# Every rank is seen, and one that was killed is seen as killed.
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/seen" --pages "$SCRATCH/pages" train.steps=100000 > "$SCRATCH/train.out" 2>&1 &
trainer=$!
both() { [ "$(curl -s "$url"metrics | grep -c '^ashlar_rank_step{')" = 2 ]; }
wait_for "both ranks" both
scrape
grep -q '^ashlar_rank_part_seconds_total{job="[0-9a-f]*",rank="1",run="seen",run_id="[0-9a-f]*",part="compute"}' "$SCRATCH/metrics" || fail "no parts of rank 1"
grep -q '^ashlar_collective_seconds_total{.*axis="world"' "$SCRATCH/metrics" || fail "no collectives by axis"
killed=$(grep '^ashlar_process_up.*rank="1"' "$SCRATCH/metrics" | sed 's/.*pid="\([0-9]*\)".*/\1/')
kill -STOP "$trainer" # it must not replace the rank meanwhile
kill -KILL "$killed"
killed_is_down() { [ "$(value "pid=\"$killed\"")" = 0 ]; }
wait_for "the killed rank to be down" killed_is_down
! grep -q '^ashlar_rank_step{.*rank="1"' "$SCRATCH/metrics" || fail "values of a killed rank are served"
others=$(grep '^ashlar_process_up.*rank="0"' "$SCRATCH/metrics" | sed 's/.*pid="\([0-9]*\)".*/\1/')
kill -KILL "$trainer" $others
wait "$trainer" 2> "$SCRATCH/kill"
trainer=
stop_agent TERM

# ---- a recorded tree, and eight GPUs ---------------------------------------------------------------------------------
tree=$SCRATCH/tree
mkdir -p "$tree"/proc/sys/kernel/random "$tree"/proc/1 "$tree"/dev "$tree"/sys/class/nvme/nvme0 "$tree"/sys/class/infiniband/efa_0/ports/1/hw_counters \
    "$tree"/sys/class/infiniband/mlx5_0/ports/1/counters "$tree"/proc/fs/lustre/llite/scratch-ffff8a "$tree"/proc/fs/lustre/mdc/scratch-MDT0000-mdc \
    "$tree"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77
echo first-boot > "$tree/proc/sys/kernel/random/boot_id"
cp /proc/stat /proc/meminfo /proc/loadavg "$tree/proc"
: > "$tree/proc/1/mounts"
for name in rx_drops tx_bytes submitted_cmds retrans_timeout_events; do echo 12 > "$tree/sys/class/infiniband/efa_0/ports/1/hw_counters/$name"; done
echo 7 > "$tree/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
echo 100 > "$tree/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
printf 'snapshot_time 1.5 secs.usecs\nread_bytes 5 samples [bytes] 4096 1048576 5242880\nopen 12 samples [usecs] 8 90 400\n' > "$tree/proc/fs/lustre/llite/scratch-ffff8a/stats"
printf 'current_state: FULL\nstate_history:\n - [ 1700000000, EVICTED ]\n - [ 1700000005, FULL ]\n' > "$tree/proc/fs/lustre/mdc/scratch-MDT0000-mdc/state"
printf 'usage_usec 2500000\nthrottled_usec 0\n' > "$tree/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77/cpu.stat"
echo 1048576 > "$tree/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77/memory.current"
printf 'anon 9\nworkingset_refault_anon 1\nworkingset_refault_file 2\nworkingset_activate_file 5\n' > "$tree/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77/memory.stat"
# log page 2 of a drive: 47 degrees (320 K), 98 % spare, 3 media errors
{ printf '\0\100\1\142\0\1'; head -c 154 /dev/zero; printf '\3'; head -c 351 /dev/zero; } > "$tree/dev/nvme0"
printf '6,100,5000000,-;Linux version 6.1\n' > "$tree/dev/kmsg"
mkdir -p "$SCRATCH/gpu-jobs"
echo 4711 > "$SCRATCH/gpu-jobs/2"
nvml=$BUILD/standin/libnvidia-ml.so.1
in_tree=(--root "$tree" --nvml "$nvml" --gpu-jobs "$SCRATCH/gpu-jobs" --state "$SCRATCH/tree.json" --node recorded --gpus 8)
start_agent "${in_tree[@]}"
same "EFA" 12 "$(value 'node_amazonefa_rx_drops{device="efa_0",port="1"}')"
echo '4: ACTIVE' > "$tree/sys/class/infiniband/efa_0/ports/1/state"
port_is() { [ "$(value 'node_infiniband_state_id{device="efa_0",port="1"}')" = "$1" ]; }
wait_for "the state of EFA's port" port_is 4
# Files are held open between two scrapes: what changes, goes and comes back is seen.
efa_is() { [ "$(value 'node_amazonefa_submitted_cmds{device="efa_0",port="1"}')" = "$1" ]; }
echo 13 > "$tree/sys/class/infiniband/efa_0/ports/1/hw_counters/submitted_cmds"
wait_for "a counter that moves" efa_is 13
rm "$tree/sys/class/infiniband/efa_0/ports/1/hw_counters/submitted_cmds"
wait_for "a counter that is gone" efa_is ''
echo 12 > "$tree/sys/class/infiniband/efa_0/ports/1/hw_counters/submitted_cmds"
wait_for "a counter that is back" efa_is 12
same "InfiniBand" 400 "$(value 'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"}')"
same "Lustre" 5242880 "$(value 'ashlar_lustre_bytes_total{fs="scratch",op="read_bytes"}')"
same "Lustre's evictions" 1 "$(value 'ashlar_lustre_evictions{')"
same "a job's CPU" 2.5 "$(value 'ashlar_job_cpu_seconds_total{job="77"}')"
same "what a job read again" $((3 * $(getconf PAGESIZE))) "$(value 'ashlar_job_refault_bytes_total{job="77"}')"
same "a drive's errors" 3 "$(value 'ashlar_nvme_media_errors_total{device="nvme0"}')"
same "a drive's heat" 47 "$(value 'ashlar_nvme_temperature_celsius{device="nvme0"}')"
same "GPUs" 8 "$(value 'ashlar_gpus')"
same "a GPU's heat" 55 "$(value 'DCGM_FI_DEV_GPU_TEMP{gpu="5"')"
same "a GPU's power" 640.5 "$(value 'DCGM_FI_DEV_POWER_USAGE{gpu="0"')"
same "a GPU's tensor cores" 0.625 "$(value 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="3"')"
grep -q '^DCGM_FI_DEV_SM_CLOCK{gpu="2",UUID="GPU-[^"]*",pci_bus_id="00000000:3D:00.0",device="nvidia2",modelName="NVIDIA H200",Hostname="[^"]*",DCGM_FI_DRIVER_VERSION="570.0",hpc_job="4711"} 1980' "$SCRATCH/metrics" || fail "labels: $(grep SM_CLOCK "$SCRATCH/metrics" | head -n 4)"
status_is healthy || fail "the recorded tree is not healthy: $(curl -s "$url"v1/verdict)"

# An application's XID changes nothing; one that resets GPUs drains; each is counted once, also over kill -9.
log() { printf '4,%d,%d,-;%s\n' "$1" "$((5000000 + $1))" "$2" >> "$tree/dev/kmsg"; }
log 101 'NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=train'
counted() { [ "$(value 'ashlar_kernel_events_total{kind="xid"}')" = "$1" ]; }
wait_for "XID 43" counted 1
status_is healthy || fail "XID 43 took the node out"
log 102 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.'
before=$(date +%s%N)
wait_for "the verdict" status_is 'drain for reboot'
echo "kernel line to verdict, seen through curl: $((($(date +%s%N) - before) / 1000000)) ms"
same "XID 79" 1 "$(value 'ashlar_xid_total{code="79",pci_bus_id="0000:3b:00"}')"
stop_agent KILL
log 103 'EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0'
start_agent "${in_tree[@]}"
edac() { [ "$(value 'ashlar_kernel_events_total{kind="edac"}')" = 1 ]; }
wait_for "what came while it was away" edac
same "XID 79 after a restart" 1 "$(value 'ashlar_xid_total{code="79",pci_bus_id="0000:3b:00"}')"
status_is 'drain for reboot' || fail "the verdict was forgotten: $(curl -s "$url"v1/verdict | head -n 3)"
stop_agent KILL
# Another boot: what a reboot cures is cured, and a check is asked for. The log begins anew.
echo second-boot > "$tree/proc/sys/kernel/random/boot_id"
printf '6,1,1,-;Linux version 6.1\n' > "$tree/dev/kmsg"
start_agent "${in_tree[@]}" --admin-token good
wait_for "the reboot" status_is 'to be checked'
curl -s -o "$SCRATCH/out" -w '%{http_code}' -X POST "$url"v1/clear | grep -q 401 || fail "anybody may clear a node"
curl -s -o "$SCRATCH/out" -X POST -H 'Authorization: Bearer good' "$url"v1/clear
wait_for "the node's return" status_is healthy
stop_agent TERM

# A GPU that is gone, and a failed remap, are findings; a call that hangs costs its own families.
ASHLAR_STANDIN_GPUS=7 start_agent "${in_tree[@]}" --state "$SCRATCH/gone.json"
wait_for "the missing GPU" status_is 'drain for reboot'
stop_agent TERM
# XIDs that NVML alone tells count, too, and once where the kernel log has them as well.
xid='ashlar_xid_total{code="79",pci_bus_id="0000:3b:00"}'
ASHLAR_STANDIN_XID=79 start_agent "${in_tree[@]}" --kernel-log '' --state "$SCRATCH/nvml.json"
wait_for "an XID of NVML's" status_is 'drain for reboot'
same "an XID of NVML's" 1 "$(value "$xid")"
same "lines of the kernel log" 0 "$(value 'ashlar_kernel_events_total{kind="xid"}')"
stop_agent TERM
log 2 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.'
ASHLAR_STANDIN_XID=79 start_agent "${in_tree[@]}" --state "$SCRATCH/both.json"
wait_for "the line" counted 1
same "NVML's event" 1 "$(value 'ashlar_nvml_xid_total{code="79",pci_bus_id="0000:3b:00"}')"
same "an XID that both tell" 1 "$(value "$xid")"
stop_agent TERM
printf '6,1,1,-;Linux version 6.1\n' > "$tree/dev/kmsg"
ASHLAR_STANDIN_REMAP_FAILURE=1 start_agent "${in_tree[@]}" --state "$SCRATCH/remap.json"
wait_for "the failed remap" status_is 'drain for replacement'
stop_agent TERM
ASHLAR_STANDIN_STUCK=1 start_agent "${in_tree[@]}" --gpus -1 --state "$SCRATCH/stuck.json"
same "a GPU that hangs" 0 "$(value 'ashlar_collector_up{collector="gpu"}')"
same "the host next to it" 1 "$(value 'ashlar_collector_up{collector="host"}')"
scrapes_fast() {
    local before
    before=$(date +%s%N)
    scrape
    [ $((($(date +%s%N) - before) / 1000000)) -lt 1000 ]
}
wait_for "a fast scrape next to a GPU that hangs" scrapes_fast
! grep -q DCGM_ "$SCRATCH/metrics" || fail "stale figures of a GPU"
stop_agent TERM

# ---- acting: a running job is told first; Kubernetes gets taint, label and condition, and what others have set stays ------------------
# The whole job is on this node: it saves and ends. Then the scheduler is told, here a command.
printf '6,1,1,-;Linux version 6.1\n' > "$tree/dev/kmsg"
"$ASHLAR" launch --procs 2 train "$SCRATCH/job.yaml" --out "$SCRATCH/told" --pages "$SCRATCH/pages" train.steps=10000000 > "$SCRATCH/train.out" 2>&1 &
trainer=$!
start_agent "${in_tree[@]}" --state '' --act drain --scheduler command --command "echo \$NODE \$FATE > '$SCRATCH/fate'" \
    --drains "$SCRATCH/drains" --nodes 4 --share 0.3
wait_for "both ranks" both
log 2 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.'
wait_for "the command" test -s "$SCRATCH/fate"
same "what the command is told" "recorded reboot" "$(cat "$SCRATCH/fate")"
code=0
wait "$trainer" || code=$?
trainer=
same "the job's end" 75 "$code"
# A second node of four stays: the file that they share says that one is out.
stop_agent TERM
cp "$SCRATCH/agent.err" "$SCRATCH/told.err"
start_agent "${in_tree[@]}" --node other --state '' --act drain --scheduler command --command "echo two > '$SCRATCH/fate'" --drains "$SCRATCH/drains" --nodes 4 --share 0.3
refused() { grep -q "$1" "$SCRATCH/agent.err"; }
wait_for "the budget of commands" refused '1 of 4 nodes are out already'
same "what was run" "recorded reboot" "$(cat "$SCRATCH/fate")"
: > "$SCRATCH/drains"
wait_for "the drain, once the budget allows it" grep -q two "$SCRATCH/fate"
mv "$SCRATCH/told.err" "$SCRATCH/agent.err"
grep -q 'told 2 ranks on node recorded to leave' "$SCRATCH/agent.err" || fail "no word of the ranks: $(cat "$SCRATCH/agent.err")"
stop_agent TERM
if command -v node > "$SCRATCH/out"; then
    node "$SOURCE/tests/e2e/lib/kube_nodes.mjs" > "$SCRATCH/api.out" 2>&1 &
    api=$!
    wait_for "the API" test -s "$SCRATCH/api.out"
    server=$(head -n 1 "$SCRATCH/api.out")
    cat > "$SCRATCH/kubeconfig" << YAML
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "$server"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
current-context: c
YAML
    # marked NODE WORD...: its JSON has all of them.
    marked() {
        local text word
        text=$(curl -s "$server/_node/$1")
        for word in "${@:2}"; do grep -qF -- "$word" <<< "$text" || return 1; done
    }
    others=('"key":"nvidia.com/gpu"' '"zone":"a"' '"type":"Ready"')
    printf '6,1,1,-;Linux version 6.1\n' > "$tree/dev/kmsg"
    KUBECONFIG=$SCRATCH/kubeconfig start_agent "${in_tree[@]}" --node n1 --state '' --act full --scheduler kubernetes --share 0.3 --admin-token good
    wait_for "the start" status_is healthy
    log 2 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.'
    before=$(date +%s%N)
    wait_for "the taint" marked n1 ashlar.dev/unhealthy
    echo "kernel line to tainted, seen through curl: $((($(date +%s%N) - before) / 1000000)) ms"
    wait_for "taint and condition" marked n1 '"key":"ashlar.dev/unhealthy","value":"reboot","effect":"NoSchedule"' \
        '"sagemaker.amazonaws.com/node-health-status":"UnschedulablePendingReboot"' '"type":"AshlarHealthy","status":"False","reason":"NeedsReboot"' "${others[@]}" ||
        curl -s "$server/_node/n1"
    curl -s -o "$SCRATCH/out" -X POST -H 'Authorization: Bearer good' "$url"v1/clear
    wait_for "the node's return" marked n1 'node-health-status":"Schedulable"' '"type":"AshlarHealthy","status":"True"' "${others[@]}" || curl -s "$server/_node/n1"
    ! marked n1 ashlar.dev/unhealthy || fail "the taint stays: $(curl -s "$server/_node/n1")"
    stop_agent TERM
    # Two of four may be out: one was in the last hour. Then one is.
    KUBECONFIG=$SCRATCH/kubeconfig start_agent "${in_tree[@]}" --node n2 --state '' --act drain --scheduler kubernetes --share 0.5
    wait_for "its taint" marked n2 ashlar.dev/unhealthy
    stop_agent TERM
    KUBECONFIG=$SCRATCH/kubeconfig start_agent "${in_tree[@]}" --node n3 --state '' --act drain --scheduler kubernetes --share 0.3
    wait_for "the budget" refused '1 of 4 nodes are out already'
    stop_agent TERM
    KUBECONFIG=$SCRATCH/kubeconfig start_agent "${in_tree[@]}" --node n3 --state '' --act drain --scheduler kubernetes --share 0.5
    wait_for "the budget of an hour" refused '2 of 4 nodes were taken out in the last hour'
    ! marked n3 ashlar.dev/unhealthy || fail "the budget did not hold"
    stop_agent TERM
    kill "$api"
    wait "$api" 2> "$SCRATCH/kill"
    api=
fi

# Tokens, and what is refused.
printf 'secret\n' > "$SCRATCH/token"
start_agent "${in_tree[@]}" --token "@$SCRATCH/token" --state ''
same "without a token" 401 "$(curl -s -o "$SCRATCH/out" -w '%{http_code}' "$url"metrics)"
same "with it" 200 "$(curl -s -o "$SCRATCH/out" -w '%{http_code}' -H 'Authorization: Bearer secret' "$url"metrics)"
same "the page" 200 "$(curl -s -o "$SCRATCH/out" -w '%{http_code}' "$url")"
stop_agent TERM
try "$ASHLAR" agent --token "@$SCRATCH/nowhere" --port 0 --state ''
expect_error 1 "a token in no file" "nowhere"
try "$ASHLAR" agent --act drain
expect_error 2 "drain without a scheduler" "--scheduler"
try "$ASHLAR" agent --act drain --scheduler command --command true
expect_error 2 "a command without a budget" "--drains"
try "$ASHLAR" agent --machine nothing --port 0 --state ''
expect_error 1 "an unknown machine" "nothing"
finish
