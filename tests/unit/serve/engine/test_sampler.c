/* The sampler: greedy choice and ties, each filter alone and together, the distribution that it draws from, and input
 * that cannot be sampled. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "serve/engine/sampler.h"

static struct ash_sampler *open_sampler(size_t vocab)
{
    struct ash_sampler *sampler = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_sampler_open(vocab, &sampler, &err), 0);
    return sampler;
}

/* Earlier tokens, all of them of the answer. */
struct earlier {
    const int32_t *ids;
    size_t count;
};

static int next(struct ash_sampler *sampler, const struct ash_sampler_opts *opts, const float *logits,
                struct earlier earlier, uint64_t position, int32_t *id_out, struct ash_err *err)
{
    struct ash_token_counts counts = {0};
    struct ash_choice choice = {.opts = opts, .logits = logits, .position = position, .counts = &counts};
    int rc;

    assert_int_equal(ash_token_counts_init(&counts, earlier.count), 0);
    for (size_t i = 0; i < earlier.count; i++)
        ash_token_counts_add(&counts, earlier.ids[i], true);
    rc = ash_sampler_next(sampler, &choice, id_out, err);
    ash_token_counts_fini(&counts);
    return rc;
}

static const struct earlier none = {NULL, 0};

/* One choice with fresh state: what any position gives must not depend on the positions before. */
static int32_t choose(struct ash_sampler_opts opts, const float *logits, size_t vocab, uint64_t position)
{
    struct ash_sampler *sampler = open_sampler(vocab);
    struct ash_err err = {0};
    int32_t id = -1;

    assert_int_equal(next(sampler, &opts, logits, none, position, &id, &err), 0);
    ash_sampler_close(sampler);
    return id;
}

/* How often each id is drawn over positions [0, draws). */
static void count_draws(struct ash_sampler_opts opts, const float *logits, size_t vocab, size_t draws, size_t *hits)
{
    struct ash_sampler *sampler = open_sampler(vocab);
    struct ash_err err = {0};

    memset(hits, 0, vocab * sizeof(*hits));
    for (size_t i = 0; i < draws; i++) {
        int32_t id = -1;

        assert_int_equal(next(sampler, &opts, logits, none, i, &id, &err), 0);
        assert_in_range(id, 0, vocab - 1);
        hits[id]++;
    }
    ash_sampler_close(sampler);
}

/* The hits must be as near to draws * probability as chance allows: 5 standard deviations for every id. */
static void check_hits(const size_t *hits, const double *probability, size_t vocab, size_t draws)
{
    for (size_t i = 0; i < vocab; i++) {
        double expected = probability[i] * (double)draws;
        double spread = sqrt((double)draws * probability[i] * (1.0 - probability[i]));

        if (probability[i] == 0.0) assert_int_equal(hits[i], 0);
        assert_true(fabs((double)hits[i] - expected) <= 5.0 * spread + 1e-9);
    }
}

/* Probabilities of the kept ids (keep NULL: all) at a temperature, by the C library. */
static void reference(const float *logits, const bool *keep, size_t vocab, double temperature, double *probability)
{
    double total = 0.0;

    for (size_t i = 0; i < vocab; i++) {
        probability[i] = keep == NULL || keep[i] ? exp((double)logits[i] / temperature) : 0.0;
        total += probability[i];
    }
    for (size_t i = 0; i < vocab; i++)
        probability[i] /= total;
}

static const float small[] = {1.0f, 3.0f, 2.0f, -1.0f, 3.0f, 0.0f};
#define SMALL ASH_COUNT(small)
#define DRAWS 20000

static void greedy_takes_the_best_and_the_lower_id(void **state)
{
    float flat[5] = {0}, negative[] = {-5.0f, -2.0f, -INFINITY, -2.0f};

    (void)state;
    assert_int_equal(choose(ash_sampler_defaults(), small, SMALL, 0), 1);
    assert_int_equal(choose(ash_sampler_defaults(), flat, 5, 9), 0);
    assert_int_equal(choose(ash_sampler_defaults(), negative, 4, 0), 1);
}

