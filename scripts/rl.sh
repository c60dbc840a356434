#!/usr/bin/env bash
# `make rl`: a small model learns sums of which three in four are wrong, then the right ones from its own answers and their rewards.
# usage: scripts/rl.sh PATH_TO_ASHLAR
set -euo pipefail
cd "$(dirname "$0")/.."
ashlar=$1
data=runs/rl-data

"$ashlar" data arithmetic --out $data/train --count 200k --mistakes 0.75
"$ashlar" data arithmetic --out $data/valid --count 4k --split valid --seed 2
if [ ! -d runs/rl-start/model ]; then
    # slower and longer than on right answers: what is learned here is how often each mistake is made
    "$ashlar" train examples/quickstart.yaml --out runs/rl-start data.train=$data/train data.valid=$data/valid train.steps=2400 optimizer.lr=2.5e-3
fi
rm -rf runs/rl
"$ashlar" rl examples/rl.yaml --out runs/rl
if command -v python3 > /dev/null; then
    scripts/rl_plot.py runs/rl/curves.jsonl runs/rl/curves.svg
    echo "curves    runs/rl/curves.svg"
fi
echo
echo "1,000 problems that it has never seen, before and after:"
"$ashlar" eval --model runs/rl-start/model --task arithmetic --count 1000
"$ashlar" eval --model runs/rl/model --task arithmetic --count 1000
