/* A model, ready to be served: weights, vocabulary trie, engine thread, chat template. */
#include "cmd/serve_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "model/model.h"
#include "post/search/verifier.h"
#include "serve/adapters.h"
#include "serve/engine/ranks.h"

#define ADAPTER_SECONDS 60 /* until a step ends, after which other ranks load an adapter */

/* ---- callbacks of the API ---------------------------------------------------------------------------------------- */

static int submit(void *ctx, struct ash_request *request, struct ash_err *err)
{
    return ash_runner_submit(ctx, request, err);
}

static void cancel(void *ctx, struct ash_request *request)
{
    ash_runner_cancel(ctx, request);
}

static void get_stats(void *ctx, struct ash_core_stats *stats_out)
{
    *stats_out = ash_runner_stats(ctx);
}

static double get_stalled_seconds(void *ctx)
{
    return ash_runner_stalled_seconds(ctx);
}

static int pause_runner(void *ctx, double timeout_s)
{
    return ash_runner_pause(ctx, ASH_PAUSE_WAIT, timeout_s);
}

static void resume_runner(void *ctx)
{
    (void)ash_runner_pause(ctx, ASH_PAUSE_NONE, 0);
}

static bool is_paused(void *ctx)
{
    return ash_runner_is_paused(ctx);
}

static int update(void *ctx, const char *path, double timeout_s, uint64_t *fingerprint_out, struct ash_err *err)
{
    return ash_serve_model_update(ctx, path, timeout_s, fingerprint_out, err);
}

static int reset_prefix(void *ctx, double timeout_s, size_t *pages_out)
{
    return ash_runner_reset_prefix(ctx, timeout_s, pages_out);
}

/* ---- the chat template ------------------------------------------------------------------------------------------- */

/* The template, and its text for /props. */
static int find_template(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err)
{
    struct ash_err none = {0};
    int rc = 0;

    if (flags->chat_template != NULL) {
        rc = ash_engine_use_chat(model->engine, flags->chat_template, err);
        if (rc == 0) rc = ash_cmd_read_text(flags->chat_template, "the chat template", &model->chat_source, err);
    } else if (ash_engine_chat(model->engine, NULL) != NULL) {
        (void)ash_chat_template_source(ash_engine_dir(model->engine), &model->chat_source, &none);
    }
    model->api.chat = ash_engine_chat(model->engine, &model->api.chat_text);
    model->api.chat_source = model->chat_source.data;
    return rc;
}

/* ---- adapters of other ranks ------------------------------------------------------------------------------------- */

/* An adapter that they are to load. */
struct adapter_load {
    struct ash_ranks *ranks;
    const struct ash_model *adapters;
    const char *dir;
};

static int send_adapter(void *ctx, struct ash_core *core, struct ash_err *err)
{
    const struct adapter_load *load = ctx;

    (void)core;
    return ash_ranks_send_adapter(load->ranks, load->adapters, load->dir, err);
}

static int load_on_ranks(void *ctx, const struct ash_model *adapters, const char *dir, struct ash_err *err)
{
    struct ash_serve_model *model = ctx;
    struct adapter_load load = {model->ranks, adapters, dir};

    return ash_runner_call(model->runner, send_adapter, &load, ADAPTER_SECONDS, err);
}

static void forget_on_ranks(void *ctx, const struct ash_model *adapters)
{
    struct ash_serve_model *model = ctx;

    ash_ranks_forget_adapter(model->ranks, adapters);
}

