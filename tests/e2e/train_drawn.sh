#!/usr/bin/env bash
# Models and layouts drawn from a seed: each layout is refused with a reason, or gives the bits of one process.
# DRAWN_SEED=7 DRAWN_LAYOUTS=1000 DRAWN_NODES=4 tests/e2e/train_drawn.sh looks further than the suite has time for,
# also on up to four nodes, and says what it drew when bits differ (SOURCE, BUILD, ASHLAR and SCRATCH as in tests/CMakeLists.txt).
# DRAWN_WORDS="runtime.backend=apart": on ranks whose memory the host cannot touch.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
layouts=${DRAWN_LAYOUTS:-18}
case $BUILD in *address*) layouts=${DRAWN_LAYOUTS:-4} ;; esac
RANDOM=${DRAWN_SEED:-1}
same=0 refused=0 nodes=1 most_nodes=${DRAWN_NODES:-1} words=${DRAWN_WORDS:-}
# what is drawn
type=llama heads=1 dim=1 group=1 hidden=1 layers=1 ffn=1 vocab=1 tied=true experts=1 grains=1 in_grain=1 seq=1 precision=fp32 clip=0
for split in train valid; do
    "$ASHLAR" data arithmetic --out "$SCRATCH/$split" --count 600 --split $split > "$SCRATCH/out" 2>&1 || fail "data: $(cat "$SCRATCH/out")"
done

# draw NAME WORD...: NAME becomes one of the words.
draw() {
    local name=$1
    shift
    printf -v "$name" %s "${@:RANDOM % $# + 1:1}"
}
# draw_divisor NAME NUMBER MOST: likewise, a divisor of the number.
draw_divisor() {
    local all=() d
    for ((d = 1; d <= $2 && d <= $3; d++)); do [ $(($2 % d)) -ne 0 ] || all+=("$d"); done
    draw "$1" "${all[@]}"
}

# Sizes that no tile, page or share divides evenly are among them.
draw_job() {
    draw type llama mistral qwen2 qwen3 gpt2 mixtral qwen3_moe
    draw heads 2 3 4 6 8
    draw dim 8 10 16 32
    draw_divisor group "$heads" 2 # query heads of a key-value head
    draw hidden 40 64 70 96 130
    draw layers 1 2 3 4 5 6
    draw ffn 33 64 100 160
    draw vocab 16 64 97 131 300
    draw tied true false
    draw experts 2 3 4 6
    draw grains 1 2 3 4 6
    draw in_grain 1 2 3
    draw seq 31 64 65 100 129 192
    draw precision fp32 bf16
    draw clip 0 1
    local attention="head_dim: $dim, kv_heads: $((heads / group))" moe=
    if [ "$type" = gpt2 ]; then
        hidden=$((heads * dim)) tied=true attention="kv_heads: 0"
    fi
    case $type in mixtral | qwen3_moe) moe=", experts: $experts" ;; *) experts=1 ;; esac
    cat > "$SCRATCH/job.yaml" << YAML
model: {type: $type, hidden: $hidden, layers: $layers, heads: $heads, $attention, ffn: $ffn, vocab: $vocab, tied: $tied$moe}
data: {train: $SCRATCH/train, valid: $SCRATCH/valid, seq: $seq}
train: {steps: 4, global_batch: $((grains * in_grain)), grains: $grains, valid_every: 2, valid_batches: 1, save_every: 0, hash_every: 1, precision: $precision}
optimizer: {lr: 0.01, clip: $clip}
schedule: {warmup: 1}
YAML
}

# Mostly layouts that can be; $procs is how many ranks they have.
draw_mesh() {
    local dp=1 fsdp=1 ep=1 tp=1 pp=1 cp=1 zero=1 interleave=1 recompute=none micro_batch=1
    draw_divisor dp "$grains" 3
    draw_divisor fsdp $((grains / dp)) 3
    draw_divisor ep $((grains / dp / fsdp)) 3
    [ $((experts % ep)) -eq 0 ] || ep=1
    draw_divisor tp "$((heads / group))" 4
    draw pp 1 1 2 3
    draw cp 1 1 2 3
    draw zero 1 2 3
    [ "$pp" -eq 1 ] || draw interleave 1 1 2
    draw recompute none selective full
    draw_divisor micro_batch "$in_grain" 3
    procs=$((dp * fsdp * ep * tp * pp * cp))
    nodes=1
    [ "$most_nodes" -eq 1 ] || draw_divisor nodes "$procs" "$most_nodes" # cut anywhere, also between ranks of tp
    mesh=(mesh.dp="$dp" mesh.fsdp="$fsdp" mesh.ep="$ep" mesh.tp="$tp" mesh.pp="$pp" mesh.cp="$cp" mesh.zero="$zero"
        mesh.interleave="$interleave" train.recompute="$recompute" train.micro_batch="$micro_batch" runtime.threads=1)
}

bits_of() { grep -o '"step":[0-9]*\|"loss_bits":"[0-9a-f]*"\|"state_hash":"[0-9a-f]*"\|"valid_loss":[0-9.e+-]*' "$SCRATCH/$1/log.jsonl"; }

check_layout() {
    rm -rf "$SCRATCH/many"
    try "$ASHLAR" launch --procs "$procs" --nodes "$nodes" train "$SCRATCH/job.yaml" --out "$SCRATCH/many" "${mesh[@]}" $words
    if [ "$code" -eq 2 ] && grep -q 'error: ' "$SCRATCH/err" && ! grep -q 'internal error' "$SCRATCH/err" && [ ! -e "$SCRATCH/many/log.jsonl" ]; then
        refused=$((refused + 1))
    elif [ "$code" -ne 0 ]; then
        fail "exit code $code of ${mesh[*]} on $nodes nodes: $(tail -n 4 "$SCRATCH/err")" "$(cat "$SCRATCH/job.yaml")"
    elif bits_of one | cmp -s - <(bits_of many) && cmp -s "$SCRATCH/one/model/model.safetensors" "$SCRATCH/many/model/model.safetensors"; then
        same=$((same + 1))
    else
        fail "other bits with ${mesh[*]} on $nodes nodes" "$(cat "$SCRATCH/job.yaml")"
    fi
}

models=0
while [ $((same + failures)) -lt "$layouts" ] && [ "$models" -lt $((20 * layouts)) ]; do
    models=$((models + 1))
    draw_job
    rm -rf "$SCRATCH/one"
    try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/one"
    expect 0 "$(cat "$SCRATCH/job.yaml")"
    for _ in 1 2 3; do
        draw_mesh
        [ "$procs" -eq 1 ] || [ "$procs" -gt 8 ] || check_layout
    done
done
echo "$same layouts of $models models have the bits of one process, $refused were refused"
[ $((same + failures)) -ge "$layouts" ] || fail "nearly all layouts were refused"
finish
