/* Every sensible layout of a job, by nested choices from the degrees down to the micro-batch. Memory is checked before
 * time, because most layouts fail there. */
#include <math.h>

#include "plan/train/search_priv.h"

#define STAGES_MAX 64
#define MICRO_BATCH_MAX 16
#define CHUNKS_MAX 20
#define UNEVEN_MAX 1.15 /* layers of the fullest stage over the mean */
#define CONTEXT_MAX 32
#define CONTEXT_TOKENS 2048 /* of a sequence that a rank of cp keeps at least */
#define SHARD_FACTOR 4      /* between the groups that are tried for one copy of the state */
#define HOST_SHARE 0.9      /* of host memory that offloaded state may take */
#define OFFLOAD_SHARE 0.25  /* of a GPU that optimizer state must take before offloading competes */

/* Insert into the descending list, pushing the slowest out. */
static void keep(struct ash_search_state *state, const struct ash_plan *plan)
{
    size_t at = state->best_count;

    if (at == state->best_max) {
        if (state->best[at - 1].step.tokens_s >= plan->step.tokens_s) return;
        at--;
    } else {
        state->best_count++;
    }
    while (at > 0 && state->best[at - 1].step.tokens_s < plan->step.tokens_s) {
        state->best[at] = state->best[at - 1];
        at--;
    }
    state->best[at] = *plan;
}

/* ---- the innermost choices --------------------------------------------------------------------------------------- */

bool ash_plan_fits_host(const struct ash_plan_job *job, const struct ash_step_memory *memory)
{
    const struct ash_cluster *cluster = &job->cluster;
    double gpus = cluster->gpus < cluster->machine.gpus ? cluster->gpus : cluster->machine.gpus;

    return cluster->machine.host_bytes <= 0 || memory->host * gpus <= HOST_SHARE * cluster->machine.host_bytes;
}

/* Does the leanest form of a layout fit? Keeps the least that anything needs, for the message. */
static bool fits(struct ash_search_state *state, const struct ash_layout *layout)
{
    struct ash_search_result *result = &state->result;
    struct ash_step_memory least;
    enum ash_plan_recompute leanest = layout->recompute == ASH_PLAN_RECOMPUTE_FIT
                                          ? ASH_PLAN_RECOMPUTE_FULL
                                          : layout->recompute; /* of the allowed ones */
    double host;

    ash_step_memory_of(state->consts, state->job, layout, leanest, &least);
    host = least.host * state->job->cluster.machine.gpus;
    if (least.total < result->least_bytes) result->least_bytes = least.total;
    if (layout->offload && (result->least_host_bytes <= 0 || host < result->least_host_bytes))
        result->least_host_bytes = host;
    return least.total <= least.capacity && ash_plan_fits_host(state->job, &least);
}

/* Could a layout be faster than the best of its kind so far, than the slowest retained candidate, and than the present
 * plan? */
static bool may_be_kept(const struct ash_search_state *state, const struct ash_layout *layout,
                        const struct ash_plan *best)
{
    double gathers_s = state->gathers_s > 0 ? state->gathers_s * ash_layout_micro_batches(state->job, layout) : 0;
    double work_s = ash_step_least(state->consts, state->job, layout, state->memo);
    double least_s = work_s > gathers_s ? work_s : gathers_s;
    double most =
        state->job->global_batch * state->job->seq_tokens / (least_s * state->stretch + state->consts->step_overhead);
    bool full = state->best_count == state->best_max;

    return most > best->step.tokens_s && most > state->floor_tokens_s &&
           (!full || most > state->best[state->best_max - 1].step.tokens_s);
}

/* Can a layout be skipped, because layouts are not counted and it is too slow? */
static bool is_hopeless(struct ash_search_state *state, const struct ash_layout *layout, const struct ash_plan *best)
{
    if (!state->search->uncounted || state->only_count || may_be_kept(state, layout, best)) return false;
    state->skipped = true;
    return true;
}

/* Of a cut that has passed ash_layout_check. No other schedule, more chunks or a larger micro-batch needs less memory
 * than 1F1B with the smallest one, so if that does not fit, the cut is skipped. */