static int open_adapters(struct ash_serve_model *model, struct ash_err *err)
{
    struct ash_engine *engine = model->engine;

    model->peers = (struct ash_adapters_peers){load_on_ranks, forget_on_ranks, model};
    return ash_adapters_open(ash_engine_model(engine), ash_engine_exec(engine), ash_core_max_rows(model->core),
                             model->ranks != NULL ? &model->peers : NULL, &model->adapters, err);
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

/* Facts of the model that the API needs. */
static void set_model_facts(struct ash_serve_model *model, const struct ash_model_config *config, size_t vocab)
{
    model->api.vocab = vocab;
    model->api.hidden = config->hidden;
    model->api.bos = config->bos;
    model->api.trie = model->trie;
}

/* How embeddings and scores are made. */
static int find_pooled(struct ash_serve_model *model, struct ash_err *err)
{
    int rc = ash_pooled_load(ash_engine_dir(model->engine), ash_model_get_config(ash_engine_model(model->engine)),
                             &model->pooled, err);

    model->api.pooled = &model->pooled;
    return rc;
}

static int open_runner(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err)
{
    struct ash_model *weights = ash_engine_model(model->engine);
    const struct ash_tokenizer *tokenizer = ash_engine_tokenizer(model->engine);
    const struct ash_model_config *config = ash_model_get_config(weights);
    const struct ash_defaults *defaults = ash_engine_defaults(model->engine);
    size_t vocab = ash_tokenizer_vocab_size(tokenizer);
    struct ash_core_opts opts = {.max_seqs = (size_t)flags->max_num_seqs,
                                 .max_batch_rows = (size_t)flags->max_num_batched_tokens,
                                 .max_tokens = (size_t)flags->max_model_len,
                                 .kv_bytes = (size_t)flags->kv_cache_memory,
                                 .has_no_prefix_cache = !flags->enable_prefix_caching,
                                 .step_seconds = flags->step_ms / 1e3,
                                 .speculate = (size_t)flags->num_speculative_tokens,
                                 .publishes_pages = true,
                                 .recorder = model->recorder,
                                 .ranks = model->ranks};
    int rc;

    opts.vocab = vocab < config->vocab ? vocab : config->vocab; /* ids without a text are never chosen */
    rc = ash_vocab_trie_open(tokenizer, config->vocab, defaults->eos, defaults->eos_count, &model->trie, err);
    if (rc < 0) return rc;
    opts.vocab_trie = model->trie;
    rc = ash_serve_kv_open(flags, &model->tiers, err);
    if (rc < 0) return rc;
    if (rc > 0) opts.kv = &model->tiers.opts;
    rc = ash_serve_draft_open(flags, model, &opts, err);
    if (rc < 0) return rc;
    rc = ash_core_open(weights, ash_engine_exec(model->engine), &opts, &model->core, err);
    if (rc < 0) return rc;
    model->kv = ash_core_kv(model->core);
    model->api.kv = model->kv;
    model->api.page_events = ash_core_page_events(model->core);
    rc = open_adapters(model, err);
    if (rc < 0) return rc;
    rc = ash_runner_open(model->core, &model->runner, err);
    if (rc < 0) return rc;
    model->core = NULL;
    set_model_facts(model, config, opts.vocab);
    return 0;
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* Those of --lora-modules: NAME=DIR. */
static int load_adapters(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err)
{
    for (size_t i = 0; i < flags->lora_modules.count; i++) {
        const char *item = flags->lora_modules.items[i], *equals = strchr(item, '=');
        char name[128];
        int rc;

        if (equals == NULL || equals == item || (size_t)(equals - item) >= sizeof(name))
            return ash_err_set(err, -EINVAL, "--lora-modules: '%.100s' is not NAME=DIR", item);
        memcpy(name, item, (size_t)(equals - item));
        name[equals - item] = '\0';
        rc = ash_adapters_load(model->adapters, name, equals + 1, err);
        if (rc < 0) return ash_err_prefix(err, rc, "--lora-modules: %.100s", name);
    }
    return 0;
}

/* ---- the verifier ------------------------------------------------------------------------------------------------ */

static int weigh(void *ctx, const struct ash_api_weighed *answer, double *weight_out, struct ash_err *err)
{
    struct ash_rewarded rewarded = {.text = answer->text,
                                    .answer = "",
                                    .prompt_ids = answer->prompt_ids,
                                    .prompt_tokens = answer->prompt_tokens,
                                    .ids = answer->ids,
                                    .tokens = answer->tokens,
                                    .own_tokens = answer->tokens,
                                    .has_ended = answer->has_ended};

    return ash_verifier_weigh(ctx, &rewarded, weight_out, err);
}

static int open_verifier(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err)
{
    struct ash_verifier_opts opts = {
        .engine = model->engine, .exec = &model->verifier_exec, .max_tokens = ash_runner_max_tokens(model->runner)};
    int rc;

    if (flags->verifier.count == 0) return 0;
    rc = ash_exec_init(&model->verifier_exec, NULL, 1, err);
    if (rc < 0) return rc;
    model->has_verifier_exec = true;
    rc = ash_verifier_open(&flags->verifier, &opts, &model->verifier, err);
    if (rc < 0) return rc;
    model->api.weigh = weigh;
    model->api.weigh_ctx = model->verifier;
    return 0;
}

int ash_serve_model_open(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_err *err)
{
    int rc = ash_cmd_engine_open(&flags->computing, flags->model, &model->engine, err);
    if (rc < 0) return rc;
    model->ranks = ash_engine_ranks(model->engine);
    ash_cmd_use_kv_dtype(model->engine, flags->kv_dtype);
    rc = find_pooled(model, err);
    if (rc == 0) rc = open_runner(flags, model, err);
    if (rc < 0) return rc;
    rc = find_template(flags, model, err);
    if (rc < 0) return rc;
    rc = load_adapters(flags, model, err);
    if (rc == 0) rc = open_verifier(flags, model, err);
    if (rc < 0) return rc;
    model->api.adapters = model->adapters;
    model->api.ctx = model->runner;
    model->api.submit = submit;
    model->api.cancel = cancel;
    model->api.get_stats = get_stats;
    model->api.get_stalled_seconds = get_stalled_seconds;
    model->api.reset_prefix = reset_prefix;
    model->api.pause = pause_runner;
    model->api.resume = resume_runner;
    model->api.is_paused = is_paused;
    model->api.update = update;
    model->api.update_ctx = model;
    model->api.tokenizer = ash_engine_tokenizer(model->engine);
    model->api.defaults = ash_engine_defaults(model->engine);
    model->api.context_tokens = ash_runner_max_tokens(model->runner);
    model->api.sequences_max = (size_t)flags->max_num_seqs;
    return 0;
}

void ash_serve_model_warn(const struct ash_serve_flags *flags, const struct ash_serve_model *model)
{
    size_t most = ash_engine_context(model->engine), asked = (size_t)flags->max_model_len;
    size_t context = model->api.context_tokens;

    if (asked > most)
        ash_log(ASH_LOG_WARN, "--max-model-len %zu is more than the model's %zu tokens: these are used", asked, most);
    if (asked == 0 || asked > most) asked = most;
    if (context < asked)
        ash_log(ASH_LOG_WARN,
                "the context is cut to %zu of %zu tokens: the cache holds no more; --kv-cache-memory makes it larger",
                context, asked);
}

void ash_serve_model_cancel(struct ash_serve_model *model)
{
    if (model->runner != NULL) ash_runner_cancel_all(model->runner);
}

void ash_serve_model_stop(struct ash_serve_model *model)
{
    ash_runner_close(model->runner);
    model->runner = NULL;
}

void ash_serve_model_close(struct ash_serve_model *model)
{
    ash_serve_model_stop(model);
    ash_verifier_close(model->verifier);
    if (model->has_verifier_exec) ash_exec_fini(&model->verifier_exec);
    ash_adapters_close(model->adapters);
    ash_core_close(model->core);
    ash_serve_kv_close(&model->tiers);
    ash_engine_close(model->draft);
    ash_serve_head_close(&model->head);
    ash_vocab_trie_close(model->trie);
    ash_str_fini(&model->chat_source);
    ash_engine_close(model->engine);
    free(model->weights);
    *model = (struct ash_serve_model){0};
}
