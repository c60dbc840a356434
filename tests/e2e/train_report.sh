#!/usr/bin/env bash
# The report draws its curves in a real browser, without a word on the network or an error.
. "$SOURCE/tests/e2e/train_lib.bash" || exit 1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77

train run train.steps=100
expect 0 "a run"
page=$SCRATCH/run/report.html
grep -q 'https\?://' <(sed 's|http://www.w3.org/2000/svg||g' "$page") && fail "the page names an address"
timeout 400 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$SCRATCH/profile" --enable-logging=stderr \
    --virtual-time-budget=3000 --dump-dom "file://$page" > "$SCRATCH/dom" 2> "$SCRATCH/err"
grep -q 'CONSOLE.*[Ee]rror' "$SCRATCH/err" && fail "the page has errors: $(grep CONSOLE "$SCRATCH/err" | head -3)"
same "charts" 4 "$(grep -o '<svg ' "$SCRATCH/dom" | wc -l)"
curves=$(grep -o '<path [^>]*d="M[^"]*L' "$SCRATCH/dom" | wc -l)
[ "$curves" -ge 5 ] || fail "only $curves curves"
grep -q 'finished' "$SCRATCH/dom" || fail "the page does not say that the run is finished"
grep -q '<circle [^>]*fill="var(--valid)"' "$SCRATCH/dom" || fail "no validation points"
grep -q '<text [^>]*text-anchor="end">100</text>' "$SCRATCH/dom" || fail "the last label of the steps is cut off"
grep -q 'wall time .*productive [0-9.]* %' "$SCRATCH/dom" || fail "it does not say where the time went"
grep -q '<button [^>]*aria-pressed="false">log scale</button>' "$SCRATCH/dom" || fail "no button for a log scale"
finish
