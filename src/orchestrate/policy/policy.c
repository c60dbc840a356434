/* The policy: jobs come and go, hosts fail and return, every change is told. What starts is decided in pass.c. */
#include "orchestrate/policy/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void sort_classes(struct ash_policy *policy)
{
    for (int i = 0; i < policy->conf->class_count; i++) {
        int at = i;

        for (;
             at > 0 && policy->conf->classes[policy->class_order[at - 1]].priority < policy->conf->classes[i].priority;
             at--)
            policy->class_order[at] = policy->class_order[at - 1];
        policy->class_order[at] = i;
    }
}

static int open_queues(struct ash_policy *policy)
{
    size_t count = (size_t)policy->conf->queue_count;

    policy->queue_used = calloc(count, sizeof(*policy->queue_used));
    policy->queue_waiting = calloc(count, sizeof(*policy->queue_waiting));
    policy->queue_given = calloc(count, sizeof(*policy->queue_given));
    policy->is_queue_blocked = calloc(count, sizeof(*policy->is_queue_blocked));
    if (policy->queue_used == NULL || policy->queue_waiting == NULL || policy->queue_given == NULL ||
        policy->is_queue_blocked == NULL)
        return -ENOMEM;
    return ash_quota_open(policy->conf, &policy->quota);
}

int ash_policy_open(const struct ash_policy_conf *conf, const struct ash_topology *topology,
                    const struct ash_policy_host *hosts, int host_count, struct ash_policy **policy_out,
                    struct ash_err *err)
{
    struct ash_policy *policy = calloc(1, sizeof(*policy));
    int rc;

    if (policy == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    if (host_count < 1 || conf->queue_count < 1 || conf->class_count < 1)
        rc = ash_err_set(err, -EINVAL, "a policy needs a host, a queue and a class");
    else
        rc = 0;
    policy->conf = conf;
    policy->topology = topology;
    policy->hosts = hosts;
    policy->host_count = host_count;
    policy->first_reserved_s = INFINITY;
    policy->shared_s = -1;
    if (rc == 0) rc = ash_policy_cluster_open(policy, err);
    if (rc == 0 && open_queues(policy) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        ash_policy_close(policy);
        return rc;
    }
    sort_classes(policy);
    *policy_out = policy;
    return 0;
}

void ash_policy_close(struct ash_policy *policy)
{
    if (policy == NULL) return;
    for (int i = 0; i < policy->job_count; i++)
        free(policy->jobs[i].grants);
    for (int i = 0; i < policy->reservation_count; i++)
        free(policy->reservations[i].hosts);
    for (int i = 0; i < ASH_POLICY_CLASSES_MAX; i++)
        free(policy->lanes[i].jobs);
    free(policy->reservations);
    ash_policy_score_close(policy);
    ash_policy_cluster_close(policy);
    ash_quota_close(policy->quota);
    free(policy->jobs);
    free(policy->unused);
    free(policy->heap);
    free(policy->order);
    free(policy->scratch);
    free(policy->fresh);
    free(policy->queue_used);
    free(policy->queue_waiting);
    free(policy->queue_given);
    free(policy->is_queue_blocked);
    free(policy->usages);
    free(policy->usage_slots);
    free(policy->shares);
    free(policy);
}

void ash_policy_listen(struct ash_policy *policy, ash_policy_decide_fn decide, void *ctx)
{
    policy->decide = decide;
    policy->ctx = ctx;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void tell(struct ash_policy *policy, int job, struct ash_policy_decision decision)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];

    decision.key = entry->job.key;
    decision.host_count = entry->grant_count;
    for (int i = 0; i < entry->grant_count; i++)
        policy->picked[i] = entry->grants[i].host;
    decision.hosts = policy->picked;
    if (policy->decide != NULL) policy->decide(policy->ctx, &decision);
}

double ash_policy_lost(const struct ash_policy *policy, const struct ash_policy_entry *entry)
{
    double ran = policy->now_s - entry->start_s;

    if (entry->job.has_peer_copies || ran <= 0) return 0;
    return entry->job.save_s > 0 ? fmod(ran, entry->job.save_s) : ran;
}

static void advance(struct ash_policy *policy, double now_s)
{
    ash_assert(now_s >= policy->now_s);
    policy->now_s = now_s;
}

/* ---- coming ------------------------------------------------------------------------------------------------------ */

