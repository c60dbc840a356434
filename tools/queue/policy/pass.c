/* One scheduling pass: waiting jobs in order, each started, given a reservation, or a reason of waiting. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

#define STRICT_DEPTH 16

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* Thousandths of GPUs above the lowest cap; 0: within all. */
static int64_t above_caps(const struct ash_policy *policy, const struct ash_policy_entry *entry, int64_t milli)
{
    const struct ash_policy_conf *conf = policy->conf;
    int64_t used = policy->usages[entry->usage].running_milli, above = 0;

    if (used + milli > conf->queues[entry->job.queue].user_gpus_max)
        above = used + milli - conf->queues[entry->job.queue].user_gpus_max;
    for (int queue = entry->job.queue; queue >= 0; queue = conf->queues[queue].parent) {
        int64_t more = policy->queue_used[queue] + milli - conf->queues[queue].gpus_max;

        if (conf->queues[queue].gpus_max != ASH_POLICY_UNLIMITED && more > above) above = more;
    }
    return above;
}

static bool is_in_quota(const struct ash_policy *policy, const struct ash_policy_entry *entry)
{
    int64_t amount[ASH_POLICY_RESOURCES];

    if (policy->conf->fair == ASH_POLICY_FAIR_OVER_QUOTA || !policy->conf->queues[entry->job.queue].has_quota)
        return true;
    ash_policy_amount(&entry->job, ash_policy_wanted(&entry->job), amount);
    return ash_quota_fits(policy->quota, entry->job.queue, amount);
}

/* ---- one job ----------------------------------------------------------------------------------------------------- */

static void wait_for(struct ash_policy *policy, struct ash_policy_entry *entry, enum ash_policy_reason reason,
                     int missing)
{
    entry->wait = (struct ash_policy_wait){.reason = reason, .start_s = -1, .holder = UINT64_MAX, .missing = missing};
    if (reason == ASH_POLICY_WAITS_QUOTA || reason == ASH_POLICY_WAITS_CAP)
        ash_policy_break_promise(policy, (int)(entry - policy->jobs)); /* hosts are promised, quota is not */
    if (policy->conf->queues[entry->job.queue].is_strict) policy->is_queue_blocked[entry->job.queue] = true;
}

/* It does not fit: record why, and reserve hosts for it if the policy does. Returns 0, -ENOMEM, or 1 if no job behind
 * it may start. */
static int queue_up(struct ash_policy *policy, int job)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int wanted = ash_policy_wanted(&entry->job), gpus = entry->job.gpus > 0 ? entry->job.gpus : 1;
    int missing = wanted - ash_room_hosts(policy->room, 0, gpus), rc = 0;

    wait_for(policy, entry,
             missing > 0                     ? ASH_POLICY_WAITS_HOSTS
             : policy->reservation_count > 0 ? ASH_POLICY_WAITS_TURN
                                             : ASH_POLICY_WAITS_DOMAIN,
             missing > 0 ? missing : 0);
    if (policy->conf->backfill == ASH_POLICY_BACKFILL_NONE) return 1;
    if (ash_policy_promises(policy))
        rc = ash_policy_promise(policy, job);
    else if (policy->conf->backfill == ASH_POLICY_BACKFILL_EASY && policy->reservation_count == 0)
        rc = ash_policy_reserve(policy, job);
    return rc < 0 ? rc : 0;
}

/* Hosts for a start now that delays no job before it. Their number, 0 or -ENOMEM. */
static int fit_behind(struct ash_policy *policy, int job, bool is_behind)
{
    const struct ash_policy_job *asked = &policy->jobs[job].job;
    const struct ash_room *room =
        is_behind && policy->now_s + asked->limit_s > policy->first_reserved_s ? policy->held : policy->room;

    return ash_policy_promises(policy) ? ash_policy_fit_promised(policy, job)
                                       : ash_policy_fit(policy, room, asked, true);
}

/* Look at one waiting job. Returns as queue_up. */
static int consider(struct ash_policy *policy, int job)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    int64_t milli = (int64_t)ash_policy_wanted(&entry->job) * entry->job.gpus * entry->job.gpu_milli;
    int64_t above = above_caps(policy, entry, milli);
    bool has_quota = is_in_quota(policy, entry);
    bool is_behind = policy->reservation_count > 0 && policy->is_past_reserved;
    int found = 0;

    if (policy->is_queue_blocked[entry->job.queue] ||
        (policy->conf->queue_starts > 0 && policy->queue_started[entry->job.queue] >= policy->conf->queue_starts)) {
        wait_for(policy, entry, ASH_POLICY_WAITS_TURN, 0);
        return 0;
    }
    if (above > 0) {
        wait_for(policy, entry, ASH_POLICY_WAITS_CAP, (int)above);
        return 0;
    }
    if (has_quota) found = fit_behind(policy, job, is_behind);
    if (found > 0) return ash_policy_start(policy, job, found, is_behind ? ASH_POLICY_BACKFILLED : ASH_POLICY_FITS);
    if (found == 0) found = ash_policy_preempt(policy, job);
    if (found != 0) return found < 0 ? found : 0;
    if (has_quota) return queue_up(policy, job);
    wait_for(policy, entry, ASH_POLICY_WAITS_QUOTA,
             (int)(milli - ash_quota_available(policy->quota, entry->job.queue, ASH_POLICY_GPU)));
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void begin(struct ash_policy *policy, double now_s)
{
    ash_assert(now_s >= policy->now_s);
    policy->now_s = now_s;
    policy->futile = 0;
    policy->fresh_count = 0;
    memset(policy->queue_started, 0, (size_t)policy->conf->queue_count * sizeof(*policy->queue_started));
    memset(policy->is_queue_blocked, 0, (size_t)policy->conf->queue_count * sizeof(*policy->is_queue_blocked));
}

