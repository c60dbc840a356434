/* Hosts: free capacity of each, GPU by GPU, and the rooms that count it per domain. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- building ---------------------------------------------------------------------------------------------------- */

static int check_hosts(struct ash_policy *policy, struct ash_err *err)
{
    policy->units_max = 1;
    for (int i = 0; i < policy->host_count; i++) {
        const struct ash_policy_host *host = &policy->hosts[i];

        if (host->gpus < 0 || host->gpus > ASH_POLICY_HOST_GPUS_MAX)
            return ash_err_set(err, -EINVAL, "a host has 0 to %d GPUs, not %d", ASH_POLICY_HOST_GPUS_MAX, host->gpus);
        if (host->node < 0 || host->node >= policy->topology->count || !policy->topology->nodes[host->node].is_host ||
            policy->host_of_node[host->node] >= 0)
            return ash_err_set(err, -EINVAL, "host %d is not in the topology, or is there twice", i);
        policy->host_of_node[host->node] = i;
        if (host->gpus > policy->units_max) policy->units_max = host->gpus;
    }
    return 0;
}

static void fill_host(struct ash_policy *policy, int index)
{
    const struct ash_policy_host *host = &policy->hosts[index];
    struct ash_policy_host_state *state = &policy->states[index];

    ash_assert(host->gpus <= ASH_POLICY_HOST_GPUS_MAX);
    state->cpu_free = host->cpu_milli;
    state->memory_free = host->memory_mib;
    state->whole = host->gpus;
    state->gpu_milli_free = host->gpus * ASH_POLICY_GPU_MILLI;
    state->is_up = true;
    for (int gpu = 0; gpu < host->gpus; gpu++)
        state->gpu_free[gpu] = ASH_POLICY_GPU_MILLI;
    policy->mask[index] = ASH_ROOM_UNITS_MAX;
    policy->gpu_milli_total += state->gpu_milli_free;
    ash_room_set(policy->whole, host->node, host->gpus);
    ash_policy_host_refresh(policy, index);
}

int ash_policy_cluster_open(struct ash_policy *policy, struct ash_err *err)
{
    size_t hosts = (size_t)policy->host_count, nodes = (size_t)policy->topology->count;
    int rc;

    policy->host_of_node = malloc(nodes * sizeof(int));
    policy->states = calloc(hosts, sizeof(*policy->states));
    policy->mask = calloc(hosts, sizeof(int));
    policy->future_units = calloc(hosts, sizeof(int));
    policy->picked = calloc(hosts, sizeof(int));
    if (policy->host_of_node == NULL || policy->states == NULL || policy->mask == NULL ||
        policy->future_units == NULL || policy->picked == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory");
    memset(policy->host_of_node, -1, nodes * sizeof(int));
    rc = check_hosts(policy, err);
    if (rc < 0) return rc;
    rc = ash_room_open(policy->topology, policy->units_max, &policy->room);
    if (rc == 0) rc = ash_room_open(policy->topology, policy->units_max, &policy->held);
    if (rc == 0) rc = ash_room_open(policy->topology, policy->units_max, &policy->future);
    if (rc == 0) rc = ash_room_open(policy->topology, policy->units_max, &policy->whole);
    if (rc < 0) return ash_err_set(err, rc, "out of memory");
    for (int i = 0; i < policy->host_count; i++)
        fill_host(policy, i);
    return 0;
}

void ash_policy_cluster_close(struct ash_policy *policy)
{
    for (int i = 0; i < policy->host_count && policy->states != NULL; i++) {
        free(policy->states[i].jobs);
        free(policy->states[i].claims);
    }
    free(policy->host_of_node);
    free(policy->states);
    free(policy->mask);
    free(policy->future_units);
    free(policy->picked);
    ash_room_close(policy->room);
    ash_room_close(policy->held);
    ash_room_close(policy->future);
    ash_room_close(policy->whole);
}

void ash_policy_host_refresh(struct ash_policy *policy, int host)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    int units = state->is_up && !state->is_drained ? state->whole : 0, node = policy->hosts[host].node;
    int held = units < policy->mask[host] ? units : policy->mask[host];

    ash_assert(state->whole >= 0 && state->whole <= policy->hosts[host].gpus);
    policy->future_units[host] = units;
    ash_room_set(policy->room, node, units);
    ash_room_set(policy->held, node, held > 0 ? held : 0);
    ash_room_set(policy->future, node, units);
}

/* ---- taking and giving back -------------------------------------------------------------------------------------- */

static int remember(struct ash_policy_host_state *state, int job)
{
    if (state->job_count == state->job_capacity) {
        int capacity = state->job_capacity == 0 ? 4 : 2 * state->job_capacity;
        struct ash_policy_tenant *jobs = realloc(state->jobs, (size_t)capacity * sizeof(*jobs));

        if (jobs == NULL) return -ENOMEM;
        state->jobs = jobs;
        state->job_capacity = capacity;
    }
    state->jobs[state->job_count++] = (struct ash_policy_tenant){.job = job};
    return 0;
}

