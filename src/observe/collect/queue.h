/* queue - what Slurm's squeue and sinfo print, as families of Prometheus text: jobs by partition, state and reason, how
 * long they wait, nodes by state, GPUs. One agent of a cluster reads it (agent --slurm-queue). */
#ifndef ASH_OBSERVE_COLLECT_QUEUE_H
#define ASH_OBSERVE_COLLECT_QUEUE_H

#include "base/str.h"

/* Fields of the two programs, in the order that the parsers read them. Sizes are of columns: longer ones are cut.
 * A reason may be a sentence, so it comes last. */
#define ASH_QUEUE_JOB_FIELDS                                                                                           \
    "State:24,Partition:64,NumNodes:12,PendingTime:16,tres-alloc:160,tres-per-node:96,tres-per-job:96,Reason:96"
#define ASH_QUEUE_NODE_FIELDS "NodeList:128,PartitionName:64,StateLong:32,Gres:160,GresUsed:160"

/* Families of squeue's lines; text is changed, lines that are no job are left out. */
void ash_queue_jobs(char *text, struct ash_str *out);
/* Families of sinfo's lines: a line per node and partition. */
void ash_queue_nodes(char *text, struct ash_str *out);
/* GPUs in a list of Slurm's resources: "gpu:h100:8(S:0-1)", "cpu=4,gres/gpu=8", "gres:gpu:2". */
double ash_queue_gpus(const char *resources);

#endif
