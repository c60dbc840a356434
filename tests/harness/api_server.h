/* api_server - the whole server in a test: HTTP, request forms and the engine's loop, over a model that is a function. By
 * default it says what its script says: after any prompt the script's tokens, then the end. */
#ifndef ASH_TESTS_API_SERVER_H
#define ASH_TESTS_API_SERVER_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "serve/api/api.h"
#include "serve/engine/runner.h"
#include "serve/grammar/grammar.h"
#include "harness/http_client.h"

#define API_VOCAB 512
#define API_EOS 2

struct api_server {
    struct ash_tokenizer *tokenizer;
    struct ash_chat_template *chat;
    struct ash_defaults defaults;
    struct ash_vocab_trie *trie;
    struct ash_exec exec;
    struct ash_null_model null;
    struct ash_core_opts core_opts;
    struct ash_runner *runner;
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_api_opts api_opts;
    struct ash_api *api;
    struct ash_http_opts http_opts;
    struct ash_http *http;
    int port;
    const char *name, *template;
    pthread_mutex_t lock; /* for script: an answer that was cancelled may still be at it */
    struct ash_ids script;
    _Atomic bool is_broken, is_stuck; /* logits are NaN; a pass takes until it is not */
    _Atomic int pause_us;             /* of a row */
};

/* The script's token after the longest beginning of it that the ids end with; far from it: the end. */
static inline int32_t api_next(const struct api_server *server, const int32_t *ids, size_t count)
{
    size_t most = server->script.count < count ? server->script.count : count;

    for (size_t k = most; k > 0; k--)
        if (memcmp(ids + count - k, server->script.data, k * sizeof(*ids)) == 0)
            return k < server->script.count ? server->script.data[k] : API_EOS;
    return server->script.count > 0 ? server->script.data[0] : API_EOS;
}

static inline void api_logits(void *ctx, const int32_t *ids, size_t count, float *logits)
{
    struct api_server *server = ctx;
    int pause_us = atomic_load(&server->pause_us);

    while (atomic_load(&server->is_stuck))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (pause_us > 0) nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000L}, NULL);
    for (int i = 0; i < API_VOCAB; i++)
        logits[i] = atomic_load(&server->is_broken) ? NAN : -(float)(i % 7);
    pthread_mutex_lock(&server->lock);
    if (!atomic_load(&server->is_broken)) logits[api_next(server, ids, count)] = 20;
    pthread_mutex_unlock(&server->lock);
}

static inline int api_submit(void *ctx, struct ash_request *request, struct ash_err *err)
{
    return ash_runner_submit(ctx, request, err);
}

static inline void api_cancel(void *ctx, struct ash_request *request)
{
    ash_runner_cancel(ctx, request);
}

static inline void api_get_stats(void *ctx, struct ash_core_stats *stats_out)
{
    *stats_out = ash_runner_stats(ctx);
}

static inline double api_get_stalled(void *ctx)
{
    return ash_runner_stalled_seconds(ctx);
}

static inline int api_reset_prefix(void *ctx, double timeout_s, size_t *pages_out)
{
    return ash_runner_reset_prefix(ctx, timeout_s, pages_out);
}

/* What the model says from now on. */
static inline void api_say(struct api_server *server, const char *text)
{
    struct ash_err err = {0};

    pthread_mutex_lock(&server->lock);
    ash_ids_fini(&server->script);
    if (ash_tokenizer_encode(server->tokenizer, text, strlen(text), false, &server->script, &err) < 0) abort();
    pthread_mutex_unlock(&server->lock);
}

/* Defaults, for the caller to change before it is opened. data is the folder of the tests. */
static inline void api_server_init(struct api_server *server)
{
    *server = (struct api_server){.name = "tiny",
                                  .api_opts = ash_api_defaults(),
                                  .http_opts = ash_http_defaults(),
                                  .core_opts = {.max_seqs = 16, .kv_bytes = 1 << 16},
                                  .null = {.vocab = API_VOCAB, .max_positions = 2048}};
    pthread_mutex_init(&server->lock, NULL);
    server->http_opts.port = 0;
    server->http_opts.logs_access = false;
    server->template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
}

#define API_CHECK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) < 0) {                                                                                              \
            fprintf(stderr, "%s: %s\n", #call, err.text);                                                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void api_server_open_engine(struct api_server *server, const char *data)
{
    struct ash_core *core = NULL;
    struct ash_err err = {0};
    char path[4096];

    snprintf(path, sizeof(path), "%s/golden/stories260K", data);
    API_CHECK(ash_tokenizer_open(path, &server->tokenizer, &err));
    API_CHECK(ash_chat_template_parse(server->template, strlen(server->template), "test", "<s>", "</s>", &server->chat,
                                      &err));
    server->defaults = (struct ash_defaults){.sampler = ash_sampler_defaults(), .eos = {API_EOS}, .eos_count = 1};
    API_CHECK(ash_vocab_trie_open(server->tokenizer, API_VOCAB, server->defaults.eos, 1, &server->trie, &err));
    API_CHECK(ash_exec_init(&server->exec, "ref", 1, &err));
    server->null.logits = api_logits;
    server->null.ctx = server;
    server->core_opts.vocab_trie = server->trie;
    API_CHECK(ash_core_open_null(&server->null, &server->exec, &server->core_opts, &core, &err));
    API_CHECK(ash_runner_open(core, &server->runner, &err));
}

static inline void api_server_open(struct api_server *server, const char *data)
{
    struct ash_api_engine engine;
    struct ash_err err = {0};

    api_server_open_engine(server, data);
    API_CHECK(ash_keys_open(&server->keys_opts, &server->keys, &err));
    server->api_opts.names = &server->name;
    server->api_opts.name_count = 1;
    API_CHECK(ash_api_open(&server->api_opts, &server->api, &err));
    server->http_opts.keys = server->keys;
    if (server->http_opts.routes == NULL) server->http_opts.routes = ash_api_routes(&server->http_opts.route_count);
    server->http_opts.refuse = ash_api_refuse;
    server->http_opts.ctx = server->api;
    API_CHECK(ash_http_open(&server->http_opts, &server->http, &err));
    engine = (struct ash_api_engine){.ctx = server->runner,
                                     .submit = api_submit,
                                     .cancel = api_cancel,
                                     .get_stats = api_get_stats,
                                     .get_stalled_seconds = api_get_stalled,
                                     .reset_prefix = api_reset_prefix,
                                     .tokenizer = server->tokenizer,
                                     .defaults = &server->defaults,
                                     .chat = server->chat,
                                     .chat_source = server->template,
                                     .vocab = API_VOCAB,
                                     .hidden = 8,
                                     .context_tokens = ash_runner_max_tokens(server->runner),
                                     .sequences_max = server->core_opts.max_seqs,
                                     .bos = 1,
                                     .trie = server->trie};
    server->port = ash_http_port(server->http);
    API_CHECK(ash_api_serve(server->api, &engine, &err));
    ash_api_set_fingerprint(server->api, 1);
}

static inline void api_server_close(struct api_server *server)
{
    ash_http_stop(server->http);
    ash_runner_close(server->runner);
    ash_http_close(server->http);
    ash_api_close(server->api);
    ash_keys_close(server->keys);
    ash_vocab_trie_close(server->trie);
    ash_exec_fini(&server->exec);
    ash_chat_template_close(server->chat);
    ash_tokenizer_close(server->tokenizer);
    ash_ids_fini(&server->script);
}

#endif
