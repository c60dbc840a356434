/* diagnose_live - what `ashlar diagnose` reads from running things: agents, ranks and a Prometheus. */
#ifndef ASH_CMD_DIAGNOSE_LIVE_H
#define ASH_CMD_DIAGNOSE_LIVE_H

#include <stdbool.h>
#include "base/opts.h"
#include "cmd/node_flags.h"
#include "observe/health/diagnose.h"

struct ash_diagnose_live {
    struct ash_opt_list agents, ranks;
    const char *token, *prometheus, *from, *to;
    const char *run;            /* folder */
    const char *job;            /* only ranks of this one; NULL: of all */
    bool here;                  /* this machine's own sources too */
    struct ash_node_flags node; /* the paths of "here", and its expected hardware; any of them means here */
    double wait_s;
};

/* Is there anything to read? */
bool ash_diagnose_live_is_given(const struct ash_diagnose_live *live);
/* Read all of it. An agent that does not answer is a finding, not an error. */
int ash_diagnose_live_add(const struct ash_diagnose_live *live, struct ash_diagnose *diagnose, struct ash_err *err);

#endif
