/* Sampling: scan, keep, draw. Costs a pass or two over the vocabulary plus the work on what is kept: top-k keeps a heap
 * of k, top-p takes tokens off a heap until they are enough, and with neither of them nothing is sorted at all.
 * Exponentials are ash_expf and sums are doubles added in one fixed order: every machine draws the same token. */
#include "serve/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/rng.h"
#include "compute/mathf.h"

#define SAMPLER_STREAM 0x73616d706c657221ull /* keeps these draws apart from every other use of the same seed */

struct candidate {
    float logit;
    int32_t id;
};

struct ash_sampler {
    struct ash_sampler_opts opts;
    size_t vocab;
    struct candidate *kept; /* [vocab] */
    float *weight;          /* [vocab] */
    float *penalised;       /* [vocab], NULL without a penalty */
};

struct ash_sampler_opts ash_sampler_defaults(void)
{
    return (struct ash_sampler_opts){.top_p = 1.0, .repetition_penalty = 1.0};
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
    if (!(opts->repetition_penalty > 0.0 && opts->repetition_penalty <= ASH_SAMPLER_PENALTY_MAX))
        return ash_err_set(err, -EINVAL, "repetition_penalty %g is not above 0 and at most %g",
                           opts->repetition_penalty, ASH_SAMPLER_PENALTY_MAX);
    return 0;
}

int ash_sampler_open(const struct ash_sampler_opts *opts, size_t vocab, struct ash_sampler **sampler_out,
                     struct ash_err *err)
{
    struct ash_sampler *sampler;
    int rc = ash_sampler_check(opts, err);

    if (rc < 0) return rc;
    if (vocab == 0 || vocab > INT32_MAX) return ash_err_set(err, -EINVAL, "sampler: a vocabulary of %zu tokens", vocab);
    sampler = calloc(1, sizeof(*sampler));
    if (sampler == NULL) goto fail;
    sampler->opts = *opts;
    sampler->vocab = vocab;
    sampler->kept = calloc(vocab, sizeof(*sampler->kept));
    sampler->weight = calloc(vocab, sizeof(*sampler->weight));
    if (sampler->kept == NULL || sampler->weight == NULL) goto fail;
    if (opts->repetition_penalty != 1.0) {
        sampler->penalised = calloc(vocab, sizeof(*sampler->penalised));
        if (sampler->penalised == NULL) goto fail;
    }
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
    free(sampler->weight);
    free(sampler->penalised);
    free(sampler);
}

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

/* Each token that occurred is penalised once, however often it occurred: the original logit is read, never the changed
 * one. */
static const float *apply_penalty(struct ash_sampler *sampler, const float *logits, const int32_t *earlier,
                                  size_t earlier_count)
{
    float penalty = (float)sampler->opts.repetition_penalty;

    for (size_t i = 0; i < sampler->vocab; i++)
        sampler->penalised[i] = logits[i];
    for (size_t i = 0; i < earlier_count; i++) {
        if (earlier[i] < 0 || (size_t)earlier[i] >= sampler->vocab) continue;
        float logit = logits[earlier[i]];

        sampler->penalised[earlier[i]] = logit > 0.0f ? logit / penalty : logit * penalty;
    }
    return sampler->penalised;
}

