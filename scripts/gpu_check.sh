#!/usr/bin/env bash
# Checks and measures the GPU backend on a machine with a GPU, from the folder that scripts/gpu_bundle.sh made.
#
#   facts        the GPU, the driver, what this build finds, whether the bits of its instructions are known
#   peaks        memory, products and copies: what everything else is measured against
#   conformance  every op against its reference, to the bit
#   goldens      the transformers library in float32; within 1e-2 in bf16; logits equal alone, in batches, in pieces and in the
#                trainer, and equal to the CPU's reference
#   ranks        2 and 4 processes on the GPU: calls, layouts of each family, a rank that is killed and one that leaves, memory
#                that comes back, rates
#   share        memory that one process writes and another reads after the first has gone
#   serve        ranks that share the GPU answer as one process; prefill apart from decode, a host tier below a GPU pool, a rank that is
#                killed; rates with 8 billion weights (gpu_serve.sh)
#   bits         training and text equal to the CPU's
#   steps        five steps of each family: micro-batches, recomputation, stop and resume, equal to the CPU's reference
#   sanitizer    compute-sanitizer over the test programs, parts of at most two minutes
#   losses       162 million weights, 2,000 steps from PyTorch's weights on its data: the same loss within 0.5 %
#   first        8 billion weights in bf16: from the page cache to the first token, and a prompt of 8,192 tokens
#   bench, peers our ops and PyTorch's
#   profile      where a training step and a decode step spend their time
#
# Each appends rows to RESULTS (JSON lines); what passed there is not run again. A part that takes too long is a failed row, and
# the others still run.
# usage: gpu_check.sh RESULTS [STAGE...]     (default: all)
# GPU_BACKEND (cuda) is what is checked: with ref-wgmma or apart the logic of this script runs anywhere. STEP_MODELS and
# SANITIZER_TESTS pick some models and programs.
set -uo pipefail
[ $# -gt 0 ] || { echo "usage: gpu_check.sh RESULTS [STAGE...]" >&2; exit 2; }
results=$(realpath "$1") || exit 2
shift
cd "$(dirname "$0")" || exit 2
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CMOCKA_MESSAGE_OUTPUT=stdout
touch "$results" || exit 2
backend=${GPU_BACKEND:-cuda}
status=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# row STAGE NAME ok|failed SECONDS
row() { printf '{"stage": "%s", "name": "%s", "result": "%s", "seconds": %s}\n' "$@" | tee -a "$results"; }
passed() { grep -qF "\"stage\": \"$1\", \"name\": \"$2\", \"result\": \"ok\"" "$results"; }
# attempt STAGE NAME LIMIT COMMAND...: unless it passed before; what it printed is shown where it fails
attempt() {
    local stage=$1 name=$2 limit=$3 start=$SECONDS out code=0
    shift 3
    if passed "$stage" "$name"; then return; fi
    out=$(timeout --kill-after=5 "$limit" "$@" 2>&1) || code=$?
    if [ $code = 0 ]; then
        row "$stage" "$name" ok $((SECONDS - start))
        return
    fi
    row "$stage" "$name" failed $((SECONDS - start))
    [ $code != 124 ] || echo "  it took longer than $limit s"
    { grep -E 'ERROR|error|FAIL|=========|differ|row [0-9]' <<< "$out" || tail -n 5 <<< "$out"; } | head -8 | sed 's/^/  /'
    status=1
}
# same STAGE NAME A B: a row that says whether two results are there and equal
same() {
    if [ -n "$3" ] && [ "$3" = "$4" ]; then
        row "$1" "$2" ok 0
    else
        row "$1" "$2" failed 0
        printf "  '%s' and '%s'\n" "$3" "$4"
        status=1
    fi
}
# What the CPU computes for the backend that is checked, in float32 and in bf16.
reference_of() { if [ "$1" = bf16 ] && [ "$backend" != apart ]; then echo ref-wgmma; else echo ref; fi; }

facts() {
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || echo "no nvidia-smi here"
    ./ashlar version | sed -n 's/^  gpu */ashlar: /p'
    [ "$backend" != cuda ] || timeout 60 ./ashlar check node --arithmetic --seconds 5 | grep ' arithmetic ' || true
}
# Rates of memory and of the host's link as `ashlar check` sees them, and the best of our products.
peaks() {
    local start=$SECONDS
    if passed peaks all; then return; fi
    if [ "$backend" = cuda ]; then
        timeout 60 ./ashlar check node --deep --seconds 3 --json > "$work/check" 2> "$work/err" || head -n 2 "$work/err"
        grep -o '"device rates[^}]*' "$work/check" | sed 's/^/  /'
        timeout 55 ./gpu gemm > "$work/peaks" 2> "$work/err" || head -n 2 "$work/err"
        timeout 30 ./gpu adamw >> "$work/peaks" 2> "$work/err" || head -n 2 "$work/err"
    else
        echo '{"op": "none", "tflops": 1}' > "$work/peaks"
    fi
    if grep -q tflops "$work/peaks"; then
        sed 's/^{/{"stage": "peaks", /' "$work/peaks" >> "$results"
        sed -n 's/.*"op": "\([a-z0-9_]*\)".*"tflops": \([0-9.]*\).*/\1 \2/p' "$work/peaks" |
            awk '$2 > most[$1] { most[$1] = $2 } END { for (op in most) print "  " op ": " most[op] " TFLOP/s at most" }'
        row peaks all ok $((SECONDS - start))
    else
        row peaks all failed $((SECONDS - start))
        status=1
    fi
}
conformance() {
    local test
    for test in tests/test_ops_* tests/test_wgmma tests/test_device_calls; do
        if [ -x "$test" ]; then attempt conformance "$(basename "$test")" 110 "$test"; fi
    done
}
# The lines of gpu_logits for one folder, computed by a backend.
logits() { (cd goldens && ../gpu_logits --backend "$1" --precision "$2" "$3"); }
# equal_logits PRECISION FOLDER: ours are all equal, near the library's, and the reference's
equal_logits() {
    local ours theirs
    ours=$(logits "$backend" "$1" "$2") || { echo "$ours"; return 1; }
    theirs=$(logits "$(reference_of "$1")" "$1" "$2") || { echo "the reference: $theirs"; return 1; }
    [ "$ours" = "$theirs" ] || { echo "error: '$ours' here, '$theirs' in the reference"; return 1; }
}
goldens() {
    local dir name precision
    export backend
    export -f logits equal_logits reference_of
    for dir in goldens/*; do
        name=$(basename "$dir")
        attempt goldens "$name" 60 ./golden --backend "$backend" "$dir"
        for precision in fp32 bf16; do
            attempt goldens "logits $precision $name" 60 bash -c 'equal_logits "$@"' - $precision "$name"
        done
    done
}
# data: token shards of arithmetic for all training stages
data() {
    [ -d "$work/train" ] && return
    ./ashlar data arithmetic --out "$work/train" --count 200k > "$work/log" 2>&1 &&
        ./ashlar data arithmetic --out "$work/valid" --count 4k --split valid --seed 2 >> "$work/log" 2>&1 || cat "$work/log"
}
state_in() { sed -n 's/.*state \([0-9a-f]\{16\}\).*/\1/p'; }
# state BACKEND KEY=VALUE...: the state hash that a short training run ends with; its last words where it has none
state() {
    local on=$1 out=$work/run-$1 said
    shift
    rm -rf "$out"
    said=$(timeout --kill-after=5 110 ./ashlar train quickstart.yaml --out "$out" data.train="$work/train" data.valid="$work/valid" \
        runtime.backend="$on" "$@" 2>&1)
    state_in <<< "$said" | grep . || tail -n 1 <<< "$said"
}
share() { attempt share "owners that exit and die" 60 ./gpu_share "$([ "$backend" = cuda ] && echo cuda || echo host)" 256; }
# The same bits on the GPU and on the CPU: training in float32 and bf16, and text.
bits() {
    local short="train.steps=40 train.valid_every=20 train.save_every=20 schedule.warmup=4" file
    local tiny="train.steps=3 train.valid_every=3 schedule.warmup=1 train.precision=bf16"
    data
    passed bits "train float32, 40 steps" || same bits "train float32, 40 steps" "$(state "$backend" $short)" "$(state cpu $short)"
    passed bits "train bf16, 3 steps" ||
        same bits "train bf16, 3 steps" "$(state "$backend" $tiny)" "$(state "$(reference_of bf16)" $tiny)"
    for file in gguf/*.gguf; do
        passed bits "text of $(basename "$file")" && continue
        same bits "text of $(basename "$file")" "$(text "$backend" "$file")" "$(text cpu "$file")"
    done
    passed bits "the quick start" || [ "$backend" != cuda ] || same bits "the quick start" "$(state cuda)" c71c8bdf1e1723cc
}
text() {
    timeout 60 ./ashlar generate --model "$2" --backend "$1" --prompt Once --max-tokens 48 --temperature 0 2> "$work/err" ||
        head -n 1 "$work/err"
}
# Five steps of a model folder in bf16, from its weights: the reference's state, whatever the micro-batch, recomputation and stops.
family_steps() {
    local dir=$1 name vocab settings expected found variant out=$work/family
    name=$(basename "$dir")
    vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$dir/config.json" | head -n 1)
    [ "${vocab:-0}" -ge 16 ] || { echo "error: $name has a vocabulary of '${vocab:-}'"; return 1; }
    settings="model.from=$dir data.seq=16 train.steps=5 train.global_batch=8 train.grains=2 train.micro_batch=4 train.save_every=0
        train.valid_every=0 train.hash_every=1 schedule.warmup=1 optimizer.lr=1e-3 train.precision=bf16"
    expected=$(state "$(reference_of bf16)" $settings)
    [[ $expected =~ ^[0-9a-f]{16}$ ]] || { echo "error: the reference: $expected"; return 1; }
    for variant in train.micro_batch=4 "train.micro_batch=1 train.recompute=full" "train.micro_batch=2 train.recompute=selective"; do
        found=$(state "$backend" $settings $variant)
        [ "$found" = "$expected" ] || { echo "error: $variant: '$found' instead of '$expected'"; return 1; }
    done
    # stopped after three steps: the last checkpoint is taken away, and the run goes on from the one before
    rm -rf "$out"
    ./ashlar train quickstart.yaml --out "$out" data.train="$work/train" data.valid="$work/valid" runtime.backend="$backend" \
        $settings train.save_every=3 > "$work/err" 2>&1 || { tail -n 1 "$work/err"; return 1; }
    rm -rf "$out/checkpoints/step-000005" "$out/model"
    found=$(./ashlar train --resume --out "$out" 2>&1 | state_in)
    [ "$found" = "$expected" ] || { echo "error: resumed: '$found' instead of '$expected'"; return 1; }
}
steps() {
    local dir
    data
    export backend work
    export -f family_steps state state_in reference_of
    for dir in ${STEP_MODELS:-goldens/*}; do
        [ -e "$dir/tokenizer.json" ] && [ ! -e "$dir/reference.safetensors" ] && continue
        attempt steps "five steps of $(basename "$dir")" 110 bash -c 'family_steps "$1"' - "$PWD/$dir"
    done
}
# rank_state PROCS KEY=VALUE...: as state, of some ranks that share the GPU
rank_state() {
    local procs=$1 out=$work/ranks said
    shift
    rm -rf "$out"
    said=$(timeout --kill-after=5 100 ./ashlar launch --procs "$procs" train quickstart.yaml --out "$out" data.train="$work/train" \
        data.valid="$work/valid" runtime.backend="$backend" runtime.ranks_per_gpu="$procs" "$@" 2>&1)
    if [ $# -gt 0 ] && [[ " $* " != *group.staged* ]] && [ "$backend" = cuda ] && grep 'go through host memory' <<< "$said"; then return; fi
    state_in <<< "$said" | grep . || tail -n 1 <<< "$said"
}
# Three steps of a family in drawn layouts: the state of one process.
family_ranks() {
    local dir=$1 vocab settings expected found layout procs precision
    local two=(mesh.dp=2 "mesh.fsdp=2 mesh.zero=1" "mesh.fsdp=2 mesh.zero=2" "mesh.fsdp=2 mesh.zero=3" "mesh.dp=2 group.staged=true")
    local four=(mesh.dp=4 "mesh.dp=2 mesh.fsdp=2 mesh.zero=3" "mesh.fsdp=4 mesh.zero=1" "mesh.fsdp=4 mesh.zero=3 train.recompute=full")
    vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$dir/config.json" | head -n 1)
    [ "${vocab:-0}" -ge 16 ] || { echo "error: a vocabulary of '${vocab:-}'"; return 1; }
    RANDOM=$(cksum <<< "${RANKS_SEED:-1} $dir" | cut -d' ' -f1)
    precision=$([ $((RANDOM % 2)) = 0 ] && echo fp32 || echo bf16)
    settings="model.from=$dir data.seq=16 train.steps=3 train.global_batch=8 train.grains=4 train.micro_batch=2 train.save_every=0
        train.valid_every=0 train.hash_every=1 schedule.warmup=1 optimizer.lr=1e-3 train.precision=$precision"
    expected=$(state "$backend" $settings)
    [[ $expected =~ ^[0-9a-f]{16}$ ]] || { echo "error: one process: $expected"; return 1; }
    for procs in 2 4; do
        [ $procs = 2 ] && layout=${two[RANDOM % ${#two[@]}]} || layout=${four[RANDOM % ${#four[@]}]}
        found=$(rank_state $procs $settings $layout)
        [ "$found" = "$expected" ] || { echo "error: $precision, $layout: '$found' instead of '$expected'"; return 1; }
    done
}
# The other axes, of one model.
axes() {
    local settings="train.steps=3 train.global_batch=8 train.grains=4 train.micro_batch=2 train.save_every=0 train.valid_every=0
        train.hash_every=1 schedule.warmup=1 model.hidden=64 model.heads=4 model.kv_heads=4 model.layers=4 model.ffn=256
        model.vocab=64 runtime.threads=1" expected found layout
    expected=$(state "$backend" $settings)
    [[ $expected =~ ^[0-9a-f]{16}$ ]] || { echo "error: one process: $expected"; return 1; }
    for layout in "2 mesh.tp=2" "2 mesh.cp=2" "2 mesh.pp=2 mesh.interleave=2" "4 mesh.tp=2 mesh.fsdp=2 mesh.zero=3" "4 mesh.pp=2 mesh.dp=2" \
        "4 mesh.tp=2 mesh.cp=2"; do
        found=$(rank_state $layout $settings)
        [ "$found" = "$expected" ] || { echo "error: $layout: '$found' instead of '$expected'"; return 1; }
    done
}
# until_says SECONDS PATTERN FILE
until_says() {
    local end=$((SECONDS + $1))
    until grep -qs -- "$2" "$3"; do
        [ $SECONDS -lt $end ] || { echo "error: '$2' does not come: $(tail -n 3 "$3")"; return 1; }
        sleep 0.05
    done
}
state_of_steps() { # FOLDER: the state of its last checkpoint
    local last
    last=$(ls -d "$1"/checkpoints/step-* | tail -n 1)
    grep -o '"state_hash": *"[0-9a-f]*"' "$last/manifest.json" | grep -o '[0-9a-f]\{16\}'
}
# killed ZERO: of three ranks one is killed and comes back, then one leaves; the state is that of one process, and no step is lost
killed() {
    local out=$work/killed steps launcher code expected
    local settings="train.steps=1000000 train.valid_every=0 train.hash_every=100 schedule.kind=constant schedule.warmup=0 train.grains=4
        train.save_every=0
        data.seq=32 train.global_batch=4 runtime.threads=1
        data.train=$work/train data.valid=$work/valid"
    rm -rf "$out" "$work/straight"
    ./ashlar launch --procs 3 --restarts 3 train quickstart.yaml --out "$out" $settings runtime.backend="$backend" runtime.ranks_per_gpu=3 \
        mesh.fsdp=3 mesh.zero="$1" > "$work/killed.out" 2> "$work/killed.err" < /dev/null &
    launcher=$!
    until_says 60 '"step":10,' "$out/log.jsonl" || { kill -9 $launcher; return 1; }
    kill -9 "$(pgrep -P $launcher | sed -n 2p)"
    until_says 60 '3 ranks continue' "$work/killed.err" || { kill -9 $launcher; return 1; }
    kill -TERM "$(pgrep -P $launcher | sed -n 1p)"
    until_says 60 '1 rank leaves; 2 ranks continue' "$work/killed.err" || { kill -9 $launcher; return 1; }
    kill -TERM $launcher
    wait $launcher
    code=$?
    [ $code = 75 ] || { echo "error: it ends with $code: $(tail -n 3 "$work/killed.err")"; return 1; }
    grep -q '"lost_steps": 0' "$out/ledger.json" || { echo "error: steps are lost"; return 1; }
    steps=$(grep -c '"step"' "$out/log.jsonl")
    ./ashlar train quickstart.yaml --out "$work/straight" $settings runtime.backend="$backend" train.steps="$steps" > "$work/log" 2>&1 ||
        { tail -n 2 "$work/log"; return 1; }
    expected=$(state_of_steps "$work/straight")
    [ -n "$expected" ] && [ "$(state_of_steps "$out")" = "$expected" ] ||
        { echo "error: after $steps steps '$(state_of_steps "$out")' instead of '$expected'"; return 1; }
}
# Memory of the GPU comes back after ranks that use it were killed.
given_back() {
    local before launcher
    used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
    before=$(used)
    rm -rf "$work/gone"
    ./ashlar launch --procs 4 train quickstart.yaml --out "$work/gone" data.train="$work/train" data.valid="$work/valid" train.steps=1000000 \
        train.grains=4 schedule.kind=constant mesh.dp=4 runtime.backend="$backend" runtime.ranks_per_gpu=4 > "$work/log" 2>&1 < /dev/null &
    launcher=$!
    until_says 60 '"step":20,' "$work/gone/log.jsonl" || { kill -9 $launcher; return 1; }
    echo "$before MiB used before, $(used) MiB while four ranks train"
    kill -9 $(pgrep -P $launcher) $launcher
    wait $launcher 2> /dev/null
    for _ in $(seq 100); do [ "$(used)" -le $((before + 16)) ] && return; sleep 0.1; done
    echo "error: $before MiB were used before, $(used) MiB ten seconds after the ranks were killed"
    return 1
}
# Rates of calls between windows and through the host, and of a step shared by two processes.
rank_rates() {
    local procs staged op out
    for procs in 2 4; do
        for op in all_reduce reduce_scatter all_gather all_to_all; do
            for staged in false true; do
                [ $staged = false ] || [ $op = all_reduce ] || continue
                out=$(timeout 60 ./ashlar bench collective --op $op --gpu --procs $procs --min 1ki --max 256mi --factor 64 --rounds 3 --json \
                    group.staged=$staged 2>&1) || { tail -n 1 <<< "$out"; return 1; }
                grep -q '"wrong":[^0]' <<< "$out" && { echo "error: $op between $procs ranks is wrong"; return 1; }
                grep '^{' <<< "$out" | sed "s/^{/{\"stage\": \"ranks\", \"staged\": $staged, /" >> "$results"
            done
        done
    done
}
# tokens_per_s COMMAND...: the median of a run's last steps
tokens_per_s() {
    rm -rf "$work/rate"
    "$@" --out "$work/rate" > "$work/log" 2>&1 || { tail -n 2 "$work/log" >&2; return 1; }
    grep -o '"tokens_per_s":[0-9.]*' "$work/rate/log.jsonl" | cut -d: -f2 | tail -n 9 | sort -g | sed -n 5p
}
shared_step() {
    local settings="data.train=$work/train data.valid=$work/valid runtime.backend=$backend train.precision=bf16 train.steps=${RATE_STEPS:-24}
        train.valid_every=0 train.save_every=0 train.hash_every=0 schedule.warmup=1 data.seq=1024 train.global_batch=32 train.grains=2
        train.micro_batch=16 ${RATE_MODEL:-model.hidden=768 model.layers=12 model.heads=12 model.ffn=2048 model.max_positions=1024}" one two
    one=$(tokens_per_s ./ashlar train quickstart.yaml $settings) || return 1
    two=$(tokens_per_s ./ashlar launch --procs 2 train quickstart.yaml $settings mesh.dp=2 runtime.ranks_per_gpu=2) || return 1
    printf '{"stage": "ranks", "op": "dp=2 of two processes beside one", "one": %s, "two": %s}\n' "$one" "$two" | tee -a "$results"
}
ranks() {
    local dir zero
    data
    export backend work results RANKS_SEED
    export -f state state_in rank_state family_ranks axes until_says state_of_steps killed given_back rank_rates tokens_per_s shared_step
    attempt ranks "calls" 110 tests/test_device_calls
    attempt ranks "axes" 110 bash -c axes
    for zero in 1 2 3; do attempt ranks "one of three killed, one leaves, zero $zero" 110 bash -c "killed $zero"; done
    if [ "$backend" = cuda ] && command -v nvidia-smi > /dev/null; then
        attempt ranks "memory comes back" 110 bash -c given_back
        attempt ranks "rates of calls" 300 bash -c rank_rates
        attempt ranks "a step of two processes" 110 bash -c shared_step
    fi
    for dir in ${STEP_MODELS:-goldens/*}; do
        [ -e "$dir/tokenizer.json" ] && [ ! -e "$dir/reference.safetensors" ] && continue
        attempt ranks "layouts of $(basename "$dir")" 110 bash -c 'family_ranks "$1"' - "$PWD/$dir"
    done
}
# A model with a tokenizer for each kind of weights; SERVE_MODELS picks some. Rates need the large one.
serve() {
    local path name
    export GPU_BACKEND=$backend
    for path in ${SERVE_MODELS:-goldens/stories260K gguf/*.gguf}; do
        name=$(basename "$path")
        attempt serve "two ranks, $name" 110 ./gpu_serve.sh "$results" ranks "$path" --tp 2
    done
    path=${SERVE_MODELS:-goldens/stories260K}
    path=${path%% *}
    attempt serve "two stages" 110 ./gpu_serve.sh "$results" ranks "$path" --pp 2
    attempt serve "four ranks, two stages" 110 ./gpu_serve.sh "$results" ranks "$path" --tp 2 --pp 2
    attempt serve "a rank is killed" 110 ./gpu_serve.sh "$results" lost "$path"
    attempt serve "a host tier" 110 ./gpu_serve.sh "$results" tier "$path"
    attempt serve "prefill apart from decode" 110 ./gpu_serve.sh "$results" roles "$path"
    if [ "${SERVE_RATES:-1}" = 0 ] || passed serve "rates"; then return; fi
    model_8b serve "rates" && attempt serve "rates" 400 ./gpu_serve.sh "$results" rates "$(dir_8b)"
}
# Bad accesses and races of every kernel (one runs some hundred times slower under it).
sanitizer() {
    local test tool
    command -v compute-sanitizer > /dev/null || { echo "gpu_check: no compute-sanitizer here"; return; }
    for test in ${SANITIZER_TESTS:-tests/test_*}; do
        for tool in memcheck racecheck; do
            [ $tool = memcheck ] || [ "$(basename "$test")" != test_ops_attn ] || continue # two minutes are not enough for that
            attempt sanitizer "$tool $(basename "$test")" 115 \
                compute-sanitizer --tool $tool --error-exitcode 9 --launch-timeout 0 "$test"
        done
    done
    attempt sanitizer "memcheck training" 115 compute-sanitizer --tool memcheck --error-exitcode 9 ./gpu_logits --precision bf16 goldens/llama-gqa
}
bench() { { timeout 60 ./gpu "${BENCH_PATTERN:-}"; timeout 60 ./gpu_decode "${BENCH_PATTERN:-}"; } | sed 's/^{/{"stage": "bench", /' | tee -a "$results"; }
peers() { timeout 115 python3 peers/gpu_ops.py | sed 's/^{/{"stage": "peers", /' | tee -a "$results"; }
# Two programs train the same weights on the same sequences in the same order. Each has a part of two minutes.
losses() {
    local dir=${LOSS_DIR:-/tmp/ashlar-losses} theirs ours
    if passed losses "2,000 steps"; then return; fi
    if ! [ -e "$dir/data/train/manifest.json" ]; then
        timeout 100 python3 peers/gpu_loss.py prepare "$dir" > "$work/log" 2>&1 &&
            ./ashlar data tokenize --tokenizer goldens/stories260K --eos none --out "$dir/data/train" "$dir/text.txt" >> "$work/log" 2>&1 &&
            cp goldens/stories260K/tokenizer.json "$dir/model/" || { tail -n 3 "$work/log"; row losses "2,000 steps" failed 0; status=1; return; }
    fi
    [ -s "$dir/theirs" ] || timeout 118 python3 peers/gpu_loss.py train "$dir" 2000 > "$dir/theirs" 2> "$work/err" || tail -n 3 "$work/err"
    rm -rf "$work/losses"
    timeout 118 ./ashlar train quickstart.yaml --out "$work/losses" runtime.backend="$backend" model.from="$dir/model" \
        data.train="$dir/data/train" data.seq=1024 train.steps=2000 train.global_batch=8 train.grains=1 train.micro_batch=8 \
        train.precision=bf16 train.valid_every=0 train.save_every=0 optimizer.lr=3e-4 optimizer.beta2=0.95 optimizer.weight_decay=0 \
        optimizer.clip=0 schedule.kind=constant schedule.warmup=0 > "$work/err" 2>&1 || tail -n 3 "$work/err"
    ours=$(sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$work/losses/log.jsonl" | tail -n 100 | awk '{ sum += $1 } END { if (NR == 100) print sum / NR }')
    theirs=$(sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$dir/theirs")
    echo "{\"stage\": \"losses\", \"op\": \"train_loss\", \"ours\": ${ours:-null}, \"theirs\": ${theirs:-null}}" | tee -a "$results"
    if awk -v a="${ours:-0}" -v b="${theirs:-0}" 'BEGIN { exit !(a > 0 && b > 0 && a < b * 1.005) }'; then
        row losses "2,000 steps" ok 0
    else
        row losses "2,000 steps" failed 0
        status=1
    fi
}
dir_8b() { echo "${MODEL_8B:-/tmp/ashlar-8b}"; }
# model_8b STAGE NAME: 8 billion random weights in the page cache, or a failed row
model_8b() {
    local dir
    dir=$(dir_8b)
    [ -e "$dir/tokenizer.json" ] || { timeout 118 python3 peers/random_model.py "$dir" > "$work/log" 2>&1 && cp goldens/stories260K/tokenizer.json "$dir/"; } ||
        { tail -n 3 "$work/log"; row "$1" "$2" failed 0; status=1; return 1; }
    cat "$dir"/*.safetensors > /dev/null
}
# A prompt of 8,192 tokens is made of one-token words; --raw adds none.
first() {
    local dir out
    dir=$(dir_8b)
    if passed first "8B"; then return; fi
    model_8b first "8B" || return
    for ((i = 0; i < 8191; i++)); do printf ' the'; done > "$work/prompt"
    for out in "short --prompt Once --max-tokens 32" "again --prompt Once --max-tokens 32" "long --prompt-file $work/prompt --max-tokens 1"; do
        local start=$EPOCHREALTIME name=${out%% *}
        timeout 60 ./ashlar generate --model "$dir" --backend "$backend" --precision bf16 --raw --temperature 0.8 --top-p 0.95 --json \
            ${out#* } > "$work/out" 2> "$work/err" || { tail -n 2 "$work/err"; row first "8B" failed 0; status=1; return; }
        printf '{"stage": "first", "op": "%s", "seconds": %s, "timings": %s}\n' "$name" \
            "$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" \
            "$(sed -n 's/.*"usage":\({[^}]*}\),"timings":\({[^}]*}\).*/[\1, \2]/p' "$work/out")" | tee -a "$results"
    done
    row first "8B" ok 0
}
# Tables of ops; the traces stay beside RESULTS.
profile() {
    local out=${results%.*}
    data
    attempt profile "a training run" 110 ./ashlar train quickstart.yaml --out "$work/profiled" data.train="$work/train" \
        data.valid="$work/valid" runtime.backend="$backend" train.steps=20 train.valid_every=0 train.save_every=0 schedule.warmup=2 \
        train.precision=bf16 --profile "$out-train.json"
    attempt profile "text" 60 ./ashlar generate --model "$(ls gguf/*.gguf | head -n 1)" --backend "$backend" --prompt Once \
        --max-tokens 64 --profile "$out-text.json"
}

[ $# -gt 0 ] || set -- facts peaks conformance goldens share ranks serve bits steps losses first sanitizer bench peers profile
for stage in "$@"; do
    case $stage in
        facts | peaks | conformance | goldens | share | ranks | serve | bits | steps | losses | first | sanitizer | bench | peers | profile) "$stage" ;;
        *) echo "gpu_check: there is no stage '$stage'" >&2; exit 2 ;;
    esac
done
exit $status
