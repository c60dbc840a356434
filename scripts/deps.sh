#!/usr/bin/env bash
# Installs what is missing to build Ashlar (apt, on Debian and Ubuntu); elsewhere says exactly what is missing.
# usage: scripts/deps.sh build | test     (test adds what only the tests need)
set -euo pipefail
purpose=${1:-build}
cd "$(dirname "$0")/.."

# What is looked for, on any system ...
commands=(cc cmake ninja pkg-config)
modules=(jansson yaml-0.1 libpcre2-8 libxxhash libmicrohttpd libutf8proc zlib libcrypto libseccomp)
# ... and the Debian packages that have it.
packages=(build-essential cmake ninja-build pkg-config libjansson-dev libyaml-dev libpcre2-dev libxxhash-dev
          libmicrohttpd-dev libutf8proc-dev zlib1g-dev libssl-dev libseccomp-dev)
# Wanted, but a build does without: the network between machines, .zst files, compressed Parquet files, line editing in the
# chat, S3, files through io_uring. Tests: networks, a Slurm and an S3 server of their own, other clients of S3, analysers,
# Prometheus for metrics, openssl for a certificate, a browser for pages.
extras=(libfabric libzstd snappy liblz4 libbrotlidec libedit libcurl expat liburing)
extra_packages=(libfabric-dev libzstd-dev libsnappy-dev liblz4-dev libbrotli-dev libedit-dev
                libcurl4-openssl-dev libexpat1-dev liburing-dev)
if [ "$purpose" = test ]; then
    modules+=(cmocka)
    packages+=(libcmocka-dev)
    extra_packages+=(iproute2 slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd mariadb-server-core munge clang-16 libclang-rt-16-dev
                     cppcheck pmccabe prometheus prometheus-node-exporter prometheus-alertmanager openssl
                     radosgw ceph-mon ceph-osd ceph-common awscli rclone bindfs fuse3 chromium)
fi

missing=()
for c in "${commands[@]}"; do command -v "$c" > /dev/null || missing+=("$c"); done
if command -v pkg-config > /dev/null; then
    for m in "${modules[@]}"; do pkg-config --exists "$m" || missing+=("$m"); done
else
    missing+=("${modules[@]}")
fi
required=${#missing[@]}
if command -v apt-get > /dev/null && { [ "$(id -u)" -eq 0 ] || [ "$required" -gt 0 ]; }; then
    for m in "${extras[@]}"; do pkg-config --exists "$m" 2> /dev/null || missing+=("$m"); done
    if [ "$purpose" = test ]; then
        for c in ip srun slurmctld slurmd slurmdbd mariadbd munged cppcheck pmccabe promtool prometheus-node-exporter prometheus-alertmanager openssl radosgw ceph-mon ceph-osd rclone chromium; do
            command -v $c > /dev/null || missing+=($c)
        done
        scripts/clang.sh > /dev/null || missing+=(clang-16) # an older one takes seconds to look for leaks on arm64
    fi
    packages+=("${extra_packages[@]}")
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get > /dev/null; then
    echo "ashlar: missing: ${missing[*]}" >&2
    echo "ashlar: install them with this system's package manager (on Debian: apt-get install ${packages[*]})" >&2
    exit 1
fi
echo "ashlar: installing ${missing[*]} with apt"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
install_all() {
    "${as_root[@]}" apt-get update -qq || return
    local available=() p
    for p in "${packages[@]}"; do
        [ -n "$(apt-cache madison "$p" 2> /dev/null)" ] && available+=("$p")
    done
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${available[@]}" > /dev/null
}
install_all || { [ "$required" -eq 0 ] && echo "ashlar: continuing without ${missing[*]}"; }
