#!/usr/bin/env bash
# Watching: what an agent costs next to node_exporter, how fast a kernel line becomes a verdict, checks of this node, a diagnosis of a
# thousand nodes, the calls of 4,096 ranks, and training with everything published and an agent that is scraped every second.
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
# scrapes PID URL: microseconds of processor time for each series, milliseconds of a scrape, over 100 of them.
scrapes() {
    local before after began ended series
    curl -s "$2" > "$work/metrics"
    series=$(grep -vc '^#' "$work/metrics")
    printf "url = \"$2\"\noutput = $work/many\n%.0s" $(seq 100) > "$work/hundred"
    before=$(cpu_of "$1") began=$(date +%s.%N)
    curl -s --config "$work/hundred"
    ended=$(date +%s.%N) after=$(cpu_of "$1")
    awk "BEGIN { print ($after - $before) / 100 / $series * 1e6, ($ended - $began) / 100 * 1e3 }"
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

# Tokens per second of a job: nothing published; published and scraped every second; every op traced.
tokens() { # name, words
    local name=$1
    shift
    "$ASHLAR" train "$work/job.yaml" --out "$work/$name" "$@" > "$work/out" 2> "$work/err"
    python3 -c "
import json, statistics, sys
print(statistics.median(json.loads(line)['tokens_per_s'] for line in open('$work/$name/log.jsonl') if '\"tokens_per_s\"' in line))"
}
if wants train-watched || wants train-traced; then
    "$ASHLAR" data arithmetic --out "$work/train" --count 20000 > "$work/out"
    cat > "$work/job.yaml" << YAML
model: {type: llama, hidden: 128, layers: 4, heads: 4, ffn: 352}
data: {train: $work/train, seq: 64}
train: {steps: 150, global_batch: 16, grains: 2, save_every: 0, valid_every: 0}
YAML
    start_agent --pages "$work/pages"
    (while sleep 1; do curl -s -o "$work/scraped" "${url}metrics"; done) &
    pids+=($!)
    plain=() watched=() traced=()
    for ((round = 0; round < rounds; round++)); do
        plain+=("$(tokens "plain-$round" --pages '')")
        watched+=("$(tokens "watched-$round" --pages "$work/pages")")
        traced+=("$(tokens "traced-$round" --pages "$work/pages" train.trace=1-150)")
    done
    row observe/train-watched tokens/s "the same, nothing published" 0.998 higher "${watched[@]}" -- "${plain[@]}"
    row observe/train-traced tokens/s "the same, nothing published" 0.99 higher "${traced[@]}" -- "${plain[@]}"
fi
