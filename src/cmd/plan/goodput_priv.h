/* plan_goodput_priv - what `ashlar plan goodput` found, on its way from the arithmetic to table, JSON and picture. */
#ifndef ASH_CMD_PLAN_GOODPUT_PRIV_H
#define ASH_CMD_PLAN_GOODPUT_PRIV_H

#include "base/opts.h"
#include "cmd/catalog_priv.h"
#include "plan/goodput/goodput.h"
#include "plan/shape.h"

struct ash_goodput_flags {
    int64_t gpus, gpus_per_node, spares, seed;
    double params, bytes_per_param, step_s, failure_rate, mtbf_hours;
    double write_gb_s, read_gb_s, stage_gb_s, peer_gb_s, write_slowdown;
    double detect_s, restart_s, init_s, peer_detect_s, peer_recover_s, peer_overhead, uncovered;
    double replace_share, repair_hours, ram_gb, hbm_free_gb, usd_gpu_hour, interval_s, days;
    int failures;
    bool json;
    double storage_tib;
    const char *model, *cluster, *storage, *svg, *ledger;
    struct ash_catalog_flags machines;
};

/* Names of published failure rates (--failures), NULL-terminated. */
extern const char *const ash_goodput_rate_names[];
/* The command's flags, for struct ash_goodput_flags. */
extern const struct ash_opt_table ash_goodput_table;

/* The job that flags describe, as far as no catalog is needed. */
void ash_goodput_fill(const struct ash_goodput_flags *flags, struct ash_goodput_job *job);
/* Fill unset values from a named model, named machines and a named storage tier. Returns 0 or -errno. */
int ash_goodput_look_up(const struct ash_goodput_flags *flags, struct ash_goodput_job *job, struct ash_err *err);

struct ash_goodput_answer {
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

/* The answer of `plan goodput` for a job with the defaults of its flags: the share of time that counts under the worst
 * and the best way to keep state, among those that fit. storage_bytes_s: reading and writing; 0: the
 * default, too. Returns 0 or -errno. */
int ash_goodput_estimate(const struct ash_shape *shape, const struct ash_cluster *cluster, double step_s,
                         double storage_bytes_s, double *worst_out, double *best_out, struct ash_err *err);
/* `plan goodput --ledger`: a run's ledger and a prediction from it. Returns the exit code. */
int ash_goodput_answer_ledger(const struct ash_goodput_flags *flags, const struct ash_opts *opts);
/* Print the tables for people. */
void ash_goodput_print_table(const struct ash_goodput_answer *answer);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_goodput_print_json(const struct ash_goodput_answer *answer, struct ash_err *err);
/* Goodput over the number of GPUs, with the published points. */
int ash_goodput_draw(const struct ash_goodput_answer *answer, const char *path, struct ash_err *err);

#endif
