/* drains - a file shared by all nodes of a cluster: nodes taken out and returned, with times. It enforces the budget of
 * the last hour if the scheduler has no such record. */
#ifndef ASH_ORCHESTRATE_BUDGET_DRAINS_H
#define ASH_ORCHESTRATE_BUDGET_DRAINS_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

#define ASH_DRAINS_HOUR_S 3600.0

/* Nodes other than the caller's. */
struct ash_drains {
    size_t out;  /* taken out, and not back yet */
    size_t hour; /* taken out in the hour before, back or not */
};

/* Count them in text (size_bytes of it): lines "SECONDS out|back NODE", in the order of time. Lines that are none are
 * skipped. Returns 0 or -ENOMEM. */
int ash_drains_parse(const char *text, size_t size_bytes, const char *own, double now_s, struct ash_drains *drains_out);

/* The budget of nodes out: a share of `nodes`. is_counted: the scheduler has counted the nodes out now, and the file is
 * only used for the last hour. */
struct ash_drains_budget {
    const char *path;
    size_t nodes;
    double share_max, seconds; /* to wait for other writers */
    bool is_counted;
};

/* Take `own` out, if the budget allows it, and write that down. Returns 0, -EBUSY (it does not), -ETIMEDOUT (others
 * hold it) or another negative errno. */
int ash_drains_claim(const struct ash_drains_budget *budget, const char *own, double now_s, struct ash_err *err);
/* It is back. */
int ash_drains_return(const struct ash_drains_budget *budget, const char *own, double now_s, struct ash_err *err);

/* The sentence of a budget that is spent: `count` of `nodes`; what: as "are out already". -EBUSY. */
int ash_drains_refuse(size_t count, size_t nodes, const char *what, double share_max, const char *own,
                      struct ash_err *err);

#endif