/* Hosts of the largest domain of that height that have the GPUs, in the empty cluster. */
static int largest_domain(const struct ash_policy *policy, int height, int gpus)
{
    int count, most = 0;
    const int *domains = ash_room_domains(policy->whole, height, &count);

    for (int i = 0; i < count; i++) {
        int hosts = ash_room_hosts(policy->whole, domains[i], gpus);

        if (hosts > most) most = hosts;
    }
    return most;
}

static const char *level_name(const struct ash_policy_conf *conf, int height)
{
    return height >= 1 && height <= conf->level_count ? conf->levels[height - 1] : "domain";
}

static int check_shape(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    int top = policy->topology->nodes[0].height;
    bool is_one = job->nodes == 1 && job->spares == 0;

    if (job->queue < 0 || job->queue >= policy->conf->queue_count || job->class < 0 ||
        job->class >= policy->conf->class_count)
        return ash_err_set(err, -EINVAL, "there is no such queue or class");
    if (job->nodes < 1 || job->gpus < 0 || job->spares < 0 || job->min_nodes < 0 || job->min_nodes > job->nodes ||
        job->group < 0 || !(job->limit_s > 0) || job->gpu_milli < 1 || job->gpu_milli > ASH_POLICY_GPU_MILLI)
        return ash_err_set(err, -EINVAL, "a job needs nodes, a time limit above 0, and shares of a GPU up to 1000");
    if (job->gpu_milli < ASH_POLICY_GPU_MILLI && (job->gpus != 1 || !is_one))
        return ash_err_set(err, -EINVAL, "a share of a GPU is for jobs of one GPU");
    if (!is_one && (job->cpu_milli > 0 || job->memory_mib > 0 || job->models != 0 || job->gpus == 0))
        return ash_err_set(
            err, -EINVAL,
            "processors, memory and GPU models can be asked for by jobs of one host; others ask for GPUs");
    if (job->group > 0 && job->nodes % job->group != 0)
        return ash_err_set(err, -EINVAL, "%d nodes are no multiple of the group of %d", job->nodes, job->group);
    if (job->required < 0 || job->required > top || job->preferred < 0 || job->preferred > top)
        return ash_err_set(err, -EINVAL, "the topology has %d levels of domains", top);
    return 0;
}

/* Room on the empty cluster, whatever the time. */
static int check_room(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    int wanted = ash_policy_wanted(job), gpus = job->gpus > 0 ? job->gpus : 1, most;
    int group_height = job->preferred > 0 ? job->preferred : 1;

    if (job->gpus > policy->units_max)
        return ash_err_set(err, -EINVAL, "%d GPUs per node: the largest host has %d", job->gpus, policy->units_max);
    most = job->required > 0 ? largest_domain(policy, job->required, gpus) : ash_room_hosts(policy->whole, 0, gpus);
    if (wanted > most && job->gpus > 0)
        return ash_err_set(err, -EINVAL, "%d nodes of %d GPUs do not fit %s%s: the most that can is %d nodes", wanted,
                           job->gpus, job->required > 0 ? "one " : "the cluster",
                           job->required > 0 ? level_name(policy->conf, job->required) : "", most);
    if (job->group > 0 && largest_domain(policy, group_height, gpus) < job->group)
        return ash_err_set(err, -EINVAL, "groups of %d nodes do not fit one %s: the largest has %d", job->group,
                           level_name(policy->conf, group_height), largest_domain(policy, group_height, gpus));
    if (job->group > 0 && ash_room_groups(policy->whole, 0, group_height, gpus, job->group) < job->nodes / job->group)
        return ash_err_set(err, -EINVAL, "the cluster holds %d groups of %d nodes inside one %s, not %d",
                           ash_room_groups(policy->whole, 0, group_height, gpus, job->group), job->group,
                           level_name(policy->conf, group_height), job->nodes / job->group);
    return 0;
}

static int check_models(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    if (job->cpu_milli == 0 && job->memory_mib == 0 && job->models == 0) return 0;
    for (int host = 0; host < policy->host_count; host++) {
        const struct ash_policy_host *spec = &policy->hosts[host];

        if (spec->gpus >= job->gpus && spec->cpu_milli >= job->cpu_milli && spec->memory_mib >= job->memory_mib &&
            (job->models == 0 || (job->models >> spec->model & 1) != 0))
            return 0;
    }
    return ash_err_set(err, -EINVAL, "no host has %d GPUs of that kind with %.1f processors and %lld MiB", job->gpus,
                       (double)job->cpu_milli / 1000, (long long)job->memory_mib);
}