static void temperature_follows_the_softmax(void **state)
{
    const double temperatures[] = {0.5, 1.0, 2.5};

    (void)state;
    for (size_t t = 0; t < ASH_COUNT(temperatures); t++) {
        struct ash_sampler_opts opts = ash_sampler_defaults();
        double probability[SMALL];
        size_t hits[SMALL];

        opts.temperature = temperatures[t];
        opts.seed = 7 + t;
        reference(small, NULL, SMALL, temperatures[t], probability);
        count_draws(opts, small, SMALL, DRAWS, hits);
        check_hits(hits, probability, SMALL, DRAWS);
    }
}

static void top_k_keeps_exactly_k(void **state)
{
    const bool keep[SMALL] = {false, true, true, false, true, false}; /* 3, 3, 2 */
    struct ash_sampler_opts opts = ash_sampler_defaults();
    double probability[SMALL];
    size_t hits[SMALL];

    (void)state;
    opts.temperature = 1.3;
    opts.top_k = 3;
    reference(small, keep, SMALL, 1.3, probability);
    count_draws(opts, small, SMALL, DRAWS, hits);
    check_hits(hits, probability, SMALL, DRAWS);
}

static void top_k_of_one_is_greedy_and_ties_go_to_the_lower_id(void **state)
{
    struct ash_sampler_opts opts = ash_sampler_defaults();
    float flat[100] = {0};
    size_t hits[100];

    (void)state;
    opts.temperature = 1.0;
    opts.top_k = 1;
    for (uint64_t position = 0; position < 50; position++)
        assert_int_equal(choose(opts, small, SMALL, position), 1);
    opts.top_k = 10; /* of a hundred equal tokens the first ten are kept */
    count_draws(opts, flat, 100, 2000, hits);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(hits[i] > 0, i < 10);
}

static void top_k_beyond_the_vocabulary_is_off(void **state)
{
    struct ash_sampler_opts off = ash_sampler_defaults(), beyond;

    (void)state;
    off.temperature = 1.0;
    beyond = off;
    beyond.top_k = SMALL + 1000;
    for (uint64_t position = 0; position < 200; position++)
        assert_int_equal(choose(off, small, SMALL, position), choose(beyond, small, SMALL, position));
}

static void top_p_keeps_the_nucleus(void **state)
{
    const bool keep[SMALL] = {false, true, true, false, true, false};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    double probability[SMALL];
    size_t hits[SMALL];

    (void)state;
    opts.temperature = 1.0;
    opts.top_p = 0.85; /* 3 and 3 reach 0.79, the 2 is needed */
    reference(small, keep, SMALL, 1.0, probability);
    count_draws(opts, small, SMALL, DRAWS, hits);
    check_hits(hits, probability, SMALL, DRAWS);
}

static void top_p_extremes(void **state)
{
    struct ash_sampler_opts opts = ash_sampler_defaults(), all;

    (void)state;
    opts.temperature = 1.0;
    all = opts;
    opts.top_p = 1e-30; /* one token is always kept */
    for (uint64_t position = 0; position < 50; position++)
        assert_int_equal(choose(opts, small, SMALL, position), 1);
    opts.top_p = 1.0;
    for (uint64_t position = 0; position < 200; position++)
        assert_int_equal(choose(opts, small, SMALL, position), choose(all, small, SMALL, position));
}

static void top_p_applies_to_what_top_k_left(void **state)
{
    const float logits[] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    const bool keep[] = {true, true, false, false};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    double probability[4];
    size_t hits[4];

    (void)state;
    opts.temperature = 1.0;
    opts.top_k = 3;   /* 0.444, 0.333, 0.222 remain */
    opts.top_p = 0.7; /* 0.444 + 0.333 reach it; without top-k three tokens would be needed at 0.75 */
    reference(logits, keep, 4, 1.0, probability);
    count_draws(opts, logits, 4, DRAWS, hits);
    check_hits(hits, probability, 4, DRAWS);
}

