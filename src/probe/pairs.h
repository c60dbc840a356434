/* pairs - the deep check of copies between the GPUs of this machine. */
#ifndef ASH_PROBE_PAIRS_H
#define ASH_PROBE_PAIRS_H

#include "observe/check/check.h"

/* Compare the bits of copies between all pairs, and their rates with marks (machine: of the catalog; NULL: not known).
 * Adds the results; nothing if there is no GPU, or one. */
void ash_probe_pairs(const char *machine, struct ash_check_report *report);

#endif
