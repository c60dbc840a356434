/* Promises: conservative backfill. Every job that waits has hosts from a start on, and claims on these hosts.
 * A job may start, or get an earlier start, only if all claims stay whole while it runs: so a promised start only moves
 * forward. A walk over the ends of running jobs and over the edges of claims looks for the earliest start; per host it
 * counts exactly the capacity free over the whole run, since jobs that share a host come and go. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define OVERDUE_S 1.0 /* a job that runs beyond its limit may end any moment, not now */

/* A time after which claims of a reservation are in the way of a run that starts then, or from which they are not. */
struct edge {
    double time_s;
    int reservation;
};

/* The search for one job: time goes over ends of running jobs and over edges. */
struct walk {
    struct ash_policy *policy;
    const struct ash_policy_job *job;
    struct edge *begins, *ends; /* by time */
    int begin_count, begin_at, end_count, end_at;
    int *heap, heap_count; /* running jobs by end: a copy, which is used up */
    int *ended, ended_count;
    double time_s;
    uint64_t last_key; /* of the job whose end made the last step */
};

/* ---- claims of hosts --------------------------------------------------------------------------------------------- */

static int add_claim(struct ash_policy_host_state *state, struct ash_policy_claim claim)
{
    if (state->claim_count == state->claim_capacity) {
        int capacity = state->claim_capacity == 0 ? 4 : 2 * state->claim_capacity;
        struct ash_policy_claim *claims = realloc(state->claims, (size_t)capacity * sizeof(*claims));

        if (claims == NULL) return -ENOMEM;
        state->claims = claims;
        state->claim_capacity = capacity;
    }
    state->claims[state->claim_count++] = claim;
    return 0;
}

static void remove_claim(struct ash_policy_host_state *state, int job)
{
    for (int i = 0; i < state->claim_count; i++)
        if (state->claims[i].job == job) {
            state->claims[i] = state->claims[--state->claim_count];
            return;
        }
}

/* Put the claims of a reservation on its hosts. Returns 0 or -ENOMEM, with none of them there. */
static int claim_hosts(struct ash_policy *policy, const struct ash_policy_reservation *held)
{
    for (int i = 0; i < held->host_count; i++) {
        struct ash_policy_claim claim = {held->job, held->units, held->start_s, held->end_s};

        if (add_claim(&policy->states[held->hosts[i]], claim) == 0) continue;
        while (i-- > 0)
            remove_claim(&policy->states[held->hosts[i]], held->job);
        return -ENOMEM;
    }
    return 0;
}

static void unclaim_hosts(struct ash_policy *policy, const struct ash_policy_reservation *held)
{
    for (int i = 0; i < held->host_count; i++)
        remove_claim(&policy->states[held->hosts[i]], held->job);
}

/* Units that claims of others than job hold of a host at a time. */
static int claimed_at(const struct ash_policy_host_state *state, int job, double time_s)
{
    int units = 0;

    for (int i = 0; i < state->claim_count; i++)
        if (state->claims[i].job != job && state->claims[i].start_s <= time_s && time_s < state->claims[i].end_s)
            units += state->claims[i].units;
    return units;
}

int ash_policy_claimed(const struct ash_policy *policy, int host, int job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    int most = claimed_at(state, job, policy->now_s);

    for (int i = 0; i < state->claim_count; i++) {
        double start_s = state->claims[i].start_s;

        if (start_s > policy->now_s && start_s < policy->now_s + policy->jobs[job].job.limit_s) {
            int units = claimed_at(state, job, start_s);

            if (units > most) most = units;
        }
    }
    return most;
}

/* ---- free capacity of a host over a run -------------------------------------------------------------------------- */

static double end_of(const struct ash_policy *policy, int job)
{
    double end_s = policy->jobs[job].end_s;

    return end_s > policy->now_s ? end_s : policy->now_s + OVERDUE_S;
}

/* Free at a time, less what claims hold then. */
static int free_at(const struct ash_policy *policy, int host, double time_s)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    uint32_t back = 0, busy = 0;

    for (int i = 0; i < state->job_count; i++)
        if (end_of(policy, state->jobs[i].job) <= time_s)
            back |= state->jobs[i].gpus;
        else
            busy |= state->jobs[i].gpus;
    return state->whole - claimed_at(state, -1, time_s) + __builtin_popcount(back & ~busy);
}

/* The least that is free from a time on, as long as the job runs. */
static int free_over(const struct walk *walk, int host, double time_s)
{
    const struct ash_policy_host_state *state = &walk->policy->states[host];
    int least = free_at(walk->policy, host, time_s);

    if (!state->is_up || state->is_drained) return 0;
    for (int i = 0; i < state->claim_count; i++) {
        double start_s = state->claims[i].start_s;

        if (start_s > time_s && start_s - walk->job->limit_s < time_s) {
            int units = free_at(walk->policy, host, start_s);

            if (units < least) least = units;
        }
    }
    return least > 0 ? least : 0;
}

