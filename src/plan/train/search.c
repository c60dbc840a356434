/* The search is plain enumeration: the space of sensible layouts is some ten thousand, a prediction takes microseconds,
 * and memory is asked first because most layouts fail there. */
#include "plan/train/search.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 48 /* that are simulated in the end */
#define CANDIDATES_MIN 12 /* where only the best one is wanted */
#define CANDIDATES_EACH 9 /* more for every further one */
#define STAGES_MAX 64
#define MICRO_BATCH_MAX 16
#define CHUNKS_MAX 20
#define BELOW_HINT 0.999999 /* of the speed of a hint, which shall be found again */
#define UNEVEN_MAX 1.15     /* layers of the fullest stage over the mean */
#define CONTEXT_MAX 32
#define CONTEXT_TOKENS 2048 /* of a sequence that a rank of cp keeps at least */
#define SHARD_FACTOR 4      /* between the groups that are tried for one copy of the state */
#define HOST_SHARE 0.9      /* of host memory that offloaded state may take */
#define OFFLOAD_SHARE 0.25  /* of a GPU that optimizer state must take before offloading competes */
#define GROWTHS 16          /* larger clusters that are tried for the message: machine by machine, then doubled */
#define GROWN_MAX 131072.0  /* GPUs of the largest */
#define BATCH_REACH 2048    /* sequences more or fewer that are tried for the message */

struct hunt {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_search *search;
    struct ash_layer_memo *memo;
    struct ash_plan best[CANDIDATES_MAX]; /* descending */
    size_t best_count, best_max;
    struct ash_search_result result;
    double floor_tokens_s; /* plans that are not faster are of no use */
    double stretch;        /* of what a step does: the wait for the slowest machine */
    double gathers_s;      /* of one micro-batch of this cut */
    bool offload;
    bool only_count; /* memory is asked, time is not */
    bool full;       /* the leanest plain pipeline of this cut did not fit: what needs more is only counted */
    bool skipped;    /* layouts were not looked at, because nothing of them could be kept */
};

/* Insert into the descending list, pushing the slowest out. */
static void keep(struct hunt *hunt, const struct ash_plan *plan)
{
    size_t at = hunt->best_count;

    if (at == hunt->best_max) {
        if (hunt->best[at - 1].step.tokens_s >= plan->step.tokens_s) return;
        at--;
    } else {
        hunt->best_count++;
    }
    while (at > 0 && hunt->best[at - 1].step.tokens_s < plan->step.tokens_s) {
        hunt->best[at] = hunt->best[at - 1];
        at--;
    }
    hunt->best[at] = *plan;
}

/* ---- the innermost choices --------------------------------------------------------------------------------------- */

bool ash_plan_fits_host(const struct ash_plan_job *job, const struct ash_step_memory *memory)
{
    const struct ash_cluster *cluster = &job->cluster;
    double gpus = cluster->gpus < cluster->machine.gpus ? cluster->gpus : cluster->machine.gpus;

    return cluster->machine.host_bytes <= 0 || memory->host * gpus <= HOST_SHARE * cluster->machine.host_bytes;
}

/* Does the leanest form of a layout fit? Keeps the least that anything needs, for the message. */
static bool fits(struct hunt *hunt, const struct ash_layout *layout)
{
    struct ash_search_result *result = &hunt->result;
    struct ash_step_memory least;
    enum ash_plan_recompute leanest = layout->recompute == ASH_PLAN_RECOMPUTE_FIT
                                          ? ASH_PLAN_RECOMPUTE_FULL
                                          : layout->recompute; /* of what is allowed */
    double host;

    ash_step_memory(hunt->consts, hunt->job, layout, leanest, &least);
    host = least.host * hunt->job->cluster.machine.gpus;
    if (least.total < result->least_bytes) result->least_bytes = least.total;
    if (layout->offload && (result->least_host_bytes <= 0 || host < result->least_host_bytes))
        result->least_host_bytes = host;
    return least.total <= least.capacity && ash_plan_fits_host(hunt->job, &least);
}

/* Could a layout be faster than the best of its kind so far, than the slowest candidate that is kept, and than what is
 * there already? */
