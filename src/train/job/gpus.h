/* gpus - which GPU each rank of a job computes on (parallel/gpus.h). A GPU is one rank's, or that of
 * runtime.ranks_per_gpu neighbours. */
#ifndef ASH_TRAIN_JOB_GPUS_H
#define ASH_TRAIN_JOB_GPUS_H

#include "ashlar/err.h"
#include "collective/group.h"
#include "compute/backends/backends.h"
#include "train/job/job.h"

/* What this rank computes with, before anything is opened. All ranks of group (NULL: alone) call it. Unasked, they take
 * GPUs if each has one, else all the CPU. Returns as ash_gpus_share. cpu_reason: as in ash_job_choose_backend. */
int ash_gpus_choose(const struct ash_job *job, struct ash_group *group, const char *cpu_reason,
                    struct ash_backend_choice *choice_out, struct ash_err *err);
/* The same of a process that will join a group, of which `here` processes, with this one, are on its host. */
void ash_gpus_choose_joining(const struct ash_job *job, size_t here, struct ash_backend_choice *choice_out);

#endif
