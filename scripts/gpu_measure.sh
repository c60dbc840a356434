#!/usr/bin/env bash
# Measures training and decoding on a machine with a GPU, from the folder that scripts/gpu_bundle.sh made, and prints one
# line of JSON for each. What a training run printed stays beside RESULTS, each line with the seconds since its start.
#
#   train SHAPE      steps of a model of drawn weights; SHAPE: 162m, 162m-8 (micro-batches of 8), 1.5b, 1.5b-1, 3.6b
#   profile SHAPE    the ops of a few steps, and their time
#   decode [PATTERN] tokens a second; PATTERN is a part of MODEL-TYPE-BATCH-CONTEXT, as 8B-bf16-64
#   hash RANKS       the quick start on several ranks that share the GPU; its state hash
# usage: gpu_measure.sh RESULTS STAGE [WORD]     STEPS (12) and LIMIT (120 s) may be set in the environment
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
results=$(realpath "$1") stage=$2 word=${3:-}
cd "$(dirname "$0")" || exit 2
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=${WORK:-/tmp/ashlar-measure}
steps=${STEPS:-12} limit=${LIMIT:-120}
mkdir -p "$work"

# One long document, so that no mask shortens attention.
data() {
    [ -d "$work/long" ] && return
    awk 'BEGIN { srand(1); split("the a was and to of it he she said dog cat sun play", w, " ")
        for (i = 0; i < 1200000; i++) printf " %s", w[1 + int(14 * rand())] }' > "$work/long.txt"
    ./ashlar data tokenize --tokenizer goldens/stories260K --eos none --out "$work/long" "$work/long.txt" > "$work/log" 2>&1 || cat "$work/log"
}
shape() {
    local wide="model.vocab=128256 model.kv_heads=8 model.ffn=8192 data.seq=4096"
    case $1 in
        162m | 162m-8) echo "model.hidden=768 model.layers=12 model.heads=12 model.ffn=2048 model.vocab=50304 data.seq=1024
            train.global_batch=32 train.micro_batch=$([ "$1" = 162m ] && echo 32 || echo 8)" ;;
        1.5b | 1.5b-1) echo "$wide model.hidden=2048 model.layers=16 model.heads=32 train.global_batch=4
            train.micro_batch=$([ "$1" = 1.5b ] && echo 4 || echo 1)" ;;
        3.6b) echo "$wide model.hidden=3072 model.layers=28 model.heads=24 train.global_batch=2 train.micro_batch=2" ;;
        *) echo "gpu_measure: there is no shape '$1'" >&2; return 1 ;;
    esac
}
# stamp: each line with the seconds since the start
stamp() {
    local start=${EPOCHREALTIME/./} line now
    while IFS= read -r line; do
        now=$((${EPOCHREALTIME/./} - start))
        printf '%4d.%02d %s\n' $((now / 1000000)) $((now / 10000 % 100)) "$line"
    done
}
# train SHAPE WORDS...: a run of the shape, in $work/run
train() {
    local words
    words=$(shape "$1") || return
    shift
    data
    rm -rf "$work/run"
    # shellcheck disable=SC2086
    timeout --signal=INT --kill-after=10 "$limit" ./ashlar train quickstart.yaml --out "$work/run" runtime.backend=cuda data.train="$work/long" \
        data.valid="$work/long" train.grains=1 train.precision=bf16 train.valid_every=0 train.save_every=0 train.hash_every=0 \
        model.tied=false model.init_std=0.02 model.max_positions=4096 optimizer.lr=3e-4 schedule.warmup=0 $words "$@" 2>&1
}
measure_train() {
    local out=${results%.*}-train-$1.txt start=$EPOCHREALTIME
    train "$1" train.steps="$steps" | stamp > "$out"
    sed -n 's/.*"tokens_per_s": *\([0-9.e+]*\).*/\1/p' "$work/run/log.jsonl" | tail -n +4 | sort -n |
        awk -v shape="$1" -v a="$start" -v b="$EPOCHREALTIME" -v tokens="$(case $1 in 162m*) echo 32768 ;; 1.5b*) echo 16384 ;; *) echo 8192 ;; esac)" '
            { rate[NR] = $1 }
            END { middle = rate[int((NR + 1) / 2)]; best = rate[NR]
                if (NR == 0) { print "{\"train\": \"" shape "\", \"error\": \"no steps\"}"; exit }
                printf "{\"train\": \"%s\", \"steps\": %d, \"ms\": %.1f, \"least_ms\": %.1f, \"tokens_per_s\": %.0f, \"run_s\": %.1f}\n",
                    shape, NR, tokens / middle * 1000, tokens / best * 1000, middle, b - a }' | tee -a "$results"
    grep -iE 'memory|error|device' "$out" | head -n 4
}
measure_profile() {
    train "$1" train.steps=6 --profile "$work/trace.json" > "${results%.*}-profile-$1.txt"
    sed -n '/ops/,$p' "${results%.*}-profile-$1.txt" | head -n 40
}
measure_hash() {
    local out=${results%.*}-hash-$1.txt
    [ -d "$work/train" ] || { ./ashlar data arithmetic --out "$work/train" --count 200k && ./ashlar data arithmetic --out "$work/valid" --count 4k --split valid --seed 2; } > "$work/log" 2>&1
    rm -rf "$work/ranks"
    timeout --kill-after=10 "$limit" ./ashlar launch --procs "$1" train quickstart.yaml --out "$work/ranks" runtime.backend=cuda runtime.ranks_per_gpu="$1" \
        data.train="$work/train" data.valid="$work/valid" 2>&1 | stamp > "$out"
    printf '{"ranks": %s, "state": "%s"}\n' "$1" "$(sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p' "$out" | tail -n 1)" | tee -a "$results"
}
case $stage in
    train | profile | hash) "measure_$stage" "${word:?a shape or a number of ranks}" ;;
    decode) timeout --kill-after=5 "$limit" ./gpu_decode "$word" | tee -a "$results" ;;
    *) echo "gpu_measure: there is no stage '$stage'" >&2; exit 2 ;;
esac
