#!/usr/bin/env bash
# One model over several processes: the answers of one, to the bit, however they are started; wrong counts; the end of all ranks with the first; a killed rank.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1

# Wrong counts are one sentence, before anything is loaded.
refused() { # what, word, flags...
    local what=$1 word=$2
    shift 2
    try "$ASHLAR" "$@"
    expect_error 1 "$what" "$word"
    ! grep -q 'listening' err || fail "$what: it listened first"
}
refused "more ranks than heads" "key-value heads (4)" serve --model "$stories" --port 0 --tp 5
refused "more stages than layers" "layers (5)" serve --model "$stories" --port 0 --pp 6
refused "experts of a model without" "experts (0)" serve --model "$stories" --port 0 --ep 2
refused "experts over other ranks" "--ep 3 is not --tp 2" serve --model "$stories" --port 0 --tp 2 --ep 3
refused "no such model" nothing serve --model "$SCRATCH/nothing" --port 0 --tp 2
for flags in "--tp 2" "--tp 2 --pp 2"; do
    try "$ASHLAR" launch --procs 3 serve --model "$stories" --port 0 $flags
    expect 1 "$flags: another count than the launcher's"
    grep -q 'processes, but the launcher has started 3' err || fail "$flags: another count than the launcher's: $(cat err)"
done

# The same answers: greedy, sampled, several of one prompt, a schema, log-probabilities.
cat > drive.py << 'PY'
import http.client, json, sys
bodies = [dict(prompt=p, max_tokens=24, temperature=t, seed=s, n=n, logprobs=3, echo=e)
          for s, (p, t, n, e) in enumerate([("Once upon a time", 0, 1, True), ("Once upon a time", 1, 3, False), ("One day", 0.8, 2, False),
                                            ("Once upon a time there was", 1, 1, True), ("Lily", 0, 1, False)])]
bodies.append(dict(prompt="Tom", max_tokens=40, temperature=1, seed=4, logprobs=1, guided_regex="[A-Z][a-z]{3,9}( [a-z]{2,5}){2}"))
for body in bodies * 2:
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
    c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = json.loads(c.getresponse().read())
    print(answer["system_fingerprint"], json.dumps(answer["choices"]))
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
c.request("POST", "/v1/embeddings", json.dumps(dict(input=["Once upon a time", "Lily and Tom went to the park. " * 9])), {"content-type": "application/json"})
print(json.dumps(json.loads(c.getresponse().read())["data"]))
PY
answers() { python3 drive.py "$port" > "$1" || fail "$1: no answers"; }
children() { pgrep -P "$1"; }
start_server --model "$stories" || exit 1
answers one
stop_server
start_server --model "$stories" --tp 2 --kv-cache-memory 1mi || exit 1
answers two
cmp -s one two || fail "two ranks: other answers: $(diff one two | head -c 600)"
ranks=$(children "$server")
[ "$(wc -w <<< "$ranks")" = 2 ] || fail "ranks: $ranks"
kill -HUP "$server"
wait_for_line 'API keys were read again' server.log || fail "SIGHUP does not reach the first rank"
stop_server
[ "$server_code" = 0 ] || fail "SIGTERM: code $server_code: $(tail -n 3 server.log)"
for rank in $ranks; do ! kill -0 "$rank" 2> err || fail "rank $rank outlives the server"; done
"$ASHLAR" launch --procs 3 serve --model "$stories" --port 0 --tp 3 > server.out 2> server.log &
server=$!
wait_for_line 'ready after' server.log || exit 1
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' server.log)
answers three
cmp -s one three || fail "three ranks under a launcher: other answers: $(diff one three | head -c 600)"
stop_server INT

"$ASHLAR" launch --procs 4 serve --model "$stories" --port 0 --tp 2 --pp 2 --kv-cache-memory 1mi > server.out 2> server.log &
server=$!
wait_for_line 'ready after' server.log || exit 1
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' server.log)
answers stages
cmp -s one stages || fail "two stages of two ranks: other answers: $(diff one stages | head -c 600)"
stop_server INT