static void try_layout(struct ash_search_state *state, struct ash_layout layout, struct ash_plan *best)
{
    struct ash_plan plan = {.layout = layout};

    if (ash_layout_check_batch(state->job, &layout, NULL) < 0) return;
    if (is_hopeless(state, &layout, best)) return;
    state->result.tried++;
    if (state->full) return;
    if (!fits(state, &layout)) {
        state->full = layout.chunks == 1 && layout.schedule == ASH_PLAN_1F1B;
        return;
    }
    state->result.fitting++;
    if (state->only_count || (!state->search->uncounted && !may_be_kept(state, &layout, best))) return;
    layout.recompute = ash_step_recompute(state->consts, state->job, &layout);
    if (layout.recompute != ASH_PLAN_RECOMPUTE_NONE && !may_be_kept(state, &layout, best)) return;
    ash_step_predict_memo(state->consts, state->job, &layout, false, state->memo, &plan.step);
    if (plan.step.tokens_s > best->step.tokens_s) *best = plan;
}

/* Does such a pipeline spread the layers evenly enough? The embedding and the output may count as layers. */
static bool is_even(double layers, double stages)
{
    double fullest = ceil(layers / stages);

    return ash_divides(stages, layers + 2) || fullest / (layers / stages) <= UNEVEN_MAX;
}

static void try_chunks(struct ash_search_state *state, struct ash_layout layout, struct ash_plan *best)
{
    static const int chunks[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, CHUNKS_MAX};
    double layers = state->job->shape.layers;

    layout.chunks = CHUNKS_MAX; /* the more, the less a pipeline idles */
    if (state->search->schedules == 0 && is_hopeless(state, &layout, best)) return;
    layout.chunks = 1;
    try_layout(state, layout, best);
    if (layout.pp == 1) return;
    for (int schedule = ASH_PLAN_1F1B + 1; schedule < ASH_PLAN_SCHEDULES; schedule++) {
        layout.schedule = (enum ash_plan_schedule)schedule;
        if ((state->search->schedules >> schedule & 1) != 0) try_layout(state, layout, best);
    }
    layout.schedule = ASH_PLAN_1F1B;
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        double stages = (double)layout.pp * chunks[i];

        if (stages > layers || (!ash_divides(stages, layers) && !ash_divides(stages, layers + 2))) continue;
        layout.chunks = chunks[i];
        try_layout(state, layout, best);
    }
}

static void try_batches(struct ash_search_state *state, struct ash_layout layout)
{
    struct ash_plan best = {0};
    double each = state->job->global_batch / layout.dp;

    if (state->only_count && state->result.fitting > 0) return; /* that is all that is asked */
    state->full = false;
    state->gathers_s = ash_step_gathers(state->consts, state->job, &layout);
    for (int size = 1; size <= MICRO_BATCH_MAX && size <= each; size *= 2) {
        layout.micro_batch = size;
        if (ash_divides(size, each)) try_chunks(state, layout, &best);
    }
    if (best.step.tokens_s > 0) keep(state, &best);
}

/* Is a precision asked for, and does the GPU have it? */
static bool is_wanted(const struct ash_search_state *state, int precision)
{
    bool wanted = state->search->precision < 0 ? precision <= ASH_GPU_FP8 : precision == state->search->precision;

    return wanted && state->job->cluster.machine.gpu->flops[precision] > 0;
}

static void try_precisions(struct ash_search_state *state, struct ash_layout layout)
{
    for (int p = ASH_GPU_BF16; p <= ASH_GPU_FP4; p++) {
        if (!is_wanted(state, p)) continue;
        layout.precision = (enum ash_gpu_precision)p;
        try_batches(state, layout);
    }
}

/* ---- ways to cut the GPUs ---------------------------------------------------------------------------------------- */

/* One copy of the state for all ranks, or several, each among neighbours. */
static void try_shards(struct ash_search_state *state, struct ash_layout layout)
{
    int copies = layout.dp * layout.cp, near = state->job->cluster.domain_gpus / layout.tp;

    layout.shard = 0;
    try_precisions(state, layout);
    for (layout.shard = near; layout.shard > 1 && layout.shard < copies; layout.shard *= SHARD_FACTOR)
        if (copies % layout.shard == 0) try_precisions(state, layout);
}

static void try_sharding(struct ash_search_state *state, struct ash_layout layout)
{
    int wanted = state->search->zero;

    if (layout.dp * layout.cp == 1) {
        layout.zero = 0;
        if (wanted <= 0) try_precisions(state, layout);
        return;
    }
    layout.zero = wanted >= 0 ? wanted : 1;
    if (layout.zero < 3) try_precisions(state, layout);
    if (wanted >= 0 && wanted < 3) return;
    if (layout.pp > 1 && wanted < 0) return; /* a pipeline would gather again for every micro-batch */
    layout.zero = 3;
    try_shards(state, layout);
}

