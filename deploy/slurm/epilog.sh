#!/usr/bin/env bash
# Epilog= of slurm.conf: what a job left on the node is removed: processes of its user who has no other job here, and shared memory.
# Then the node is looked at again, so that one which the job broke gets no other job.
. "$(dirname "$(readlink -f "$0")")/settings.sh"
user=${SLURM_JOB_UID:-0}
others=$(squeue --noheader --nodelist="$node" --user="$user" --states=running,suspended --format=%A | grep -vxc "${SLURM_JOB_ID:-none}")
if [ "$user" -ge 1000 ] && [ "$others" -eq 0 ]; then
    pkill -KILL -U "$user" # this user's processes, on a node where nothing of theirs may run
    find /dev/shm -xdev -user "$user" -delete
fi
reason=$(reason_not_fit)
[ -z "$reason" ] || drain "$reason"
exit 0
