#!/usr/bin/env bash
# The server as its users start and stop it: mistakes on the command line, keys, signals, draining, TLS, strictness.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"

asked() { # status, what, words...
    [ "$status" = "$1" ] || fail "$2: status $status instead of $1: $(head -c 600 "$SCRATCH/answer")"
    local what=$2 word
    shift 2
    for word in "$@"; do grep -qiF -- "$word" "$SCRATCH/answer" || fail "$what: '$word' is not in: $(head -c 600 "$SCRATCH/answer")"; done
}
body='{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'

# Mistakes.
try "$ASHLAR" serve
expect 2 "no model"
try "$ASHLAR" serve --model "$SCRATCH/nothing" --port 0
expect 1 "a model that is not there"
grep -q "^ashlar: error: .*nothing" "$SCRATCH/err" || fail "a model that is not there: $(cat "$SCRATCH/err")"
try "$ASHLAR" serve --model "$stories" --port 0 --ssl-certfile "$SCRATCH/none.pem"
expect_error 1 "half of TLS" "--ssl-keyfile"
try "$ASHLAR" serve --model "$stories" --port 0 --api-key-file "$SCRATCH/none.txt"
expect_error 1 "no key file" none.txt
try "$ASHLAR" serve --model "$stories" --port 0 --host 256.1.1.1
expect 1 "no such address"
try "$ASHLAR" serve --model "$stories" --port 0 --tool-call-parser nonsense
expect 1 "no such parser"
grep -q "hermes" "$SCRATCH/err" || fail "no such parser: $(cat "$SCRATCH/err")"

# A draft model of another vocabulary: refused, in one line.
cp -r "$stories" "$SCRATCH/other"
sed -i 's/"~":\( *\)510/"^~":\1510/' "$SCRATCH/other/tokenizer.json"
cmp -s "$stories/tokenizer.json" "$SCRATCH/other/tokenizer.json" && fail "the other vocabulary is the same"
try "$ASHLAR" serve --model "$stories" --port 0 --draft-model "$SCRATCH/other"
expect 1 "a draft of another vocabulary"
grep -q "^ashlar: error: --draft-model: .* has another vocabulary" "$SCRATCH/err" || fail "a draft of another vocabulary: $(cat "$SCRATCH/err")"
try "$ASHLAR" serve --model "$stories" --port 0 --kv-dir "$SCRATCH/kv" --kv-dir-size 1000
expect 1 "tiers without room"
grep -q "^ashlar: error: --kv-dir-size: 1000 bytes hold no page" "$SCRATCH/err" || fail "tiers without room: $(cat "$SCRATCH/err")"

# A server without keys: routes, and the same answer as `ashlar generate`.
start_server --model "$stories" || exit 1
try "$ASHLAR" serve --model "$stories" --port "$port"
expect_error 1 "the port is taken" "$port" "--port"
ask GET /health; asked 200 "health" ok
ask GET /ready; asked 200 "ready"
ask GET /ping; asked 200 "ping"
ask GET /version; asked 200 "version" version
ask GET /load; asked 200 "load" server_load
ask GET /v1/models; asked 200 "models" stories260K
ask GET /metrics; asked 200 "metrics" 'vllm:num_requests_running{model_name="stories260K",engine="0"} 0' process_resident_memory_bytes
ask GET /; asked 200 "the page" "content-security-policy" "<title>"
ask POST /v1/completions "$body"; asked 200 "completion" "there was a little"
want=$("$ASHLAR" generate --model "$stories" --prompt 'Once upon a time' --max-tokens 8 --temperature 0 2> /dev/null)
got=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$SCRATCH/answer")
same "the answer of generate" "$want" "$got"
ask POST /v1/chat/completions '{"messages": [{"role": "user", "content": "x"}]}'; asked 400 "no template" no_chat_template chat-template
ask GET /v1/completions; asked 405 "wrong method" "allow: POST"
ask POST /v1/other '{}'; asked 404 "wrong route"

# A client that closes right after the last byte has had all of it; one that leaves before has not.
stream='{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "stream": true}'
exec 4<> "/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-request-id: whole\r\nContent-Length: %d\r\n\r\n%s' ${#stream} "$stream" >&4
while read -r -t 120 line <&4; do case $line in *DONE*) break ;; esac; done
exec 4>&-
wait_for_line 'request id=whole .* end=complete' "$SCRATCH/server.log" || fail "a client that had all"
stream='{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true}'
for try in $(seq 50); do # the answer takes milliseconds: one that is complete before the client leaves proves nothing
    exec 4<> "/dev/tcp/127.0.0.1/$port"
    printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-request-id: leaves-%d\r\nContent-Length: %d\r\n\r\n%s' $try ${#stream} "$stream" >&4
    read -r -t 120 line <&4
    exec 4>&-
    wait_for_line "request id=leaves-$try .* end=" "$SCRATCH/server.log" || fail "a client that left"
    ! grep -q "request id=leaves-$try .* end=client_gone" "$SCRATCH/server.log" || break
done
grep -q 'request id=leaves-.* end=client_gone' "$SCRATCH/server.log" || fail "a client that left: $(tail -n 2 "$SCRATCH/server.log")"

# SIGTERM: the stream that runs is finished, new requests are refused, and the code is 0.
exec 4<> "/dev/tcp/127.0.0.1/$port"
long='{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true}'
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' ${#long} "$long" >&4
read -r -t 120 line <&4
kill -TERM "$server"
timeout 120 cat <&4 > "$SCRATCH/stream"
exec 4>&-
server_code=0; wait "$server" || server_code=$?; server=
same "exit code after SIGTERM" 0 "$server_code"
grep -q 'data: \[DONE\]' "$SCRATCH/stream" || fail "the stream was cut: $(tail -c 300 "$SCRATCH/stream")"
grep -q '^ashlar: request .*path=/v1/completions status=200 end=complete .*answer_tokens=400' "$SCRATCH/server.log" || fail "access log: $(tail -n 3 "$SCRATCH/server.log")"