static void show_host(const struct walk *walk, int host, double time_s)
{
    ash_room_set(walk->policy->future, walk->policy->hosts[host].node, free_over(walk, host, time_s));
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return x->reservation - y->reservation;
}

static int begin_walk(struct walk *walk)
{
    struct ash_policy *policy = walk->policy;
    int count = policy->reservation_count;

    walk->heap = policy->scratch;
    walk->heap_count = policy->heap_count;
    walk->ended = policy->scratch + policy->heap_count;
    memcpy(walk->heap, policy->heap, (size_t)policy->heap_count * sizeof(*walk->heap));
    walk->begins = malloc((2 * (size_t)count + 1) * sizeof(*walk->begins));
    if (walk->begins == NULL) return -ENOMEM;
    walk->ends = walk->begins + count;
    for (int i = 0; i < count; i++) {
        const struct ash_policy_reservation *held = &policy->reservations[i];
        double begin_s = held->start_s - walk->job->limit_s;

        for (int k = 0; k < held->host_count; k++)
            show_host(walk, held->hosts[k], walk->time_s);
        if (begin_s >= walk->time_s) walk->begins[walk->begin_count++] = (struct edge){begin_s, i};
        if (held->end_s > walk->time_s) walk->ends[walk->end_count++] = (struct edge){held->end_s, i};
    }
    qsort(walk->begins, (size_t)walk->begin_count, sizeof(*walk->begins), by_time);
    qsort(walk->ends, (size_t)walk->end_count, sizeof(*walk->ends), by_time);
    return 0;
}

static int pop_end(struct walk *walk)
{
    const struct ash_policy *policy = walk->policy;
    int first = walk->heap[0], last = walk->heap[--walk->heap_count], at = 0;

    for (;;) {
        int child = 2 * at + 1;

        if (child + 1 < walk->heap_count &&
            policy->jobs[walk->heap[child + 1]].end_s < policy->jobs[walk->heap[child]].end_s)
            child++;
        if (child >= walk->heap_count || policy->jobs[walk->heap[child]].end_s >= policy->jobs[last].end_s) break;
        walk->heap[at] = walk->heap[child];
        at = child;
    }
    walk->heap[at] = last;
    return first;
}

static void show_held(const struct walk *walk, int reservation)
{
    const struct ash_policy_reservation *held = &walk->policy->reservations[reservation];

    for (int i = 0; i < held->host_count; i++)
        show_host(walk, held->hosts[i], walk->time_s);
}

/* Go to the next time at which something becomes free. False: nothing will. */
static bool step(struct walk *walk)
{
    struct ash_policy *policy = walk->policy;
    double end_s = walk->heap_count > 0 ? end_of(policy, walk->heap[0]) : INFINITY;
    double edge_s = walk->end_at < walk->end_count ? walk->ends[walk->end_at].time_s : INFINITY;
    double time_s = fmin(end_s, edge_s);

    if (isinf(time_s)) return false;
    walk->time_s = time_s;
    while (walk->begin_at < walk->begin_count && walk->begins[walk->begin_at].time_s < time_s)
        show_held(walk, walk->begins[walk->begin_at++].reservation);
    while (walk->end_at < walk->end_count && walk->ends[walk->end_at].time_s <= time_s)
        show_held(walk, walk->ends[walk->end_at++].reservation);
    while (walk->heap_count > 0 && end_of(policy, walk->heap[0]) <= time_s) {
        const struct ash_policy_entry *entry = &policy->jobs[walk->heap[0]];

        for (int i = 0; i < entry->grant_count; i++)
            show_host(walk, entry->grants[i].host, time_s);
        walk->last_key = entry->job.key;
        walk->ended[walk->ended_count++] = pop_end(walk);
    }
    return true;
}

/* Restore the hosts' present state. */
static void end_walk(struct walk *walk)
{
    struct ash_policy *policy = walk->policy;

    for (int i = 0; i < policy->reservation_count; i++)
        for (int k = 0; k < policy->reservations[i].host_count; k++)
            ash_policy_host_refresh(policy, policy->reservations[i].hosts[k]);
    for (int i = 0; i < walk->ended_count; i++)
        for (int k = 0; k < policy->jobs[walk->ended[i]].grant_count; k++)
            ash_policy_host_refresh(policy, policy->jobs[walk->ended[i]].grants[k].host);
    free(walk->begins);
}

/* ---- promises ---------------------------------------------------------------------------------------------------- */

/* Take a job's reservation out of the list. On true the caller owns its hosts. */
static bool take_out(struct ash_policy *policy, int job, struct ash_policy_reservation *held_out)
{
    int at = policy->jobs[job].held_at;

    if (at < 0) return false;
    ash_assert(at < policy->reservation_count && policy->reservations[at].job == job);
    *held_out = policy->reservations[at];
    unclaim_hosts(policy, held_out);
    policy->reservations[at] = policy->reservations[--policy->reservation_count];
    if (at < policy->reservation_count) policy->jobs[policy->reservations[at].job].held_at = at;
    policy->jobs[job].held_at = -1;
    return true;
}

