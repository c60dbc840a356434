/* profile - how long each op takes: every op of an exec between two marks, of the clock or of the GPU's queue. Costs
 * time of its own, so only on request. */
#ifndef ASH_COMPUTE_PROFILE_PROFILE_H
#define ASH_COMPUTE_PROFILE_PROFILE_H

#include <stdio.h>
#include "compute/ops.h"

struct ash_profile;

/* From now on measure exec's ops. Returns 0 or -ENOMEM; the caller ends *profile_out before exec's ash_exec_fini. */
int ash_profile_start(struct ash_exec *exec, struct ash_profile **profile_out, struct ash_err *err);
/* Stop, and write what was measured: all calls as Chrome trace events to path (opens in Perfetto; otherData.clock_ns is
 * the time of its 0 by ash_clock_ns), and a table per op
 * to screen (NULL: none). Frees profile, on failure too; NULL is a no-op. Returns 0 or the error of writing. */
int ash_profile_finish(struct ash_profile *profile, const char *path, FILE *screen, struct ash_err *err);

#endif
