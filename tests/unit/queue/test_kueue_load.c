/* Kueue's own load test under Kueue's rules: 5 cohorts of 6 queues with a quota of 20 each, which may borrow 100, and
 * 15,000 workloads of three classes. Kueue runs nothing there; it admits a workload of each queue in a cycle, and
 * learns of an end some time after it. Both times are its own speed, not its rules: they are chosen so that all of it
 * takes as long as published (351 s on average) and holds as much quota (55.9 %). How long each class waits then follows
 * from the rules: longer than published, in the same order. */
#include "cluster.h"

#include <math.h>

#include "queue/replay/replay.h"

#define COHORTS 5
#define QUEUES 6
#define JOBS 15000
#define CLASSES 3
#define QUOTA 600.0
#define CYCLE_S 0.5 /* 30 workloads at most in a cycle */
#define LATE_S 1.4  /* from an end until Kueue knows of it */

static const struct {
    int count, size;
    double run_s, every_s;
} loads[CLASSES] = {{350, 1, 0.2, 0.1}, {100, 5, 0.5, 0.5}, {50, 20, 1.0, 1.2}};

static int by_submission(const void *a, const void *b)
{
    const struct ash_trace_job *x = a, *y = b;

    if (x->submit_s != y->submit_s) return x->submit_s < y->submit_s ? -1 : 1;
    return x->queue - y->queue;
}

static void make_trace(struct ash_trace *trace, struct ash_trace_job *jobs)
{
    *trace = (struct ash_trace){.jobs = jobs, .queue_count = COHORTS * QUEUES, .class_count = CLASSES, .user_count = 1};
    for (int queue = 0; queue < COHORTS * QUEUES; queue++)
        for (int class = 0; class < CLASSES; class ++)
            for (int i = 0; i < loads[class].count; i++)
                jobs[trace->count++] = (struct ash_trace_job){.submit_s = i * loads[class].every_s,
                                                              .run_s = (float)loads[class].run_s,
                                                              .limit_s = 3600,
                                                              .gpus = loads[class].size,
                                                              .queue = queue,
                                                              .class = (int16_t) class,
                                                              .gpu_milli = 1000};
    qsort(jobs, trace->count, sizeof(*jobs), by_submission);
}

static size_t make_policy(char *text, size_t text_bytes)
{
    size_t used = (size_t)snprintf(text, text_bytes,
                                   "preset: kueue\nfair_share: none\ninterval: %gs\nturnaround: %gs\nrestart: 0s\n"
                                   "queue_starts: 1\ndepth: 20000\n"
                                   "classes: [{name: small, priority: 50}, {name: medium, priority: 100}, "
                                   "{name: large, priority: 200}]\nqueues:\n",
                                   CYCLE_S, LATE_S);

    for (int cohort = 0; cohort < COHORTS; cohort++)
        used += (size_t)snprintf(text + used, text_bytes - used, "  - {name: c%d}\n", cohort);
    for (int queue = 0; queue < COHORTS * QUEUES; queue++)
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 "  - {name: q%d, parent: c%d, gpus: 20, borrow: 100}\n", queue, queue / QUEUES);
    return used;
}

/* Waits of the three classes, the whole time, and the share of the quota that was held over it. */
static void simulate(struct ash_replay_report *report, double *held_out)
{
    static struct ash_trace_job jobs[JOBS];
    static struct ash_policy_host hosts[600];
    static char text[8192];
    int queue_of[COHORTS * QUEUES], class_of[CLASSES] = {0, 1, 2};
    struct ash_topology *topology = NULL;
    struct ash_policy_conf conf = {0};
    struct ash_err err = {0};
    struct ash_trace trace;
    double work = 0;
    int count = 0;

    make_trace(&trace, jobs);
    if (ash_policy_conf_parse(text, make_policy(text, sizeof(text)), "policy", &conf, &err) < 0 ||
        ash_topology_parse("SwitchName=s Nodes=n[0-599]\n", 28, "tree", &topology, &err) < 0)
        fail_msg("%s", err.text);
    for (int node = 1; node < topology->count; node++)
        if (topology->nodes[node].is_host) hosts[count++] = (struct ash_policy_host){.node = node, .gpus = 1};
    for (int queue = 0; queue < COHORTS * QUEUES; queue++)
        queue_of[queue] = COHORTS + queue;
    if (ash_replay(&(struct ash_replay_opts){.conf = &conf,
                                             .topology = topology,
                                             .hosts = hosts,
                                             .host_count = count,
                                             .trace = &trace,
                                             .queue_of = queue_of,
                                             .class_of = class_of,
                                             .comm_share = 0,
                                             .uplink_share = 1},
                   report, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < trace.count; i++)
        work += jobs[i].gpus * ((double)jobs[i].run_s + LATE_S);
    *held_out = work / (QUOTA * report->span_s);
    ash_topology_close(topology);
    ash_policy_conf_fini(&conf);
}

static void assert_near(const char *what, double found, double published, double slack)
{
    if (fabs(found - published) > slack) fail_msg("%s: %g, published %g", what, found, published);
}

static void test_baseline(void **state)
{
    static struct ash_replay_report report;
    double held = 0;

    (void)state;
    simulate(&report, &held);
    assert_int_equal(report.finished, JOBS);
    assert_near("seconds", report.span_s, 351, 5);
    assert_near("share of the quota", 100 * held, 55.9, 3);
    assert_near("wait of the small ones", report.by_class[0].mean_s, 215, 40);
    assert_near("wait of the medium ones", report.by_class[1].mean_s, 77, 60);
    assert_near("wait of the large ones", report.by_class[2].mean_s, 17, 20);
    ash_replay_fini(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_baseline)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
