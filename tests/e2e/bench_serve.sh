#!/usr/bin/env bash
# Load on a server with a tiny model: closed loop, Poisson arrivals, shared prefixes, a trace; the numbers add up. Then servers that
# misbehave, where there is a Node.js to play them.
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
command -v python3 > /dev/null || exit 77
# check NAME EXPRESSION...: Python expressions over the figures r and the rows each.
check() { holds "$@" || fail "$1"; }
holds() {
    python3 - "$SCRATCH/$1.json" "${@:2}" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
each = r.pop("each")
close = lambda a, b, part: abs(a - b) <= part * abs(b)
wrong = [text for text in sys.argv[2:] if not eval(text)]
if wrong:
    sys.exit(f"not so: {wrong}\n{json.dumps(r)}")
PY
}
# What holds for every run: counts, sums, rates, orders of times and percentiles. Of answers that all came in one chunk, as a busy
# server sends short ones, there is no time between two.
sums() {
    check "$1" 'r["requests"] == len(each) == r["completed"] + r["failed"]' \
        'all(r[k] == sum(e[k] for e in each if e["ok"]) for k in ("prompt_tokens", "output_tokens", "cached_tokens", "chunks"))' \
        'close(r["output_tokens_per_s"] * r["seconds"], r["output_tokens"], 1e-9)' \
        'all(e["due_s"] <= e["sent_s"] <= e["first_s"] <= e["end_s"] <= r["seconds"] for e in each if e["ok"])' \
        'all(r[k]["p50"] <= r[k]["p90"] <= r[k]["p95"] <= r[k]["p99"] <= r[k]["max"] for k in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms") if r[k])' \
        'r["ttft_ms"] and r["e2e_ms"]' \
        'bool(r["itl_ms"]) == any(e["ok"] and e["chunks"] > 1 for e in each)' \
        'bool(r["tpot_ms"]) == any(e["ok"] and e["output_tokens"] > 1 for e in each)' \
        'close(r["e2e_ms"]["max"], 1e3 * max(e["end_s"] - e["due_s"] for e in each if e["ok"]), 1e-6)' \
        'close(r["ttft_ms"]["mean"], 1e3 * sum(e["first_s"] - e["due_s"] for e in each if e["ok"]) / r["completed"], 1e-6)'
}
metric() { # name: the server's own count
    python3 -c "import re, urllib.request; t = urllib.request.urlopen('http://127.0.0.1:$port/metrics').read().decode(); print(int(sum(float(v) for v in re.findall(r'^$1\{[^}]*\} (\S+)', t, re.M))))"
}

start_server --model "$stories" --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" --api-key secret || exit 1
url=http://127.0.0.1:$port
export ASHLAR_API_KEY=secret
# The first run and a failing one look for leaks.
runner=try
bench() { name=$1; shift; "$runner" "$ASHLAR" bench serve --url "$url" --json "$SCRATCH/$name.json" "$@"; }

runner=leak_free bench closed --requests 60 --clients 8 --prompt-tokens 64 --answer-tokens 24
expect 0 "closed loop"
sums closed
check closed 'r["completed"] == 60 and r["output_tokens"] == 60 * 24 and r["mode"] == "closed"'
check closed 'close(r["prompt_tokens"], 60 * 64, 0.1)'
check closed 'max(sum(o["due_s"] <= e["due_s"] < o["end_s"] for o in each) for e in each) <= 8'
grep -q '^throughput .* output tokens/s' "$SCRATCH/out" || fail "the table: $(cat "$SCRATCH/out")"

prefixes="--prompt-tokens 20 --answer-tokens 8 --spread 0.5 --prefixes 4 --prefix-tokens 96 --vocab 512"
bench prefixes --requests 30 --clients 1 $prefixes # one after the other: the server has them all
expect 0 "shared prefixes"
before=$(metric vllm:prompt_tokens_total) generated=$(metric vllm:generation_tokens_total)
bench poisson --requests 100 --rate 50 $prefixes --slo-ttft-ms 0.001
expect 0 "Poisson arrivals"
sums poisson
check poisson 'r["completed"] == 100 and close(each[-1]["due_s"], 2, 0.5) and r["good_share"] == 0'
check poisson 'all(106 <= e["prompt_tokens"] <= 127 for e in each) and len({e["prompt_tokens"] for e in each}) > 5' # and a start
check poisson 'all(e["cached_tokens"] >= 64 for e in each)'
same "the server's own prompt tokens" $((before + $(python3 -c "import json; print(json.load(open('$SCRATCH/poisson.json'))['prompt_tokens'])"))) "$(metric vllm:prompt_tokens_total)"
same "the server's own output tokens" $((generated + $(python3 -c "import json; print(json.load(open('$SCRATCH/poisson.json'))['output_tokens'])"))) "$(metric vllm:generation_tokens_total)"

