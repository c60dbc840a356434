#!/usr/bin/env bash
# A 1.1e9-parameter Llama with random weights: prefill of 512 tokens, decode of 128 and time to the first token, beside
# llama.cpp on the same weights (ours in bf16 beside its F16, which are as many bytes; Q8_0 and Q4_0 from the same file).
# Both stay up and take turns. The files take 6 GB in build/bench-models; they are made once.
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
rounds=${BENCH_ROUNDS:-5} threads=$(nproc) prefill=512 decode=128
models=$BUILD/bench-models npm=$BUILD/bench-npm
folder=$models/llama-1b

# make_model: the Hugging Face folder; make_gguf TYPE: the file for the peer. Written under another name first: a run may
# be stopped.
make_model() {
    [ -d "$folder" ] && return 0
    note "writing random weights"
    rm -rf "$folder.new"
    mkdir -p "$models"
    "$BUILD/bench/random_llama" "$folder.new" && mv "$folder.new" "$folder"
}
make_gguf() {
    [ -f "$models/$1.gguf" ] && return 0
    note "writing $1.gguf"
    "$BUILD/bench/gguf_write" "$folder" "$models/$1.gguf.new" "$1" && mv "$models/$1.gguf.new" "$models/$1.gguf"
}

# find_peer: llama.cpp as npm has it, with all its CPU libraries (it chooses the best for this machine itself).
find_peer() {
    local arch
    case $(uname -m) in aarch64) arch=arm64 ;; x86_64) arch=x64 ;; *) return 1 ;; esac
    command -v node > /dev/null && command -v npm > /dev/null || return 1
    [ -d "$npm/node_modules/@node-llama-cpp/linux-$arch" ] && return 0
    note "installing node-llama-cpp"
    mkdir -p "$npm"
    (cd "$npm" && npm install --ignore-scripts --no-audit --no-fund node-llama-cpp "@node-llama-cpp/linux-$arch") \
        > "$npm.log" 2>&1
}

# rates COUNT SECONDS...: per second.
rates() {
    local count=$1 value
    shift
    for value in "$@"; do awk "BEGIN { print $count / $value }"; done
}

row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }

# bandwidth: what the machine reads per second, in 1e9 bytes, measured now.
bandwidth() {
    rm -f "$BUILD/bench-bandwidth.jsonl"
    "$BUILD/bench/machine" "$BUILD/bench-bandwidth.jsonl" "$rounds" 2> /dev/null
    grep -oE '"name":"machine/read-[^}]*"ours":[0-9.]+' "$BUILD/bench-bandwidth.jsonl" | sed 's/.*"ours"://' | sort -g | tail -n 1
}

# run_type OURS THEIRS GGUF PATH BYTES PREFILL_GOAL DECODE_GOAL: prefill and decode rows of one weight type.
run_type() {
    local kind=$1 theirs=$2 gguf=$3 path=$4 bytes=$5 goal_p=$6 goal_d=$7
    local peer='' weights round op_p=() op_d=() tp_p=() tp_d=()
    ask_open ours "$BUILD/bench/infer" "$path" "$threads" || { note "no $kind rows"; return 0; }
    weights=${answer%% *}
    if $have_peer && make_gguf "$gguf"; then
        ask_open peer node "$SOURCE/bench/llama_peer.mjs" "$npm" "$models/$gguf.gguf" "$threads" && peer="$answer $theirs"
    fi
    for ((round = 0; round <= rounds; round++)); do # round 0 is the warm-up
        ask ours "prefill $prefill" || break
        ((round == 0)) || op_p+=("$answer")
        if [ -n "$peer" ]; then
            ask peer "prefill $prefill" || break
            ((round == 0)) || tp_p+=("$answer")
        fi
        ask ours "decode $decode" || break
        ((round == 0)) || op_d+=("$answer")
        if [ -n "$peer" ]; then
            ask peer "decode $decode" || break
            ((round == 0)) || tp_d+=("$answer")
        fi
    done
    ask_close ours
    [ -z "$peer" ] || ask_close peer
    [ ${#op_d[@]} -gt 0 ] || return 0
    row "llama/prefill-$kind" tokens/s "$peer" "$goal_p" higher $(rates $prefill "${op_p[@]}") -- $(rates $prefill "${tp_p[@]}")
    row "llama/decode-$kind" tokens/s "$peer" "$goal_d" higher $(rates $decode "${op_d[@]}") -- $(rates $decode "${tp_d[@]}")
    row "llama/decode-$kind-bandwidth" GB/s "read bandwidth, measured" 0.85 higher \
        $(rates "$(awk "BEGIN { print $weights * $bytes * $decode / 1e9 }")" "${op_d[@]}") -- "$read_gbs"
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

# run_start NAME GOAL FORGET: from nothing to the first token, ours from the start of the process.
run_start() {
    local name=$1 goal=$2 forget=$3 round value ours=() theirs=()
    for ((round = 0; round <= rounds; round++)); do
        ! $forget || forget "$folder/model.safetensors"
        value=$(seconds "$ASHLAR" generate --model "$folder" --prompt abcdefghijklmnop --raw --max-tokens 1 --temperature 0 \
            --precision bf16 --threads "$threads") || { note "generate failed: $(tail -n 1 "$BUILD/bench-llama.err")"; return 0; }
        ((round == 0)) || ours+=("$value")
        $have_peer || continue
        ! $forget || forget "$models/f16.gguf"
        value=$(node "$SOURCE/bench/llama_peer.mjs" "$npm" "$models/f16.gguf" "$threads" first \
            2>> "$BUILD/bench-llama.err") || continue
        ((round == 0)) || theirs+=("$value")
    done
    row "llama/$name" s "llama.cpp (npm) F16, without starting Node.js" "$goal" lower "${ours[@]}" -- "${theirs[@]}"
}

: > "$BUILD/bench-llama.err"
make_model || { note "cannot write the model"; exit 0; }
have_peer=true
find_peer || { note "no llama.cpp (needs node, npm and the npm registry): rows without it"; have_peer=false; }
read_gbs=$(bandwidth)
names() { echo "llama/"{prefill,decode}"-$1" "llama/decode-$1-bandwidth"; }
if wanted $(names bf16); then run_type bf16 F16 f16 "$folder" 2 2 1.2; fi
for kind in q8 q4; do
    wanted $(names $kind) && make_gguf ${kind}_0 || continue
    if [ $kind = q8 ]; then run_type q8 Q8_0 q8_0 "$models/q8_0.gguf" 1.0625 2 1.2; fi
    if [ $kind = q4 ]; then run_type q4 Q4_0 q4_0 "$models/q4_0.gguf" 0.5625 1.8 1.6; fi
done
$have_peer && make_gguf f16 || have_peer=false
if wanted llama/start-cached; then run_start start-cached 2 false; fi
if wanted llama/start-cold; then run_start start-cold 2 true; fi
