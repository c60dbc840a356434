/* row_shape - the model of a row of published measurements: sizes from the columns, what columns do not say (latent
 * attention, windows, state spaces, which layers have experts) from the table of well-known models or from the number
 * of parameters. */
#ifndef ASH_PLAN_ROW_SHAPE_H
#define ASH_PLAN_ROW_SHAPE_H

#include "infra/catalog.h"
#include "base/csv.h"
#include "plan/shape.h"

/* Columns: model, layers, hidden, heads, kv_heads, head_dim, ffn, moe_ffn, vocab, experts, topk, shared_experts,
 * params_b. -EINVAL names the missing column. */
int ash_row_shape(const struct ash_csv *csv, size_t row, struct ash_shape *shape_out, struct ash_err *err);
/* The precision that a column's text names: fp4, fp8 and their kin, else bf16. */
enum ash_gpu_precision ash_row_precision(const struct ash_csv *csv, size_t row, const char *column);

#endif