/* Put it in. Returns 1, or -ENOMEM: its hosts are freed. */
static int put_in(struct ash_policy *policy, struct ash_policy_reservation held)
{
    if (ash_policy_reservation_room(policy) < 0 || claim_hosts(policy, &held) < 0) {
        free(held.hosts);
        return -ENOMEM;
    }
    ash_assert(policy->jobs[held.job].held_at < 0); /* one promise a job */
    policy->jobs[held.job].held_at = policy->reservation_count;
    policy->reservations[policy->reservation_count++] = held;
    policy->first_reserved_s = fmin(policy->first_reserved_s, held.start_s);
    return 1;
}

void ash_policy_break_promise(struct ash_policy *policy, int job)
{
    struct ash_policy_reservation held;

    if (take_out(policy, job, &held)) free(held.hosts);
}

/* Are all hosts that were promised free now, and over the run? */
static bool can_use(const struct walk *walk, const struct ash_policy_reservation *held)
{
    for (int i = 0; i < held->host_count; i++)
        if (walk->policy->states[held->hosts[i]].whole < held->units ||
            free_over(walk, held->hosts[i], walk->policy->now_s) < held->units)
            return false;
    return true;
}

/* Hosts for a start now: any, else those that were promised for now. Their number, 0 or -ENOMEM. */
static int fit_now(struct walk *walk, const struct ash_policy_reservation *old)
{
    struct ash_policy *policy = walk->policy;
    int found = ash_policy_fit(policy, policy->future, walk->job, true);

    if (found != 0 || old == NULL || old->start_s > policy->now_s || !can_use(walk, old)) return found;
    if (old->host_count == 1 && !ash_policy_host_fits(policy, old->hosts[0], walk->job)) return 0;
    memcpy(policy->picked, old->hosts, (size_t)old->host_count * sizeof(*old->hosts));
    return old->host_count;
}

/* Keep the hosts that were found for a start later on. Returns 1 or -ENOMEM. */
static int promise(struct walk *walk, int job, int count)
{
    struct ash_policy *policy = walk->policy;
    const struct ash_policy_job *asked = walk->job;
    struct ash_policy_reservation held = {.job = job,
                                          .start_s = walk->time_s,
                                          .end_s = walk->time_s + asked->limit_s,
                                          .host_count = count,
                                          .units = asked->gpus > 0 ? asked->gpus : 1};

    held.hosts = malloc((size_t)count * sizeof(*held.hosts));
    if (held.hosts == NULL) return -ENOMEM;
    memcpy(held.hosts, policy->picked, (size_t)count * sizeof(*held.hosts));
    policy->jobs[job].wait.start_s = walk->time_s;
    policy->jobs[job].wait.holder = walk->last_key;
    return put_in(policy, held);
}

/* The earliest start before a time, and its hosts in picked. Their number, 0 or -ENOMEM. */
static int find_later(struct walk *walk, double before_s)
{
    int found = 0;

    while (found == 0 && step(walk) && walk->time_s < before_s)
        found = ash_policy_fit(walk->policy, walk->policy->future, walk->job, false);
    if (found > 1) ash_policy_prefer_busy(walk->policy, walk->job, found);
    return found;
}

int ash_policy_fit_promised(struct ash_policy *policy, int job)
{
    struct walk walk = {.policy = policy, .job = &policy->jobs[job].job, .time_s = policy->now_s};
    struct ash_policy_reservation old;
    bool had = take_out(policy, job, &old);
    int rc = begin_walk(&walk), found;

    found = rc < 0 ? rc : fit_now(&walk, had ? &old : NULL);
    end_walk(&walk);
    if (!had) return found;
    if (found > 0) {
        free(old.hosts);
        return found;
    }
    rc = put_in(policy, old);
    return rc < 0 ? rc : found;
}

int ash_policy_promise(struct ash_policy *policy, int job)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    struct walk walk = {.policy = policy, .job = &entry->job, .time_s = policy->now_s, .last_key = UINT64_MAX};
    struct ash_policy_reservation old;
    bool had = take_out(policy, job, &old);
    bool is_due = had && old.start_s <= policy->now_s; /* processors, memory or a host too slow were in the way */
    int rc = begin_walk(&walk), found = 0;

    if (rc == 0) found = find_later(&walk, had && !is_due ? old.start_s : INFINITY);
    rc = rc < 0 ? rc : found < 0 ? found : found > 0 ? promise(&walk, job, found) : 0;
    end_walk(&walk);
    if (!had) return rc;
    if (rc != 0 || is_due) {
        free(old.hosts);
        return rc;
    }
    entry->wait.start_s = old.start_s;
    return put_in(policy, old);
}

void ash_policy_count_promises(struct ash_policy *policy)
{
    policy->first_reserved_s = INFINITY;
    for (int i = 0; i < policy->reservation_count; i++)
        policy->first_reserved_s = fmin(policy->first_reserved_s, policy->reservations[i].start_s);
}
