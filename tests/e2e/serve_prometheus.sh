#!/usr/bin/env bash
# Prometheus scrapes the server, and promtool finds nothing to say about its metrics. Skips where Prometheus is not installed.
command -v prometheus > /dev/null && command -v promtool > /dev/null || { echo "serve_prometheus: skipped: no prometheus"; exit 77; }
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
prometheus=
agent=
trap 'stop_server KILL; for pid in $prometheus $agent; do kill -KILL "$pid"; done' EXIT

start_server --model "$stories" --pages "$SCRATCH/pages" --served-model-name 'a "quoted" name' || exit 1
served=$port
for i in 1 2 3; do ask POST /v1/completions '{"prompt": "Once upon a time", "max_tokens": 8}'; same "status" 200 "$status"; done
ask GET /metrics
# vLLM's names have a colon, which promtool keeps for rules: it is the one thing that it may not say.
sed '1,/^\r*$/d' "$SCRATCH/answer" | sed 's/vllm:/vllm_/g' > "$SCRATCH/metrics.txt"
promtool check metrics < "$SCRATCH/metrics.txt" > "$SCRATCH/promtool.txt" 2>&1 || fail "promtool: $(cat "$SCRATCH/promtool.txt")"

# The supplied scrape configuration, with an agent that has the server's page, too: what a server says is there once.
"$ASHLAR" agent --port 0 --pages "$SCRATCH/pages" --nvml '' --state '' > "$SCRATCH/agent.out" 2>&1 &
agent=$!
wait_for "the agent" grep -q http "$SCRATCH/agent.out"
agent_address=$(grep -o '127.0.0.1:[0-9]*' "$SCRATCH/agent.out" | head -n 1)
curl -sS "$agent_address/metrics" | grep -q 'vllm:generation_tokens_total' || fail "the agent has no page of the server"
sed "s/127.0.0.1:9470/$agent_address/; s/127.0.0.1:8000/127.0.0.1:$served/; s/15s/1s/g; /rule_files/d" "$SOURCE/deploy/prometheus/prometheus.yml" > "$SCRATCH/prometheus.yml"
free_ports
prometheus --config.file="$SCRATCH/prometheus.yml" --storage.tsdb.path="$SCRATCH/tsdb" --web.listen-address="127.0.0.1:$port" > "$SCRATCH/prometheus.log" 2>&1 &
prometheus=$!
for ((i = 0; i < 1200; i++)); do
    ask GET '/api/v1/query?query=vllm:generation_tokens_total' 2> /dev/null
    grep -q '"24"' "$SCRATCH/answer" && break
    kill -0 "$prometheus" || break
    sleep 0.1
done
grep -q '"model_name":"a \\"quoted\\" name".*"24"' "$SCRATCH/answer" || fail "Prometheus has: $(tail -c 400 "$SCRATCH/answer") $(tail -n 1 "$SCRATCH/prometheus.log")"
scraped() { ask GET '/api/v1/query?query=ashlar_process_up' && grep -q '"job":"ashlar-agent"\|"instance":"'"$agent_address" "$SCRATCH/answer"; }
wait_for "the agent's metrics" scraped
ask GET '/api/v1/query?query=sum(vllm:generation_tokens_total)'
grep -q '"24"' "$SCRATCH/answer" || fail "the sum over servers counts twice: $(tail -c 300 "$SCRATCH/answer")"
kill "$prometheus"; wait "$prometheus"; prometheus=
stop_server TERM
finish
