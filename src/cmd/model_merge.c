/* ashlar model merge: the weights of a base with adapters added, as a model folder; and how far that moves logits. */
#include "cmd/model_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/file.h"
#include "cmd/cmd.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/pass/compare.h"
#include "storage/commit/commit.h"
#include "train/data/tokenizer_files.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar model merge BASE ADAPTER NEW",
    .about =
        "Adds the adapters of a PEFT folder to the weights of the model folder BASE and writes the new folder NEW,\n"
        "in float32. It says how far the logits of drawn tokens move from those with the adapters apart from the\n"
        "weights: both are the same function, rounded in different places.",
    .examples = "  ashlar model merge models/qwen3 runs/chat/model models/qwen3-chat",
};

static int save(struct ash_model *merged, const char *base, const char *target, struct ash_err *err)
{
    struct ash_commit *commit = NULL;
    int rc;

    if (ash_path_exists(target)) return ash_err_set(err, -EEXIST, "'%s' exists already: name a new folder", target);
    rc = ash_commit_begin(target, &commit, err);
    if (rc < 0) return rc;
    rc = ash_model_save(merged, ash_commit_dir(commit), ASH_F32, 0, NULL, err);
    if (rc == 0) rc = ash_tokenizer_files_copy(base, ash_commit_dir(commit), ash_model_get_config(merged), err);
    if (rc < 0) {
        ash_commit_abort(commit);
        return rc;
    }
    return ash_commit_finish(commit, NULL, err);
}

static int merge(const char *base, const char *adapter, const char *target, struct ash_err *err)
{
    struct ash_lora *lora = NULL;
    struct ash_model *adapted = NULL, *merged = NULL;
    double far = 0.0;
    int rc = ash_lora_open_model(adapter, base, &lora, &adapted, err);

    if (rc == 0) rc = ash_model_open(base, &merged, err);
    if (rc == 0) rc = ash_model_own(merged, err);
    for (size_t i = 0; rc == 0 && i < ash_model_param_count(merged); i++) {
        const struct ash_param *param = ash_model_param(merged, i);

        ash_lora_merge(adapted, param->name, ash_model_values(merged) + param->offset);
    }
    if (rc == 0) {
        ash_model_refresh(merged);
        rc = ash_pass_compare(adapted, merged, &far, err);
    }
    if (rc == 0) printf("logits of %d drawn tokens move by %.3g at most\n", ASH_PASS_COMPARED, far);
    if (rc == 0) rc = save(merged, base, target, err);
    ash_model_close(merged);
    ash_model_close(adapted);
    ash_lora_close(lora);
    return rc;
}

static int respond(const void *flags, const struct ash_opts *opts, const char *const *words, size_t count)
{
    struct ash_err err = {0};

    (void)flags, (void)opts;
    if (count != 3) return ash_cmd_misuse("model merge", "name BASE, ADAPTER and the NEW folder");
    return merge(words[0], words[1], words[2], &err) < 0 ? ash_cmd_fail(&err) : 0;
}

int ash_model_merge(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", NULL, 0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&table, NULL}}, .respond_words = respond, .flags = NULL};

    return ash_cmd_run(&form, argc, argv);
}
