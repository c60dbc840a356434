/* A simulation's report: requests as the policy gets them, waits by size, class and queue, and filling a cluster
 * as the openb experiment does it. */
#include "queue/replay/replay_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define SLOWDOWN_RUN_S 10.0
#define SPARED_NODES 16
#define STREAM_ORDER 10
#define STREAM_MORE 11
#define STREAM_HOSTS 12

/* ---- requests ---------------------------------------------------------------------------------------------------- */

struct ash_policy_job ash_replay_request(const struct ash_replay_opts *opts, size_t index)
{
    const struct ash_trace_job *from = &opts->trace->jobs[index];
    int host_gpus = opts->hosts[0].gpus > 0 ? opts->hosts[0].gpus : 1;
    struct ash_policy_job job = {.key = index,
                                 .queue = opts->queue_of[from->queue],
                                 .class = opts->class_of[from->class],
                                 .user = from->user,
                                 .nodes = 1,
                                 .gpus = from->gpus,
                                 .gpu_milli = from->gpu_milli,
                                 .limit_s = from->limit_s,
                                 .models = from->models};

    for (int i = 0; i < opts->host_count && from->cpu_milli > 0; i++)
        if (opts->hosts[i].gpus > host_gpus) host_gpus = opts->hosts[i].gpus;
    if (from->gpus > host_gpus) {
        job.nodes = (from->gpus + host_gpus - 1) / host_gpus;
        job.gpus = (from->gpus + job.nodes - 1) / job.nodes;
        job.required = opts->required;
        job.group = opts->group > 0 && job.nodes % opts->group == 0 && job.nodes > opts->group ? opts->group : 0;
        job.save_s = opts->save_s;
        job.has_peer_copies = opts->has_peer_copies;
        if (job.nodes >= SPARED_NODES) job.spares = opts->spares;
    }
    if (job.gpus != 1 || job.nodes > 1) job.gpu_milli = 1000;
    if (job.nodes == 1 && opts->hosts[0].cpu_milli > 0) {
        job.cpu_milli = from->cpu_milli;
        job.memory_mib = from->memory_mib;
    }
    if (job.nodes > 1) job.models = 0;
    return job;
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

struct bag {
    float *waits;
    size_t count, capacity;
};

static int by_wait(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

/* Percentiles of the bag's waits, which are sorted. */
static void settle(struct ash_replay_waits *waits, struct bag *bag)
{
    if (waits->jobs == 0) return;
    qsort(bag->waits, bag->count, sizeof(float), by_wait);
    waits->mean_s /= (double)waits->jobs;
    waits->slowdown /= (double)waits->jobs;
    waits->median_s = bag->waits[bag->count / 2];
    waits->p95_s = bag->waits[(size_t)((double)(bag->count - 1) * 0.95)];
    waits->max_s = bag->waits[bag->count - 1];
}

static int size_of(int gpus)
{
    int size = 0;

    while (size + 1 < ASH_REPLAY_SIZES && 1 << size < gpus)
        size++;
    return size;
}

/* Which group a job is in, of one kind of groups. */
typedef int (*group_fn)(const struct ash_trace_job *job);

static int group_all(const struct ash_trace_job *job)
{
    (void)job;
    return 0;
}

static int group_size(const struct ash_trace_job *job)
{
    return size_of(job->gpus);
}

static int group_queue(const struct ash_trace_job *job)
{
    return job->queue;
}

static int group_class(const struct ash_trace_job *job)
{
    return job->class;
}

static void add_wait(struct ash_replay_waits *waits, const struct ash_trace_job *job, double wait_s)
{
    waits->jobs++;
    waits->mean_s += wait_s;
    waits->slowdown += fmax(1, (wait_s + job->run_s) / fmax(job->run_s, SLOWDOWN_RUN_S));
    waits->gpu_hours += (double)job->run_s * job->gpus * job->gpu_milli / 1000 / 3600;
}

/* Fill waits_out by group; two walks over the jobs, so that each group's waits lie side by side. */
static int count_groups(const struct ash_trace *trace, const struct ash_replay_run *runs, group_fn group_of,
                        struct ash_replay_waits *waits_out, int groups)
{
    struct bag *bags = calloc((size_t)groups, sizeof(*bags));
    float *room = malloc((trace->count + 1) * sizeof(*room)), *at = room;
    int rc = bags == NULL || room == NULL ? -ENOMEM : 0;

    for (size_t i = 0; i < trace->count && rc == 0; i++)
        if (runs[i].has_started) add_wait(&waits_out[group_of(&trace->jobs[i])], &trace->jobs[i], runs[i].wait_s);
    for (int g = 0; g < groups && rc == 0; g++) {
        bags[g].waits = at;
        at += waits_out[g].jobs;
    }
    for (size_t i = 0; i < trace->count && rc == 0; i++) {
        struct bag *bag = &bags[group_of(&trace->jobs[i])];

        if (runs[i].has_started) bag->waits[bag->count++] = runs[i].wait_s;
    }
    for (int g = 0; g < groups && rc == 0; g++)
        settle(&waits_out[g], &bags[g]);
    free(bags);
    free(room);
    return rc;
}

/* Jain's index of the queues' slowdowns. */
static double jain_of(const struct ash_replay_waits *waits, int count)
{
    double sum = 0, squares = 0;
    int used = 0;

    for (int i = 0; i < count; i++) {
        if (waits[i].jobs == 0) continue;
        sum += waits[i].slowdown;
        squares += waits[i].slowdown * waits[i].slowdown;
        used++;
    }
    return used > 0 && squares > 0 ? sum * sum / (used * squares) : 1;
}

int ash_replay_count(const struct ash_replay_opts *opts, const struct ash_replay_run *runs,
                     struct ash_replay_report *report)
{
    const struct ash_trace *trace = opts->trace;
    int rc;

    report->by_queue = calloc((size_t)trace->queue_count, sizeof(*report->by_queue));
    report->by_class = calloc((size_t)trace->class_count, sizeof(*report->by_class));
    if (report->by_queue == NULL || report->by_class == NULL) return -ENOMEM;
    rc = count_groups(trace, runs, group_all, &report->all, 1);
    if (rc == 0) rc = count_groups(trace, runs, group_size, report->by_size, ASH_REPLAY_SIZES);
    if (rc == 0) rc = count_groups(trace, runs, group_queue, report->by_queue, trace->queue_count);
    if (rc == 0) rc = count_groups(trace, runs, group_class, report->by_class, trace->class_count);
    report->jain = jain_of(report->by_queue, trace->queue_count);
    return rc;
}

void ash_replay_fini(struct ash_replay_report *report)
{
    free(report->by_queue);
    free(report->by_class);
    report->by_queue = report->by_class = NULL;
}

/* ---- filling a cluster ------------------------------------------------------------------------------------------- */

/* Kinds of requests of the trace, for fragmentation. */
static int tell_typical(const struct ash_replay_opts *opts, struct ash_policy *policy)
{
    const struct ash_trace *trace = opts->trace;
    struct ash_policy_typical *typical = calloc(trace->count, sizeof(*typical));
    int count = 0, rc;

    if (typical == NULL) return -ENOMEM;
    for (size_t i = 0; i < trace->count; i++) {
        struct ash_policy_job job = ash_replay_request(opts, i);
        int k = 0;

        if (job.gpus == 0) job.gpu_milli = 0;
        while (k < count && !(typical[k].job.gpus == job.gpus && typical[k].job.gpu_milli == job.gpu_milli &&
                              typical[k].job.cpu_milli == job.cpu_milli && typical[k].job.models == job.models))
            k++;
        if (k == count) typical[count++].job = job;
        typical[k].count++;
    }
    rc = ash_policy_set_typical(policy, typical, count);
    free(typical);
    return rc;
}

/* The order in which jobs of the trace arrive: all of it, shuffled, then more of them until their requests suffice. */
static size_t *draw_order(const struct ash_replay_opts *opts, double wanted_milli, size_t *count_out)
{
    const struct ash_trace *trace = opts->trace;
    size_t capacity = trace->count * 4 + 16, count = 0;
    size_t *order = malloc(capacity * sizeof(*order));
    double asked = 0;

    for (uint64_t draw = 0; order != NULL && count < capacity && (count < trace->count || asked < wanted_milli);) {
        size_t index = count < trace->count ? count : ash_rng_below(opts->seed, STREAM_MORE, draw++, trace->count);

        order[count++] = index;
        asked += (double)trace->jobs[index].gpus * trace->jobs[index].gpu_milli;
    }
    for (size_t i = trace->count; order != NULL && i > 1; i--) {
        size_t k = ash_rng_below(opts->seed, STREAM_ORDER, i, i), swapped = order[i - 1];

        order[i - 1] = order[k];
        order[k] = swapped;
    }
    *count_out = count;
    return order;
}

/* Hosts in an order of the seed's own: policies take the first of equals, so a fixed order would be part of the result.
 * The published experiment gives hosts new names for each seed. */
static struct ash_policy_host *draw_hosts(const struct ash_replay_opts *opts)
{
    size_t count = (size_t)opts->host_count;
    struct ash_policy_host *hosts = malloc(count * sizeof(*hosts));

    for (size_t i = 0; hosts != NULL && i < count; i++) {
        size_t k = ash_rng_below(opts->seed, STREAM_HOSTS, i, i + 1);

        hosts[i] = hosts[k];
        hosts[k] = opts->hosts[i];
    }
    return hosts;
}

/* One job: it starts now or is dropped. Returns 0 or -ENOMEM. */
static int offer(const struct ash_replay_opts *opts, struct ash_policy *policy, size_t index, double now_s)
{
    struct ash_policy_job job = ash_replay_request(opts, index);
    struct ash_err err = {0};
    int waiting, number = ash_policy_submit(policy, &job, now_s, &err), rc;

    if (number < 0) return number == -ENOMEM ? number : 0;
    rc = ash_policy_pass_new(policy, now_s);
    waiting = ash_policy_look(policy).waiting;
    if (rc == 0 && waiting > 0) ash_policy_end(policy, number, now_s);
    return rc;
}

int ash_replay_fill(const struct ash_replay_opts *opts, double limit, double *allocated_out, int steps,
                    struct ash_err *err)
{
    struct ash_policy *policy = NULL;
    double total = 0, asked = 0;
    size_t count = 0, *order = NULL;
    struct ash_policy_host *hosts = draw_hosts(opts);
    int step = 0, rc = -ENOMEM;

    if (hosts != NULL) rc = ash_policy_open(opts->conf, opts->topology, hosts, opts->host_count, &policy, err);
    if (rc < 0) {
        free(hosts);
        return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
    }
    for (int i = 0; i < opts->host_count; i++)
        total += opts->hosts[i].gpus * 1000.0;
    rc = tell_typical(opts, policy);
    if (rc == 0) order = draw_order(opts, limit * total, &count);
    if (order == NULL) rc = -ENOMEM;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct ash_trace_job *job = &opts->trace->jobs[order[i]];

        asked += (double)job->gpus * job->gpu_milli;
        rc = offer(opts, policy, order[i], (double)i);
        while (rc == 0 && step < steps && asked >= step / 100.0 * total)
            allocated_out[step++] = (double)ash_policy_look(policy).gpu_milli_used / total;
    }
    for (; rc == 0 && step < steps; step++)
        allocated_out[step] = (double)ash_policy_look(policy).gpu_milli_used / total;
    free(order);
    ash_policy_close(policy);
    free(hosts);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

/* ---- domains ----------------------------------------------------------------------------------------------------- */

int *ash_replay_lowest(const struct ash_topology *topology)
{
    int hosts = topology->nodes[0].hosts, *lowest = calloc((size_t)hosts + 1, sizeof(int));

    if (lowest == NULL) return NULL;
    for (int i = 0; i <= hosts; i++)
        lowest[i] = topology->nodes[0].height;
    for (int node = 0; node < topology->count; node++)
        if (topology->nodes[node].height < lowest[topology->nodes[node].hosts])
            lowest[topology->nodes[node].hosts] = topology->nodes[node].height;
    for (int i = hosts; i-- > 0;)
        if (lowest[i + 1] < lowest[i]) lowest[i] = lowest[i + 1];
    return lowest;
}

void ash_replay_slowness(const struct ash_replay_opts *opts, double slow_out[ASH_REPLAY_HEIGHTS])
{
    for (int height = 0; height < ASH_REPLAY_HEIGHTS; height++) {
        double rate = height > 1 ? pow(opts->uplink_share, height - 1) : 1;

        slow_out[height] = height > 1 ? 1 - opts->comm_share + opts->comm_share / rate : 1;
    }
}
