/* sampler - the next token from a row of logits.
 * The choice is a pure function of (logits, earlier tokens, settings, seed, position): no hidden state, the same bits
 * on every machine. One owner thread. */
#ifndef ASH_SERVE_SAMPLER_H
#define ASH_SERVE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* Applied in the order of the Hugging Face library: penalty, temperature, top-k, top-p (of what top-k left), min-p. */
struct ash_sampler_opts {
    double temperature; /* 0: greedy, the most likely token; ties go to the lower id */
    size_t top_k;       /* keep the k most likely tokens; 0, or the vocabulary's size and more: all */
    double top_p;       /* keep the fewest tokens whose probabilities reach top_p; 1: all; at least one is kept */
    double min_p;       /* keep tokens at least this fraction as likely as the best one; 0: all */
    double repetition_penalty; /* divides (below 0: multiplies) logits of tokens that occurred; 1: off */
    uint64_t seed;
};

#define ASH_SAMPLER_TEMPERATURE_MAX 100.0
#define ASH_SAMPLER_PENALTY_MAX 100.0

/* Greedy, no filter, no penalty, seed 0. */
struct ash_sampler_opts ash_sampler_defaults(void);
/* 0, or -EINVAL and a sentence that names the setting outside its range. */
int ash_sampler_check(const struct ash_sampler_opts *opts, struct ash_err *err);

struct ash_sampler; /* settings and scratch memory for one vocabulary */

/* A sampler over the ids below vocab. Copies opts; -EINVAL as ash_sampler_check. */
int ash_sampler_open(const struct ash_sampler_opts *opts, size_t vocab, struct ash_sampler **sampler_out,
                     struct ash_err *err);
/* NULL is a no-op. */
void ash_sampler_close(struct ash_sampler *sampler);

/* Choose the token that follows. logits [vocab]; -infinity forbids a token. earlier: the tokens so far, for the penalty
 * (any order, ids outside the vocabulary are ignored). position: the index of the new token in its sequence. -EDOM when
 * a logit is NaN or +infinity or all are -infinity: then *id_out is untouched. */
int ash_sampler_next(struct ash_sampler *sampler, const float *logits, const int32_t *earlier, size_t earlier_count,
                     uint64_t position, int32_t *id_out, struct ash_err *err);

#endif
