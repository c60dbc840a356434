#!/usr/bin/env bash
# The image from scratch: at most 43 MB, and in it, with nothing else to be seen, the program answers, trains on two ranks and serves as the
# manifests of deploy/kubernetes start it. Skips without the right to change roots, and for a program with sanitizers.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
skip() { echo "skipped: $*" && exit 77; }
ldd "$ASHLAR" | grep -q 'libasan\|libtsan\|libubsan' && skip "a program with sanitizers"
inside=(unshare --mount --pid --fork --kill-child --mount-proc --root="$SCRATCH/root")
try "$SOURCE/deploy/image/rootfs.sh" "$ASHLAR" "$SCRATCH/root" "$SCRATCH/image.tar"
expect 0 "the root file system"
"${inside[@]}" /usr/bin/ashlar --version > "$SCRATCH/version" 2>&1 || { grep -q 'unshare' "$SCRATCH/version" && skip "$(cat "$SCRATCH/version")"; }
grep -q '^ashlar ' "$SCRATCH/version" || fail "the program does not run: $(cat "$SCRATCH/version")"
grep -q 'libcurl' "$SCRATCH/version" && grep -q 'libfabric' "$SCRATCH/version" || fail "libraries that it loads are missing: $(cat "$SCRATCH/version")"
size=$(stat -c %s "$SCRATCH/image.tar")
echo "image: $((size / 1000000)) MB"
grep -q '^ASHLAR_SANITIZE:[A-Z]*=.' "$BUILD/CMakeCache.txt" || [ "$size" -le 43000000 ] || fail "the image has $size bytes, and 43 MB are the limit"
[ ! -e "$SCRATCH/root/bin/sh" ] || fail "there is a shell in it"
# What it is made of is what its list says.
mkdir "$SCRATCH/image" && tar -C "$SCRATCH/image" -xf "$SCRATCH/image.tar"
same "the layer" "$(sed -n 's/.*"sha256:\([0-9a-f]*\)".*/\1/p' "$SCRATCH/image/config.json")" "$(sha256sum "$SCRATCH/image/layer.tar" | cut -d ' ' -f 1)"

# Two ranks of a training job, as a pod runs them.
cat > "$SCRATCH/root/work/job.yaml" << YAML
model: {type: llama, hidden: 16, layers: 2, heads: 2, ffn: 32}
data: {train: /work/train, seq: 16}
train: {steps: 5, global_batch: 8, grains: 4, save_every: 0}
YAML
try "${inside[@]}" /usr/bin/ashlar data arithmetic --out /work/train --count 4000
expect 0 "data"
mkdir -p "$SCRATCH/root/host"/{proc,sys}
# What a node gives to its containers, seen by nobody else.
mount_host() {
    mount --bind /dev/shm "$SCRATCH/root/dev/shm" && mount --bind /proc "$SCRATCH/root/host/proc" && mount --rbind /sys "$SCRATCH/root/host/sys" && exec "$@"
}
export -f mount_host
export SCRATCH
try unshare --mount --propagation private bash -c 'mount_host "$@"' bash "${inside[@]}" /usr/bin/ashlar launch --procs 2 train /work/job.yaml --out /work/run
expect 0 "two ranks"

# The agent, which sees the host below /host, and the server, with the words of their manifests.
words_of() { sed -n 's/^ *args: \[\(.*\)\]$/\1/p' "$SOURCE/deploy/kubernetes/$1" | sed 's/, / /g; s/"//g; s/\$(POD_IP)/127.0.0.1/; s/\$(NODE_NAME)/here/; s#/models/model#/work/run/model#; s/8000/0/'; }
started=()
stop() { [ ${#started[@]} -eq 0 ] || kill -9 "${started[@]}" 2> "$SCRATCH/kill"; wait; } # unshare waits for others, and its child ends with it
trap stop EXIT
start() { # name, words...: its address is in $url
    local name=$1 i
    shift
    unshare --mount --propagation private bash -c 'mount_host "$@"' bash "${inside[@]}" /usr/bin/ashlar "$@" > "$SCRATCH/$name.log" 2>&1 < /dev/null &
    started+=($!)
    for i in $(seq 6000); do
        url=$(grep -om 1 'http://[0-9.]*:[0-9]*\|port [0-9]*$' "$SCRATCH/$name.log" | sed 's#^port #http://127.0.0.1:#') && [ -n "$url" ] && return
        sleep 0.02
    done
    fail "$name does not start: $(cat "$SCRATCH/$name.log")"
}
answers() { # path: with 200, before long
    local i
    for i in $(seq 6000); do curl -sf "$url$1" > "$SCRATCH/answer" 2> /dev/null && return; sleep 0.02; done
    fail "$url$1 does not answer: $(cat "$SCRATCH"/*.log)"
}
start agent $(words_of agent/daemonset.yaml) --port 0
answers /healthz
answers /metrics
grep -q '^node_cpu_seconds_total\|^node_memory' "$SCRATCH/answer" || fail "no metrics: $(head -n 3 "$SCRATCH/answer")"
start server $(words_of server/deployment.yaml)
answers /health
answers /ready
answers /metrics
grep -q '^vllm:num_requests_waiting' "$SCRATCH/answer" || fail "the autoscaler's metric is missing"
finish