static void min_p_is_relative_to_the_best(void **state)
{
    const float logits[] = {0.0f, logf(0.5f), logf(0.2f), logf(0.05f)};
    const bool keep[] = {true, true, true, false};
    const size_t top_ks[] = {0, 4, 3};
    double probability[4];

    (void)state;
    reference(logits, keep, 4, 1.0, probability);
    for (size_t i = 0; i < ASH_COUNT(top_ks) * 2; i++) { /* every path: all, top-k, top-p */
        struct ash_sampler_opts opts = ash_sampler_defaults();
        size_t hits[4];

        opts.temperature = 1.0;
        opts.min_p = 0.1;
        opts.top_k = top_ks[i / 2];
        opts.top_p = i % 2 == 0 ? 1.0 : 0.9999;
        count_draws(opts, logits, 4, DRAWS, hits);
        check_hits(hits, probability, 4, DRAWS);
    }
}

static void min_p_of_one_leaves_the_best(void **state)
{
    struct ash_sampler_opts opts = ash_sampler_defaults();
    const float logits[] = {0.0f, 2.0f, 1.999f};

    (void)state;
    opts.temperature = 3.0;
    opts.min_p = 1.0;
    for (uint64_t position = 0; position < 50; position++)
        assert_int_equal(choose(opts, logits, 3, position), 1);
}

/* Filters first: what is kept is decided at temperature 1, what is drawn follows the temperature. */
static void filters_first_then_temperature(void **state)
{
    static const struct {
        size_t top_k;
        double top_p, min_p, typical_p;
    } cases[] = {{3, 1, 0, 1}, {0, 0.7, 0, 1}, {0, 1, 0.3, 1}, {4, 0.7, 0.1, 1}, {0, 1, 0, 0.6}, {0, 1, 0, 1}};
    const double temperature = 2.5;
    (void)state;

    for (size_t c = 0; c < ASH_COUNT(cases); c++) {
        struct ash_sampler_opts opts = ash_sampler_defaults();
        size_t cool[SMALL], warm[SMALL];
        double probability[SMALL];
        bool keep[SMALL];

        opts.top_k = cases[c].top_k;
        opts.top_p = cases[c].top_p;
        opts.min_p = cases[c].min_p;
        opts.typical_p = cases[c].typical_p;
        opts.temperature = 1.0;
        count_draws(opts, small, SMALL, DRAWS, cool);
        for (size_t i = 0; i < SMALL; i++)
            keep[i] = cool[i] > 0;
        opts.temperature = temperature;
        opts.filters_first = true;
        count_draws(opts, small, SMALL, DRAWS, warm);
        reference(small, keep, SMALL, temperature, probability);
        check_hits(warm, probability, SMALL, DRAWS);
    }
}

static void penalty_counts_each_token_once(void **state)
{
    const float logits[] = {2.0f, 1.5f, -1.0f};
    const int32_t earlier[] = {0, 0, 0, 0, -7, 99};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    struct ash_sampler *sampler;
    struct ash_err err = {0};
    int32_t id = -1;

    (void)state;
    opts.repetition_penalty = 1.25; /* 2 becomes 1.6, still the best; applied twice it would be 1.28 */
    sampler = open_sampler(3);
    assert_int_equal(next(sampler, &opts, logits, (struct earlier){earlier, 6}, 0, &id, &err), 0);
    assert_int_equal(id, 0);
    ash_sampler_close(sampler);
    opts.repetition_penalty = 1.5; /* 1.33 */
    sampler = open_sampler(3);
    assert_int_equal(next(sampler, &opts, logits, (struct earlier){earlier, 6}, 0, &id, &err), 0);
    assert_int_equal(id, 1);
    assert_int_equal(next(sampler, &opts, logits, none, 0, &id, &err), 0);
    assert_int_equal(id, 0);
    ash_sampler_close(sampler);
}

