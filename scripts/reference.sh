#!/usr/bin/env bash
# Writes the reference pages from what the program itself says: `scripts/reference.sh build/ashlar docs/reference`. `make docs`
# calls it; tests/e2e/docs.sh fails when the pages in the tree are older than the options tables.
set -euo pipefail
ashlar=$1
dir=$2
mkdir -p "$dir"

# The names in the "commands:" list of a help text, and what the list says of one of them.
names() { sed -n '/^commands:/,/^$/s/^  \([a-z_-]*\) .*/\1/p'; }
summary() { sed -n "/^commands:/,/^\$/s/^  $1  *//p"; }

# A help text as Markdown: usage and examples as code, options as tables, the rest as it is. $1: marks of a heading.
markdown() {
    awk -v marks="$1" '
    function cell(text) { gsub(/</, "\\&lt;", text); gsub(/\|/, "\\|", text); return text }
    function flush(   name, value, at, last) {
        if (head == "") return
        at = index(head, " "); name = at ? substr(head, 1, at - 1) : head; value = at ? substr(head, at + 1) : ""
        last = ""
        if (match(text, / ?\(default .*\)$/)) {
            last = substr(text, RSTART, RLENGTH); text = substr(text, 1, RSTART - 1)
            sub(/^ ?\(default /, "", last); sub(/\)$/, "", last)
        }
        if (last == "" && match(text, / \((at least )?-?[0-9.e+-]+(\.\.-?[0-9.e+-]+)?\)$/)) {
            value = value ", " substr(text, RSTART + 2, RLENGTH - 3); text = substr(text, 1, RSTART - 1)
        }
        at = match(last, /, (at least )?-?[0-9.e+-]+(\.\.-?[0-9.e+-]+)?$/)
        if (at) { value = value (value == "" ? "" : ", ") substr(last, at + 2); last = substr(last, 1, at - 1) }
        if (!table) { print "\n| option | value | default | meaning |\n|---|---|---|---|"; table = 1 }
        printf "| `%s` | %s | %s | %s |\n", name, cell(value), last == "" ? "" : "`" cell(last) "`", cell(text)
        head = text = ""
    }
    function close_code() { if (code) print "```"; code = 0 }
    /^usage: / { print "\n```"; code = 1; sub(/^usage: /, ""); print; next }
    code && /^       ashlar / { sub(/^ +/, ""); print; next }
    /^commands:/ { flush(); skip = 1; next }
    skip { if (/^$/) skip = 0; next }
    /COMMAND --help` explains/ { next }
    /^examples:/ { flush(); table = 0; print "\n" marks "# Examples\n\n```"; examples = code = 1; next }
    examples && /^  / { sub(/^  /, ""); print; next }
    /^$/ { flush(); close_code(); table = 0; blank = 1; next }
    blank && /^[a-zA-Z].*:$/ {
        flush(); table = 0; title = substr($0, 1, length($0) - 1)
        note = ""; at = index(title, " - ")
        if (at) { note = substr(title, at + 3); title = substr(title, 1, at - 1) }
        print "\n" marks "# " toupper(substr(title, 1, 1)) substr(title, 2)
        if (note != "") print "\n" toupper(substr(note, 1, 1)) substr(note, 2) "."
        options = 1; next
    }
    options && /^  [^ ]/ {
        flush(); line = substr($0, 3); at = match(line, /  +/)
        if (at) { head = substr(line, 1, at - 1); text = substr(line, at + RLENGTH) } else head = line
        next
    }
    options && head != "" && /^   / { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
    { if (blank && !code) print ""; blank = 0; gsub(/</, "\\&lt;"); print }
    END { flush(); close_code() }'
}

section() { # marks of a heading, words of a command
    local marks=$1 help name
    shift
    help=$("$ashlar" "$@" --help)
    printf '\n%s ashlar %s\n' "$marks" "$*"
    markdown "$marks" <<< "$help"
    for name in $(names <<< "$help"); do section "$marks#" "$@" "$name"; done
}
note='Written by `make docs` from the program itself: change the options table, not this page.'

overview=$("$ashlar" --help)
{
    printf '# Reference\n\n%s\n\n[Documentation](../README.md)\n\n' "$note"
    printf '| command | what it does |\n|---|---|\n'
    for name in $(names <<< "$overview"); do
        printf '| [`%s`](%s.md) | %s |\n' "$name" "$name" "$(summary "$name" <<< "$overview")"
    done
    cat << 'PAGE'

A flag takes its value as the next word or after an equals sign. A setting of a job is given as `section.setting=value`, in
the job file or in the environment: `train.steps` can come from `ASHLAR_TRAIN_STEPS`. The command line overrides the
environment, the environment overrides the file.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | a failure, reported on standard error in one line |
| 2 | wrong usage |
| 128 + signal | stopped by Ctrl-C (130), SIGTERM (143) or SIGHUP (129); a training run is saved |
PAGE
} > "$dir/README.md"
for name in $(names <<< "$overview"); do
    {
        printf '# ashlar %s\n\n%s\n\n[Reference](README.md) · [Documentation](../README.md)\n' "$name" "$note"
        section '#' "$name" | sed '1,2d'
    } > "$dir/$name.md"
done
