/* sampler - the next token from a row of logits.
 * The choice is a pure function of (logits, earlier tokens, settings, seed, position): no hidden state, the same bits
 * on every machine. */
#ifndef ASH_SERVE_ENGINE_SAMPLER_H
#define ASH_SERVE_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "compute/ops_sample.h"
#include "serve/engine/token_counts.h"

/* Applied in the order of the Hugging Face library: penalties, temperature, top-k, top-p (of what top-k left), min-p,
 * typical. */
struct ash_sampler_opts {
    double temperature; /* 0: greedy, the most likely token; ties go to the lower id */
    size_t top_k;       /* keep the k most likely tokens; 0, or the vocabulary's size and more: all */
    double top_p;       /* keep the fewest tokens whose probabilities reach top_p; 1: all; at least one is kept */
    double min_p;       /* keep tokens at least this fraction as likely as the best one; 0: all */
    double typical_p;   /* keep the fewest tokens, nearest to the expected surprise first, that reach it; 1: all */
    double repetition_penalty; /* divides (below 0: multiplies) logits of tokens that occurred; 1: off */
    double presence_penalty;   /* off the logits of tokens that occurred in the answer; 0: off */
    double frequency_penalty;  /* the same for each time that they occurred; 0: off */
    size_t repeat_last_n;      /* penalties look at the last n tokens only; 0: at all */
    bool filters_first;        /* temperature comes after the filters, as in llama.cpp, not before them */
    uint64_t seed;
};

#define ASH_SAMPLER_TEMPERATURE_MAX 100.0
#define ASH_SAMPLER_PENALTY_MAX 100.0

/* Greedy, no filter, no penalty, seed 0. */
struct ash_sampler_opts ash_sampler_defaults(void);
/* The seed of answer `index` of several to one prompt: that of the first is the prompt's own. */
uint64_t ash_sampler_seed(uint64_t seed, size_t index);
/* 0, or -EINVAL and a sentence that names the setting outside its range. */
int ash_sampler_check(const struct ash_sampler_opts *opts, struct ash_err *err);
/* Does it read token counts? */
bool ash_sampler_has_penalties(const struct ash_sampler_opts *opts);

/* All that a choice depends on; borrowed. Ids outside the vocabulary have no effect. */
struct ash_choice {
    const struct ash_sampler_opts *opts;   /* checked */
    const float *logits;                   /* [vocab]; -infinity forbids a token */
    uint64_t position;                     /* the index of the new token in its sequence */
    const struct ash_token_counts *counts; /* the tokens so far, if there are penalties */
    const struct ash_logit_bias *bias;     /* [bias_count] */
    size_t bias_count;
    const int32_t *allowed; /* [allowed_count]: these alone may be chosen; NULL: all */
    size_t allowed_count;
    const int32_t *forbidden; /* [forbidden_count]: these may not */
    size_t forbidden_count;
    const uint64_t *mask; /* bit id % 64 of word id / 64: may it be chosen? NULL: all may */
};

struct ash_sampler; /* scratch memory for one vocabulary; one thread at a time */

/* A sampler over the ids below vocab. -EINVAL for no or too many ids, -ENOMEM. */
int ash_sampler_open(size_t vocab, struct ash_sampler **sampler_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_sampler_close(struct ash_sampler *sampler);

/* Candidates that the filters of the last choice left, into ids ascending, [the vocabulary]. Returns how many; 0: there
 * was no filter but min-p, or no draw. */
size_t ash_sampler_get_kept(const struct ash_sampler *sampler, int32_t *ids);
/* How many those are. */
size_t ash_sampler_count_kept(const struct ash_sampler *sampler);
/* The choice as a row of the op that chooses (compute/ops_sample.h); it borrows what the choice does. */
struct ash_sample_row ash_sampler_row(const struct ash_choice *choice);
/* What the op gave: 0 for an id, else -EDOM and why there is none. */
int ash_sampler_check_id(int32_t id, uint64_t position, struct ash_err *err);
/* Choose the token that follows. -EDOM when a logit is NaN or +infinity or all are -infinity: then *id_out is
 * untouched. */
int ash_sampler_next(struct ash_sampler *sampler, const struct ash_choice *choice, int32_t *id_out,
                     struct ash_err *err);

#endif
