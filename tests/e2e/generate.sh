#!/usr/bin/env bash
# ashlar generate: a real model's text word for word, every way to give a prompt, stops, JSON, conversations, wrong use.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
generate=("$ASHLAR" generate --model "$stories")

# ---- word for word what the reference program says
reference() { sed -n -e 's/\\"/"/g' -e "$1"'s/^ *"text": "\(.*\)"$/\1/p' "$stories/reference.json"; }
prompts=("Once upon a time" "The cat sat")
lines=(7 12)
for i in 0 1; do
    expected=$(printf '%b.' "$(reference "${lines[$i]}")") # the dot keeps trailing newlines
    expected=${expected%.}
    [ -n "$expected" ] || fail "no reference text on line ${lines[$i]}"
    try "${generate[@]}" --prompt "${prompts[$i]}" --echo --max-tokens 200
    expect 0 "${prompts[$i]}"
    found=$(head -c "$(printf '%s' "$expected" | wc -c)" "$SCRATCH/out"; printf .)
    same "text after '${prompts[$i]}'" "$expected" "${found%.}"
done

# ---- threads, backends and the way the prompt arrives change nothing
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60
expect 0 "plain"
plain=$(cat "$SCRATCH/out")
[ "${plain:0:1}" = "," ] || fail "the continuation begins with a comma, not: $plain"
for variant in "--threads 1" "--threads 3" "--backend ref" "--seed 9" "--temperature 0 --top-k 5" "--context 100"; do
    try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 $variant
    expect 0 "$variant"
    same "text with $variant" "$plain" "$(cat "$SCRATCH/out")"
done
printf 'Once upon a time' > "$SCRATCH/prompt"
try "${generate[@]}" --prompt-file "$SCRATCH/prompt" --max-tokens 60
same "prompt from a file" "$plain" "$(cat "$SCRATCH/out")"
same "prompt from standard input" "$plain" "$("${generate[@]}" - --max-tokens 60 < "$SCRATCH/prompt")"
same "prompt file -" "$plain" "$("${generate[@]}" --prompt-file - --max-tokens 60 < "$SCRATCH/prompt")"
try env ASHLAR_MAX_TOKENS=60 "${generate[@]}" --prompt "Once upon a time"
same "length from the environment" "$plain" "$(cat "$SCRATCH/out")"

# ---- the form of an answer, alone and in a batch; penalties; log-probabilities
printf '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}' > "$SCRATCH/schema.json"
printf 'Once upon a time\n' > "$SCRATCH/one"
for variant in '--regex [A-C]{3}' '--grammar root::="A"|"B"' "--json-schema @$SCRATCH/schema.json"; do
    try "${generate[@]}" --prompt "Once upon a time" --max-tokens 40 $variant --json --logprobs
    expect 0 "$variant"
    cp "$SCRATCH/out" "$SCRATCH/alone"
    grep -qE '"text":"([ABC]{1,3}|\{\\"n\\": ?-?[0-9]+\})"' "$SCRATCH/alone" || fail "$variant: $(cat "$SCRATCH/alone")"
    try "${generate[@]}" --prompts "$SCRATCH/one" --max-tokens 40 $variant --logprobs
    for field in text ids logprobs; do
        same "$field of a batch with $variant" "$(grep -o "\"$field\":[^]}]*" "$SCRATCH/alone" | cut -c1-60)" "$(grep -o "\"$field\":[^]}]*" "$SCRATCH/out" | cut -c1-60)"
    done
done
try "${generate[@]}" --prompt x --json-schema '{"not": {}}'
expect_error 1 "a schema that cannot be enforced" "#/not"
try "${generate[@]}" --prompt x --regex a --grammar b
expect_error 2 "two forms" "exclude each other"
try "${generate[@]}" --prompt x --logprobs
expect_error 2 "log-probabilities without JSON" "--json"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --frequency-penalty 2 --presence-penalty 1
[ "$plain" != "$(cat "$SCRATCH/out")" ] || fail "penalties change nothing"

