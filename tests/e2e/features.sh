#!/usr/bin/env bash
# The README's table of features is what the program does: each row runs on the CPU, on a device whose memory the host cannot touch
# (backend apart: a GPU's place in a machine without one), and as two ranks; "yes" succeeds, "no" is refused.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
short=(train.steps=2 train.global_batch=4 train.grains=2 schedule.warmup=0)
train base "${short[@]}"
expect 0 "the base model"
base=$SCRATCH/base/model
for i in $(seq 40); do
    echo "{\"prompt\": \"$i+5=\", \"completion\": \"$((i + 5))\"}" >> "$SCRATCH/chat.jsonl"
    echo "{\"prompt\": \"$i+5=\", \"chosen\": \"$((i + 5))\", \"rejected\": \"$i\"}" >> "$SCRATCH/pairs.jsonl"
done
for name in chat pairs; do
    try "$ASHLAR" data chat --tokenizer "$base" --out "$SCRATCH/$name" "$SCRATCH/$name.jsonl"
    expect 0 "$name"
done
try "$ASHLAR" model convert "$base" "$SCRATCH/q8" --quant q8
expect 0 "a quantised model"
echo "data: {seq: 32}" > "$SCRATCH/post.yaml"

# steps METHOD JOB [settings]: two steps of it on $where.
steps() {
    local method=$1 job=$2 how=()
    shift 2
    [ "$where" = ranks ] && how=(launch --procs 2)
    rm -rf "$SCRATCH/run"
    try "$ASHLAR" "${how[@]}" "$method" "$SCRATCH/$job" --out "$SCRATCH/run" "${short[@]}" runtime.backend="$backend" "$@"
}
post() { local method=$1; shift; steps "$method" post.yaml model.from="$base" "$@"; }
# say MODEL: a few tokens of it on $where.
say() {
    local ranks=()
    [ "$where" = ranks ] && ranks=(--tp 2)
    try "$ASHLAR" generate --model "$1" --backend "$backend" --prompt 1+1= --max-tokens 2 "${ranks[@]}"
}
chat=(data.train="$SCRATCH/chat") pairs=(data.train="$SCRATCH/pairs")
rows=0
# row LABEL COMMAND...: succeeds where the README says yes.
row() {
    local label=$1 cells cell
    shift
    IFS='|' read -r -a cells < <(grep -F "| $label |" "$SOURCE/README.md")
    [ ${#cells[@]} -ge 5 ] || { fail "README.md: no row '$label'"; return; }
    rows=$((rows + 1))
    for where in cpu gpu ranks; do
        case $where in cpu) cell=${cells[2]} backend=cpu ;; gpu) cell=${cells[3]} backend=apart ;; ranks) cell=${cells[4]} backend=cpu ;; esac
        "$@"
        case ${cell// /} in
            yes) [ "$code" -eq 0 ] || fail "$label, $where: the README says yes: $(tail -n 1 "$SCRATCH/err")" ;;
            no) [ "$code" -ne 0 ] || fail "$label, $where: the README says no, and it works" ;;
            *) fail "$label, $where: neither yes nor no: '$cell'" ;;
        esac
    done
}
answer() { # a server of a model on $where, with flags for an adapter `a`, that answers once
    local ranks=() of=''
    [ "$where" = ranks ] && ranks=(--tp 2)
    [ $# -gt 1 ] && of='"model": "a", '
    start_server --model "$1" --backend "$backend" "${ranks[@]}" "${@:2}" || { code=1; return; }
    try curl -sSf "http://127.0.0.1:$port/v1/completions" -d "{$of\"prompt\": \"1+1=\", \"max_tokens\": 2}"
    stop_server TERM
}
row 'Train from scratch (`train`)' steps train job.yaml
row 'Fine-tune all weights (`sft`)' post sft "${chat[@]}"
row 'Adapters (`lora.rank`)' post sft "${chat[@]}" lora.rank=4
row 'Learn from pairs (`dpo`, `reward`)' post dpo "${pairs[@]}"
row 'Learn from pairs (`dpo`, `reward`)' post reward "${pairs[@]}"
row 'Distil (`distill`)' post distill "${chat[@]}" distill.teacher="$base"
row 'Reinforcement learning (`rl`)' post rl rl.prompts=arithmetic rl.rewards=arithmetic rl.prompts_per_step=4 rl.samples=4 rollout.max_prompt_tokens=8 rollout.max_tokens=5
row 'Text and evaluation (`generate`, `eval`)' say "$base"
row 'Server (`serve`)' answer "$base"
row 'GGUF and quantised weights' answer "$SCRATCH/q8"
rm -rf "$SCRATCH/run"
where=cpu backend=cpu post sft "${chat[@]}" lora.rank=4
mv "$SCRATCH/run/model" "$SCRATCH/adapter"
row 'Adapters in answers' answer "$base" --lora-modules "a=$SCRATCH/adapter"
[ "$rows" -ge 11 ] || fail "only $rows rows were tried"
finish
