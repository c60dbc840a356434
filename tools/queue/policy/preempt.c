/* Preemption: the jobs that a waiting job may stop, in order, and no more than needed. Candidates are released one
 * after the other in a look ahead until the job fits, in quota and topology; then those that turn out not to be needed
 * are kept, last first. A job can never be stopped by one that it may stop: the rules below compare classes, or
 * borrowing. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

#define FUTILE_MAX 16 /* attempts that come to nothing, in one pass */
#define GAP_MAX_S 900 /* between two such attempts of one job */

/* A running job, or hosts that it can do without. */
struct candidate {
    int job;
    int from, to; /* grants that are released */
    bool is_whole, is_released;
    bool is_borrower;
    double priority, cost;
    double start_s;
    uint64_t seq;
};

struct attempt {
    struct ash_policy *policy;
    int job;
    struct candidate *candidates;
    int count, capacity;
    bool is_held; /* reservations are in the way */
};

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static double priority_of(const struct ash_policy *policy, const struct ash_policy_entry *entry)
{
    return policy->conf->classes[entry->job.class].priority;
}

static int root_of(const struct ash_policy *policy, int queue)
{
    while (policy->conf->queues[queue].parent >= 0)
        queue = policy->conf->queues[queue].parent;
    return queue;
}

/* Shares: the victim's queue still has more than the preemptor's afterwards, or had. Then they cannot take turns. */
static bool is_fairer(const struct ash_policy *policy, const struct ash_policy_entry *mine,
                      const struct ash_policy_entry *other)
{
    int64_t gain[ASH_POLICY_RESOURCES], loss[ASH_POLICY_RESOURCES];
    double after;

    ash_policy_amount(&mine->job, ash_policy_wanted(&mine->job), gain);
    ash_policy_amount(&other->job, other->grant_count, loss);
    if (policy->conf->fair == ASH_POLICY_FAIR_OVER_QUOTA)
        return (double)(policy->queue_used[mine->job.queue] + gain[ASH_POLICY_GPU]) <=
                   policy->queue_given[mine->job.queue] &&
               (double)policy->queue_used[other->job.queue] > policy->queue_given[other->job.queue];
    after = ash_quota_share(policy->quota, mine->job.queue, gain, 1);
    return after <= ash_quota_share(policy->quota, other->job.queue, loss, -1) ||
           after < ash_quota_share(policy->quota, other->job.queue, NULL, 1);
}

static bool may_stop_in_queue(const struct ash_policy *policy, const struct ash_policy_entry *mine,
                              const struct ash_policy_entry *other)
{
    double a = priority_of(policy, mine), b = priority_of(policy, other);

    if (policy->conf->within == ASH_POLICY_RECLAIM_NEVER) return false;
    return b < a || (policy->conf->within == ASH_POLICY_RECLAIM_ANY && b == a && other->seq > mine->seq);
}

static bool may_stop_in_cohort(const struct ash_policy *policy, const struct ash_policy_entry *mine,
                               const struct ash_policy_entry *other)
{
    const struct ash_policy_conf *conf = policy->conf;
    const struct ash_policy_queue *own = &conf->queues[mine->job.queue], *theirs = &conf->queues[other->job.queue];
    bool is_lower = priority_of(policy, other) < priority_of(policy, mine);
    int64_t amount[ASH_POLICY_RESOURCES];

    if (conf->cohort == ASH_POLICY_RECLAIM_NEVER) return false;
    if (conf->fair == ASH_POLICY_FAIR_OVER_QUOTA) return is_fairer(policy, mine, other);
    if (!own->has_quota && !theirs->has_quota) return is_lower; /* no quotas: classes alone */
    if (!own->has_quota || !theirs->has_quota) return false;
    if (root_of(policy, mine->job.queue) != root_of(policy, other->job.queue)) return false;
    if (!ash_quota_borrows(policy->quota, other->job.queue, NULL)) return false;
    if (conf->cohort == ASH_POLICY_RECLAIM_LOWER && !is_lower) return false;
    ash_policy_amount(&mine->job, ash_policy_wanted(&mine->job), amount);
    if (!ash_quota_borrows(policy->quota, mine->job.queue, amount)) return true;
    return conf->fair == ASH_POLICY_FAIR_DOMINANT && is_fairer(policy, mine, other);
}