# ---- a model that cannot be taken as it is: the error says what to do
try "$ASHLAR" generate --model Qwen/Qwen3-0.6B --prompt x
expect_error 1 "a name of Hugging Face" "hf download Qwen/Qwen3-0.6B"
cp -r "$stories" "$SCRATCH/quantised"
chmod -R u+w "$SCRATCH/quantised"
sed -i '0,/{/s//{"quantization_config": {"quant_method": "hqq"},/' "$SCRATCH/quantised/config.json"
try "$ASHLAR" generate --model "$SCRATCH/quantised" --prompt x
expect_error 1 "quantised weights" "quantised with 'hqq'"

# ---- sampling: a seed decides, on any number of threads
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --temperature 1 --top-p 0.9 --seed 7 --threads 1
sampled=$(cat "$SCRATCH/out")
[ "$sampled" != "$plain" ] || fail "temperature 1 gave the greedy text"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --temperature 1 --top-p 0.9 --seed 7 --threads 2
same "seed 7 again" "$sampled" "$(cat "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --top-p 0.9 --seed 7
same "a filter asks for sampling" "$sampled" "$(cat "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --temperature 1 --top-p 0.9 --seed 8
[ "$sampled" != "$(cat "$SCRATCH/out")" ] || fail "seeds 7 and 8 gave the same text"

# ---- stop strings, shown in no part; bf16 runs
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --stop "Lily. She"
same "stop string" ", there was a little girl named " "$(cat "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 60 --stop "never there" --stop ", red" --stop zzz
expected=", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big"
same "stop string with a comma" "$expected" "$(cat "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 20 --precision bf16
expect 0 "bf16"

# ---- what ends the prompt is not said again: with this vocabulary a newline and an emoji are bytes
for end in '\n' '🍕🍔' '\t'; do
    printf 'Once upon a time%b' "$end" > "$SCRATCH/prompt"
    try "${generate[@]}" --prompt-file "$SCRATCH/prompt" --max-tokens 8 --json
    expect 0 "a prompt that ends in bytes"
    grep -qF "\"text\":\"$end" "$SCRATCH/out" && fail "the end of the prompt came back: $(cat "$SCRATCH/out")"
done
try "${generate[@]}" --prompt $'Story:\n' --stop $'\n' --max-tokens 8
expect 0 "a stop string that ends the prompt"
grep -q '[a-z]' "$SCRATCH/out" || fail "the stop string was found in the prompt"

# ---- a tokenizer_config.json as the transformers library writes it
cp -r "$stories" "$SCRATCH/hf"
printf '{"model_max_length": 1000000000000000019884624838656, "chat_template": "%s"}\n' \
    "{% for m in messages %}{{ m['content'] }}{% endfor %}" > "$SCRATCH/hf/tokenizer_config.json"
try "$ASHLAR" generate --model "$SCRATCH/hf" --chat --prompt "Once upon a time" --max-tokens 8
expect 0 "a model_max_length beyond 64 bits"

# ---- JSON
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 5 --json
expect 0 "json"
for field in '"text":", there' '"ids":[' '"finish_reason":"length"' '"finish_detail":"max tokens"' '"prompt_tokens":' \
    '"answer_tokens":5' '"first_token_s":' '"answer_tokens_per_s":'; do
    grep -qF "$field" "$SCRATCH/out" || fail "json: $field is not in $(cat "$SCRATCH/out")"
done
same "json is one line" 1 "$(wc -l < "$SCRATCH/out")"
leak_free "${generate[@]}" --prompt "Once upon a time" --stop girl --json --echo
grep -q '"text":"Once upon a time, there was a little ","ids":' "$SCRATCH/out" ||
    fail "json with echo: $(cat "$SCRATCH/out")"
