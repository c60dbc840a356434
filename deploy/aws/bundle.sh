#!/usr/bin/env bash
# What a node gets at its first start, in one folder for a bucket: the program, the scripts for Slurm, the agent's unit, and node.sh.
# usage: bundle.sh PROGRAM FOLDER [s3://BUCKET/ashlar]      The program must be of the nodes' system: built on their image.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
program=$1 folder=$2 to=${3:-} deploy=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
[ -x "$program" ] || { echo "bundle: $program is no program" >&2; exit 1; }
mkdir -p "$folder"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
install -D -m 755 "$program" "$stage/bin/ashlar"
install -D -m 644 "$deploy/systemd/ashlar-agent.service" "$stage/systemd/ashlar-agent.service"
install -D -m 644 "$deploy/aws/first.yaml" "$stage/share/first.yaml"
for name in prolog epilog health settings; do install -D -m 755 "$deploy/slurm/$name.sh" "$stage/slurm/$name.sh"; done
install -D -m 644 "$deploy/slurm/slurmd.service.d/limits.conf" "$stage/slurm/limits.conf"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$stage" -czf "$folder/ashlar.tar.gz" bin share slurm systemd
install -m 755 "$deploy/aws/node.sh" "$folder/node.sh"
install -m 755 "$deploy/aws/hyperpod/on_init_complete.sh" "$folder/on_init_complete.sh"
[ -z "$to" ] || aws s3 sync --only-show-errors "$folder" "$to"
echo "$folder: $(du -k "$folder/ashlar.tar.gz" | cut -f 1) KiB${to:+, in $to}"
