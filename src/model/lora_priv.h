/* lora_priv - adapters inside a model: params.c lists them, passes compute with them. */
#ifndef ASH_MODEL_LORA_PRIV_H
#define ASH_MODEL_LORA_PRIV_H

#include "model/lora.h"
#include "model/model_priv.h"

/* Of a matrix of the base: indices of A [rank, in] and B [out, rank]; ASH_NO_PARAM: it has none. */
struct ash_adapter {
    int32_t a, b;
    float scale;
    size_t rank;
};

/* Products [max_rows, rank] that adapter_scratch has room for: x A^T, dy B, and along tp dy B summed over its ranks,
 * for each output of a layer. */
#define ASH_ADAPTER_SLOTS (2 + ASH_PROJECT_OUTS_MAX)

/* values: the local part of a parameter whose whole tensor is data. */
void ash_param_take(const struct ash_param *param, const void *data, enum ash_dtype dtype, float *values);
/* The name in the base of a parameter that is trained whole: without PEFT's words. */
void ash_lora_base_name(const struct ash_param *param, char name[96]);
/* Give a parameter that is trained whole the base's values. Returns 0 or -ENOTSUP: the base is quantised. */
int ash_lora_take_base(struct ash_model *model, const struct ash_param *param, struct ash_err *err);
/* The adapter of a weight, or NULL. */
const struct ash_adapter *ash_model_adapter(const struct ash_model *model, int32_t weight);
/* After all parameters of the base are listed: list those of the adapters before them. Returns 0 or -ENOMEM. */
int ash_lora_list_params(struct ash_model *model, struct ash_err *err);
/* lora_dense.c: room for the largest quantised matrix of the base, written out. Returns 0 or -ENOMEM. */
int ash_lora_reserve_dense(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err);
/* Do batches that train leave out inputs of its adapters? */
bool ash_lora_drops(const struct ash_model *model);
/* Room for an adapter's input with parts left out, of max_rows rows. Returns 0 or -ENOMEM. */
int ash_lora_reserve_dropout(struct ash_model *model, const struct ash_exec *exec, size_t max_rows,
                             struct ash_err *err);
/* As ash_weight_matrix(model, weight, true); a quantised matrix is written out first, into memory that the next call
 * overwrites. */
struct ash_mat ash_weight_dense(const struct ash_model *model, struct ash_exec *exec, int32_t weight);
/* Room for x A^T and its gradient, of max_rows rows. Returns 0, -ENOTSUP or -ENOMEM. */
int ash_lora_reserve(struct ash_model *model, const struct ash_exec *exec, size_t max_rows, struct ash_err *err);

#endif
