#!/usr/bin/env bash
# Watching: what an agent costs next to node_exporter, how fast a kernel line becomes a verdict, checks of this node, a diagnosis of a
# thousand nodes, a scrape of a large node, the calls of 4,096 ranks, and training with everything published and an agent that is scraped every second.
set -euo pipefail
rounds=${BENCH_ROUNDS:-3}
work=$(mktemp -d /tmp/bench-observe.XXXXXX)
pids=()
end() {
    for pid in ${pids[@]+"${pids[@]}"}; do kill -KILL "$pid" 2> "$work/kill" || true; done
    wait 2> "$work/kill" || true
    rm -rf "$work"
}
trap end EXIT
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
note() { echo "bench: observe: $*" >&2; }
wants() { [ -z "${BENCH_PATTERN:-}" ] || grep -qE "$BENCH_PATTERN" <<< "observe/$1"; }
seconds() { # COMMAND...: how long it takes, whatever it says
    local began ended
    began=$(date +%s.%N)
    "$@" > "$work/out" 2> "$work/err" || [ $? -le 1 ] || { note "$1 $2: $(tail -n 1 "$work/err")" && return 1; }
    ended=$(date +%s.%N)
    awk "BEGIN { print $ended - $began }"
}
repeat() { for ((i = 0; i < rounds; i++)); do "$@" || return 1; done; }
wait_line() { for ((i = 0; i < 3000; i++)); do ! grep -qs "$1" "$2" || return 0; sleep 0.02; done; note "waited for $1"; return 1; }
start_agent() { # words: $url, $agent
    : > "$work/agent.out"
    "$ASHLAR" agent --port 0 --state '' "$@" > "$work/agent.out" 2> "$work/agent.err" &
    agent=$!
    pids+=("$agent")
    wait_line http "$work/agent.out"
    url=$(grep -o 'http://[^ ]*' "$work/agent.out")
}
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$1/stat"; }
resident_of() { awk '/VmRSS/ { print $2 / 1024 }' "/proc/$1/status"; }
# each_scrape URL COUNT: seconds of each scrape into $work/times. An agent shows what it has read less than a tenth of a second ago again:
# they are further apart, so that every one is read anew.
each_scrape() {
    : > "$work/times"
    for ((scrape = 0; scrape < $2; scrape++)); do
        curl -s -o "$work/many" -w '%{time_total}\n' "$1" >> "$work/times"
        sleep 0.12
    done
}
# scrapes PID URL: microseconds of processor time for each series, milliseconds of a scrape (the mean of 40).
scrapes() {
    local before after series
    curl -s "$2" > "$work/metrics"
    series=$(grep -vc '^#' "$work/metrics")
    before=$(cpu_of "$1")
    each_scrape "$2" 40
    after=$(cpu_of "$1")
    awk "{ sum += \$1 } END { print ($after - $before) / NR / $series * 1e6, sum / NR * 1e3 }" "$work/times"
}
compare_scrapes() {
    local port=19100 ours=() theirs=() ours_cpu=() theirs_cpu=() cpu ms
    mkdir -p "$work/none"
    start_agent --pages "$work/none"
    command -v prometheus-node-exporter > "$work/out" || { note "no node_exporter here"; return 0; }
    prometheus-node-exporter --web.listen-address="127.0.0.1:$port" > "$work/exporter" 2>&1 &
    exporter=$!
    pids+=("$exporter")
    for ((i = 0; i < 3000; i++)); do ! curl -s -o "$work/out" "http://127.0.0.1:$port/metrics" || break; sleep 0.02; done
    for ((round = 0; round < rounds; round++)); do
        read -r cpu ms < <(scrapes "$agent" "${url}metrics")
        ours_cpu+=("$cpu") ours+=("$ms")
        read -r cpu ms < <(scrapes "$exporter" "http://127.0.0.1:$port/metrics")
        theirs_cpu+=("$cpu") theirs+=("$ms")
    done
    row observe/scrape-cpu us/series "node_exporter" 3.33 lower "${ours_cpu[@]}" -- "${theirs_cpu[@]}"
    row observe/scrape-time ms "node_exporter" 2 lower "${ours[@]}" -- "${theirs[@]}"
    row observe/agent-resident MB "goal; node_exporter has $(resident_of "$exporter" | cut -c1-4)" 1 lower "$(resident_of "$agent")" -- 8
    kill "$agent" "$exporter"
}
if wants scrape-cpu || wants scrape-time || wants agent-resident; then compare_scrapes; fi

