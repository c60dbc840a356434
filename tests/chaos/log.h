/* log - are the steps of a disturbed run those of one process? */
#ifndef ASH_TESTS_CHAOS_LOG_H
#define ASH_TESTS_CHAOS_LOG_H

#include "ashlar/err.h"

/* Compare the logs of two runs by their folders: every step of many_dir's is in it once, with loss and state
 * of one_dir's, which may have more. Returns 0, -EBADMSG naming the line, or a file's error. */
int ash_chaos_compare_logs(const char *one_dir, const char *many_dir, struct ash_err *err);

#endif
