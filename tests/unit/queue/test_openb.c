/* The openb experiment: requests of a production cluster arrive until they ask for 130 % of its GPUs. Six published
 * placement policies reach what was published; ours at least the best of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "queue/replay/replay.h"
#include "queue/replay/site.h"

#define STEPS 131
#define SEEDS 3
#define WITHIN 0.7 /* points of published means; three seeds of the packing policies spread by 0.3 */

static struct ash_trace trace;
static struct ash_site site;

static FILE *open_table(const char *name)
{
    char path[512], line[256];
    FILE *file;

    snprintf(path, sizeof(path), TEST_DATA "/plan/queue/%s", name);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file)); /* the header */
    return file;
}

static void read_requests(void)
{
    FILE *file = open_table("openb_requests.csv");
    int count, cpu, memory, gpus, milli;

    trace.jobs = calloc(10000, sizeof(*trace.jobs));
    while (fscanf(file, "%d,%d,%d,%d,%d", &count, &cpu, &memory, &gpus, &milli) == 5)
        for (; count > 0; count--)
            trace.jobs[trace.count++] = (struct ash_trace_job){.run_s = 1,
                                                               .limit_s = 1,
                                                               .gpus = gpus,
                                                               .gpu_milli = (uint16_t)(gpus > 0 ? milli : 1000),
                                                               .cpu_milli = cpu,
                                                               .memory_mib = memory};
    trace.queue_count = trace.class_count = 1;
    fclose(file);
    assert_int_equal(trace.count, 8152);
}

static int setup(void **state)
{
    FILE *file = open_table("openb_hosts.csv");
    static char text[1 << 17];
    size_t length = (size_t)snprintf(text, sizeof(text), "sn,cpu_milli,memory_mib,gpu,model\n");
    int count, cpu, memory, gpus, number = 0;
    char model[32];
    struct ash_err err = {0};

    (void)state;
    while (fscanf(file, "%d,%d,%d,%d,%31s", &count, &cpu, &memory, &gpus, model) == 5)
        for (; count > 0; count--)
            length += (size_t)snprintf(text + length, sizeof(text) - length, "n%04d,%d,%d,%d,%s\n", number++, cpu,
                                       memory, gpus, model);
    fclose(file);
    if (ash_site_parse(text, length, "hosts", &site, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(site.host_count, 1213);
    read_requests();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ash_site_fini(&site);
    free(trace.jobs);
    return 0;
}

/* Shares allocated at 100 and 130 %, the mean over seeds, in per cent. */
static void fill(enum ash_policy_placement placement, double *at_100, double *at_130)
{
    static const int zero[1];
    struct ash_policy_conf conf;
    struct ash_replay_opts opts = {.conf = &conf,
                                   .topology = site.topology,
                                   .hosts = site.hosts,
                                   .host_count = site.host_count,
                                   .trace = &trace,
                                   .queue_of = zero,
                                   .class_of = zero};

    assert_int_equal(ash_policy_conf_preset("greedy", &conf, NULL), 0);
    conf.placement = placement;
    *at_100 = *at_130 = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        double allocated[STEPS];

        opts.seed = conf.seed = seed;
        assert_int_equal(ash_replay_fill(&opts, 1.3, allocated, STEPS, NULL), 0);
        *at_100 += 100 * allocated[100] / SEEDS;
        *at_130 += 100 * allocated[130] / SEEDS;
    }
    ash_policy_conf_fini(&conf);
}

/* Means of ten seeds by the authors' own simulator. */
static void test_published(void **state)
{
    static const struct {
        enum ash_policy_placement placement;
        double at_100, at_130;
    } published[] = {
        {ASH_POLICY_PLACE_RANDOM, 86.30, 87.47},     {ASH_POLICY_PLACE_DOT_PRODUCT, 90.62, 90.85},
        {ASH_POLICY_PLACE_BEST_FIT, 92.86, 93.08},   {ASH_POLICY_PLACE_FGD, 95.23, 95.39},
        {ASH_POLICY_PLACE_CLUSTERING, 91.65, 91.88}, {ASH_POLICY_PLACE_GPU_PACKING, 91.78, 92.00},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(published); i++) {
        double at_100, at_130;

        fill(published[i].placement, &at_100, &at_130);
        if (fabs(at_100 - published[i].at_100) > WITHIN || fabs(at_130 - published[i].at_130) > WITHIN)
            fail_msg("%s: %.2f and %.2f, published %.2f and %.2f", ash_policy_place_names[published[i].placement],
                     at_100, at_130, published[i].at_100, published[i].at_130);
    }
}

static void test_ours(void **state)
{
    double at_100, at_130;

    (void)state;
    fill(ASH_POLICY_PLACE_FGD_FIT, &at_100, &at_130);
    if (at_100 < 95.0) fail_msg("%.2f %% allocated", at_100); /* 95.22 over 30 seeds; three spread by 0.1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_ours)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
