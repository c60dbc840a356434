#!/usr/bin/env bash
# ashlar model: what info says, and converting there and back, whole or not at all.
. "$SOURCE/tests/e2e/lib.bash" || exit 1

# ---- info
try "$ASHLAR" model info "$stories"
expect 0 "info"
for words in llama "260,032" F32 "512 tokens" tokenizer.json model.safetensors; do
    grep -qF "$words" "$SCRATCH/out" || fail "info: '$words' is not in $(cat "$SCRATCH/out")"
done
leak_free "$ASHLAR" model info "$stories" --json --tensors
expect 0 "info --json"
for words in '"parameters": 260032' '"layers": 5' '"kv_heads": 4' '"cache_bytes_per_token": 1280' \
    '"name": "model.embed_tokens.weight"'; do
    grep -qF "$words" "$SCRATCH/out" || fail "info --json: '$words' is not in it"
done
try "$ASHLAR" model info "$SOURCE/tests/golden/qwen3_moe-mixed"
expect 0 "info of a sparse model"
grep -q 'active)' "$SCRATCH/out" || fail "info: no active parameters in $(cat "$SCRATCH/out")"
grep -q 'tokenizer  *none' "$SCRATCH/out" || fail "info: a tokenizer where there is none"
for model in "$SOURCE"/tests/golden/*/config.json; do
    try "$ASHLAR" model info "${model%/config.json}"
    expect 0 "info ${model%/config.json}"
done

# ---- convert: bf16 and back is what bf16 can hold; f32 to f32 is the same bytes
weights() { # folder: a checksum of its weights
    cat "$1"/*.safetensors | sha256sum
}
cp -r "$stories" "$SCRATCH/src"
chmod -R u+w "$SCRATCH/src"
echo '{"a": 1}' > "$SCRATCH/src/special_tokens_map.json"
echo 'not for you' > "$SCRATCH/src/optimizer.bin"
leak_free "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/bf16" --dtype bf16
expect 0 "to bf16"
grep -q 'BF16' "$SCRATCH/out" || fail "convert says nothing: $(cat "$SCRATCH/out")"
for file in config.json generation_config.json tokenizer.json special_tokens_map.json model.safetensors; do
    [ -f "$SCRATCH/bf16/$file" ] || fail "convert: no $file"
done
[ ! -e "$SCRATCH/bf16/optimizer.bin" ] || fail "convert copied what is not part of a model"
cmp -s "$stories/tokenizer.json" "$SCRATCH/bf16/tokenizer.json" || fail "convert changed the tokenizer"
grep -q bfloat16 "$SCRATCH/bf16/config.json" || fail "config.json does not say bfloat16"
size() { wc -c < "$1"; }
[ "$(size "$SCRATCH/bf16/model.safetensors")" -lt 530000 ] || fail "bf16 is not half the size"
try "$ASHLAR" generate --model "$SCRATCH/bf16" --prompt "Once upon a time" --max-tokens 10
expect 0 "bf16 runs"
grep -q 'there was' "$SCRATCH/out" || fail "bf16 model says: $(cat "$SCRATCH/out")"
try "$ASHLAR" model convert "$SCRATCH/bf16" "$SCRATCH/f32" --dtype f32
expect 0 "back to f32"
try "$ASHLAR" model convert "$SCRATCH/f32" "$SCRATCH/bf16-again" --dtype bf16
expect 0 "and to bf16 again"
same "bf16 twice" "$(weights "$SCRATCH/bf16")" "$(weights "$SCRATCH/bf16-again")"
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/f16" --dtype f16
expect 0 "to f16"
try "$ASHLAR" model convert "$SCRATCH/src/" "$SCRATCH/shards/" --dtype f32 --max-shard-size 200k
expect 0 "in shards"
[ -f "$SCRATCH/shards/model.safetensors.index.json" ] || fail "no index of shards"
[ "$(ls "$SCRATCH"/shards/model-*.safetensors | wc -l)" -ge 5 ] || fail "too few shards"
try "$ASHLAR" model convert "$SCRATCH/shards" "$SCRATCH/whole" --dtype f32 --max-shard-size 0
expect 0 "in one file again"
[ ! -e "$SCRATCH/whole/model.safetensors.index.json" ] || fail "a stale index was copied"
for model in src whole; do
    "$ASHLAR" generate --model "$SCRATCH/$model" --prompt "The cat" --max-tokens 30 > "$SCRATCH/$model.txt"
done
cmp -s "$SCRATCH/src.txt" "$SCRATCH/whole.txt" || fail "the text changed through shards"

# ---- nothing is overwritten, nothing is left behind
leftovers() { find "$SCRATCH" -mindepth 1 -maxdepth 1 \( -name '.*' -o -name 'new*' \) | wc -l; }
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/bf16" --dtype f32
expect_error 1 "target exists" "already exists"
grep -q bfloat16 "$SCRATCH/bf16/config.json" || fail "an existing folder was changed"
cp -r "$SCRATCH/src" "$SCRATCH/broken"
truncate -s 400000 "$SCRATCH/broken/model.safetensors"
try "$ASHLAR" model convert "$SCRATCH/broken" "$SCRATCH/new" --dtype bf16
expect_error 1 "broken source" "model.safetensors"
try "$ASHLAR" model convert "$SCRATCH/nowhere" "$SCRATCH/new" --dtype bf16
expect_error 1 "no source" "nowhere"
to_new=("$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/new" --dtype)
(ulimit -f 300; trap '' XFSZ; "${to_new[@]}" f32 > "$SCRATCH/out" 2> "$SCRATCH/err")
code=$?
expect_error 1 "file size limit" "model.safetensors"
(ulimit -f 300; "${to_new[@]}" f32 > "$SCRATCH/out" 2> "$SCRATCH/err") 2> /dev/null
code=$?
expect_error 1 "killed while it writes" "signal"
same "leftovers of failures" 0 "$(leftovers)"

# SIGTERM at any moment: the whole folder or none.
for delay in 0 0.002 0.005 0.01 0.02 0.03; do
    rm -rf "$SCRATCH/new"
    "${to_new[@]}" bf16 --max-shard-size 10k > /dev/null 2> "$SCRATCH/err" &
    pid=$!
    sleep "$delay"
    kill -TERM "$pid" 2> /dev/null
    code=0
    wait "$pid" || code=$?
    case $code in
    0) [ -f "$SCRATCH/new/tokenizer.json" ] || fail "exit code 0 without a folder" ;;
    143) [ ! -e "$SCRATCH/new" ] || fail "interrupted after $delay s, but the folder is there" ;;
    *) fail "interrupted after $delay s: exit code $code: $(cat "$SCRATCH/err")" ;;
    esac
    rm -rf "$SCRATCH/new"
    same "leftovers after $delay s" 0 "$(leftovers)"
done

# ---- wrong use
try "$ASHLAR" model
expect 2 "no subcommand"
try "$ASHLAR" model inof x
expect_error 2 "misspelt subcommand" "ashlar model info"
try "$ASHLAR" model info
expect_error 2 "no model" "which model"
try "$ASHLAR" model convert "$SCRATCH/src"
expect_error 2 "no target" "SRC and DST"
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/new"
expect_error 2 "no dtype" "--dtype"
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/new" --dtype int4
expect_error 2 "unknown dtype" "bf16"

# ---- quantised: a GGUF file next to the tokenizer gives the same text
leak_free "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/q8" --quant q8
expect 0 "to q8"
for file in model.gguf tokenizer.json special_tokens_map.json; do
    [ -f "$SCRATCH/q8/$file" ] || fail "convert --quant: no $file"
done
"$ASHLAR" generate --model "$SCRATCH/src" --prompt "Once upon a time" --temperature 0 --max-tokens 16 > "$SCRATCH/story" || fail "generate"
"$ASHLAR" generate --model "$SCRATCH/q8/model.gguf" --prompt "Once upon a time" --temperature 0 --max-tokens 16 > "$SCRATCH/story8" ||
    fail "generate from model.gguf"
cmp "$SCRATCH/story" "$SCRATCH/story8" || fail "the story changed: $(cat "$SCRATCH/story8")"
if command -v script > /dev/null; then
    script -qec "'$ASHLAR' model convert '$SCRATCH/src' '$SCRATCH/q4' --quant q4" /dev/null > "$SCRATCH/tty"
    grep -q 'weights/s .* left' "$SCRATCH/tty" || fail "no progress on a terminal: $(cat "$SCRATCH/tty")"
fi
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/q8w" --quant q8w
expect 0 "to q8w"
try "$ASHLAR" model info "$SCRATCH/q8w/model.gguf"
grep -q 'Q8_W' "$SCRATCH/out" || fail "info of q8w says: $(cat "$SCRATCH/out")"
"$ASHLAR" generate --model "$SCRATCH/q8w/model.gguf" --prompt "Once upon a time" --temperature 0 --max-tokens 16 > "$SCRATCH/story8w" ||
    fail "generate from q8w"
cmp "$SCRATCH/story" "$SCRATCH/story8w" || fail "the story changed: $(cat "$SCRATCH/story8w")"
try "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/both" --quant q4 --dtype f16
expect_error 2 "--quant and --dtype" "not both"
try "$ASHLAR" model convert "$SOURCE/tests/golden/families/bert" "$SCRATCH/bert-q4" --quant q4
expect_error 1 "a model that GGUF files are not for" "a bert model cannot be written as a GGUF file"
[ ! -e "$SCRATCH/bert-q4" ] || fail "a refused conversion left something behind"

# ---- a GGUF file alone: vocabulary and chat template are in it
echo '{"chat_template": "{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}", "bos_token": "<s>"}' > "$SCRATCH/src/tokenizer_config.json"
leak_free "$ASHLAR" model convert "$SCRATCH/src" "$SCRATCH/gguf" --dtype f16 --gguf
expect 0 "to an f16 GGUF file"
[ ! -s "$SCRATCH/err" ] || fail "convert --gguf warns: $(cat "$SCRATCH/err")"
[ ! -e "$SCRATCH/gguf/model.safetensors" ] || fail "convert --gguf wrote safetensors too"
mkdir "$SCRATCH/alone"
mv "$SCRATCH/gguf/model.gguf" "$SCRATCH/alone/story.gguf"
leak_free "$ASHLAR" generate --model "$SCRATCH/alone/story.gguf" --prompt "Once upon a time" --temperature 0 --max-tokens 16
expect 0 "a GGUF file alone"
cmp -s "$SCRATCH/story" "$SCRATCH/out" || fail "the story changed: $(cat "$SCRATCH/out")"
leak_free "$ASHLAR" generate --model "$SCRATCH/alone/story.gguf" --chat --prompt "Once upon a time" --temperature 0 --max-tokens 16
expect 0 "its chat template"
try "$ASHLAR" model info "$SCRATCH/alone"
expect_error 1 "the folder of a GGUF file" "give its name, '$SCRATCH/alone/story.gguf'"
try "$ASHLAR" model info "$SCRATCH/alone/story.gguf"
expect 0 "info of a GGUF file alone"
grep -q 'tokenizer  *512' "$SCRATCH/out" || fail "info: no tokenizer in $(cat "$SCRATCH/out")"
grep -q 'chat template  *yes' "$SCRATCH/out" || fail "info: no chat template in $(cat "$SCRATCH/out")"
grep -q 'end tokens  *2 </s>' "$SCRATCH/out" || fail "info: no end tokens in $(cat "$SCRATCH/out")"
echo 'not of the model' > "$SCRATCH/alone/notes.txt"
try "$ASHLAR" model info "$SCRATCH/alone/story.gguf" --json
same "the files of a GGUF file" "$(stat -c %s "$SCRATCH/alone/story.gguf")" "$(grep -o '"disk_bytes": [0-9]*' "$SCRATCH/out" | tr -dc 0-9)"
! grep -q notes.txt "$SCRATCH/out" || fail "info of a GGUF file lists its neighbours"

# ---- a folder with model.gguf is as good as the file in it
mkdir "$SCRATCH/folder"
cp "$SCRATCH/alone/story.gguf" "$SCRATCH/folder/model.gguf"
for model in "$SCRATCH/folder" "$SCRATCH/q8"; do
    leak_free "$ASHLAR" generate --model "$model" --prompt "Once upon a time" --temperature 0 --max-tokens 16
    expect 0 "generate from a folder with model.gguf"
    cmp -s "$SCRATCH/story" "$SCRATCH/out" || fail "the story changed: $(cat "$SCRATCH/out")"
    leak_free "$ASHLAR" model info "$model"
    expect 0 "info of a folder with model.gguf"
    grep -q 'model.gguf' "$SCRATCH/out" || fail "info of a folder does not list model.gguf: $(cat "$SCRATCH/out")"
    try "$ASHLAR" plan serve --model "$model" --cluster 1xp5.48xlarge --in 128 --out 64
    expect 0 "plan serve of a folder with model.gguf"
done
try "$ASHLAR" generate --model "$SCRATCH/folder" --chat --prompt "Once upon a time" --temperature 0 --max-tokens 16
expect 0 "chat with a folder with model.gguf"
try "$ASHLAR" plan serve --model "$SCRATCH/folder/model.gguf" --cluster 1xp5.48xlarge --in 128 --out 64
expect 0 "plan serve of a GGUF file"
cp -r "$SCRATCH/src" "$SCRATCH/mute"
rm "$SCRATCH/mute/tokenizer.json"
try "$ASHLAR" model convert "$SCRATCH/mute" "$SCRATCH/mute-gguf" --dtype f32 --gguf
expect 0 "a model without a tokenizer"
grep -q 'no tokenizer.json' "$SCRATCH/err" || fail "convert --gguf without a tokenizer says: $(cat "$SCRATCH/err")"
try "$ASHLAR" generate --model "$SCRATCH/mute-gguf/model.gguf" --prompt "Once"
expect_error 1 "no vocabulary" "tokenizer.json"
finish
