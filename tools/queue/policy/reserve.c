/* The reservation of EASY backfill: the hosts and the start of the first job that does not fit. Running jobs end at
 * their time limits at the latest; walking over these ends in order, the first time at which the job fits is its start,
 * with named hosts. Jobs that outlast that time may use only the unreserved part of those hosts (mask); others may use
 * all. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* The walk: time goes forward over ends of running jobs. */
struct walk {
    struct ash_policy *policy;
    int *heap, heap_count; /* a copy, which is used up */
    double time_s;
    uint64_t last_key; /* of the job whose end made the last step */
};

/* ---- the copy of the heap ---------------------------------------------------------------------------------------- */

static double end_of(const struct walk *walk, int job)
{
    return fmax(walk->policy->jobs[job].end_s, walk->policy->now_s);
}

static int pop_end(struct walk *walk)
{
    const struct ash_policy_entry *jobs = walk->policy->jobs;
    int first = walk->heap[0], last = walk->heap[--walk->heap_count], at = 0;

    for (;;) {
        int child = 2 * at + 1;

        if (child + 1 < walk->heap_count && jobs[walk->heap[child + 1]].end_s < jobs[walk->heap[child]].end_s) child++;
        if (child >= walk->heap_count || jobs[walk->heap[child]].end_s >= jobs[last].end_s) break;
        walk->heap[at] = walk->heap[child];
        at = child;
    }
    walk->heap[at] = last;
    return first;
}

/* ---- units ahead ------------------------------------------------------------------------------------------------- */

static void set_future(struct ash_policy *policy, int host, int units)
{
    int most = policy->hosts[host].gpus;

    policy->future_units[host] = units;
    ash_room_set(policy->future, policy->hosts[host].node, units < 0 ? 0 : units > most ? most : units);
}

static bool is_usable(const struct ash_policy *policy, int host)
{
    return policy->states[host].is_up && !policy->states[host].is_drained;
}

/* GPUs of a host that a job has whole, and gives back whole. */
static int units_of(const struct ash_policy_entry *entry, const struct ash_policy_grant *grant)
{
    return entry->job.gpu_milli == ASH_POLICY_GPU_MILLI ? __builtin_popcount(grant->gpus) : 0;
}

static void end_job(struct walk *walk, int job)
{
    struct ash_policy *policy = walk->policy;
    const struct ash_policy_entry *entry = &policy->jobs[job];

    for (int i = 0; i < entry->grant_count; i++) {
        int host = entry->grants[i].host;

        if (is_usable(policy, host))
            set_future(policy, host, policy->future_units[host] + units_of(entry, &entry->grants[i]));
    }
    walk->last_key = entry->job.key;
}

/* Restore the present state of changed hosts. */
static void restore(struct ash_policy *policy, const int *ended, int ended_count)
{
    for (int i = 0; i < ended_count; i++)
        for (int k = 0; k < policy->jobs[ended[i]].grant_count; k++)
            ash_policy_host_refresh(policy, policy->jobs[ended[i]].grants[k].host);
}

/* Walk on to the next time at which something changes. False: nothing will. */
static bool step(struct walk *walk, int *ended, int *ended_count)
{
    double time_s;

    if (walk->heap_count == 0) return false;
    time_s = end_of(walk, walk->heap[0]);
    while (walk->heap_count > 0 && end_of(walk, walk->heap[0]) <= time_s) {
        int job = pop_end(walk);

        end_job(walk, job);
        ended[(*ended_count)++] = job;
    }
    walk->time_s = time_s;
    return true;
}

/* ---- keeping it -------------------------------------------------------------------------------------------------- */

/* Prefer busy hosts: those free now stay free for others until then. */
void ash_policy_prefer_busy(struct ash_policy *policy, const struct ash_policy_job *job, int count)
{
    int found = 0;

    if (job->required > 0 || job->group > 0) return;
    for (int turn = 0; turn < 2; turn++) {
        for (int host = 0; host < policy->host_count && found < count; host++) {
            int node = policy->hosts[host].node;
            bool is_busy = ash_room_units(policy->room, node) < job->gpus;

            if (is_busy == (turn == 0) && ash_room_units(policy->future, node) >= job->gpus)
                policy->picked[found++] = host;
        }
    }
}

int ash_policy_reservation_room(struct ash_policy *policy)
{
    int capacity = policy->reservation_capacity == 0 ? 8 : 2 * policy->reservation_capacity;
    struct ash_policy_reservation *more;

    if (policy->reservation_count < policy->reservation_capacity) return 0;
    more = realloc(policy->reservations, (size_t)capacity * sizeof(*policy->reservations));
    if (more == NULL) return -ENOMEM;
    policy->reservations = more;
    policy->reservation_capacity = capacity;
    return 0;
}

static int keep(struct ash_policy *policy, int job, int count, double start_s)
{
    const struct ash_policy_entry *entry = &policy->jobs[job];
    int units = entry->job.gpus > 0 ? entry->job.gpus : 1, *hosts;

    if (ash_policy_reservation_room(policy) < 0) return -ENOMEM;
    hosts = malloc((size_t)count * sizeof(*hosts));
    if (hosts == NULL) return -ENOMEM;
    ash_assert(count > 0 && count <= policy->host_count);
    memcpy(hosts, policy->picked, (size_t)count * sizeof(*hosts));
    policy->reservations[policy->reservation_count++] =
        (struct ash_policy_reservation){.job = job,
                                        .start_s = start_s,
                                        .end_s = start_s + entry->job.limit_s,
                                        .hosts = hosts,
                                        .host_count = count,
                                        .units = units};
    policy->reserved_at_s = policy->now_s;
    policy->first_reserved_s = fmin(policy->first_reserved_s, start_s);
    for (int i = 0; i < count; i++) { /* what those that outlast start_s may have */
        int spare = policy->future_units[hosts[i]] - units;

        policy->mask[hosts[i]] = spare > 0 ? spare : 0;
        ash_policy_host_refresh(policy, hosts[i]);
    }
    return 1;
}

int ash_policy_reserve(struct ash_policy *policy, int job)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    struct walk walk = {.policy = policy,
                        .heap = policy->scratch,
                        .time_s = policy->now_s,
                        .heap_count = policy->heap_count,
                        .last_key = UINT64_MAX};
    int *ended = policy->scratch + policy->heap_count, ended_count = 0, found = 0, count;

    memcpy(walk.heap, policy->heap, (size_t)policy->heap_count * sizeof(*walk.heap));
    while (found == 0 && step(&walk, ended, &ended_count))
        found = ash_policy_fit(policy, policy->future, &entry->job, false);
    count = found;
    if (found > 1) ash_policy_prefer_busy(policy, &entry->job, count);
    if (found > 0) found = keep(policy, job, count, walk.time_s);
    restore(policy, ended, ended_count);
    if (found > 0) {
        entry->wait.start_s = walk.time_s;
        entry->wait.holder = walk.last_key;
    }
    return found;
}

void ash_policy_release_reservations(struct ash_policy *policy)
{
    for (int i = 0; i < policy->reservation_count; i++) {
        const struct ash_policy_reservation *held = &policy->reservations[i];

        for (int k = 0; k < held->host_count; k++) {
            policy->mask[held->hosts[k]] = ASH_ROOM_UNITS_MAX;
            policy->states[held->hosts[k]].claim_count = 0;
            ash_policy_host_refresh(policy, held->hosts[k]);
        }
        policy->jobs[held->job].held_at = -1;
        free(held->hosts);
    }
    policy->reservation_count = 0;
    policy->first_reserved_s = INFINITY;
}
