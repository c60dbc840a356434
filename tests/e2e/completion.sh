#!/usr/bin/env bash
# What shells complete: bash in earnest, fish by its own question, zsh as far as it goes without a terminal.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
for shell in bash zsh fish; do
    leak_free "$ASHLAR" completion $shell
    expect 0 "completion $shell"
    cp "$SCRATCH/out" "$SCRATCH/ashlar.$shell"
done
try "$ASHLAR" completion
expect_error 2 "no shell" "for which shell"
try "$ASHLAR" completion tcsh
expect_error 2 "another shell" "tcsh"

# complete WORDS...: what bash offers for the last of the words; '=' is a word of its own, as bash splits it off.
complete_bash() {
    env -i bash --norc -c '. "$0" && COMP_WORDS=(ashlar "$@") COMP_CWORD=$# && compopt() { echo "[$*]"; } &&
        _ashlar 2>&1 && printf "%s\n" "${COMPREPLY[@]}"' "$SCRATCH/ashlar.bash" "$@" | paste -sd' ' -
}
same "a command" "generate" "$(complete_bash gen)"
same "a subcommand" "info" "$(complete_bash model inf)"
same "a flag" "--max-tokens" "$(complete_bash generate --max)"
same "a choice" "fp32" "$(complete_bash generate --precision f)"
same "a choice after =" "auto fp32 bf16" "$(complete_bash generate --precision =)"
same "a choice that has begun after =" "bf16" "$(complete_bash generate --precision = b)"
same "a flag after a switch" "--max-tokens" "$(complete_bash generate --chat --max-t)"
same "a file" "[-o default] " "$(complete_bash generate --model '')"
same "a setting" "[-o nospace] optimizer.lr=" "$(complete_bash train job.yaml optimizer.l)"
same "its choices" "constant cosine wsd" "$(complete_bash train job.yaml schedule.kind = | tr ' ' '\n' | sort | paste -sd' ' -)"
same "a switch among settings" "true" "$(complete_bash train job.yaml model.tied = t)"
same "the command that launch runs" "--metrics-port" "$(complete_bash launch --procs 2 train job.yaml --metrics-p)"
same "a command after launch" "train" "$(complete_bash launch --procs 2 trai)"
same "a shell" "zsh" "$(complete_bash completion z)"
# Every command and flag of the help is offered.
for command in $(complete_bash ''); do
    "$ASHLAR" "$command" --help | sed -n 's/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/--\2/p' | while read -r flag; do
        case " $(complete_bash "$command" "$flag") " in *" $flag "*) ;; *) echo "$command $flag" ;; esac
    done
done > "$SCRATCH/missing"
[ ! -s "$SCRATCH/missing" ] || fail "bash does not complete $(paste -sd, "$SCRATCH/missing")"

if command -v fish > /dev/null; then
    complete_fish() { HOME=$SCRATCH fish --no-config -c '. $argv[1]; complete -C "$argv[2]"' "$SCRATCH/ashlar.fish" "$1" | cut -f1 | paste -sd' ' -; }
    same "fish: a command" "generate" "$(complete_fish 'ashlar gen')"
    same "fish: a flag" "--max-tokens" "$(complete_fish 'ashlar generate --max')"
    same "fish: a choice" "fp32" "$(complete_fish 'ashlar generate --precision f')"
    same "fish: a setting" "optimizer.lr=" "$(complete_fish 'ashlar train job.yaml optimizer.l')"
    same "fish: the command that launch runs" "--metrics-port" "$(complete_fish 'ashlar launch --procs 2 train --metrics-p')"
fi
if command -v zsh > /dev/null; then
    zsh -fc 'compdef() { : }; . "$0" && _ashlar_path launch --procs 2 train x.yaml; _ashlar_values "$spelt" train.precision= &&
        [[ $spelt = train && $values = *bf16* ]] && _ashlar_words "model info" && [[ $offers[1] = --json:* ]]' "$SCRATCH/ashlar.zsh" ||
        fail "zsh does not find its words"
fi
finish
