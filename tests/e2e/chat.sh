#!/usr/bin/env bash
# Conversations: a model with a chat template keeps what was said, computes only what is new, and forgets on /reset.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

cp -r "$stories" "$SCRATCH/model"
chmod -R u+w "$SCRATCH/model"
cat > "$SCRATCH/model/chat_template.jinja" << 'JINJA'
{{- bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}
JINJA
printf '{"bos_token": "<s>", "eos_token": "</s>"}' > "$SCRATCH/model/tokenizer_config.json"
chat=("$ASHLAR" generate --model "$SCRATCH/model" --max-tokens 12)
asked() { sed 's/.*"prompt_tokens":\([0-9]*\).*/\1/' "$SCRATCH/out"; }
said() { sed 's/^{"text":"\(.*\)","ids".*/\1/' "$SCRATCH/out"; }
number() { sed -n "$1"'s/.*"'"$2"'":\([0-9]*\).*/\1/p' "$SCRATCH/turns"; }
text() { sed -n "$1"'s/^{"text":"\(.*\)","ids".*/\1/p' "$SCRATCH/turns"; }

# ---- each turn sees the ones before, and reuses them
printf 'One day\nThe cat\nOne day\n' | "${chat[@]}" --json > "$SCRATCH/turns" || fail "chat: exit code $?"
same "turns" 3 "$(wc -l < "$SCRATCH/turns")"
[ "$(number 2 prompt_tokens)" -gt "$(number 1 prompt_tokens)" ] || fail "the second turn does not see the first"
[ "$(number 3 prompt_tokens)" -gt "$(number 2 prompt_tokens)" ] || fail "the third turn does not see the second"
same "nothing to reuse in the first turn" 0 "$(number 1 reused_tokens)"
[ "$(number 2 reused_tokens)" -ge "$(number 1 prompt_tokens)" ] || fail "the first prompt is computed twice"
[ "$(text 1)" != "$(text 3)" ] || fail "the same answer to the same line, whatever was said before"

# ---- the prompt is what the template writes
printf '<s>[user] One day\n[assistant]' > "$SCRATCH/prompt"
try "${chat[@]}" --prompt-file "$SCRATCH/prompt" --raw --json
same "tokens of the rendered prompt" "$(number 1 prompt_tokens)" "$(asked)"
same "answer to the rendered prompt" "$(text 1)" "$(said)"
leak_free "${chat[@]}" --chat --prompt "One day" --json
same "one message with --chat" "$(text 1)" "$(said)"
try "${chat[@]}" --chat --prompt "One day" --system "Tell a story." --json
[ "$(number 1 prompt_tokens)" -lt "$(asked)" ] || fail "--system adds nothing"
first=$(printf 'One day\nOne day\n' | "${chat[@]}" --raw | sort -u | wc -l)
same "--raw lines are texts of their own" 1 "$first"

# ---- a terminal: /reset forgets
if command -v script > /dev/null; then
    printf 'One day\n/reset\nOne day\n/quit\n' |
        script -qec "$(printf '%q ' "${chat[@]}" --stats)" /dev/null > "$SCRATCH/tty" 2>&1 ||
        fail "terminal: exit code $?"
    same "equal prompts after /reset" 1 "$(grep -o 'prompt [0-9]* tokens' "$SCRATCH/tty" | sort -u | wc -l)"
fi

# ---- a terminal: the Up key brings the last line back, where the build can
if command -v script > /dev/null && "$ASHLAR" version --json | grep -q '"libedit": "'; then
    prompted() { [ "$(grep -oF '> ' "$1" | wc -l)" -ge "$2" ]; }
    # type_lines FILE LINE...: a chat on a terminal, which goes to FILE; each line is typed at a prompt sign of its own.
    type_lines() {
        local file=$1 line signs=0 pid
        shift
        rm -f "$SCRATCH/keys"
        mkfifo "$SCRATCH/keys"
        : > "$file"
        TERM=xterm script -qfec "$(printf '%q ' "${chat[@]}" --stats)" /dev/null < "$SCRATCH/keys" > "$file" 2>&1 &
        pid=$!
        exec 3> "$SCRATCH/keys"
        for line in "$@"; do
            signs=$((signs + 1))
            wait_for "prompt sign $signs" prompted "$file" $signs
            printf '%b\n' "$line" >&3
        done
        wait $pid || fail "terminal: exit code $?"
        exec 3>&-
    }
    type_lines "$SCRATCH/tty" 'One day' /reset '\033[A\033[A' /quit
    same "answers, the second to a line of the history" 2 "$(grep -c 'prompt [0-9]* tokens' "$SCRATCH/tty")"
    LC_ALL=C type_lines "$SCRATCH/tty2" 'Zoë 🍕' /quit
    try "${chat[@]}" --chat --prompt 'Zoë 🍕' --stats
    same "a line that is not ASCII" "$(grep -o 'prompt [0-9]* tokens' "$SCRATCH/err")" "$(grep -o 'prompt [0-9]* tokens' "$SCRATCH/tty2")"
    same "equal prompts" 1 "$(grep -o 'prompt [0-9]* tokens' "$SCRATCH/tty" | sort -u | wc -l)"

    # Ctrl-C clears the line; """ and pasted text are messages of several lines; an answer that is cut is said to be.
    type_lines "$SCRATCH/tty3" 'never\003' '"""One\nday"""' '\033[200~The\ncat\033[201~' "/save $SCRATCH/said.json" /quit
    same "messages of several lines" 'One\nday The\ncat' "$(sed -n 's/.*"content": "\(.*\)"$/\1/p' "$SCRATCH/said.json" | sed -n '1p;3p' | paste -sd ' ')"
    same "answers" 2 "$(grep -c 'prompt [0-9]* tokens' "$SCRATCH/tty3")"
    same "answers that are cut" 2 "$(grep -c 'cut off after 12 tokens' "$SCRATCH/tty3")"
fi

# ---- a full context is said, not hidden
code=0
printf 'One day\nOne day\nOne day\nOne day\n' | "${chat[@]}" --context 40 > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect_error 1 "a conversation longer than the context" "context is full"

# ---- a template that cannot be used is named, and plain text still works
echo '{% if %}' > "$SCRATCH/model/chat_template.jinja"
try "${chat[@]}" --prompt "One day" --chat
expect_error 1 "broken template" "chat_template.jinja"
try "${chat[@]}" --prompt "One day"
expect 0 "plain text with a broken template"
finish
