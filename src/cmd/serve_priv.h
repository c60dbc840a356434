/* serve_priv - the parts of `ashlar serve`. */
#ifndef ASH_CMD_SERVE_PRIV_H
#define ASH_CMD_SERVE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "cmd/engine_flags.h"
#include "cmd/http_flags.h"
#include "cmd/route_flags.h"
#include "model/files/eagle.h"
#include "serve/pooled.h"
#include "serve/adapters.h"
#include "serve/api/api.h"
#include "serve/engine/runner.h"
#include "serve/grammar/grammar.h"
#include "storage/namespace/settings.h"

/* Flags of the tiers below the cache. */
struct ash_serve_kv_flags {
    int64_t host_memory, dir_size, prefill_memory;
    const char *dir, *remote;
    int role; /* enum ash_api_role */
};

/* --replicas, and how the requests are shared. */
struct ash_serve_replicas {
    int64_t count;
    struct ash_route_flags route;
};

/* Several models. */
struct ash_serve_models {
    const char *dir;
    int64_t loaded_max, bytes_max;
    double load_seconds, idle_seconds;
};

/* The flags. */
struct ash_serve_flags {
    struct ash_opt_list models; /* --model, as often as it was given */
    const char *model;          /* the only one */
    const char *chat_template, *tool_call_parser, *reasoning_parser, *pages;
    struct ash_opt_list served_model_name, lora_modules, verifier;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, kv_cache_memory, num_speculative_tokens, think_min,
        think_max, max_queued_requests, max_choices, responses_memory;
    int kv_dtype, draft;
    bool enable_prefix_caching, strict, clamp_max_tokens;
    double step_ms, health_seconds;
    struct ash_serve_replicas replicas;
    struct ash_serve_models several;
    struct ash_http_flags http;
    struct ash_engine_flags computing;
    struct ash_serve_kv_flags kv;
    const char *draft_model;
};

extern const struct ash_opt_table ash_serve_kv_table;

/* Options of the tiers, and settings of the bucket. Zero-initialise. */
struct ash_serve_kv {
    struct ash_kv_opts opts;
    struct ash_namespace_settings settings;
    bool has_settings;
};

/* serve_kv.c: what requests must bring that say where pages are: *key_out, NULL if any may. */
int ash_serve_pages_key(const struct ash_serve_flags *flags, const char **key_out, struct ash_err *err);
/* serve_kv.c: the flags as options. Returns 1, 0 (no tiers) or -EINVAL. Borrows flags until close. */
int ash_serve_kv_open(const struct ash_serve_flags *flags, struct ash_serve_kv *kv, struct ash_err *err);
/* Do pages outlive the process, or go to others? Then the scopes of keys do, too. */
bool ash_serve_kv_lasts(const struct ash_serve_flags *flags);
/* A zeroed struct is a no-op. */
void ash_serve_kv_close(struct ash_serve_kv *kv);

/* The head that drafts. Zero: there is none. */
struct ash_serve_head {
    struct ash_model *model; /* the folder's own; or NULL: */
    struct ash_eagle eagle;  /* one of EAGLE-3, */
    const char *eagle_dir;   /* which is here */
};

/* The server's model. Zero-initialise. */
struct ash_serve_model {
    struct ash_engine *engine;
    struct ash_ranks *ranks; /* that share it, the engine's; NULL: it is whole */
    struct ash_vocab_trie *trie;
    struct ash_pooled pooled; /* how embeddings and scores are made */
    struct ash_core *core;    /* NULL once the runner has it */
    struct ash_engine *draft; /* of --draft-model, or NULL */
    struct ash_serve_head head;
    struct ash_serve_kv tiers;
    struct ash_kv *kv;             /* the core's; NULL: none */
    struct ash_recorder *recorder; /* borrowed; NULL: nothing is recorded */
    struct ash_runner *runner;
    struct ash_str chat_source;
    struct ash_adapters *adapters;
    struct ash_adapters_peers peers; /* of several ranks */
    struct ash_verifier *verifier;
    struct ash_exec verifier_exec; /* of its reward models, which compute next to the engine */
    bool has_verifier_exec;
    char *weights;                                     /* where the present ones are; NULL: --model */
    void (*set_fingerprint)(void *ctx, uint64_t hash); /* where weights are replaced */
    void *set_ctx;
    struct ash_api_engine api;
};

extern const struct ash_opt_table ash_serve_replicas_table;
/* With --replicas: start them with the user's words, and route to them until a signal. Returns ASH_CMD_GO if this
 * process is to serve the model itself, else an exit code. */
int ash_serve_replicas_run(const struct ash_serve_flags *flags, int argc, char **argv);

extern const struct ash_opt_table ash_serve_models_table;
/* Are there several models? */
bool ash_serve_models_wanted(const struct ash_serve_flags *flags);
/* With several models: route to servers of them until a signal. Returns as ash_serve_replicas_run. */
int ash_serve_models_run(const struct ash_serve_flags *flags, int argc, char **argv);

/* serve_draft.c: values of --draft. */
extern const char *const ash_serve_drafts[];
/* serve_draft.c: what drafts by the flags, into opts; the model owns it. Returns 0 or a negative errno. */
int ash_serve_draft_open(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                         struct ash_err *err);
/* serve_draft.c: the head for other weights, opened from path, as one drafts for those of model now: of EAGLE-3, or
 * theirs if they have one. Returns 0 or a negative errno. */
int ash_serve_head_open_next(const struct ash_serve_model *model, const struct ash_model *weights, const char *path,
                             struct ash_serve_head *head_out, struct ash_err *err);
/* serve_draft.c: a zeroed one is a no-op. */
void ash_serve_head_close(struct ash_serve_head *head);

/* Load the model by flags; *model is for ash_api_serve then. */
int ash_serve_model_open(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err);
/* Log a context that is shorter than requested: no error. */
void ash_serve_model_warn(const struct ash_serve_flags *flags, const struct ash_serve_model *model);
/* serve_weights.c: replace its weights by those in path (NULL: open the present ones again, which frees their memory),
 * once running answers are done, timeout_s at most. Returns 0 or a negative errno; then nothing has changed. */
int ash_serve_model_update(struct ash_serve_model *model, const char *path, double timeout_s, uint64_t *fingerprint_out,
                           struct ash_err *err);
/* End all requests as cancelled; does not wait. */
void ash_serve_model_cancel(struct ash_serve_model *model);
/* End all requests. Those that are not answered yet hold their resources until the server releases them. */
void ash_serve_model_stop(struct ash_serve_model *model);
/* Free everything; no request may be held any more. A zeroed struct is a no-op. */
void ash_serve_model_close(struct ash_serve_model *model);

#endif