static void penalty_makes_negative_logits_more_negative(void **state)
{
    const float logits[] = {-1.0f, -1.5f};
    const int32_t earlier[] = {0};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    struct ash_sampler *sampler;
    struct ash_err err = {0};
    int32_t id = -1;

    (void)state;
    opts.repetition_penalty = 2.0;
    sampler = open_sampler(2);
    assert_int_equal(next(sampler, &opts, logits, (struct earlier){earlier, 1}, 0, &id, &err), 0);
    assert_int_equal(id, 1);
    ash_sampler_close(sampler);
}

static void a_choice_depends_on_seed_and_position_alone(void **state)
{
    struct ash_sampler_opts opts = ash_sampler_defaults();
    struct ash_sampler *sampler;
    struct ash_err err = {0};
    int32_t forward[64], seeds_differ = 0;

    (void)state;
    opts.temperature = 2.0;
    opts.seed = 11;
    sampler = open_sampler(SMALL);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(next(sampler, &opts, small, none, i, &forward[i], &err), 0);
    for (uint64_t i = 64; i-- > 0;) {
        int32_t id = -1;

        assert_int_equal(next(sampler, &opts, small, none, i, &id, &err), 0);
        assert_int_equal(id, forward[i]);
    }
    ash_sampler_close(sampler);
    opts.seed = 12;
    for (uint64_t i = 0; i < 64; i++)
        seeds_differ += choose(opts, small, SMALL, i) != forward[i];
    assert_true(seeds_differ > 10);
}

static void forbidden_tokens_are_never_drawn(void **state)
{
    const float logits[] = {-INFINITY, 0.0f, -INFINITY, 0.5f, -INFINITY};
    const size_t top_ks[] = {0, 4, 3};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(top_ks) * 2; i++) {
        struct ash_sampler_opts opts = ash_sampler_defaults();
        size_t hits[5];

        opts.temperature = 50.0;
        opts.top_k = top_ks[i / 2];
        opts.top_p = i % 2 == 0 ? 1.0 : 0.999999;
        count_draws(opts, logits, 5, 5000, hits);
        assert_int_equal(hits[0] + hits[2] + hits[4], 0);
        assert_true(hits[1] > 0 && hits[3] > 0);
    }
}

static void a_tiny_temperature_is_greedy(void **state)
{
    struct ash_sampler_opts opts = ash_sampler_defaults();
    const float logits[] = {1.0f, 1.0001f, -3.0f};

    (void)state;
    opts.temperature = 1e-300;
    for (uint64_t position = 0; position < 50; position++)
        assert_int_equal(choose(opts, logits, 3, position), 1);
}

static void broken_logits_are_refused(void **state)
{
    const float nothing[] = {-INFINITY, -INFINITY}, nan[] = {0.0f, NAN, 1.0f}, infinite[] = {0.0f, INFINITY};
    const float *const rows[] = {nothing, nan, infinite};
    const size_t vocabs[] = {2, 3, 2};
    const char *const words[] = {"forbidden", "token 1 at position 42 is not a number", "infinite"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        for (int sampled = 0; sampled < 2; sampled++) {
            struct ash_sampler_opts opts = ash_sampler_defaults();
            struct ash_sampler *sampler;
            struct ash_err err = {0};
            int32_t id = 77;

            opts.temperature = sampled;
            sampler = open_sampler(vocabs[i]);
            assert_int_equal(next(sampler, &opts, rows[i], none, 42, &id, &err), -EDOM);
            assert_non_null(strstr(err.text, words[i]));
            assert_int_equal(id, 77);
            ash_sampler_close(sampler);
        }
    }
}

