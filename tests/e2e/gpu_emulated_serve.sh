#!/usr/bin/env bash
# One model over ranks that compute on GPUs whose kernels run on the host (tests/emulate), sharing one or on one each: the answers of
# one process on the GPU, and of the CPU, to the bit. A rank that is killed, GPUs that are too few or too small.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
. "$SOURCE/tests/e2e/serve_lib.bash"
ASHLAR=$BUILD/tests/ashlar_emulated
[ -x "$ASHLAR" ] || exit 77
cd "$SCRATCH" || exit 1
export STANDIN_SMS=4 STANDIN_MEMORY=$((4 << 30))
RANDOM=${SEED:-31}

# A model with experts, and its tokenizer.
cat > experts.yaml << 'YAML'
model: {type: mixtral, hidden: 64, layers: 2, heads: 4, kv_heads: 4, ffn: 64, experts: 4}
data: {train: plain, seq: 32}
train: {steps: 1, global_batch: 2, valid_every: 0, save_every: 0}
YAML
try "$ASHLAR" data arithmetic --out plain --count 100
expect 0 "data"
try "$ASHLAR" train experts.yaml --out trained runtime.backend=cpu
expect 0 "a model with experts"
experts=$SCRATCH/trained/model

# Drawn prompts, greedy and sampled, together and one after the other, with log-probabilities; the second time from the prefix cache.
cat > drive.py << 'PY'
import concurrent.futures, http.client, json, random, sys
port, seed = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
bodies = [dict(prompt="".join(rng.choice(["1+2", "7", "12", "9*3", "4="]) for _ in range(rng.choice([1, 4, 12]))), max_tokens=3, seed=i,
               temperature=rng.choice([0, 0.9]), n=rng.choice([1, 1, 2]), logprobs=[2, None][i % 2], echo=i == 2) for i in range(4)]
bodies.append(dict(prompt="2", max_tokens=6, temperature=1, seed=5, guided_regex="[0-9]{2,4}"))
def ask(body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    c.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = json.loads(c.getresponse().read())
    return json.dumps([answer["system_fingerprint"], answer["choices"]])
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    lines = list(pool.map(ask, bodies))
lines.append(ask(bodies[0]))
print("\n".join(lines))
PY
# answers OUT SEED FLAGS...
answers() {
    local out=$1 seed=$2
    shift 2
    start_server "$@" || exit 1
    python3 drive.py "$port" "$seed" > "$out" 2> drive.err || fail "$*: no answers: $(tail -n 1 drive.err) $(tail -n 3 server.log)"
    stop_server
    [ "$server_code" = 0 ] || fail "$*: code $server_code: $(tail -n 3 server.log)"
}
# check MODEL PRECISION FLAGS...: ranks answer as one process does
check() {
    local model=$1 precision=$2
    seed=$RANDOM
    shift 2
    answers one "$seed" --model "$model" --precision "$precision" --backend cuda
    answers ranks "$seed" --model "$model" --precision "$precision" --backend cuda "$@"
    cmp -s one ranks || fail "$precision, $*: other answers: $(diff one ranks | head -c 600)"
    grep -q 'go through host memory' server.log && fail "$precision, $*: ranks do not read each other's memory"
    grep -q 'stand-in GPU (cuda:0), exact' server.log || fail "$precision, $*: no GPU: $(head -n 5 server.log)"
}
layouts=("--tp 2" "--tp 2" "--pp 2" "--tp 2 --pp 2")
precisions=(fp32 bf16)
check "$stories" fp32 --tp 2 --ranks-per-gpu 2 --kv-cache-memory 1mi
mv one first
STANDIN_GPUS=2 answers own "$seed" --model "$stories" --tp 2 # a GPU for each, which is taken without being asked for
grep -q 'stand-in GPU (cuda:1)' server.log || fail "two GPUs: $(head -n 5 server.log)"
cmp -s first own || fail "a GPU each: other answers: $(diff first own | head -c 600)"
answers cpu "$seed" --model "$stories" --backend ref --tp 2
cmp -s <(cut -d, -f2- first) <(cut -d, -f2- cpu) || fail "the CPU has other answers: $(diff first cpu | head -c 600)"
check "$experts" ${precisions[RANDOM % 2]} --ep 2 --ranks-per-gpu 2
draws=1
! is_long || draws=6
for _ in $(seq $draws); do
    models=("$stories" "$experts")
    check "${models[RANDOM % 2]}" ${precisions[RANDOM % 2]} ${layouts[RANDOM % ${#layouts[@]}]} --ranks-per-gpu 4
done

# Tokens are chosen where the logits are.
EMULATE_TRACE=1 try "$ASHLAR" generate --model "$stories" --prompt Once --max-tokens 3 --temperature 0.8 --backend cuda --tp 2 --ranks-per-gpu 2
expect 0 "a trace"
[ "$(grep -c 'launch [0-9]*: sample_choose' err)" = 3 ] || fail "tokens are chosen $(grep -c sample_choose err) times on the GPU, not 3"

# A rank is lost: the answer that is written ends with its name, and so does the server.
start_server --model "$stories" --backend cuda --tp 2 --ranks-per-gpu 2 || exit 1
: > stream
curl -sN "http://127.0.0.1:$port/v1/completions" -d '{"prompt": "Once", "max_tokens": 400, "ignore_eos": true, "stream": true}' > stream &
client=$!
wait_for "a token" grep -q '"text"' stream
rank=$(pgrep -P "$server" | tail -n 1)
kill -KILL "$rank"
wait "$client"
grep -q '"error".*rank 1' stream || fail "a killed rank: the stream ends with: $(tail -n 3 stream)"
server_code=0
wait "$server" || server_code=$?
server=
[ "$server_code" != 0 ] || fail "a killed rank: the server ended well"
grep -q 'the server ends: rank 1' server.log || fail "a killed rank: $(tail -n 3 server.log)"

# Too few GPUs, too little memory: one sentence. Unasked, the CPU computes, and says why.
try "$ASHLAR" serve --model "$stories" --port 0 --backend cuda --tp 2
[ "$code" != 0 ] || fail "two ranks take one GPU unasked"
grep -q '2 ranks would share one GPU.*--ranks-per-gpu 2' err || fail "it does not say how: $(cat err)"
STANDIN_MEMORY=$((700 << 20)) try "$ASHLAR" serve --model "$stories" --port 0 --backend cuda --tp 2 --ranks-per-gpu 2
[ "$code" != 0 ] || fail "two ranks fit into memory for one"
grep -q 'needs 0.8[0-9] GB of GPU memory' err || fail "too little memory: $(cat err)"
start_server --model "$stories" --tp 2 || exit 1
grep -q 'stand-in GPU is not used: 2 ranks would share one GPU' server.log || fail "it does not say why: $(cat server.log)"
stop_server
finish
