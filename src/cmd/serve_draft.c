/* Drafts of a server: by a small model, by a head (the folder's, or of EAGLE-3), or by prompt lookup. */
#include <errno.h>

#include "base/log.h"
#include "cmd/serve_priv.h"
#include "compute/backends/backends.h"
#include "model/files/open.h"
#include "serve/engine/ranks.h"
#include "text/tokenizer/tokenizer.h"

#define LOOKUP_TOKENS 4 /* of --draft ngram, if nothing is said */

enum draft_kind { DRAFT_AUTO, DRAFT_MTP, DRAFT_NGRAM, DRAFT_NONE };

const char *const ash_serve_drafts[] = {"auto", "mtp", "ngram", "none", NULL};

/* The model of --draft-model: it must have the vocabulary of this model. */
static int open_model(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                      struct ash_err *err)
{
    struct ash_engine_flags computing = flags->computing;
    char backend[ASH_BACKEND_NAME_BYTES];
    int rc;

    if (model->ranks != NULL) /* it is whole on the first rank, and computes where that does */
        computing.backend = ash_backend_name(ash_engine_exec(model->engine), backend);
    computing.env.size = 0;
    rc = ash_cmd_engine_open(&computing, flags->draft_model, &model->draft, err);
    if (rc < 0) return ash_err_prefix(err, rc, "--draft-model");
    opts->draft = ash_engine_model(model->draft);
    if (ash_tokenizer_hash(ash_engine_tokenizer(model->draft)) ==
        ash_tokenizer_hash(ash_engine_tokenizer(model->engine)))
        return 0;
    return ash_err_set(err, -EINVAL,
                       "--draft-model: '%.200s' has another vocabulary than the model: take one of its "
                       "family",
                       flags->draft_model);
}

/* It computes as the model does. */
static int prepare(const struct ash_serve_model *model, struct ash_model *head, struct ash_err *err)
{
    const struct ash_model *weights = ash_engine_model(model->engine);

    ash_model_round_bf16(head, ash_model_rounds_bf16(weights));
    ash_model_use_kv_dtype(head, ash_model_kv_dtype(weights));
    return ash_model_prefetch(head, ash_engine_exec(model->engine), err);
}

/* The head that the folder of a model has. Returns as ash_model_open_head. */
static int open_own(const struct ash_serve_model *model, const char *path, struct ash_serve_head *head,
                    struct ash_err *err)
{
    int rc = ash_model_open_head(path, &head->model, err);

    return rc < 0 ? rc : prepare(model, head->model, err);
}

/* A head of EAGLE-3 for these weights. */
static int open_eagle(const struct ash_serve_model *model, const struct ash_model *weights, const char *dir,
                      struct ash_serve_head *head, struct ash_err *err)
{
    int rc = ash_eagle_open(dir, weights, &head->eagle, err);

    head->eagle_dir = dir;
    return rc < 0 ? rc : prepare(model, head->eagle.model, err);
}

int ash_serve_head_open_next(const struct ash_serve_model *model, const struct ash_model *weights, const char *path,
                             struct ash_serve_head *head_out, struct ash_err *err)
{
    struct ash_serve_head head = {0};
    int rc = 0;

    if (model->head.eagle.model != NULL)
        rc = open_eagle(model, weights, model->head.eagle_dir, &head, err);
    else if (model->head.model != NULL)
        rc = open_own(model, path, &head, err);
    if (rc < 0) ash_serve_head_close(&head);
    if (rc < 0 && rc != -ENOENT) return rc;
    *head_out = head; /* none: they were saved without it */
    return 0;
}

void ash_serve_head_close(struct ash_serve_head *head)
{
    ash_model_close(head->model);
    ash_eagle_close(&head->eagle);
    *head = (struct ash_serve_head){0};
}

/* The folder's head, if it has one. */
static int use_own(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                   struct ash_err *err)
{
    struct ash_err why = {0};
    int rc = open_own(model, ash_engine_dir(model->engine), &model->head, &why);

    if (rc == -ENOENT && flags->draft == DRAFT_AUTO) return 0;
    if (rc < 0) return ash_err_set(err, rc, "--draft %s: %s", ash_serve_drafts[flags->draft], why.text);
    opts->draft = model->head.model;
    ash_log(ASH_LOG_INFO, "drafts come from the model's own head (multi-token prediction); --draft none: no drafts");
    return 0;
}

static int use_eagle(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                     struct ash_err *err)
{
    int rc;

    if (model->ranks != NULL && ash_ranks_parts(model->ranks)->stages > 1)
        return ash_err_set(err, -ENOTSUP,
                           "--draft-model: a head of EAGLE-3 reads layers of several stages: leave --pp out");
    rc = open_eagle(model, ash_engine_model(model->engine), flags->draft_model, &model->head, err);
    if (rc < 0) return ash_err_prefix(err, rc, "--draft-model");
    opts->draft = model->head.eagle.model;
    opts->eagle = &model->head.eagle;
    return 0;
}

int ash_serve_draft_open(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                         struct ash_err *err)
{
    if (flags->draft_model != NULL && flags->draft != DRAFT_AUTO)
        return ash_err_set(err, -EINVAL, "--draft-model drafts by itself: leave --draft %s out",
                           ash_serve_drafts[flags->draft]);
    if (flags->draft_model != NULL && ash_eagle_is(flags->draft_model)) return use_eagle(flags, model, opts, err);
    if (flags->draft_model != NULL) return open_model(flags, model, opts, err);
    if (flags->draft == DRAFT_NONE) opts->speculate = 0;
    if (flags->draft == DRAFT_NGRAM && opts->speculate == 0) opts->speculate = LOOKUP_TOKENS;
    return flags->draft == DRAFT_AUTO || flags->draft == DRAFT_MTP ? use_own(flags, model, opts, err) : 0;
}
