/* One host by a score: the policies of the openb experiment (fragmentation gradient descent and those it was compared
 * with, USENIX ATC'23) and our own packing of shares. Scores are whole numbers from 0 to 100 where the published ones
 * are; the first of equals is taken. */
#include "orchestrate/policy/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define SCORE_MAX 100
#define CPU_SPEC_MAX 128000.0 /* thousandths of processors and GPUs of the largest host, as published */
#define GPU_SPEC_MAX 8000.0
#define TYPICAL_SHARE 0.95 /* of requests, the most frequent first, that fragmentation is measured by */
#define KINDS_MAX 4096

/* Requests that ask for the same GPUs: how often, by processors. */
struct group {
    int gpus, milli;
    uint64_t models;
    int first, count; /* into cpu and share */
    double total;     /* share of all requests */
};

/* Scores of one kind of request on all hosts, valid where the host's version is that of then. */
struct memory {
    int64_t cpu_milli;
    int gpus, milli;
    double *score;
    uint32_t *version; /* plus 1; 0: never */
    int8_t *gpu;
};

struct ash_policy_score {
    uint64_t draws;
    struct group *groups;
    int group_count;
    int64_t *cpu;  /* ascending inside a group */
    double *share; /* of requests of the group that ask for at most that */
    double *fragments;
    uint32_t *version; /* of hosts, plus 1, that fragments holds for */
    struct memory *memories;
    int memory_count;
};

static struct ash_policy_score *score_of(struct ash_policy *policy)
{
    if (policy->score == NULL) policy->score = calloc(1, sizeof(*policy->score));
    return policy->score;
}

void ash_policy_score_close(struct ash_policy *policy)
{
    struct ash_policy_score *score = policy->score;

    if (score == NULL) return;
    for (int i = 0; i < score->memory_count; i++) {
        free(score->memories[i].score);
        free(score->memories[i].version);
        free(score->memories[i].gpu);
    }
    free(score->memories);
    free(score->groups);
    free(score->cpu);
    free(score->share);
    free(score->fragments);
    free(score->version);
    free(score);
    policy->score = NULL;
}

static bool is_share(const struct ash_policy_job *job)
{
    return job->gpus == 1 && job->gpu_milli < ASH_POLICY_GPU_MILLI;
}

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
        struct group *group = &score->groups[score->group_count - 1];

        if (i == 0 || !is_same_group(job, &typical[i - 1].job)) {
            group = &score->groups[score->group_count++];
            *group = (struct group){.gpus = job->gpus, .milli = job->gpu_milli, .models = job->models, .first = i};
        }
        group->count++;
        group->total += typical[i].count / total;
        score->cpu[i] = job->cpu_milli;
        score->share[i] = group->total;
    }
}