/* Caps and quotas that it could never get below. */
static int check_limits(const struct ash_policy *policy, const struct ash_policy_job *job, struct ash_err *err)
{
    const struct ash_policy_conf *conf = policy->conf;
    const struct ash_policy_queue *queue = &conf->queues[job->queue];
    int64_t amount[ASH_POLICY_RESOURCES], potential, cap = queue->job_gpus_max;
    const char *name = queue->name;

    ash_policy_amount(job, ash_policy_wanted(job), amount);
    if (queue->user_gpus_max < cap) cap = queue->user_gpus_max;
    for (int at = job->queue; at >= 0; at = conf->queues[at].parent) {
        if (conf->queues[at].gpus_max >= cap) continue;
        cap = conf->queues[at].gpus_max;
        name = conf->queues[at].name;
    }
    if (amount[ASH_POLICY_GPU] > cap)
        return ash_err_set(err, -EINVAL, "%g GPUs are above the cap of %g of queue %s",
                           (double)amount[ASH_POLICY_GPU] / 1000, (double)cap / 1000, name);
    if (conf->run_max_s > 0 && job->limit_s > conf->run_max_s)
        return ash_err_set(err, -EINVAL, "a time limit of %g h is above the longest, %g h", job->limit_s / 3600,
                           conf->run_max_s / 3600);
    for (int r = 0; r < ASH_POLICY_RESOURCES && conf->fair != ASH_POLICY_FAIR_OVER_QUOTA; r++) {
        potential = ash_quota_potential(policy->quota, job->queue, (enum ash_policy_resource)r);
        if (amount[r] > 0 && potential < amount[r])
            return ash_err_set(err, -EINVAL, "queue %s can have at most %g %s with all that it may borrow, not %g",
                               queue->name, (double)potential / 1000,
                               r == ASH_POLICY_GPU   ? "GPUs"
                               : r == ASH_POLICY_CPU ? "processors"
                                                     : "GiB (of 1000 MiB)",
                               (double)amount[r] / 1000);
    }
    return 0;
}

/* Twice the room for jobs in every list that is as long. */
static int grow_jobs(struct ash_policy *policy)
{
    size_t capacity = policy->job_capacity == 0 ? 256 : 2 * (size_t)policy->job_capacity;
    struct ash_policy_entry *jobs = realloc(policy->jobs, capacity * sizeof(*jobs));
    int **lists[] = {&policy->unused, &policy->heap, &policy->order};
    int *scratch;

    if (jobs == NULL) return -ENOMEM;
    policy->jobs = jobs;
    for (size_t i = 0; i < ASH_COUNT(lists); i++) {
        int *more = realloc(*lists[i], capacity * sizeof(*more));

        if (more == NULL) return -ENOMEM;
        *lists[i] = more;
    }
    scratch = realloc(policy->scratch, 2 * capacity * sizeof(*scratch));
    if (scratch == NULL) return -ENOMEM;
    policy->scratch = scratch;
    policy->job_capacity = (int)capacity;
    return 0;
}

static int add_fresh(struct ash_policy *policy, int job)
{
    if (policy->fresh_count == policy->fresh_capacity) {
        int capacity = policy->fresh_capacity == 0 ? 64 : 2 * policy->fresh_capacity;
        int *fresh = realloc(policy->fresh, (size_t)capacity * sizeof(*fresh));

        if (fresh == NULL) return -ENOMEM;
        policy->fresh = fresh;
        policy->fresh_capacity = capacity;
    }
    policy->fresh[policy->fresh_count++] = job;
    return 0;
}

static int64_t milli_of(const struct ash_policy_job *job, int hosts)
{
    return (int64_t)hosts * job->gpus * job->gpu_milli;
}

/* It waits, from now or again. */
static int make_wait(struct ash_policy *policy, int job)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int rc;

    entry->state = ASH_POLICY_WAITING;
    entry->wait = (struct ash_policy_wait){.reason = ASH_POLICY_WAITS_TURN, .start_s = -1, .holder = UINT64_MAX};
    rc = ash_policy_lane_add(policy, job);
    if (rc == 0) rc = add_fresh(policy, job);
    if (rc < 0) return rc;
    policy->waiting++;
    policy->queue_waiting[entry->job.queue] += milli_of(&entry->job, ash_policy_wanted(&entry->job));
    return 0;
}