# A large node by a recorded tree: 8 GPUs (a stand-in of NVIDIA's library), 32 EFA devices, 192 cores, 8 ranks (stopped, so that they take
# no core). The worst of a hundred scrapes, and what the agent takes of a core when it is scraped every 15 s.
large_tree() {
    python3 - "$work/large" << 'END'
import os, sys
root = sys.argv[1]
def put(path, text):
    os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
    open(f"{root}/{path}", "w").write(text)
cores = "".join(f"cpu{i} {9000 + i} 10 4000 800000 50 0 30 0 0 0\n" for i in range(192))
put("proc/stat", "cpu 1 1 1 1 1 1 1 0 0 0\n" + cores + "intr 99\nctxt 99\nbtime 1700000000\nprocesses 99\nprocs_running 9\nprocs_blocked 0\n")
for name in ("meminfo", "loadavg", "vmstat", "diskstats"):
    put(f"proc/{name}", open(f"/proc/{name}").read())
put("proc/net/dev", open("/proc/net/dev").read())
put("proc/sys/kernel/random/boot_id", "boot\n")
put("proc/1/mounts", "/dev/nvme0n1 / ext4 rw 0 0\n")
put("dev/kmsg", "6,1,1,-;Linux version 6.1\n")
for core in range(192):
    for name in ("scaling_cur_freq", "scaling_min_freq", "scaling_max_freq"):
        put(f"sys/devices/system/cpu/cpu{core}/cpufreq/{name}", "2400000\n")
    put(f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count", "0\n")
counters = """tx_bytes rx_bytes tx_pkts rx_pkts rx_drops send_bytes send_wrs recv_bytes recv_wrs rdma_write_wrs rdma_write_bytes rdma_write_wr_err
rdma_write_recv_bytes rdma_read_wrs rdma_read_bytes rdma_read_wr_err rdma_read_resp_bytes alloc_pd_err alloc_ucontext_err cmds_err
completed_cmds create_ah_err create_cq_err create_qp_err keep_alive_rcvd lifespan mmap_err no_completion_cmds reg_mr_err submitted_cmds
retrans_bytes retrans_pkts retrans_timeout_events unresponsive_remote_events impaired_remote_conn_events""".split()
for device in range(32):
    for counter in counters:
        put(f"sys/class/infiniband/rdmap{device}s0/ports/1/hw_counters/{counter}", f"{device * 1000}\n")
    put(f"sys/class/infiniband/rdmap{device}s0/ports/1/state", "4: ACTIVE\n")
END
}
compare_large() {
    local job before after series p99=() cores=() ring
    large_tree
    "$ASHLAR" data arithmetic --out "$work/large-data" --count 4000 > "$work/out"
    printf 'model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}\ndata: {train: %s, seq: 16}\ntrain: {steps: 1000000, global_batch: 8, grains: 8}\n' "$work/large-data" > "$work/large.yaml"
    "$ASHLAR" launch --procs 8 train "$work/large.yaml" --out "$work/large-run" --pages "$work/large-pages" group.silent_timeout=600 > "$work/out" 2>&1 &
    job=$!
    pids+=("$job")
    wait_line '"step":9' "$work/large-run/log.jsonl"
    kill -STOP "$job"
    for ring in "$work"/large-pages/*.steps; do ring=${ring##*/} && kill -STOP "${ring%%-*}" && pids+=("${ring%%-*}"); done
    start_agent --root "$work/large" --pages "$work/large-pages" --nvml "$BUILD/standin/libnvidia-ml.so.1" --node large
    curl -s "${url}metrics" > "$work/metrics"
    series=$(grep -vc '^#' "$work/metrics")
    for ((round = 0; round < rounds; round++)); do
        before=$(cpu_of "$agent")
        each_scrape "${url}metrics" 100
        after=$(cpu_of "$agent")
        p99+=("$(sort -g "$work/times" | awk 'NR == 99 { print $1 * 1e3 }')")
        cores+=("$(awk "BEGIN { print ($after - $before) / 100 / 15 * 100 }")")
    done
    row observe/large-scrape-p99 ms "goal; $series series" 1 lower "${p99[@]}" -- 10
    row observe/large-agent "% of a core" "goal; scraped every 15 s" 1 lower "${cores[@]}" -- 0.1
    kill "$agent"
    kill -KILL "$job"
    for ring in "$work"/large-pages/*.steps; do ring=${ring##*/} && kill -KILL "${ring%%-*}"; done
}
if wants large-scrape-p99 || wants large-agent; then compare_large; fi

# From a line of the kernel log to the verdict, by server-sent events.
kernel_line() {
    local tree=$work/tree-$1 began
    mkdir -p "$tree/dev"
    echo '6,1,1,-;Linux version 6.1' > "$tree/dev/kmsg"
    start_agent --root "$tree" --pages ''
    curl -sN "${url}v1/events" > "$work/events" &
    pids+=($!)
    wait_line healthy "$work/events"
    began=$(date +%s.%N)
    echo '4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' >> "$tree/dev/kmsg"
    for ((i = 0; i < 30000; i++)); do ! grep -q 'drain' "$work/events" || break; done
    awk "BEGIN { print $(date +%s.%N) - $began }"
    kill "$agent"
}
if wants kernel-line; then
    ours=()
    for ((round = 0; round < rounds; round++)); do ours+=("$(kernel_line "$round" 2> "$work/err")"); done
    row observe/kernel-line s "goal" 1 lower "${ours[@]}" -- 0.1