static bool may_stop(const struct ash_policy *policy, int job, int other)
{
    const struct ash_policy_entry *mine = &policy->jobs[job], *theirs = &policy->jobs[other];

    if (!policy->conf->classes[theirs->job.class].is_preemptible) return false;
    if (policy->now_s - theirs->start_s < policy->conf->protect_s) return false;
    return mine->job.queue == theirs->job.queue ? may_stop_in_queue(policy, mine, theirs)
                                                : may_stop_in_cohort(policy, mine, theirs);
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static int add_candidate(struct attempt *attempt, struct candidate candidate)
{
    if (attempt->count == attempt->capacity) {
        int capacity = attempt->capacity == 0 ? 64 : 2 * attempt->capacity;
        struct candidate *more = realloc(attempt->candidates, (size_t)capacity * sizeof(*more));

        if (more == NULL) return -ENOMEM;
        attempt->candidates = more;
        attempt->capacity = capacity;
    }
    attempt->candidates[attempt->count++] = candidate;
    return 0;
}

/* First the hosts that it can do without, one by one from the last; then the job itself. Spares go with the job. */
static int add_job(struct attempt *attempt, int job)
{
    const struct ash_policy *policy = attempt->policy;
    const struct ash_policy_entry *entry = &policy->jobs[job];
    int least =
        entry->job.min_nodes > 0 && entry->grant_count == entry->nodes ? entry->job.min_nodes : entry->grant_count;
    struct candidate candidate = {.job = job,
                                  .is_borrower = entry->job.queue != policy->jobs[attempt->job].job.queue,
                                  .priority = priority_of(policy, entry),
                                  .cost = ash_policy_lost(policy, entry) * entry->grant_count * entry->job.gpus,
                                  .start_s = entry->start_s,
                                  .seq = entry->seq};
    int rc = 0, kept = entry->grant_count;

    for (; kept > least && rc == 0; kept--) {
        candidate.from = kept - 1;
        candidate.to = kept;
        rc = add_candidate(attempt, candidate);
    }
    candidate.from = 0;
    candidate.to = kept;
    candidate.is_whole = true;
    return rc < 0 ? rc : add_candidate(attempt, candidate);
}

static int by_order(const struct candidate *x, const struct candidate *y)
{
    if (x->is_borrower != y->is_borrower) return x->is_borrower ? -1 : 1;
    if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
    return 0;
}

/* The same job: parts before the whole, the last host first. */
static int by_part(const struct candidate *x, const struct candidate *y)
{
    if (x->is_whole != y->is_whole) return x->is_whole ? 1 : -1;
    return y->from - x->from;
}

static int newest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = by_order(x, y);

    if (order != 0) return order;
    if (x->start_s != y->start_s) return x->start_s > y->start_s ? -1 : 1;
    if (x->seq != y->seq) return x->seq > y->seq ? -1 : 1;
    return by_part(x, y);
}

static int cheapest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = by_order(x, y);

    if (order == 0 && x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return order != 0 ? order : newest_first(a, b);
}

/* Could all that the rules allow be enough? Counts by class, without looking at jobs. */
static bool is_hopeless(const struct ash_policy *policy, int job)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];
    int64_t free_milli = policy->gpu_milli_total - policy->gpu_milli_used, amount[ASH_POLICY_RESOURCES];
    bool any = policy->conf->cohort == ASH_POLICY_RECLAIM_ANY || policy->conf->within == ASH_POLICY_RECLAIM_ANY ||
               policy->conf->fair == ASH_POLICY_FAIR_OVER_QUOTA;
    int64_t below = 0;

    ash_policy_amount(&entry->job, ash_policy_wanted(&entry->job), amount);
    for (int class = 0; class < policy->conf->class_count; class ++)
        if (policy->conf->classes[class].is_preemptible &&
            (any || policy->conf->classes[class].priority < priority_of(policy, entry)))
            below += policy->class_used[class];
    return below == 0 || below + free_milli < amount[ASH_POLICY_GPU];
}

static int list_candidates(struct attempt *attempt)
{
    struct ash_policy *policy = attempt->policy;

    for (int i = 0; i < policy->heap_count; i++) {
        int rc = may_stop(policy, attempt->job, policy->heap[i]) ? add_job(attempt, policy->heap[i]) : 0;

        if (rc < 0) return rc;
    }
    if (attempt->count > 0)
        qsort(attempt->candidates, (size_t)attempt->count, sizeof(*attempt->candidates),
              policy->conf->victims == ASH_POLICY_VICTIMS_CHEAPEST ? cheapest_first : newest_first);
    return 0;
}

/* ---- looking ahead ----------------------------------------------------------------------------------------------- */

