#!/usr/bin/env bash
# Folders of quantised weights as others publish them: each weight is the one of the format's definition, computed by a program of its
# own; they generate, serve, train and convert as the plain folder of those weights does, to the bit; damaged ones are one sentence.
command -v python3 > /dev/null || exit 77
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1
folder() { python3 "$SOURCE/tests/e2e/lib/quantised_folder.py" "$@"; }

# ---- every format: weights
folder random llama "$SOURCE/tests/golden/llama-gqa/config.json"
folder random gpt_oss "$SOURCE/tests/golden/families/gpt_oss/config.json"
for format in $(folder list); do
    source=llama
    [ $format != mxfp4 ] || source=gpt_oss
    count=$(folder make $format $source $format)
    [ "$count" -ge 2 ] || fail "$format: only $count matrices are quantised"
    leak_free "$ASHLAR" model convert $format $format-plain --dtype f32
    expect 0 "$format"
    message=$(folder check $format $format-plain 2>&1) || fail "$format: $message"
    try "$ASHLAR" model info $format --json
    grep -q "\"tensors\": $count," out || fail "$format: info does not say $count tensors: $(cat out)"
done
for dtype in bfloat16 float16; do # rounded once
    for format in fp8-block gptq-order; do
        folder make $format llama $format-$dtype $dtype > out
        try "$ASHLAR" model convert $format-$dtype $format-$dtype-plain --dtype f32
        message=$(folder check $format-$dtype $format-$dtype-plain 2>&1) || fail "$format as $dtype: $message"
    done
done

# ModelOpt's first folders say it in another file, which the plain folder does not get
cp -r modelopt-nvfp4 modelopt-first
python3 - << PY
import json
config = json.load(open("modelopt-first/config.json"))
algorithm = config.pop("quantization_config")["quant_algo"]
json.dump(config, open("modelopt-first/config.json", "w"))
json.dump({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}, open("modelopt-first/hf_quant_config.json", "w"))
PY
try "$ASHLAR" model convert modelopt-first modelopt-first-plain --dtype f32
expect 0 "hf_quant_config.json"
message=$(folder check modelopt-first modelopt-first-plain 2>&1) || fail "hf_quant_config.json: $message"
[ ! -e modelopt-first-plain/hf_quant_config.json ] || fail "the plain folder says that it is quantised"
echo '{"quantization": 3}' > modelopt-first/hf_quant_config.json
try "$ASHLAR" model convert modelopt-first never --dtype f32
expect_error 1 "a broken hf_quant_config.json" "hf_quant_config.json has no 'quantization'"

# ---- written: each weight is what the definition makes of the codes, and near the original
for format in fp8 nvfp4 mxfp4 experts; do
    source=llama quant=$format
    [ $format != experts ] || { source=gpt_oss quant=mxfp4; }
    leak_free "$ASHLAR" model convert $source written-$format --quant $quant
    expect 0 "--quant $format"
    cp out cost
    folder published written-$format || fail "$format: the folder cannot be decoded"
    try "$ASHLAR" model convert written-$format written-$format-plain --dtype f32
    message=$(folder check written-$format written-$format-plain 2>&1) || fail "written as $format: $message"
    case $format in
        fp8) grep -q "as fp8: 8\.[0-9]* bits a weight, 2\.[0-9]* % of the weights' size lost" cost ;;
        nvfp4) grep -q "as nvfp4: 4\.5[0-9] bits a weight, [89]\.[0-9]* % " cost ;;
        *) grep -q "as mxfp4: 4\.25 bits a weight, 1[01]\.[0-9]* % " cost ;;
    esac || fail "$format: cost: $(cat cost)"
