/* The engine: opens what a folder holds, once, and keeps it together. */
#include "serve/engine_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "compute/backends/backends.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"

const char *ash_version(void)
{
    return ASHLAR_VERSION;
}

void ash_engine_opts_init(struct ash_engine_opts *opts)
{
    *opts = (struct ash_engine_opts){.size = sizeof(*opts)};
}

/* A caller compiled against another version has fewer fields (the rest keep their defaults) or more (which we cannot
 * honour). */
static int take_opts(struct ash_engine_opts *opts, const struct ash_engine_opts *given, struct ash_err *err)
{
    ash_engine_opts_init(opts);
    if (given == NULL) return 0;
    if (given->size < sizeof(given->size) || given->size > sizeof(*opts))
        return ash_err_set(err, -EINVAL, "options of %zu bytes: initialise them with ash_engine_opts_init",
                           given->size);
    memcpy(opts, given, given->size);
    opts->size = sizeof(*opts);
    return 0;
}

/* The backend asked for, or a GPU if there is one. */
static int start_exec(struct ash_engine *engine, const struct ash_engine_opts *opts, struct ash_err *err)
{
    struct ash_backend_wish wish = {.asked = opts->backend};
    struct ash_backend_choice choice;
    int rc = 0;

    ash_backend_choose(&wish, &choice);
    if (engine->ranks != NULL) rc = ash_ranks_choose_gpu(engine->ranks, &choice, err);
    if (rc == 0) rc = ash_backend_start(&engine->exec, &choice, opts->threads, err);
    if (rc < 0) return rc;
    memcpy(engine->gpu_why, choice.why, sizeof(engine->gpu_why));
    if (engine->ranks == NULL) return ash_workers_pin(engine->exec.workers, ASH_PIN_AUTO, err);
    ash_ranks_compute_with(engine->ranks, &engine->exec);
    return 0;
}

int ash_engine_check_ranks(const char *dir, const struct ash_slice_parts *parts, struct ash_err *err)
{
    struct ash_model_config config;
    int rc;

    if (ash_lora_exists(dir))
        return ash_err_set(err, -ENOTSUP,
                           "'%s' has adapters, which several ranks cannot serve: merge them (ashlar "
                           "model merge), or give --tp 1",
                           dir);
    rc = ash_model_config_load(dir, &config, err);
    if (rc < 0) return rc;
    rc = ash_slice_check_gathers(&config, parts, err);
    ash_model_config_fini(&config);
    return rc;
}

/* This rank's part of the model. */
static int open_slice(struct ash_engine *engine, struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_slice slice;
    int rc = ash_engine_check_ranks(engine->dir, ash_ranks_parts(engine->ranks), err);

    if (rc == 0) rc = ash_model_config_load(engine->dir, &config, err);
    if (rc < 0) return rc;
    slice = ash_slice_gathered(&config, ash_ranks_parts(engine->ranks), ash_ranks_rank(engine->ranks));
    ash_model_config_fini(&config);
    return ash_model_open_slice(engine->dir, &slice, &engine->model, err);
}

static int open_model(struct ash_engine *engine, const char *lora, struct ash_err *err)
{
    if (engine->ranks != NULL) return open_slice(engine, err);
    if (lora == NULL) return ash_model_open_lazy(engine->dir, &engine->model, err);
    if (ash_lora_exists(engine->dir))
        return ash_err_set(err, -EINVAL, "'%s' is an adapter, too: name the base as the model", engine->dir);
    if (!ash_lora_exists(lora))
        return ash_err_set(err, -ENOENT, "'%s' is no PEFT folder: it has no " ASH_LORA_CONFIG_FILE, lora);
    return ash_model_open_adapted(lora, engine->dir, &engine->model, err);
}

/* A reward model's head has one row: its output is a score, not logits of a next token. Encoders are served with it. */
static int refuse_reward_model(const struct ash_engine *engine, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(engine->model);

    if (config->labels == 0 || config->form.both_ways) return 0;
    return ash_err_set(err, -ENOTSUP,
                       "%s is a reward model: it scores answers and writes none. Give it to `--verifier model=%s` of "
                       "`ashlar generate`, `eval` or `serve`, or to rl.rewards",
                       engine->dir, engine->dir);
}

/* Are all matrices bfloat16? */
static bool has_bf16_weights(const struct ash_model *model)
{
    for (size_t i = 0; i < ash_model_param_count(model); i++)
        if (ash_model_param(model, i)->is_matrix && ash_model_param(model, i)->dtype != ASH_BF16) return false;
    return true;
}

