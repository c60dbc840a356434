/* jobs_priv - what `ashlar jobs` and `ashlar submit` share. */
#ifndef ASH_CMD_JOBS_PRIV_H
#define ASH_CMD_JOBS_PRIV_H

#include <stdbool.h>
#include "orchestrate/job/jobs.h"

/* Wait for the end of a job, printing its output where asked. Returns its exit code (1 where it failed and none is
 * known, 130 where the user left the wait: the job continues), or a negative errno. */
int ash_cmd_await_job(const struct ash_jobs_ops *ops, const char *id, bool print_output, struct ash_err *err);

#endif