# A rank of a stage is killed or stopped: each stream gets one error that names it, the server ends and says why; no process is
# left.
cat > faults.py << 'PY'
import http.client, json, os, signal, sys, threading
port, rank, number = int(sys.argv[1]), int(sys.argv[2]), getattr(signal, sys.argv[3])
begun = threading.Barrier(4)
def go(i):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = dict(prompt=["Once", "Lily", "Tom", "Ben"][i], max_tokens=490, temperature=1, seed=i, ignore_eos=True, stream=True)
    c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    lines = [r.readline()] # it has begun
    if begun.wait() == 0: os.kill(rank, number)
    lines = [line for line in (lines[0] + r.read()).decode().split("\n") if line]
    errors = [line for line in lines if '"error"' in line]
    if "data: [DONE]" in lines and not errors: os._exit(3) # it was faster
    if len(errors) != 1 or "rank %s" % sys.argv[4] not in errors[0]: print(f"stream {i} ends with {lines[-2:]}"); os._exit(1)
threads = [threading.Thread(target=go, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
PY
fault() { # SIGNAL, its rank, flags...
    local name=$1 number=$2 ranks code=3
    shift 2
    for _ in $(seq 20); do # until all streams last long enough
        [ "$code" = 3 ] || break
        start_server --model "$stories" "$@" || exit 1
        ranks=$(children "$server")
        code=0
        python3 faults.py "$port" "$(sed -n "$((number + 1))p" <<< "$ranks")" "$name" "$number" > faults || code=$?
        [ "$code" != 3 ] || stop_server KILL
    done
    [ "$code" = 0 ] || fail "$name of rank $number, $*: $(cat faults)"
    server_code=0
    wait "$server" || server_code=$?
    [ "$server_code" != 0 ] || fail "$name of rank $number, $*: the server ended well"
    server=
    grep -q "the server ends: rank $number" server.log || fail "$name of rank $number, $*: $(tail -n 3 server.log)"
    for rank in $ranks; do ! kill -0 "$rank" 2> err || fail "rank $rank outlives one that was lost"; done
}
fault SIGKILL 1 --tp 2
fault SIGSTOP 1 --tp 2 --num-speculative-tokens 3
fault SIGKILL 3 --tp 2 --pp 2
fault SIGSTOP 2 --pp 3

# A rank of a replica is killed: its streams continue on another replica, with the same text.
cat > streams.py << 'PY'
import http.client, json, subprocess, sys, threading
port, rank = int(sys.argv[1]), sys.argv[2]
texts, begun = [None] * 6, threading.Barrier(6)
def go(i):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = dict(prompt=["Once", "Lily", "Tom", "One day", "A dog", "Ben"][i], max_tokens=400, temperature=1, seed=i, ignore_eos=True, stream=True)
    c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    first = r.readline()
    if begun.wait() == 0 and rank: subprocess.run(["kill", "-KILL", rank])
    lines = (first + r.read()).decode().split("\n")
    if "data: [DONE]" not in lines: sys.exit(f"stream {i} ends with {lines[-3:]}")
    texts[i] = "".join(json.loads(l[6:])["choices"][0]["text"] for l in lines if l.startswith("data: {"))
threads = [threading.Thread(target=go, args=(i,)) for i in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(texts))
PY
start_server --model "$stories" --tp 2 --replicas 2 || exit 1
wait_for_line 'ready after.*2 replicas' server.log || exit 1
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' server.log | head -n 1)
python3 streams.py "$port" '' > calm || fail "replicas of ranks: $(cat calm)"
rank=$(children "$(children "$server" | head -n 1)" | tail -n 1)
python3 streams.py "$port" "$rank" > disturbed || fail "a killed rank of a replica: $(cat disturbed)"
cmp -s calm disturbed || fail "a killed rank of a replica changed a text: $(diff calm disturbed | head -c 600)"
stop_server
