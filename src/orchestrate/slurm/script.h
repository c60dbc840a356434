/* script - a job as a batch script of Slurm: one task per node runs the supervisor, which starts the ranks. */
#ifndef ASH_ORCHESTRATE_SLURM_SCRIPT_H
#define ASH_ORCHESTRATE_SLURM_SCRIPT_H

#include "base/str.h"
#include "orchestrate/job/submission.h"

/* A line of every script: such a job saves and ends by itself when its steps get the signal. */
#define ASH_SLURM_MARK "# made by ashlar submit"

/* Append the script for sbatch. Returns 0 or a negative errno: err names the setting that Slurm lacks. */
int ash_slurm_script(const struct ash_submission *submission, struct ash_str *script_out, struct ash_err *err);

#endif
