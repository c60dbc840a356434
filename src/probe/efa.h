/* efa - does the software of EFA fit its cards? */
#ifndef ASH_PROBE_EFA_H
#define ASH_PROBE_EFA_H

#include "observe/check/check.h"

/* Add the kernel's driver, libfabric's provider and as many interfaces as there are cards, GPU memory, huge pages, and
 * settings that newer software does not want. Nothing on a machine without EFA. Loads libfabric: 0.2 s. */
void ash_probe_efa(const struct ash_check_opts *opts, struct ash_check_report *report);

#endif
