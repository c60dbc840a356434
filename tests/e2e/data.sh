#!/usr/bin/env bash
# `ashlar data` as a user meets it: the project's own sources become shards, the run is killed, interrupted and starved of disk and
# still ends in the same bytes; broken input is named; arithmetic splits share no problem.
set -euo pipefail
tokenizer=$SOURCE/tests/golden/tokenizers/gpt2-bytelevel
[ -f "$tokenizer/tokenizer.json" ] || { echo "no golden tokenizer"; exit 77; }
rm -rf "$SCRATCH" && mkdir -p "$SCRATCH" && cd "$SCRATCH"

# A leak check at the end of a process can take seconds: some runs have it (`leaks`), the others go without.
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
tokenize() { "$ASHLAR" data tokenize --tokenizer "$tokenizer" "$@"; }
same() { diff -r "$1" "$2" > log || { cat log; fail "$1 and $2 differ"; }; }

# ---- sources to shards ----
mkdir in && find "$SOURCE/src/base" "$SOURCE/src/storage" "$SOURCE/include" -name '*.[ch]' | sort > list
find "$SOURCE" -maxdepth 1 -name '*.md' | sort >> list
n=0; while read -r file; do n=$((n + 1)); cp "$file" "in/$n-$(basename "$file")"; done < list
run 0 "$n documents" leaks tokenize --out files in/*
run 0 "nothing to do" tokenize --out files in/*
run 0 "every checksum is right" leaks "$ASHLAR" data info files --verify
"$ASHLAR" data info files --show 1 > shown
{ sed '1,/^$/d' shown | head -c -1; } | cmp - <(cat "$(ls in/* | head -1)"; printf '<|endoftext|>') || fail "the first document is another text"

run 0 "  end token    <|endoftext|> (" "$ASHLAR" data info files
grep -q "^  made from    $n files, .*: in/1-" log || fail "no sources: $(cat log)"
leaks "$ASHLAR" data info files --json > facts.json
for fact in "\"documents\": $n" '"eos_token": "<|endoftext|>"' "\"files\": $n" "\"bytes\": $(stat -c %s files/shard-00000.safetensors)"; do
    grep -qF -- "$fact" facts.json || fail "data info --json has no $fact: $(cat facts.json)"
done
run 2 "exclude each other" "$ASHLAR" data info files --json --show 1

# ---- the same bytes, whatever happens meanwhile ----
for _ in $(seq 4); do cat in/*; done > big.txt
job=(--split line --shard-tokens 20k big.txt)
run 0 "documents" tokenize --out one --threads 1 "${job[@]}"
run 0 "documents" tokenize --out three --threads 3 "${job[@]}"
same one three
[ "$(ls one/shard-* | wc -l)" -gt 8 ] || fail "too few shards to be interrupted"
# stop SIGNAL OUT: start the job, send the signal when its third shard is there; prints its exit code. One that is done before the
# signal comes is started anew.
stop() {
    local try pid code
    for try in $(seq 50); do
        rm -rf "$2"
        code=0
        "$ASHLAR" data tokenize --tokenizer "$tokenizer" --out "$2" --threads 1 "${job[@]}" > "log-$2" 2>&1 &
        pid=$!
        while kill -0 $pid 2> /dev/null && [ ! -e "$2/shard-00002.safetensors" ]; do sleep 0.01; done
        kill -"$1" $pid 2> /dev/null || true
        wait $pid 2> /dev/null || code=$?
        [ $code -eq 0 ] || break
    done
    echo $code
}
[ "$(stop KILL killed)" -eq 137 ] || fail "was not killed"
[ ! -e killed/manifest.json ] || fail "a manifest before the end"
run 1 "manifest.json" "$ASHLAR" data info killed
run 0 "finished shards" tokenize --out killed "${job[@]}"
same one killed
[ "$(stop TERM stopped)" -eq 143 ] || { cat log-stopped; fail "did not stop politely"; }
grep -q "the same command continues after" log-stopped || fail "does not say how to continue"
run 0 "finished shards" tokenize --out stopped "${job[@]}"
same one stopped
starve() { (trap '' XFSZ; ulimit -f 36; tokenize --out starved "${job[@]}"); } # a shard needs more
run 1 "cannot write" starve
run 0 "documents" tokenize --out starved "${job[@]}"
same one starved

# a terminal gets a line that says how fast and how long
if command -v script > /dev/null; then
    script -qec "'$ASHLAR' data tokenize --tokenizer '$tokenizer' --out live --eos none ${job[*]}" /dev/null > live.log
    grep -q "documents have no end token" live.log || fail "does not say that there is no end token"
    grep -q "tokens/s .* left" live.log || fail "no progress on a terminal"
fi

# ---- a folder belongs to one run ----
run 1 "not the same: split" tokenize --out one --shard-tokens 20k big.txt
run 1 "not the same: inputs" tokenize --out one --split line --shard-tokens 20k list
run 0 "documents" tokenize --out one --overwrite --split line list
echo "mine" > one/notes
run 0 "in 1 document, 1 shard" tokenize --out one --overwrite --split blank-line list
[ -e one/notes ] || fail "--overwrite removed a file that is not its own"

for i in $(seq 500); do echo "line $i says: it's fine"; done > plain.txt
# ---- a folder of something else keeps what it has
for file in tokenizer.json tokenizer_config.json manifest.json; do
    rm -rf model && mkdir model && echo '{"format": "mine"}' > model/$file
    for flag in '' --overwrite; do
        run 1 "model: it is no data folder, and its $file would be overwritten" tokenize --out model $flag plain.txt
        run 1 "would be overwritten" "$ASHLAR" data arithmetic --out model --count 10 $flag
    done
    [ "$(cat model/*)" = '{"format": "mine"}' ] || fail "$file was overwritten"
done

# ---- jsonl is the same text in another coat ----
sed 's/.*/{"id": 7, "body": "&"}/' plain.txt > coat.jsonl
run 0 "500 documents" tokenize --out plain --split line plain.txt
run 0 "500 documents" tokenize --out coat --field body coat.jsonl
cmp plain/shard-00000.safetensors coat/shard-00000.safetensors

