/* The search is plain enumeration (search_space.c): some ten thousand layouts are sensible, and a prediction takes
 * microseconds. Here the best ones are simulated, and what would be possible is said where nothing is. */
#include "plan/train/search_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MIN 12   /* where only the best one is wanted */
#define CANDIDATES_EACH 9   /* more for every further one */
#define BELOW_HINT 0.999999 /* of the speed of a hint, which shall be found again */
#define GROWTHS 16          /* larger clusters that are tried for the message: machine by machine, then doubled */
#define GROWN_MAX 131072.0  /* GPUs of the largest */
#define BATCH_REACH 2048    /* sequences more or fewer that are tried for the message */

/* Are layouts of another job possible, and does any fit? */
static struct ash_search_result count_layouts(const struct ash_search_state *state, const struct ash_plan_job *job)
{
    struct ash_search_state other = {.consts = state->consts, .job = job, .search = state->search, .only_count = true};

    other.result.least_bytes = INFINITY;
    ash_search_enumerate(&other);
    return other.result;
}

/* The fewest machines, as far as a few tries tell, that hold the job; 0: none did. */
static int machines_needed(const struct ash_search_state *state, double capacity)
{
    struct ash_plan_job job = *state->job;
    const struct ash_machine *machine = &job.cluster.machine;
    double guess = ceil(job.cluster.gpus * state->result.least_bytes / capacity / machine->gpus);
    int machines = guess > job.cluster.machines ? (int)fmin(guess, GROWN_MAX) : job.cluster.machines + 1;

    for (int i = 0; i < GROWTHS && machines * machine->gpus <= GROWN_MAX; i++) {
        job.cluster.machines = machines;
        job.cluster.gpus = machines * machine->gpus;
        job.cluster.domain_gpus = machine->domain_gpus < job.cluster.gpus ? machine->domain_gpus : job.cluster.gpus;
        if (count_layouts(state, &job).fitting > 0) return machines;
        machines += i < GROWTHS / 2 ? 1 : machines;
    }
    return 0;
}

static int does_not_fit(const struct ash_search_state *state, struct ash_err *err)
{
    const struct ash_plan_job *job = state->job;
    const struct ash_machine *machine = &job->cluster.machine;
    const struct ash_search_result *result = &state->result;
    double capacity = machine->gpu->memory_bytes * state->consts->memory_usable;
    int machines = machines_needed(state, capacity);
    char host[64] = "", enough[96] = "shorter sequences or smaller micro-batches might do";

    if (result->least_host_bytes > 0 && machine->host_bytes > 0)
        snprintf(host, sizeof(host), " and %.0f GB of %.0f GB per host", result->least_host_bytes / 1e9,
                 machine->host_bytes / 1e9);
    if (machines > 0) snprintf(enough, sizeof(enough), "%dx%.60s would do", machines, machine->name);
    return ash_err_set(err, -ENOSPC,
                       "%s does not fit: the leanest of %zu layouts needs %.1f GB of %.1f GB per GPU%s; %s",
                       job->shape.name, result->tried, result->least_bytes / 1e9, capacity / 1e9, host, enough);
}

/* The nearest global batch below (or above) that some layout divides; 0: none within reach. */
static double other_batch(const struct ash_search_state *state, double direction)
{
    struct ash_plan_job job = *state->job;
    int reach = (int)fmin(job.global_batch, BATCH_REACH);

    for (int away = 1; away < reach; away++) {
        job.global_batch = state->job->global_batch + direction * away;
        if (count_layouts(state, &job).tried > 0) return job.global_batch;
    }
    return 0;
}

static int nothing_divides(const struct ash_search_state *state, struct ash_err *err)
{
    const struct ash_plan_job *job = state->job;
    double below = other_batch(state, -1), above = other_batch(state, 1);
    char batches[64] = "take another number of machines";

    if (below > 0 && above > 0)
        snprintf(batches, sizeof(batches), "a global batch of %.0f or %.0f would do", below, above);
    else if (below > 0 || above > 0)
        snprintf(batches, sizeof(batches), "a global batch of %.0f would do", below > 0 ? below : above);
    return ash_err_set(err, -EINVAL, "no layout of %s divides %d GPUs and a global batch of %.0f sequences: %s",
                       job->shape.name, job->cluster.gpus, job->global_batch, batches);
}

