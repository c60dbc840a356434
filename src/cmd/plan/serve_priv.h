/* plan_serve_priv - what `ashlar plan serve` found, on its way to table, JSON and picture. */
#ifndef ASH_CMD_PLAN_SERVE_PRIV_H
#define ASH_CMD_PLAN_SERVE_PRIV_H

#include "plan/serve/serve.h"

#define ASH_SERVE_POINTS_MAX 128
#define ASH_SERVE_CURVE_MAX 32
#define ASH_SERVE_RATIOS_MAX 16

struct ash_serve_answer {
    struct ash_serve_job job;
    struct ash_consts consts;
    struct ash_serve_point points[ASH_SERVE_POINTS_MAX]; /* best first */
    size_t count, shown;
    struct ash_serve_point curve[ASH_SERVE_CURVE_MAX]; /* the best cut over batch sizes */
    size_t curve_count;
    struct ash_serve_kinds kinds;
    struct ash_serve_split split;
    bool has_split;
    struct ash_serve_split ratios[ASH_SERVE_RATIOS_MAX]; /* of prompt to decoding replicas, around the best */
    size_t ratio_count;
    struct ash_serve_advice advice;
};

/* Print the tables for people, the verdict last. */
void ash_serve_print_table(const struct ash_serve_answer *answer);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_serve_print_json(const struct ash_serve_answer *answer, struct ash_err *err);
/* Tokens/s per GPU over the time between tokens, for the best cuts. */
int ash_serve_draw(const struct ash_serve_answer *answer, const char *path, struct ash_err *err);

#endif