fi

if wants check-quick; then row observe/check-quick s "goal" 1 lower $(repeat seconds "$ASHLAR" check node --quick) -- 2; fi
if wants check-deep; then row observe/check-deep s "goal" 1 lower "$(seconds "$ASHLAR" check node --deep)" -- 60; fi

# A thousand nodes' scrapes, twice: this node's own, with other names.
if wants diagnose-1000; then
    mkdir -p "$work/before" "$work/now"
    start_agent --pages ''
    curl -s "${url}metrics" > "$work/one"
    for ((n = 0; n < 1000; n++)); do cp "$work/one" "$work/before/node-$n.prom"; done
    curl -s "${url}metrics" > "$work/one"
    for ((n = 0; n < 1000; n++)); do cp "$work/one" "$work/now/node-$n.prom"; done
    kill "$agent"
    row observe/diagnose-1000 s "goal" 1 lower $(repeat seconds "$ASHLAR" diagnose "$work/now" --before "$work/before") -- 3
fi

# Rings of 4,096 ranks with 1,024 calls each, of which one rank lacks the last.
if wants flight-4096; then
    mkdir -p "$work/rings"
    python3 - "$work/rings" << 'END'
import struct, sys
calls = bytearray()
for n in range(1, 1025):
    calls += struct.pack("<QQ8sQ8sHHIIIQQQq", n, 7, b"world", n, b"f32", 1, 0, 2**32 - 1, 0, 4096, 1 << 20, n * 1000, n * 1000 + 500, 0)
size = len(calls) // 1024
for rank in range(4096):
    count = 1023 if rank == 77 else 1024
    labels = f'job="9",rank="{rank}"'.encode()
    head = struct.pack("<8sIIIIqQ16s512s", b"ashring1", size, 1024, 1000 + rank, 0, 0, count, b"flight", labels)
    for n in range(1024):
        struct.pack_into("<I", calls, n * size + 48, rank)
    with open(f"{sys.argv[1]}/{1000 + rank}-0.flight", "wb") as file:
        file.write(head + calls[:count * size] + bytes((1024 - count) * size))
END
    row observe/flight-4096 s "goal" 1 lower $(repeat seconds "$ASHLAR" flight "$work/rings") -- 3
    rm -rf "$work/rings"
fi

# Tokens per second of a job: nothing published and no agent; published where jobs publish, with an agent that is scraped every second;
# every op traced, too. Runs are short and take turns, each kind first in turn: the machine's pace drifts by more than what is looked for.
# A run's figure is that of all its steps together, so that those count in which the agent was scraped.
tokens() { # name, words
    local name=$1
    shift
    rm -rf "$work/$name"
    "$ASHLAR" train "$work/job.yaml" --out "$work/$name" "$@" > "$work/out" 2> "$work/err"
    python3 -c "
import json
steps = [json.loads(line)['tokens_per_s'] for line in open('$work/$name/log.jsonl') if '\"tokens_per_s\"' in line][5:]
print(len(steps) / sum(1 / step for step in steps))"
}
compare_training() {
    local pages order kind plain=() watched=() traced=()
    "$ASHLAR" data arithmetic --out "$work/train" --count 20000 > "$work/out"
    cat > "$work/job.yaml" << YAML
model: {type: llama, hidden: 128, layers: 4, heads: 4, ffn: 352}
data: {train: $work/train, seq: 64}
train: {steps: 45, global_batch: 16, grains: 2, save_every: 0, valid_every: 0}
YAML
    pages=$(mktemp -d /dev/shm/bench-observe.XXXXXX)
    start_agent --pages "$pages"
    # One connection each second from a process that is there already: on a real node the scraper is elsewhere.
    python3 -c '
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)' "${url}metrics" 2> "$work/scraper.err" &
    scraper=$!
    pids+=("$scraper")
    for ((round = 0; round < 4 * rounds; round++)); do
        order=(plain watched traced)
        for ((turn = round; turn < round + 3; turn++)); do
            kind=${order[turn % 3]}
            case $kind in
            plain)
                kill -STOP "$agent" "$scraper"
                plain+=("$(tokens plain --pages '')")
                kill -CONT "$agent" "$scraper"
                ;;
            watched) watched+=("$(tokens watched --pages "$pages")") ;;
            traced) traced+=("$(tokens traced --pages "$pages" train.trace=1-45)") ;;
            esac
        done
    done
    rm -rf "$pages"
    row observe/train-watched tokens/s "the same, nothing published" 0.998 higher "${watched[@]}" -- "${plain[@]}"
    row observe/train-traced tokens/s "the same, nothing published" 0.99 higher "${traced[@]}" -- "${plain[@]}"
    kill "$agent" "$scraper"
}
if wants train-watched || wants train-traced; then compare_training; fi