int ash_policy_set_typical(struct ash_policy *policy, struct ash_policy_typical *typical, int count)
{
    struct ash_policy_score *score = score_of(policy);
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

/* Share of a group's requests that ask for at most so many processors. */
static double share_below(const struct ash_policy_score *score, const struct group *group, int64_t cpu)
{
    int low = 0, high = group->count;

    while (low < high) {
        int middle = (low + high) / 2;

        if (score->cpu[group->first + middle] <= cpu)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? score->share[group->first + low - 1] : 0;
}

/* Thousandths of GPUs that the typical request cannot use of a host in that state: all of them where it does not fit,
 * else what is too small for it. */
static double fragments_of(const struct ash_policy_score *score, const struct ash_policy_host *spec,
                           const uint16_t *gpu_free, int64_t cpu_free)
{
    double total = 0, sum = 0;

    for (int i = 0; i < spec->gpus; i++)
        total += gpu_free[i];
    if (total == 0) return 0;
    for (int g = 0; g < score->group_count; g++) {
        const struct group *group = &score->groups[g];
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
    if (!is_share(job)) return now - fragments_after(policy, host, job, -1);
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

static struct memory *memory_of(struct ash_policy *policy, const struct ash_policy_job *job)
{
    struct ash_policy_score *score = policy->score;
    size_t hosts = (size_t)policy->host_count;
    struct memory *memory;

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
    *memory = (struct memory){.cpu_milli = job->cpu_milli,
                              .gpus = job->gpus,
                              .milli = job->gpu_milli,
                              .score = calloc(hosts, sizeof(double)),
                              .version = calloc(hosts, sizeof(uint32_t)),
                              .gpu = calloc(hosts, 1)};
    return memory->score != NULL && memory->version != NULL && memory->gpu != NULL ? memory : NULL;
}

/* The descent, remembered as long as the host does not change. */
static double remembered(struct ash_policy *policy, struct memory *memory, int host, const struct ash_policy_job *job,
                         int *gpu_out)
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

/* ---- the others -------------------------------------------------------------------------------------------------- */

static double milli_of(const struct ash_policy_job *job)
{
    return (double)job->gpus * job->gpu_milli;
}

static double score_dot_product(const struct ash_policy_host_state *state, const struct ash_policy_job *job)
{
    double cpu = (double)state->cpu_free / CPU_SPEC_MAX * (double)job->cpu_milli / CPU_SPEC_MAX;
    double gpu = state->gpu_milli_free / GPU_SPEC_MAX * milli_of(job) / GPU_SPEC_MAX;

    return floor(SCORE_MAX * (1 - (cpu + gpu) / 2));
}

/* 0 to 100: how little is left over of processors and GPUs. */
static double fit_of(const struct ash_policy_host_state *state, const struct ash_policy_job *job)
{
    double cpu = ((double)state->cpu_free - (double)job->cpu_milli) / CPU_SPEC_MAX;
    double gpu = (state->gpu_milli_free - milli_of(job)) / GPU_SPEC_MAX;

    return SCORE_MAX * (1 - (cpu + gpu) / 2);
}

/* Jobs on a host by what they ask for: how many kinds there are, and whether this one is among them. */
static double score_clustering(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    uint64_t kinds = 0, mine = is_share(job) ? 1 : 2u << job->gpus;
    int packed = SCORE_MAX / 4 * ((int)GPU_SPEC_MAX - state->gpu_milli_free) / (int)GPU_SPEC_MAX;

    if (job->gpus == 0) return 0;
    for (int i = 0; i < state->job_count; i++) {
        const struct ash_policy_job *other = &policy->jobs[state->jobs[i]].job;

        if (other->gpus > 0) kinds |= is_share(other) ? 1 : 2u << other->gpus;
    }
    if (kinds & mine) return packed + (kinds == mine ? SCORE_MAX * 3 / 4 : SCORE_MAX * 2 / 4);
    return packed + (kinds == 0 ? SCORE_MAX / 4 : 0);
}

/* Used GPUs first, then free GPUs of used hosts, then free hosts. */
static double score_gpu_packing(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    int gpus = policy->hosts[host].gpus, least = ASH_POLICY_GPU_MILLI + 1, score;

    if (job->gpus == 0) return 0;
    if (state->whole == gpus) {
        score = SCORE_MAX / 3 - gpus;
        return score > gpus ? score : gpus;
    }
    for (int i = 0; i < gpus && is_share(job); i++)
        if (state->gpu_free[i] >= job->gpu_milli && state->gpu_free[i] < least) least = state->gpu_free[i];
    if (least > ASH_POLICY_GPU_MILLI - 1) {
        score = SCORE_MAX / 2 - job->gpus;
        return score > SCORE_MAX / 3 ? score : SCORE_MAX / 3;
    }
    return SCORE_MAX - least * 100 / ASH_POLICY_GPU_MILLI / 10;
}

/* Our own, for shares, processors and memory: the least left over on the GPU, then the fewest whole GPUs. */
static double score_pack(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    int least = ASH_POLICY_GPU_MILLI;

    for (int i = 0; i < policy->hosts[host].gpus && is_share(job); i++)
        if (state->gpu_free[i] >= job->gpu_milli && state->gpu_free[i] < least) least = state->gpu_free[i];
    return -(double)least * (ASH_POLICY_HOST_GPUS_MAX + 1) - state->whole;
}

static double score_one(struct ash_policy *policy, struct memory *memory, int host, const struct ash_policy_job *job,
                        int *gpu_out)
{
    const struct ash_policy_host_state *state = &policy->states[host];

    *gpu_out = -1;
    switch (policy->conf->placement) {
    case ASH_POLICY_PLACE_RANDOM:
        return 0;
    case ASH_POLICY_PLACE_DOT_PRODUCT:
        return score_dot_product(state, job);
    case ASH_POLICY_PLACE_CLUSTERING:
        return score_clustering(policy, host, job);
    case ASH_POLICY_PLACE_GPU_PACKING:
        return score_gpu_packing(policy, host, job);
    case ASH_POLICY_PLACE_BEST_FIT:
        return floor(fit_of(state, job));
    case ASH_POLICY_PLACE_FGD:
        return floor(SCORE_MAX / (1 + exp(-remembered(policy, memory, host, job, gpu_out) / 1000)));
    case ASH_POLICY_PLACE_FGD_FIT:
        return remembered(policy, memory, host, job, gpu_out);
    case ASH_POLICY_PLACE_PACK:
        break;
    }
    return score_pack(policy, host, job);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static bool is_open(const struct ash_policy *policy, const struct ash_room *room, int host,
                    const struct ash_policy_job *job)
{
    int units = ash_room_units(room, policy->hosts[host].node), present = policy->states[host].whole;

    if (!ash_policy_host_fits(policy, host, job)) return false;
    if (units >= present) return true; /* no reservation is in the way */
    return units >= (job->gpus > 0 ? job->gpus : 1);
}

/* Any GPU that fits, each as likely. */
static int draw_gpu(struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    struct ash_policy_score *score = policy->score;
    int chosen = -1, seen = 0;

    for (int i = 0; i < policy->hosts[host].gpus && is_share(job); i++) {
        if (policy->states[host].gpu_free[i] < job->gpu_milli) continue;
        if (ash_rng_below(policy->conf->seed, 1, score->draws++, (uint64_t)++seen) == 0) chosen = i;
    }
    return chosen;
}

int ash_policy_score_host(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                          int *gpu_out)
{
    struct ash_policy_score *score = score_of(policy);
    bool is_fgd =
        policy->conf->placement == ASH_POLICY_PLACE_FGD || policy->conf->placement == ASH_POLICY_PLACE_FGD_FIT;
    bool is_drawn = policy->conf->placement == ASH_POLICY_PLACE_RANDOM;
    struct memory *memory;
    double best_score = -INFINITY;
    int best = -1, ties = 0;

    *gpu_out = -1;
    if (score == NULL || (is_fgd && score->groups == NULL && ash_policy_set_typical(policy, NULL, 0) < 0)) return -1;
    memory = is_fgd ? memory_of(policy, job) : NULL;
    for (int host = 0; host < policy->host_count; host++) {
        double value;
        int gpu;

        if (!is_open(policy, room, host, job)) continue;
        value = score_one(policy, memory, host, job, &gpu);
        if (value < best_score || (value == best_score && !is_drawn)) continue; /* the first of equals */
        ties = value > best_score ? 1 : ties + 1;
        best_score = value;
        if (ties > 1 && ash_rng_below(policy->conf->seed, 0, score->draws++, (uint64_t)ties) != 0) continue;
        best = host;
        *gpu_out = gpu;
    }
    if (best >= 0 && policy->conf->placement == ASH_POLICY_PLACE_RANDOM) *gpu_out = draw_gpu(policy, best, job);
    return best;
}
