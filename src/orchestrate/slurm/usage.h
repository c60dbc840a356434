/* usage - what sacct prints about jobs that ran, read. No program is run here. */
#ifndef ASH_ORCHESTRATE_SLURM_USAGE_H
#define ASH_ORCHESTRATE_SLURM_USAGE_H

#include "ashlar/err.h"
#include "orchestrate/job/usage.h"

/* Fields of sacct's lines, which this byte parts (names and comments may hold any other); times are seconds since
 * 1970. */
#define ASH_SLURM_USAGE_BREAK "\x1f"
#define ASH_SLURM_USAGE_FORMAT "JobID,JobName,User,Account,Start,End,AllocNodes,AllocTRES,Comment"
#define ASH_SLURM_USAGE_FIELDS 9
/* Where a job's comment begins if ashlar submitted it: then come "price=X " if it is known, and "out=FOLDER". */
#define ASH_SLURM_COMMENT "ashlar "

/* Append what jobs had between from_s and to_s; what has no end yet ends at to_s. Returns 0, -ENOMEM, or -EINVAL for a
 * line that is no job. */
int ash_slurm_read_usage(const char *text, double from_s, double to_s, struct ash_usage_list *list_out,
                         struct ash_err *err);

#endif