grep -q '"finish_reason":"stop","finish_detail":"stop string"' "$SCRATCH/out" || fail "json stop: $(cat "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 0 --json
grep -q '"finish_detail":"\(context full\|end of text\)"' "$SCRATCH/out" ||
    fail "json until the end: $(tail -c 400 "$SCRATCH/out")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 8 --stats
grep -q 'tokens/s' "$SCRATCH/err" || fail "no speeds: $(cat "$SCRATCH/err")"

# ---- a file of prompts: in order, each the answer that it gets alone, whatever the batch
prompts=("Once upon a time" "The cat sat" "One day, a little girl named Lily went to the park and saw" "A" "Tom and" "He said, \"Hi")
printf '%s\n' "${prompts[@]}" > "$SCRATCH/prompts.txt"
core() { sed -e 's/^{"index":[0-9]*,/{/' -e 's/"reused_tokens":0,//' -e 's/,"timings":.*/}/'; }
for settings in "--max-tokens 40" "--max-tokens 40 --temperature 1 --seed 3 --repetition-penalty 1.2 --stop day --stop ." "--max-tokens 0 --context 60"; do
    for prompt in "${prompts[@]}"; do "${generate[@]}" --prompt "$prompt" --json $settings | core; done > "$SCRATCH/alone"
    for batch in 1 4 16; do
        leak_free "${generate[@]}" --prompts "$SCRATCH/prompts.txt" --batch $batch $settings
        expect 0 "--prompts in batches of $batch"
        core < "$SCRATCH/out" | cmp -s - "$SCRATCH/alone" || fail "batches of $batch with $settings: $(core < "$SCRATCH/out" | diff - "$SCRATCH/alone" | head -4)"
    done
done
printf '{"prompt": "Once upon a time", "id": "x7"}\n\n{"prompt": 7}\n{"messages": [{"role": "user", "content": "a"}]}\n' > "$SCRATCH/prompts.jsonl"
leak_free "${generate[@]}" --prompts - --max-tokens 5 < "$SCRATCH/prompts.jsonl"
try "${generate[@]}" --prompts "$SCRATCH/prompts.jsonl" --max-tokens 5
expect 1 "prompts that cannot be answered"
same "one line for each" 3 "$(wc -l < "$SCRATCH/out")"
sed -n 1p "$SCRATCH/out" | grep -q '^{"index":0,"id":"x7","text":", there' || fail "the id is lost: $(head -n 1 "$SCRATCH/out")"
sed -n 2p "$SCRATCH/out" | grep -q '"error":"the line has neither' || fail "no error: $(cat "$SCRATCH/out")"
sed -n 3p "$SCRATCH/out" | grep -q '"error":".*no chat template' || fail "no error: $(cat "$SCRATCH/out")"

# ---- one of several answers: the first is the one that the prompt gets alone, more of them change none, whatever the batch
strategy=("${generate[@]}" --prompt "Once upon a time" --max-tokens 8 --temperature 1 --seed 3)
alone=$("${strategy[@]}")
try "${strategy[@]}" --strategy majority --n 4
expect 0 "four answers"
same "four different texts: the first" "$alone" "$(cat "$SCRATCH/out")"
try "${strategy[@]}" --strategy weighted --n 6 --vote-on last-line --json
votes=$(grep -o '"votes":.*' "$SCRATCH/out")
for batch in 1 5; do
    leak_free "${generate[@]}" --prompts <(printf 'Once upon a time\n') --max-tokens 8 --temperature 1 --seed 3 --strategy weighted --n 6 --vote-on last-line --batch $batch
    same "votes in batches of $batch" "$votes" "$(grep -o '"votes":.*' "$SCRATCH/out")"
