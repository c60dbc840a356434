#!/usr/bin/env bash
# Post-training. Adapters (rank 16, all matrices) on a Llama of 0.3e9 random bf16 weights, compared with training all of them: the most
# memory that a run holds (resident, with what is mapped of the base), and its steps; the same over a 4-bit base. Fine-tuning GPT-2 124M
# with a quarter of the rows as targets, compared with all rows, and how full packed sequences are. A step of GRPO compared with one that
# has a second forward pass over the answers, as old log-probabilities would need, and with one in PyTorch; what of it hands weights over.
# Settings: BENCH_ROUNDS; BENCH_STEPS (of a run).
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
rounds=${BENCH_ROUNDS:-2} steps=${BENCH_STEPS:-4} dir=$BUILD/bench-post
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
# Answers of a quarter of their prompt's length and more, drawn from a fixed seed.
awk 'BEGIN { srand(7); for (i = 0; i < 3000; i++) { n = 8 + int(rand() * 28); p = ""; c = ""
    for (k = 0; k < 3 * n; k++) p = p (k % 4 == 3 ? " " : int(rand() * 10)); for (k = 0; k < n; k++) c = c int(rand() * 10)
    printf "{\"prompt\": \"%s=\", \"completion\": \"%s\"}\n", p, c } }' > "$dir/rows.jsonl"

# run NAME COMMAND...: its steps' median seconds to $seconds, and the megabytes that it held at most to $peak.
run() {
    local name=$1 pid held=0
    shift
    rm -rf "$dir/run"
    "$@" --out "$dir/run" train.steps="$steps" train.save_every=0 train.hash_every=0 > "$dir/$name.out" 2> "$dir/$name.err" &
    pid=$!
    peak=0
    while kill -0 $pid 2> /dev/null; do
        held=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/$pid/status 2> /dev/null || true)
        [ "${held:-0}" -le "$peak" ] || peak=$held
        sleep 0.05
    done
    wait $pid || { note "post: $name failed: $(tail -n 1 "$dir/$name.err")"; return 1; }
    peak=$(awk "BEGIN { print $peak / 1000 }")
    seconds=$(grep -o '"time_s":[0-9.]*' "$dir/run/log.jsonl" | cut -d: -f2 | awk 'NR > 1 { print $1 - last } { last = $1 }' | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
}

if wanted post/lora-memory post/lora-step post/q4-memory post/q4-step; then
    "$BUILD/bench/random_llama" "$dir/llama" 4 > /dev/null
    "$ASHLAR" data chat --tokenizer "$dir/llama" --out "$dir/llama-rows" "$dir/rows.jsonl" > /dev/null
    job=(model.from="$dir/llama" data.train="$dir/llama-rows" data.seq=256 train.global_batch=1 train.grains=1 train.precision=bf16)
    echo "{}" > "$dir/empty.yaml"
    full=() lora=() quant=() full_mb=() lora_mb=() quant_mb=()
    for _ in $(seq "$rounds"); do
        run full "$ASHLAR" sft "$dir/empty.yaml" "${job[@]}"
        full+=("$seconds") full_mb+=("$peak")
        run lora "$ASHLAR" sft "$dir/empty.yaml" "${job[@]}" lora.rank=16 lora.targets=all-linear
        lora+=("$seconds") lora_mb+=("$peak")
        run q4 "$ASHLAR" sft "$dir/empty.yaml" "${job[@]}" lora.rank=16 lora.targets=all-linear model.quant=q4
        quant+=("$seconds") quant_mb+=("$peak")
    done
    row post/lora-memory MB "all weights trained" 4 lower "${lora_mb[@]}" -- "${full_mb[@]}"
    row post/lora-step s "all weights trained" 1.333 lower "${lora[@]}" -- "${full[@]}"
    row post/q4-memory MB "all weights trained" 6.667 lower "${quant_mb[@]}" -- "${full_mb[@]}"
    row post/q4-step s "adapters on bf16" 0.769 lower "${quant[@]}" -- "${lora[@]}"
    rm -rf "$dir/llama"
fi

if wanted post/sft-quarter post/packing; then
    "$ASHLAR" data arithmetic --out "$dir/sums" --count 1000 > /dev/null
    "$ASHLAR" data chat --tokenizer "$dir/sums" --out "$dir/gpt2-rows" "$dir/rows.jsonl" > /dev/null
    cat > "$dir/gpt2.yaml" << YAML
model: {type: gpt2, vocab: 50257, hidden: 768, layers: 12, heads: 12, max_positions: 1024}
data: {train: $dir/gpt2-rows, seq: 512}
train: {global_batch: 2, grains: 1, precision: bf16}
YAML
    few=() all=()
    for _ in $(seq "$rounds"); do
        run all "$ASHLAR" sft "$dir/gpt2.yaml" sft.train_on=all
        all+=("$seconds")
        run few "$ASHLAR" sft "$dir/gpt2.yaml"
        few+=("$seconds")
    done
    row post/sft-quarter s "all rows as targets" 1.176 lower "${few[@]}" -- "${all[@]}"
    row post/packing % "full sequences" 0.98 higher "$(grep -oE '[0-9.]+ % filled' "$dir/few.out" | cut -d' ' -f1)" -- 100
fi

