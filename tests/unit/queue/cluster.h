/* A small cluster for tests of the policy: hosts from a topology, jobs by letter, decisions written down. */
#ifndef ASH_TESTS_POLICY_CLUSTER_H
#define ASH_TESTS_POLICY_CLUSTER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "queue/policy/policy.h"

#define HOSTS_MAX 256
#define JOBS_MAX 4096

struct cluster {
    struct ash_topology *topology;
    struct ash_policy_conf conf;
    struct ash_policy_host hosts[HOSTS_MAX];
    int host_count;
    struct ash_policy *policy;
    /* by key */
    int number[JOBS_MAX], started[JOBS_MAX], stopped[JOBS_MAX], host_counts[JOBS_MAX], placed[JOBS_MAX][HOSTS_MAX];
    enum ash_policy_reason reason[JOBS_MAX];
    uint64_t stopped_by[JOBS_MAX];
    double lost_s;
    char log[65536]; /* "+a" starts, "-a" is stopped, "~a" keeps fewer hosts, "=a" got a spare, "<a" waits again */
    size_t log_length;
};

static inline void note(void *ctx, const struct ash_policy_decision *decision)
{
    static const char signs[] = "+-~=<";
    struct cluster *c = ctx;
    uint64_t key = decision->key;

    if (decision->act == ASH_POLICY_START) c->started[key]++;
    if (decision->act == ASH_POLICY_STOP) {
        c->stopped[key]++;
        c->stopped_by[key] = decision->by;
    }
    c->reason[key] = decision->reason;
    c->host_counts[key] = decision->host_count;
    c->lost_s += decision->lost_s;
    memcpy(c->placed[key], decision->hosts, (size_t)decision->host_count * sizeof(int));
    if (c->log_length + 4 < sizeof(c->log))
        c->log_length += (size_t)snprintf(c->log + c->log_length, sizeof(c->log) - c->log_length, "%c%c",
                                          signs[decision->act], (char)key);
}

/* Every host of the tree has that many GPUs; policy is YAML. */
static inline struct cluster *open_cluster(const char *tree, int gpus, const char *policy)
{
    struct cluster *c = calloc(1, sizeof(*c));
    struct ash_err err = {0};

    assert_non_null(c);
    if (ash_topology_parse(tree, strlen(tree), "tree", &c->topology, &err) < 0) fail_msg("%s", err.text);
    if (ash_policy_conf_parse(policy, strlen(policy), "policy", &c->conf, &err) < 0) fail_msg("%s", err.text);
    for (int node = 1; node < c->topology->count; node++)
        if (c->topology->nodes[node].is_host)
            c->hosts[c->host_count++] = (struct ash_policy_host){.node = node, .gpus = gpus};
    if (ash_policy_open(&c->conf, c->topology, c->hosts, c->host_count, &c->policy, &err) < 0) fail_msg("%s", err.text);
    ash_policy_listen(c->policy, note, c);
    return c;
}

static inline void close_cluster(struct cluster *c)
{
    ash_policy_close(c->policy);
    ash_policy_conf_fini(&c->conf);
    ash_topology_close(c->topology);
    free(c);
}

/* A job with defaults: one node, one hour. */
static inline struct ash_policy_job job_of(const struct cluster *c, char key, const char *queue, int nodes, int gpus)
{
    struct ash_policy_job job = {
        .key = (uint64_t)key, .nodes = nodes, .gpus = gpus, .gpu_milli = 1000, .limit_s = 3600};

    job.queue = queue != NULL ? ash_policy_conf_queue(&c->conf, queue) : 0;
    assert_true(job.queue >= 0);
    return job;
}

static inline void submit(struct cluster *c, struct ash_policy_job job, double now_s)
{
    struct ash_err err = {0};
    int number = ash_policy_submit(c->policy, &job, now_s, &err);

    if (number < 0) fail_msg("job %c: %s", (char)job.key, err.text);
    c->number[job.key] = number;
}

static inline void assert_refusal(struct cluster *c, struct ash_policy_job job, double now_s, const char *words)
{
    struct ash_err err = {0};

    assert_int_equal(ash_policy_submit(c->policy, &job, now_s, &err), -EINVAL);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' is not in '%s'", words, err.text);
}

/* A pass; what it decided must read so. */
static inline void assert_pass(struct cluster *c, double now_s, const char *expected)
{
    c->log_length = 0;
    c->log[0] = '\0';
    assert_int_equal(ash_policy_pass(c->policy, now_s), 0);
    assert_string_equal(c->log, expected);
}

static inline struct ash_policy_wait why(const struct cluster *c, char key)
{
    return ash_policy_why(c->policy, c->number[(int)key]);
}

/* The name of the domain right above a host that a job got. */
static inline const char *rack_of(const struct cluster *c, char key, int index)
{
    int node = c->hosts[c->placed[(int)key][index]].node;

    return c->topology->nodes[c->topology->nodes[node].parent].name;
}

#endif
