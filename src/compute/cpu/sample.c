/* Sampling on the CPU: a pass or two over the vocabulary plus the work on what is kept. top-k keeps a heap of k, top-p
 * takes tokens off a heap until they are enough, and with neither of them nothing is sorted at all. */
#include "compute/cpu/sample.h"

#include <math.h>

#include "base/assert.h"
#include "compute/cpu.h"
#include "compute/sample.h"

size_t ash_sample_scratch_bytes(size_t vocab)
{
    return vocab * (2 * sizeof(struct ash_candidate) + 2 * sizeof(float));
}

struct ash_sample_scratch ash_sample_scratch_at(void *memory, size_t vocab)
{
    struct ash_candidate *candidates = memory;
    float *floats = (float *)(void *)(candidates + 2 * vocab);

    return (struct ash_sample_scratch){
        .kept = candidates, .order = candidates + vocab, .weight = floats, .edited = floats + vocab};
}

/* ---- heaps ------------------------------------------------------------------------------------------------------- */

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

/* Take the root off; the heap ends one earlier, and what was taken is there. */
static struct ash_candidate take_first(struct ash_candidate *heap, size_t count, bool least)
{
    struct ash_candidate first = heap[0];

    heap[0] = heap[count - 1];
    sift_down(heap, count - 1, 0, least);
    heap[count - 1] = first;
    return first;
}

static void reverse(struct ash_candidate *list, size_t count)
{
    for (size_t i = 0, j = count; i + 1 < j; i++) {
        struct ash_candidate swapped = list[i];

        list[i] = list[--j];
        list[j] = swapped;
    }
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
    for (size_t left = k; left > 1; left--) /* the least likely goes to the end, again and again */
        take_first(kept, left, true);
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

/* Candidates likeliest first, in kept, with their weights. */
struct survivors {
    size_t count;
    uint64_t total; /* of their units */
};

/* One row's choice. */
struct choice {
    struct ash_sample_scratch *s;
    const struct ash_sample_row *row;
    const float *logits;
    size_t vocab;
    float top;
};

/* At which temperature the filters look at the weights. */
static double filter_temperature(const struct ash_sample_row *row)
{
    return row->filters_first ? 1.0 : row->temperature;
}

/* Weights of the first count of kept, and their sum. */
static uint64_t weigh_kept(const struct choice *c, size_t count, double temperature)
{
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        c->s->weight[i] = ash_sample_weight(c->s->kept[i].logit, c->top, temperature);
        total += ash_sample_units(c->s->weight[i]);
    }
    return total;
}

/* top-k, then perhaps top-p, on the sorted survivors. */
static struct survivors survive_top_k(const struct choice *c, size_t k)
{
    struct survivors left = {0};
    uint64_t total, need;

    keep_top_k(c->s->kept, k, c->logits, c->vocab);
    total = weigh_kept(c, k, filter_temperature(c->row));
    if (c->row->top_p >= 1.0) return (struct survivors){k, total};
    need = ash_sample_need(c->row->top_p, total);
    while (left.count < k && left.total < need)
        left.total += ash_sample_units(c->s->weight[left.count++]);
    return left;
}

/* The tokens that top-p may need, in kept, and *total_out of all units. Tokens lighter than (1 - top_p) * total / vocab
 * weigh less than (1 - top_p) * total together, so the others reach top_p without them; they are few. */
static size_t keep_heavy(const struct choice *c, uint64_t *total_out)
{
    uint64_t total = 0, need, light;
    size_t count = 0;

    for (size_t i = 0; i < c->vocab; i++) {
        c->s->weight[i] = ash_sample_weight(c->logits[i], c->top, filter_temperature(c->row));
        total += ash_sample_units(c->s->weight[i]);
    }
    need = ash_sample_need(c->row->top_p, total);
    light = total > need ? (total - need) / c->vocab / 2 : 0; /* half: exponentials need not ascend to the last bit */
    for (size_t i = 0; i < c->vocab; i++)
        if (ash_sample_units(c->s->weight[i]) >= light)
            c->s->kept[count++] = (struct ash_candidate){c->logits[i], (int32_t)i};
    *total_out = total;
    return count;
}

/* top-p over the whole vocabulary: tokens come off a heap, likeliest first, until they reach top_p. */
static struct survivors survive_top_p(const struct choice *c)
{
    struct ash_candidate *heap = c->s->kept;
    struct survivors left = {0};
    uint64_t total = 0, need;
    size_t heavy = keep_heavy(c, &total), in_heap = heavy;

    need = ash_sample_need(c->row->top_p, total);
    make_heap(heap, heavy, false);
    while (in_heap > 0 && left.total < need) {
        struct ash_candidate best = take_first(heap, in_heap--, false);

        c->s->weight[left.count] = ash_sample_weight(best.logit, c->top, filter_temperature(c->row));
        left.total += ash_sample_units(c->s->weight[left.count++]);
    }
    reverse(heap, heavy); /* the first that was taken is the last */
    return left;
}

/* min-p, of what is sorted already. */
static struct survivors survive_min_p(const struct choice *c, struct survivors all)
{
    struct survivors left = {0};