static bool may_be_kept(const struct hunt *hunt, const struct ash_layout *layout, const struct ash_plan *best)
{
    double gathers_s = hunt->gathers_s > 0 ? hunt->gathers_s * ash_layout_micro_batches(hunt->job, layout) : 0;
    double work_s = ash_step_least(hunt->consts, hunt->job, layout, hunt->memo);
    double least_s = work_s > gathers_s ? work_s : gathers_s;
    double most =
        hunt->job->global_batch * hunt->job->seq_tokens / (least_s * hunt->stretch + hunt->consts->step_overhead);
    bool full = hunt->best_count == hunt->best_max;

    return most > best->step.tokens_s && most > hunt->floor_tokens_s &&
           (!full || most > hunt->best[hunt->best_max - 1].step.tokens_s);
}

/* Need a layout not be looked at, because nobody counts it and it is too slow? */
static bool is_hopeless(struct hunt *hunt, const struct ash_layout *layout, const struct ash_plan *best)
{
    if (!hunt->search->uncounted || hunt->only_count || may_be_kept(hunt, layout, best)) return false;
    hunt->skipped = true;
    return true;
}

/* Of a cut that has passed ash_layout_check. No other schedule, more chunks or a larger micro-batch needs less memory
 * than 1F1B with the smallest one, so where that does not fit nothing else of the cut is asked. */
static void try_layout(struct hunt *hunt, struct ash_layout layout, struct ash_plan *best)
{
    struct ash_plan plan = {.layout = layout};

    if (ash_layout_check_batch(hunt->job, &layout, NULL) < 0) return;
    if (is_hopeless(hunt, &layout, best)) return;
    hunt->result.tried++;
    if (hunt->full) return;
    if (!fits(hunt, &layout)) {
        hunt->full = layout.chunks == 1 && layout.schedule == ASH_SCHEDULE_1F1B;
        return;
    }
    hunt->result.fitting++;
    if (hunt->only_count || (!hunt->search->uncounted && !may_be_kept(hunt, &layout, best))) return;
    layout.recompute = ash_step_recompute(hunt->consts, hunt->job, &layout);
    if (layout.recompute != ASH_PLAN_RECOMPUTE_NONE && !may_be_kept(hunt, &layout, best)) return;
    ash_step_predict_memo(hunt->consts, hunt->job, &layout, false, hunt->memo, &plan.step);
    if (plan.step.tokens_s > best->step.tokens_s) *best = plan;
}

/* Does such a pipeline spread the layers evenly enough? The embedding and the output may count as layers. */
static bool is_even(double layers, double stages)
{
    double fullest = ceil(layers / stages);

    return ash_divides(stages, layers + 2) || fullest / (layers / stages) <= UNEVEN_MAX;
}

static void try_chunks(struct hunt *hunt, struct ash_layout layout, struct ash_plan *best)
{
    static const int chunks[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, CHUNKS_MAX};
    double layers = hunt->job->shape.layers;

    layout.chunks = CHUNKS_MAX; /* the more, the less a pipeline idles */
    if (hunt->search->schedules == 0 && is_hopeless(hunt, &layout, best)) return;
    layout.chunks = 1;
    try_layout(hunt, layout, best);
    if (layout.pp == 1) return;
    for (int schedule = ASH_SCHEDULE_1F1B + 1; schedule < ASH_SCHEDULE_COUNT; schedule++) {
        layout.schedule = (enum ash_schedule)schedule;
        if ((hunt->search->schedules >> schedule & 1) != 0) try_layout(hunt, layout, best);
    }
    layout.schedule = ASH_SCHEDULE_1F1B;
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        double stages = (double)layout.pp * chunks[i];

        if (stages > layers || (!ash_divides(stages, layers) && !ash_divides(stages, layers + 2))) continue;
        layout.chunks = chunks[i];
        try_layout(hunt, layout, best);
    }
}

static void try_batches(struct hunt *hunt, struct ash_layout layout)
{
    struct ash_plan best = {0};
    double each = hunt->job->global_batch / layout.dp;

    if (hunt->only_count && hunt->result.fitting > 0) return; /* that is all that is asked */
    hunt->full = false;
    hunt->gathers_s = ash_step_gathers(hunt->consts, hunt->job, &layout);
    for (int size = 1; size <= MICRO_BATCH_MAX && size <= each; size *= 2) {
        layout.micro_batch = size;
        if (ash_divides(size, each)) try_chunks(hunt, layout, &best);
    }
    if (best.step.tokens_s > 0) keep(hunt, &best);
}

/* Is a precision asked for, and does the GPU have it? */
static bool is_wanted(const struct hunt *hunt, int precision)
{
    bool wanted = hunt->search->precision < 0 ? precision <= ASH_PRECISION_FP8 : precision == hunt->search->precision;

    return wanted && hunt->job->cluster.machine.gpu->flops[precision] > 0;
}

