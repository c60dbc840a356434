#!/usr/bin/env bash
# The quick start of `make run`: make arithmetic data, train a small model on it, measure it, and talk to it.
# Run again, it continues: an interrupted training resumes, a finished one is not repeated.
# usage: scripts/quickstart.sh PATH_TO_ASHLAR
set -euo pipefail
cd "$(dirname "$0")/.."
ashlar=$1
run=runs/quickstart
data=runs/quickstart-data

"$ashlar" data arithmetic --out $data/train --count 200k
"$ashlar" data arithmetic --out $data/valid --count 4k --split valid --seed 2

if [ -d $run/model ]; then
    echo "$run/model is trained already (rm -r $run to train it again)"
elif [ -d $run/checkpoints ]; then
    "$ashlar" train --resume --out $run
else
    "$ashlar" train examples/quickstart.yaml --out $run
fi

echo
echo "How good is it? 1,000 problems that it has never seen:"
"$ashlar" eval --model $run/model --task arithmetic --count 1000 --show 3

echo
if [ -t 0 ] && [ -t 1 ]; then
    echo "Ask it something like 37+58= (Ctrl-D ends):"
    "$ashlar" generate --model $run/model --temperature 0 || true
else
    printf '%s\n' 2+2= 37+58= 99+1= 64-27= 8-15= 50+50= 71-70= 19+83= 90-45= 6+77= |
        while read -r question; do
            printf '  %s%s\n' "$question" "$("$ashlar" generate --model $run/model --temperature 0 --prompt "$question")"
        done
fi

printf '\nWhat next:\n'
printf '  %-80s %s\n' "open $run/report.html" "the curves of this run" \
    "$ashlar generate --model $run/model" "talk to it" \
    "$ashlar train examples/quickstart.yaml --out runs/longer train.steps=3000" "train it longer" \
    "$ashlar --help" "everything else"