done
try "${strategy[@]}" --strategy best --n 6 --json
heaviest=$(grep -o '"weight":[0-9.]*' "$SCRATCH/out" | cut -d: -f2 | awk '$1 > most { most = $1; at = NR - 1 } END { print at }')
grep -q "\"chosen\":$heaviest," "$SCRATCH/out" || fail "best is not the heaviest: $(cat "$SCRATCH/out")"
try "${strategy[@]}" --strategy best --n 6 --json --verifier 'regex=zzz,length=3:0'
grep -q '"chosen":0,"votes":\[{"for":"[^"]*","weight":0.0}' "$SCRATCH/out" || fail "no verifier: $(cat "$SCRATCH/out")"
try "${strategy[@]}" --strategy best --verifier exact
expect_error 1 "nobody knows the answer" "--verifier" "is not known here"
for wrong in "--n 4:goes with --strategy" "--strategy best --temperature 0:all the same" "--strategy best --vote-on all:has no votes" \
    "--strategy majority --verifier ended:weighs nothing" "--strategy best --stats:neither"; do
    try "${strategy[@]}" ${wrong%:*}
    expect_error 2 "${wrong%:*}" "${wrong##*:}"
done

# ---- an answer that is cut off says so, unless that length was asked for
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 0 --context 50
grep -q 'cut off: the context is full' "$SCRATCH/err" || fail "a full context is not said: $(cat "$SCRATCH/err")"
try env -u ASHLAR_MAX_TOKENS "${generate[@]}" --prompt "Once upon a time" --temperature 1 --seed 5 --context 0
grep -q 'cut off after 512 tokens; --max-tokens' "$SCRATCH/err" || grep -q 'context is full' "$SCRATCH/err" ||
    [ "$(wc -c < "$SCRATCH/out")" -lt 1800 ] || fail "the default length is not said: $(cat "$SCRATCH/err")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 5
same "a length that was asked for" "" "$(cat "$SCRATCH/err")"
try "${generate[@]}" --prompt "Once upon a time" --max-tokens 5 --context 100000
grep -q 'warning: --context 100000 is more than the model' "$SCRATCH/err" || fail "a large context: $(cat "$SCRATCH/err")"

# ---- line by line: each line is a text of its own for a model without a chat template
printf 'Once upon a time\n\nThe cat sat\r\nOnce upon a time\n' |
    "${generate[@]}" --max-tokens 12 --stop $'\n' > "$SCRATCH/lines" || fail "lines: exit code $?"
same "answers to three lines" 3 "$(wc -l < "$SCRATCH/lines")"
same "the same line, the same answer" "$(sed -n 1p "$SCRATCH/lines")" "$(sed -n 3p "$SCRATCH/lines")"
case $plain in "$(sed -n 1p "$SCRATCH/lines")"*) ;; *) fail "line by line differs from --prompt" ;; esac
same "JSON lines" 2 "$(printf 'a\nb' | "${generate[@]}" --max-tokens 3 --json | grep -c '"finish_reason"')"
same "no lines, no answers" "" "$("${generate[@]}" < /dev/null)"

# ---- a terminal: prompt sign, commands, Ctrl-D
if command -v script > /dev/null; then
    printf '/help\nOnce upon a time\n/reset\n/nonsense\n/quit\nnever read\n' |
        script -qec "$(printf '%q ' "${generate[@]}" --max-tokens 8)" /dev/null > "$SCRATCH/tty" 2>&1 ||
        fail "terminal: exit code $?"
    printf 'Once upon a time\n' | timeout 300 script -qec "$(printf '%q ' "${generate[@]}" --max-tokens 8 --stats)" /dev/null > "$SCRATCH/tty2" 2>&1
    grep -q '^ashlar: prompt' "$SCRATCH/tty2" || fail "the speeds are not on a line of their own: $(cat "$SCRATCH/tty2")"
    for words in '> ' 'no chat template' ', there was' 'there is no /nonsense'; do
        grep -qF -- "$words" "$SCRATCH/tty" || fail "terminal: '$words' is not in $(cat "$SCRATCH/tty")"
    done
fi

