#!/usr/bin/env bash
# A wrong bit names its core or its device: planted in a product of a core, in one of a device, and in a device's memory. The device is
# the one for tests, whose memory the host cannot touch; a driver whose kernels do nothing is found out too.
. "$SOURCE/tests/e2e/lib.bash" || exit 1
mkdir -p "$SCRATCH/tree/proc"
deep() { try "$ASHLAR" check node --root "$SCRATCH/tree" --deep --seconds 0.05 --json "$@"; }
# has NAME GRADE WORDS: a result of that name and grade that says so.
has() {
    python3 -c '
import json, sys
name, grade, words, path = sys.argv[1:]
results = json.load(open(path))["results"]
sys.exit(not any(r["name"] == name and r["grade"] == grade and words in r["found"] for r in results))' "$@" "$SCRATCH/out" || fail "no $1 $2 '$3': $(cat "$SCRATCH/out")"
}
deep --device apart
has products good "every bit as known"
has memory good "every bit came back"
has "device products" good "apart: "
has "device memory" good "apart: 0.0336 GB, "
has "device rates" good "from the host"
core=$(taskset -pc $$ | sed 's/.*: //; s/[^0-9].*//')
deep --device apart --fault-core "$core" --fault-device 0
[ "$code" -eq 1 ] || fail "wrong bits end with $code"
has products BAD "core $core: 1 wrong elements"
has "device products" BAD "apart: 1 wrong elements in"
has "device products" BAD "at row 0, column 77"
has "device memory" BAD "bits 0000000000000020, first at 0.0168 GB"
# What GPUs need of the machine: kernel modules, the fabric manager where there are NVSwitches, as many network cards as it has.
quick() { try "$ASHLAR" check node --root "$SCRATCH/needs" --nvml "$BUILD/standin/libnvidia-ml.so.1" --machine p5.48xlarge --json; }
mkdir -p "$SCRATCH"/needs/proc/{1,2,77,driver/nvidia-nvswitch/devices/0000:05:00.0} "$SCRATCH"/needs/sys/class/infiniband/rdmap{0..31}s0
: > "$SCRATCH/needs/proc/1/mounts"
echo kthreadd | tee "$SCRATCH/needs/proc/2/comm" > "$SCRATCH/needs/proc/77/comm"
printf 'nvidia 9719808 3 nvidia_uvm, Live 0x0\nefa 1 0 - Live 0x0\n' > "$SCRATCH/needs/proc/modules"
quick
[ "$code" -eq 1 ] || fail "a node without fabric manager ends with $code"
has "fabric manager" BAD "does not run"
has "kernel modules" BAD "nvidia_uvm is not loaded"
has "RDMA devices" good 32
echo nv-fabricmanage > "$SCRATCH/needs/proc/77/comm"
echo 'nvidia_uvm 3485696 0 - Live 0x0' >> "$SCRATCH/needs/proc/modules"
rm -r "$SCRATCH/needs/sys/class/infiniband/rdmap7s0"
quick
has "fabric manager" good "runs"
has "kernel modules" good "nvidia, nvidia_uvm, efa"
has "RDMA devices" BAD 31
# Links: eighteen NVLinks of eight GPUs, one of them down or with errors; network cards with too few lanes, a port that is down, half the rate
# of the machine; nothing of all that is not judged.
nvml=(--device none --nvml "$BUILD/standin/libnvidia-ml.so.1")
card() { # name, lanes, state, rate
    local at=$SCRATCH/tree/sys/class/infiniband/$1
    mkdir -p "$at/ports/1" "$at/device"
    echo "$2" > "$at/device/current_link_width" && echo 16 > "$at/device/max_link_width"
    echo '32.0 GT/s PCIe' | tee "$at/device/current_link_speed" > "$at/device/max_link_speed"
    echo "$3" > "$at/ports/1/state" && echo "$4 Gb/sec (4X NDR)" > "$at/ports/1/rate"
}
for i in 0 1 2 3 4 5 6 7; do card mlx5_$i 16 '4: ACTIVE' 400; done
deep "${nvml[@]}" --machine p5.48xlarge
has NVLink good "8 GPUs, 18 links up on each"
has "network cards" good "8 devices with all lanes, 3200 Gbit/s together"
card mlx5_1 8 '4: ACTIVE' 400
card mlx5_2 16 '1: DOWN' 10
card mlx5_3 16 '4: ACTIVE' 100
ASHLAR_STANDIN_LINK_DOWN=3 ASHLAR_STANDIN_LINK_ERRORS=6 deep "${nvml[@]}" --machine p5.48xlarge
[ "$code" -eq 1 ] || fail "links that are down end with $code"
has NVLink BAD "GPU 3: 17 of 18 links up, link 5 is down"
has "NVLink errors" warn "GPU 6: 7 replays"
has "network card link" BAD "mlx5_1: 8 of 16 PCIe lanes"
has "network card" BAD "mlx5_2: its port is in state 1"
has "network cards" BAD "8 devices, 2510 Gbit/s together, the least 10"
# Copies between GPUs, on a stand-in of the driver: all alike; one pair slow and one with a wrong bit; all below the machine's mark.
between() { LD_LIBRARY_PATH=$BUILD/standin STANDIN_GPUS=3 STANDIN_MEMORY=64000000 deep "$@"; } # too little for patterns, which take long
STANDIN_SLOW_PAIR=12 STANDIN_WRONG_PAIR=20 between
[ "$code" -eq 1 ] || fail "a slow and a wrong pair end with $code"
has "GPU pair" BAD "GPU 1 to 2: 40 GB/s; the median is 400 GB/s"
has "GPU pair" BAD "GPU 2 to 0: 1 words wrong, bits 0000000000000004"
if [[ $BUILD != *address* ]]; then # products that are compared take long there
    between --machine p5.48xlarge
    has "GPU pairs" good "6 pairs of 3 GPUs, 0 through the host, every bit as sent; median 400 GB/s, slowest 0 to 1: 400 GB/s"
    grep -q '"wanted": "315 GB/s, of NVLink.s 450; Azure: 335"' "$SCRATCH/out" || fail "the mark of an H100's pairs: $(cat "$SCRATCH/out")"
    STANDIN_APART=1 between --machine p5.48xlarge
    has "GPU pair" BAD "GPU 2 to 1: 20 GB/s; the median is 20 GB/s"
fi
rm -r "$SCRATCH/tree/sys"
deep --device none
has "network cards" skipped "not judged"
! grep -q '"name":"device' "$SCRATCH/out" || fail "none is checked: $(cat "$SCRATCH/out")"
deep --device cpu
has "device products" good "cpu: "
deep --device cuda:99
has device BAD ""
finish