done
echo "Once upon a time there was a little girl. She liked to play with her dog in the park." > text
try "$ASHLAR" model convert "$stories" stories-fp8 --quant fp8 --eval text
expect 0 "--eval"
grep -q 'text: [0-9]* tokens, perplexity [0-9.]* before, [0-9.]* after, divergence 0\.00[0-9]* nats a token' out || fail "--eval: $(cat out)"
try "$ASHLAR" generate --model stories-fp8 --prompt "Once upon a time" --max-tokens 20
grep -q 'there was a' out || fail "stories as fp8 say: $(cat out)"
# AWQ folds the sizes of inputs into norms and layers before: the model stays what it was, but for the rounding
try "$ASHLAR" generate --model "$stories" --prompt "One day" --max-tokens 200
cp out calibration
leak_free "$ASHLAR" model convert "$stories" stories-awq --quant awq --calibrate calibration --eval text
expect 0 "--quant awq"
grep -q 'as awq: 4\.31 bits a weight, [89]\.[0-9]* % ' out || fail "awq: $(cat out)"
grep -q 'divergence 0\.0[0-3][0-9]* nats' out || fail "awq is far from the model: $(cat out)"
folder published stories-awq || fail "awq: the folder cannot be decoded"
try "$ASHLAR" model convert stories-awq stories-awq-plain --dtype f32
message=$(folder check stories-awq stories-awq-plain 2>&1) || fail "written as awq: $message"
try "$ASHLAR" model convert "$stories" again --quant awq --calibrate calibration --max-shard-size 0
cmp -s again/model.safetensors stories-awq/model.safetensors || fail "awq: another file the second time"
refused() { # what, words of the error, then words of the command
    local what=$1 words=$2
    shift 2
    try "$ASHLAR" model convert "$@"
    [ $code -ne 0 ] && grep -q -- "$words" err || fail "$what: $(cat err)"
    [ ! -e never ] || fail "$what: it wrote a folder"
}
refused "experts in one tensor" "share a tensor, which cannot be written as nvfp4" gpt_oss never --quant nvfp4
refused "a GGUF file of it" "write safetensors, not --gguf" llama never --quant fp8 --gguf
refused "no calibration" "--calibrate TEXT go together" "$stories" never --quant awq
refused "calibration for nothing" "--calibrate TEXT go together" "$stories" never --quant fp8 --calibrate calibration
refused "--eval alone" "--eval goes with --quant" llama never --dtype bf16 --eval text
refused "no text" "nothing.txt" "$stories" never --quant fp8 --eval nothing.txt

# ---- every command: as with the plain folder
folder make fp8-block "$stories" stories > out
cp "$stories/tokenizer.json" stories
try "$ASHLAR" model info stories
grep -q 'quantised  *fp8, 35 tensors: 226.76 kB in the files, 906.24 kB in memory as F32' out || fail "info: $(cat out)"
try "$ASHLAR" model convert stories plain --dtype f32
answer() { # folder, words...
    local folder=$1
    shift
    try "$ASHLAR" generate --model "$folder" --prompt "Once upon a time" --max-tokens 40 --json --logprobs "$@"
    expect 0 "$folder $*"
    grep -o '"logprobs":.*' out
}
for words in "" "--precision bf16" "--threads 1 --temperature 1 --seed 3" "--backend apart"; do
    same "generate $words" "$(answer plain $words)" "$(answer stories $words)"
done
[ -n "$(answer stories)" ] || fail "no log-probabilities: $(cat out)"
grep -q 'there was a little girl' out || fail "the quantised model says: $(cat out)"
try "$ASHLAR" model convert stories small --quant q8
try "$ASHLAR" generate --model small --prompt "Once upon a time" --max-tokens 40
grep -q 'there was a' out || fail "converted to q8 it says: $(cat out)"

# several processes, each with its part
text_of() { # folder, words...
    local folder=$1
    shift
    start_server --model "$folder" "$@" || fail "no server"
    ask POST /v1/completions '{"prompt": "One day", "max_tokens": 24, "temperature": 0, "logprobs": 2}'
    stop_server
    grep -o '"choices":.*"usage"' answer
}
one=$(text_of plain)
[ -n "$one" ] || fail "no completion: $(cat answer)"
same "two ranks" "$one" "$(text_of stories --tp 2)"