/* Tokenizer, chat template and how the model is sampled. */
static int open_text(struct ash_engine *engine, struct ash_err *err)
{
    char home[4096];
    int rc = ash_model_home(engine->dir, home, sizeof(home));

    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", engine->dir);
    rc = ash_tokenizer_open(engine->dir, &engine->tokenizer, err);
    if (rc == -ENOENT && ash_lora_exists(engine->dir))
        return ash_err_prefix(err, rc, "'%.200s' holds adapters alone: give --model BASE --lora DIR", engine->dir);
    if (rc == 0) rc = ash_defaults_load(home, ash_model_get_config(engine->model), &engine->defaults, err);
    return rc < 0 ? rc : ash_engine_load_chat(engine, engine->dir, err);
}

/* All that a new engine has. */
static int open_parts(struct ash_engine *engine, const struct ash_engine_opts *opts, struct ash_err *err)
{
    int rc = engine->dir != NULL ? start_exec(engine, opts, err) : ash_err_set(err, -ENOMEM, "engine: out of memory");

    if (rc == 0) rc = open_model(engine, opts->lora, err);
    if (rc == 0) rc = refuse_reward_model(engine, err);
    if (rc < 0) return rc;
    if (opts->bf16 || (opts->auto_bf16 && engine->exec.cuda != NULL && has_bf16_weights(engine->model)))
        ash_model_round_bf16(engine->model, true);
    rc = ash_model_prefetch(engine->model, &engine->exec, err);
    return rc == 0 && ash_ranks_rank(engine->ranks) == 0 ? open_text(engine, err) : rc;
}

int ash_engine_open_rank(const char *dir, const struct ash_engine_opts *opts, struct ash_ranks *ranks,
                         struct ash_engine **engine_out, struct ash_err *err)
{
    struct ash_engine_opts taken;
    struct ash_engine *engine;
    int rc = take_opts(&taken, opts, err);

    engine = rc == 0 ? calloc(1, sizeof(*engine)) : NULL;
    if (engine == NULL) {
        ash_ranks_close(ranks);
        return rc < 0 ? rc : ash_err_set(err, -ENOMEM, "engine: out of memory");
    }
    engine->ranks = ranks;
    engine->dir = strdup(dir);
    rc = open_parts(engine, &taken, err);
    if (rc < 0) {
        if (ranks != NULL) ash_ranks_fail(ranks, err);
        ash_engine_close(engine);
        return rc;
    }
    *engine_out = engine;
    return 0;
}

int ash_engine_open(const char *dir, const struct ash_engine_opts *opts, struct ash_engine **engine_out,
                    struct ash_err *err)
{
    return ash_engine_open_rank(dir, opts, NULL, engine_out, err);
}

void ash_engine_close(struct ash_engine *engine)
{
    if (engine == NULL) return;
    ash_ranks_close(engine->ranks);
    ash_chat_template_close(engine->chat);
    ash_tokenizer_close(engine->tokenizer);
    ash_model_close(engine->model);
    ash_exec_fini(&engine->exec);
    free(engine->dir);
    free(engine);
}

struct ash_model *ash_engine_model(struct ash_engine *engine)
{
    return engine->model;
}

struct ash_model *ash_engine_replace_model(struct ash_engine *engine, struct ash_model *model)
{
    struct ash_model *before = engine->model;

    engine->model = model;
    return before;
}

struct ash_ranks *ash_engine_ranks(const struct ash_engine *engine)
{
    return engine->ranks;
}

const char *ash_engine_dir(const struct ash_engine *engine)
{
    return engine->dir;
}

struct ash_exec *ash_engine_exec(struct ash_engine *engine)
{
    return &engine->exec;
}

const char *ash_engine_gpu_why(const struct ash_engine *engine)
{
    return engine->gpu_why;
}

const struct ash_tokenizer *ash_engine_tokenizer(const struct ash_engine *engine)
{
    return engine->tokenizer;
}

const struct ash_defaults *ash_engine_defaults(const struct ash_engine *engine)
{
    return &engine->defaults;
}

size_t ash_engine_context(const struct ash_engine *engine)
{
    return ash_model_get_config(engine->model)->max_positions;
}

int ash_engine_encode(const struct ash_engine *engine, const char *text, bool add_special, int32_t **ids_out,
                      size_t *count_out, struct ash_err *err)
{
    struct ash_ids ids = {0};
    int rc = ash_tokenizer_encode(engine->tokenizer, text, strlen(text), add_special, &ids, err);

    if (rc < 0) {
        ash_ids_fini(&ids);
        return rc;
    }
    *ids_out = ids.data;
    *count_out = ids.count;
    return 0;
}

int ash_engine_decode(const struct ash_engine *engine, const int32_t *ids, size_t count, bool keep_special,
                      char **text_out, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_tokenizer_decode(engine->tokenizer, ids, count, !keep_special, &text, err);

    if (rc == 0 && text.data == NULL && ash_str_adds(&text, "") < 0) rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        ash_str_fini(&text);
        return rc;
    }
    *text_out = text.data;
    return 0;
}

void ash_free(void *ptr)
{
    free(ptr);
}
