/* lora_attach: adapters for documents of batches, over a model that is open and stays as it is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/lora_files_priv.h"
#include "model/files/open.h"

static int refuse_whole(const struct ash_model *adapters, struct ash_err *err)
{
    for (size_t i = 0; i < adapters->param_count; i++)
        if (!adapters->params[i].is_adapter)
            return ash_err_set(
                err, -ENOTSUP,
                "%s: '%s' was trained whole, so these adapters cannot share a base: `ashlar model merge` "
                "makes another model",
                adapters->params[i].is_matrix ? "modules_to_save" : "bias", adapters->params[i].name);
    return 0;
}

int ash_lora_attach(const char *dir, const struct ash_model *model, struct ash_exec *exec, size_t max_rows,
                    struct ash_lora_set *set_out, struct ash_err *err)
{
    struct ash_lora_set set = {0};
    struct ash_model_config config = *ash_model_get_config(model);
    int rc = ash_lora_load_over(dir, model, &set.lora, err);

    if (rc == 0) {
        config.lora = set.lora;
        json_incref(config.source); /* the new model's */
        rc = ash_model_blank_slice(&config, &model->slice, &set.adapters, err);
        if (rc < 0) json_decref(config.source);
    }
    if (rc == 0) rc = refuse_whole(set.adapters, err);
    if (rc == 0) rc = ash_lora_read(set.adapters, dir, err);
    if (rc == 0) rc = ash_lora_follow_rows(set.adapters, model, err);
    if (rc == 0) {
        ash_model_round_bf16(set.adapters, model->round_bf16);
        rc = ash_model_place(set.adapters, exec, err);
    }
    if (rc == 0) rc = ash_lora_reserve(set.adapters, exec, max_rows, err);
    if (rc < 0) {
        ash_lora_detach(&set);
        return rc;
    }
    *set_out = set;
    return 0;
}

void ash_lora_detach(struct ash_lora_set *set)
{
    ash_model_close(set->adapters);
    ash_lora_close(set->lora);
    *set = (struct ash_lora_set){0};
}
