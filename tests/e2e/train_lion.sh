#!/usr/bin/env bash
# ashlar train optimizer.kind=lion: a step is Lion's as published, recomputed in Python from two checkpoints; the same bits in every
# layout and after a resume; AdamW's checkpoints are not continued with it.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
lion=(model.vocab=64 optimizer.kind=lion optimizer.lr=0.003 optimizer.beta2=0.99 optimizer.weight_decay=0.5)

# ---- the published step, from what checkpoints hold ----
train one "${lion[@]}" train.steps=12 train.save_every=1 train.keep=0 schedule.kind=constant schedule.warmup=0
expect 0 "lion, one process"
python3 - "$SCRATCH/one/checkpoints" > "$SCRATCH/out" 2>&1 << 'PY' || fail "$(cat "$SCRATCH/out")"
import json, math, struct, sys

LR, BETA1, BETA2, DECAY = 0.003, 0.9, 0.99, 0.5

def read(step):
    tensors = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        data = open(f"{sys.argv[1]}/step-{step:06d}/{name}", "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for key, entry in json.loads(data[8:8 + size]).items():
            if key == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            tensors[key] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end]))
    return tensors

before, after = read(11), read(12)
checked = moved = 0
for key, (shape, moments) in after.items():
    if key.startswith("v."):
        assert not any(moments), f"{key} is not zero"
    if not key.startswith("m."):
        continue
    name = key[2:]
    old, new = before[name][1], after[name][1]
    decay = DECAY if len(shape) == 2 else 0.0
    for m0, m1, w0, w1 in zip(before[key][1], moments, old, new):
        gradient = m0 + (m1 - m0) / (1 - BETA2)  # from the running mean: m1 = BETA2 m0 + (1 - BETA2) gradient
        mean = BETA1 * m0 + (1 - BETA1) * gradient
        if abs(mean) < 1e-5 * (abs(m0) + abs(m1)):
            continue  # its sign is lost in rounding
        wanted = w0 - LR * ((mean > 0) - (mean < 0) + decay * w0)
        assert math.isclose(w1, wanted, rel_tol=1e-5, abs_tol=1e-7), f"{name}: {w1} instead of {wanted}"
        checked += 1
        moved += w0 != w1
assert checked > 1000 and moved > 1000, f"only {checked} elements were checked, {moved} of them moved"
PY

# ---- it learns, and not as AdamW does ----
train long "${lion[@]}"
expect 0 "lion, 40 steps"
train adamw model.vocab=64
first=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$SCRATCH/long/log.jsonl" | head -n 1)
last=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$SCRATCH/long/log.jsonl" | tail -n 1)
awk -v first="$first" -v last="$last" 'BEGIN { exit !(last < 0.95 * first) }' || fail "the loss went from $first to $last"
[ "$(bits_of long | tail -n 1)" != "$(bits_of adamw | tail -n 1)" ] || fail "lion and adamw have the same state"

# ---- the same bits in every layout ----
for layout in "2 mesh.fsdp=2 mesh.zero=1" "2 mesh.fsdp=2 mesh.zero=3" "2 mesh.tp=2" "2 mesh.pp=2" "2 mesh.dp=2" "4 mesh.tp=2 mesh.fsdp=2 mesh.zero=2"; do
    rm -rf "$SCRATCH/many"
    # shellcheck disable=SC2086
    try "$ASHLAR" launch --procs ${layout%% *} train "$SCRATCH/job.yaml" --out "$SCRATCH/many" "${lion[@]}" ${layout#* }
    expect 0 "$layout"
    same "$layout" "$(bits_of long | md5sum)" "$(bits_of many | md5sum)"
done

# ---- and after a resume in another one ----
train half "${lion[@]}" train.save_every=20 train.keep=0 train.steps=40
expect 0 "lion with checkpoints"
rm -rf "$SCRATCH/half/checkpoints/step-000040" "$SCRATCH/half/model"
try "$ASHLAR" launch --procs 2 train --resume --out "$SCRATCH/half" mesh.fsdp=2
expect 0 "resumed with ZeRO 3"
same "resumed" "$(last_state long 40)" "$(last_state half 40)"
rm -rf "$SCRATCH/half/checkpoints/step-000040"
try "$ASHLAR" train --resume --out "$SCRATCH/half" optimizer.kind=adamw
expect 2 "resumed with another optimizer"
grep -q 'optimizer.kind' "$SCRATCH/err" || fail "it does not name the setting: $(cat "$SCRATCH/err")"
try "$ASHLAR" train "$SCRATCH/job.yaml" --out "$SCRATCH/none" optimizer.kind=sgd
grep -q 'adamw' "$SCRATCH/err" || fail "an unknown optimizer: $(cat "$SCRATCH/err")"
finish
