#!/usr/bin/env bash
# TensorBoard's events of a run, read by npm's tfrecord (frames and their checksums) and protobufjs (messages): the numbers of log.jsonl,
# each step once after a resume, and of curves.jsonl. Skips where Node.js or the npm registry is not to be had.
command -v node > /dev/null || { echo "SKIP: needs node"; exit 77; }
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm events_world tfrecord protobufjs
cd "$SCRATCH" || exit 1
cp "$SOURCE/tests/e2e/events_world.mjs" . # modules are found from where a script lies
equal() { # events, lines of JSON
    node events_world.mjs "$1" "$2" > compared 2>&1 || fail "$1 and $2: $(tail -n 5 compared)"
}

train run train.save_every=10 train.keep=9 log.tensorboard="$SCRATCH/board"
expect 0 "a run with events"
equal board run/log.jsonl
rm -r run/checkpoints/step-000040 run/model # the steps after 30 were lost: they come again
try "$ASHLAR" train --resume --out run
expect 0 "a resumed run"
same "files of two parts" 2 "$(ls board | wc -l)"
equal board run/log.jsonl
rm -r run/checkpoints/step-000040 run/model
try "$ASHLAR" train --resume --out run log.tensorboard=later
expect 0 "events from a later part on"
equal later run/log.jsonl
train again log.tensorboard="$SCRATCH/board"
expect 0 "another run into the same folder"
equal board again/log.jsonl
echo file > file
train bad log.tensorboard="$SCRATCH/file/board"
expect_error 2 "no folder" "log.tensorboard" "file"

cat > rl.yaml << YAML
model: {from: $SCRATCH/again/model}
data: {seq: 32}
train: {steps: 4, grains: 2}
rl: {prompts_per_step: 4, samples: 4, rewards: [arithmetic]}
rollout: {max_tokens: 5, max_prompt_tokens: 8, eval_every: 2, eval_count: 8}
YAML
try "$ASHLAR" rl rl.yaml --out rl log.tensorboard=rl_board
expect 0 "rl with events"
equal rl_board rl/log.jsonl
equal rl_board/rl rl/curves.jsonl
finish
