/* search - every layout of a job, the best ones first; and what would make the best one faster. */
#ifndef ASH_PLAN_SEARCH_H
#define ASH_PLAN_SEARCH_H

#include "plan/train/step.h"

struct ash_plan {
    struct ash_layout layout;
    struct ash_plan_step step;
};

struct ash_search {
    int precision;         /* of enum ash_gpu_precision; -1: all that the GPU has, up to fp8 */
    int recompute;         /* of enum ash_plan_recompute; ASH_PLAN_RECOMPUTE_FIT: the least that fits */
    int zero;              /* -1: all */
    bool no_offload;       /* optimizer state must stay on the GPU */
    unsigned schedules;    /* bits of enum ash_plan_schedule that are tried after 1F1B: few frameworks have them */
    double floor_tokens_s; /* plans that are not faster are of no use; 0: all are */
    bool uncounted;        /* tried and fitting are not read: layouts that cannot be the best are skipped */
    const struct ash_layout *hint;    /* one that may be good, as far as it can be cut so: slower ones are skipped */
    struct ash_plan_layer_memo *memo; /* kept between searches of one job on one kind of machine; NULL: none */
};

struct ash_search_result {
    size_t count; /* plans that were written */
    size_t tried; /* layouts that can be cut (and, uncounted, were not skipped); those that fit are `fitting` */
    size_t fitting;
    double least_bytes;      /* of GPU memory that any layout needs */
    double least_host_bytes; /* of host memory per machine that offloading takes at least; 0: it was not tried */
};

/* Search tp, pp with its schedules, cp, ep, dp, ZeRO and the ranks that share it, micro-batch, recomputation,
 * precision, and offload where nothing fits without it or where optimizer state fills much of the GPU. The best max
 * plans, one for each way to cut the GPUs, go into plans in descending order of speed, their pipelines simulated.
 * -ENOSPC: nothing fits, and err says what the leanest layout needs and how many machines would do; -EINVAL: no layout
 * divides the GPUs and the batch, and err says which batch would; -ERANGE: layouts fit, none of them is faster than the
 * floor. */
int ash_search_run(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_search *search,
                   struct ash_plan *plans, size_t max, struct ash_search_result *result_out, struct ash_err *err);

/* Does what a layout puts into host memory fit into the machines? True where their memory is not known. */
bool ash_plan_fits_host(const struct ash_plan_job *job, const struct ash_step_memory *memory);

struct ash_what_if {
    const char *change;
    struct ash_layout layout; /* that it is evaluated with */
    double tokens_s, gain;    /* gain: share of speed that is won (negative: lost) */
    bool fits;
};

#define ASH_WHAT_IFS_MAX 24

/* One thing changed (links, memory, arithmetic, precision, recomputation, batch): what each change is worth, best
 * first. Other hardware may want another layout: with search it gets the best one, without (NULL) it keeps the plan's,
 * and layouts near the plan's (pp, vpp, mbs) are among the changes.
 * Returns how many. */
size_t ash_what_if_list(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_search *search, const struct ash_plan *plan,
                        struct ash_what_if what_ifs[ASH_WHAT_IFS_MAX]);

#endif
