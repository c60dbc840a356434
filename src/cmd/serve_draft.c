/* Drafts of a server: by a small model, by the head that the model's folder has, or by prompt lookup. */
#include <errno.h>

#include "base/log.h"
#include "cmd/serve_priv.h"
#include "compute/backends/backends.h"
#include "model/files/open.h"
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

int ash_serve_head_open(const struct ash_serve_model *model, const char *path, struct ash_model **head_out,
                        struct ash_err *err)
{
    const struct ash_model *weights = ash_engine_model(model->engine);
    struct ash_model *head = NULL;
    int rc = ash_model_open_head(path, &head, err);

    if (rc < 0) return rc;
    ash_model_round_bf16(head, ash_model_rounds_bf16(weights));
    ash_model_use_kv_dtype(head, ash_model_kv_dtype(weights));
    rc = ash_model_prefetch(head, ash_engine_exec(model->engine), err);
    if (rc < 0) {
        ash_model_close(head);
        return rc;
    }
    *head_out = head;
    return 0;
}

/* The folder's head, if it has one. */
static int open_head(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                     struct ash_err *err)
{
    struct ash_err why = {0};
    int rc = ash_serve_head_open(model, ash_engine_dir(model->engine), &model->head, &why);

    if (rc == -ENOENT && flags->draft == DRAFT_AUTO) return 0;
    if (rc < 0) return ash_err_set(err, rc, "--draft %s: %s", ash_serve_drafts[flags->draft], why.text);
    opts->draft = model->head;
    ash_log(ASH_LOG_INFO, "drafts come from the model's own head (multi-token prediction); --draft none: no drafts");
    return 0;
}

int ash_serve_draft_open(const struct ash_serve_flags *flags, struct ash_serve_model *model, struct ash_core_opts *opts,
                         struct ash_err *err)
{
    if (flags->draft_model != NULL && flags->draft != DRAFT_AUTO)
        return ash_err_set(err, -EINVAL, "--draft-model drafts by itself: leave --draft %s out",
                           ash_serve_drafts[flags->draft]);
    if (flags->draft_model != NULL) return open_model(flags, model, opts, err);
    if (flags->draft == DRAFT_NONE) opts->speculate = 0;
    if (flags->draft == DRAFT_NGRAM && opts->speculate == 0) opts->speculate = LOOKUP_TOKENS;
    return flags->draft == DRAFT_AUTO || flags->draft == DRAFT_MTP ? open_head(flags, model, opts, err) : 0;
}
