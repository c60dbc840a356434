/* Sampling: scan, keep, draw. Costs a pass or two over the vocabulary plus the work on what is kept: top-k keeps a heap
 * of k, top-p takes tokens off a heap until they are enough, and with neither of them nothing is sorted at all.
 * Exponentials are ash_expf and sums are doubles added in one fixed order: every machine draws the same token. */
#include "serve/engine/sampler_priv.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"
#include "compute/mathf.h"

#define SAMPLER_STREAM 0x73616d706c657221ull /* keeps these draws apart from every other use of the same seed */

/* ---- settings ---------------------------------------------------------------------------------------------------- */

struct ash_sampler_opts ash_sampler_defaults(void)
{
    return (struct ash_sampler_opts){.top_p = 1.0, .typical_p = 1.0, .repetition_penalty = 1.0};
}

uint64_t ash_sampler_seed(uint64_t seed, size_t index)
{
    return index > 0 ? ash_hash_mix(seed + 0x9e3779b97f4a7c15u * index) : seed;
}

static bool is_within(double x, double most)
{
    return x >= -most && x <= most;
}

static int check_penalties(const struct ash_sampler_opts *opts, struct ash_err *err)
{
    if (!(opts->repetition_penalty > 0.0 && opts->repetition_penalty <= ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "repetition_penalty %g is not above 0 and at most %g",
                           opts->repetition_penalty, ASH_SAMPLER_PENALTY_MAX);
    if (!is_within(opts->presence_penalty, ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "presence_penalty %g is not between -%g and %g", opts->presence_penalty,
                           ASH_SAMPLER_PENALTY_MAX, ASH_SAMPLER_PENALTY_MAX);
    if (!is_within(opts->frequency_penalty, ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "frequency_penalty %g is not between -%g and %g", opts->frequency_penalty,
                           ASH_SAMPLER_PENALTY_MAX, ASH_SAMPLER_PENALTY_MAX);
    return 0;
}

int ash_sampler_check(const struct ash_sampler_opts *opts, struct ash_err *err)
{
    if (!(opts->temperature >= 0.0 && opts->temperature <= ASH_SAMPLER_TEMPERATURE_MAX))
        return ash_err_set(err, -EINVAL, "temperature %g is not between 0 and %g", opts->temperature,
                           ASH_SAMPLER_TEMPERATURE_MAX);
    if (!(opts->top_p > 0.0 && opts->top_p <= 1.0))
        return ash_err_set(err, -EINVAL, "top_p %g is not above 0 and at most 1", opts->top_p);
    if (!(opts->min_p >= 0.0 && opts->min_p <= 1.0))
        return ash_err_set(err, -EINVAL, "min_p %g is not between 0 and 1", opts->min_p);
    if (!(opts->typical_p > 0.0 && opts->typical_p <= 1.0))
        return ash_err_set(err, -EINVAL, "typical_p %g is not above 0 and at most 1", opts->typical_p);
    return check_penalties(opts, err);
}

bool ash_sampler_has_penalties(const struct ash_sampler_opts *opts)
{
    return opts->repetition_penalty != 1.0 || opts->presence_penalty != 0.0 || opts->frequency_penalty != 0.0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_sampler_open(size_t vocab, struct ash_sampler **sampler_out, struct ash_err *err)
{
    struct ash_sampler *sampler;

    if (vocab == 0 || vocab > INT32_MAX) return ash_err_set(err, -EINVAL, "sampler: a vocabulary of %zu tokens", vocab);
    sampler = calloc(1, sizeof(*sampler));
    if (sampler == NULL) goto fail;
    sampler->vocab = vocab;
    sampler->kept = malloc(vocab * sizeof(*sampler->kept));
    sampler->order = malloc(vocab * sizeof(*sampler->order));
    sampler->weight = malloc(vocab * sizeof(*sampler->weight));
    sampler->edited = malloc(vocab * sizeof(*sampler->edited));
    if (sampler->kept == NULL || sampler->order == NULL || sampler->weight == NULL || sampler->edited == NULL)
        goto fail;
    *sampler_out = sampler;
    return 0;

fail:
    ash_sampler_close(sampler);
    return ash_err_set(err, -ENOMEM, "sampler: no memory for a vocabulary of %zu tokens", vocab);
}

void ash_sampler_close(struct ash_sampler *sampler)
{
    if (sampler == NULL) return;
    free(sampler->kept);
    free(sampler->order);
    free(sampler->weight);
    free(sampler->edited);
    free(sampler);
}

/* ---- what is left, and the draw ---------------------------------------------------------------------------------- */

/* The most likely token, or the reason why there is none. */
static int find_best(const float *logits, size_t vocab, uint64_t position, size_t *best_out, struct ash_err *err)
{
    float top = -INFINITY;
    size_t best = vocab;

    for (size_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return ash_err_set(
                err, -EDOM,
                "the model's logit for token %zu at position %llu is %s: its weights or its input are broken", i,
                (unsigned long long)position, isnan(logits[i]) ? "not a number" : "infinite");
        if (logits[i] > top) {
            top = logits[i];
            best = i;
        }
    }
    if (best == vocab)
        return ash_err_set(err, -EDOM, "every token is forbidden at position %llu: all logits are -infinity",
                           (unsigned long long)position);
    *best_out = best;
    return 0;
}

/* Is a likelier than b? The lower id wins a tie, so that the order is total and the same everywhere. */
static bool likelier(struct ash_candidate a, struct ash_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restore the heap below node: the root is the least likely candidate where least is set, else the likeliest. */
static void sift_down(struct ash_candidate *heap, size_t count, size_t node, bool least)
{
    struct ash_candidate moved = heap[node];

    for (;;) {
        size_t child = 2 * node + 1;

        if (child >= count) break;
        if (child + 1 < count && likelier(heap[child + 1], heap[child]) != least) child++;
        if (likelier(heap[child], moved) == least) break;
        heap[node] = heap[child];
        node = child;
    }
    heap[node] = moved;
}

static void make_heap(struct ash_candidate *heap, size_t count, bool least)
{
    for (size_t node = count / 2; node-- > 0;)
        sift_down(heap, count, node, least);
}

/* kept[0..k): the k likeliest tokens, likeliest first. Most tokens of a vocabulary lose against the root and cost one
 * comparison. */
static void keep_top_k(struct ash_candidate *kept, size_t k, const float *logits, size_t vocab)
{
    for (size_t i = 0; i < k; i++)
        kept[i] = (struct ash_candidate){logits[i], (int32_t)i};
    make_heap(kept, k, true);
    for (size_t i = k; i < vocab; i++) {
        struct ash_candidate next = {logits[i], (int32_t)i};

        if (!likelier(next, kept[0])) continue;
        kept[0] = next;
        sift_down(kept, k, 0, true);
    }
    for (size_t left = k; left > 1; left--) { /* the least likely goes to the end, again and again */
        struct ash_candidate least = kept[0];

        kept[0] = kept[left - 1];
        sift_down(kept, left - 1, 0, true);
        kept[left - 1] = least;
    }
}

/* exp((logit - top) / temperature): 1 for the best token. */
static float weigh(float logit, float top, double temperature)
{
    return ash_expf((float)(((double)logit - (double)top) / temperature));
}

/* At which temperature the filters look at the weights. */
static double filter_temperature(const struct ash_sampler_opts *opts)
{
    return opts->filters_first ? 1.0 : opts->temperature;
}

/* Index of the first weight at which the running sum exceeds a uniform share of total; last where rounding leaves
 * that share at the very end. A weight of 0 is never chosen. */
static size_t draw(const struct ash_sampler *sampler, const struct ash_choice *choice, size_t count, double total,
                   size_t last)
{
    double mark = ash_rng_uniform(choice->opts->seed, SAMPLER_STREAM, choice->position) * total, sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)sampler->weight[i];
        if (sum > mark) return i;
    }
    return last;
}

/* Candidates likeliest first, in kept, with their weights. */
struct survivors {
    size_t count;
    double total; /* of their weights */
};

/* top-k, then perhaps top-p and min-p, all on the sorted survivors. */
static struct survivors survive_top_k(struct ash_sampler *sampler, const struct ash_sampler_opts *opts,
                                      const float *logits, size_t k)
{
    struct survivors left = {0};
    double total = 0.0;

    keep_top_k(sampler->kept, k, logits, sampler->vocab);
    for (size_t i = 0; i < k; i++) {
        sampler->weight[i] = weigh(sampler->kept[i].logit, sampler->kept[0].logit, filter_temperature(opts));
        total += (double)sampler->weight[i];
    }
    while (left.count < k && (left.count == 0 || left.total < opts->top_p * total)) {
        if ((double)sampler->weight[left.count] < opts->min_p) break;
        left.total += (double)sampler->weight[left.count++];
    }
    return left;
}

/* The tokens that top-p may need, in kept, and *total_out of all weights. Tokens lighter than (1 - top_p) * total /
 * vocab weigh less than (1 - top_p) * total together, so the others reach top_p without them; they are few. */
static size_t keep_heavy(struct ash_sampler *sampler, const struct ash_sampler_opts *opts, const float *logits,
                         float top, double *total_out)
{
    double total = 0.0, light;
    size_t count = 0;

    for (size_t i = 0; i < sampler->vocab; i++) {
        sampler->weight[i] = weigh(logits[i], top, filter_temperature(opts));
        total += (double)sampler->weight[i];
    }
    light = (1.0 - opts->top_p) * total / (double)sampler->vocab;
    for (size_t i = 0; i < sampler->vocab; i++)
        if ((double)sampler->weight[i] >= light) sampler->kept[count++] = (struct ash_candidate){logits[i], (int32_t)i};
    *total_out = total;
    return count;
}

/* top-p over the whole vocabulary: tokens come off a heap, likeliest first, until they reach top_p. */
static struct survivors survive_top_p(struct ash_sampler *sampler, const struct ash_sampler_opts *opts,
                                      const float *logits, float top)
{
    struct ash_candidate *heap = sampler->kept;
    struct survivors left = {0};
    double total = 0.0;
    size_t heavy = keep_heavy(sampler, opts, logits, top, &total), in_heap = heavy;

    make_heap(heap, heavy, false);
    while (in_heap > 0 && (left.count == 0 || left.total < opts->top_p * total)) {
        struct ash_candidate best = heap[0];
        float weight = weigh(best.logit, top, filter_temperature(opts));

        if ((double)weight < opts->min_p) break;
        left.total += (double)weight;
        sampler->weight[left.count++] = weight;
        in_heap--;
        heap[0] = heap[in_heap];
        sift_down(heap, in_heap, 0, false);
        heap[in_heap] = best; /* taken tokens are kept after the heap: the i-th one at heavy - 1 - i */
    }
    for (size_t i = 0, j = heavy - 1; i < j; i++, j--) {
        struct ash_candidate swapped = heap[i];

        heap[i] = heap[j];
        heap[j] = swapped;
    }
    return left;
}

/* No top-k and no top-p, but all in order: what typical needs. */
static struct survivors survive_min_p(struct ash_sampler *sampler, const struct ash_sampler_opts *opts,
                                      const float *logits)
{
    return survive_top_k(sampler, opts, logits, sampler->vocab);
}

/* The surprise that a token brings on average, over the survivors. */
static float expected_surprise(const struct ash_sampler *sampler, struct survivors all)
{
    float expected = 0.0f;

    for (size_t i = 0; i < all.count; i++) {
        float p = (float)((double)sampler->weight[i] / all.total);

        if (p > 0.0f) expected = expected - p * ash_logf(p);
    }
    return expected;
}

/* Only the fewest survivors whose surprise is nearest to the expected one, and that reach typical_p. A heap gives them
 * one by one, nearest first; the likelier one of two at the same distance. */
static struct survivors survive_typical(struct ash_sampler *sampler, double typical_p, struct survivors all)
{
    float expected = expected_surprise(sampler, all), *weights = sampler->edited; /* logits are not read any more */
    struct ash_candidate *heap = sampler->order;
    struct survivors left = {0};
    size_t in_heap = all.count;

    for (size_t i = 0; i < all.count; i++) {
        float gap = -ash_logf((float)((double)sampler->weight[i] / all.total)) - expected;

        heap[i] = (struct ash_candidate){gap < 0.0f ? gap : -gap, (int32_t)i};
    }
    make_heap(heap, in_heap, false);
    while (in_heap > 0 && (left.count == 0 || left.total < typical_p * all.total)) {
        struct ash_candidate nearest = heap[0];

        weights[left.count++] = sampler->weight[nearest.id];
        left.total += (double)sampler->weight[nearest.id];
        in_heap--;
        heap[0] = heap[in_heap];
        sift_down(heap, in_heap, 0, false);
        heap[in_heap] = nearest;
    }
    for (size_t i = 0; i < left.count; i++) {
        sampler->weight[i] = weights[i];
        heap[all.count - 1 - i].logit = sampler->kept[heap[all.count - 1 - i].id].logit;
        heap[all.count - 1 - i].id = sampler->kept[heap[all.count - 1 - i].id].id;
    }
    for (size_t i = 0; i < left.count; i++)
        sampler->kept[i] = heap[all.count - 1 - i];
    return left;
}

/* What the filters left, weighed anew at the temperature. */
static struct survivors warm(struct ash_sampler *sampler, double temperature, float top, struct survivors all)
{
    struct survivors left = {.count = all.count};

    for (size_t i = 0; i < all.count; i++) {
        sampler->weight[i] = weigh(sampler->kept[i].logit, top, temperature);
        left.total += (double)sampler->weight[i];
    }
    return left;
}

/* No filter but min-p: the order of ids does, nothing is sorted. */
static int32_t sample_all(struct ash_sampler *sampler, const struct ash_choice *choice, const float *logits,
                          size_t best)
{
    double total = 0.0;

    for (size_t i = 0; i < sampler->vocab; i++) {
        float weight = weigh(logits[i], logits[best], filter_temperature(choice->opts));
        bool is_kept = (double)weight >= choice->opts->min_p;

        if (choice->opts->filters_first) weight = weigh(logits[i], logits[best], choice->opts->temperature);
        sampler->weight[i] = is_kept ? weight : 0.0f;
        total += (double)sampler->weight[i];
    }
    return (int32_t)draw(sampler, choice, sampler->vocab, total, best);
}

int ash_sampler_next(struct ash_sampler *sampler, const struct ash_choice *choice, int32_t *id_out, struct ash_err *err)
{
    const struct ash_sampler_opts *opts = choice->opts;
    bool has_top_k = opts->top_k > 0 && opts->top_k < sampler->vocab;
    struct survivors left;
    const float *logits;
    size_t best = 0;
    float top;
    int rc;

    ash_assert(choice->logits != NULL && (choice->counts != NULL || !ash_sampler_has_penalties(opts)));
    sampler->kept_count = 0;
    logits = ash_sampler_edit(sampler, choice);
    rc = find_best(logits, sampler->vocab, choice->position, &best, err);
    if (rc < 0) return rc;
    if (opts->temperature == 0.0) {
        *id_out = (int32_t)best;
        return 0;
    }
    if (!has_top_k && opts->top_p >= 1.0 && opts->typical_p >= 1.0) {
        *id_out = sample_all(sampler, choice, logits, best);
        return 0;
    }
    top = logits[best]; /* typical writes over the logits */
    if (has_top_k)
        left = survive_top_k(sampler, opts, logits, opts->top_k);
    else if (opts->top_p < 1.0)
        left = survive_top_p(sampler, opts, logits, top);
    else
        left = survive_min_p(sampler, opts, logits);
    if (opts->typical_p < 1.0) left = survive_typical(sampler, opts->typical_p, left);
    if (opts->filters_first) left = warm(sampler, opts->temperature, top, left);
    sampler->kept_count = left.count;
    *id_out = sampler->kept[draw(sampler, choice, left.count, left.total, 0)].id;
    return 0;
}

size_t ash_sampler_count_kept(const struct ash_sampler *sampler)
{
    return sampler->kept_count;
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

size_t ash_sampler_get_kept(const struct ash_sampler *sampler, int32_t *ids)
{
    for (size_t i = 0; i < sampler->kept_count; i++)
        ids[i] = sampler->kept[i].id;
    qsort(ids, sampler->kept_count, sizeof(*ids), compare_ids);
    return sampler->kept_count;
}
