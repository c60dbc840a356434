#!/usr/bin/env bash
# One part of the stage `serve` of gpu_check.sh: servers whose weights and caches are in GPU memory. It exits with 0, or says what
# is wrong.
#
#   ranks MODEL FLAG...  ranks that share the GPU answer as one process does; FLAG...: how they share the model
#   lost MODEL           a rank is killed: its streams end with its name, and the GPU has its memory back
#   tier MODEL           pages that leave a small pool come back from host memory: the answers of one with a large pool
#   roles MODEL          a prefill and a decode server on the GPU: the answers of one server, from pages that were read
#   rates MODEL          appends rows to RESULTS: one process, two ranks, a known prefix from host memory, prefill apart
#
# usage: gpu_serve.sh RESULTS PART MODEL [FLAG...], in a folder with ./ashlar
# GPU_BACKEND (cuda) computes. SERVE_WORDS (250) are those of a prompt, SERVE_LONG (8000) the tokens of the long prompts of
# `rates`, SERVE_REQUESTS (64) and SERVE_ANSWER (64) its load.
set -uo pipefail
results=$1 part=$2 model=$3
shift 3
backend=${GPU_BACKEND:-cuda}
words=${SERVE_WORDS:-250}
long=${SERVE_LONG:-8000}
work=$(mktemp -d)
declare -A pids ports
finish() {
    for name in "${!pids[@]}"; do kill -KILL "${pids[$name]}" 2> /dev/null; done
    wait 2> /dev/null
    rm -rf "$work"
}
trap finish EXIT
die() { echo "error: $*"; exit 1; }

