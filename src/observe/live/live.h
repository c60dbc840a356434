/* live - agents, this machine, ranks, a run and a Prometheus, read as they are now into a diagnosis. */
#ifndef ASH_OBSERVE_LIVE_LIVE_H
#define ASH_OBSERVE_LIVE_LIVE_H

#include <stdbool.h>
#include "base/opts.h"
#include "observe/health/diagnose.h"
#include "observe/health/missing.h"

/* All borrowed. */
struct ash_diagnose_live {
    struct ash_opt_list agents, ranks; /* [NAME=]HOST:PORT each; folders of rings */
    const char *token, *prometheus, *from, *to;
    const char *run;                     /* folder */
    const char *job;                     /* only ranks of this one; NULL: of all */
    bool here;                           /* this machine's own sources too, or those of a tree: */
    const char *root, *nvml;             /* as in struct ash_host_files; root "": this machine */
    const char *kernel_log;              /* NULL: that of the tree, and of this machine none */
    struct ash_parts_wanted wanted_here; /* parts that it must have */
    double wait_s;                       /* between two samples, so that counters become growth; 0: one sample */
};

/* Is there anything to read? */
bool ash_diagnose_live_is_given(const struct ash_diagnose_live *live);
/* Read all of it. An agent that does not answer is a finding, not an error. */
int ash_diagnose_live_add(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_err *err);

#endif
