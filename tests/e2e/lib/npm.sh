# Sourced by tests that compare with packages of the npm registry. need_npm NAME PACKAGE… makes node_modules in $SCRATCH hold the
# packages, downloaded once into a folder that the tests of a build share, or ends the test as skipped.
need_npm() {
    local name=$1 shared missing=() p
    shift
    skip() { echo "$name: skipped: $1"; exit 77; }
    command -v node > /dev/null || skip "no Node.js"
    command -v npm > /dev/null || skip "no npm"
    shared=$(dirname "$SCRATCH")/npm
    mkdir -p "$shared" "$SCRATCH"
    exec 9> "$shared/lock" && flock 9 # tests may run at the same time
    for p in "$@"; do [ -d "$shared/node_modules/$p" ] || missing+=("$p"); done
    if [ ${#missing[@]} -gt 0 ]; then
        [ -f "$shared/package.json" ] || echo '{"private": true}' > "$shared/package.json"
        # optional: builds of llama.cpp for GPUs, 600 MB of them
        (cd "$shared" && timeout 300 npm install --omit=optional --prefer-offline --ignore-scripts --no-audit --no-fund \
            --loglevel=error --fetch-retries=1 --fetch-timeout=20000 "${missing[@]}") > "$shared/log" 2>&1 || skip "npm install failed: $(tail -n 1 "$shared/log")"
    fi
    exec 9>&-
    ln -sfn "$shared/node_modules" "$SCRATCH/node_modules"
}
