#!/usr/bin/env bash
# Chromium drives the chat page of a server with a real model of 260,000 weights. Skips where there is no browser or no npm.
set -uo pipefail
. "$SOURCE/tests/e2e/lib/npm.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
need_npm serve_page playwright-core
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash"
. "$SOURCE/tests/e2e/serve_lib.bash"
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE/tests/e2e/serve_page.mjs" "$SCRATCH" # modules are found from where a script lies
start_server --model "$stories" --served-model-name stories --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" \
    --tool-call-parser hermes --reasoning-parser none --api-key secret || exit 1
(cd "$SCRATCH" && node serve_page.mjs "$browser" "http://127.0.0.1:$port" chat) || fail "the browser found something"
stop_server TERM
# A model that thinks first.
start_server --model "$stories" --chat-template "$SOURCE/tests/e2e/lib/chatml.jinja" --reasoning-parser think || exit 1
(cd "$SCRATCH" && node serve_page.mjs "$browser" "http://127.0.0.1:$port" think) || fail "the browser found something in thoughts"
stop_server TERM
# A model without a template continues the text.
start_server --model "$stories" || exit 1
(cd "$SCRATCH" && node serve_page.mjs "$browser" "http://127.0.0.1:$port" base) || fail "the browser found something in a base model"
finish