static void end_wait(struct ash_policy *policy, int job)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];

    ash_policy_lane_remove(policy, job);
    policy->waiting--;
    policy->queue_waiting[entry->job.queue] -= milli_of(&entry->job, ash_policy_wanted(&entry->job));
}

int ash_policy_submit(struct ash_policy *policy, const struct ash_policy_job *job, double now_s, struct ash_err *err)
{
    int number, usage, rc = check_shape(policy, job, err);

    if (rc == 0) rc = check_limits(policy, job, err);
    if (rc == 0) rc = check_room(policy, job, err);
    if (rc == 0) rc = check_models(policy, job, err);
    if (rc < 0) return rc;
    advance(policy, now_s);
    usage = ash_policy_usage_of(policy, job->queue, job->user);
    if (usage < 0 || (policy->unused_count == 0 && policy->job_count == policy->job_capacity && grow_jobs(policy) < 0))
        return ash_err_set(err, -ENOMEM, "out of memory");
    number = policy->unused_count > 0 ? policy->unused[--policy->unused_count] : policy->job_count++;
    policy->jobs[number] = (struct ash_policy_entry){
        .job = *job, .seq = policy->next_seq++, .submit_s = now_s, .usage = usage, .heap_at = -1};
    if (make_wait(policy, number) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    return number;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

/* A job that outlasts a reservation uses what the reservation left. */
static void use_masks(struct ash_policy *policy, const struct ash_policy_entry *entry)
{
    if (policy->reservation_count == 0 || entry->end_s <= policy->first_reserved_s) return;
    for (int i = 0; i < entry->grant_count; i++) {
        int host = entry->grants[i].host;

        if (policy->mask[host] == ASH_ROOM_UNITS_MAX) continue;
        policy->mask[host] -= __builtin_popcount(entry->grants[i].gpus);
        if (policy->mask[host] < 0) policy->mask[host] = 0;
        ash_policy_host_refresh(policy, host);
    }
}

int ash_policy_start(struct ash_policy *policy, int job, int count, enum ash_policy_reason reason)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int64_t amount[ASH_POLICY_RESOURCES];
    int rc = ash_policy_take(policy, job, count);

    if (rc < 0) return rc;
    end_wait(policy, job);
    ash_policy_amount(&entry->job, count, amount);
    ash_quota_use(policy->quota, entry->job.queue, amount);
    ash_policy_account(policy, job, amount[ASH_POLICY_GPU], 1);
    entry->state = ASH_POLICY_RUNNING;
    entry->nodes = entry->job.nodes;
    entry->start_s = policy->now_s;
    entry->end_s = policy->now_s + entry->job.limit_s;
    policy->running++;
    ash_policy_heap_add(policy, job);
    use_masks(policy, entry);
    tell(policy, job, (struct ash_policy_decision){.act = ASH_POLICY_START, .reason = reason, .by = UINT64_MAX});
    return 0;
}

/* Give back all from the index on, with quota and usage. */
static void release(struct ash_policy *policy, int job, int from)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int64_t amount[ASH_POLICY_RESOURCES];

    ash_policy_amount(&entry->job, entry->grant_count - from, amount);
    ash_policy_give_back(policy, job, from);
    ash_quota_release(policy->quota, entry->job.queue, amount);
    ash_policy_account(policy, job, amount[ASH_POLICY_GPU], -1);
}

static void end_run(struct ash_policy *policy, int job)
{
    release(policy, job, 0);
    ash_policy_heap_remove(policy, job);
    policy->running--;
}

int ash_policy_stop(struct ash_policy *policy, int job, uint64_t by, enum ash_policy_act act,
                    enum ash_policy_reason reason)
{
    double lost_s = ash_policy_lost(policy, &policy->jobs[job]);

    end_run(policy, job);
    tell(policy, job, (struct ash_policy_decision){.act = act, .reason = reason, .by = by, .lost_s = lost_s});
    return make_wait(policy, job);
}