# start NAME WORD...: a server or router; then it listens, and a server has its weights
start() {
    local name=$1 word=$2 end=$((SECONDS + 100)) said='listening on .* port [0-9]'
    shift
    [ "$word" = route ] || said='ready after'
    : > "$work/$name.log"
    ./ashlar "$@" --port 0 > "$work/$name.out" 2> "$work/$name.log" < /dev/null &
    pids[$name]=$!
    until grep -q "$said" "$work/$name.log"; do
        kill -0 "${pids[$name]}" 2> /dev/null || die "$name has ended: $(tail -n 2 "$work/$name.log")"
        [ $SECONDS -lt $end ] || die "$name is not ready: $(tail -n 2 "$work/$name.log")"
        sleep 0.05
    done
    ports[$name]=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' "$work/$name.log" | head -n 1)
}
serve() { start "$1" serve --model "$model" --backend "$backend" "${@:2}"; }
# stop NAME...
stop() {
    local name
    for name in "$@"; do
        kill -TERM "${pids[$name]}"
        wait "${pids[$name]}" || die "$name ends with $?: $(tail -n 2 "$work/$name.log")"
        unset "pids[$name]"
    done
}
# send NAME METHOD PATH BODY: the whole reply
send() {
    exec 3<> "/dev/tcp/127.0.0.1/${ports[$1]}" || die "$1 cannot be reached"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$2" "$3" "${#4}" "$4" >&3
    timeout 100 cat <&3
    exec 3>&-
}
# choices NAME BODY: what was answered, without times and names
choices() { send "$1" POST /v1/completions "$2" | grep -oE '"choices":.*"usage"' || echo "no answer"; }
# metric NAME WORDS: the sum of the samples that begin so
metric() { send "$1" GET /metrics '' | awk -v words="$2" 'index($0, words) == 1 { sum += $NF } END { print sum + 0 }'; }
# story WORD COUNT: a text of COUNT words that begins with WORD
story() { awk -v word="$1" -v count="$2" 'BEGIN { printf "%s", word; for (i = 1; i < count; i++) printf " the" }'; }
request() { printf '{"prompt": "%s", "max_tokens": %d, "seed": %d, "temperature": %s, "logprobs": 2, "n": %d}' "$@"; }
# answers NAME: a few requests at once, then the first one again
answers() {
    local i asks=()
    local bodies=("$(request "Once upon a time" $((words / 10)) 1 0 1)" "$(request "$(story Lily $((words / 3)))" $((words / 20)) 2 0.9 2)"
        "$(request "One day" $((words / 15)) 3 1 1)" "$(request "$(story Once $words)" 4 4 0 1)")
    for i in "${!bodies[@]}"; do
        choices "$1" "${bodies[i]}" > "$work/answer.$i" &
        asks+=($!)
    done
    wait "${asks[@]}"
    cat "$work"/answer.?
    choices "$1" "${bodies[0]}"
}
# compare WHAT FILE FILE
compare() {
    grep -q '"choices"' "$2" && ! grep -q 'no answer' "$2" || die "$1: $(head -c 300 "$2") $(tail -n 2 "$work"/*.log)"
    cmp -s "$2" "$3" || die "$1: answers differ: $(diff "$2" "$3" | head -c 600)"
}

ranks() {
    local precision
    for precision in fp32 bf16; do
        serve one --precision $precision
        answers one > "$work/one.txt"
        stop one
        serve several --precision $precision --ranks-per-gpu 8 "$@"
        answers several > "$work/several.txt"
        compare "$precision $*" "$work/one.txt" "$work/several.txt"
        [ "$backend" != cuda ] || ! grep 'go through host memory' "$work/several.log" || die "ranks do not read each other's memory"
        stop several
    done
}
# The error of a pool that is too small says how large a page is.
page_bytes() {
    local said
    said=$(./ashlar serve --model "$model" --backend "$backend" --kv-cache-memory 1 --port 0 2>&1 < /dev/null)
    sed -n 's/.* no room for a page of \([0-9]*\) bytes.*/\1/p' <<< "$said" | grep . || echo 0
}
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2> /dev/null | head -n 1; }
lost() {
    local before client rank
    before=$(used)
    serve ranks --tp 2 --ranks-per-gpu 2
    send ranks POST /v1/completions '{"prompt": "Once", "max_tokens": 480, "ignore_eos": true, "stream": true}' > "$work/stream" &
    client=$!
    until grep -q '"text"' "$work/stream"; do kill -0 $client 2> /dev/null || die "no stream: $(tail -n 2 "$work/stream")"; sleep 0.02; done
    rank=$(pgrep -P "${pids[ranks]}" | tail -n 1)
    kill -KILL "$rank"
    wait $client
    grep -q '"error".*rank 1' "$work/stream" || die "the stream does not name the rank: $(tail -n 3 "$work/stream" | head -c 300)"
    wait "${pids[ranks]}" && die "the server ended well"
    unset "pids[ranks]"
    [ -n "$before" ] || return 0
    for _ in $(seq 100); do [ "$(used)" -le $((before + 16)) ] && return; sleep 0.1; done
    die "$before MiB were used before, $(used) MiB ten seconds after the rank was killed"
}
# Three stories in turn, for a pool that has room for two.
turns() { local i; for i in 1 2 3 1 2 3; do choices "$1" "$(request "$(story "Tale $i" "$words")" 6 1 0 1)"; done; }
tier() {
    local page
    serve large
    turns large > "$work/large.txt"
    stop large
    page=$(page_bytes)
    [ "$page" -gt 0 ] || die "the size of a page is not known"
    serve small --kv-cache-memory $((2 * (words / 64 + 1) * page)) --kv-host-memory $((200 * page)) --max-num-seqs 2
    turns small > "$work/small.txt"
    compare "a host tier" "$work/large.txt" "$work/small.txt"
    [ "$(metric small 'ashlar_kv_tier_hit_tokens_total{')" -gt 0 ] || die "no page came from host memory"
    stop small
}
# pair FLAG...: two servers behind a router, until that knows both roles, and pages have names on both sides. Large models need flags:
# the first server would leave the second one no memory for its pool.
pair() {
    local end=$((SECONDS + 60)) i=0
    serve prefill --role prefill "$@"
    serve decode --role decode "$@"
    start route route --apart-blocks 1 --to "http://127.0.0.1:${ports[prefill]},http://127.0.0.1:${ports[decode]}"
    until [ "$(metric route ashlar_route_prefilled_total)" -gt 0 ]; do
        [ $SECONDS -lt $end ] || die "no prompt is prefilled: $(tail -n 2 "$work/route.log")"
        choices route "$(request "$(story "Try $((i++))" "$words")" 1 1 0 1)" > "$work/try"
    done
}
roles() {
    serve one
    turns one > "$work/one.txt"
    stop one
    pair
    turns route > "$work/apart.txt"
    compare "prefill apart" "$work/one.txt" "$work/apart.txt"
    [ "$(metric decode 'ashlar_kv_tier_hit_tokens_total{')" -gt 0 ] || die "the decode server read no page"
    stop route decode prefill
}
seconds() { local begin=$EPOCHREALTIME; "$@" > "$work/timed" || return 1; grep -q '"choices"' "$work/timed" || die "$(head -c 300 "$work/timed")"
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }
# load NAME: figures of a load, as a row
load() {
    ./ashlar bench serve --url "http://127.0.0.1:${ports[$1]}" --requests "${SERVE_REQUESTS:-64}" --clients 16 --prompt-tokens 256 \
        --answer-tokens "${SERVE_ANSWER:-64}" --json "$work/load.json" > "$work/load.out" 2>&1 || die "$1: $(tail -n 2 "$work/load.out")"
    printf '{"stage": "serve", "op": "load on %s", "figures": %s}\n' "$1" \
        "$(sed '/"slo"/,$d' "$work/load.json" | tr -d '\n ' | sed 's/,$/}/')" | tee -a "$results"
}
row() { printf '{"stage": "serve", "op": "%s", "seconds": %s}\n' "$@" | tee -a "$results"; }
rates() {
    local tale other page
    tale=$(request "$(story Once "$long")" 1 1 0 1) other=$(request "$(story Twice "$long")" 1 1 0 1)
    serve one
    load one
    row "a prompt of $long tokens" "$(seconds choices one "$tale")"
    row "the same again, from the pool" "$(seconds choices one "$tale")"
    stop one
    page=$(page_bytes)
    serve ranks --tp 2 --ranks-per-gpu 2
    load ranks
    row "a prompt of $long tokens, two ranks" "$(seconds choices ranks "$tale")"
    stop ranks
    serve tiers --kv-cache-memory $(((long / 64 + 8) * page)) --kv-host-memory $((long / 16 * page))
    choices tiers "$tale" > "$work/first"
    for _ in 1 2 3; do
        choices tiers "$other" > "$work/between"
        row "a prefix of $long tokens, from host memory" "$(seconds choices tiers "$tale")"
        choices tiers "$other" > "$work/between"
    done
    stop tiers
    pair --kv-cache-memory $(((long / 32 + 64) * page)) --prefill-memory $(((long / 16 + 64) * page))
    row "a prompt of $long tokens, prefill apart" "$(seconds choices route "$tale")"
    load route
    stop route decode prefill
}

case $part in
    ranks | lost | tier | roles | rates) "$part" "$@" ;;
    *) die "there is no part '$part'" ;;
esac
