#!/usr/bin/env bash
# `ashlar data train-tokenizer` as a user meets it: the project's own sources become a tokenizer, with the same bytes for any number of
# threads, order of files, form of input and after an interruption; the text comes back from its ids; bad input is one sentence.
set -euo pipefail
rm -rf "$SCRATCH" && mkdir -p "$SCRATCH" && cd "$SCRATCH"
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
leaks() { ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=1" "$@"; }
fail() { echo "FAILED: $*"; exit 1; }
# run CODE TEXT COMMAND...: it must exit with CODE and say TEXT somewhere.
run() {
    local code=$1 text=$2 got=0
    shift 2
    "$@" > log 2>&1 || got=$?
    [ "$got" -eq "$code" ] || { cat log; fail "exit code $got, not $code: $*"; }
    grep -qF -- "$text" log || { cat log; fail "does not say '$text': $*"; }
}
train() { "$ASHLAR" data train-tokenizer "$@"; }
same() { cmp "$1/tokenizer.json" "$2/tokenizer.json" && cmp "$1/tokenizer_config.json" "$2/tokenizer_config.json" || fail "$1 and $2 differ"; }

# ---- the same bytes for any threads, order and form ----
cat "$SOURCE"/src/base/*.c "$SOURCE"/*.md > all.txt
split -n l/3 all.txt part- --additional-suffix=.txt
run 0 "one: 2000 tokens" leaks train --out one --vocab 2k all.txt
for threads in 1 2 5; do run 0 "2000 tokens" train --out "threads$threads" --vocab 2k --threads "$threads" part-ac.txt part-aa.txt part-ab.txt; same one "threads$threads"; done
run 0 "2000 tokens" train --out piped --vocab 2k - < all.txt
same one piped
gzip -k all.txt
run 0 "2000 tokens" train --out gzip --vocab 2k all.txt.gz
same one gzip
run 0 "learned from" train --out table --pattern qwen2 --min-frequency 1 "$SOURCE/tests/golden/parquet/rs-plain-v1.parquet"
grep -q '"NFC"' table/tokenizer.json || fail "qwen2's normalizer is missing"

# ---- JSON lines, several special tokens ----
printf '{"body": "one two two\\n"}\n{"body": "two three"}\n' > lines.jsonl
run 0 "tokens instead of 300" leaks train --out json --field body --vocab 300 --special '<|end|>' --special '<|user|>' --pattern gpt2 lines.jsonl
grep -q '"eos_token": "<|end|>"' json/tokenizer_config.json || fail "no end token: $(cat json/tokenizer_config.json)"
grep -qF '"Ġt w"' json/tokenizer.json || grep -qF '"t w"' json/tokenizer.json || fail "'two' was not learned"

# ---- the tokenizer is used: as many tokens as the summary says ----
run 0 "2000 tokens" train --out whole --vocab 2k --split none part-*.txt
said=$(sed -n 's/.* \([0-9.]*\) bytes per token$/\1/p' log)
run 0 "3 documents" "$ASHLAR" data tokenize --tokenizer whole --out shards part-*.txt
tokens=$(sed -n 's/.* \([0-9]*\) tokens.*/\1/p' log) # with an end token each
[ "$said" = "$(awk -v bytes="$(stat -c %s all.txt)" -v tokens="$tokens" 'BEGIN { printf "%.2f", bytes / (tokens - 3) }')" ] ||
    fail "it said $said bytes per token, there are $tokens tokens: $(cat log)"

# ---- stopped: nothing is left, and the same command begins again ----
mkfifo pipe
"$ASHLAR" data train-tokenizer --out stopped --vocab 2k - < pipe > log 2>&1 &
pid=$!
exec 7> pipe
cat all.txt >&7
kill -INT "$pid"
exec 7>&-
code=0; wait "$pid" || code=$?
[ "$code" -eq 130 ] || { cat log; fail "exit code $code after SIGINT"; }
[ ! -e stopped/tokenizer.json ] || fail "a stopped run left a tokenizer"
run 0 "2000 tokens" train --out stopped --vocab 2k all.txt
same one stopped

# ---- mistakes are one sentence ----
run 1 "one/tokenizer.json: it exists; choose another folder, or give --overwrite" leaks train --out one all.txt
run 0 "one: 500 tokens" train --out one --overwrite --vocab 500 all.txt
run 2 "--out is missing" train all.txt
run 2 "no input" train --out x
run 2 "--out must be a folder here" train --out s3://bucket/x all.txt
run 1 "has no room for 256 bytes and 2 special tokens" train --out x --vocab 257 --special '<a>' --special '<b>' all.txt
run 1 "'a' cannot be a special token: it is the token of a byte" train --out x --special a all.txt
run 1 "the special token '<a>' is named twice" train --out x --special '<a>' --special '<a>' all.txt
printf 'fine\nbro\xffken\n' > bad.txt
run 1 "bad.txt:2: byte 8 of the file is not UTF-8" leaks train --out x bad.txt
run 0 "skipped 1 broken document" train --out x --on-error skip bad.txt
run 1 "there is no text in the input" train --out y --format jsonl --on-error skip <(printf '{"txt": 1}\n')
run 1 "there is no text in the input" train --out y /dev/null
mkdir -p closed && touch closed/in && chmod 500 closed
[ -w closed ] || run 1 "closed" train --out closed/x all.txt
echo "train_tokenizer: passed"
