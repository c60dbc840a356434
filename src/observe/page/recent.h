/* recent - what of a folder's processes the page shows: those that run, and those that have ended a moment ago. */
#ifndef ASH_OBSERVE_PAGE_RECENT_H
#define ASH_OBSERVE_PAGE_RECENT_H

#include <stddef.h>
#include "base/json.h"

/* Remove from processes (ranks or servers as the page gets them) those that ended more than ten minutes before now_s
 * (seconds since 1970). */
void ash_recent_keep(json_t *processes, double now_s);
/* Remove the ranks of other runs than run_ids [run_count]; none: all stay. */
void ash_recent_keep_runs(json_t *ranks, const char *const *run_ids, size_t run_count);
#define ASH_FOLDER_ID_BYTES 96
/* Which folder dir is, on whatever machine: equal for two processes that see the same one. Into buf; empty if it is
 * not there. Returns buf. */
const char *ash_folder_id(const char *dir, char buf[ASH_FOLDER_ID_BYTES]);

#endif
