/* Fragmentation gradient descent (USENIX ATC'23): what typical requests cannot use of a host, and how much a job would
 * lessen that. */
#include "queue/policy/score_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define TYPICAL_SHARE 0.95 /* of requests, the most frequent first, that fragmentation is measured by */
#define KINDS_MAX 4096

/* ---- the typical requests ---------------------------------------------------------------------------------------- */

static int by_count(const void *a, const void *b)
{
    const struct ash_policy_typical *x = a, *y = b;

    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return memcmp(&x->job.cpu_milli, &y->job.cpu_milli, sizeof(x->job.cpu_milli));
}

static int by_group(const void *a, const void *b)
{
    const struct ash_policy_job *x = &((const struct ash_policy_typical *)a)->job;
    const struct ash_policy_job *y = &((const struct ash_policy_typical *)b)->job;

    if (x->gpus != y->gpus) return x->gpus - y->gpus;
    if (x->gpu_milli != y->gpu_milli) return x->gpu_milli - y->gpu_milli;
    if (x->models != y->models) return x->models < y->models ? -1 : 1;
    return x->cpu_milli < y->cpu_milli ? -1 : x->cpu_milli > y->cpu_milli;
}

static bool is_same_group(const struct ash_policy_job *x, const struct ash_policy_job *y)
{
    return x->gpus == y->gpus && x->gpu_milli == y->gpu_milli && x->models == y->models;
}

/* Groups of sorted requests whose counts add up to total. */
static void fill_groups(struct ash_policy_score *score, const struct ash_policy_typical *typical, int count,
                        double total)
{
    for (int i = 0; i < count; i++) {
        const struct ash_policy_job *job = &typical[i].job;
        struct ash_policy_score_group *group = &score->groups[score->group_count - 1];

        if (i == 0 || !is_same_group(job, &typical[i - 1].job)) {
            group = &score->groups[score->group_count++];
            *group = (struct ash_policy_score_group){
                .gpus = job->gpus, .milli = job->gpu_milli, .models = job->models, .first = i};
        }
        group->count++;
        group->total += typical[i].count / total;
        score->cpu[i] = job->cpu_milli;
        score->share[i] = group->total;
    }
}

int ash_policy_set_typical(struct ash_policy *policy, struct ash_policy_typical *typical, int count)
{
    struct ash_policy_score *score = ash_policy_score_get(policy);
    double total = 0, kept = 0;
    int used = 0;

    if (score == NULL) return -ENOMEM;
    if (count > KINDS_MAX) count = KINDS_MAX;
    if (count > 0) qsort(typical, (size_t)count, sizeof(*typical), by_count);
    for (int i = 0; i < count; i++)
        total += typical[i].count;
    while (used < count && kept < TYPICAL_SHARE * total)
        kept += typical[used++].count;
    if (used > 0) qsort(typical, (size_t)used, sizeof(*typical), by_group);
    score->groups = calloc((size_t)used + 1, sizeof(*score->groups));
    score->cpu = calloc((size_t)used + 1, sizeof(*score->cpu));
    score->share = calloc((size_t)used + 1, sizeof(*score->share));
    score->fragments = calloc((size_t)policy->host_count, sizeof(*score->fragments));
    score->version = calloc((size_t)policy->host_count, sizeof(*score->version));
    if (score->groups == NULL || score->cpu == NULL || score->share == NULL || score->fragments == NULL ||
        score->version == NULL)
        return -ENOMEM;
    fill_groups(score, typical, used, kept);
    return 0;
}

/* ---- fragmentation ----------------------------------------------------------------------------------------------- */

/* Share of a group's requests for at most that many processors. */
static double share_below(const struct ash_policy_score *score, const struct ash_policy_score_group *group, int64_t cpu)
{
    int low = 0, high = group->count;

    while (low < high) {
        int middle = (low + high) / 2;

        if (score->cpu[group->first + middle] <= cpu)
            low = middle + 1;
        else
            high = middle;
    }
    ash_assert(low <= group->count);
    return low > 0 ? score->share[group->first + low - 1] : 0;
}

/* Thousandths of GPUs that the typical request cannot use of a host in that state: all of them if it does not fit, else
 * the parts that are too small for it. */
