#!/usr/bin/env bash
# EFA on recorded trees of p5en nodes, with a stand-in of libfabric: as many interfaces as cards or not, GPU memory, huge pages, settings for
# older software. Machines without EFA have no line about it.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
standin=$BUILD/standin_fabric
[ -e "$standin/libfabric.so.1" ] || { echo "check_efa: skipped: a build without libfabric"; exit 77; }
tree=$SCRATCH/tree
mkdir -p "$tree"/sys/class/infiniband/rdmap{0..15}s0 "$tree"/sys/module/{efa,nvidia}/holders "$tree/proc/sys/vm"
echo 2.17.3g > "$tree/sys/module/efa/version"
printf 'nvidia 1 0 - Live 0x0\nnvidia_uvm 1 0 - Live 0x0\nefa 1 0 - Live 0x0\n' > "$tree/proc/modules"
echo 5128 > "$tree/proc/sys/vm/nr_hugepages"
look() { try env LD_LIBRARY_PATH="$standin" "$@" "$ASHLAR" check node --root "$tree" --gpus 0 --json; }
has() { # name, grade, words of what was found
    python3 -c '
import json, sys
name, grade, words, path = sys.argv[1:]
results = json.load(open(path))["results"]
sys.exit(not any(r["name"] == name and r["grade"] == grade and words in r["found"] for r in results))' "$@" "$SCRATCH/out" || fail "no $1 $2 '$3': $(cat "$SCRATCH/out" "$SCRATCH/err")"
}
look ASHLAR_STANDIN_EFA=16 ASHLAR_STANDIN_EFA_GPU=16
has "EFA driver" good 2.17.3g
has "EFA provider" good "provider 121.0, 16 interfaces"
has GPUDirect good "reads and writes GPU memory"
has "huge pages" good 5128
! grep -q 'EFA settings' "$SCRATCH/out" || fail "settings that nobody made: $(cat "$SCRATCH/out")"
look ASHLAR_STANDIN_EFA=15 ASHLAR_STANDIN_EFA_GPU=0 FI_EFA_USE_DEVICE_RDMA=1
expect 1 "an interface less than cards"
has "EFA provider" BAD "15 interfaces"
has GPUDirect warn "0 of 15 interfaces"
has "EFA settings" warn FI_EFA_USE_DEVICE_RDMA=1
echo 0 > "$tree/proc/sys/vm/nr_hugepages"
look ASHLAR_STANDIN_EFA=16
has "huge pages" warn 0
look ASHLAR_STANDIN_EFA=16 FI_EFA_USE_HUGE_PAGE=0
has "huge pages" good "takes none"
# The library is there, and sees nothing: another root's cards are not its own.
look ASHLAR_STANDIN_EFA=0
has "EFA provider" skipped "--root is elsewhere"
printf 'no library' > "$SCRATCH/libfabric.so.1"
try env LD_LIBRARY_PATH="$SCRATCH" "$ASHLAR" check node --root "$tree" --gpus 0 --json
has "EFA provider" warn "no libfabric"
rm -r "$tree/sys/module/efa"
look ASHLAR_STANDIN_EFA=16
! grep -q 'EFA\|huge pages' "$SCRATCH/out" || fail "EFA on a machine without it: $(cat "$SCRATCH/out")"
finish