bench trace --trace "$SOURCE/tests/e2e/lib/trace.jsonl" --trace-speed 20 --trace-scale 0.005 --vocab 512 --slo-e2e-ms 600000 --warmup 2
expect 0 "trace"
sums trace
check trace 'r["requests"] == 40 and r["failed"] == 0 and r["good_share"] == 1 and r["mode"] == "trace"'
check trace 'close(each[-1]["due_s"], 12 / 20, 1e-6) and each[0]["prompt_tokens"] in (34, 35) and each[0]["output_tokens"] == 3'
bench again --trace "$SOURCE/tests/e2e/lib/trace.jsonl" --trace-speed 0 --trace-scale 0.005 --requests 10 --clients 2
expect 0 "trace as a closed loop"
check again 'r["requests"] == 10 and r["mode"] == "closed"'

bench chat --endpoint chat --requests 8 --clients 4 --prompt-tokens 100 --answer-tokens 6
expect 0 "chat"
sums chat
check chat 'r["output_tokens"] == 48 and close(r["prompt_tokens"], 800, 0.1)'

# Mistakes.
runner=leak_free bench wrong --requests 3 --prompt-tokens 1000
expect_error 1 "a prompt that never fits" "400" "context length"
check wrong 'r["failed"] == 3 and r["completed"] == 0 and "512" in r["error"]'
ASHLAR_API_KEY=other bench key --requests 3
expect_error 1 "a wrong key" 401
bench model --requests 1 --model other --vocab 512
expect_error 1 "a wrong model" other
bench both --trace "$SOURCE/tests/e2e/lib/trace.jsonl" --rate 3
expect_error 1 "trace and rate" --trace-speed
echo '{"timestamp": 0, "input_length": 5}' > "$SCRATCH/bad.jsonl"
bench bad --trace "$SCRATCH/bad.jsonl"
expect_error 1 "half a line" "line 1" output_length
try "$ASHLAR" bench serve --url https://localhost
expect_error 1 "https" http://
stop_server TERM
try "$ASHLAR" bench serve --url "$url"
expect_error 1 "no server" "$port"

# Another HTTP server: it says when events come, closes connections, does not count, fails every third request.
if command -v node > /dev/null; then
    cat > "$SCRATCH/other.mjs" <<'JS'
import http from "node:http";
let count = 0;
const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => { body += piece; });
    request.on("end", async () => {
        if (request.url === "/base/v1/models") return response.end(JSON.stringify({ data: [{ id: "m" }] }));
        const { max_tokens } = JSON.parse(body), n = count++;
        if (n % 3 === 2) { response.writeHead(429); return response.end(JSON.stringify({ error: { message: "too many" } })); }
        response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", ...(n % 3 === 1 && { connection: "close" }) });
        for (let i = 0; i < max_tokens; i++) {
            await new Promise((resolve) => setTimeout(resolve, i === 0 ? 100 : 10));
            const event = `data: ${JSON.stringify({ choices: [{ index: 0, text: "é" }] })}\n\n`;
            response.write(event.slice(0, 9));
            response.write(event.slice(9));
        }
        response.end(": a comment\n\ndata: [DONE]\n\n");
    });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
JS
    node "$SCRATCH/other.mjs" > "$SCRATCH/other.port" & server=$!
    wait_for_line '[0-9]' "$SCRATCH/other.port" || exit 1
    url=http://127.0.0.1:$(cat "$SCRATCH/other.port")/base
    times='99 <= r["ttft_ms"]["p50"] < 400 and 9 <= r["tpot_ms"]["p50"] < 100 and 149 <= r["e2e_ms"]["p50"] < 900'
    for try in $(seq 10); do # one of them undisturbed: its times are the server's
        bench other --requests 12 --clients 1 --vocab 100 --answer-tokens 6
        expect 0 "another server"
        grep -q 'too many' "$SCRATCH/err" || fail "another server: $(cat "$SCRATCH/err")"
        sums other
        check other 'r["completed"] == 8 and r["failed"] == 4 and r["output_tokens"] == 48 == r["chunks"]'
        ! holds other "$times" || break
    done
    check other "$times"
    bench late --requests 2 --clients 2 --vocab 100 --answer-tokens 1000 --timeout 0.5
    expect_error 1 "a timeout" "timed out"
fi
finish
