/* core - stand-in until the engine is here. */
#ifndef ASH_SERVE_ENGINE_CORE_H
#define ASH_SERVE_ENGINE_CORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/ashlar.h"
#include "serve/sampler.h"
struct ash_grammar;
struct ash_top_logprob { int32_t id; float logprob; };
struct ash_token { int32_t id; float logprob; const struct ash_top_logprob *top; size_t top_count; };
struct ash_logit_bias { int32_t id; float bias; };
enum ash_pooling { ASH_POOLING_NONE, ASH_POOLING_LAST, ASH_POOLING_MEAN, ASH_POOLING_ALL };
struct ash_request_end { enum ash_finish finish; int rc; struct ash_err err; int32_t stop_id; size_t prompt_tokens, cached_tokens, answer_tokens, drafted, accepted; double queued_s, prefill_s, first_token_s, decode_s; };
struct ash_request {
    const int32_t *prompt; size_t prompt_count;
    struct ash_sampler_opts sampler;
    size_t min_tokens, max_tokens;
    const int32_t *stop_ids; size_t stop_id_count;
    const struct ash_logit_bias *bias; size_t bias_count;
    const int32_t *allowed; size_t allowed_count;
    struct ash_grammar *grammar;
    bool wants_logprobs; size_t top_logprobs; bool wants_prompt_logprobs; size_t prompt_top_logprobs;
    enum ash_pooling pooling; float *hidden;
    int priority; uint64_t owner; uint64_t salt; bool skips_cache;
    int (*take)(void *ctx, const struct ash_token *token);
    void (*take_prompt)(void *ctx, size_t index, const struct ash_token *token);
    void (*done)(void *ctx, const struct ash_request_end *end);
    void *ctx;
};
#define ASH_FINISH_CANCELLED ((enum ash_finish)100)
struct ash_core_stats { size_t running, waiting, pages, pages_free, pages_cached, pages_held; uint64_t prefix_queries, prefix_hits, preemptions, steps, rows, prompt_tokens, answer_tokens, drafted, accepted; double step_s, schedule_s; };
#endif
