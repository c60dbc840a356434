#!/usr/bin/env bash
# HyperPod's OnInitComplete: Slurm runs already (SlurmConfigStrategy: Managed). Ashlar is added to every node; the controller gets the
# scripts into slurm.conf. It lies beside node.sh in the bucket, and runs in a copy of that folder.
set -euo pipefail
config=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
[ -r "$config" ] || { echo "on_init_complete: $config is not there: is this a node of HyperPod?" >&2; exit 1; }
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
read -ra addresses < <(hostname -I) # one for each card

# Of the groups, the one with this node's address says what the instance is.
machine=$(python3 - "$config" "${addresses[@]}" << 'PYTHON'
import json, sys
groups = json.load(open(sys.argv[1]))["InstanceGroups"]
print(next((group["InstanceType"] for group in groups for node in group["Instances"] if node.get("CustomerIpAddress") in sys.argv[2:]), ""))
PYTHON
)
[ -n "$machine" ] || echo "on_init_complete: none of ${addresses[*]} is in $config" >&2
role=compute
if ! systemctl is-active --quiet slurmd; then role="head"; fi
"$here/node.sh" "$here" "$role" "$machine"

conf=/opt/slurm/etc/slurm.conf
systemctl is-active --quiet slurmctld || exit 0
grep -q '^# Ashlar' "$conf" && exit 0
cat >> "$conf" << 'SLURM'

# Ashlar: is a node fit? Before a job, after it, and every five minutes on idle nodes.
Prolog=/etc/ashlar/slurm/prolog.sh
Epilog=/etc/ashlar/slurm/epilog.sh
PrologFlags=Alloc
HealthCheckProgram=/etc/ashlar/slurm/health.sh
HealthCheckInterval=300
HealthCheckNodeState=IDLE
SLURM
/opt/slurm/bin/scontrol reconfigure
