#!/usr/bin/env bash
# Prefill apart from decode: what users do (two servers with roles behind a router), what they do wrong, and what breaks: other
# weights on one side, a prefill server that is killed, keys. Answers are those of one server.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
trap 'kill -9 $(jobs -p) 2> /dev/null' EXIT

# launch NAME WORD... : start it, its log in NAME.log, its address in the variable NAME.
launch() {
    local name=$1 port='' i
    shift
    "$ASHLAR" "$@" --port 0 2> "$SCRATCH/$name.log" &
    eval "${name}_pid=$!"
    for ((i = 0; i < 600; i++)); do
        port=$(grep -oE 'port [0-9]+' "$SCRATCH/$name.log" | head -1 | cut -d' ' -f2)
        [ -n "$port" ] && break
        sleep 0.1
    done
    [ -n "$port" ] || fail "$name did not start: $(cat "$SCRATCH/$name.log")"
    eval "$name=http://127.0.0.1:$port"
}
# until_true COMMAND... : at most two minutes.
until_true() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "never came true: $*"
}
roles_seen() { [ "$(curl -s "$1/replicas" | grep -oE '"state":"up","why":"","role":"(prefill|decode)"' | wc -l)" = "$2" ]; }
# has METRIC URL: its value, 0 if it is not there.
has() { curl -s "$2/metrics" | awk -v name="$1" 'index($0, name) == 1 { print $NF; found = 1 } END { if (!found) print 0 }' | tail -1; }
prompt() { echo "{\"prompt\": \"$(for i in $(seq 12); do printf 'Lily and %s went to the park number %d. ' "$1" "$i"; done)\", \"max_tokens\": 8, \"temperature\": 0, \"logprobs\": 1}"; }
# ask URL BODY [CURL...]: the choices.
ask() { local url=$1 body=$2; shift 2; curl -s "$@" "$url/v1/completions" -d "$body" | grep -oE '"choices":.*"usage"'; }
# prefilled URL BODY: once pages have names the router's count grows with each prompt.
prefilled() { local before; before=$(has ashlar_route_prefilled_total "$1"); ask "$1" "$(prompt "$RANDOM")" > /dev/null; [ "$(has ashlar_route_prefilled_total "$1")" != "$before" ]; }

launch prefill serve --model "$stories" --threads 1 --role prefill
launch decode serve --model "$stories" --threads 1 --role decode
launch alone serve --model "$stories" --threads 1
launch route route --apart-blocks 1 --to "$prefill,$decode"
until_true roles_seen "$route" 2
until_true prefilled "$route"

# A long prompt is computed by one, and answered by the other, as one server does.
prefilled_before=$(has ashlar_route_prefilled_total "$route")
for who in Tom Ann; do
    same "the answer about $who" "$(ask "$alone" "$(prompt $who)")" "$(ask "$route" "$(prompt $who)")"
done
same "prompts that were prefilled" $((prefilled_before + 2)) "$(has ashlar_route_prefilled_total "$route")"
# Of so small a model computing may be faster than reading; the first pages are read all the same.
peer='ashlar_kv_tier_hit_tokens_total{model_name="stories260K",tier="peer"'
[ "$(has "$peer" "$decode")" -gt 0 ] || fail "the decode server read no page of the prefill server"
curl -s "$prefill/metrics" | grep -q 'ashlar_kv_tier_pages{.*tier="shelf"} [1-9]' || fail "the prefill server has no pages for others"

# Where it does not pay, the request goes whole: a short prompt, and one that the decode server has.
whole=$(has ashlar_route_whole_total "$route")
ask "$route" '{"prompt": "Once", "max_tokens": 2}' > /dev/null
ask "$route" "$(prompt Ann)" > /dev/null
same "requests that went whole" $((whole + 2)) "$(has ashlar_route_whole_total "$route")"

# A client that names pages itself, or asks the wrong server for them.
curl -s "$decode/v1/completions" -H 'x-ashlar-pages: 400 0 00' -d "$(prompt Eve)" | grep -q '"choices"' || fail "a wrong header fails a request"
curl -s "$decode/v1/completions" -H 'x-ashlar-prefill: 1' -d "$(prompt Eve)" | grep -q 'start it with --role prefill' || fail "a decode server does not say that it is none"

# Other weights on one side: one sentence, and the prompt is computed.
rm -rf "$SCRATCH/other"
"$ASHLAR" model convert "$stories" "$SCRATCH/other" --dtype bf16 > "$SCRATCH/out" 2>&1 || fail "convert: $(cat "$SCRATCH/out")"
launch strange serve --model "$SCRATCH/other" --served-model-name stories260K --threads 1 --role prefill
launch mixed route --apart-blocks 1 --to "$strange,$decode"
until_true roles_seen "$mixed" 2
until_true prefilled "$mixed"
same "the answer with other weights on one side" "$(ask "$alone" "$(prompt Bob)")" "$(ask "$mixed" "$(prompt Bob)")"
grep -q 'a prefill server has other weights or settings' "$SCRATCH/decode.log" || fail "the decode server does not name other weights"
[ "$(has ashlar_serve_strange_pages_total "$decode")" -gt 0 ] || fail "other weights are not counted"

# The prefill server is killed: requests go on.
kill -9 "$prefill_pid"
same "the answer without a prefill server" "$(ask "$alone" "$(prompt Max)")" "$(ask "$route" "$(prompt Max)")"
until_true roles_seen "$route" 1
same "the next answer without a prefill server" "$(ask "$alone" "$(prompt Zoe)")" "$(ask "$route" "$(prompt Zoe)")"

# With keys, where pages are is believed of the router alone.
launch kprefill serve --model "$stories" --threads 1 --role prefill --api-key one --admin-key boss
launch kdecode serve --model "$stories" --threads 1 --role decode --api-key one --admin-key boss
launch kroute route --apart-blocks 1 --to "$kprefill,$kdecode" --replica-admin-key boss
launch kother route --apart-blocks 1 --to "$kprefill,$kdecode"
until_true roles_seen "$kroute" 2
until_true roles_seen "$kother" 2
keyed() { ask "$1" "$(prompt "$RANDOM")" -H 'Authorization: Bearer one' > /dev/null; [ "$(has "$peer" "$kdecode")" -gt 0 ]; }
for _ in 1 2 3; do keyed "$kother" && fail "pages are taken from a router without the admin key"; done
until_true keyed "$kroute"

# Mistakes, before anything starts.
try "$ASHLAR" serve --model "$stories" --role decode --no-enable-prefix-caching
expect 1 "a role without the prefix cache"
grep -q 'it needs the prefix cache' "$SCRATCH/err" || fail "without a prefix cache: $(cat "$SCRATCH/err")"
try "$ASHLAR" serve --model "$stories" --role prefill --prefill-memory 1000 --port 0
expect 1 "memory for no page"
grep -q -- '--prefill-memory: 1000 bytes hold no page' "$SCRATCH/err" || fail "memory for no page: $(cat "$SCRATCH/err")"
try "$ASHLAR" serve --model "$stories" --role decode --api-key one --port 0
expect 1 "keys without the admin key"
grep -q -- '--admin-key is needed too' "$SCRATCH/err" || fail "keys without the admin key: $(cat "$SCRATCH/err")"
try "$ASHLAR" serve --model "$stories" --role prefill --replicas 2 --port 0
expect 2 "roles of replicas"
grep -q -- '--role' "$SCRATCH/err" || fail "roles of replicas: $(cat "$SCRATCH/err")"
finish