/* A reservation stays as it is for an interval, as Slurm's backfill does: it is an upper bound that nothing delays. */
static bool is_kept(const struct ash_policy *policy)
{
    if (policy->conf->backfill == ASH_POLICY_BACKFILL_CONSERVATIVE) return true;
    return policy->conf->backfill == ASH_POLICY_BACKFILL_EASY && policy->reservation_count == 1 &&
           policy->now_s < policy->reserved_at_s + policy->conf->interval_s &&
           policy->jobs[policy->reservations[0].job].state == ASH_POLICY_WAITING;
}

/* Jobs that are due, but lie deeper than a pass looks. Returns as queue_up. */
static int consider_due(struct ash_policy *policy)
{
    int rc = 0;

    for (int i = 0; i < policy->reservation_count && rc == 0;) {
        int job = policy->reservations[i].job;

        if (policy->reservations[i].start_s <= policy->now_s) rc = consider(policy, job);
        i += policy->jobs[job].held_at == i; /* else another one took its place in the list, or it is gone */
    }
    ash_policy_count_promises(policy);
    return rc;
}

static bool is_reserved(const struct ash_policy *policy, int job)
{
    return ash_policy_promises(policy) ? policy->jobs[job].held_at >= 0
                                       : policy->reservation_count > 0 && policy->reservations[0].job == job;
}

/* Look at the jobs in order. Returns as queue_up. */
static int consider_all(struct ash_policy *policy)
{
    int rc = 0;

    for (int i = 0; i < policy->order_count && rc == 0; i++)
        if (policy->jobs[policy->order[i]].state == ASH_POLICY_WAITING) {
            rc = consider(policy, policy->order[i]);
            if (is_reserved(policy, policy->order[i])) policy->is_past_reserved = true;
        }
    return rc == 0 && ash_policy_promises(policy) ? consider_due(policy) : rc;
}

int ash_policy_pass(struct ash_policy *policy, double now_s)
{
    bool is_strict = policy->conf->backfill == ASH_POLICY_BACKFILL_NONE;
    int rc = policy->is_out_of_memory ? -ENOMEM : 0, waiting;

    begin(policy, now_s);
    if (!is_kept(policy)) ash_policy_release_reservations(policy);
    policy->is_past_reserved = policy->reservation_count == 0 || ash_policy_promises(policy);
    if (rc == 0 && policy->waiting > 0) rc = ash_policy_settle_usage(policy);
    do { /* strictly in order only a few are looked at, again as long as all of them start */
        waiting = policy->waiting;
        if (rc == 0) rc = ash_policy_sort(policy, is_strict ? STRICT_DEPTH : policy->conf->depth);
        if (rc == 0) rc = consider_all(policy);
    } while (rc == 0 && is_strict && policy->waiting > 0 && policy->waiting < waiting);
    return rc < 0 ? rc : 0;
}

int ash_policy_pass_new(struct ash_policy *policy, double now_s)
{
    int count = policy->fresh_count, rc = policy->is_out_of_memory ? -ENOMEM : 0;
    bool is_first = policy->waiting == count;

    if (count > policy->job_capacity) count = policy->job_capacity;
    memcpy(policy->order, policy->fresh, (size_t)count * sizeof(*policy->order));
    policy->order_count = count;
    begin(policy, now_s);
    policy->is_past_reserved = true;
    if (policy->conf->backfill == ASH_POLICY_BACKFILL_NONE && !is_first) return rc;
    if (rc == 0) rc = consider_all(policy);
    return rc < 0 ? rc : 0;
}

/* ---- looks ------------------------------------------------------------------------------------------------------- */

struct ash_policy_wait ash_policy_why(const struct ash_policy *policy, int job)
{
    ash_assert(job >= 0 && job < policy->job_count);
    return policy->jobs[job].wait;
}

struct ash_policy_state ash_policy_look(const struct ash_policy *policy)
{
    struct ash_policy_state state = {.waiting = policy->waiting,
                                     .running = policy->running,
                                     .gpu_milli_total = policy->gpu_milli_total,
                                     .gpu_milli_used = policy->gpu_milli_used,
                                     .reserved_s = -1,
                                     .reserved_key = UINT64_MAX};
    int whole = ash_room_hosts(policy->room, 0, policy->units_max);

    state.gpu_milli_stranded =
        policy->gpu_milli_total - policy->gpu_milli_used - (int64_t)whole * policy->units_max * ASH_POLICY_GPU_MILLI;
    if (policy->reservation_count > 0) {
        state.reserved_s = policy->first_reserved_s;
        state.reserved_key = policy->jobs[policy->reservations[0].job].job.key;
    }
    return state;
}

int ash_policy_spread(const struct ash_policy *policy, int job)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];
    int domain = policy->hosts[entry->grants[0].host].node;

    ash_assert(entry->nodes <= entry->grant_count); /* spares come after them */
    for (int i = 1; i < entry->nodes; i++)
        domain = ash_topology_meet(policy->topology, domain, policy->hosts[entry->grants[i].host].node);
    return policy->topology->nodes[domain].height;
}

int64_t ash_policy_queue_used(const struct ash_policy *policy, int queue)
{
    ash_assert(queue >= 0 && queue < policy->conf->queue_count);
    return policy->queue_used[queue];
}
