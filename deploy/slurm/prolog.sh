#!/usr/bin/env bash
# Prolog= of slurm.conf: before a job starts on a node, is the node fit? One that is not is drained with the reason, and the job is
# queued again for others (SchedulerParameters=nohold_on_prolog_fail). A job that meets such nodes at every start is held: it may be what breaks them.
. "$(dirname "$(readlink -f "$0")")/settings.sh"
reason=$(reason_not_fit)
[ -n "$reason" ] || exit 0
drain "$reason"
restarts=$(scontrol --oneliner show job "$SLURM_JOB_ID" | sed -n 's/.* Restarts=\([0-9]*\) .*/\1/p')
if [ $((${restarts:-0} + 1)) -ge "$STARTS_MAX" ]; then
    scontrol requeuehold "$SLURM_JOB_ID"
    scontrol update JobId="$SLURM_JOB_ID" AdminComment="ashlar: $STARTS_MAX starts met nodes that are not fit, the last one $node: $reason"
fi
exit 1