static void settings_out_of_range_are_refused(void **state)
{
    struct ash_sampler_opts bad[12];
    const char *const words[] = {"temperature",
                                 "temperature",
                                 "top_p",
                                 "top_p",
                                 "min_p",
                                 "min_p",
                                 "penalty",
                                 "penalty",
                                 "typical_p",
                                 "typical_p",
                                 "presence_penalty",
                                 "frequency_penalty"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        bad[i] = ash_sampler_defaults();
    bad[0].temperature = -0.1;
    bad[1].temperature = (double)NAN;
    bad[2].top_p = 0.0;
    bad[3].top_p = 1.01;
    bad[4].min_p = -1.0;
    bad[5].min_p = 1.5;
    bad[6].repetition_penalty = 0.0;
    bad[7].repetition_penalty = (double)INFINITY;
    bad[8].typical_p = 0.0;
    bad[9].typical_p = (double)NAN;
    bad[10].presence_penalty = 101.0;
    bad[11].frequency_penalty = (double)NAN;
    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        struct ash_err err = {0};

        assert_int_equal(ash_sampler_check(&bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, words[i]));
    }
    ash_sampler_close(NULL);
}

static int by_logit(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* A vocabulary of a real model's size: what is drawn is always among the k best, and among the nucleus. */
static void large_vocabulary(void **state)
{
    enum { VOCAB = 50257, K = 40 };
    float *logits = malloc(VOCAB * sizeof(*logits)), *sorted = malloc(VOCAB * sizeof(*sorted));
    struct ash_sampler_opts opts = ash_sampler_defaults();

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        sorted[i] = logits[i] = (float)((i * 2654435761u) >> 8) / 1e6f; /* distinct enough, in no order */
    qsort(sorted, VOCAB, sizeof(*sorted), by_logit);
    opts.temperature = 5.0;
    opts.top_k = K;
    for (uint64_t position = 0; position < 100; position++)
        assert_true(logits[choose(opts, logits, VOCAB, position)] >= sorted[K - 1]);
    opts.top_k = 0;
    opts.top_p =
        0.01; /* the largest weights are nearly equal here, so the nucleus is far smaller than a tenth of all */
    for (uint64_t position = 0; position < 100; position++)
        assert_true(logits[choose(opts, logits, VOCAB, position)] >= sorted[VOCAB / 10]);
    free(logits);
    free(sorted);
}

/* Typical sampling by its definition: sort by the distance of the surprise from the entropy, keep until the mass is
 * reached. */
static void typical_keeps_what_is_expected(void **state)
{
    const float logits[] = {logf(0.5f), logf(0.2f), logf(0.15f), logf(0.1f), logf(0.05f)};
    /* entropy 1.333; surprises 0.693 1.609 1.897 2.303 2.996: distances 0.64 0.28 0.56 0.97 1.66 */
    const bool keep[3][5] = {{0, 1, 0, 0, 0}, {0, 1, 1, 0, 0}, {1, 1, 1, 0, 0}};
    const double masses[] = {0.2, 0.3, 0.4};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct ash_sampler_opts opts = ash_sampler_defaults();
        double probability[5];
        size_t hits[5];

        opts.temperature = 1.0;
        opts.typical_p = masses[i] - 1e-3;
        reference(logits, keep[i], 5, 1.0, probability);
        count_draws(opts, logits, 5, DRAWS, hits);
        check_hits(hits, probability, 5, DRAWS);
    }
}

static void presence_and_frequency_count_the_answer(void **state)
{
    const float logits[] = {2.0f, 1.0f, 0.0f};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    struct ash_token_counts counts = {0};
    struct ash_choice choice = {.opts = &opts, .logits = logits, .counts = &counts};
    struct ash_sampler *sampler = open_sampler(3);
    struct ash_err err = {0};
    int32_t id = -1;

    (void)state;
    assert_int_equal(ash_token_counts_init(&counts, 8), 0);
    ash_token_counts_add(&counts, 0, false); /* in the prompt: no matter */
    opts.presence_penalty = 1.5;
    assert_int_equal(ash_sampler_next(sampler, &choice, &id, &err), 0);
    assert_int_equal(id, 0);
    ash_token_counts_add(&counts, 0, true);
    assert_int_equal(ash_sampler_next(sampler, &choice, &id, &err), 0);
    assert_int_equal(id, 1);
    opts.presence_penalty = 0.0;
    opts.frequency_penalty = 0.6;
    assert_int_equal(ash_sampler_next(sampler, &choice, &id, &err), 0);
    assert_int_equal(id, 0);
    ash_token_counts_add(&counts, 0, true); /* twice 0.6 */
    assert_int_equal(ash_sampler_next(sampler, &choice, &id, &err), 0);
    assert_int_equal(id, 1);
    ash_token_counts_remove(&counts, 0, true);
    assert_int_equal(ash_sampler_next(sampler, &choice, &id, &err), 0);
    assert_int_equal(id, 0);
    ash_token_counts_fini(&counts);
    ash_sampler_close(sampler);
}

