/* diagnose_slurm - a Slurm job as things to look at: its nodes, their agents, its log. */
#ifndef ASH_CMD_DIAGNOSE_SLURM_H
#define ASH_CMD_DIAGNOSE_SLURM_H

#include "base/opts.h"
#include "observe/health/diagnose.h"

/* Zero-initialise. */
struct ash_slurm_job {
    struct ash_opt_list agents; /* NODE:PORT each */
    struct ash_opt_list logs;   /* its output, if it can be read here */
    char **agent_texts, *log;   /* owned: the texts that the lists point into */
    size_t agent_capacity;
};

/* Read a job with scontrol. Nodes that are down or drained in Slurm become findings. Returns 0, -ENOENT (no
 * Slurm here, or no such job) or a negative errno. The caller frees with ash_slurm_job_fini, on failure too. */
int ash_slurm_job_read(const char *id, int agent_port, struct ash_slurm_job *job, struct ash_diagnose *diagnose,
                       struct ash_err *err);
/* Free it. A zeroed job is fine. */
void ash_slurm_job_fini(struct ash_slurm_job *job);

#endif
