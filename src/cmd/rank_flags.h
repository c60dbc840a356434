/* rank_flags - the flags of commands whose model may be shared by several processes (serve/engine/ranks.h). The
 * ranks after the first follow the flags of engine_flags.h and struct ash_rank_job: the model, how to compute it, and
 * the dtype of its cache. All else is the first rank's. */
#ifndef ASH_CMD_RANK_FLAGS_H
#define ASH_CMD_RANK_FLAGS_H

#include "cmd/engine_flags.h"

/* Bind it to the command's struct ash_engine_flags. */
extern const struct ash_opt_table ash_rank_flags_table;

/* A command with such flags. Borrowed. */
struct ash_rank_job {
    const char *model;
    int kv_dtype; /* as ash_cmd_use_kv_dtype */
    int argc;     /* as the command got them */
    char **argv;
};

/* Processes that share the model by these flags. */
size_t ash_cmd_ranks_count(const struct ash_engine_flags *flags);
/* With more than one: start the ranks and wait for their end, or follow the first one. Returns ASH_CMD_GO if this
 * process is to run the command, else an exit code. */
int ash_cmd_ranks_begin(struct ash_engine_flags *flags, const struct ash_rank_job *job);

#endif
