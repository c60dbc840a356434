#!/usr/bin/env bash
# Several models behind one address: answers are those of a server of that model alone, models are loaded and put away by use, and a
# server that dies or cannot load its model is reported and replaced. The clients of OpenAI and Ollama drive it, where npm has them.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
cd "$SCRATCH" || exit 1
mkdir models
cp -r "$stories" models/one
"$ASHLAR" model convert "$stories" models/two --dtype bf16 > /dev/null || exit 1
for file in "$stories"/*.json; do [ -f "models/two/${file##*/}" ] || cp "$file" models/two; done
mkdir -p models/three models/unknown
cp "$SOURCE/tests/golden/gguf/llama-q8_0.gguf" models/three/weights.gguf
echo '{"model_type": "nonsense"}' > models/unknown/config.json
echo "no model" > models/notes.txt

# Mistakes.
try "$ASHLAR" serve --port 0 --model one=models/one --model one=models/two
expect_error 1 "two of a name" "two models are named one"
try "$ASHLAR" serve --port 0 --model one=models/one --model two=nothing
expect_error 1 "no such folder" "--model" "nothing"
try "$ASHLAR" serve --port 0 --models-dir models/one
expect_error 1 "an empty folder" "--models-dir" "no model in 'models/one'"
try "$ASHLAR" serve --port 0 --models-dir models --lora-modules a=b
expect 1 "an adapter"
grep -q -- '--lora-modules is for a server of one model' err || fail "an adapter: $(cat err)"

# What each model answers alone.
cat > drive.py << 'PY'
import http.client, json, random, sys, threading
port, names, at_once = int(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
random.seed(7)
bodies = [{"model": random.choice(["one", "two", "three"]), "prompt": [1] + [3 + random.randrange(200) for _ in range(random.randint(1, 40))],
           "max_tokens": random.randint(1, 16), "temperature": random.choice([0, 1]), "seed": i, "logprobs": 1, "ignore_eos": True,
           "stream": random.random() < 0.3} for i in range(48)]
answers = [None] * len(bodies)
def ask(i):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    c.request("POST", "/v1/completions", json.dumps(bodies[i]), {"content-type": "application/json"})
    response = c.getresponse()
    body = response.read().decode()
    assert response.status == 200, body
    parts = [json.loads(line[6:]) for line in body.split("\n") if line.startswith("data: {")] if bodies[i]["stream"] else [json.loads(body)]
    choices = [choice for part in parts for choice in part["choices"]]
    answers[i] = [parts[0]["model"], "".join(c["text"] for c in choices), [p for c in choices if c["logprobs"] for p in c["logprobs"]["token_logprobs"]]]
asked = [i for i, body in enumerate(bodies) if body["model"] in names]
def work():
    while asked:
        try: ask(asked.pop())
        except IndexError: return
workers = [threading.Thread(target=work) for _ in range(at_once)]
for worker in workers: worker.start()
for worker in workers: worker.join()
for i, body in enumerate(bodies):
    if body["model"] in names: print(i, json.dumps(answers[i]))
PY
for name in one two three; do
    path=models/$name
    [ "$name" = three ] && path=models/three/weights.gguf
    start_server --model "$path" --served-model-name "$name" --pages "" || exit 1
    python3 drive.py "$port" "$name" 4 >> alone.txt || fail "$name alone"
    stop_server
done
sort -n alone.txt > want.txt

# All of them, with room for one and for two at a time.
for most in 1 2; do
    start_server --models-dir models --max-models "$most" --pages "" --admin-key admin || exit 1
    grep -q 'models/unknown is left out' server.log || fail "the folder that is no model is not named"
    python3 drive.py "$port" one,two,three 6 > got.txt || fail "room for $most: a request failed"
    cmp -s want.txt got.txt || fail "room for $most: answers differ: $(diff want.txt got.txt | head -n 4)"
    grep -q 'is put away' server.log || fail "room for $most: no model was put away"
    [ "$most" = 2 ] || stop_server
done

# What is said of them.
listed() { ask GET /v1/models; grep -o '"id":"[a-z]*"\|"value":"[a-z]*"' answer | paste -sd ' '; }
ask POST /v1/completions '{"model": "one", "prompt": "Once", "max_tokens": 2}'
same "status" 200 "$status"
case $(listed) in *'"id":"one" "value":"loaded"'*'"id":"three"'*'"id":"two"'*) ;; *) fail "the list: $(cat answer)" ;; esac
ask GET /v1/models/one
grep -q '"max_model_len":512.*"value":"loaded"' answer || fail "one model: $(cat answer)"
ask GET /v1/models/none
same "a model that is not there" 404 "$status"
ask POST /v1/completions '{"model": "none", "prompt": "Once"}'
same "a model that is not there" 404 "$status"
grep -q 'The model `none` does not exist: this server has one, three, two' answer || fail "unknown model: $(cat answer)"
ask POST /v1/completions '{"prompt": "Once"}'
same "no model" 400 "$status"
ask GET '/props?model=one'
grep -q '"model_path":"models/one"' answer || fail "props of a model: $(cat answer)"
ask GET '/metrics?model=one'
grep -q '^vllm:generation_tokens_total' answer || fail "metrics of a model: $(head -c 300 answer)"
ask GET /metrics
grep -q '^ashlar_route_model_loads_total{model="one"} [1-9]' answer || fail "loads: $(grep model_loads answer)"
grep -q '^ashlar_route_requests_total{model="three"} [1-9]' answer || fail "requests: $(grep requests answer)"
ask POST /models/unload '{"model": "one"}'
same "unload" 200 "$status"
gone() { case $(listed) in *'"id":"one" "value":"unloaded"'*) ;; *) return 1 ;; esac; }
wait_for "the model to be put away" gone
ask GET '/metrics?model=one'
same "metrics of a model that is not loaded" 404 "$status"
ask POST /models/load '{"model": "one"}'
back() { case $(listed) in *'"id":"one" "value":"loaded"'*) ;; *) return 1 ;; esac; }
wait_for "the model to be loaded" back
ask POST /flush_cache '' 'Authorization: Bearer admin'
same "an admin's call for all" 200 "$status"
ask GET /
grep -q '<html' answer || fail "no page: $(head -c 200 answer)"