static void show_host(struct attempt *attempt, int host)
{
    struct ash_policy *policy = attempt->policy;
    int units = policy->future_units[host];

    if (ash_policy_promises(policy))
        units -= ash_policy_claimed(policy, host, attempt->job);
    else if (attempt->is_held && units > policy->mask[host])
        units = policy->mask[host];
    if (!policy->states[host].is_up || policy->states[host].is_drained) units = 0;
    ash_room_set(policy->future, policy->hosts[host].node, units > 0 ? units : 0);
}

/* Release (1) or take back (-1) a candidate's hosts and quota in the look ahead. */
static void change(struct attempt *attempt, struct candidate *candidate, int sign)
{
    struct ash_policy *policy = attempt->policy;
    const struct ash_policy_entry *entry = &policy->jobs[candidate->job];
    int64_t amount[ASH_POLICY_RESOURCES];

    ash_policy_amount(&entry->job, candidate->to - candidate->from, amount);
    if (sign > 0)
        ash_quota_release(policy->quota, entry->job.queue, amount);
    else
        ash_quota_use(policy->quota, entry->job.queue, amount);
    ash_assert(candidate->is_released != (sign > 0) &&
               candidate->to <= entry->grant_count); /* released once, taken back once */
    for (int i = candidate->from; i < candidate->to; i++) {
        const struct ash_policy_grant *grant = &entry->grants[i];
        bool is_shared = entry->job.gpu_milli < ASH_POLICY_GPU_MILLI;

        policy->future_units[grant->host] += sign * (is_shared ? 0 : __builtin_popcount(grant->gpus));
        show_host(attempt, grant->host);
    }
    candidate->is_released = sign > 0;
}

static bool fits_quota(const struct attempt *attempt)
{
    const struct ash_policy *policy = attempt->policy;
    const struct ash_policy_job *job = &policy->jobs[attempt->job].job;
    int64_t amount[ASH_POLICY_RESOURCES];

    if (policy->conf->fair == ASH_POLICY_FAIR_OVER_QUOTA) return true;
    ash_policy_amount(job, ash_policy_wanted(job), amount);
    return ash_quota_fits(policy->quota, job->queue, amount);
}

/* Hosts found, 0, or -ENOMEM. */
static int try_fit(struct attempt *attempt)
{
    return fits_quota(attempt) ? ash_policy_fit(attempt->policy, attempt->policy->future,
                                                &attempt->policy->jobs[attempt->job].job, false)
                               : 0;
}

/* A queue that borrows no more is left alone: it uses only its quota. */
static bool is_still_fair(const struct attempt *attempt, const struct candidate *candidate)
{
    const struct ash_policy *policy = attempt->policy;
    int queue = policy->jobs[candidate->job].job.queue;

    if (queue == policy->jobs[attempt->job].job.queue) return true;
    if (policy->conf->fair == ASH_POLICY_FAIR_OVER_QUOTA) return true;
    return !policy->conf->queues[queue].has_quota || ash_quota_borrows(policy->quota, queue, NULL);
}

/* Candidates that are not needed after all are taken back, the last first. A job that is stopped whole gives all. */
static int drop_needless(struct attempt *attempt)
{
    for (int i = attempt->count - 1; i >= 0; i--) {
        struct candidate *candidate = &attempt->candidates[i];
        const struct candidate *next =
            i + 1 < attempt->count ? candidate + 1 : NULL; /* parts of one job are neighbours */
        int rc;

        if (!candidate->is_released || (next != NULL && next->is_released && next->job == candidate->job)) continue;
        change(attempt, candidate, -1);
        rc = try_fit(attempt);
        if (rc < 0) return rc;
        if (rc == 0) change(attempt, candidate, 1);
    }
    return 0;
}

/* The look ahead ends; released jobs stay marked. */
static void undo(struct attempt *attempt)
{
    struct ash_policy *policy = attempt->policy;

    for (int i = 0; i < attempt->count; i++) {
        struct candidate *candidate = &attempt->candidates[i];
        bool was_released = candidate->is_released;

        if (was_released) change(attempt, candidate, -1);
        candidate->is_released = was_released;
    }
    for (int i = 0; i < attempt->count; i++)
        for (int k = attempt->candidates[i].from; k < attempt->candidates[i].to; k++)
            ash_policy_host_refresh(policy, policy->jobs[attempt->candidates[i].job].grants[k].host);
    if (attempt->is_held)
        for (int i = 0; i < policy->reservation_count; i++)
            for (int k = 0; k < policy->reservations[i].host_count; k++)
                ash_policy_host_refresh(policy, policy->reservations[i].hosts[k]);
}

/* ---- doing it ---------------------------------------------------------------------------------------------------- */

