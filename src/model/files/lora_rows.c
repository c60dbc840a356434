/* lora_rows: some GGUF files have the rows of q and k in another order than PEFT's modules: adapters follow. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/files/lora_files_priv.h"

/* Row i of a head's matrix becomes row 2i, row dim / 2 + i row 2i + 1; head is room for one. */
static void interleave_rows(float *values, size_t heads, size_t dim, size_t cols, float *head)
{
    for (size_t h = 0; h < heads; h++, values += dim * cols) {
        memcpy(head, values, dim * cols * sizeof(*head));
        for (size_t row = 0; row < dim; row++)
            memcpy(values + row * cols, head + (row / 2 + row % 2 * (dim / 2)) * cols, cols * sizeof(*head));
    }
}

/* Of one layer's matrix of q or k, and its bias. */
static int follow_rows_of(struct ash_model *adapters, const int32_t *roles, enum ash_role role, struct ash_err *err)
{
    const struct ash_adapter *adapter = ash_model_adapter(adapters, roles[role]);
    const struct ash_param *b = adapter != NULL ? &adapters->params[adapter->b] : NULL;
    size_t dim = adapters->config.head_dim;
    float *head;

    for (int i = 0; i < 2; i++)
        if (roles[role + i] != ASH_NO_PARAM && (size_t)roles[role + i] < adapters->param_count)
            return ash_err_set(err, -ENOTSUP, "'%s' was trained whole: name the Hugging Face folder as the model",
                               adapters->params[roles[role + i]].name);
    if (b == NULL) return 0;
    head = malloc(dim * b->dims[1] * sizeof(*head));
    if (head == NULL) return ash_err_set(err, -ENOMEM, "out of memory for adapters");
    interleave_rows((float *)adapters->values.data + b->offset, b->dims[0] / dim, dim, b->dims[1], head);
    free(head);
    return 0;
}

int ash_lora_follow_rows(struct ash_model *adapters, const struct ash_model *base, struct ash_err *err)
{
    if (!ash_model_rows_permuted(base)) return 0;
    for (size_t i = 0; i < adapters->config.layers; i++) {
        int rc = follow_rows_of(adapters, adapters->layers[i].param, ASH_ROLE_Q, err);

        if (rc == 0) rc = follow_rows_of(adapters, adapters->layers[i].param, ASH_ROLE_K, err);
        if (rc < 0) return rc;
    }
    ash_model_refresh(adapters);
    return 0;
}
