#!/usr/bin/env bash
# The official clients of OpenAI, Anthropic and Ollama drive the server, with a real model of 260,000 weights. Skips where Node.js or the
# npm registry is not to be had.
set -uo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm serve_world openai @anthropic-ai/sdk ollama
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE/tests/e2e/serve_world.mjs" "$SCRATCH" # modules are found from where a script lies
start_server --model "$stories" --served-model-name stories,gpt-4o --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" \
    --tool-call-parser hermes --reasoning-parser none --api-key secret || exit 1
(cd "$SCRATCH" && node serve_world.mjs "http://127.0.0.1:$port" secret) || fail "the clients found something"
grep -q 'secret' "$SCRATCH/server.log" && fail "the log has the key"
grep -q 'Once upon' "$SCRATCH/server.log" && fail "the log has a text"
stop_server TERM
same "exit code after SIGTERM" 0 "$server_code"
# A model that thinks first.
start_server --model "$stories" --served-model-name stories,gpt-4o --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" \
    --reasoning-parser think --max-num-seqs 2 --no-enable-prefix-caching || exit 1
(cd "$SCRATCH" && node serve_world.mjs "http://127.0.0.1:$port" any 'a chat') || fail "the clients found something"
stop_server TERM
finish