static int stop_released(struct attempt *attempt)
{
    struct ash_policy *policy = attempt->policy;
    const struct ash_policy_entry *mine = &policy->jobs[attempt->job];

    for (int i = attempt->count - 1; i >= 0; i--) { /* whole jobs first: their parts go with them */
        const struct candidate *candidate = &attempt->candidates[i];
        const struct ash_policy_entry *entry = &policy->jobs[candidate->job];
        enum ash_policy_reason reason =
            entry->job.queue == mine->job.queue || !policy->conf->queues[entry->job.queue].has_quota
                ? ASH_POLICY_PRIORITY
                : ASH_POLICY_RECLAIMED;
        int rc = 0;

        if (!candidate->is_released || entry->state != ASH_POLICY_RUNNING) continue;
        if (candidate->is_whole)
            rc = ash_policy_stop(policy, candidate->job, mine->job.key, ASH_POLICY_STOP, reason);
        else if (candidate->from < entry->grant_count)
            ash_policy_shrink(policy, candidate->job, candidate->from, mine->job.key);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Release in order, and look after the first, second, fourth, ...: unneeded ones are taken back later. Returns hosts
 * found, 0 or -ENOMEM. */
static int release_enough(struct attempt *attempt)
{
    int found = 0, released = 0, look_at = 1;

    for (int i = 0; i < attempt->count && found == 0; i++) {
        if (!is_still_fair(attempt, &attempt->candidates[i])) continue;
        change(attempt, &attempt->candidates[i], 1);
        if (++released < look_at) continue;
        look_at *= 2;
        found = try_fit(attempt);
    }
    return found == 0 && released > 0 ? try_fit(attempt) : found;
}

/* After an attempt in vain: not again for a while. */
static void back_off(struct ash_policy *policy, struct ash_policy_entry *entry)
{
    double gap_s = entry->preempt_gap_s > 0 ? 2 * entry->preempt_gap_s : policy->conf->interval_s;

    entry->preempt_gap_s = gap_s < GAP_MAX_S ? gap_s : GAP_MAX_S;
    entry->preempt_from_s = policy->now_s + entry->preempt_gap_s;
    policy->futile++;
}

static bool may_try(const struct ash_policy *policy, const struct ash_policy_entry *entry)
{
    const struct ash_policy_conf *conf = policy->conf;

    if (!conf->classes[entry->job.class].may_preempt || policy->futile >= FUTILE_MAX) return false;
    if (conf->within == ASH_POLICY_RECLAIM_NEVER && conf->cohort == ASH_POLICY_RECLAIM_NEVER) return false;
    if (policy->now_s < entry->preempt_from_s) return false;
    if (conf->failures_max > 0 && entry->failures >= conf->failures_max) return false;
    return entry->job.cpu_milli == 0 && entry->job.memory_mib == 0; /* these are not looked ahead */
}

/* Find and mark the jobs to stop. Returns hosts found, 0 or -ENOMEM. */
static int look_ahead(struct attempt *attempt)
{
    struct ash_policy *policy = attempt->policy;
    int rc = list_candidates(attempt), found;

    for (int i = 0; i < policy->reservation_count && rc == 0; i++)
        for (int k = 0; k < policy->reservations[i].host_count; k++)
            show_host(attempt, policy->reservations[i].hosts[k]);
    found = rc < 0 ? rc : release_enough(attempt);
    if (found > 0) {
        rc = drop_needless(attempt);
        found = rc < 0 ? rc : try_fit(attempt);
    }
    undo(attempt);
    return found;
}

int ash_policy_preempt(struct ash_policy *policy, int job)
{
    struct attempt attempt = {.policy = policy, .job = job, .is_held = policy->reservation_count > 0};
    int found, rc;

    if (!may_try(policy, &policy->jobs[job]) || is_hopeless(policy, job)) return 0;
    found = look_ahead(&attempt);
    if (found > 0) {
        rc = stop_released(&attempt);
        /* it starts on the hosts found: the look ahead and the present are now the same */
        if (rc == 0)
            found = ash_policy_promises(policy) ? ash_policy_fit_promised(policy, job)
                                                : ash_policy_fit(policy, attempt.is_held ? policy->held : policy->room,
                                                                 &policy->jobs[job].job, true);
        if (rc == 0 && found > 0) rc = ash_policy_start(policy, job, found, ASH_POLICY_BY_PREEMPTION);
        found = rc < 0 ? rc : found > 0;
    } else if (found == 0) {
        back_off(policy, &policy->jobs[job]);
    }
    free(attempt.candidates);
    return found;
}
