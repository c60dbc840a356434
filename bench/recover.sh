#!/usr/bin/env bash
# Recovery. GPT-2 124M in bf16, new weights, 4 ranks as two nodes on this machine. Ranks are killed; the run says how long it took from
# knowing that to computing again: with a spare and without one, against ending and --resume. How long a newcomer holds the others up.
# What copies cost a step of 4,096 tokens. The share of time that is productive with a kill every 30 s, and what its ledger predicts.
# 64 ranks of a small model meet again.
# Settings: BENCH_LAYOUTS; BENCH_PARTS (some of: loss newcomer copies goodput many); BENCH_STEPS (of a run for copies); BENCH_KILL_S (how long kills go on).
set -euo pipefail
. "$SOURCE/bench/lib/peer.sh"
dir=$BUILD/bench-recover steps=${BENCH_STEPS:-6} kill_s=${BENCH_KILL_S:-600}
layouts=${BENCH_LAYOUTS:-"mesh.fsdp=4;mesh.tp=2 mesh.pp=2;mesh.dp=2 mesh.fsdp=2"} parts=${BENCH_PARTS:-loss newcomer copies goodput many}
row() { "$BUILD/bench/row" "$BENCH_ROWS" "$@"; }
wants() { [[ " $parts " == *" $1 "* ]]; }
launcher=
stop() { [ -z "$launcher" ] || { kill "$launcher" 2> /dev/null && wait "$launcher" 2> /dev/null; } || true; launcher=; }
rm -rf "$dir"
mkdir -p "$dir"
trap 'stop; rm -rf "$dir"' EXIT
"$ASHLAR" data arithmetic --out "$dir/data" --count 20000 > /dev/null
cat > "$dir/job.yaml" << YAML
model: {type: gpt2, vocab: 50257, hidden: 768, layers: 12, heads: 12, max_positions: 1024}
data: {train: $dir/data, seq: 64}
train: {steps: 100000, global_batch: 4, grains: 4, precision: bf16, valid_every: 0, keep: 1, hash_every: 0, save_every: 0}
schedule: {kind: constant}
YAML

# start FLAGS -- SETTINGS: a job in the background, until it has made three steps.
start() {
    local flags=()
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    rm -rf "$dir/run"
    "$ASHLAR" launch --procs 4 --nodes 2 "${flags[@]}" train "$dir/job.yaml" --out "$dir/run" "$@" > "$dir/out" 2>&1 &
    launcher=$!
    await_steps 3
}
alive() { kill -0 "$launcher" 2> /dev/null || { echo "bench: recover: the job has ended: $(tail -n 3 "$dir/out")" >&2; exit 1; }; }
logged() { if [ -f "$dir/run/log.jsonl" ]; then wc -l < "$dir/run/log.jsonl"; else echo 0; fi; }
await_steps() { while [ "$(logged)" -lt "$1" ]; do alive; sleep 0.01; done; }
said() { grep -c "$1" "$dir/out" || true; }
# await TEXT N: until the job has said it N times.
await() { while [ "$(said "$1")" -lt "$2" ]; do alive; sleep 0.005; done; }
ranks() { cat "/proc/$launcher/task/$launcher/children"; }
kill_rank() { kill -KILL "$(ranks | cut -d' ' -f"$1")"; }
# The seconds of the last recovery.
took() { grep -o 'after [0-9.]* s' "$dir/out" | tail -n 1 | cut -d' ' -f2; }
now() { date +%s.%N; }