# ---- Ctrl-C in a chat stops the answer; at the prompt the second one ends. The slowest backend leaves time to press it.
await() { # text, how often it must have been seen
    for _ in $(seq 6000); do [ "$(grep -oF -- "$1" "$SCRATCH/tty" | wc -l)" -ge "$2" ] && return 0; sleep 0.02; done
    return 1
}
if command -v script > /dev/null; then
    trap '' PIPE # an answer that is over before the key arrives: then the key ends the chat, and no one reads the next
    mkfifo "$SCRATCH/keys"
    : > "$SCRATCH/tty"
    script -qfec "$(printf '%q ' "${generate[@]}" --max-tokens 0 --backend ref --threads 1)" /dev/null \
        < "$SCRATCH/keys" > "$SCRATCH/tty" 2>&1 &
    pid=$!
    exec 3> "$SCRATCH/keys"
    await '> ' 1 || fail "no prompt sign: $(cat "$SCRATCH/tty")"
    printf 'Once upon a time\n' >&3
    await ', there was' 1 || fail "no answer: $(cat "$SCRATCH/tty")"
    printf '\003' >&3
    await '> ' 2 || fail "no prompt sign after Ctrl-C: $(cat "$SCRATCH/tty")"
    printf '\003' >&3
    await 'Ctrl-C again' 1 || fail "Ctrl-C at the prompt says nothing: $(cat "$SCRATCH/tty")"
    printf '\003' >&3
    code=0
    wait "$pid" || code=$?
    exec 3>&-
    trap - PIPE
    same "exit code after Ctrl-C at the prompt" 0 "$code"
fi

# ---- an early end of the reader is no error to speak of
"${generate[@]}" --prompt "Once upon a time" --max-tokens 300 2> "$SCRATCH/err" | head -c 10 > /dev/null
same "broken pipe" "" "$(cat "$SCRATCH/err")"

# ---- SIGTERM: what was said so far stays said
"${generate[@]}" --prompt "Once upon a time" --max-tokens 0 --temperature 1 > "$SCRATCH/cut" 2> "$SCRATCH/err" &
pid=$!
wait_for "a word" test -s "$SCRATCH/cut"
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" -eq 143 ] || [ "$code" -eq 0 ] || fail "SIGTERM: exit code $code" # 0: it was done before
same "SIGTERM says nothing" "" "$(cat "$SCRATCH/err")"

# ---- a model of sums answers with or without the equals sign, line by line
cat > "$SCRATCH/sums.yaml" << 'YAML'
model: {type: llama, hidden: 16, layers: 1, heads: 2, ffn: 16, max_positions: 64}
train: {steps: 2, global_batch: 2, grains: 1, save_every: 0, valid_every: 0}
schedule: {warmup: 0}
YAML
try "$ASHLAR" data arithmetic --out "$SCRATCH/sums" --count 500
expect 0 "data arithmetic"
try "$ASHLAR" train "$SCRATCH/sums.yaml" --out "$SCRATCH/run" data.train="$SCRATCH/sums" data.seq=32
expect 0 "train"
model=$(dirname "$(find "$SCRATCH/run" -name model.safetensors | head -n 1)")
printf '37+58=\n37+58\n 37 + 58\n37+58 =\n' | "$ASHLAR" generate --model "$model" --max-tokens 6 > "$SCRATCH/lines" ||
    fail "sums: exit code $?"
same "answers to four lines" 4 "$(wc -l < "$SCRATCH/lines")"
same "different answers" 1 "$(sort -u "$SCRATCH/lines" | wc -l)"
same "the same answer as to a prompt" "$(head -n 1 "$SCRATCH/lines")" \
    "$("$ASHLAR" generate --model "$model" --max-tokens 6 --prompt '37+58=')"