# ---- the same text from a folder, a pipe, standard input and compressed files ----
mkdir -p nest/deep && cp plain.txt nest/deep/plain.txt && gzip -c plain.txt > plain.txt.gz
echo "int x;" > nest/left.c
run 0 "1 files are left out" leaks tokenize --out by-folder --split line nest
grep -q "500 documents" log || fail "documents of a folder: $(cat log)"
run 0 "500 documents" leaks tokenize --out by-gzip --split line plain.txt.gz
run 0 "500 documents" leaks tokenize --out by-stdin --split line - < plain.txt
run 0 "500 documents" tokenize --out by-pipe --split line <(cat plain.txt)
run 0 "500 documents" tokenize --out by-json --field body - < coat.jsonl
cp coat.jsonl coat.json
run 0 "500 documents" tokenize --out by-ending --field body coat.json
ways="folder gzip stdin pipe json ending"
if command -v zstd > /dev/null && "$ASHLAR" version --json | grep -q '"libzstd": "'; then
    zstd -q plain.txt -o plain.txt.zst
    run 0 "500 documents" leaks tokenize --out by-zstd --split line plain.txt.zst
    ways="$ways zstd"
fi
for way in $ways; do cmp plain/shard-00000.safetensors "by-$way/shard-00000.safetensors" || fail "by $way: another shard"; done
run 1 "not the same: inputs" tokenize --out by-stdin --split line - < plain.txt
run 1 "only once" tokenize --out x - - < plain.txt
head -c 100 plain.txt.gz > cut.gz
run 1 "ends in the middle" tokenize --out x --split line cut.gz

