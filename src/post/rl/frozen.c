/* frozen: the reference of a run, a model that does not learn, and what it says of answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "post/rl/rl_priv.h"

/* It says what the policy's tokens are worth, so it has to know them all, by the same ids. A padded vocabulary may be
 * larger. */
static int check_vocabulary(const struct ash_policy_run *rl, const char *dir, struct ash_err *err)
{
    size_t theirs = ash_model_get_config(rl->reference.model)->vocab,
           ours = ash_tokenizer_vocab_size(rl->text.tokenizer);
    struct ash_tokenizer *tokenizer = NULL;
    bool is_same;

    if (theirs < ours)
        return ash_err_set(err, -EINVAL,
                           "the reference %s has %zu ids and the policy's tokenizer %zu: both must have "
                           "one vocabulary",
                           dir, theirs, ours);
    if (rl->job->rl.reference == NULL || ash_tokenizer_open(dir, &tokenizer, NULL) < 0) return 0; /* it has none */
    is_same = ash_tokenizer_hash(tokenizer) == ash_tokenizer_hash(rl->text.tokenizer);
    ash_tokenizer_close(tokenizer);
    return is_same ? 0
                   : ash_err_set(err, -EINVAL,
                                 "the reference %s has another tokenizer than the policy: its ids mean "
                                 "other texts",
                                 dir);
}

static int open_frozen(struct ash_policy_run *rl, struct ash_err *err)
{
    const struct ash_job *job = rl->job;
    const char *dir = job->rl.reference != NULL ? job->rl.reference : job->model.from;
    struct ash_pass_opts opts = {.max_rows = (size_t)(job->rollout.max_prompt_tokens + job->rollout.max_tokens)};
    bool is_held = job->rl.reference == NULL && rl->lora != NULL && rl->lora->quant != ASH_F32; /* as the policy's */
    int rc;

    if (rl->reference.model != NULL) return 0;
    rc = is_held ? ash_lora_open_base(rl->lora, &rl->reference.model, err)
                 : ash_model_open(dir, &rl->reference.model, err);
    if (rc < 0) return ash_err_prefix(err, rc, "the reference");
    rc = check_vocabulary(rl, dir, err);
    if (rc < 0) return rc;
    ash_model_round_bf16(rl->reference.model, job->train.precision != ASH_JOB_FP32);
    return ash_pass_open(rl->reference.model, rl->exec, &opts, &rl->reference.pass, err);
}

int ash_rl_weigh_row(const struct ash_policy_run *rl, struct ash_pass *pass, const struct ash_rollout *rollout,
                     const struct ash_answer_row *row, double *logps, struct ash_err *err)
{
    const struct ash_ids *prompt = &rollout->prompts[row->prompt].ids;
    size_t rows = prompt->count + row->count - 1,
           longest = rl->shape.max_tokens + (size_t)rl->job->rollout.max_prompt_tokens;
    int32_t *ids = calloc(2 * longest, sizeof(*ids)), *targets = ids + longest;
    float *losses = calloc(longest, sizeof(*losses));
    struct ash_kept *kept = calloc(longest, sizeof(*kept));
    struct ash_doc doc = {.count = rows};
    struct ash_batch batch = {.rows = rows,
                              .ids = ids,
                              .targets = targets,
                              .docs = &doc,
                              .doc_count = 1,
                              .kept = kept,
                              .sharpness = (float)(1.0 / rl->job->rollout.temperature)};
    int rc = ids == NULL || losses == NULL || kept == NULL
                 ? ash_err_set(err, -ENOMEM, "out of memory for log-probabilities")
                 : 0;

    ash_assert(rows <= longest);
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        ids[i] = i < prompt->count ? prompt->data[i] : row->ids[i - prompt->count];
        targets[i] = i + 1 >= prompt->count ? row->ids[i + 1 - prompt->count] : -1;
        if (targets[i] >= 0) kept[i] = ash_rl_kept_get(row, i + 1 - prompt->count);
    }
    if (rc == 0) rc = ash_pass_eval(pass, &batch, losses, err);
    for (size_t t = 0; rc == 0 && t < row->count; t++)
        logps[t] = -(double)losses[prompt->count - 1 + t];
    free(ids);
    free(losses);
    free(kept);
    return rc;
}

int ash_rl_run_reference(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    size_t rank = ash_group_rank(rl->group), size = ash_group_size(rl->group);
    int rc;

    if (!rl->shape.has_reference) return 0;
    rc = open_frozen(rl, err);
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        memset(rollout->answers[a].reference, 0, rl->shape.max_tokens * sizeof(double));
        if (a % size == rank && rollout->answers[a].count > 0)
            rc = ash_rl_weigh_row(rl, rl->reference.pass, rollout, &rollout->answers[a], rollout->answers[a].reference,
                                  err);
    }
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++)
        rc = ash_group_all_reduce(rl->group, rollout->answers[a].reference, rollout->answers[a].reference,
                                  rl->shape.max_tokens, ASH_COLL_F64, ASH_COLL_SUM, err);
    return rc;
}

void ash_rl_close_reference(struct ash_policy_run *rl)
{
    ash_pass_close(rl->reference.pass);
    rl->reference.pass = NULL;
    ash_model_close(rl->reference.model);
    rl->reference.model = NULL;
}