static void bias_masks_and_lists_decide_what_may_come(void **state)
{
    const float logits[] = {2.0f, 1.0f, 0.0f, 0.5f};
    const struct ash_logit_bias bias[] = {{2, 5.0f}, {99, 1.0f}, {-1, 1.0f}};
    const int32_t allowed[] = {1, 3, 77}, forbidden[] = {0, 1};
    const uint64_t mask[] = {1u << 3};
    struct ash_sampler_opts opts = ash_sampler_defaults();
    struct ash_choice with_bias = {.opts = &opts, .logits = logits, .bias = bias, .bias_count = 3};
    struct ash_choice with_allowed = {.opts = &opts, .logits = logits, .allowed = allowed, .allowed_count = 3};
    struct ash_choice with_forbidden = {.opts = &opts, .logits = logits, .forbidden = forbidden, .forbidden_count = 2};
    struct ash_choice with_mask = {.opts = &opts, .logits = logits, .mask = mask};
    struct ash_choice with_nothing = {.opts = &opts, .logits = logits, .allowed = allowed + 2, .allowed_count = 1};
    struct ash_sampler *sampler = open_sampler(4);
    struct ash_err err = {0};
    int32_t id = -1;

    (void)state;
    assert_int_equal(ash_sampler_next(sampler, &with_bias, &id, &err), 0);
    assert_int_equal(id, 2);
    assert_int_equal(ash_sampler_next(sampler, &with_allowed, &id, &err), 0);
    assert_int_equal(id, 1);
    assert_int_equal(ash_sampler_next(sampler, &with_forbidden, &id, &err), 0);
    assert_int_equal(id, 3);
    assert_int_equal(ash_sampler_next(sampler, &with_mask, &id, &err), 0);
    assert_int_equal(id, 3);
    assert_int_equal(ash_sampler_next(sampler, &with_nothing, &id, &err), -EDOM);
    ash_sampler_close(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_best_and_the_lower_id),
        cmocka_unit_test(temperature_follows_the_softmax),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_k_of_one_is_greedy_and_ties_go_to_the_lower_id),
        cmocka_unit_test(top_k_beyond_the_vocabulary_is_off),
        cmocka_unit_test(top_p_keeps_the_nucleus),
        cmocka_unit_test(top_p_extremes),
        cmocka_unit_test(top_p_applies_to_what_top_k_left),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(min_p_of_one_leaves_the_best),
        cmocka_unit_test(filters_first_then_temperature),
        cmocka_unit_test(penalty_counts_each_token_once),
        cmocka_unit_test(penalty_makes_negative_logits_more_negative),
        cmocka_unit_test(a_choice_depends_on_seed_and_position_alone),
        cmocka_unit_test(forbidden_tokens_are_never_drawn),
        cmocka_unit_test(a_tiny_temperature_is_greedy),
        cmocka_unit_test(broken_logits_are_refused),
        cmocka_unit_test(settings_out_of_range_are_refused),
        cmocka_unit_test(large_vocabulary),
        cmocka_unit_test(typical_keeps_what_is_expected),
        cmocka_unit_test(presence_and_frequency_count_the_answer),
        cmocka_unit_test(bias_masks_and_lists_decide_what_may_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
