#!/usr/bin/env bash
# Saving and loading. GPT-2 124M in bf16, new weights, 4 ranks (fsdp=4) on this machine: tokens per second with a checkpoint every step
# and every 10 steps, compared with none; the slowest step against the median one; memory for copies against save.memory. Then bytes
# per second of one save and of a cold load, against fio's direct I/O on the same disk (which it needs, and root to drop caches), and
# against torch.save, flushed, and torch.load of as many bytes.
# Settings: BENCH_ROUNDS; BENCH_STEPS (of a run); BENCH_SAVE_DIR (whose disk is used).
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
rounds=${BENCH_ROUNDS:-3} steps=${BENCH_STEPS:-11} dir=${BENCH_SAVE_DIR:-$BUILD}/bench-save
memory=$((512 << 20))
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
"$ASHLAR" data arithmetic --out "$dir/data" --count 20000 > /dev/null
cat > "$dir/job.yaml" << YAML
model: {type: gpt2, vocab: 50257, hidden: 768, layers: 12, heads: 12, max_positions: 1024}
data: {train: $dir/data, seq: ${BENCH_SEQ:-256}}
train: {steps: $steps, global_batch: 4, grains: 4, precision: bf16, valid_every: 0, keep: 1, hash_every: 0}
mesh: {fsdp: 4}
runtime: {log_level: debug}
YAML

# run NAME SETTINGS...: a run; its steps' seconds in $dir/NAME.steps, without the first.
run() {
    local name=$1
    shift
    rm -rf "$dir/run"
    "$ASHLAR" launch --procs 4 train "$dir/job.yaml" --out "$dir/run" "$@" > /dev/null 2> "$dir/$name.err"
    grep -o '"time_s":[0-9.]*' "$dir/run/log.jsonl" | cut -d: -f2 | awk 'NR > 1 { print $1 - last } { last = $1 }' > "$dir/$name.steps"
}
mean() { awk '{ s += $1 } END { print NR / s }' "$1"; }
slowest() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[NR] / v[int((NR + 1) / 2)] }'; }

# ---- training that saves
training() {
    local none=() each=() tens=() worst=() peaks=()
    for _ in $(seq "$rounds"); do
        run none train.save_every=0
        none+=("$(mean "$dir/none.steps")")
        run each train.save_every=1
        each+=("$(mean "$dir/each.steps")")
        worst+=("$(slowest "$dir/each.steps")")
        peaks+=("$(grep -oE '[0-9.]+ MB of copies' "$dir/each.err" | cut -d' ' -f1 | sort -g | tail -n 1)")
        run tens train.save_every=10
        tens+=("$(mean "$dir/tens.steps")")
    done
    row save/every-step-of-none steps/s "the same run without saves" 0.93 higher "${each[@]}" -- "${none[@]}"
    row save/every-10-of-none steps/s "the same run without saves" 0.99 higher "${tens[@]}" -- "${none[@]}"
    row save/slowest-of-median "x" "1.15 times the median step" 1 lower "${worst[@]}" -- 1.15
    row save/memory MB "save.memory and 5%" 1 lower "${peaks[@]}" -- "$(awk "BEGIN { print $memory * 1.05e-6 }")"
}
if wanted save/{every-step-of-none,every-10-of-none,slowest-of-median,memory}; then training; fi
wanted save/{write,load}-of-{fio,torch} || exit 0

# ---- the disk: one save and one cold load, in one process
command -v fio > /dev/null || apt_get fio || { note "save: fio is not here"; exit 0; }
python=$(find_torch) || { apt_get python3-torch && python=$(find_torch); } || { note "save: no PyTorch: rows without it"; python=''; }
cold() { sync && echo 3 2> /dev/null > /proc/sys/vm/drop_caches; }
torch_rate() { [ -z "$python" ] || "$python" "$SOURCE/bench/peers/torch_save.py" "$dir/torch" "$@"; } # save BYTES | load
fio_rate() { # read|write
    fio --name=x --filename="$dir/fio" --rw="$1" --bs=4m --size=1g --direct=1 --ioengine=io_uring --iodepth=8 --end_fsync=1 --output-format=json |
        grep -A 6 "\"$1\" :" | grep -oE '"bw_bytes" : [0-9]+' | grep -oE '[0-9]+$'
}
saves=() loads=() writes=() reads=() torch_saves=() torch_loads=()
for _ in $(seq "$rounds"); do
    rm -rf "$dir/run"
    "$ASHLAR" train "$dir/job.yaml" --out "$dir/run" mesh.fsdp=1 data.seq=8 train.steps=1 > /dev/null 2> "$dir/save.err"
    saves+=("$(grep -oE 'is durable: [0-9.]+ MB in [0-9.]+' "$dir/save.err" | head -n 1 | awk '{ print $3 * 1e6 / $6 }')")
    writes+=("$(fio_rate write)")
    bytes=$(du -sb "$dir/run/checkpoints" | cut -f1)
    torch_saves+=($(torch_rate save "$bytes"))
    cold || continue
    "$ASHLAR" train --resume --out "$dir/run" > /dev/null 2> "$dir/load.err"
    loads+=("$(grep -oE 'was loaded in [0-9.]+' "$dir/load.err" | awk -v b="$bytes" '{ print b / $4 }')")
    reads+=("$(fio_rate read)")
    cold && torch_loads+=($(torch_rate load))
done
row save/write-of-fio B/s "fio, direct, io_uring" 0.85 higher "${saves[@]}" -- "${writes[@]}"
[ ${#torch_saves[@]} -eq 0 ] || row save/write-of-torch B/s "torch.save, flushed" 2.5 higher "${saves[@]}" -- "${torch_saves[@]}"
[ ${#loads[@]} -eq 0 ] || row save/load-of-fio B/s "fio, direct, io_uring" 0.85 higher "${loads[@]}" -- "${reads[@]}"
[ ${#torch_loads[@]} -eq 0 ] || row save/load-of-torch B/s "torch.load" 2 higher "${loads[@]}" -- "${torch_loads[@]}"