/* Can no micro-batch and precision of a cut be fast enough, however its state is shared? */
static bool is_hopeless_cut(struct ash_search_state *state, struct ash_layout layout)
{
    static const struct ash_plan none;

    if (!state->search->uncounted || state->only_count || state->search->schedules != 0) return false;
    layout.chunks = CHUNKS_MAX;
    state->gathers_s = 0;
    for (int p = ASH_GPU_BF16; p <= ASH_GPU_FP4; p++) {
        layout.precision = (enum ash_gpu_precision)p;
        for (layout.micro_batch = 1; layout.micro_batch <= MICRO_BATCH_MAX; layout.micro_batch *= 2) {
            if (!is_wanted(state, p) || !ash_divides((double)layout.dp * layout.micro_batch, state->job->global_batch))
                break;
            if (may_be_kept(state, &layout, &none)) return false;
        }
    }
    state->skipped = true;
    return true;
}

/* All ways to share the state of a cut, if there is one. */
static void try_cut(struct ash_search_state *state, struct ash_layout layout)
{
    if (ash_layout_check(state->job, &layout, NULL) == 0 && !is_hopeless_cut(state, layout))
        try_sharding(state, layout);
}

static void try_experts(struct ash_search_state *state, struct ash_layout layout)
{
    int experts = (int)state->job->shape.experts, ranks = layout.tp * layout.cp * layout.dp;

    layout.ep = 1;
    layout.etp = layout.tp;
    try_cut(state, layout);
    if (state->job->shape.sparse_layers == 0) return;
    layout.etp = 1;
    for (int ep = 2; ep <= experts && ep <= ranks; ep++) {
        if (experts % ep != 0 || ranks % ep != 0) continue;
        layout.ep = ep;
        try_cut(state, layout);
    }
}

static void try_degrees(struct ash_search_state *state, int tp, int pp, int cp)
{
    struct ash_layout layout = {.tp = tp, .pp = pp, .cp = cp, .chunks = 1, .micro_batch = 1, .offload = state->offload};
    int gpus = state->job->cluster.gpus;

    layout.recompute = (enum ash_plan_recompute)state->search->recompute;
    layout.dp = gpus / (tp * pp * cp);
    if (layout.dp > state->job->global_batch || !ash_divides(layout.dp, state->job->global_batch)) return;
    try_experts(state, layout);
}

static void enumerate(struct ash_search_state *state)
{
    const struct ash_shape *s = &state->job->shape;
    int gpus = state->job->cluster.gpus, domain = state->job->cluster.domain_gpus;

    for (int tp = 1; tp <= domain && tp <= s->heads; tp *= 2) {
        if (gpus % tp != 0 || !ash_divides(tp, s->heads)) continue;
        for (int pp = 1; pp <= STAGES_MAX && pp <= s->layers; pp++) {
            if (gpus / tp % pp != 0 || !is_even(s->layers, pp)) continue;
            for (int cp = 1; cp <= CONTEXT_MAX && (cp == 1 || state->job->seq_tokens / cp >= CONTEXT_TOKENS); cp *= 2)
                if (gpus / tp / pp % cp == 0) try_degrees(state, tp, pp, cp);
        }
    }
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* Does any skipped layout fit? */
static bool any_fits(const struct ash_search_state *state)
{
    struct ash_search_state other = {
        .consts = state->consts, .job = state->job, .search = state->search, .only_count = true};

    if (state->skipped) enumerate(&other);
    return other.result.fitting > 0;
}

/* Does optimizer state fill so much of a GPU in the fastest plan so far that moving it to the host may pay? */
static bool is_state_heavy(const struct ash_search_state *state)
{
    const struct ash_step_memory *memory = &state->best[0].step.memory;

    return state->best_count > 0 && memory->optimizer > OFFLOAD_SHARE * memory->capacity;
}

/* Everything, and with state in host memory if nothing fits without or if it takes much of the GPU. */
void ash_search_enumerate(struct ash_search_state *state)
{
    enumerate(state);
    if (state->search->no_offload || state->job->tuning != ASH_TUNING_ALL) return;
    if (!is_state_heavy(state) && (state->result.fitting > 0 || any_fits(state))) return;
    state->offload = true;
    enumerate(state);
}
