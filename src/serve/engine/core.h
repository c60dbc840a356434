/* core - the engine loop: requests in, tokens out. Each step runs one token (or several drafted ones) of every running
 * answer and, in the rows and time that are left, parts of new prompts, in a single pass. Sequences share the pages of
 * prefixes that they have in common. An answer is a pure function of the weights, the prompt and the request's
 * settings: other requests, the cache's content and the batch shapes change no bit. The core knows ids only; text
 * belongs to the caller. One owner thread; runner.h is a thread that owns one. */
#ifndef ASH_SERVE_ENGINE_CORE_H
#define ASH_SERVE_ENGINE_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/ashlar.h"
#include "model/model.h"
#include "serve/kv/kv.h"
#include "serve/engine/sampler.h"

struct ash_core;
struct ash_eagle;
struct ash_grammar;
struct ash_page_events;
struct ash_prompt_blocks;
struct ash_ranks;
struct ash_recorder;
struct ash_think;
struct ash_vocab_trie;

#define ASH_CORE_TOP_LOGPROBS_MAX 1024 /* of one token */

/* When mapped weights are laid out as products read them fastest (ash_model_pack). */
enum ash_core_pack {
    ASH_CORE_PACK_LATER, /* once a first token is out and enough work is left to win the time back */
    ASH_CORE_PACK_AT_OPEN,
};

/* Zeroes are the defaults. */
struct ash_core_opts {
    size_t max_seqs;       /* sequences that run at the same time; 0: ASH_CORE_MAX_SEQS */
    size_t max_batch_rows; /* rows of one step, at least max_seqs; 0: ash_core_batch_rows or max_seqs */
    size_t max_tokens;     /* prompt and answer together; 0, or more than those: the model's positions */
    size_t kv_bytes; /* of the pool, of all ranks; 0: enough for max_seqs of max_tokens, or half of the free memory */
    bool has_no_prefix_cache; /* forget a sequence's pages when it ends */
    double step_seconds;      /* a step with prefill in it should take no longer; 0: no limit */
    size_t speculate;         /* tokens drafted by prompt lookup at most; 0: none */
    /* A small model of the same vocabulary, or the model's own head (ash_model_open_head), that drafts up to speculate
     * (0: 4) tokens, instead of prompt lookup; borrowed; NULL: none. */
    struct ash_model *draft;
    const struct ash_eagle *eagle; /* draft, if it is a head of EAGLE-3 (model/files/eagle.h); or NULL; borrowed */
    size_t vocab;                  /* ids that may be chosen: below this; 0: all of the model's */
    float logprob_sharpness;       /* log-probabilities are those at temperature 1 / this; 0 means 1: the model's own */
    enum ash_core_pack pack;
    const struct ash_vocab_trie *vocab_trie; /* for requests with a grammar; borrowed */
    struct ash_recorder *recorder;           /* of requests and passes; borrowed; NULL: nothing is recorded */
    struct ash_ranks *ranks; /* those that share the model, of which this is the first; borrowed; NULL: it is whole */
    bool publishes_pages;    /* with a prefix cache: which pages it has is told to readers of ash_core_page_events */
    const struct ash_kv_opts *kv; /* tiers below the pool; with a prefix cache only; borrowed; NULL: none */
};

#define ASH_CORE_MAX_SEQS 256
#define ASH_CORE_MAX_BATCH_ROWS 512
#define ASH_CORE_DEVICE_BATCH_ROWS 2048 /* fewer do not fill a GPU */

/* Rows of a step that use what exec computes with. */
size_t ash_core_batch_rows(const struct ash_exec *exec);

struct ash_top_logprob {
    int32_t id;
    float logprob;
};

/* One token, of an answer or of a prompt. */
struct ash_token {
    int32_t id;
    float
        logprob; /* natural, over the whole vocabulary, of the model's own logits (temperature 1, no filter): minus the
                      trainer's cross-entropy, to the bit. 0 if it was not requested. */
    const struct ash_top_logprob *top; /* [top_count], most likely first; borrowed during the call */
    size_t top_count;
    const int32_t *kept; /* [kept_count], ascending; with wants_kept: what the filters left; borrowed during the call */
    size_t kept_count;   /* 0: all ids */
};

/* Which states of the prompt's tokens, after the last layer and the final norm, a request wants. */
enum ash_pooling {
    ASH_POOLING_NONE,
    ASH_POOLING_LAST,  /* the last token's: [hidden] */
    ASH_POOLING_MEAN,  /* their mean: [hidden] */
    ASH_POOLING_ALL,   /* all: [prompt_count, hidden] */
    ASH_POOLING_FIRST, /* the first token's: [hidden] */
};

