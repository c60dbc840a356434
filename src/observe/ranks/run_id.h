/* run_id - which run a process belongs to: its folder, whose name alone others may have too. Processes carry the id as
 * the label run_id of their pages and rings. */
#ifndef ASH_OBSERVE_RANKS_RUN_ID_H
#define ASH_OBSERVE_RANKS_RUN_ID_H

#include <stddef.h>

#define ASH_RUN_ID_LABEL "run_id"
#define ASH_RUN_ID_BYTES 17

/* The id of the run in a folder, which may be missing yet: the same for every way to write its path, on every node that
 * has it at the same place. Into buf, which it returns. */
const char *ash_run_id(const char *dir, char buf[ASH_RUN_ID_BYTES]);

#endif
