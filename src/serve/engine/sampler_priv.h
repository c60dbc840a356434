/* sampler_priv - scratch memory of a sampler, and the logits that it chooses from. */
#ifndef ASH_SERVE_ENGINE_SAMPLER_PRIV_H
#define ASH_SERVE_ENGINE_SAMPLER_PRIV_H

#include "serve/engine/sampler.h"

/* A token that may be drawn. */
struct ash_candidate {
    float logit;
    int32_t id;
};

struct ash_sampler {
    size_t vocab;
    struct ash_candidate *kept;  /* [vocab] */
    size_t kept_count;           /* of the last choice; 0: all */
    float *weight;               /* [vocab] */
    struct ash_candidate *order; /* [vocab] */
    float *edited;               /* [vocab]: logits with penalties, biases and masks */
};

/* sampler_edit.c: the logits with biases, penalties and what is forbidden: the choice's own where there is none of it,
 * else sampler->edited. Writes over sampler->weight. */
const float *ash_sampler_edit(struct ash_sampler *sampler, const struct ash_choice *choice);

#endif
