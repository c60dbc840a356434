/* scorer: one pass per answer; its last row has the score in the place of a loss. */
#include "post/reward/scorer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/files/open.h"
#include "model/pass/pass.h"
#include "text/tokenizer/tokenizer.h"

struct ash_scorer {
    struct ash_model *model;
    struct ash_pass *pass;
    size_t max_tokens;
    int32_t *ids, *targets; /* [max_tokens] */
    float *losses;          /* [max_tokens] */
};

/* A language model has no score head: a new one would be random. */
static int check_kind(const char *dir, struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    const char *kind;
    int rc = ash_path_join(path, sizeof(path), dir, "config.json");

    if (rc == 0) rc = ash_json_load(path, &config, err);
    if (rc < 0) return rc;
    kind = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    if (kind == NULL || strstr(kind, "ForSequenceClassification") == NULL)
        rc = ash_err_set(err, -EINVAL, "%s is no reward model (%s): make one with `ashlar reward`", dir,
                         kind != NULL ? kind : "config.json names no architecture");
    json_decref(config);
    return rc;
}

static int check_tokenizer(const char *dir, uint64_t hash, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    int rc = ash_tokenizer_open(dir, &tokenizer, err);

    if (rc < 0) return rc;
    if (ash_tokenizer_hash(tokenizer) != hash)
        rc = ash_err_set(err, -EINVAL, "the reward model %s has another tokenizer than the policy", dir);
    ash_tokenizer_close(tokenizer);
    return rc;
}

int ash_scorer_open(const char *dir, struct ash_exec *exec, uint64_t tokenizer_hash, size_t max_tokens,
                    struct ash_scorer **scorer_out, struct ash_err *err)
{
    struct ash_scorer *scorer = calloc(1, sizeof(*scorer));
    struct ash_pass_opts opts = {.max_rows = max_tokens};
    int rc = scorer == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a reward model") : check_kind(dir, err);

    if (rc == 0) rc = check_tokenizer(dir, tokenizer_hash, err);
    if (rc == 0) rc = ash_model_open_scorer(dir, NULL, 0, &scorer->model, err);
    if (rc == 0) rc = ash_pass_open(scorer->model, exec, &opts, &scorer->pass, err);
    if (rc == 0) {
        scorer->max_tokens = max_tokens;
        scorer->ids = calloc(max_tokens, sizeof(*scorer->ids));
        scorer->targets = calloc(max_tokens, sizeof(*scorer->targets));
        scorer->losses = calloc(max_tokens, sizeof(*scorer->losses));
        if (scorer->ids == NULL || scorer->targets == NULL || scorer->losses == NULL)
            rc = ash_err_set(err, -ENOMEM, "out of memory for a reward model");
    }
    if (rc < 0) {
        ash_scorer_close(scorer);
        return rc;
    }
    *scorer_out = scorer;
    return 0;
}

void ash_scorer_close(struct ash_scorer *scorer)
{
    if (scorer == NULL) return;
    ash_pass_close(scorer->pass);
    ash_model_close(scorer->model);
    free(scorer->ids);
    free(scorer->targets);
    free(scorer->losses);
    free(scorer);
}

int ash_scorer_score(struct ash_scorer *scorer, const struct ash_scored *scored, double *score_out, struct ash_err *err)
{
    size_t rows = scored->prompt_count + scored->answer_count;
    struct ash_doc doc = {.count = rows};
    struct ash_batch batch = {
        .rows = rows, .ids = scorer->ids, .targets = scorer->targets, .docs = &doc, .doc_count = 1};
    int rc;

    if (rows == 0 || rows > scorer->max_tokens)
        return ash_err_set(err, -EOVERFLOW, "an answer of %zu tokens cannot be scored: there is room for %zu", rows,
                           scorer->max_tokens);
    memcpy(scorer->ids, scored->prompt, scored->prompt_count * sizeof(*scored->prompt));
    memcpy(scorer->ids + scored->prompt_count, scored->answer, scored->answer_count * sizeof(*scored->answer));
    for (size_t i = 0; i < rows; i++)
        scorer->targets[i] = i + 1 == rows ? 0 : -1;
    rc = ash_pass_eval(scorer->pass, &batch, scorer->losses, err);
    if (rc == 0) *score_out = (double)scorer->losses[rows - 1];
    return rc;
}