static void forget(struct ash_policy_host_state *state, int job)
{
    for (int i = 0; i < state->job_count; i++) {
        if (state->jobs[i].job != job) continue;
        state->jobs[i] = state->jobs[--state->job_count];
        return;
    }
}

/* The GPU with the least free that is still enough. */
static int tightest_gpu(const struct ash_policy_host_state *state, int gpus, int milli)
{
    int best = -1;

    for (int i = 0; i < gpus; i++)
        if (state->gpu_free[i] >= milli && (best < 0 || state->gpu_free[i] < state->gpu_free[best])) best = i;
    return best;
}

/* Bits of the GPUs that job gets of a host, which has them. */
static uint32_t choose_gpus(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    int gpu = policy->picked_gpu;
    uint32_t bits = 0;

    if (job->gpu_milli < ASH_POLICY_GPU_MILLI && job->gpus == 1) {
        if (gpu < 0) gpu = tightest_gpu(state, policy->hosts[host].gpus, job->gpu_milli);
        ash_assert(gpu >= 0);
        return 1u << gpu;
    }
    for (int i = 0, left = job->gpus; left > 0; i++) {
        ash_assert(i < policy->hosts[host].gpus);
        if (state->gpu_free[i] < ASH_POLICY_GPU_MILLI) continue;
        bits |= 1u << i;
        left--;
    }
    return bits;
}

/* Add sign times what job has of a host. */
static void change_host(struct ash_policy *policy, int host, const struct ash_policy_job *job, uint32_t bits, int sign)
{
    struct ash_policy_host_state *state = &policy->states[host];
    int milli = job->gpu_milli;

    state->cpu_free += sign * job->cpu_milli;
    state->memory_free += sign * job->memory_mib;
    state->version++;
    for (; bits != 0; bits &= bits - 1) {
        int gpu = __builtin_ctz(bits);

        state->whole -= state->gpu_free[gpu] == ASH_POLICY_GPU_MILLI;
        state->gpu_free[gpu] = (uint16_t)(state->gpu_free[gpu] + sign * milli);
        state->whole += state->gpu_free[gpu] == ASH_POLICY_GPU_MILLI;
        state->gpu_milli_free += sign * milli;
        policy->gpu_milli_used -= sign * milli;
        ash_assert(state->gpu_free[gpu] <= ASH_POLICY_GPU_MILLI);
    }
    ash_assert(policy->gpu_milli_used >= 0 && state->gpu_milli_free >= 0);
    ash_policy_host_refresh(policy, host);
}

int ash_policy_take(struct ash_policy *policy, int job, int count)
{
    const int *picked = policy->picked;
    struct ash_policy_entry *entry = &policy->jobs[job];
    struct ash_policy_grant *grants = malloc((size_t)count * sizeof(*grants));

    ash_assert(entry->grants == NULL && count > 0); /* a job has its hosts once */
    if (grants == NULL) return -ENOMEM;
    for (int i = 0; i < count; i++) {
        if (remember(&policy->states[picked[i]], job) == 0) continue;
        while (i-- > 0)
            forget(&policy->states[picked[i]], job);
        free(grants);
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        struct ash_policy_host_state *state = &policy->states[picked[i]];

        grants[i] = (struct ash_policy_grant){picked[i], choose_gpus(policy, picked[i], &entry->job)};
        state->jobs[state->job_count - 1].gpus = grants[i].gpus;
        change_host(policy, picked[i], &entry->job, grants[i].gpus, -1);
    }
    entry->grants = grants;
    entry->grant_count = count;
    return 0;
}

void ash_policy_drop_grant(struct ash_policy *policy, int job, int index)
{
    struct ash_policy_entry *entry = &policy->jobs[job];
    struct ash_policy_grant grant = entry->grants[index];

    forget(&policy->states[grant.host], job);
    change_host(policy, grant.host, &entry->job, grant.gpus, 1);
    memmove(entry->grants + index, entry->grants + index + 1,
            (size_t)(entry->grant_count - index - 1) * sizeof(*entry->grants));
    entry->grant_count--;
}

void ash_policy_give_back(struct ash_policy *policy, int job, int from)
{
    struct ash_policy_entry *entry = &policy->jobs[job];

    ash_assert(from >= 0 && from <= entry->grant_count);
    while (entry->grant_count > from)
        ash_policy_drop_grant(policy, job, entry->grant_count - 1);
    if (from > 0) return;
    free(entry->grants);
    entry->grants = NULL;
}

bool ash_policy_host_fits(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host *spec = &policy->hosts[host];
    const struct ash_policy_host_state *state = &policy->states[host];

    if (!state->is_up || state->is_drained) return false;
    if (job->cpu_milli > state->cpu_free || job->memory_mib > state->memory_free) return false;
    if (job->models != 0 && (job->gpus > 0) && (job->models >> spec->model & 1) == 0) return false;
    if (job->gpus == 1 && job->gpu_milli < ASH_POLICY_GPU_MILLI)
        return tightest_gpu(state, spec->gpus, job->gpu_milli) >= 0;
    return state->whole >= job->gpus;
}
