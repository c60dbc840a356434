#!/usr/bin/env bash
# The server on a 1.1e9-parameter Llama with random weights, compared with llama.cpp on the same GGUF file: npm's node-llama-cpp with
# as many sequences as there are clients (in one process, without HTTP), in turns. Rows that are about a server as its clients see it
# (first tokens, shared prefixes, streams next to a long prompt, the start) need another server: BENCH_LLAMA_SERVER names a native
# llama-server; without it their peer's column is empty. BENCH_TRACE names a trace for the row about prefixes. Rounds: BENCH_ROUNDS
# (5) for one client, and half of it, at least one, where 16 clients read prompts.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
. "$SOURCE/bench/lib/models.sh"
rounds=${BENCH_ROUNDS:-5} threads=$(nproc) native=${BENCH_LLAMA_SERVER:-}
few=$(((rounds + 1) / 2))
vocab=32000 # of the model: prompts are drawn ids
out=$BUILD/bench-serve
mkdir -p "$out"

row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
# of NAME KEY...: a figure of a run of `ashlar bench serve`.
of() { python3 -c 'import json, sys; v = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: v = v[int(key) if isinstance(v, list) else key]
print(v)' "$out/$1.json" "${@:2}"; }
each() { awk "BEGIN { print $1 }"; } # an expression

# ---- servers

server='' port=''
# free_port: one that nobody listens on now.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# answers SECONDS: until /health says 200.
wait_ready() {
    local i
    for ((i = 0; i < 20 * $1; i++)); do
        exec 3<> "/dev/tcp/127.0.0.1/$port" && {
            printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
            grep -q '^HTTP/1.1 200' <&3 && { exec 3>&-; return 0; }
            exec 3>&-
        }
        kill -0 "$server" || return 1
        sleep 0.05
    done 2> /dev/null
    return 1
}
open_ours() { # model, flags...
    local path=$1
    shift
    port=$(free_port)
    "$ASHLAR" serve --model "$path" --port "$port" --threads "$threads" --no-access-log "$@" 2> "$out/server.log" &
    server=$!
    wait_ready 60 || { note "the server did not start: $(tail -n 1 "$out/server.log")"; close_server; return 1; }
}
open_native() { # GGUF, sequences, tokens of each
    port=$(free_port)
    "$native" -m "$1" --host 127.0.0.1 --port "$port" -t "$threads" -np "$2" -c $(($2 * $3)) --no-webui 2> "$out/native.log" > /dev/null &
    server=$!
    wait_ready 120 || { note "llama-server did not start: $(tail -n 1 "$out/native.log")"; close_server; return 1; }
}
close_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
    server=''
}
trap 'close_server' EXIT
# load NAME FLAGS...: a run of `ashlar bench serve`; its figures are asked for with `of NAME`.
load() {
    local name=$1
    shift
    "$ASHLAR" bench serve --url "http://127.0.0.1:$port" --vocab $vocab --json "$out/$name.json" "$@" > "$out/$name.txt" 2>&1 ||
        { note "$name: $(tail -n 1 "$out/$name.txt")"; return 1; }
}

# ---- tokens a second

# type_name TYPE: as llama.cpp calls it.
type_name() { case $1 in q8 | q8w) echo Q8_0 ;; q4) echo Q4_0 ;; *) echo "${1^^}" ;; esac; }
precision() { [ "$1" != bf16 ] || echo --precision bf16; }

