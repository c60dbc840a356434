#!/usr/bin/env bash
# A 1.1e9-parameter Llama with random weights: prefill of 512 tokens and of 8 (which is what a step of a batch of 8 takes), decode
# of 128 and time to the first token, compared with llama.cpp on the same weights (ours in bf16, its in F16, which are as many bytes;
# q8, q4 and q8w, which is Q8_0 to it, from the same GGUF file; q4_k_m from a file that its own quantiser made of the F16 one).
# llama.cpp comes from npm and, where BENCH_LLAMA names a native build's llama-bench, from there too: a row takes the better of
# the two and says which it was. All take turns. BENCH_LAYERS=N makes a smaller model: to try this script, not to compare.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
. "$SOURCE/bench/lib/models.sh"
rounds=${BENCH_ROUNDS:-5} threads=$(nproc) prefill=512 few=8 decode=128 native=${BENCH_LLAMA:-}

# ---- llama.cpp, twice

# native_label: what BENCH_LLAMA is.
native_label() {
    local library
    library=$(ldd "$native" 2> /dev/null | awk '/libggml-cpu/ { print $3 }')
    echo "llama.cpp (native build, $(instructions "${library:-$native}"))"
}

# native_rate GGUF FLAGS...: tokens per second of one test, after its own warm-up.
native_rate() {
    local gguf=$1
    shift
    timeout "$ASK_LIMIT_S" "$native" -m "$gguf" -t "$threads" -r 1 -o json "$@" 2>> "$BUILD/bench-llama.err" |
        grep -oE '"avg_ts": [0-9.]+' | head -n 1 | grep -oE '[0-9.]+$'
}

# ---- rows

# rates COUNT SECONDS...: per second.
rates() {
    local count=$1 value
    shift
    for value in "$@"; do awk "BEGIN { print $count / $value }"; done
}

row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }

median() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print NR == 0 ? 0 : (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# compare NAME UNIT SUFFIX GOAL higher|lower: a row of ${ours[@]} and the better of ${theirs_npm[@]} and ${theirs_native[@]}.
compare() {
    local name=$1 unit=$2 suffix=$3 goal=$4 better=$5 label=$label_npm theirs=("${theirs_npm[@]}")
    local a b
    a=$(median "${theirs_npm[@]}") b=$(median "${theirs_native[@]}")
    if [ ${#theirs_native[@]} -gt 0 ] && { [ ${#theirs_npm[@]} -eq 0 ] ||
        awk "BEGIN { exit !(\"$better\" == \"higher\" ? $b > $a : $b < $a) }"; }; then
        label=$label_native theirs=("${theirs_native[@]}")
    fi
    [ ${#theirs_npm[@]} -eq 0 ] || [ ${#theirs_native[@]} -eq 0 ] || note "$name: npm's llama.cpp $a, native $b"
    row "$name" "$unit" "$label $suffix" "$goal" "$better" "${ours[@]}" -- "${theirs[@]}"
}

# bandwidth: what the machine reads per second, in 1e9 bytes, measured now.
bandwidth() {
    rm -f "$BUILD/bench-bandwidth.jsonl"
    "$BUILD/bench/machine" "$BUILD/bench-bandwidth.jsonl" "$rounds" 2> /dev/null
    grep -oE '"name":"machine/read-[^}]*"ours":[0-9.]+' "$BUILD/bench-bandwidth.jsonl" | sed 's/.*"ours"://' | sort -g | tail -n 1
}

# measure NAME WHAT COUNT ROUND: one turn each; round 0 is the warm-up. Appends to ours_NAME, npm_NAME and native_NAME.
measure() {
    local -n to_ours=ours_$1 to_npm=npm_$1 to_native=native_$1
    local flags=(-p "$3" -n 0)
    [ "$2" = prefill ] || flags=(-p 0 -n "$3")
    ask ours "$2 $3" || return 1
    [ "$4" -eq 0 ] || to_ours+=("$(rates "$3" "$answer")")
    if $asks_npm; then
        ask npm "$2 $3" || return 1
        [ "$4" -eq 0 ] || to_npm+=("$(rates "$3" "$answer")")
    fi
    if [ -n "$native" ] && [ "$4" -gt 0 ]; then
        answer=$(native_rate "$gguf" "${flags[@]}") && to_native+=("$answer") || note "llama-bench failed: see bench-llama.err"
    fi
}

# run_type OURS THEIRS PATH BYTES PREFILL_GOAL DECODE_GOAL: prefill and decode rows of one weight type; THEIRS names the file.
run_type() {
    local kind=$1 path=$3 bytes=$4 goal_p=$5 goal_d=$6 gguf=$model-$2.gguf weights round suffix asks_npm=false
    local ours_prefill=() ours_few=() ours_decode=() npm_prefill=() npm_few=() npm_decode=()
    local native_prefill=() native_few=() native_decode=()
    local label_npm='' label_native='' ours theirs_npm theirs_native
    suffix=$(type_name "$2")
    ask_open ours "$BUILD/bench/infer" "$path" "$threads" || { note "no $kind rows"; return 0; }
    weights=${answer%% *}
    if $have_npm && ask_open npm node "$SOURCE/bench/llama_peer.mjs" "$npm" "$gguf" "$threads"; then
        asks_npm=true label_npm=$(npm_label "$answer")
    fi
    [ -z "$native" ] || label_native=$(native_label)
    for ((round = 0; round <= rounds; round++)); do
        measure prefill prefill $prefill $round && measure few prefill $few $round && measure decode decode $decode $round || break
    done
    ask_close ours
    ! $asks_npm || ask_close npm
    [ ${#ours_decode[@]} -gt 0 ] || return 0
    ours=("${ours_prefill[@]}") theirs_npm=("${npm_prefill[@]}") theirs_native=("${native_prefill[@]}")
    compare "llama/prefill-$kind" tokens/s "$suffix" "$goal_p" higher
    ours=("${ours_few[@]}") theirs_npm=("${npm_few[@]}") theirs_native=("${native_few[@]}")
    compare "llama/prefill$few-$kind" tokens/s "$suffix" 0 higher
    ours=("${ours_decode[@]}") theirs_npm=("${npm_decode[@]}") theirs_native=("${native_decode[@]}")
    compare "llama/decode-$kind" tokens/s "$suffix" "$goal_d" higher
    row "llama/decode-$kind-bandwidth" GB/s "read bandwidth, measured" 0.85 higher \
        $(for value in "${ours_decode[@]}"; do awk "BEGIN { print $weights * $bytes * $value / 1e9 }"; done) -- "$read_gbs"
}

# seconds COMMAND...: how long it took.
seconds() {
    local start
    start=$(date +%s%N)
    "$@" > /dev/null 2>> "$BUILD/bench-llama.err" || return 1
    awk "BEGIN { print ($(date +%s%N) - $start) / 1e9 }"
}

# forget FILE...: out of the page cache.
forget() {
    local file
    for file in "$@"; do
        sync "$file"
        dd if="$file" iflag=nocache count=0 status=none
    done
}

# run_start KIND THEIRS PATH WEIGHTS cached|cold GOAL: from nothing to the first token of 16. Ours and the native build from the start
# of the process, npm's from loading on: Node.js's own start is not llama.cpp's.
run_start() {
    local kind=$1 gguf=$model-$2.gguf path=$3 weights=$4 state=$5 goal=$6 round value suffix
    local ours=() theirs_npm=() theirs_native=() label_npm="llama.cpp (npm, without starting Node.js)" label_native='' precision=()
    [ "$kind" != bf16 ] || precision=(--precision bf16)
    suffix=$(type_name "$2")
    [ -z "$native" ] || label_native=$(native_label)
    [ "$state" = cold ] || cat "$weights" "$gguf" > /dev/null # ours reads a cold file past the page cache
    for ((round = 0; round <= rounds; round++)); do
        [ "$state" = cached ] || forget "$weights"
        value=$(seconds "$ASHLAR" generate --model "$path" --prompt abcdefghijklmnop --raw --max-tokens 1 --temperature 0 \
            "${precision[@]}" --threads "$threads") || { note "generate failed: $(tail -n 1 "$BUILD/bench-llama.err")"; return 0; }
        ((round == 0)) || ours+=("$value")
        if $have_npm; then
            [ "$state" = cached ] || forget "$gguf"
            value=$(node "$SOURCE/bench/llama_peer.mjs" "$npm" "$gguf" "$threads" first 2>> "$BUILD/bench-llama.err") || continue
            ((round == 0)) || theirs_npm+=("$value")
        fi
        if [ -n "$native" ]; then
            [ "$state" = cached ] || forget "$gguf"
            value=$(seconds "$native" -m "$gguf" -t "$threads" -r 1 -p 16 -n 0 --no-warmup -o json) || continue
            ((round == 0)) || theirs_native+=("$value")
        fi
    done
    compare "llama/start-$kind-$state" s "$suffix" "$goal" lower
}

: > "$BUILD/bench-llama.err"
make_model || { note "cannot write the model"; exit 0; }
have_npm=true
find_npm || { note "no llama.cpp from npm (needs node, npm and the npm registry)"; have_npm=false; }
[ -z "$native" ] || [ -x "$native" ] || { note "BENCH_LLAMA: '$native' is not a program"; native=; }
read_gbs=$(bandwidth)
names() { echo "llama/"{prefill,prefill$few,decode}"-$1" "llama/decode-$1-bandwidth"; }
# kind, the peer's type, our model, its weights, bytes a weight, goals of prefill and decode
while read -r kind theirs path weights bytes goal_p goal_d <&3; do
    wanted $(names $kind) "llama/start-$kind-"{cached,cold} || continue
    make_gguf "$theirs" || continue
    if wanted $(names $kind); then run_type $kind $theirs "$path" $bytes $goal_p $goal_d; fi
    for state in cached cold; do
        if wanted "llama/start-$kind-$state"; then run_start $kind $theirs "$path" "$weights" $state 2; fi
    done
done 3<< END
bf16 f16 $model $model/model.safetensors 2 2 1.2
q8 q8 $model-q8.gguf $model-q8.gguf 1.0625 2 1.2
q4 q4 $model-q4.gguf $model-q4.gguf 0.5625 1.8 1.6
q8w q8w $model-q8w.gguf $model-q8w.gguf 1.015625 2 1.2
q4_k_m q4_k_m $model-q4_k_m.gguf $model-q4_k_m.gguf 0.61 1.5 1.2
END
