#!/usr/bin/env bash
# HealthCheckProgram= of slurm.conf: a node that is not fit is drained with the reason; one that it drained and that is fit again comes back.
# What others drained stays as it is.
. "$(dirname "$(readlink -f "$0")")/settings.sh"
facts=$(scontrol --oneliner show node "$node")
reason=$(reason_not_fit)
case $facts in
*DRAIN*"Reason=ashlar check:"*) [ -n "$reason" ] || scontrol update NodeName="$node" State=RESUME ;;
*DRAIN*) ;;
*) [ -z "$reason" ] || drain "$reason" ;;
esac
exit 0