# --shutdown-timeout 0: an answer that is cut ends with an error, as a stream and whole.
start_server --model "$stories" --shutdown-timeout 0 --max-num-seqs 1 --max-model-len 100000
grep -q "max-model-len 100000 is more than the model.s 512 tokens" "$SCRATCH/server.log" || fail "a context that is too long: $(cat "$SCRATCH/server.log")"
whole='{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "n": 2}'
exec 4<> "/dev/tcp/127.0.0.1/$port" 5<> "/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' ${#long} "$long" >&4
read -r -t 120 line <&4
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' ${#whole} "$whole" >&5
for try in $(seq 400); do ask GET /load; grep -q '"waiting": *2' "$SCRATCH/answer" && break; done
kill -TERM "$server"
timeout 120 cat <&4 > "$SCRATCH/stream"
timeout 120 cat <&5 > "$SCRATCH/whole"
exec 4>&- 5>&-
server_code=0; wait "$server" || server_code=$?; server=
same "exit code after SIGTERM without time" 0 "$server_code"
grep -q 'data: {"error".*shutting down' "$SCRATCH/stream" || fail "the end of a stream that was cut: $(tail -c 300 "$SCRATCH/stream")"
grep -q '^HTTP/1.1 503' "$SCRATCH/whole" || fail "an answer that was cut: $(head -c 300 "$SCRATCH/whole")"

# Keys from the environment and a file, read again on SIGHUP; limits; strictness.
printf 'one name=alice rpm=2\n' > "$SCRATCH/keys.txt"
ASHLAR_API_KEY=env-key start_server --model "$stories" --api-key-file "$SCRATCH/keys.txt" --admin-key root --strict --max-model-len 64 \
    --verifier 'regex=(a.*){5}' || exit 1
ask POST /v1/completions "$body"; asked 401 "no key" invalid_api_key
ask POST /v1/completions "$body" 'Authorization: Bearer env-key'; asked 200 "the environment's key"
# the verifier's weight chooses: of six answers the first one with five times an a, which is not the first of all
several='"prompt": "Once", "n": 6, "seed": 4, "max_tokens": 24, "temperature": 1'
texts() { tail -n 1 "$SCRATCH/answer" | python3 -c 'import json, sys; print(*[json.dumps(c["text"]) for c in json.load(sys.stdin)["choices"]], sep="\n")'; }
ask POST /v1/completions "{$several}" 'Authorization: Bearer env-key'; asked 200 "six answers"
texts > "$SCRATCH/texts"
ask POST /v1/completions "{$several, \"strategy\": \"best\"}" 'Authorization: Bearer env-key'; asked 200 "the best of six"
same "the answer that the verifier likes" "$(grep -E -m 1 '(a.*){5}' "$SCRATCH/texts")" "$(texts)"
[ "$(head -n 1 "$SCRATCH/texts")" != "$(texts)" ] || fail "the first of all answers says nothing about the verifier: $(cat "$SCRATCH/texts")"
ask POST /v1/completions "$body" 'Authorization: Bearer one'; asked 200 "the file's key" 'x-ratelimit-remaining-requests: 1'
ask POST /v1/completions "$body" 'Authorization: Bearer one'; asked 200 "the second one"
ask POST /v1/completions "$body" 'Authorization: Bearer one'; asked 429 "one too many" 'retry-after'
ask POST /v1/completions "$body" 'Authorization: Bearer two'; asked 401 "not yet a key"
printf 'two\n' > "$SCRATCH/keys.txt"
kill -HUP "$server"
wait_for_line 'read again' "$SCRATCH/server.log" || fail "SIGHUP"
ask POST /v1/completions "$body" 'Authorization: Bearer two'; asked 200 "a new key"
ask POST /v1/completions "$body" 'Authorization: Bearer one'; asked 401 "an old key"
ask POST /v1/completions '{"prompt": "x", "nonsense": 1}' 'Authorization: Bearer two'; asked 400 "strict" nonsense
ask POST /v1/completions '{"prompt": "x", "max_tokens": 100}' 'Authorization: Bearer two'; asked 400 "too long" context_length_exceeded 64
ask POST /reset_prefix_cache '' 'Authorization: Bearer two'; asked 401 "not the admin key" "admin"
ask POST /reset_prefix_cache '' 'Authorization: Bearer root'; asked 200 "the admin key" pages_freed
ask GET /health; asked 200 "health needs no key"
grep -Eq 'env-key|Bearer|key=one' "$SCRATCH/server.log" && fail "the log has a key"
grep -q 'key=alice' "$SCRATCH/server.log" || fail "the log has no key names"
stop_server INT
same "exit code after SIGINT" 0 "$server_code"

# TLS, where openssl can make a certificate.
if command -v openssl > /dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$SCRATCH/key.pem" -out "$SCRATCH/cert.pem" 2> /dev/null
    start_server --model "$stories" --ssl-certfile "$SCRATCH/cert.pem" --ssl-keyfile "$SCRATCH/key.pem" || exit 1
    printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" |
        timeout 120 openssl s_client -quiet -connect "127.0.0.1:$port" -CAfile "$SCRATCH/cert.pem" -verify_return_error > "$SCRATCH/answer" 2> "$SCRATCH/tls.err"
    grep -q 'there was a little' "$SCRATCH/answer" || fail "TLS: $(head -c 300 "$SCRATCH/answer") $(tail -n 2 "$SCRATCH/tls.err")"
    stop_server TERM
fi
finish