void ash_policy_shrink(struct ash_policy *policy, int job, int keep, uint64_t by)
{
    struct ash_policy_entry *entry = &policy->jobs[job];

    release(policy, job, keep);
    if (entry->nodes > keep) entry->nodes = keep;
    tell(policy, job,
         (struct ash_policy_decision){.act = ASH_POLICY_SHRINK,
                                      .reason = ASH_POLICY_PRIORITY,
                                      .by = by,
                                      .lost_s = ash_policy_lost(policy, entry)});
}

void ash_policy_end(struct ash_policy *policy, int job, double now_s)
{
    struct ash_policy_entry *entry = &policy->jobs[job];

    advance(policy, now_s);
    ash_assert(entry->state != ASH_POLICY_UNUSED);
    if (entry->state == ASH_POLICY_RUNNING)
        end_run(policy, job);
    else
        end_wait(policy, job);
    entry->state = ASH_POLICY_UNUSED;
    for (int i = 0; i < policy->fresh_count; i++)
        if (policy->fresh[i] == job) policy->fresh[i--] = policy->fresh[--policy->fresh_count];
    policy->unused[policy->unused_count++] = job;
}

void ash_policy_fail(struct ash_policy *policy, int job, double now_s)
{
    advance(policy, now_s);
    ash_assert(policy->jobs[job].state == ASH_POLICY_RUNNING);
    policy->jobs[job].failures++;
    if (ash_policy_stop(policy, job, UINT64_MAX, ASH_POLICY_REQUEUE, ASH_POLICY_HOST_FAILED) < 0)
        policy->is_out_of_memory = true;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

/* One host of a running job is gone: a spare takes its place, or the job goes on with fewer, or waits again. */
static void lose_host(struct ash_policy *policy, int job, int host)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int64_t amount[ASH_POLICY_RESOURCES];
    int index = 0, spares = entry->grant_count - entry->nodes;
    bool was_spare;
    double lost_s = ash_policy_lost(policy, entry);

    while (entry->grants[index].host != host)
        index++;
    was_spare = index >= entry->nodes;
    if (!was_spare && spares == 0 && (entry->job.min_nodes == 0 || entry->nodes - 1 < entry->job.min_nodes)) {
        if (ash_policy_stop(policy, job, UINT64_MAX, ASH_POLICY_REQUEUE, ASH_POLICY_HOST_FAILED) < 0)
            policy->is_out_of_memory = true;
        return;
    }
    ash_policy_amount(&entry->job, 1, amount);
    if (!was_spare && spares > 0) { /* the first spare takes its rank */
        struct ash_policy_grant spare = entry->grants[entry->nodes];

        entry->grants[entry->nodes] = entry->grants[index];
        entry->grants[index] = spare;
        index = entry->nodes;
    } else if (!was_spare) {
        entry->nodes--;
    }
    ash_policy_drop_grant(policy, job, index);
    ash_quota_release(policy->quota, entry->job.queue, amount);
    ash_policy_account(policy, job, amount[ASH_POLICY_GPU], -1);
    tell(policy, job,
         (struct ash_policy_decision){.act = !was_spare && spares == 0 ? ASH_POLICY_SHRINK : ASH_POLICY_REPLACE,
                                      .reason = ASH_POLICY_HOST_FAILED,
                                      .by = UINT64_MAX,
                                      .lost_s = was_spare ? 0 : lost_s});
}

void ash_policy_host_down(struct ash_policy *policy, int host, double now_s)
{
    struct ash_policy_host_state *state = &policy->states[host];

    advance(policy, now_s);
    if (!state->is_up) return;
    state->is_up = false;
    policy->gpu_milli_total -= policy->hosts[host].gpus * ASH_POLICY_GPU_MILLI;
    while (state->job_count > 0)
        lose_host(policy, state->jobs[0], host);
    ash_policy_host_refresh(policy, host);
}

void ash_policy_host_drain(struct ash_policy *policy, int host)
{
    policy->states[host].is_drained = true;
    ash_policy_host_refresh(policy, host);
}

void ash_policy_host_up(struct ash_policy *policy, int host)
{
    struct ash_policy_host_state *state = &policy->states[host];

    if (!state->is_up) policy->gpu_milli_total += policy->hosts[host].gpus * ASH_POLICY_GPU_MILLI;
    state->is_up = true;
    state->is_drained = false;
    ash_policy_host_refresh(policy, host);
}