static int refuse(const struct ash_search_state *state, struct ash_err *err)
{
    if (state->result.fitting > 0 || state->skipped)
        return ash_err_set(err, -ERANGE, "nothing is faster than the present plan");
    if (err == NULL) return state->result.tried > 0 ? -ENOSPC : -EINVAL; /* no advice is wanted */
    return state->result.tried > 0 ? does_not_fit(state, err) : nothing_divides(state, err);
}

/* The speed of a plan if its pipeline idled no longer than it must: simulating it cannot give more. */
static double most_tokens_s(const struct ash_plan_step *step)
{
    const struct ash_step_time *time = &step->time;
    double busy = time->total - time->data - time->jitter;

    return step->tokens_s * time->total /
           (time->total - (time->bubble - step->bubble_least) * (1 + time->jitter / busy));
}

/* Simulate the pipelines of the candidates, except of those that cannot get among the first max or are of no use. */
static void simulate(struct ash_search_state *state, size_t max)
{
    size_t simulated = 0;

    for (size_t i = 0; i < state->best_count; i++) {
        struct ash_plan plan = state->best[i];
        size_t at = simulated;

        if (simulated >= max && most_tokens_s(&plan.step) <= state->best[max - 1].step.tokens_s) continue;
        if (most_tokens_s(&plan.step) <= state->floor_tokens_s) continue;
        ash_step_predict_memo(state->consts, state->job, &plan.layout, true, state->memo, &plan.step);
        if (plan.step.tokens_s <= state->floor_tokens_s) continue;
        for (; at > 0 && state->best[at - 1].step.tokens_s < plan.step.tokens_s; at--)
            state->best[at] = state->best[at - 1];
        state->best[at] = plan;
        simulated++;
    }
    state->best_count = simulated;
}

/* The speed of the layout that was hinted at, where this job can be cut so and fits; 0: it cannot. */
static double hinted_tokens_s(const struct ash_search_state *state)
{
    struct ash_layout layout;
    struct ash_plan_step step;

    if (state->search->hint == NULL) return 0;
    layout = *state->search->hint;
    layout.dp = 0; /* whatever the others leave */
    if (ash_layout_check(state->job, &layout, NULL) < 0) return 0;
    ash_step_predict_memo(state->consts, state->job, &layout, true, state->memo, &step);
    return step.fits && !layout.offload ? step.tokens_s : 0;
}

/* Every layout that is faster than the floor, the best ones simulated. */
static void find(struct ash_search_state *state, double floor_tokens_s, size_t max)
{
    state->floor_tokens_s = floor_tokens_s;
    state->result = (struct ash_search_result){.least_bytes = INFINITY};
    state->offload = state->skipped = false;
    ash_search_enumerate(state);
    simulate(state, max);
}

int ash_search_run(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_search *search,
                   struct ash_plan *plans, size_t max, struct ash_search_result *result_out, struct ash_err *err)
{
    struct ash_search_state *state = calloc(1, sizeof(*state));
    double hinted;
    int rc = 0;

    if (state == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    state->consts = consts;
    state->job = job;
    state->search = search;
    state->memo = search->memo != NULL ? search->memo : ash_plan_layer_memo_open();
    state->stretch = 1 + consts->jitter * log2(fmax(1, job->cluster.machines));
    state->best_max = CANDIDATES_MIN + (max - 1) * CANDIDATES_EACH;
    if (max == 0 || state->best_max > ASH_CANDIDATES_MAX) state->best_max = ASH_CANDIDATES_MAX;
    hinted = hinted_tokens_s(state) * BELOW_HINT;
    if (hinted > search->floor_tokens_s) find(state, hinted, max);
    if (state->best_count == 0)
        find(state, search->floor_tokens_s, max); /* a hint need not be among those that are tried */
    if (search->memo == NULL) ash_plan_layer_memo_close(state->memo);
    if (state->best_count == 0) rc = refuse(state, err);
    state->result.count = state->best_count < max ? state->best_count : max;
    memcpy(plans, state->best, state->result.count * sizeof(*plans));
    *result_out = state->result;
    free(state);
    return rc;
}
