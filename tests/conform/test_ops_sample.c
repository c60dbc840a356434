/* Choosing tokens on every backend: the reference's ids for drawn settings, edits, ties and rows that cannot be chosen
 * from. */
#define PRODUCTS_UNDER_TEST PRODUCTS_NONE
#include "conform/ops_harness.h"

#include <math.h>

static double draw_share(struct tape *tape)
{
    static const double shares[] = {1.0, 1.0, 0.95, 0.5, 0.1, 1e-3, 0.999999, 0.9};

    return shares[draw_below(tape, ASH_COUNT(shares))];
}

static const uint64_t *draw_mask(struct tape *tape, size_t vocab)
{
    uint64_t *mask = tape_alloc(tape, (vocab + 63) / 64 * sizeof(*mask));

    for (size_t i = 0; i < (vocab + 63) / 64; i++)
        mask[i] = draw_bool(tape) ? UINT64_MAX : ash_rng_u64(tape->seed, 3, tape->drawn++);
    return mask;
}

/* Ids of the vocabulary and some beside it, each once. */
static const struct ash_token_count *draw_counts(struct tape *tape, size_t vocab, size_t count)
{
    struct ash_token_count *counts = tape_alloc(tape, count * sizeof(*counts));
    int32_t first = (int32_t)draw_below(tape, vocab) - 1;

    for (size_t i = 0; i < count; i++)
        counts[i] = (struct ash_token_count){first + 3 * (int32_t)i, (uint32_t)draw_below(tape, 3),
                                             (uint32_t)draw_below(tape, 3)};
    return counts;
}

static void draw_edits(struct tape *tape, size_t vocab, struct ash_sample_row *row)
{
    struct ash_logit_bias *bias;

    row->bias_count = draw_below(tape, 6);
    row->bias = bias = tape_alloc(tape, (row->bias_count + 1) * sizeof(*bias));
    for (size_t i = 0; i < row->bias_count; i++)
        bias[i] = (struct ash_logit_bias){(int32_t)draw_below(tape, vocab + 2) - 1, (float)draw_below(tape, 9) - 4.0f};
    if (draw_bool(tape)) {
        row->count_count = draw_below(tape, 40);
        row->counts = draw_counts(tape, vocab, row->count_count + 1);
        row->repetition = draw_bool(tape) ? 1.0f : 1.3f;
        row->presence = draw_bool(tape) ? 0.0f : 0.7f;
        row->frequency = draw_bool(tape) ? 0.0f : -0.2f;
    }
    if (draw_below(tape, 4) == 0) {
        row->allowed_count = draw_below(tape, 5);
        row->allowed = draw_ids(tape, row->allowed_count + 1, vocab + 1);
    }
    if (draw_below(tape, 4) == 0) row->mask = draw_mask(tape, vocab);
    if (draw_below(tape, 4) == 0) {
        row->forbidden_count = draw_below(tape, 5);
        row->forbidden = draw_ids(tape, row->forbidden_count + 1, vocab + 1);
    }
}

static struct ash_sample_row draw_row(struct tape *tape, size_t vocab)
{
    static const double temperatures[] = {0.0, 1.0, 1.0, 0.7, 0.01, 3.0, 100.0};
    struct ash_sample_row row = {.temperature = temperatures[draw_below(tape, ASH_COUNT(temperatures))],
                                 .top_p = draw_share(tape),
                                 .typical_p = draw_share(tape),
                                 .top_k = draw_bool(tape) ? draw_below(tape, 60) : 0,
                                 .min_p = draw_bool(tape) ? 0.0 : 0.05 * (double)draw_below(tape, 21),
                                 .filters_first = draw_bool(tape),
                                 .random = ash_rng_u64(tape->seed, 4, tape->drawn++)};

    if (draw_below(tape, 16) == 0) row.random = draw_bool(tape) ? UINT64_MAX : 0;
    if (draw_bool(tape)) draw_edits(tape, vocab, &row);
    return row;
}

/* Ties, forbidden values, and rarely broken ones. */
static void salt_row(struct tape *tape, float *logits, size_t vocab)
{
    size_t ties = draw_below(tape, vocab + 1);
    float tied = draw_bool(tape) ? 0.0f : 3.5f;

    for (size_t i = 0; i < ties; i++)
        logits[draw_below(tape, vocab)] = i % 2 == 0 ? tied : -tied;
    for (size_t i = draw_below(tape, 4); i-- > 0;)
        logits[draw_below(tape, vocab)] = -INFINITY;
    if (draw_below(tape, 8) == 0) logits[draw_below(tape, vocab)] = draw_bool(tape) ? NAN : INFINITY;
}

/* A GPU whose table does not choose leaves that to the host. */
static void choose(struct ash_exec *exec, const struct ash_sample_args *args)
{
    struct ash_exec host;

    if (exec->ops->sample != NULL) {
        exec->ops->sample->choose(exec, args);
        return;
    }
    exec_init(&host, "ref", 1);
    host.ops->sample->choose(&host, args);
    ash_exec_fini(&host);
}

static void scenario_choose(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 12), vocab = draw_bool(tape) ? draw_size(tape, 400) : 1000 + draw_below(tape, 4000);
    size_t stride = vocab + (draw_bool(tape) ? draw_below(tape, 9) : 0);
    float *logits = draw_floats(tape, rows * stride, draw_bool(tape) ? 2.0f : 8.0f);
    struct ash_sample_row *row = calloc(rows, sizeof(*row));
    int32_t *ids = draw_ids(tape, rows, 5), *next = draw_bool(tape) ? draw_ids(tape, rows, 5) : NULL;

    assert_non_null(row);
    for (size_t r = 0; r < rows; r++) {
        row[r] = draw_row(tape, vocab);
        if (draw_bool(tape)) salt_row(tape, logits + r * stride, vocab);
    }
    choose(exec,
           &(struct ash_sample_args){
               .rows = rows, .vocab = vocab, .logits = logits, .stride = stride, .row = row, .ids = ids, .next = next});
    memset(row, 0xa5, rows * sizeof(*row)); /* the op has copied its arguments */
    tape_words(tape, ids, rows);
    if (next != NULL) tape_words(tape, next, rows);
    free(row);
}

static void tokens_are_chosen_alike(void **state)
{
    (void)state;
    check_scenario(scenario_choose, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_chosen_alike)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
