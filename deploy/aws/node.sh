#!/usr/bin/env bash
# The first start of a node: Ashlar, its scripts for Slurm and the agent are installed from a bucket. ParallelCluster calls it as
# OnNodeConfigured, PCS from user data, HyperPod from on_init_complete.sh. It may run again.
# usage: node.sh s3://BUCKET/ashlar|FOLDER ROLE [MACHINE]      ROLE: compute, or head (controllers and login nodes: no agent, no checks)
#        MACHINE: p5.48xlarge, ... (ashlar catalog ls); without it what the instance says it is
set -euo pipefail
[ $# -ge 2 ] || { sed -n '5,6s/^# //p' "$0" >&2; exit 2; }
from=${1%/} role=$2 machine=${3:-}
case $role in compute | head) ;; *) echo "node: the role is compute or head, not $role" >&2; exit 2 ;; esac
metadata() { # a path of the instance's own facts, with the token that IMDSv2 wants
    local token
    token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token) &&
        curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"
}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
case $from in
s3://*) aws s3 cp --only-show-errors "$from/ashlar.tar.gz" "$stage/ashlar.tar.gz" ;;
*) cp "$from/ashlar.tar.gz" "$stage/ashlar.tar.gz" ;;
esac
tar -C "$stage" -xzf "$stage/ashlar.tar.gz"

# libfabric of the EFA installer, before the one of the system.
if [ -d /opt/amazon/efa ]; then
    find /opt/amazon/efa -maxdepth 1 -name 'lib*' -type d | sort > /etc/ld.so.conf.d/000-efa.conf
    ldconfig
fi
install -m 755 "$stage/bin/ashlar" /usr/local/bin/ashlar.new
if ! /usr/local/bin/ashlar.new --version > /dev/null; then
    rm /usr/local/bin/ashlar.new
    echo "node: the program does not run here: was it built on this image?" >&2
    exit 1
fi
mv /usr/local/bin/ashlar.new /usr/local/bin/ashlar # jobs that run keep theirs
install -D -m 644 "$stage/share/first.yaml" /usr/local/share/ashlar/first.yaml
printf '* - memlock unlimited\n* - nofile 1048576\n' > /etc/security/limits.d/90-ashlar.conf
if [ "$role" = head ]; then
    # ParallelCluster keeps Prolog= and Epilog= for itself, and runs what is in these folders of the head node on every node.
    for kind in prolog epilog; do
        scripts=/opt/slurm/etc/scripts/$kind.d
        [ -d "$scripts" ] || continue
        printf '#!/bin/sh\nexec /etc/ashlar/slurm/%s.sh\n' "$kind" > "$scripts/50_ashlar"
        chmod 755 "$scripts/50_ashlar"
    done
    exit 0
fi

mkdir -p /etc/ashlar/slurm /etc/systemd/system/slurmd.service.d
install -m 755 "$stage"/slurm/*.sh /etc/ashlar/slurm/
install -m 644 "$stage/slurm/limits.conf" /etc/systemd/system/slurmd.service.d/limits.conf
[ -n "$machine" ] || machine=$(metadata instance-type) || echo "node: the instance does not say what it is: GPUs and cards are not counted" >&2
machine=${machine#ml.} # SageMaker's name of it
{
    [ -z "$machine" ] || ! ashlar catalog show "$machine" > /dev/null 2>&1 || printf 'CHECK_WORDS="--machine %s"\n' "$machine"
    for folder in /opt/slurm/bin /opt/aws/pcs/scheduler/slurm-"${SLURM_VERSION:-*}"/bin; do # scripts of Slurm have no PATH
        [ ! -x "$folder/scontrol" ] || printf 'PATH=%s:%s\n' "$folder" "\$PATH"
    done
} > /etc/ashlar/slurm.env
install -m 644 "$stage/systemd/ashlar-agent.service" /etc/systemd/system/ashlar-agent.service
systemctl daemon-reload
systemctl enable --now ashlar-agent.service