    if (c->row->min_p <= 0.0) return all;
    for (size_t i = 0; i < all.count; i++) {
        if ((double)c->s->weight[i] < c->row->min_p) continue;
        c->s->kept[left.count] = c->s->kept[i];
        c->s->weight[left.count] = c->s->weight[i];
        left.total += ash_sample_units(c->s->weight[left.count++]);
    }
    return left;
}

/* Only the fewest survivors whose surprise is nearest to the expected one, and that reach typical_p. A heap gives them
 * one by one, nearest first; the likelier one of two at the same distance. */
static struct survivors survive_typical(const struct choice *c, struct survivors all)
{
    float *weights = c->s->edited; /* logits are not read any more */
    struct ash_candidate *heap = c->s->order;
    struct survivors left = {0};
    uint64_t expected = 0, need = ash_sample_need(c->row->typical_p, all.total);
    size_t in_heap = all.count;

    for (size_t i = 0; i < all.count; i++)
        expected += ash_sample_surprise(ash_sample_share(c->s->weight[i], all.total));
    for (size_t i = 0; i < all.count; i++) {
        float distance = ash_sample_distance(ash_sample_share(c->s->weight[i], all.total), expected);

        heap[i] = (struct ash_candidate){-distance, (int32_t)i};
    }
    make_heap(heap, in_heap, false);
    while (in_heap > 0 && left.total < need) {
        struct ash_candidate nearest = take_first(heap, in_heap--, false);

        weights[left.count++] = c->s->weight[nearest.id];
        left.total += ash_sample_units(c->s->weight[nearest.id]);
    }
    reverse(heap, all.count);
    for (size_t i = 0; i < left.count; i++) {
        c->s->weight[i] = weights[i];
        heap[i] = c->s->kept[heap[i].id];
    }
    for (size_t i = 0; i < left.count; i++)
        c->s->kept[i] = heap[i];
    return left;
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

/* Index of the first weight at which the running sum exceeds the mark; 0 where all weigh nothing. */
static size_t draw(const struct choice *c, size_t count, uint64_t total)
{
    uint64_t mark = ash_sample_mark(c->row->random, total), sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += ash_sample_units(c->s->weight[i]);
        if (sum > mark) return i;
    }
    return 0;
}

/* No filter but min-p: the order of ids does, nothing is sorted. */
static int32_t choose_any(const struct choice *c)
{
    uint64_t total = 0;

    for (size_t i = 0; i < c->vocab; i++) {
        float weight = ash_sample_weight(c->logits[i], c->top, filter_temperature(c->row));
        bool is_kept = (double)weight >= c->row->min_p;

        if (c->row->filters_first) weight = ash_sample_weight(c->logits[i], c->top, c->row->temperature);
        c->s->weight[i] = is_kept ? weight : 0.0f;
        total += ash_sample_units(c->s->weight[i]);
    }
    return (int32_t)draw(c, c->vocab, total);
}

int32_t ash_sample_choose(struct ash_sample_scratch *scratch, const struct ash_sample_row *row, const float *logits,
                          size_t vocab)
{
    struct choice c = {.s = scratch, .row = row, .vocab = vocab};
    struct survivors left;
    int32_t best;

    scratch->kept_count = 0;
    c.logits = ash_sample_edit(row, logits, vocab, scratch->edited, scratch->weight);
    best = ash_sample_best(c.logits, vocab);
    if (best < 0 || row->temperature == 0.0) return best;
    c.top = c.logits[best];
    if (!ash_sample_sorts(row, vocab)) return choose_any(&c);
    if ((row->top_k > 0 && row->top_k < vocab) || row->top_p >= 1.0)
        left = survive_top_k(&c, row->top_k > 0 && row->top_k < vocab ? row->top_k : vocab);
    else
        left = survive_top_p(&c);
    left = survive_min_p(&c, left);
    if (row->typical_p < 1.0) left = survive_typical(&c, left);
    if (row->filters_first) left.total = weigh_kept(&c, left.count, row->temperature);
    scratch->kept_count = left.count;
    return scratch->kept[draw(&c, left.count, left.total)].id;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct rows {
    struct ash_exec *exec;
    const struct ash_sample_args *args;
};

static void choose_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rows *op = ctx;
    const struct ash_sample_args *args = op->args;
    void *memory = ash_exec_scratch(op->exec, worker, ash_sample_scratch_bytes(args->vocab));
    struct ash_sample_scratch scratch = ash_sample_scratch_at(memory, args->vocab);

    for (size_t r = begin; r < end; r++) {
        args->ids[r] = ash_sample_choose(&scratch, &args->row[r], args->logits + r * args->stride, args->vocab);
        if (args->next != NULL) args->next[r] = args->ids[r] < 0 ? 0 : args->ids[r];
    }
}

static void choose(struct ash_exec *exec, const struct ash_sample_args *args)
{
    struct rows op = {exec, args};

    ash_assert(args->vocab > 0 && args->vocab <= ASH_SAMPLE_VOCAB_MAX);
    ash_workers_run(exec->workers, args->rows, 1, choose_rows, &op);
}

const struct ash_sample_ops ash_cpu_sample = {.choose = choose};
