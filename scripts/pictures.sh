#!/usr/bin/env bash
# Takes the pictures of docs/: the report of the quick start, the pages of a small story, the chat page. The story: two ranks train,
# a server answers, and the node loses a GPU (a kernel line in a tree of our own; GPUs from the stand-in of NVIDIA's library).
# usage: scripts/pictures.sh BUILD OUT   (needs Node.js and Chromium; OUT is docs; the runs stay in runs/)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1") out=$(realpath "$2")
ashlar=$build/ashlar
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "pictures: no Chromium" >&2; exit 1; }
command -v node > /dev/null || { echo "pictures: no Node.js" >&2; exit 1; }
scratch=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2> /dev/null || true; wait; rm -rf "$scratch"' EXIT
# wait_for PATTERN FILE: until a line says so.
wait_for() { # two minutes at most
    local end=$((SECONDS + 120))
    until grep -q "$1" "$2" 2> /dev/null; do
        [ $SECONDS -lt $end ] || { echo "pictures: waited for '$1' in $2: $(tail -n 3 "$2")" >&2; exit 1; }
        sleep 0.1
    done
}
start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" > "$scratch/$name" 2>&1 &
    pids+=($!)
}
url() { grep -o 'http://[0-9.:]*' "$scratch/$1" | head -n 1; }

scripts/quickstart.sh "$ashlar" < /dev/null > "$scratch/quickstart"

# The story.
mkdir -p "$scratch/tree/dev" "$scratch/pages"
echo '6,1,1,-;Linux version 6.1' > "$scratch/tree/dev/kmsg"
echo 'SwitchName=leaf-7 Nodes=node-[1-4]' > "$scratch/topology.conf"
start train "$ashlar" launch --procs 2 train examples/quickstart.yaml --out "$scratch/sums" --pages "$scratch/pages" \
    mesh.dp=2 train.steps=100000 train.valid_every=20
start serve "$ashlar" serve --model tests/golden/stories260K --served-model-name stories --port 0 --pages "$scratch/pages"
start agent "$ashlar" agent --port 0 --pages "$scratch/pages" --root "$scratch/tree" --nvml "$build/standin/libnvidia-ml.so.1" \
    --node node-1 --state ''
wait_for 'ready after' "$scratch/serve"
wait_for http "$scratch/agent"
port=$(sed -n 's/.*listening on .* port \([0-9]*\).*/\1/p' "$scratch/serve")
start load "$ashlar" bench serve --url "http://127.0.0.1:$port" --model stories --requests 100000 --rate 2 --prompt-tokens 96 --answer-tokens 96 --vocab 512
wait_for '"step": *150,' "$scratch/sums/log.jsonl"
start dash "$ashlar" dash "$scratch/sums" --port 0 --agents "$(url agent | sed 's|http://||')" --pages '' --topology "$scratch/topology.conf"
wait_for http "$scratch/dash"
echo '4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' >> "$scratch/tree/dev/kmsg"

# A drawn job of 512 ranks, of which rank 77 is a fifth slower and rank 9 has ended.
node -e '
const ranks = [...Array(512).keys()].map((r) => ({ job: "1", run: "big", rank: r, pid: r, alive: r != 9, mesh: [8, 1, 1, 1, 16, 4],
    at: [r % 8, 0, 0, 0, (r >> 3) % 16, r >> 7], steps: [...Array(10).keys()].map((s) => [s + 90, r == 77 ? 120 : 100 + (r * 7 + s) % 3, 0, 1, 0, 0]) }));
console.log(JSON.stringify({ nodes: [], ranks, runs: [] }));' > "$scratch/many.json"
start many "$ashlar" dash --port 0 --board "$scratch/many.json"
wait_for http "$scratch/many"

press='const press = (id, ...keys) => { const e = document.getElementById(id); e.focus(); for (const key of keys) e.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); };
    const seen = async (check) => { while (!check()) await new Promise((r) => setTimeout(r, 100)); };'
cat > "$scratch/jobs.json" << END
[{"url": "file://$PWD/runs/quickstart/report.html", "out": "$out/report.png", "width": 880, "ready": "document.querySelectorAll('svg path').length >= 5"},
 {"url": "$(url dash)", "out": "$out/dash.png",
  "ready": "document.querySelector('#alert-list li.out') && /cmpl/.test(document.getElementById('server-list').textContent) && document.querySelectorAll('#run-list svg path').length >= 3"},
 {"url": "$(url agent)", "out": "$out/node.png", "part": "#cluster", "act": $(node -p 'JSON.stringify(process.argv[1])' "$press await seen(() => document.querySelector('#alert-list li.out')); press('nodes', 'Home', 'Enter');"),
  "ready": "/GPUs: 8, not healthy: 1/.test(document.getElementById('node').textContent)"},
 {"url": "$(url many)", "out": "$out/mesh.png", "width": 560, "part": "#mesh",
  "act": $(node -p 'JSON.stringify(process.argv[1])' "$press await seen(() => /510 at the pace/.test(document.getElementById('mesh-legend').textContent)); press('places', 'Home', ...Array(9).fill('ArrowDown'), ...Array(5).fill('ArrowRight'), 'Enter');"),
  "ready": "/rank77/.test(document.getElementById('place').textContent)"},
 {"url": "http://127.0.0.1:$port", "out": "$out/chat.png", "width": 900, "height": 600,
  "act": "while (!document.querySelector('#model option')) await new Promise((r) => setTimeout(r, 100)); const t = document.getElementById('text'); t.value = 'Once upon a time'; document.getElementById('temperature').value = '0'; document.getElementById('max_tokens').value = '120'; t.dispatchEvent(new Event('input')); document.getElementById('ask').requestSubmit();",
  "ready": "/tokens.s/.test(document.getElementById('messages').textContent) && document.getElementById('stop').hidden"}]
END
node scripts/pictures.mjs "$browser" "$scratch/profile" "$scratch/jobs.json"
