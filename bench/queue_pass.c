/* queue_pass HOSTS WAITING PASSES: one scheduling pass of a full cluster. A running job ends, another comes, the policy looks at those that
 * wait. Prints the median and the 99th percentile in milliseconds. */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "queue/policy/policy.h"
#include "queue/replay/site.h"

#define GPUS 8
#define SEED 1
#define KEYS_MAX 2000000

struct running {
    int number[KEYS_MAX]; /* of the policy, by key */
    uint64_t keys[KEYS_MAX];
    size_t count;
};

static struct running running;

static void note(void *ctx, const struct ash_policy_decision *decision)
{
    (void)ctx;
    if (decision->act == ASH_POLICY_START) running.keys[running.count++] = decision->key;
    if (decision->act != ASH_POLICY_STOP && decision->act != ASH_POLICY_REQUEUE) return;
    for (size_t i = 0; i < running.count; i++)
        if (running.keys[i] == decision->key) running.keys[i--] = running.keys[--running.count];
}

/* Mostly small, some on many hosts, as on clusters that train. */
static int submit(struct ash_policy *policy, uint64_t key, double now_s, struct ash_err *err)
{
    static const int nodes[] = {1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 16, 64};
    struct ash_policy_job job = {.key = key, .gpu_milli = 1000, .user = (int)(key % 64)};

    job.nodes = nodes[ash_rng_below(SEED, 0, key, ASH_COUNT(nodes))];
    job.gpus = job.nodes > 1 ? GPUS : 1 << ash_rng_below(SEED, 1, key, 4);
    job.limit_s = 600 + 3600 * ash_rng_uniform(SEED, 2, key);
    running.number[key] = ash_policy_submit(policy, &job, now_s, err);
    return running.number[key];
}

static int by_value(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;

    return (first > second) - (first < second);
}

/* Times of passes in ms; one job ends before each, and one comes. */
static int measure(struct ash_policy *policy, uint64_t key, double *ms, size_t count, struct ash_err *err)
{
    double now_s = 0;
    int rc = 0;

    for (size_t i = 0; i < count && rc >= 0; i++) {
        size_t which = ash_rng_below(SEED, 3, i, running.count);
        uint64_t began;

        now_s += 1;
        ash_policy_end(policy, running.number[running.keys[which]], now_s);
        running.keys[which] = running.keys[--running.count];
        rc = submit(policy, key + i, now_s, err);
        began = ash_clock_ns();
        if (rc >= 0) rc = ash_policy_pass(policy, now_s);
        ms[i] = (double)(ash_clock_ns() - began) / 1e6;
    }
    return rc;
}

int main(int argc, char **argv)
{
    int hosts = argc > 1 ? atoi(argv[1]) : 10000;
    size_t waiting = argc > 2 ? (size_t)atoi(argv[2]) : 10000, passes = argc > 3 ? (size_t)atoi(argv[3]) : 300;
    double *ms = calloc(passes, sizeof(*ms));
    struct ash_policy_conf conf = {0};
    struct ash_policy *policy = NULL;
    struct ash_site site = {0};
    struct ash_err err = {0};
    uint64_t key = 0;
    int rc;

    rc = ash_policy_conf_preset("ashlar", &conf, &err);
    if (rc == 0 && conf.queue_count == 0) rc = ash_policy_conf_add_queue(&conf, "all", -1, &err);
    if (rc >= 0) rc = ash_site_make(hosts, GPUS, "16,160,1600", &site, &err);
    if (rc == 0) rc = ash_policy_open(&conf, site.topology, site.hosts, site.host_count, &policy, &err);
    if (rc == 0) ash_policy_listen(policy, note, NULL);
    while (rc >= 0 && ash_policy_look(policy).waiting < (int)waiting) {
        for (int i = 0; i < 2000 && rc >= 0; i++)
            rc = submit(policy, key++, 0, &err);
        if (rc >= 0) rc = ash_policy_pass(policy, 0);
    }
    if (rc >= 0) rc = measure(policy, key, ms, passes, &err);
    if (rc < 0) {
        fprintf(stderr, "queue_pass: %s\n", err.text);
        return 1;
    }
    qsort(ms, passes, sizeof(*ms), by_value);
    printf("%.3f %.3f\n", ms[passes / 2], ms[passes * 99 / 100]);
    ash_policy_close(policy);
    ash_policy_conf_fini(&conf);
    ash_site_fini(&site);
    free(ms);
    return 0;
}
