/* sampling - how an answer is to be drawn and when it ends, under every name that a client may use for it. */
#ifndef ASH_SERVE_API_SAMPLING_H
#define ASH_SERVE_API_SAMPLING_H

#include "serve/api/request.h"
#include "serve/stops.h"
#include "serve/votes.h"

#define ASH_SAMPLING_BIAS_MAX 4096
#define ASH_SAMPLING_LOGPROBS_MAX 100
#define ASH_SAMPLING_UNLIMITED ((size_t)-1)

/* Whose names and defaults. */
enum ash_dialect { ASH_DIALECT_OPENAI, ASH_DIALECT_LLAMA };

/* Zero-initialise; free with ash_sampling_fini. */
struct ash_sampling {
    struct ash_sampler_opts sampler;
    bool has_seed;
    size_t n, best_of;          /* answers to a prompt; computed */
    enum ash_strategy strategy; /* greedy: none; else the one that counts of best_of is the answer */
    enum ash_vote_on vote_on;
    size_t min_tokens, max_tokens; /* max: ASH_SAMPLING_UNLIMITED: as many as fit */
    size_t think_min, think_max;   /* tokens of thoughts; 0: no bound */
    bool has_think;                /* the request has set a bound */
    struct ash_ids stop_ids;       /* with the model's eos ids, unless ignore_eos */
    struct ash_stops stops;
    bool shows_stop;   /* include_stop_str_in_output */
    bool keep_special; /* special tokens appear in the text */
    bool ignores_eos;
    bool clamps_max; /* a limit beyond the context's end is as if there were none */
    struct ash_logit_bias *bias;
    size_t bias_count, bias_capacity;
    struct ash_ids allowed;
    int top_logprobs, prompt_logprobs; /* -1: none */
    int priority;
    uint64_t salt;
    bool skips_cache;
    enum ash_pooling pooling;
    bool wants_score;        /* of the pooled state */
    bool returns_ids;        /* return_token_ids */
    int64_t truncate_tokens; /* keep the last ones of the prompt; 0: all; -1: what fits */
};

/* Read what all generating forms have in common. Form-specific names (max_tokens, logprobs, stop) are read by the
 * form. */
void ash_sampling_read(struct ash_sampling *sampling, struct ash_api_request *request, enum ash_dialect dialect);
/* "stop": a string or a list of them. key is its name in this form. */
void ash_sampling_read_stops(struct ash_sampling *sampling, struct ash_api_request *request, const char *key);
/* The limit of an answer's tokens from the first of these fields (NULL-terminated) that is given; else `otherwise`. */
void ash_sampling_read_max(struct ash_sampling *sampling, struct ash_api_request *request, const char *const *keys,
                           size_t otherwise);
/* "strategy" and "vote_on": one of n answers counts. After n, best_of and the sampler; not in a stream. */
void ash_sampling_read_strategy(struct ash_sampling *sampling, struct ash_api_request *request, bool is_stream);
/* The settings of answer `index` of a prompt: the seed of the first is the request's own. */
struct ash_sampler_opts ash_sampling_of(const struct ash_sampling *sampling, size_t index);
/* Free its members. */
void ash_sampling_fini(struct ash_sampling *sampling);

/* Tokens that the context must have room for after the prompt. */
static inline size_t ash_sampling_least(const struct ash_sampling *sampling)
{
    return sampling->max_tokens == ASH_SAMPLING_UNLIMITED || sampling->clamps_max ? 1 : sampling->max_tokens;
}

#endif
