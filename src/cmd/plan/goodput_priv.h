/* plan_goodput_priv - what `ashlar plan goodput` found, on its way from the arithmetic to table, JSON and picture. */
#ifndef ASH_CMD_PLAN_GOODPUT_PRIV_H
#define ASH_CMD_PLAN_GOODPUT_PRIV_H

#include "plan/goodput/goodput.h"

struct goodput_answer {
    struct ash_goodput_job job;
    const char *rate_source; /* where the failure rate comes from */
    const char *storage;     /* tier whose rates were taken; NULL: they were given */
    struct ash_goodput_way way[ASH_GOODPUT_KINDS];
    struct ash_goodput_result result[ASH_GOODPUT_KINDS];
    struct ash_goodput_sim sim[ASH_GOODPUT_KINDS];
    struct ash_goodput_memory memory[ASH_GOODPUT_KINDS];
    struct ash_goodput_break_even even[ASH_GOODPUT_KINDS]; /* against the way before it; [0] is checkpointless against
                                                              sync */
    enum ash_goodput_kind best;                            /* among those that fit */
};

void ash_goodput_print_table(const struct goodput_answer *answer);
int ash_goodput_print_json(const struct goodput_answer *answer, struct ash_err *err);
/* Goodput over the number of GPUs, with the published points. */
int ash_goodput_draw(const struct goodput_answer *answer, const char *path, struct ash_err *err);

#endif
