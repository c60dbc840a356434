#!/usr/bin/env bash
# ashlar train: the same bits for any number of threads and any micro-batch, with recomputation or without, in fp32 and bf16;
# and the other commands take what a run leaves.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1

# the reference of the default backend, which may multiply bf16 in an arithmetic of its own
case $("$ASHLAR" version | sed -n 's/^ *backends *//p') in
    neon-bf16,*) reference=ref-bfmmla ;;
    amx,*) reference=ref-tdpbf16 ;;
    *) reference=ref ;;
esac
for precision in fp32 bf16; do
    train "$precision-1" runtime.threads=1 train.precision=$precision
    expect 0 "$precision, 1 thread"
    bits_of "$precision-1" > "$SCRATCH/expected"
    same "$precision: lines of the log" 40 "$(steps_of "$precision-1")"
    for variant in "runtime.threads=2" "runtime.threads=3 train.micro_batch=1" "runtime.threads=5 train.recompute=full" \
        "train.recompute=selective runtime.backend=$reference"; do
        train "$precision-other" $variant train.precision=$precision
        expect 0 "$precision, $variant"
        bits_of "$precision-other" | cmp -s - "$SCRATCH/expected" || fail "$precision differs with $variant"
        rm -rf "$SCRATCH/$precision-other"
    done
done
bits_of fp32-1 | cmp -s - "$SCRATCH/expected" && fail "fp32 and bf16 have the same bits"

# The log.
last=$(tail -n 1 "$SCRATCH/fp32-1/log.jsonl")
for key in step loss loss_bits grad_norm lr tokens tokens_per_s time_s skipped valid_loss state_hash; do
    case $last in *"\"$key\":"*) ;; *) fail "log.jsonl has no $key: $last" ;; esac
done
same "tokens of the run" '"tokens":5120' "$(grep -o '"tokens":[0-9]*' <<< "$last")"
same "hashes in the log" 4 "$(grep -c state_hash "$SCRATCH/fp32-1/log.jsonl")"

# The screen, without a terminal.
train plain
grep -q '^model .*llama' "$SCRATCH/out" || fail "it does not say what it trains: $(cat "$SCRATCH/out")"
grep -q '^step 40/40 ' "$SCRATCH/out" || fail "no line about the last step"
grep -q 'ashlar generate --model' "$SCRATCH/out" || fail "it does not say what to type next"
grep -q $'\r\|\033' "$SCRATCH/out" && fail "control characters without a terminal"
[ ! -s "$SCRATCH/err" ] || fail "warnings: $(cat "$SCRATCH/err")"
same "threads on this machine" "$(bits_of fp32-1 | md5sum)" "$(bits_of plain | md5sum)"

# Model and checkpoint are folders that every command reads, and the effective job is a job.
for folder in model checkpoints/step-000040; do
    for file in config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json; do
        [ -s "$SCRATCH/plain/$folder/$file" ] || fail "$folder/$file is missing"
    done
    try "$ASHLAR" model info "$SCRATCH/plain/$folder"
    expect 0 "model info $folder"
    try "$ASHLAR" generate --model "$SCRATCH/plain/$folder" --prompt "12+34=" --max-tokens 4
    expect 0 "generate with $folder"
done
cmp -s "$SCRATCH/plain/model/model.safetensors" "$SCRATCH/plain/checkpoints/step-000040/model.safetensors" || fail "model and checkpoint differ"
try "$ASHLAR" train "$SCRATCH/plain/job.yaml" --out "$SCRATCH/again"
expect 0 "the effective job"
same "the effective job" "$(bits_of plain | md5sum)" "$(bits_of again | md5sum)"
finish