/* How a request ended. */
struct ash_request_end {
    enum ash_finish finish;
    int rc;                              /* 0, or why it failed (finish is then ASH_FINISH_FAILED) */
    struct ash_err err;                  /* in words */
    int32_t stop_id;                     /* the one that ended it (ASH_FINISH_EOS), or -1 */
    size_t prompt_tokens, cached_tokens; /* of the prompt, cached_tokens were not computed again */
    size_t answer_tokens;                /* without the id that ended it */
    size_t drafted, accepted;            /* tokens that speculation proposed, and those that were right */
    double queued_s;                     /* until its first row was computed */
    double prefill_s;                    /* from there to its first token (or to the end, without one) */
    double first_token_s;                /* from submit to the first token; 0 without one */
    double decode_s;                     /* from the first token to the last */
};

/* The caller's, in place and unchanged until done() was called. Zero-initialise. */
struct ash_request {
    const int32_t *prompt;
    size_t prompt_count; /* > 0 */
    struct ash_sampler_opts sampler;
    size_t min_tokens;       /* no stop id is chosen before the answer has this many */
    size_t max_tokens;       /* of the answer; 0: only the prompt is computed */
    const int32_t *stop_ids; /* ids that end it (the model's end-of-text ids too: the caller lists them) */
    size_t stop_id_count;
    const struct ash_logit_bias *bias;
    size_t bias_count;
    const int32_t *allowed; /* ids that alone may be chosen; NULL: all */
    size_t allowed_count;
    struct ash_grammar *grammar; /* constrained output; NULL: free */
    struct ash_think *think;     /* a budget for the answer's thoughts, which changes as it is written; NULL: none */
    bool wants_logprobs;         /* of the tokens of the answer, and of the top_logprobs most likely ones at each */
    size_t top_logprobs;
    /* With wants_logprobs, and without penalties, biases and drafts: tell which ids top_k and top_p left, and give the
     * log-probability over these alone. */
    bool wants_kept;
    bool wants_prompt_logprobs; /* the same for the tokens of the prompt but the first */
    size_t prompt_top_logprobs;
    /* With wants_prompt_logprobs: of tokens before this index none is told, and what the cache has of them is not
     * computed again. 0: all but the first are told. */
    size_t prompt_logprobs_from;
    enum ash_pooling pooling;
    float *hidden;    /* room for what pooling says; NULL without */
    bool wants_score; /* hidden[0] gets the score of a classifier with one label, of the pooled state */
    size_t second;    /* of an encoder: tokens of the prompt from here on are a pair's second text; 0: there is one */
    int priority;     /* lower runs first */
    uint64_t owner;   /* owners that wait get equal shares of the rows */
    uint64_t salt;    /* prefixes are shared only where salts agree */
    /* Adapters for its tokens (struct ash_doc), borrowed until done(); NULL: none. The salt says which, too. */
    const struct ash_model *adapters;
    /* A prefill server that has pages of its prompt, borrowed until done(); NULL: none. */
    const struct ash_kv_source *source;
    uint64_t job;                           /* ash_kv_open_job: others read its pages as they come; 0: none do */
    bool skips_cache;                       /* neither look up its prefix nor keep it */
    const struct ash_prompt_blocks *blocks; /* of its text, for readers of page events; borrowed; NULL: not known */
    /* On the owner thread of the core, during a step; they must not block. They may submit and cancel.
     * take sees each token of the answer, not the one of stop_ids that ended it. It returns 1 to end the answer with
     * this token (ASH_FINISH_STOP), 0 to continue. NULL: no callback. */
    int (*take)(void *ctx, const struct ash_token *token);
    /* The token of the prompt with this index, from 1 (or prompt_logprobs_from) on, ascending; with
     * wants_prompt_logprobs only. */
    void (*take_prompt)(void *ctx, size_t index, const struct ash_token *token);
    /* Exactly once, the last call; then the request is the caller's again. NULL: `end` is looked at later. */
    void (*done)(void *ctx, const struct ash_request_end *end);
    void *ctx;
    struct ash_request_end end; /* of the core: set before done(), its cached_tokens before take() */
    const char *id;             /* what the recorder calls it; NULL: nothing */
    atomic_bool is_cancelled;   /* the core's own: see ash_core_cancel */
};

struct ash_core_stats {
    size_t running, waiting;
    size_t pages, pages_free, pages_cached, pages_held; /* cached: only the prefix cache has them */
    uint64_t prefix_queries, prefix_hits;               /* tokens looked up, and found */
    uint64_t preemptions, steps, rows;
    uint64_t ahead;                        /* steps that were enqueued before the tokens of the one before were known */
    uint64_t prompt_tokens, answer_tokens; /* computed; chosen */
    uint64_t drafted, accepted;
    double step_s;     /* the last step's */
    double schedule_s; /* of these, all but the pass and the choice of tokens */
    struct ash_kv_stats kv;
};