static double fragments_of(const struct ash_policy_score *score, const struct ash_policy_host *spec,
                           const uint16_t *gpu_free, int64_t cpu_free)
{
    double total = 0, sum = 0;

    for (int i = 0; i < spec->gpus; i++)
        total += gpu_free[i];
    if (total == 0) return 0;
    for (int g = 0; g < score->group_count; g++) {
        const struct ash_policy_score_group *group = &score->groups[g];
        int fits = 0;
        double small = 0, served;

        for (int i = 0; i < spec->gpus; i++) {
            fits += gpu_free[i] >= group->milli;
            if (gpu_free[i] < group->milli) small += gpu_free[i];
        }
        served = group->gpus > 0 && fits >= group->gpus && (group->models == 0 || group->models >> spec->model & 1)
                     ? share_below(score, group, cpu_free)
                     : 0;
        sum += served * small + (group->total - served) * total;
    }
    return sum;
}

/* The same after job has taken its GPUs, the least full that fit first; or the one that is given. */
static double fragments_after(const struct ash_policy *policy, int host, const struct ash_policy_job *job, int gpu)
{
    const struct ash_policy_host *spec = &policy->hosts[host];
    const struct ash_policy_host_state *state = &policy->states[host];
    uint16_t gpu_free[ASH_POLICY_HOST_GPUS_MAX];

    memcpy(gpu_free, state->gpu_free, sizeof(gpu_free));
    if (gpu >= 0) {
        gpu_free[gpu] = (uint16_t)(gpu_free[gpu] - job->gpu_milli);
    } else {
        for (int i = 0, left = job->gpus; i < spec->gpus && left > 0; i++) {
            if (gpu_free[i] < ASH_POLICY_GPU_MILLI) continue;
            gpu_free[i] = 0;
            left--;
        }
    }
    return fragments_of(policy->score, spec, gpu_free, state->cpu_free - job->cpu_milli);
}

static double fragments_now(struct ash_policy *policy, int host)
{
    struct ash_policy_score *score = policy->score;
    const struct ash_policy_host_state *state = &policy->states[host];

    if (score->version[host] != state->version + 1) {
        score->fragments[host] = fragments_of(score, &policy->hosts[host], state->gpu_free, state->cpu_free);
        score->version[host] = state->version + 1;
    }
    return score->fragments[host];
}

/* How much the job would lessen fragments on a host, at best, and on which GPU. */
static double descent(struct ash_policy *policy, int host, const struct ash_policy_job *job, int *gpu_out)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    double now = fragments_now(policy, host), best = -INFINITY;

    *gpu_out = -1;
    if (!ash_policy_is_share(job)) return now - fragments_after(policy, host, job, -1);
    for (int gpu = 0; gpu < policy->hosts[host].gpus; gpu++) {
        double gain;
        bool is_seen = false;

        for (int i = 0; i < gpu && !is_seen; i++)
            is_seen = state->gpu_free[i] == state->gpu_free[gpu];
        if (is_seen || state->gpu_free[gpu] < job->gpu_milli) continue;
        gain = now - fragments_after(policy, host, job, gpu);
        if (gain <= best) continue;
        best = gain;
        *gpu_out = gpu;
    }
    return best;
}

struct ash_policy_score_memory *ash_policy_score_memory_of(struct ash_policy *policy, const struct ash_policy_job *job)
{
    struct ash_policy_score *score = policy->score;
    size_t hosts = (size_t)policy->host_count;
    struct ash_policy_score_memory *memory;

    for (int i = 0; i < score->memory_count; i++) {
        memory = &score->memories[i];
        if (memory->cpu_milli == job->cpu_milli && memory->gpus == job->gpus && memory->milli == job->gpu_milli)
            return memory;
    }
    if (score->memory_count >= KINDS_MAX) return NULL;
    memory = realloc(score->memories, ((size_t)score->memory_count + 1) * sizeof(*memory));
    if (memory == NULL) return NULL;
    score->memories = memory;
    memory += score->memory_count++;
    *memory = (struct ash_policy_score_memory){.cpu_milli = job->cpu_milli,
                                               .gpus = job->gpus,
                                               .milli = job->gpu_milli,
                                               .score = calloc(hosts, sizeof(double)),
                                               .version = calloc(hosts, sizeof(uint32_t)),
                                               .gpu = calloc(hosts, 1)};
    return memory->score != NULL && memory->version != NULL && memory->gpu != NULL ? memory : NULL;
}

double ash_policy_descent(struct ash_policy *policy, struct ash_policy_score_memory *memory, int host,
                          const struct ash_policy_job *job, int *gpu_out)
{
    uint32_t version = policy->states[host].version + 1;

    if (memory == NULL) return descent(policy, host, job, gpu_out);
    if (memory->version[host] != version) {
        memory->score[host] = descent(policy, host, job, gpu_out);
        memory->version[host] = version;
        memory->gpu[host] = (int8_t)*gpu_out;
    }
    *gpu_out = memory->gpu[host];
    return memory->score[host];
}
