/* dispatch - tokens to their experts and back: bytes inside an NVLink domain, bytes that leave it, seconds. */
#ifndef ASH_PLAN_DISPATCH_H
#define ASH_PLAN_DISPATCH_H

#include <stdbool.h>
#include "infra/catalog.h"
#include "plan/consts.h"

#define ASH_DISPATCH_FP8_BYTES (1 + 4.0 / 128) /* a float32 scale per 128 values */

struct ash_dispatch {
    double ranks;           /* that share the experts, neighbours in the order of GPUs */
    double tokens;          /* of one rank */
    double hidden, choices; /* of the model; choices: experts per token */
    double groups;          /* that the experts are cut into, neighbours too; 0 or 1: none */
    double group_choices;   /* of them, whose experts one token may choose */
    double element_bytes;   /* there: 2, or 1 and scales; back it is always 2 */
    bool two_level;         /* a token crosses to a domain once and is copied there */
    double imbalance;       /* load of the fullest rank over the mean, at least 1 */
    double network_share;   /* of the rate between domains alone; 1: nothing else runs */
    double message_s;       /* that a host thread takes to post one token to one domain; 0: GPUs post themselves */
};

/* Dispatch and combine of one layer. */
struct ash_dispatch_time {
    double leaving;                  /* share of plain dispatch bytes that leave the domain */
    double inner_bytes, outer_bytes; /* that one rank sends there */
    double outer_back_bytes;         /* and back to other domains */
    double there_s, back_s;          /* each way, both levels under way at once */
    double inner_s, outer_s;         /* there and back, of each level */
    double total_s;                  /* there_s + back_s */
    double buffer_bytes;             /* that a rank must hold when every token chooses it */
};

/* Over EFA a host thread posts every send; elsewhere GPUs do. network is the machine's, as the catalog names it. */
bool ash_dispatch_is_host_sent(const char *network);
/* Predict one dispatch and its combination. Never fails. */
void ash_dispatch_predict(const struct ash_consts *consts, const struct ash_cluster *cluster,
                          const struct ash_dispatch *dispatch, struct ash_dispatch_time *time_out);

/* A published measurement of expert traffic and what the model says of it, in the unit of its source. */
struct ash_dispatch_check {
    const char *machine, *what, *source;
    double ranks, measured, predicted; /* GB/s, or microseconds where `us` */
    bool us;
};

/* Predict the i-th published measurement on the machines of catalog. Returns false after the last, and where the
 * catalog lost the machine. */
bool ash_dispatch_check_at(const struct ash_consts *consts, const struct ash_catalog *catalog, size_t index,
                           struct ash_dispatch_check *check_out);

/* The fullest rank's load over the mean when `counts` of tokens chose each of `experts` experts, which are split over
 * ranks in order. ranks divides experts. */
double ash_dispatch_imbalance(const double *counts, size_t experts, size_t ranks);

#endif