/* A core on a model. Borrows model and exec until close. Returns 0, -EINVAL (options that do not fit each other or the
 * model) or -ENOMEM. The caller owns *core_out. */
int ash_core_open(struct ash_model *model, struct ash_exec *exec, const struct ash_core_opts *opts,
                  struct ash_core **core_out, struct ash_err *err);
/* Requests that are not done end as cancelled. NULL is a no-op. */
void ash_core_close(struct ash_core *core);
/* Its tiers, for ash_kv_arm; NULL: it has none. Valid until close. */
struct ash_kv *ash_core_kv(const struct ash_core *core);
/* Events of its pages; NULL: they are not published. Valid until close. */
struct ash_page_events *ash_core_page_events(const struct ash_core *core);
/* Prompt and answer together: what a request may have at most. */
size_t ash_core_max_tokens(const struct ash_core *core);
/* Rows of a step at most. */
size_t ash_core_max_rows(const struct ash_core *core);

/* Queue a request. Returns 0 (done() will be called), -EINVAL (a setting out of its range, an id that the vocabulary
 * does not have), -EOVERFLOW (it can never fit; err has both numbers) or -ENOMEM: then done() is not called. */
int ash_core_submit(struct ash_core *core, struct ash_request *request, struct ash_err *err);
/* End a request that is not done: done() is called with ASH_FINISH_CANCELLED, now or at the end of the step that
 * calls this. Its pages are free before the next step. One that is done, or was never submitted, must not be passed. */
void ash_core_cancel(struct ash_core *core, struct ash_request *request);
/* The same for all requests that are not done. Not during a step. */
void ash_core_cancel_all(struct ash_core *core);
/* Tokens of a prompt that the prefix cache has now; the last one is never among them. */
size_t ash_core_cached_tokens(struct ash_core *core, const int32_t *prompt, size_t count, uint64_t salt);
/* Forget all prefixes that no running answer holds, and those in host memory below it. Not during a step. Returns
 * how many pages are free again. */
size_t ash_core_reset_prefix(struct ash_core *core);
/* Hold admissions: running answers continue, the queue waits. false: no more. Between steps. */
void ash_core_hold(struct ash_core *core, bool holds);
/* Other weights of the same shape, between steps: all pages are forgotten. Borrows model, and the one before no more.
 * path: where they are, for other ranks. Returns 0, -EBUSY (something runs), -EINVAL (another shape), -ENOTSUP, -ENOMEM
 * or the error of a rank: then nothing has changed, or all ranks end. */
int ash_core_swap(struct ash_core *core, struct ash_model *model, const char *path, struct ash_err *err);
/* Another head drafts from now on, between steps while nothing runs; eagle: the same if it is one of EAGLE-3, or NULL.
 * Borrows both, and those before no more. Returns 0, or a negative errno: then nothing drafts. */
int ash_core_swap_head(struct ash_core *core, struct ash_model *head, const struct ash_eagle *eagle,
                       struct ash_err *err);
/* One pass. Returns 1 while there is more to do, 0 when nothing runs or waits. A failure of the pass ends the requests
 * that took part in it. */
int ash_core_step(struct ash_core *core);
/* Step until all that was submitted has ended. rc: what submitting it returned; below 0, all of it is cancelled first.
 * Returns rc, or the error of the first request that has failed since the last call. */
int ash_core_finish(struct ash_core *core, int rc, struct ash_err *err);
/* Its load and its counters. */
struct ash_core_stats ash_core_get_stats(const struct ash_core *core);
/* Is every page free, cached or held by a sequence, as counts say? For tests; debug builds check after every step. */
bool ash_core_is_consistent(const struct ash_core *core);

/* A stand-in for a model, for tests and measurements of the schedule. */
struct ash_null_model {
    size_t vocab, max_positions;
    /* Logits [vocab] of the row whose document has these tokens: ids [count], the row's own last. NULL: zeros. */
    void (*logits)(void *ctx, const int32_t *ids, size_t count, float *logits_out);
    void *ctx;
};
/* A core whose pass is a function; pages hold nothing. opts->kv_bytes counts tokens here. Borrows null. exec gives the
 * threads. */
int ash_core_open_null(const struct ash_null_model *null, struct ash_exec *exec, const struct ash_core_opts *opts,
                       struct ash_core **core_out, struct ash_err *err);

#endif
