/* What the fuzz targets of grammars share: a few drawn steps through a grammar that compiled. */
#ifndef FUZZ_GRAMMAR_STEPS_H
#define FUZZ_GRAMMAR_STEPS_H

#include "../unit/serve/grammar/vocabularies.h"

#define FUZZ_STEPS 24

/* Limits that keep one input short. */
static inline struct ash_grammar_opts fuzz_opts(void)
{
    struct ash_grammar_opts opts = ash_grammar_default_opts();

    opts.limits.states = 20000;
    opts.limits.seconds = 0.5;
    opts.limits.cache_bytes = (size_t)4 << 20;
    return opts;
}

/* Walk: tokens in the mask are accepted and others are not; a grammar that compiled has a text. */
static inline void fuzz_steps(struct ash_grammar *grammar, uint64_t seed)
{
    static struct vocabulary vocabulary;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};

    if (vocabulary.trie == NULL) vocabulary_init(&vocabulary, 1, 200);
    if (ash_matcher_open(grammar, vocabulary.trie, &matcher, &err) < 0) return;
    for (uint64_t step = 0; step < FUZZ_STEPS; step++) {
        const uint64_t *mask = ash_matcher_mask(matcher);
        int32_t id, other = (int32_t)ash_rng_below(seed, 4, step, vocabulary.count);
        int rc;
        if (mask == NULL) break; /* too ambiguous */
        id = mask_draw(mask, vocabulary.count, seed, step);
        ash_assert(id >= 0);
        ash_assert(mask_has(mask, vocabulary.eos) == ash_matcher_is_complete(matcher));
        if (!mask_has(mask, other)) ash_assert(ash_matcher_accept(matcher, other) < 0);
        rc = ash_matcher_accept(matcher, id);
        ash_assert(rc == 0 || rc == -E2BIG);
        if (rc < 0 || id == vocabulary.eos) break;
        if (step % 5 == 4) {
            ash_matcher_rollback(matcher, 1);
            ash_assert(ash_matcher_accept(matcher, id) == 0);
        }
    }
    ash_matcher_close(matcher);
}

#endif