# training: whole weights, adapters, several layouts
train start model.vocab=64 model.hidden=64 model.heads=4 model.ffn=96 train.steps=10
folder make fp8-block start/model base > out
cp start/model/tokenizer* base 2> /dev/null
try "$ASHLAR" model convert base base-plain --dtype f32
train whole-plain model.from="$SCRATCH/base-plain" train.steps=10
train whole model.from="$SCRATCH/base" train.steps=10
expect 0 "training from quantised weights"
same "training" "$(bits_of whole-plain)" "$(bits_of whole)"
! grep -q quantization_config whole/model/config.json || fail "the trained model says that it is quantised"
try "$ASHLAR" launch --procs 2 train job.yaml --out cut model.from="$SCRATCH/base" train.steps=10 mesh.tp=2
expect 0 "two processes"
same "two processes" "$(bits_of whole-plain)" "$(bits_of cut)"
for quant in none q8; do
    train lora-plain-$quant model.from="$SCRATCH/base-plain" lora.rank=2 train.steps=10 model.quant=$quant
    train lora-$quant model.from="$SCRATCH/base" lora.rank=2 train.steps=10 model.quant=$quant
    expect 0 "adapters over quantised weights"
    same "adapters, $quant" "$(bits_of lora-plain-$quant)" "$(bits_of lora-$quant)"
done

# ---- what cannot be read: one sentence
damage() { # what, format, words of the error, then a Python program that changes config, a dict, or tensors: name -> (dtype, shape, bytes)
    rm -rf bad
    cp -r "$2" bad
    python3 - "$4" << PY
import json, sys
sys.path.insert(0, "$SOURCE/tests/e2e/lib")
from quantised_folder import *
config, tensors = json.load(open("bad/config.json")), read_tensors("bad/model.safetensors")
settings, q = config["quantization_config"], "model.layers.0.self_attn.q_proj"
exec(sys.argv[1])
json.dump(config, open("bad/config.json", "w"))
write_tensors("bad/model.safetensors", tensors)
PY
    rm -rf never
    try "$ASHLAR" model convert bad never --dtype f32
    expect_error 1 "$1" "$3"
}
damage "an unknown method" awq "'hqq', which cannot be read (fp8," 'settings["quant_method"] = "hqq"'
damage "no method" awq "it has no 'quant_method'" 'del settings["quant_method"]'
damage "no object" awq "quant_method" 'config["quantization_config"] = 3'
damage "another version" awq "'gemv', which cannot be read ('gemm'" 'settings["version"] = "gemv"'
damage "5 bits" gptq "5 bits cannot be read" 'settings["bits"] = 5'
damage "another kernel's order" gptq "'marlin'" 'settings["checkpoint_format"] = "marlin"'
damage "another group size" gptq "shape" 'settings["group_size"] = 48'
damage "a group that is not there" gptq-order "names group 9 of 2" 'tensors[q + ".g_idx"] = tensor("I32", [64], [9] * 64)'
damage "no scales" fp8-block "has no scales" 'del tensors[q + ".weight_scale_inv"]'
damage "other scales" ct-fp8-channel "3 scales for" 'tensors[q + ".weight_scale"] = tensor("F32", [3, 1], [1] * 3)'
damage "a block of nothing" fp8-block "weight_block_size" 'settings["weight_block_size"] = [0, 128]'
damage "sparse weights" ct-fp8-channel "sparse" 'settings["sparsity_config"] = {"format": "sparse-24-bitmask"}'
damage "no factor" ct-nvfp4 "lacks a part (NVFP4)" 'del tensors[q + ".weight_global_scale"]'
damage "half a matrix" ct-mxfp4 "shape" 'tensors[q + ".weight_packed"] = tensor("U8", [32, 16], [0] * 512)'
damage "experts of another size" mxfp4 "not blocks of 32 inputs" 'n = "model.layers.0.mlp.experts.down_proj_scales"; tensors[n] = tensor("U8", [4, 64, 1], [0] * 256)'
damage "no state" bnb-nf4 "lacks a part (bitsandbytes" 'del tensors[q + ".weight.quant_state.bitsandbytes__nf4"]'
damage "a broken state" bnb-nf4 "quant_state" 'n = q + ".weight.quant_state.bitsandbytes__nf4"; tensors[n] = tensor("U8", [4], [1] * 4)'
damage "a state of other blocks" bnb-nf4 "does not have a scale for each 32 weights" \
    'n = q + ".weight.quant_state.bitsandbytes__nf4"; t = tensors[n][2].replace(b"64, \"d", b"32, \"d"); tensors[n] = ("U8", [len(t)], t)'
damage "FP8 without a word about it" fp8-block "does not say how to read it" 'del config["quantization_config"]'
finish
