/* queue_priv - flags and results of `ashlar plan queue`, for tables, JSON and charts. */
#ifndef ASH_CMD_PLAN_QUEUE_PRIV_H
#define ASH_CMD_PLAN_QUEUE_PRIV_H

#include "queue/replay/replay.h"
#include "queue/replay/site.h"

#define ASH_QUEUE_POLICIES_MAX 12
#define ASH_QUEUE_FILL_STEPS 131 /* 0 to 130 % */

struct ash_queue_answer {
    struct ash_site site;
    struct ash_trace *trace;
    struct ash_policy_conf conf[ASH_QUEUE_POLICIES_MAX];
    struct ash_replay_report report[ASH_QUEUE_POLICIES_MAX];
    double fill[ASH_QUEUE_POLICIES_MAX][ASH_QUEUE_FILL_STEPS]; /* shares of GPUs allocated, the mean of all seeds */
    double seconds[ASH_QUEUE_POLICIES_MAX];                    /* that the simulation took */
    int count;
    bool is_fill;
    int mapped; /* queues of the trace that the policy does not have, and others stand for */
};

/* A policy without queues or classes gets those of the trace. Returns 0 or a negative errno. */
int ash_queue_adopt_names(struct ash_policy_conf *conf, const struct ash_trace *trace, struct ash_err *err);
/* Queues and classes of the trace by the policy's numbers; unknown ones are assigned to its queues in turn. Returns 0
 * or -ENOMEM; the caller frees both lists, then too. */
int ash_queue_map_names(struct ash_queue_answer *answer, const struct ash_policy_conf *conf, int **queue_of,
                        int **class_of);
/* Print tables for people. */
void ash_queue_print_table(const struct ash_queue_answer *answer);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_queue_print_json(const struct ash_queue_answer *answer, struct ash_err *err);
/* Write a page of charts to path. The same. */
int ash_queue_write_page(const struct ash_queue_answer *answer, const char *path, struct ash_err *err);

#endif