# ---- Parquet: rows as documents, whole or interrupted; parquet_world has files of all kinds ----
table=$SOURCE/tests/golden/parquet/rs-plain-v1.parquet
run 0 "left out 9 documents without a token" leaks tokenize --out table "$table"
run 0 "31 documents" tokenize --out table2 --format parquet --shard-tokens 100 "$table"
run 1 "there is no column 'body'; name one with --field (columns of text: text)" tokenize --out y --field body "$table"
run 1 "standard input: this is a Parquet file, not text; name the file itself" tokenize --out y - < "$table"
run 1 "this is a Parquet file, not text" tokenize --out y --format text "$table"
run 1 "read from files, not from a pipe" tokenize --out y --format parquet - < "$table"
run 1 "this is not a Parquet file" tokenize --out y --format parquet plain.txt
head -c 700 "$table" > web.parquet
run 1 "web.parquet: a Parquet file without an end" tokenize --out y web.parquet

# ---- broken input is named ----
printf 'fine\nalso fine\nbro\xffken\nfine\n' > bad.txt
run 1 "bad.txt:3: byte 18 " tokenize --out bad bad.txt
run 0 "skipped 1 broken document" tokenize --out bad --split line --on-error skip bad.txt # the first one has finished nothing
run 1 "other settings (not the same: split)" tokenize --out bad --on-error skip bad.txt
run 0 "skipped 1 broken document" leaks tokenize --out bad --overwrite --split line --on-error skip bad.txt
printf '{"text": "a"}\n{"text": "b"\n{"txt": "c"}\n' > bad.jsonl
run 1 "bad.jsonl:2: not valid JSON" leaks tokenize --out bad --overwrite bad.jsonl
run 0 "bad.jsonl:2: not valid JSON" tokenize --out bad --overwrite --on-error skip bad.jsonl
grep -q -- "--on-error skip" log && fail "it advises what was done: $(cat log)"
: > nothing
run 1 "no text" tokenize --out nothing-out nothing
[ ! -e nothing-out ] || fail "an empty input made a folder"
run 1 "No such file" tokenize --out x missing.txt
mkdir -p bare && echo x > bare/x.c
run 1 "no text in this folder" tokenize --out x bare
run 1 "no token" tokenize --out x --eos '<nope>' plain.txt
run 1 "tokenizer.json" "$ASHLAR" data tokenize --tokenizer in --out x plain.txt
run 2 "--out is missing" "$ASHLAR" data tokenize --tokenizer "$tokenizer" plain.txt
run 2 "no input" tokenize --out x
run 2 "shard" tokenize --out x --shard-token 5 plain.txt
run 2 "did you mean" "$ASHLAR" data tokenise
printf '\xff' | dd of=plain/shard-00000.safetensors bs=1 seek=$(($(stat -c %s plain/shard-00000.safetensors) - 1)) conv=notrunc 2> /dev/null
run 1 "damaged" "$ASHLAR" data info plain --verify

# ---- arithmetic ----
run 0 "4000 documents" "$ASHLAR" data arithmetic --out train --count 4k --shard-tokens 10k --ops add,sub,mul
run 0 "complete already" "$ASHLAR" data arithmetic --out train --count 4k --shard-tokens 10k --ops add,sub,mul
run 1 "not the same: seed" "$ASHLAR" data arithmetic --out train --count 4k --shard-tokens 10k --ops add,sub,mul --seed 2
run 0 "1000 documents" leaks "$ASHLAR" data arithmetic --out valid --count 1000 --split valid --seed 2
run 2 "'pow'" leaks "$ASHLAR" data arithmetic --out x --ops add,pow
run 2 "min_digits" "$ASHLAR" data arithmetic --out x --min-digits 3
"$ASHLAR" data info train --show 1m | sed '1,/^$/d' | sort -u > train.txt
"$ASHLAR" data info valid --show 1m | sed '1,/^$/d' | sort -u > valid.txt
[ -z "$(comm -12 train.txt valid.txt)" ] || fail "problems in both splits"
# every answer, by another calculator
sed 's/<eos>$//; s/\(.*\)=\(.*\)/(\1)==(\2)/' train.txt valid.txt > sums
while read -r sum; do (($sum)) || fail "wrong: $sum"; done < sums
[ "$(wc -l < sums)" -gt 2000 ] || fail "too few different problems"
echo "data: $n files, $(ls three/shard-* | wc -l) shards, $(wc -l < sums) sums"
