/* api - what the server says: the request forms of OpenAI, Anthropic, Ollama and llama.cpp over one engine. Handlers
 * run on HTTP worker threads: they parse, render and tokenise; the engine's thread hands tokens back; the writing
 * thread makes events of them. */
#ifndef ASH_SERVE_API_API_H
#define ASH_SERVE_API_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "serve/defaults.h"
#include "serve/engine/core.h"
#include "http/http.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

struct ash_adapters;
struct ash_api;
struct ash_page_events;
struct ash_pooled;
struct ash_vocab_trie;

/* An answer that is weighed. All borrowed during the call. */
struct ash_api_weighed {
    const char *text;
    const int32_t *prompt_ids, *ids;
    size_t prompt_tokens, tokens;
    bool has_ended; /* not by a limit */
};

/* The engine, and facts about its model. All borrowed until the api is closed. */
struct ash_api_engine {
    void *ctx;
    /* As ash_runner_submit and ash_runner_cancel. */
    int (*submit)(void *ctx, struct ash_request *request, struct ash_err *err);
    void (*cancel)(void *ctx, struct ash_request *request);
    /* A consistent copy of its figures. */
    void (*get_stats)(void *ctx, struct ash_core_stats *stats_out);
    /* Seconds with work but without a step. */
    double (*get_stalled_seconds)(void *ctx);
    /* As ash_runner_reset_prefix. */
    int (*reset_prefix)(void *ctx, double timeout_s, size_t *pages_out);
    /* Stop when running answers are done, and go on. NULL: it cannot. As ash_runner_pause with ASH_PAUSE_WAIT. */
    int (*pause)(void *ctx, double timeout_s);
    void (*resume)(void *ctx);
    bool (*is_paused)(void *ctx);
    /* Replace the weights by those in path (NULL: the present ones, opened again), when running answers are done; the
     * fingerprint is set before others run. NULL: it cannot. On a worker thread. */
    int (*update)(void *ctx, const char *path, double timeout_s, uint64_t *fingerprint_out, struct ash_err *err);
    void *update_ctx;
    const struct ash_tokenizer *tokenizer;
    const struct ash_defaults *defaults;
    const struct ash_chat_template *chat; /* NULL: there is none, and chat_text says why */
    const char *chat_source;              /* the template's text, for /props; may be NULL */
    const char *chat_text;
    size_t vocab, hidden, context_tokens; /* context: prompt and answer together */
    size_t sequences_max;                 /* that run at the same time */
    int32_t bos;                          /* -1: none */
    const struct ash_pooled *pooled;      /* how embeddings and scores are made; NULL: the last token's, and none */
    const struct ash_vocab_trie *trie;    /* says which marks of tool calls are special tokens */
    /* Weights of answers, for strategies best and weighted; NULL: the model's own probabilities are theirs. On a worker
     * thread, perhaps on several at once; it may take its time. */
    int (*weigh)(void *ctx, const struct ash_api_weighed *answer, double *weight_out, struct ash_err *err);
    void *weigh_ctx;
    const struct ash_kv *kv;             /* tiers of the cache; NULL: none */
    struct ash_page_events *page_events; /* of the cache; NULL: they are not published */
    struct ash_adapters *adapters;       /* that requests may name instead of the model; NULL: it can have none */
};

/* What a server does for others. Each answers whole requests too. */
enum ash_api_role {
    ASH_API_BOTH,
    ASH_API_PREFILL, /* it computes prompts, whose pages decode servers read */
    ASH_API_DECODE,  /* it reads pages that prefill servers computed */
};

struct ash_api_opts {
    const char *const *names; /* of the model; the first is what answers say */
    size_t name_count;
    const char *model_path;
    bool is_strict;     /* unknown fields are refused */
    bool clamps_max;    /* limits of answers beyond the context's end are taken as that */
    size_t queue_max;   /* requests that may wait for the engine; 0: no limit */
    size_t choices_max; /* prompts times n of one request */
    size_t depth_max;   /* of JSON */
    size_t schema_bytes_max;
    size_t responses_bytes; /* of the last responses that are kept; 0: none */
    enum ash_api_role role;
    const char *pages_key;        /* that requests bring which say where pages are; NULL: any may */
    double stall_seconds;         /* work without a step for this long is no longer healthy */
    const char *tool_parser;      /* NULL: by the chat template */
    const char *reasoning_parser; /* NULL: by the chat template; "none" */
    size_t think_min, think_max;  /* tokens of thoughts in chats whose request does not say; 0: no bound */
};

/* Limits as the program has them by default. */
struct ash_api_opts ash_api_defaults(void);

/* opts is copied, its pointers are borrowed until close. */
int ash_api_open(const struct ash_api_opts *opts, struct ash_api **api_out, struct ash_err *err);
/* No handler may run any more. NULL is a no-op. */
void ash_api_close(struct ash_api *api);
/* The model is loaded: from now on requests are answered. Until then they get 503. Any thread, once. */
int ash_api_serve(struct ash_api *api, const struct ash_api_engine *engine, struct ash_err *err);

/* What answers say as system_fingerprint: a hash of weights, arithmetic and cache type, so that equal ones mean equal
 * answers. Until then they say null: to hash a large model takes longer than to load it. Any thread; again where
 * the weights are replaced. */
void ash_api_set_fingerprint(struct ash_api *api, uint64_t hash);

/* The server is about to end: /ready says so, and answers that are cancelled from now on end with an error. Any
 * thread. */
void ash_api_drain(struct ash_api *api);

/* Take the engine's figures over into the metrics, for those who read them without asking (record/metrics_page.h). Any
 * thread. */
void ash_api_refresh_metrics(struct ash_api *api);

/* The routes, for ash_http_opts; their ctx is the api. */
const struct ash_http_route *ash_api_routes(size_t *count_out);
/* For ash_http_opts.refuse. */
void ash_api_refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text);

#endif
