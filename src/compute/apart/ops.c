/* The ops of `apart`: those of the portable CPU path, each between enter and leave. */
#include "compute/apart/apart.h"

#include "compute/apart/memory.h"
#include "compute/cpu.h"

/* An op of a family: its parameters, and the same as arguments. */
#define APART(family, op, parameters, arguments)                                                                       \
    static void family##_##op parameters                                                                               \
    {                                                                                                                  \
        ash_apart_enter();                                                                                             \
        ash_ops_portable.family->op arguments;                                                                         \
        ash_apart_leave();                                                                                             \
    }

APART(matrix, gemm, (struct ash_exec * exec, const struct ash_gemm_args *args), (exec, args))
APART(matrix, quant_gemm, (struct ash_exec * exec, const struct ash_quant_args *args), (exec, args))
APART(matrix, project, (struct ash_exec * exec, const struct ash_project_args *args), (exec, args))
APART(matrix, column_sum, (struct ash_exec * exec, const float *x, size_t stride, size_t rows, size_t cols, float *sum),
      (exec, x, stride, rows, cols, sum))
APART(embed, gather,
      (struct ash_exec * exec, const void *table, enum ash_dtype dtype, size_t cols, const int32_t *ids, size_t rows,
       bool add, float *out),
      (exec, table, dtype, cols, ids, rows, add, out))
APART(embed, scatter_add,
      (struct ash_exec * exec, float *table, size_t cols, const int32_t *ids, size_t rows, const float *grad),
      (exec, table, cols, ids, rows, grad))
APART(norm, rms_forward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
APART(norm, rms_backward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
APART(norm, layer_forward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
APART(norm, layer_backward, (struct ash_exec * exec, const struct ash_norm_args *args), (exec, args))
APART(rope, apply, (struct ash_exec * exec, const struct ash_rope_args *args), (exec, args))
APART(attn, forward, (struct ash_exec * exec, const struct ash_attn_args *args), (exec, args))
APART(attn, backward, (struct ash_exec * exec, const struct ash_attn_args *args), (exec, args))
APART(attn, kv_write, (struct ash_exec * exec, const struct ash_kv_write_args *args), (exec, args))
APART(act, swiglu_forward, (struct ash_exec * exec, const float *gate, const float *up, size_t count, float *out),
      (exec, gate, up, count, out))
APART(act, swiglu_backward,
      (struct ash_exec * exec, const float *gate, const float *up, const float *dout, size_t count, float *dgate,
       float *dup),
      (exec, gate, up, dout, count, dgate, dup))
APART(act, gelu_forward, (struct ash_exec * exec, enum ash_gelu kind, const float *x, size_t count, float *out),
      (exec, kind, x, count, out))
APART(act, gelu_backward,
      (struct ash_exec * exec, enum ash_gelu kind, const float *x, const float *dout, size_t count, float *dx),
      (exec, kind, x, dout, count, dx))
APART(row, copy, (struct ash_exec * exec, const struct ash_copy_args *args), (exec, args))
APART(row, add, (struct ash_exec * exec, const float *a, const float *b, size_t count, float *out),
      (exec, a, b, count, out))
APART(row, scale, (struct ash_exec * exec, float *x, float factor, size_t count), (exec, x, factor, count))
APART(row, round_bf16, (struct ash_exec * exec, const float *x, size_t count, float *out), (exec, x, count, out))
APART(row, gather, (struct ash_exec * exec, const float *x, size_t cols, const int32_t *index, size_t rows, float *out),
      (exec, x, cols, index, rows, out))
APART(row, combine,
      (struct ash_exec * exec, const float *y, size_t cols, const int32_t *where, const float *weight, size_t slots,
       size_t rows, bool add, float *out),
      (exec, y, cols, where, weight, slots, rows, add, out))
APART(row, slot_dot,
      (struct ash_exec * exec, const float *x, const float *y, size_t cols, const int32_t *where, size_t slots,
       size_t rows, float *out),
      (exec, x, y, cols, where, slots, rows, out))
APART(loss, cross_entropy,
      (struct ash_exec * exec, float *logits, size_t rows, size_t vocab, const int32_t *targets, float scale,
       float *loss),
      (exec, logits, rows, vocab, targets, scale, loss))
APART(loss, part_top, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
APART(loss, part_sum, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
APART(loss, part_end, (struct ash_exec * exec, const struct ash_loss_part *part), (exec, part))
APART(route, forward, (struct ash_exec * exec, const struct ash_route_args *args), (exec, args))
APART(route, backward, (struct ash_exec * exec, const struct ash_route_args *args), (exec, args))
APART(route, group,
      (struct ash_exec * exec, const int32_t *index, size_t rows, size_t choices, size_t experts, int32_t *order,
       int32_t *flat, int32_t *where, size_t *offsets),
      (exec, index, rows, choices, experts, order, flat, where, offsets))
APART(optim, adamw, (struct ash_exec * exec, const struct ash_adamw_args *args), (exec, args))
APART(optim, sum_squares, (struct ash_exec * exec, const float *x, size_t count, int exponent, struct ash_squares *sum),
      (exec, x, count, exponent, sum))

static uint32_t optim_max_abs(struct ash_exec *exec, const float *x, size_t count)
{
    uint32_t bits;

    ash_apart_enter();
    bits = ash_ops_portable.optim->max_abs(exec, x, count);
    ash_apart_leave();
    return bits;
}

static const struct ash_matrix_ops matrix_ops = {
    .gemm = matrix_gemm, .quant_gemm = matrix_quant_gemm, .project = matrix_project, .column_sum = matrix_column_sum};
static const struct ash_embed_ops embed_ops = {.gather = embed_gather, .scatter_add = embed_scatter_add};
static const struct ash_norm_ops norm_ops = {.rms_forward = norm_rms_forward,
                                             .rms_backward = norm_rms_backward,
                                             .layer_forward = norm_layer_forward,
                                             .layer_backward = norm_layer_backward};
static const struct ash_rope_ops rope_ops = {.apply = rope_apply};
static const struct ash_attn_ops attn_ops = {
    .forward = attn_forward, .backward = attn_backward, .kv_write = attn_kv_write};
static const struct ash_act_ops act_ops = {.swiglu_forward = act_swiglu_forward,
                                           .swiglu_backward = act_swiglu_backward,
                                           .gelu_forward = act_gelu_forward,
                                           .gelu_backward = act_gelu_backward};
static const struct ash_row_ops row_ops = {.copy = row_copy,
                                           .add = row_add,
                                           .scale = row_scale,
                                           .round_bf16 = row_round_bf16,
                                           .gather = row_gather,
                                           .combine = row_combine,
                                           .slot_dot = row_slot_dot};
static const struct ash_loss_ops loss_ops = {.cross_entropy = loss_cross_entropy,
                                             .part_top = loss_part_top,
                                             .part_sum = loss_part_sum,
                                             .part_end = loss_part_end};
static const struct ash_route_ops route_ops = {
    .forward = route_forward, .backward = route_backward, .group = route_group};
static const struct ash_optim_ops optim_ops = {
    .adamw = optim_adamw, .sum_squares = optim_sum_squares, .max_abs = optim_max_abs};

const struct ash_ops ash_ops_apart = {.name = "apart",
                                      .reference = &ash_ops_ref,
                                      .matrix = &matrix_ops,
                                      .embed = &embed_ops,
                                      .norm = &norm_ops,
                                      .rope = &rope_ops,
                                      .attn = &attn_ops,
                                      .act = &act_ops,
                                      .row = &row_ops,
                                      .loss = &loss_ops,
                                      .route = &route_ops,
                                      .optim = &optim_ops};
