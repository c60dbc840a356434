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
                "makes a model of its own",
                adapters->params[i].is_matrix ? "modules_to_save" : "bias", adapters->params[i].name);
    return 0;
}

/* Row i of a head's matrix becomes row 2i, row dim / 2 + i row 2i + 1; head is room for one. */
static void interleave_rows(float *values, size_t heads, size_t dim, size_t cols, float *head)
{
    for (size_t h = 0; h < heads; h++, values += dim * cols) {
        memcpy(head, values, dim * cols * sizeof(*head));
        for (size_t row = 0; row < dim; row++)
            memcpy(values + row * cols, head + (row / 2 + row % 2 * (dim / 2)) * cols, cols * sizeof(*head));
    }
}

/* Some GGUF files have the rows of q and k in another order than PEFT's modules: adapters follow. */
static int follow_row_order(struct ash_model *adapters, const struct ash_model *base, struct ash_err *err)
{
    static const enum ash_role roles[] = {ASH_ROLE_Q, ASH_ROLE_K};
    size_t dim = base->config.head_dim;

    if (base->gguf == NULL || !base->config.rope.interleaved) return 0;
    for (size_t i = 0; i < base->config.layers * ASH_COUNT(roles); i++) {
        int32_t weight = adapters->layers[i / ASH_COUNT(roles)].param[roles[i % ASH_COUNT(roles)]];
        const struct ash_adapter *adapter = ash_model_adapter(adapters, weight);
        const struct ash_param *b = adapter != NULL ? &adapters->params[adapter->b] : NULL;
        float *head;

        if (b == NULL) continue;
        head = malloc(dim * b->dims[1] * sizeof(*head));
        if (head == NULL) return ash_err_set(err, -ENOMEM, "out of memory for adapters");
        interleave_rows((float *)adapters->values.data + b->offset, b->dims[0] / dim, dim, b->dims[1], head);
        free(head);
    }
    ash_model_refresh(adapters);
    return 0;
}

int ash_lora_attach(const char *dir, const struct ash_model *model, const struct ash_exec *exec, size_t max_rows,
                    struct ash_lora_set *set_out, struct ash_err *err)
{
    struct ash_lora_set set = {0};
    struct ash_model_config config = *ash_model_get_config(model);
    int rc = ash_lora_load_over(dir, model, &set.lora, err);

    if (rc == 0) {
        config.lora = set.lora;
        json_incref(config.source); /* the new model's */
        rc = ash_model_blank_slice(&config, NULL, &set.adapters, err);
        if (rc < 0) json_decref(config.source);
    }
    if (rc == 0) rc = refuse_whole(set.adapters, err);
    if (rc == 0) rc = ash_lora_read(set.adapters, dir, err);
    if (rc == 0) rc = follow_row_order(set.adapters, model, err);
    if (rc == 0) {
        ash_model_round_bf16(set.adapters, model->round_bf16);
        rc = ash_lora_reserve(set.adapters, exec, max_rows, err);
    }
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
