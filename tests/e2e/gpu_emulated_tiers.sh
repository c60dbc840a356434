#!/usr/bin/env bash
# Pools in the memory of a GPU whose kernels run on the host (tests/emulate), as scripts/gpu_serve.sh checks them on a real one: a host
# tier below a pool, a prefill server and a decode server, both sharing the GPU. Answers are those of one server with a large pool.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
EMULATED=$BUILD/tests/ashlar_emulated
[ -x "$EMULATED" ] || exit 77
cd "$SCRATCH" || exit 1
ln -s "$EMULATED" ashlar
export STANDIN_SMS=4 STANDIN_MEMORY=$((4 << 30)) SERVE_WORDS=70
# check BACKEND PART FLAG...
check() {
    local backend=$1 part=$2
    shift 2
    GPU_BACKEND=$backend try bash "$SOURCE/scripts/gpu_serve.sh" results.jsonl "$part" "$stories" "$@"
    expect 0 "$part on $backend: $(tail -n 2 out)"
}
check cuda tier
check cuda roles
# The other parts, and a device of tests, for the script itself.
check apart ranks --tp 2
check apart lost
SERVE_LONG=128 SERVE_REQUESTS=2 SERVE_ANSWER=2 check apart rates
[ "$(grep -c '"stage": "serve", "op": ".*[0-9]' results.jsonl)" = 10 ] || fail "rows: $(cat results.jsonl)"
GPU_BACKEND=none try bash "$SOURCE/scripts/gpu_serve.sh" results.jsonl tier "$stories"
expect 1 "no such backend"
grep -q "no backend 'none'" out || fail "no such backend: $(cat out)"
finish