static void try_precisions(struct hunt *hunt, struct ash_layout layout)
{
    for (int p = ASH_PRECISION_BF16; p <= ASH_PRECISION_FP4; p++) {
        if (!is_wanted(hunt, p)) continue;
        layout.precision = (enum ash_precision)p;
        try_batches(hunt, layout);
    }
}

/* ---- ways to cut the GPUs ---------------------------------------------------------------------------------------- */

/* One copy of the state for all ranks, or several, each among neighbours. */
static void try_shards(struct hunt *hunt, struct ash_layout layout)
{
    int copies = layout.dp * layout.cp, near = hunt->job->cluster.domain_gpus / layout.tp;

    layout.shard = 0;
    try_precisions(hunt, layout);
    for (layout.shard = near; layout.shard > 1 && layout.shard < copies; layout.shard *= SHARD_FACTOR)
        if (copies % layout.shard == 0) try_precisions(hunt, layout);
}

static void try_sharding(struct hunt *hunt, struct ash_layout layout)
{
    int wanted = hunt->search->zero;

    if (layout.dp * layout.cp == 1) {
        layout.zero = 0;
        if (wanted <= 0) try_precisions(hunt, layout);
        return;
    }
    layout.zero = wanted >= 0 ? wanted : 1;
    if (layout.zero < 3) try_precisions(hunt, layout);
    if (wanted >= 0 && wanted < 3) return;
    if (layout.pp > 1 && wanted < 0) return; /* a pipeline would gather again for every micro-batch */
    layout.zero = 3;
    try_shards(hunt, layout);
}

/* Can no micro-batch and precision of a cut be fast enough, however its state is shared? */
static bool is_hopeless_cut(struct hunt *hunt, struct ash_layout layout)
{
    static const struct ash_plan none;

    if (!hunt->search->uncounted || hunt->only_count || hunt->search->schedules != 0) return false;
    layout.chunks = CHUNKS_MAX;
    hunt->gathers_s = 0;
    for (int p = ASH_PRECISION_BF16; p <= ASH_PRECISION_FP4; p++) {
        layout.precision = (enum ash_precision)p;
        for (layout.micro_batch = 1; layout.micro_batch <= MICRO_BATCH_MAX; layout.micro_batch *= 2) {
            if (!is_wanted(hunt, p) || !ash_divides((double)layout.dp * layout.micro_batch, hunt->job->global_batch))
                break;
            if (may_be_kept(hunt, &layout, &none)) return false;
        }
    }
    hunt->skipped = true;
    return true;
}

/* All ways to share the state of a cut, where there is one. */
static void try_cut(struct hunt *hunt, struct ash_layout layout)
{
    if (ash_layout_check(hunt->job, &layout, NULL) == 0 && !is_hopeless_cut(hunt, layout)) try_sharding(hunt, layout);
}

static void try_experts(struct hunt *hunt, struct ash_layout layout)
{
    int experts = (int)hunt->job->shape.experts, ranks = layout.tp * layout.cp * layout.dp;

    layout.ep = 1;
    layout.etp = layout.tp;
    try_cut(hunt, layout);
    if (hunt->job->shape.sparse_layers == 0) return;
    layout.etp = 1;
    for (int ep = 2; ep <= experts && ep <= ranks; ep++) {
        if (experts % ep != 0 || ranks % ep != 0) continue;
        layout.ep = ep;
        try_cut(hunt, layout);
    }
}

static void try_degrees(struct hunt *hunt, int tp, int pp, int cp)
{
    struct ash_layout layout = {.tp = tp, .pp = pp, .cp = cp, .chunks = 1, .micro_batch = 1, .offload = hunt->offload};
    int gpus = hunt->job->cluster.gpus;

    layout.recompute = (enum ash_plan_recompute)hunt->search->recompute;
    layout.dp = gpus / (tp * pp * cp);
    if (layout.dp > hunt->job->global_batch || !ash_divides(layout.dp, hunt->job->global_batch)) return;
    try_experts(hunt, layout);
}