if wants loss; then
    IFS=';' read -ra list <<< "$layouts"
    for layout in "${list[@]}"; do
        read -ra words <<< "$layout"
        name=${layout//mesh./} name=${name//[ =]/}
        start --spares 2 -- "${words[@]}"
        killed=$(now)
        kill_rank 2
        await "continue from step" 1
        seen=$(now) spare=$(took)
        known=$(awk "BEGIN { print $seen - $killed - $spare }")
        stop
        start -- "${words[@]}"
        kill_rank 2
        await "; 3 ranks continue from step" 1
        shrink=$(took)
        stop
        # ending and --resume: from the start of the program to the first step
        start -- "${words[@]}" train.save_every=2
        await_steps 5
        for pid in $(ranks); do kill -KILL "$pid"; done
        wait "$launcher" || true
        began=$(now)
        "$ASHLAR" launch --procs 4 --nodes 2 train --resume --out "$dir/run" > "$dir/out" 2>&1 &
        launcher=$!
        await "^resumed " 1
        resume=$(awk "BEGIN { print $(now) - $began }")
        stop
        row "recover/spare-$name" s "1 s" 1 lower "$spare" -- 1.0
        row "recover/shrink-$name" s "1.5 s" 1 lower "$shrink" -- 1.5
        row "recover/known-$name" s "0.1 s" 1 lower "$known" -- 0.1
        row "recover/shrink-of-resume-$name" s "ending and --resume" 3 lower "$shrink" -- "$resume"
    done
fi

# A rank leaves and another comes, is fed while a step runs, and joins: how long the others have waited for it, all in all.
if wants newcomer; then
    start -- mesh.fsdp=4
    "$ASHLAR" run resize "$dir/run" 3 > /dev/null
    await "; 3 ranks continue" 1
    await_steps $(($(logged) + 1))
    "$ASHLAR" run resize "$dir/run" 4 > /dev/null
    await "; 4 ranks continue" 1
    row recover/newcomer s "0.3 s" 1 lower "$(took)" -- 0.3
    stop
fi

if wants copies; then
    speed() { # SETTINGS: steps a second, without the first
        rm -rf "$dir/run"
        "$ASHLAR" launch --procs 4 --nodes 2 train "$dir/job.yaml" --out "$dir/run" data.seq=256 train.global_batch=16 train.steps="$steps" "$@" > "$dir/out" 2>&1
        grep -o '"time_s":[0-9.]*' "$dir/run/log.jsonl" | cut -d: -f2 | awk 'NR == 1 { first = $1 } END { print (NR - 1) / ($1 - first) }'
    }
    with=() without=()
    for _ in $(seq "${BENCH_ROUNDS:-2}"); do
        with+=("$(speed mesh.fsdp=4 recover.copies=1)")
        without+=("$(speed mesh.fsdp=4 recover.copies=0)")
    done
    row recover/copies-of-none steps/s "the same run without copies" 0.98 higher "${with[@]}" -- "${without[@]}"
fi

if wants goodput; then
    start --restarts 1000 -- mesh.fsdp=4
    began=$(date +%s) kills=0
    while [ $(($(date +%s) - began)) -lt "$kill_s" ]; do
        due=$((began + 30 * (kills + 1)))
        while [ "$(date +%s)" -lt $due ]; do alive; sleep 0.1; done
        kill_rank 2
        kills=$((kills + 1))
        await "; 4 ranks continue" $kills
    done
    "$ASHLAR" run stop "$dir/run" > /dev/null
    wait "$launcher" || true
    launcher=
    share() { "$ASHLAR" plan goodput --ledger "$1" --json | grep -o "\"$2\": [0-9.]*" | cut -d' ' -f2; }
    whole=$(share "$dir/run/ledger.json" measured_goodput)
    cp "$dir/run/ledger.json" "$BUILD/bench-recover-ledger.json"
    row recover/productive "share" "0.90 of the time" 1 higher "$whole" -- 0.90
    row recover/predicted "share" "what the ledger predicts" 0.9 higher "$(share "$dir/run/ledger.json" goodput)" -- "$whole"
fi

if wants many; then
    rm -rf "$dir/run"
    "$ASHLAR" launch --procs 64 train "$dir/job.yaml" --out "$dir/run" model.hidden=32 model.layers=1 model.heads=2 model.vocab=128 data.seq=16 \
        train.global_batch=64 train.grains=64 runtime.threads=1 mesh.dp=64 group.silent_timeout=60 > "$dir/out" 2>&1 &
    launcher=$!
    await_steps 3
    kill_rank 20
    await "63 ranks continue" 1
    await_steps $(($(logged) + 2))
    "$ASHLAR" run stop "$dir/run" > /dev/null
    wait "$launcher" || true
    launcher=
    row recover/reform-64 s "0.3 s" 1 lower "$(grep -o '"reform_s": [0-9.e-]*' "$dir/run/ledger.json" | cut -d' ' -f2)" -- 0.3
fi