# Steps of GRPO on the quick-start model, as `make rl` makes them.
grpo=("$ASHLAR" rl "$SOURCE/examples/rl.yaml" model.from="$dir/start/model" rollout.eval_every=0 schedule.warmup=0)
if wanted post/grpo-{second-forward,32x8,64x16,handover}; then
    "$ASHLAR" data arithmetic --out "$dir/train" --count 20000 --mistakes 0.75 > /dev/null
    "$ASHLAR" train "$SOURCE/examples/quickstart.yaml" --out "$dir/start" data.train="$dir/train" data.valid="$dir/train" train.steps=300 train.save_every=0 train.valid_every=0 > /dev/null 2>&1
    steps=$((5 * steps))
fi

if wanted post/grpo-second-forward; then
    alone=() second=()
    for _ in $(seq "$rounds"); do
        run alone "${grpo[@]}"
        alone+=("$seconds")
        run second "${grpo[@]}" rl.max_kl=1e6
        second+=("$seconds")
    done
    row post/grpo-second-forward s "the same with a second forward pass" 1.176 lower "${alone[@]}" -- "${second[@]}"
fi

# compare_grpo PROMPTS SAMPLES: answers that a second of steps samples and learns from.
compare_grpo() {
    local prompts=$1 samples=$2 ours=() theirs=() answers=$(($1 * $2))
    for _ in $(seq "$rounds"); do
        run grpo "${grpo[@]}" rl.prompts_per_step="$prompts" rl.samples="$samples"
        ours+=("$(awk "BEGIN { print $answers / $seconds }")")
        [ -z "$python" ] || theirs+=("$(awk "BEGIN { print $answers / $("$python" "$SOURCE/bench/peers/grpo_step.py" "$dir/start/model" "$prompts" "$samples" "$steps" "$(nproc)") }")")
    done
    row "post/grpo-${prompts}x$samples" answers/s "PyTorch" 2 higher "${ours[@]}" -- "${theirs[@]}"
}
if wanted post/grpo-{32x8,64x16}; then
    python=$(find_torch) || { apt_get python3-torch && python=$(find_torch); } || { note "no PyTorch: rows without it"; python=''; }
    # Debian's takes the BLAS that is there; the reference one makes a step eight times as long.
    ! command -v dpkg > /dev/null || dpkg -s libopenblas0-pthread > /dev/null 2>&1 || apt_get libopenblas0-pthread || { note "no OpenBLAS: rows without PyTorch"; python=''; }
    if wanted post/grpo-32x8; then compare_grpo 32 8; fi
    if wanted post/grpo-64x16; then compare_grpo 64 16; fi
fi

# What handing weights over to the sampler takes of a step, where two ranks share the policy.
if wanted post/grpo-handover; then
    handed=() whole=()
    for _ in $(seq "$rounds"); do
        run handover "$ASHLAR" launch --procs 2 "${grpo[@]:1}" mesh.fsdp=2 runtime.threads=1
        handed+=("$(sed -n 's/.*"handover_s":\([0-9.e-]*\).*/\1/p' "$dir/run/curves.jsonl" | tail -n 1 | awk "{ print \$1 / $steps }")")
        whole+=("$seconds")
    done
    row post/grpo-handover s "a step" 100 lower "${handed[@]}" -- "${whole[@]}"
fi

# A task of four choices, compared with a task that has each choice with a context of its own: all as long, and none begins like another.
if wanted post/choices; then
    "$BUILD/bench/random_llama" "$dir/llama" 4 > /dev/null
    awk -v one="$dir/one.jsonl" -v each="$dir/each.jsonl" 'BEGIN { srand(7); for (i = 0; i < 12; i++) { p = ""
        for (k = 0; k < 200; k++) p = p int(rand() * 10)
        printf "{\"context\": \"%d %s\"}\n", i % 10, p > one
        for (k = 0; k < 4; k++) printf "{\"context\": \"%d %s\", \"choice\": \"%d\"}\n", k + 4 * (i % 2), p, k > each } }'
    printf '%s\n' 'task: one' 'dataset_path: json' "dataset_kwargs: {data_files: $dir/one.jsonl}" 'output_type: multiple_choice' 'doc_to_text: context' \
        'doc_to_choice: ["0", "1", "2", "3"]' 'doc_to_target: "0"' > "$dir/one.yaml"
    printf '%s\n' 'task: each' 'dataset_path: json' "dataset_kwargs: {data_files: $dir/each.jsonl}" 'output_type: loglikelihood' 'doc_to_text: context' \
        'doc_to_target: choice' > "$dir/each.yaml"
    shared=() anew=()
    # seconds_of TASK: what it takes, with the start of the program.
    seconds_of() {
        local start=$EPOCHREALTIME
        "$ASHLAR" eval --model "$dir/llama" --tasks "$dir/$1.yaml" > "$dir/$1.out" 2>&1 || note "post: $1 failed: $(tail -n 1 "$dir/$1.out")"
        awk "BEGIN { print $EPOCHREALTIME - $start }"
    }
    for _ in $(seq "$rounds"); do
        shared+=("$(seconds_of one)")
        anew+=("$(seconds_of each)")
    done
    row post/choices s "each context computed anew" 2.5 lower "${shared[@]}" -- "${anew[@]}"
    rm -rf "$dir/llama"
fi