/* Is a likelier than b? The lower id wins a tie, so that the order is total and the same everywhere. */
static bool likelier(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restore the heap below node: the root is the least likely candidate where least is set, else the likeliest. */
static void sift_down(struct candidate *heap, size_t count, size_t node, bool least)
{
    struct candidate moved = heap[node];

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

static void make_heap(struct candidate *heap, size_t count, bool least)
{
    for (size_t node = count / 2; node-- > 0;)
        sift_down(heap, count, node, least);
}

/* kept[0..k): the k likeliest tokens, likeliest first. Most tokens of a vocabulary lose against the root and cost one
 * comparison. */
static void keep_top_k(struct candidate *kept, size_t k, const float *logits, size_t vocab)
{
    for (size_t i = 0; i < k; i++)
        kept[i] = (struct candidate){logits[i], (int32_t)i};
    make_heap(kept, k, true);
    for (size_t i = k; i < vocab; i++) {
        struct candidate next = {logits[i], (int32_t)i};

        if (!likelier(next, kept[0])) continue;
        kept[0] = next;
        sift_down(kept, k, 0, true);
    }
    for (size_t left = k; left > 1; left--) { /* the least likely goes to the end, again and again */
        struct candidate least = kept[0];

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

/* Index of the first weight at which the running sum exceeds a uniform share of total; last where rounding leaves
 * that share at the very end. A weight of 0 is never chosen. */
static size_t draw(const struct ash_sampler *sampler, size_t count, double total, uint64_t position, size_t last)
{
    double mark = ash_rng_uniform(sampler->opts.seed, SAMPLER_STREAM, position) * total, sum = 0.0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)sampler->weight[i];
        if (sum > mark) return i;
    }
    return last;
}

/* top-k, then perhaps top-p and min-p, all on the sorted survivors. */
static int32_t sample_top_k(struct ash_sampler *sampler, const float *logits, uint64_t position)
{
    size_t k = sampler->opts.top_k, count = 0;
    double total = 0.0, sum = 0.0;

    keep_top_k(sampler->kept, k, logits, sampler->vocab);
    for (size_t i = 0; i < k; i++) {
        sampler->weight[i] = weigh(sampler->kept[i].logit, sampler->kept[0].logit, sampler->opts.temperature);
        total += (double)sampler->weight[i];
    }
    while (count < k && (count == 0 || sum < sampler->opts.top_p * total)) {
        if ((double)sampler->weight[count] < sampler->opts.min_p) break;
        sum += (double)sampler->weight[count++];
    }
    return sampler->kept[draw(sampler, count, sum, position, 0)].id;
}

/* The tokens that top-p may need, in kept, and *total_out of all weights. Tokens lighter than (1 - top_p) * total /
 * vocab weigh less than (1 - top_p) * total together, so the others reach top_p without them; they are few. */
static size_t keep_heavy(struct ash_sampler *sampler, const float *logits, float top, double *total_out)
{
    double total = 0.0, light;
    size_t count = 0;

    for (size_t i = 0; i < sampler->vocab; i++) {
        sampler->weight[i] = weigh(logits[i], top, sampler->opts.temperature);
        total += (double)sampler->weight[i];
    }
    light = (1.0 - sampler->opts.top_p) * total / (double)sampler->vocab;
    for (size_t i = 0; i < sampler->vocab; i++)
        if ((double)sampler->weight[i] >= light) sampler->kept[count++] = (struct candidate){logits[i], (int32_t)i};
    *total_out = total;
    return count;
}

/* top-p over the whole vocabulary: tokens come off a heap, likeliest first, until they reach top_p. */
static int32_t sample_top_p(struct ash_sampler *sampler, const float *logits, float top, uint64_t position)
{
    struct candidate *heap = sampler->kept;
    double total = 0.0, sum = 0.0;
    size_t heavy = keep_heavy(sampler, logits, top, &total), left = heavy, count = 0;

    make_heap(heap, heavy, false);
    while (left > 0 && (count == 0 || sum < sampler->opts.top_p * total)) {
        struct candidate best = heap[0];
        float weight = weigh(best.logit, top, sampler->opts.temperature);

        if ((double)weight < sampler->opts.min_p) break;
        sum += (double)weight;
        sampler->weight[count++] = weight;
        left--;
        heap[0] = heap[left];
        sift_down(heap, left, 0, false);
        heap[left] = best; /* taken tokens are kept after the heap: the i-th one at heavy - 1 - i */
    }
    return heap[heavy - 1 - draw(sampler, count, sum, position, 0)].id;
}

/* Neither top-k nor top-p: the order of ids does, nothing is sorted. */
static int32_t sample_all(struct ash_sampler *sampler, const float *logits, size_t best, uint64_t position)
{
    double total = 0.0;

    for (size_t i = 0; i < sampler->vocab; i++) {
        float weight = weigh(logits[i], logits[best], sampler->opts.temperature);

        sampler->weight[i] = (double)weight >= sampler->opts.min_p ? weight : 0.0f;
        total += (double)sampler->weight[i];
    }
    return (int32_t)draw(sampler, sampler->vocab, total, position, best);
}

int ash_sampler_next(struct ash_sampler *sampler, const float *logits, const int32_t *earlier, size_t earlier_count,
                     uint64_t position, int32_t *id_out, struct ash_err *err)
{
    const struct ash_sampler_opts *opts = &sampler->opts;
    size_t best = 0;
    int rc;

    ash_assert(logits != NULL && (earlier != NULL || earlier_count == 0));
    if (sampler->penalised != NULL) logits = apply_penalty(sampler, logits, earlier, earlier_count);
    rc = find_best(logits, sampler->vocab, position, &best, err);
    if (rc < 0) return rc;
    if (opts->temperature == 0.0)
        *id_out = (int32_t)best;
    else if (opts->top_k > 0 && opts->top_k < sampler->vocab)
        *id_out = sample_top_k(sampler, logits, position);
    else if (opts->top_p < 1.0)
        *id_out = sample_top_p(sampler, logits, logits[best], position);
    else
        *id_out = sample_all(sampler, logits, best, position);
    return 0;
}
