/* One host by a score: the policies of the openb experiment (fragmentation gradient descent and those it was compared
 * with, USENIX ATC'23) and our own packing of shares. Scores are whole numbers from 0 to 100 where the published ones
 * are; the first of equals is taken. */
#include "queue/policy/score_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define SCORE_MAX 100
#define FIT_LEVELS 50         /* of fragmentation that are distinguished before fullness counts */
#define CPU_SPEC_MAX 128000.0 /* thousandths of processors and GPUs of the largest host, as published */
#define GPU_SPEC_MAX 8000.0

struct ash_policy_score *ash_policy_score_get(struct ash_policy *policy)
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

bool ash_policy_is_share(const struct ash_policy_job *job)
{
    return job->gpus == 1 && job->gpu_milli < ASH_POLICY_GPU_MILLI;
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

/* Kinds of requests of a host's jobs: their count, and whether this one is among them. */
static double score_clustering(const struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    const struct ash_policy_host_state *state = &policy->states[host];
    uint64_t kinds = 0, mine = ash_policy_is_share(job) ? 1 : 2u << job->gpus;
    int packed = SCORE_MAX / 4 * ((int)GPU_SPEC_MAX - state->gpu_milli_free) / (int)GPU_SPEC_MAX;

    if (job->gpus == 0) return 0;
    for (int i = 0; i < state->job_count; i++) {
        const struct ash_policy_job *other = &policy->jobs[state->jobs[i].job].job;

        if (other->gpus > 0) kinds |= ash_policy_is_share(other) ? 1 : 2u << other->gpus;
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
    for (int i = 0; i < gpus && ash_policy_is_share(job); i++)
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

    for (int i = 0; i < policy->hosts[host].gpus && ash_policy_is_share(job); i++)
        if (state->gpu_free[i] >= job->gpu_milli && state->gpu_free[i] < least) least = state->gpu_free[i];
    return -(double)least * (ASH_POLICY_HOST_GPUS_MAX + 1) - state->whole;
}

/* Below 1: hosts with few whole GPUs first, then those with little free. */
static double fullness(const struct ash_policy_host_state *state)
{
    return 0.8 * (1 - state->whole / (ASH_POLICY_HOST_GPUS_MAX + 1.0)) +
           0.1 * (1 - state->gpu_milli_free / (ASH_POLICY_HOST_GPUS_MAX * ASH_POLICY_GPU_MILLI + 1.0));
}

static double score_one(struct ash_policy *policy, struct ash_policy_score_memory *memory, int host,
                        const struct ash_policy_job *job, int *gpu_out)
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
        return floor(SCORE_MAX / (1 + exp(-ash_policy_descent(policy, memory, host, job, gpu_out) / 1000)));
    case ASH_POLICY_PLACE_FGD_FIT:
        return floor(FIT_LEVELS / (1 + exp(-ash_policy_descent(policy, memory, host, job, gpu_out) / 1000))) +
               fullness(state);
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
    /* a GPU that is shared now may be counted on later: a share of it must not outlast that */
    bool is_held = (room == policy->held && policy->mask[host] != ASH_ROOM_UNITS_MAX) ||
                   (room == policy->future && policy->states[host].claim_count > 0);

    if (!ash_policy_host_fits(policy, host, job)) return false;
    if (units >= present && !is_held) return true; /* no reservation is in the way */
    return units >= (job->gpus > 0 ? job->gpus : 1);
}

/* Any GPU that fits, each as likely. */
static int draw_gpu(struct ash_policy *policy, int host, const struct ash_policy_job *job)
{
    struct ash_policy_score *score = policy->score;
    int chosen = -1, seen = 0;

    for (int i = 0; i < policy->hosts[host].gpus && ash_policy_is_share(job); i++) {
        if (policy->states[host].gpu_free[i] < job->gpu_milli) continue;
        if (ash_rng_below(policy->conf->seed, 1, score->draws++, (uint64_t)++seen) == 0) chosen = i;
    }
    return chosen;
}

/* Is the last of that many equals drawn? */
static bool is_chosen(struct ash_policy *policy, int ties)
{
    return ties == 1 || ash_rng_below(policy->conf->seed, 0, policy->score->draws++, (uint64_t)ties) == 0;
}

static bool uses_fragments(const struct ash_policy *policy)
{
    return policy->conf->placement == ASH_POLICY_PLACE_FGD || policy->conf->placement == ASH_POLICY_PLACE_FGD_FIT;
}

int ash_policy_score_host(struct ash_policy *policy, const struct ash_room *room, const struct ash_policy_job *job,
                          int *gpu_out)
{
    struct ash_policy_score *score = ash_policy_score_get(policy);
    bool is_drawn = policy->conf->placement == ASH_POLICY_PLACE_RANDOM;
    struct ash_policy_score_memory *memory = NULL;
    double best_score = -INFINITY;
    int best = -1, ties = 0;

    *gpu_out = -1;
    if (score == NULL) return -1;
    if (uses_fragments(policy) && score->groups == NULL && ash_policy_set_typical(policy, NULL, 0) < 0) return -1;
    if (uses_fragments(policy)) memory = ash_policy_score_memory_of(policy, job);
    for (int host = 0; host < policy->host_count; host++) {
        double value;
        int gpu;

        if (!is_open(policy, room, host, job)) continue;
        value = score_one(policy, memory, host, job, &gpu);
        if (value < best_score || (value == best_score && !is_drawn)) continue; /* the first of equals */
        ties = value > best_score ? 1 : ties + 1;
        best_score = value;
        if (!is_chosen(policy, ties)) continue;
        best = host;
        *gpu_out = gpu;
    }
    if (best >= 0 && is_drawn) *gpu_out = draw_gpu(policy, best, job);
    return best;
}
