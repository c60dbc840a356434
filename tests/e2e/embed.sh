#!/usr/bin/env bash
# libashlar as its users get it: installed into a prefix, found by pkg-config, compiled into every examples/*.c and run.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
. "$SOURCE/tests/e2e/install.bash" || exit 1
[ -x "$prefix/bin/ashlar" ] || fail "no program was installed"
[ -f "$prefix/share/man/man1/ashlar.1" ] || fail "no man page was installed"
for script in bash-completion/completions/ashlar zsh/site-functions/_ashlar fish/vendor_completions.d/ashlar.fish; do
    grep -q 'completion of ashlar' "$prefix/share/$script" || fail "no share/$script was installed"
done

for example in "$SOURCE"/examples/*.c; do
    (cd "$SCRATCH" && "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror "${flags[@]}" "$example" \
        $(pkg-config --cflags --libs ashlar) -o "$(basename "$example" .c)") || fail "$example does not compile"
done
# The header is C++ too.
if command -v c++ > /dev/null; then
    printf '#include <ashlar/%s.h>\n' ashlar transfer | c++ -x c++ -std=c++17 -Wall -Werror -fsyntax-only -I"$prefix/include" - ||
        fail "the header is not C++"
fi

leak_free "$SCRATCH/embed" "$stories" "Once upon a time"
expect 0 "embed"
story=$("$ASHLAR" generate --model "$stories" --prompt "Once upon a time" --max-tokens 50)
expected="[5 tokens of at most 512]
Once upon a time$story
[length]"
same "what embed says" "$expected" "$(cat "$SCRATCH/out")"
try "$SCRATCH/embed" "$SCRATCH/nowhere" x
expect 1 "embed without a model"
grep -q nowhere "$SCRATCH/err" || fail "embed does not say what is missing"

leak_free "$SCRATCH/tokenize" "$stories" "Once upon a time"
expect 0 "tokenize"
same "the first token" "     1  '<s>'" "$(head -1 "$SCRATCH/out")"
same "the text again" "5 tokens: Once upon a time" "$(tail -1 "$SCRATCH/out")"

leak_free "$SCRATCH/sample" "$stories" "Once upon a time" 2
expect 0 "sample"
cp "$SCRATCH/out" "$SCRATCH/sampled"
grep -q '^\[seed 1: .*, \(stop\|length\)\]$' "$SCRATCH/out" || fail "sample says: $(cat "$SCRATCH/out")"
try "$SCRATCH/sample" "$stories" "Once upon a time" 2
cmp -s "$SCRATCH/out" "$SCRATCH/sampled" || fail "the same seeds gave other answers"

# One process publishes, another takes: the newest version, whole.
coproc PUBLISHER { exec "$SCRATCH/transfer" publish "$SCRATCH/description"; }
for line in "a first text" "a second, longer text" "a third"; do
    echo "$line" >&"${PUBLISHER[1]}"
    read -r -t 60 published <&"${PUBLISHER[0]}" || fail "transfer publishes nothing"
    leak_free "$SCRATCH/transfer" take "$SCRATCH/description"
    expect 0 "transfer take"
    same "what transfer takes" "${published#version }: $line" "$(cat "$SCRATCH/out")"
done
publisher=$PUBLISHER_PID
eval "exec ${PUBLISHER[1]}>&-"
wait "$publisher" || fail "transfer publish ends with $?"
try "$SCRATCH/transfer" take "$SCRATCH/description"
expect 1 "transfer from a process that is gone"
grep -q gone "$SCRATCH/err" || fail "transfer does not say that the process is gone: $(cat "$SCRATCH/err")"
head -c 700 "$SCRATCH/description" > "$SCRATCH/torn"
try "$SCRATCH/transfer" take "$SCRATCH/torn"
expect 1 "transfer with half a description"
grep -q 'is no description' "$SCRATCH/err" || fail "transfer does not say what is wrong: $(cat "$SCRATCH/err")"

cp -r "$stories" "$SCRATCH/chatty"
echo '{"chat_template": "{% for m in messages %}{{ m.content }}\n{% endfor %}"}' > "$SCRATCH/chatty/tokenizer_config.json"
code=0
printf 'Once upon a time\nLily\n' | "$SCRATCH/chat" "$SCRATCH/chatty" > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect 0 "chat"
grep -q '[1-9][0-9]* of them known' "$SCRATCH/err" || fail "the second turn computed everything again: $(cat "$SCRATCH/err")"
try "$SCRATCH/chat" "$stories"
expect 0 "chat without a word"

if [ -e "$prefix/lib/libashlar.so.0" ] && command -v python3 > /dev/null; then
    try python3 "$SOURCE/examples/embed.py" "$stories" "Once upon a time"
    expect 0 "embed.py"
    same "what embed.py says" "$story
[length]" "$(cat "$SCRATCH/out")"
    try python3 "$SOURCE/examples/embed.py" "$SCRATCH/nowhere" x
    expect 1 "embed.py without a model"
fi
finish