# ---- wrong use
try "$ASHLAR" generate --prompt x
expect_error 2 "no model" "--model"
try "${generate[@]}" --prompt x --prompt-file y
expect_error 2 "two prompts" "exclude"
try "${generate[@]}" --prompt x --prompts y
expect_error 2 "one prompt and many" "exclude"
try "${generate[@]}" --prompt x --system y
expect_error 2 "a system message without a chat" "add --chat"
try "${generate[@]}" --system y
expect_error 1 "a system message for a model that has no chats" "--system:" "no chat template"
try "${generate[@]}" --prompts "$SCRATCH/nowhere"
expect_error 1 "no prompts" "nowhere"
try "${generate[@]}" --prompt x --temprature 1
expect_error 2 "misspelt flag" "--temperature"
try "${generate[@]}" --prompt x --top-p 0
expect_error 2 "top_p 0" "--top-p"
try "${generate[@]}" prompt
expect_error 2 "a word too many" "--prompt"
try "${generate[@]}" --prompt x --backend gpu9
expect_error 1 "unknown backend" "gpu9" "ref"
ASHLAR_CPU=gpu8 try "${generate[@]}" --prompt x
expect_error 1 "unknown path in the environment" "gpu8" "ref"
try "${generate[@]}" --prompt "" --raw
expect_error 1 "empty prompt" "prompt is empty"
try "${generate[@]}" --prompt x --stop ""
expect_error 1 "empty stop string" "stop string"
leak_free "${generate[@]}" --prompt "Once upon a time" --context 3
expect_error 1 "prompt longer than the context" "context is full"
try "${generate[@]}" --prompt-file "$SCRATCH/nowhere"
expect_error 1 "no prompt file" "nowhere"
printf 'bad \xff bytes' > "$SCRATCH/prompt"
try "${generate[@]}" --prompt-file "$SCRATCH/prompt"
expect_error 1 "not UTF-8" "UTF-8"
printf 'zero \0 byte' > "$SCRATCH/prompt"
try "${generate[@]}" --prompt-file "$SCRATCH/prompt"
expect_error 1 "a NUL byte" "NUL"
code=0
"${generate[@]}" < "$SCRATCH/prompt" > "$SCRATCH/out" 2> "$SCRATCH/err" || code=$?
expect_error 1 "a NUL byte in a line" "NUL"
try "${generate[@]}" --prompt x --chat
expect_error 1 "no chat template" "chat template"

# ---- bad folders: one clear line, no crash
bad() { # name: a fresh copy of the model
    rm -rf "$SCRATCH/bad"
    cp -r "$stories" "$SCRATCH/bad"
    chmod -R u+w "$SCRATCH/bad"
}
refused() { # what, words...
    try "$ASHLAR" generate --model "$SCRATCH/bad" --prompt x
    expect_error 1 "$@"
}
rm -rf "$SCRATCH/bad"
refused "no folder" "bad"
for file in config.json model.safetensors tokenizer.json; do
    bad && rm "$SCRATCH/bad/$file"
    refused "without $file" "$file"
    bad && : > "$SCRATCH/bad/$file"
    refused "empty $file" "$file"
done
bad && truncate -s 500000 "$SCRATCH/bad/model.safetensors"
refused "truncated weights" "model.safetensors"
bad && sed -i 's/"llama"/"lhama"/' "$SCRATCH/bad/config.json"
refused "unknown model type" "lhama" "llama"
bad && sed -i 's/"hidden_size": 64/"hidden_size": 72/' "$SCRATCH/bad/config.json"
refused "wrong shape" "config.json"
bad && sed -i 's/"num_hidden_layers": 5/"num_hidden_layers": 6/' "$SCRATCH/bad/config.json"
leak_free "$ASHLAR" generate --model "$SCRATCH/bad" --prompt x
expect_error 1 "missing tensors" "layers.5"
bad && sed -i 's/"vocab_size": 512/"vocab_size": "many"/' "$SCRATCH/bad/config.json"
refused "text where a number belongs" "vocab_size"
bad && echo '{' > "$SCRATCH/bad/config.json"
refused "broken config.json" "config.json"
bad && echo '{"do_sample": true, "temperature": -4}' > "$SCRATCH/bad/generation_config.json"
refused "absurd generation_config.json" "generation_config.json" "temperature"
finish
