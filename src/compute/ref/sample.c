/* Sampling in plain C: sort, filter, draw. */
#include "compute/ref/ref_priv.h"

#include <stdlib.h>
#include "base/assert.h"
#include "compute/sample.h"

/* A token that is still there. */
struct token {
    int32_t id;
    float logit, weight;
    float distance; /* of its surprise */
    size_t place;   /* in the order of logits */
};

struct tokens {
    struct token *list;
    size_t count;
};

static int by_logit(const void *left, const void *right)
{
    const struct token *a = left, *b = right;

    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int by_distance(const void *left, const void *right)
{
    const struct token *a = left, *b = right;

    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static uint64_t total_of(const struct tokens *tokens)
{
    uint64_t total = 0;

    for (size_t i = 0; i < tokens->count; i++)
        total += ash_sample_units(tokens->list[i].weight);
    return total;
}

/* Only the first tokens whose weights reach a share of all. */
static void keep_share(struct tokens *tokens, double share)
{
    uint64_t need = ash_sample_need(share, total_of(tokens)), sum = 0;
    size_t count = 0;

    while (count < tokens->count && sum < need)
        sum += ash_sample_units(tokens->list[count++].weight);
    tokens->count = count;
}

static void keep_likely(struct tokens *tokens, double min_p)
{
    size_t count = 0;

    for (size_t i = 0; i < tokens->count; i++)
        if ((double)tokens->list[i].weight >= min_p) tokens->list[count++] = tokens->list[i];
    tokens->count = count;
}

static void keep_typical(struct tokens *tokens, double typical_p)
{
    uint64_t total = total_of(tokens), expected = 0;

    for (size_t i = 0; i < tokens->count; i++)
        expected += ash_sample_surprise(ash_sample_share(tokens->list[i].weight, total));
    for (size_t i = 0; i < tokens->count; i++) {
        tokens->list[i].distance = ash_sample_distance(ash_sample_share(tokens->list[i].weight, total), expected);
        tokens->list[i].place = i;
    }
    qsort(tokens->list, tokens->count, sizeof(*tokens->list), by_distance);
    keep_share(tokens, typical_p);
}

static int32_t draw(const struct tokens *tokens, uint64_t random)
{
    uint64_t mark = ash_sample_mark(random, total_of(tokens)), sum = 0;

    for (size_t i = 0; i < tokens->count; i++) {
        sum += ash_sample_units(tokens->list[i].weight);
        if (sum > mark) return tokens->list[i].id;
    }
    return tokens->list[0].id;
}

static int32_t choose_row(const struct ash_sample_row *row, const float *logits, size_t vocab, struct token *list)
{
    int32_t best = ash_sample_best(logits, vocab);
    struct tokens tokens = {list, vocab};

    if (best < 0 || row->temperature == 0.0) return best;
    for (size_t i = 0; i < vocab; i++)
        list[i] = (struct token){
            .id = (int32_t)i,
            .logit = logits[i],
            .weight = ash_sample_weight(logits[i], logits[best], row->filters_first ? 1.0 : row->temperature)};
    if (ash_sample_sorts(row, vocab)) qsort(list, vocab, sizeof(*list), by_logit);
    if (row->top_k > 0 && row->top_k < vocab) tokens.count = row->top_k;
    if (row->top_p < 1.0) keep_share(&tokens, row->top_p);
    keep_likely(&tokens, row->min_p);
    if (row->typical_p < 1.0) keep_typical(&tokens, row->typical_p);
    for (size_t i = 0; i < tokens.count && row->filters_first; i++)
        list[i].weight = ash_sample_weight(list[i].logit, logits[best], row->temperature);
    return draw(&tokens, row->random);
}

static void choose(struct ash_exec *exec, const struct ash_sample_args *args)
{
    size_t list_bytes = args->vocab * sizeof(struct token), row_bytes = args->vocab * sizeof(float);
    unsigned char *memory = ash_exec_scratch(exec, 0, list_bytes + 2 * row_bytes);
    float *edited = (float *)(void *)(memory + list_bytes), *spare = edited + args->vocab;

    ash_assert(args->vocab > 0 && args->vocab <= ASH_SAMPLE_VOCAB_MAX);
    for (size_t r = 0; r < args->rows; r++) {
        const float *logits =
            ash_sample_edit(&args->row[r], args->logits + r * args->stride, args->vocab, edited, spare);

        args->ids[r] = choose_row(&args->row[r], logits, args->vocab, (struct token *)(void *)memory);
        if (args->next != NULL) args->next[r] = args->ids[r] < 0 ? 0 : args->ids[r];
    }
}

const struct ash_sample_ops ash_ref_sample = {.choose = choose};
