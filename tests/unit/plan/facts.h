/* facts - what the planner's tests rest on: the built-in constants and catalog, jobs and layouts from a few words. */
#ifndef TESTS_PLAN_FACTS_H
#define TESTS_PLAN_FACTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/train/step.h"

static struct ash_catalog *catalog;
static struct ash_consts consts;

static inline int open_facts(void **state)
{
    (void)state;
    consts = ash_consts_default();
    return ash_catalog_open(NULL, 0, &catalog, NULL);
}

static inline int close_facts(void **state)
{
    (void)state;
    ash_catalog_close(catalog);
    return 0;
}

static inline struct ash_cluster cluster_of(const char *text)
{
    struct ash_cluster cluster;
    struct ash_err err = {0};

    if (ash_cluster_parse(catalog, text, &cluster, &err) < 0) fail_msg("%s", err.text);
    return cluster;
}

static inline struct ash_shape shape_of(const char *model)
{
    struct ash_shape shape;
    struct ash_err err = {0};

    if (ash_shape_find(model, &shape, &err) < 0) fail_msg("%s", err.text);
    return shape;
}

static inline struct ash_plan_job job_of(const char *model, const char *cluster, double batch, double seq)
{
    return (struct ash_plan_job){.shape = shape_of(model),
                                 .cluster = cluster_of(cluster),
                                 .global_batch = batch,
                                 .seq_tokens = seq,
                                 .dedup_dispatch = true};
}

/* One rank of everything, ZeRO 1, the least recomputation that fits: what a layout's text is laid over. */
static inline struct ash_layout plain_layout(void)
{
    return (struct ash_layout){.tp = 1,
                               .pp = 1,
                               .cp = 1,
                               .ep = 1,
                               .chunks = 1,
                               .zero = 1,
                               .micro_batch = 1,
                               .recompute = ASH_PLAN_RECOMPUTE_FIT};
}

static inline struct ash_layout layout_of(const struct ash_plan_job *job, const char *text)
{
    struct ash_layout layout = plain_layout();
    struct ash_err err = {0};

    if (ash_layout_parse(text, &layout, &err) < 0 || ash_layout_check(job, &layout, &err) < 0) fail_msg("%s", err.text);
    return layout;
}

#endif
