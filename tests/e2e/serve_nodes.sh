#!/usr/bin/env bash
# One model over ranks on several nodes, which share no memory: the answers of one process, to the bit, also with tiers of the cache; the
# command that a node's pod runs; networks of their own where that is permitted; the end of all with the first.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1
"$ASHLAR" version | grep -q 'libfabric [0-9]' || exit 77

cat > drive.py << 'PY'
import http.client, json, sys
bodies = [dict(prompt=p, max_tokens=8, temperature=t, seed=s, n=n, logprobs=2, echo=e)
          for s, (p, t, n, e) in enumerate([("Once upon a time", 0, 1, True), ("One day", 1, 2, False)])]
bodies.append(dict(prompt="Lily and Tom went to the park. " * 6, max_tokens=4, temperature=1, seed=9, logprobs=1))
for body in bodies + bodies[2:]:
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
    c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = json.loads(c.getresponse().read())
    print(answer["system_fingerprint"], json.dumps(answer["choices"]))
PY
answers() { python3 drive.py "$port" > "$1" || fail "$1: no answers"; }
started() { # the server of `$server` is ready
    wait_for_line 'ready after' server.log || exit 1
    port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' server.log)
}
served() { # name, flags of launch... -- flags of serve...
    local name=$1 flags=()
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    : > server.log
    "$ASHLAR" launch "${flags[@]}" serve --model "$stories" --port 0 --threads 1 "$@" > server.out 2> server.log &
    server=$!
    started
    answers many
    cmp -s one many || fail "$name: other answers: $(diff one many | head -c 600)"
    stop_server
    [ "$server_code" = 0 ] || fail "$name: SIGTERM: code $server_code: $(tail -n 3 server.log)"
}
start_server --model "$stories" || exit 1
answers one
# The cost of its tokens, by its own metrics.
try "$ASHLAR" run cost "http://127.0.0.1:$port/" --price 3600 --json
expect 0 "the cost of a server"
python3 - "$SCRATCH/out" << 'PY' || fail "the cost of a server: $(cat "$SCRATCH/out")"
import json, sys
cost = json.load(open(sys.argv[1]))
assert cost["answer_tokens"] == 8 + 2 * 8 + 2 * 4 and cost["prompt_tokens"] > 20 and 0 < cost["hours"] < 1
assert abs(cost["usd"] - cost["hours"] * 3600) < 1e-6 * cost["usd"]
assert abs(cost["usd_million_answer_tokens"] - cost["usd"] / cost["answer_tokens"] * 1e6) < 1e-6 * cost["usd_million_answer_tokens"]
PY
try "$ASHLAR" run cost "http://127.0.0.1:$port"
expect_error 1 "a server without a price" "--price"
stop_server
served "two nodes share every matrix" --procs 2 --nodes 2 -- --tp 2 --kv-dir "$SCRATCH/kv" --kv-cache-memory 256k
[ -n "$(find kv -type f -size +0)" ] || fail "no page was kept"
served "the same, from the pages that they have kept" --procs 2 --nodes 2 -- --tp 2 --kv-dir "$SCRATCH/kv" --kv-cache-memory 256k
served "two stages, a node each" --procs 2 --nodes 2 -- --pp 2

# As two pods of a LeaderWorkerSet do, by the words of its manifest: a supervisor each, which meet at the leader's name. The second one
# ends with the first.
cat > group.yaml << YAML
job: {name: chat, command: serve, nodes: 1, procs: 1, image: ashlar, notice: 300s}
serve: {model: $stories, pp: 2, threads: 1, port: 0}
YAML
"$ASHLAR" submit group.yaml --to kubernetes --kind leaderworkerset --dry-run > group.out || fail "no manifest"
tr -d '\n' < group.out | grep -o 'args: \[[^]]*\]' | tail -n 1 | tr -s ' ' | sed "s/^args: \[//; s/\]$//; s/['\"]//g" > words
grep -q '^launch, --procs, 2, --nodes, 2, .*, serve, host=0.0.0.0' words || fail "the words of a pod: $(cat words)"
node() { # number of the pod
    local list
    IFS=, read -ra list <<< "$(sed "s/, /,/g; s/\$(NODE_RANK)/$1/; s/\$(LWS_LEADER_ADDRESS):29500/127.0.0.1:$port_of_ranks/" words)"
    exec "$ASHLAR" "${list[@]}"
}
two_supervisors() {
    free_ports
    port_of_ranks=$port
    : > server.log # what the last one said
    node 1 > second.out 2> second.log &
    second=$!
    node 0 > server.out 2> server.log &
    server=$!
    started
}
two_supervisors
answers many
cmp -s one many || fail "two supervisors: other answers: $(diff one many | head -c 600)"
kill -TERM "$second" # pods of a group are told at once: the worker waits for the leader
stop_server
[ "$server_code" = 0 ] || fail "two supervisors, SIGTERM: code $server_code: $(tail -n 3 server.log)"
wait $second || fail "the second supervisor ends with $?: $(tail -n 3 second.log)"

# A rank of the other node is killed: the server ends and names it, and so does the other node.
two_supervisors
kill -KILL "$(pgrep -P $second)" || fail "node 1 has no rank: $(cat second.log)"
server_code=0
wait "$server" || server_code=$?
server=
[ "$server_code" != 0 ] && grep -q "rank 1" server.log || fail "a lost node: code $server_code: $(tail -n 3 server.log)"
! wait $second || fail "the supervisor of a killed rank ended well"
finish