static void enumerate(struct hunt *hunt)
{
    const struct ash_shape *s = &hunt->job->shape;
    int gpus = hunt->job->cluster.gpus, domain = hunt->job->cluster.domain_gpus;

    for (int tp = 1; tp <= domain && tp <= s->heads; tp *= 2) {
        if (gpus % tp != 0 || !ash_divides(tp, s->heads)) continue;
        for (int pp = 1; pp <= STAGES_MAX && pp <= s->layers; pp++) {
            if (gpus / tp % pp != 0 || !is_even(s->layers, pp)) continue;
            for (int cp = 1; cp <= CONTEXT_MAX && (cp == 1 || hunt->job->seq_tokens / cp >= CONTEXT_TOKENS); cp *= 2)
                if (gpus / tp / pp % cp == 0) try_degrees(hunt, tp, pp, cp);
        }
    }
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* Does any layout that was not looked at fit? */
static bool any_fits(const struct hunt *hunt)
{
    struct hunt other = {.consts = hunt->consts, .job = hunt->job, .search = hunt->search, .only_count = true};

    if (hunt->skipped) enumerate(&other);
    return other.result.fitting > 0;
}

/* Does optimizer state fill so much of a GPU in the fastest plan so far that moving it to the host may pay? */
static bool is_state_heavy(const struct hunt *hunt)
{
    const struct ash_step_memory *memory = &hunt->best[0].step.memory;

    return hunt->best_count > 0 && memory->optimizer > OFFLOAD_SHARE * memory->capacity;
}

/* Everything, and with state in host memory where nothing fits without or where it takes much of the GPU. */
static void enumerate_all(struct hunt *hunt)
{
    enumerate(hunt);
    if (hunt->search->no_offload || hunt->job->tuning != ASH_TUNING_ALL) return;
    if (!is_state_heavy(hunt) && (hunt->result.fitting > 0 || any_fits(hunt))) return;
    hunt->offload = true;
    enumerate(hunt);
}

/* Are layouts of another job possible, and does any fit? */
static struct ash_search_result count_layouts(const struct hunt *hunt, const struct ash_plan_job *job)
{
    struct hunt other = {.consts = hunt->consts, .job = job, .search = hunt->search, .only_count = true};

    other.result.least_bytes = INFINITY;
    enumerate_all(&other);
    return other.result;
}

/* The fewest machines, as far as a few tries tell, that hold the job; 0: none did. */
static int machines_needed(const struct hunt *hunt, double capacity)
{
    struct ash_plan_job job = *hunt->job;
    const struct ash_machine *machine = &job.cluster.machine;
    double guess = ceil(job.cluster.gpus * hunt->result.least_bytes / capacity / machine->gpus);
    int machines = guess > job.cluster.machines ? (int)fmin(guess, GROWN_MAX) : job.cluster.machines + 1;

    for (int i = 0; i < GROWTHS && machines * machine->gpus <= GROWN_MAX; i++) {
        job.cluster.machines = machines;
        job.cluster.gpus = machines * machine->gpus;
        job.cluster.domain_gpus = machine->domain_gpus < job.cluster.gpus ? machine->domain_gpus : job.cluster.gpus;
        if (count_layouts(hunt, &job).fitting > 0) return machines;
        machines += i < GROWTHS / 2 ? 1 : machines;
    }
    return 0;
}

static int does_not_fit(const struct hunt *hunt, struct ash_err *err)
{
    const struct ash_plan_job *job = hunt->job;
    const struct ash_machine *machine = &job->cluster.machine;
    const struct ash_search_result *result = &hunt->result;
    double capacity = machine->gpu->memory_bytes * hunt->consts->memory_usable;
    int machines = machines_needed(hunt, capacity);
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
static double other_batch(const struct hunt *hunt, double direction)
{
    struct ash_plan_job job = *hunt->job;
    double reach = fmin(job.global_batch, BATCH_REACH);

    for (double away = 1; away < reach; away++) {
        job.global_batch = hunt->job->global_batch + direction * away;
        if (count_layouts(hunt, &job).tried > 0) return job.global_batch;
    }
    return 0;
}

static int nothing_divides(const struct hunt *hunt, struct ash_err *err)
{
    const struct ash_plan_job *job = hunt->job;
    double below = other_batch(hunt, -1), above = other_batch(hunt, 1);
    char batches[64] = "take another number of machines";

    if (below > 0 && above > 0)
        snprintf(batches, sizeof(batches), "a global batch of %.0f or %.0f would do", below, above);
    else if (below > 0 || above > 0)
        snprintf(batches, sizeof(batches), "a global batch of %.0f would do", below > 0 ? below : above);
    return ash_err_set(err, -EINVAL, "no layout of %s divides %d GPUs and a global batch of %.0f sequences: %s",
                       job->shape.name, job->cluster.gpus, job->global_batch, batches);
}

static int refuse(const struct hunt *hunt, struct ash_err *err)
{
    if (hunt->result.fitting > 0 || hunt->skipped)
        return ash_err_set(err, -ERANGE, "nothing is faster than what is there");
    if (err == NULL) return hunt->result.tried > 0 ? -ENOSPC : -EINVAL; /* nobody asks what would do */
    return hunt->result.tried > 0 ? does_not_fit(hunt, err) : nothing_divides(hunt, err);
}

/* The speed of a plan if its pipeline idled no longer than it must: playing it cannot give more. */
static double most_tokens_s(const struct ash_plan_step *step)
{
    const struct ash_step_time *time = &step->time;
    double busy = time->total - time->data - time->jitter;

    return step->tokens_s * time->total /
           (time->total - (time->bubble - step->bubble_least) * (1 + time->jitter / busy));
}

/* Play the pipelines of the candidates, except of those that cannot get among the first max or are of no use. */
static void simulate(struct hunt *hunt, size_t max)
{
    size_t played = 0;

    for (size_t i = 0; i < hunt->best_count; i++) {
        struct ash_plan plan = hunt->best[i];
        size_t at = played;

        if (played >= max && most_tokens_s(&plan.step) <= hunt->best[max - 1].step.tokens_s) continue;
        if (most_tokens_s(&plan.step) <= hunt->floor_tokens_s) continue;
        ash_step_predict_memo(hunt->consts, hunt->job, &plan.layout, true, hunt->memo, &plan.step);
        if (plan.step.tokens_s <= hunt->floor_tokens_s) continue;
        for (; at > 0 && hunt->best[at - 1].step.tokens_s < plan.step.tokens_s; at--)
            hunt->best[at] = hunt->best[at - 1];
        hunt->best[at] = plan;
        played++;
    }
    hunt->best_count = played;
}

/* The speed of the layout that was hinted at, where this job can be cut so and fits; 0: it cannot. */
static double hinted_tokens_s(const struct hunt *hunt)
{
    struct ash_layout layout;
    struct ash_plan_step step;

    if (hunt->search->hint == NULL) return 0;
    layout = *hunt->search->hint;
    layout.dp = 0; /* whatever the others leave */
    if (ash_layout_check(hunt->job, &layout, NULL) < 0) return 0;
    ash_step_predict_memo(hunt->consts, hunt->job, &layout, true, hunt->memo, &step);
    return step.fits && !layout.offload ? step.tokens_s : 0;
}

/* Every layout that is faster than the floor, the best ones played. */
static void find(struct hunt *hunt, double floor_tokens_s, size_t max)
{
    hunt->floor_tokens_s = floor_tokens_s;
    hunt->result = (struct ash_search_result){.least_bytes = INFINITY};
    hunt->offload = hunt->skipped = false;
    enumerate_all(hunt);
    simulate(hunt, max);
}

int ash_search(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_search *search,
               struct ash_plan *plans, size_t max, struct ash_search_result *result_out, struct ash_err *err)
{
    struct hunt *hunt = calloc(1, sizeof(*hunt));
    double hinted;
    int rc = 0;

    if (hunt == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    hunt->consts = consts;
    hunt->job = job;
    hunt->search = search;
    hunt->memo = search->memo != NULL ? search->memo : ash_layer_memo_open();
    hunt->stretch = 1 + consts->jitter * log2(fmax(1, job->cluster.machines));
    hunt->best_max = CANDIDATES_MIN + (max - 1) * CANDIDATES_EACH;
    if (max == 0 || hunt->best_max > CANDIDATES_MAX) hunt->best_max = CANDIDATES_MAX;
    hinted = hinted_tokens_s(hunt) * BELOW_HINT;
    if (hinted > search->floor_tokens_s) find(hunt, hinted, max);
    if (hunt->best_count == 0)
        find(hunt, search->floor_tokens_s, max); /* a hint need not be among those that are tried */
    if (search->memo == NULL) ash_layer_memo_close(hunt->memo);
    if (hunt->best_count == 0) rc = refuse(hunt, err);
    hunt->result.count = hunt->best_count < max ? hunt->best_count : max;
    memcpy(plans, hunt->best, hunt->result.count * sizeof(*plans));
    *result_out = hunt->result;
    free(hunt);
    return rc;
}
