#!/usr/bin/env bash
# The tutorials, as a reader types them: every `$ ` line of a ```console block runs in order, in a copy of the files that it needs.
# Every state hash that the page on several processes shows comes out, and every line of the page on planning. Long runs are cut short:
# the environment overrides job files.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
export PATH=$SCRATCH/bin:$PATH
mkdir -p "$SCRATCH/bin"
ln -s "$ASHLAR" "$SCRATCH/bin/ashlar"

# commands PAGE: a line each; lines that end in a backslash and here-documents belong to their first line.
commands() {
    awk '/^```console/ { on = 1; next } /^```/ { on = here = 0; next } !on { next }
        here || more { print "> " $0; if (here && $0 == mark) here = 0; more = /\\$/; next }
        /^\$ / { print "$ " substr($0, 3); more = /\\$/; if (match($0, /<< *'"'"'?[A-Z]+/)) { mark = substr($0, RSTART, RLENGTH); gsub(/[^A-Z]/, "", mark); here = 1 } }' "$1"
}
# run_page NAME [VARIABLE=value...]: all commands of a tutorial, in a folder of their own.
run_page() {
    local page=$SOURCE/docs/tutorials/$1.md folder=$SCRATCH/$1 script=$SCRATCH/$1.sh count
    shift
    mkdir -p "$folder"
    ln -s "$SOURCE/tests" "$SOURCE/examples" "$SOURCE/docs" "$SOURCE/README.md" "$folder/"
    commands "$page" | sed -e 's/^> //' -e 's/^\$ //' > "$script"
    count=$(commands "$page" | grep -c '^\$ ')
    [ "$count" -ge 3 ] || fail "$page has only $count commands"
    (cd "$folder" && env "$@" bash -euo pipefail "$script") > "$folder.log" 2>&1 || fail "$page: $(tail -n 5 "$folder.log")"
}
# shows_hashes NAME: every state hash in the page came out.
shows_hashes() {
    local page=$SOURCE/docs/tutorials/$1.md hash
    for hash in $(awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on' "$page" | grep -o 'state [0-9a-f]\{16\}' | sort -u | cut -d' ' -f2); do
        grep -q "$hash" "$SCRATCH/$1.log" || fail "$page shows state $hash, which did not come out"
    done
}
# shows_lines NAME: every line of output in the page came out.
shows_lines() {
    local page=$SOURCE/docs/tutorials/$1.md line
    while IFS= read -r line; do
        grep -qxF -- "$line" "$SCRATCH/$1.log" || fail "$page shows a line that did not come out: $line"
    done < <(awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on && !/^\$ / && !/^$/' "$page")
}
short=(ASHLAR_TRAIN_STEPS=6 ASHLAR_SCHEDULE_WARMUP=2 ASHLAR_TRAIN_VALID_EVERY=3 ASHLAR_TRAIN_SAVE_EVERY=3)
run_page train-your-own-text "${short[@]}"
run_page fine-tune
run_page several-processes
shows_hashes several-processes
run_page plan-a-cluster
shows_lines plan-a-cluster
finish
