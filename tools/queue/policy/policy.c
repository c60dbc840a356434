/* The policy: jobs come and go, hosts fail and return, every change is an event. Starts are decided in pass.c. */
#include "queue/policy/policy_priv.h"

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
    policy->queue_started = calloc(count, sizeof(*policy->queue_started));
    if (policy->queue_started == NULL || policy->queue_used == NULL || policy->queue_waiting == NULL ||
        policy->queue_given == NULL || policy->is_queue_blocked == NULL)
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
    free(policy->queue_started);
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

    ash_assert(entry->state != ASH_POLICY_WAITING && entry->grant_count == 0); /* it holds no host while it waits */
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

    ash_assert(entry->state == ASH_POLICY_WAITING && policy->waiting > 0);
    ash_policy_lane_remove(policy, job);
    policy->waiting--;
    policy->queue_waiting[entry->job.queue] -= milli_of(&entry->job, ash_policy_wanted(&entry->job));
}

int ash_policy_submit(struct ash_policy *policy, const struct ash_policy_job *job, double now_s, struct ash_err *err)
{
    int number, usage, rc = ash_policy_check(policy, job, err);

    if (rc < 0) return rc;
    advance(policy, now_s);
    usage = ash_policy_usage_of(policy, job->queue, job->user);
    if (usage < 0 || (policy->unused_count == 0 && policy->job_count == policy->job_capacity && grow_jobs(policy) < 0))
        return ash_err_set(err, -ENOMEM, "out of memory");
    number = policy->unused_count > 0 ? policy->unused[--policy->unused_count] : policy->job_count++;
    policy->jobs[number] = (struct ash_policy_entry){
        .job = *job, .seq = policy->next_seq++, .submit_s = now_s, .usage = usage, .heap_at = -1, .held_at = -1};
    if (make_wait(policy, number) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    return number;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

/* A job that outlasts a reservation uses the rest of the reservation. */
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
    policy->queue_started[entry->job.queue]++;
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

    ash_assert(from <= entry->grant_count);
    ash_policy_amount(&entry->job, entry->grant_count - from, amount);
    ash_policy_give_back(policy, job, from);
    ash_quota_release(policy->quota, entry->job.queue, amount);
    ash_policy_account(policy, job, amount[ASH_POLICY_GPU], -1);
}

static void end_run(struct ash_policy *policy, int job)
{
    ash_assert(policy->jobs[job].state == ASH_POLICY_RUNNING && policy->running > 0);
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

    ash_assert(keep > 0 && keep < entry->grant_count && entry->state == ASH_POLICY_RUNNING);
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
    if (entry->held_at >= 0)
        ash_policy_break_promise(policy, job);
    else if (policy->reservation_count > 0 && entry->state == ASH_POLICY_WAITING && !ash_policy_promises(policy))
        ash_policy_release_reservations(policy);
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

/* One host of a running job is gone: a spare takes its place, or the job continues with fewer, or waits again. */
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
        lose_host(policy, state->jobs[0].job, host);
    ash_policy_host_refresh(policy, host);
    ash_policy_release_reservations(policy); /* it may have been part of one */
}

void ash_policy_host_drain(struct ash_policy *policy, int host)
{
    policy->states[host].is_drained = true;
    ash_policy_host_refresh(policy, host);
    ash_policy_release_reservations(policy);
}

void ash_policy_host_up(struct ash_policy *policy, int host)
{
    struct ash_policy_host_state *state = &policy->states[host];

    if (!state->is_up) policy->gpu_milli_total += policy->hosts[host].gpus * ASH_POLICY_GPU_MILLI;
    state->is_up = true;
    state->is_drained = false;
    ash_policy_host_refresh(policy, host);
}