# run_clients ROW GOAL KIND THEIRS PATH CLIENTS PROMPT ANSWER ROUNDS: output tokens a second of CLIENTS clients at once.
run_clients() {
    local name=$1 goal=$2 kind=$3 gguf=$model-$4.gguf path=$5 clients=$6 prompt=$7 count=$8 turns=$9 round suffix label=''
    local ours=() theirs=()
    suffix=$(type_name "$4")
    open_ours "$path" --max-num-seqs "$clients" $(precision "$kind") || return 0
    if $have_npm && ask_open npm node "$SOURCE/bench/serve_peer.mjs" "$npm" "$gguf" "$threads" "$clients" $((prompt + count + 8)); then
        label="$(npm_label "$answer"), $clients sequences, $suffix"
    fi
    load warm --clients "$clients" --requests "$clients" --prompt-tokens 16 --answer-tokens 20 || return 0 # weights are packed
    for ((round = 0; round < turns; round++)); do
        load run --clients "$clients" --requests "$clients" --prompt-tokens "$prompt" --answer-tokens "$count" --seed $((round + 1)) || break
        ours+=("$(of run output_tokens_per_s)")
        [ -n "$label" ] || continue
        ask npm "batch $prompt $count" || break
        theirs+=("$(each "$clients * $count / $answer")")
    done
    close_server
    [ -z "$label" ] || ask_close npm
    [ ${#ours[@]} -eq 0 ] || row "$name" tokens/s "$label" "$goal" higher "${ours[@]}" -- "${theirs[@]}"
}

# run_long ROW GOAL: decoding after 4,096 tokens.
run_long() {
    local gguf=$model-q8.gguf round label='' ours=() theirs=()
    open_ours "$gguf" --max-num-seqs 2 || return 0
    if $have_npm && ask_open npm node "$SOURCE/bench/serve_peer.mjs" "$npm" "$gguf" "$threads" 1 4400; then
        label="$(npm_label "$answer"), Q8_0"
    fi
    for ((round = 0; round <= rounds; round++)); do # the first one reads the prompt; it is cached then
        load run --clients 1 --requests 1 --prompt-tokens 4096 --answer-tokens 64 || break
        ((round == 0)) || ours+=("$(each "1000 / $(of run tpot_ms p50)")")
        [ -n "$label" ] || continue
        ask npm "after 4096 64" || break
        ((round == 0)) || theirs+=("$(each "1 / $answer")")
    done
    close_server
    [ -z "$label" ] || ask_close npm
    [ ${#ours[@]} -eq 0 ] || row "$1" tokens/s "$label" "$2" higher "${ours[@]}" -- "${theirs[@]}"
}

# ---- rows compared with another server

# compare ROW UNIT GOAL FLAGS MEASURE: MEASURE sets $figure, with our server, opened with FLAGS, and with the native one.
compare() {
    local name=$1 unit=$2 goal=$3 flags=$4 measure=$5 round ours=() theirs=() figure
    for ((round = 0; round < few; round++)); do
        open_ours "$model-q8.gguf" --max-num-seqs 16 $flags || return 0
        $measure $round && ours+=("$figure")
        close_server
        [ -n "$native" ] || continue
        open_native "$model-q8.gguf" 16 4352 || continue
        $measure $round && theirs+=("$figure")
        close_server
    done
    [ -n "$native" ] || note "$name: no peer (BENCH_LLAMA_SERVER names a native llama-server)"
    [ ${#ours[@]} -eq 0 ] || row "$name" "$unit" "llama-server (native), Q8_0" "$goal" lower "${ours[@]}" -- "${theirs[@]}"
}
pack() { load warm --clients 1 --requests 1 --prompt-tokens 16 --answer-tokens 24 --seed 99; }
ttft_cold() { # 16 clients, four prefixes of 1,024, nothing cached
    pack && load run --clients 16 --requests 32 --prefixes 4 --prefix-tokens 1024 --prompt-tokens 64 --answer-tokens 16 --seed $(($1 + 1)) &&
        figure=$(of run ttft_ms p95)
}
ttft_at_once() { # 16 at once with one new prefix of 1,024: the last first token
    pack && load run --clients 16 --requests 16 --prefixes 1 --prefix-tokens 1024 --prompt-tokens 16 --answer-tokens 4 --seed $(($1 + 1)) &&
        figure=$(of run ttft_ms max)
}
itl_with_prefill() { # eight streams while a prompt of 4,096 is read
    local other
    pack || return 1
    load streams --clients 8 --requests 8 --prompt-tokens 16 --answer-tokens 160 --seed $(($1 + 1)) &
    other=$!
    sleep 2 # the streams run
    load long --clients 1 --requests 1 --prompt-tokens 4096 --answer-tokens 2 --seed 77 || return 1
    wait "$other" && figure=$(of streams itl_ms p99)
}

# run_start GOAL: from the start of the process to the first byte of an answer, the file in the page cache.
run_start() {
    local round ours=() theirs=() since gguf=$model-q8.gguf
    cat "$gguf" > /dev/null
    first_byte() { # command...
        since=$(date +%s%N)
        "$@" > /dev/null 2> "$out/start.log" &
        server=$!
        python3 - "$port" "$since" << 'PY'
import http.client, json, sys, time
port, since = int(sys.argv[1]), int(sys.argv[2])
body = json.dumps({"prompt": [300 + i for i in range(16)], "max_tokens": 4, "stream": True, "temperature": 0})
while True:
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        r = c.getresponse()
        if r.status == 200 and r.read(1): break
    except OSError:
        pass
    if time.time_ns() - since > 120e9: sys.exit("no answer")
    time.sleep(0.002)
print((time.time_ns() - since) / 1e9)
PY
        close_server
    }
    for ((round = 0; round < rounds; round++)); do
        port=$(free_port)
        ours+=("$(first_byte "$ASHLAR" serve --model "$gguf" --port "$port" --threads "$threads" --no-access-log)")
        [ -n "$native" ] || continue
        port=$(free_port)
        theirs+=("$(first_byte "$native" -m "$gguf" --host 127.0.0.1 --port "$port" -t "$threads" --no-webui)")
    done
    row serve/start-cached s "llama-server (native), Q8_0" "$1" lower "${ours[@]}" -- "${theirs[@]}"
    row serve/start-cached-seconds s "0.4 s" 1 lower "${ours[@]}" -- 0.4
}

# ---- what serving costs in addition to the model

# run_step CLIENTS: a token of each of CLIENTS streams, compared with a loop of passes and nothing else.
run_step() {
    local round ours=() theirs=()
    open_ours "$model-q8.gguf" --max-num-seqs "$1" || return 0
    load run --clients "$1" --requests "$1" --prompt-tokens 256 --answer-tokens 64 || return 0 # its prompts are cached from now on
    ask_open bare "$BUILD/bench/serve_step" bare "$model-q8.gguf" "$threads" "$1" || return 0
    for ((round = 0; round <= few; round++)); do
        load run --clients "$1" --requests "$1" --prompt-tokens 256 --answer-tokens 64 || break
        ask bare "steps 64" || break
        ((round == 0)) || { ours+=("$(each "$(of run tpot_ms p50) / 1000")") && theirs+=("$answer"); }
    done
    close_server
    ask_close bare
    [ ${#ours[@]} -eq 0 ] || row "serve/step-$1" s "a loop of passes" 0.97 lower "${ours[@]}" -- "${theirs[@]}"
}
run_schedule() { # sequences, goal in seconds
    local round ours=()
    for ((round = 0; round < rounds; round++)); do ours+=("$("$BUILD/bench/serve_step" null "$1")"); done
    row "serve/schedule-$1" s "the goal" 1 lower "${ours[@]}" -- "$2"
}
run_trace() {
    local found possible
    [ -n "${BENCH_TRACE:-}" ] || { note "serve/prefix-trace: BENCH_TRACE names a trace (conversation_trace.jsonl)"; return 0; }
    read -r found possible < <("$BUILD/bench/serve_step" trace "$BENCH_TRACE" "${BENCH_TRACE_REQUESTS:-4000}" 32768)
    row serve/prefix-trace tokens "an ideal LRU" 0.98 higher "$found" -- "$possible"
}

# ---- schemas, drafts, memory

schema='{"type":"object","properties":{"name":{"type":"string","minLength":400,"maxLength":900},"count":{"type":"integer"}},"required":["name","count"]}'
# posts FILE BODY...: send bodies at once from as many clients; prints the output tokens a second.
posts() {
    python3 - "$port" "$1" << 'PY'
import http.client, json, sys, threading, time
port, bodies = int(sys.argv[1]), [json.loads(line) for line in open(sys.argv[2])]
tokens = [0] * len(bodies)
def ask(i):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request("POST", "/v1/completions", json.dumps(bodies[i]), {"content-type": "application/json"})
    tokens[i] = json.loads(c.getresponse().read())["usage"]["completion_tokens"]
since = time.time()
threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(tokens) / (time.time() - since))
PY
}
# bodies COUNT EXTRA: lines of requests for 64 tokens, with more fields.
bodies() {
    python3 -c 'import json, sys
for i in range(int(sys.argv[1])): print(json.dumps({"prompt": [300 + (i * 7 + j) % 3000 for j in range(16)], "max_tokens": 64, "temperature": 1, "seed": i, "ignore_eos": True, **json.loads(sys.argv[2])}))' "$@"
}
run_schema() {
    local round ours=() theirs=()
    open_ours "$model-q8.gguf" --max-num-seqs 16 || return 0
    bodies 16 "{\"guided_json\": $schema}" > "$out/schema.jsonl"
    bodies 16 '{}' > "$out/free.jsonl"
    posts "$out/schema.jsonl" > /dev/null && posts "$out/free.jsonl" > /dev/null
    for ((round = 0; round < rounds; round++)); do
        ours+=("$(posts "$out/schema.jsonl")")
        theirs+=("$(posts "$out/free.jsonl")")
    done
    close_server
    row serve/schema-16 tokens/s "the same without a schema" 0.95 higher "${ours[@]}" -- "${theirs[@]}"
}
# run_masks: of drawn schemas, with Qwen's vocabulary; as tests/e2e/grammar_world.sh walks through them.
run_masks() {
    local said
    said=$(SCRATCH=$out/grammar BENCH_ROWS='' GRAMMAR_WORLD_SCHEMAS=300 bash "$SOURCE/tests/e2e/grammar_world.sh" 2> "$out/grammar.err" | grep '^masks:') ||
        { note "no masks: $(tail -n 1 "$out/grammar.err")"; return 0; }
    row serve/mask-p50 us "50 us" 1 lower "$(sed 's/.*p50 \([0-9.]*\) us, p99.*/\1/' <<< "${said%%;*}")" -- 50
    row serve/mask-p99 us "1 ms" 1 lower "$(sed 's/.*p99 \([0-9.]*\) us.*/\1/' <<< "${said%%;*}")" -- 1000
}
# run_drafts ROW GOAL BODIES: with prompt lookup and without, one client.
run_drafts() {
    local round ours=() theirs=() speculate
    for ((round = 0; round < few; round++)); do
        for speculate in 8 0; do
            open_ours "$model-q8.gguf" --max-num-seqs 2 --num-speculative-tokens $speculate || return 0
            posts "$out/warm.jsonl" > /dev/null
            if [ $speculate -gt 0 ]; then ours+=("$(posts "$3")"); else theirs+=("$(posts "$3")"); fi
            close_server
        done
    done
    row "$1" tokens/s "the same without drafts" "$2" higher "${ours[@]}" -- "${theirs[@]}"
}
# Random weights answer a repetitive prompt with a cycle when they are greedy; at temperature 1 nothing repeats.
run_all_drafts() {
    bodies 1 '{"max_tokens": 24}' > "$out/warm.jsonl"
    bodies 1 '{"max_tokens": 256, "temperature": 0, "allowed_token_ids": [300, 301, 302], "logit_bias": {"300": 90}}' > "$out/repeats.jsonl"
    bodies 1 '{"max_tokens": 128, "temperature": 1}' > "$out/other.jsonl"
    ! wanted serve/drafts-repetitive || run_drafts serve/drafts-repetitive 1.8 "$out/repeats.jsonl"
    ! wanted serve/drafts-other || run_drafts serve/drafts-other 0.97 "$out/other.jsonl"
}
# run_adapters: 16 clients of eight adapters of rank 16 over all projections, compared with the same without adapters.
run_adapters() {
    local round i modules='' ours=() theirs=()
    for i in 1 2 3 4 5 6 7 8; do
        python3 "$SOURCE/tests/e2e/lib/make_adapter.py" "$model" "$out/adapter-$i" "$i" 16 all
        modules+=${modules:+,}a$i=$out/adapter-$i
    done
    open_ours "$model-q8.gguf" --max-num-seqs 16 --served-model-name base --lora-modules "$modules" || return 0
    bodies 16 '{"model": "base"}' > "$out/base.jsonl"
    for i in $(seq 16); do bodies 16 "{\"model\": \"a$((i % 8 + 1))\"}" | sed -n "${i}p"; done > "$out/adapters.jsonl"
    posts "$out/adapters.jsonl" > /dev/null && posts "$out/base.jsonl" > /dev/null
    for ((round = 0; round < rounds; round++)); do
        ours+=("$(posts "$out/adapters.jsonl")")
        theirs+=("$(posts "$out/base.jsonl")")
    done
    close_server
    row serve/adapters-16 tokens/s "the same without adapters" 0.85 higher "${ours[@]}" -- "${theirs[@]}"
}
# run_ranks CLIENTS GOAL: two processes of one thread each that share the model, compared with one process of two.
run_ranks() {
    local round ours=() theirs=() tp threads
    for ((round = 0; round < few; round++)); do
        for tp in 2 1; do
            threads=$((2 / tp))
            open_ours "$model-q8.gguf" --max-num-seqs 16 --tp $tp || return 0
            load warm --clients "$1" --requests "$1" --prompt-tokens 16 --answer-tokens 20 || return 0
            load run --clients "$1" --requests $((2 * $1)) --prompt-tokens 64 --answer-tokens 64 || return 0
            if [ $tp = 2 ]; then ours+=("$(of run output_tokens_per_s)"); else theirs+=("$(of run output_tokens_per_s)"); fi
            close_server
        done
    done
    row "serve/tp2-$1" tokens/s "one process of two threads" "$2" higher "${ours[@]}" -- "${theirs[@]}"
}
# run_memory: the most that was resident, compared with weights and pool.
run_memory() {
    local peak weights pool=$((256 << 20)) gguf=$model-q8.gguf
    open_ours "$gguf" --max-num-seqs 16 --kv-cache-memory $pool || return 0
    load run --clients 16 --requests 32 --prompt-tokens 128 --answer-tokens 32 || return 0
    peak=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$server/status")
    weights=$(stat -c %s "$gguf")
    close_server
    row serve/resident bytes "1.1 (weights + pool) + 64 MB" 1 lower "$peak" -- "$(each "1.1 * ($weights + $pool) + 64000000")"
}

: > "$out/server.log"
make_model || { note "cannot write the model"; exit 0; }
have_npm=true
find_npm || { note "no llama.cpp from npm (needs node, npm and the npm registry)"; have_npm=false; }
[ -z "$native" ] || [ -x "$native" ] || { note "BENCH_LLAMA_SERVER: '$native' is not a program"; native=; }
while read -r kind theirs path goal_1 goal_16 <&4; do
    wanted "serve/decode-$kind" "serve/clients16-$kind" || continue
    make_gguf "$theirs" || continue
    if [ "$goal_1" != - ] && wanted "serve/decode-$kind"; then
        run_clients "serve/decode-$kind" "$goal_1" $kind $theirs "$path" 1 16 128 $rounds
    fi
    if [ "$goal_16" != - ] && wanted "serve/clients16-$kind"; then
        run_clients "serve/clients16-$kind" "$goal_16" $kind $theirs "$path" 16 256 128 $few
    fi
done 4<< END
bf16 f16 $model 1.25 1.8
q8 q8 $model-q8.gguf 1.25 1.2
q4 q4 $model-q4.gguf 1.5 1.5
q4_k_m q4_k_m $model-q4_k_m.gguf 1.2 -
q8w q8w $model-q8w.gguf - 1.8
END
make_gguf q8 || exit 0
! wanted serve/after4096-q8 || run_long serve/after4096-q8 1.15
! wanted serve/ttft-cold-p95 || compare serve/ttft-cold-p95 ms 2 "" ttft_cold
! wanted serve/ttft-at-once || compare serve/ttft-at-once ms 6.667 "" ttft_at_once
! wanted serve/itl-p99-prefill || compare serve/itl-p99-prefill ms 4 "" itl_with_prefill
! wanted serve/start-cached || run_start 2.5
for clients in 1 16; do ! wanted serve/step-$clients || run_step $clients; done
! wanted serve/schedule-256 || run_schedule 256 0.0002
! wanted serve/schedule-1000 || run_schedule 1000 0.001
! wanted serve/prefix-trace || run_trace
! wanted serve/schema-16 || run_schema
! wanted serve/mask-p50 serve/mask-p99 || run_masks
! wanted serve/drafts-repetitive serve/drafts-other || run_all_drafts
! wanted serve/adapters-16 || run_adapters
for clients in 1 16; do ! wanted serve/tp2-$clients || run_ranks $clients 0.92; done
! wanted serve/resident || run_memory
! wanted serve/room || row serve/room-1000 share "4 percent" 1 lower "$("$BUILD/bench/serve_step" room 1000)" -- 0.04