# A server that dies: its model is loaded again, and the answer is the same.
text() { ask POST /v1/completions '{"model": "one", "prompt": "Once upon", "max_tokens": 20, "seed": 5}'; sed -n 's/.*"text":"\([^"]*\)".*/\1/p' answer; }
before=$(text)
[ -n "$before" ] || fail "no answer: $(cat answer)"
kill -9 "$(sed -n 's/.*model one is process \([0-9]*\), port.*/\1/p' server.log | tail -n 1)"
same "the answer after its server was killed" "$before" "$(text)"
# A model whose files have gone.
ask POST /models/unload '{"model": "two"}'
away() { case $(listed) in *'"id":"two" "value":"unloaded"'*) ;; *) return 1 ;; esac; }
wait_for "the model to be put away" away
mv models/two/model.safetensors elsewhere
ask POST /v1/completions '{"model": "two", "prompt": "Once", "max_tokens": 2}'
same "a model without its weights" 500 "$status"
grep -q 'the model two could not be loaded: its server ended with code 1' answer || fail "no reason: $(cat answer)"
case $(listed; cat answer) in *'"failed":true,"exit_code":1'*) ;; *) fail "the list: $(cat answer)" ;; esac
mv elsewhere models/two/model.safetensors
ask POST /v1/completions '{"model": "two", "prompt": "Once", "max_tokens": 2}'
same "the same model with its weights" 200 "$status"
pids=$(sed -n 's/.*model [a-z]* is process \([0-9]*\), port.*/\1/p' server.log)
stop_server INT
same "exit code after Ctrl-C" 0 "$server_code"
for pid in $pids; do [ ! -d "/proc/$pid" ] || fail "process $pid outlives its router"; done

# Within a limit of memory, put away when idle, and refused when loading takes too long.
start_server --models-dir models --memory 1 --idle-seconds 0.2 --pages "" || exit 1
python3 drive.py "$port" one,three 2 > got.txt || fail "little memory: a request failed"
grep '"one"\|"three"' want.txt | cmp -s - got.txt || fail "little memory: answers differ"
idle() { case $(listed) in *'"value":"loaded"'*) return 1 ;; esac; }
wait_for "idle models to be put away" idle
stop_server
start_server --models-dir models --load-seconds 0 --pages "" || exit 1
ask POST /v1/completions '{"model": "one", "prompt": "Once", "max_tokens": 2}'
same "no time to load" 503 "$status"
grep -qi 'retry-after' answer || fail "no Retry-After: $(cat answer)"
stop_server
[ "$failures" -eq 0 ] || finish

# Other programs' clients.
modules=$SCRATCH.npm
. "$SOURCE/tests/e2e/lib/npm.sh"
(SCRATCH=$modules need_npm serve_world openai @anthropic-ai/sdk ollama) || finish
ln -sfn "$(readlink "$modules/node_modules")" node_modules
cp "$SOURCE/tests/e2e/serve_models.mjs" .
start_server --models-dir models --max-models 1 --pages "" --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" || exit 1
node serve_models.mjs "http://127.0.0.1:$port" || fail "the clients found something"
finish
