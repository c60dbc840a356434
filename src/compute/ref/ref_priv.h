/* ref_priv - the tables of the reference backend and how its files read narrow floats. */
#ifndef ASH_COMPUTE_REF_PRIV_H
#define ASH_COMPUTE_REF_PRIV_H

#include "base/bf16.h"
#include "compute/ref/ref.h"

/* route_mixer.c: sparsemixer of one row, forward and backward. */
void ash_ref_mixer_forward(const struct ash_route_args *args, size_t row);
/* The gradients of its logits. */
void ash_ref_mixer_backward(const struct ash_route_args *args, size_t row);

extern const struct ash_matrix_ops ash_ref_matrix;
extern const struct ash_embed_ops ash_ref_embed;
extern const struct ash_norm_ops ash_ref_norm, ash_ref_norm_wgmma;
extern const struct ash_rope_ops ash_ref_rope, ash_ref_rope_wgmma;
extern const struct ash_attn_ops ash_ref_attn_wgmma;
extern const struct ash_act_ops ash_ref_act, ash_ref_act_wgmma;
extern const struct ash_row_ops ash_ref_row;
extern const struct ash_loss_ops ash_ref_loss, ash_ref_loss_wgmma;
extern const struct ash_optim_ops ash_ref_optim;
extern const struct ash_sample_ops ash_ref_sample;

/* ash_matrix_ops.gemm, for references that differ from ash_ops_ref in other products. */
void ash_ref_gemm(struct ash_exec *exec, const struct ash_gemm_args *args);
/* gemm_fp8.c: the same of a product of e4m3. */
void ash_ref_gemm_fp8(struct ash_exec *exec, const struct ash_gemm_args *args);
/* ash_matrix_ops.column_sum, for the same. */
void ash_ref_column_sum(struct ash_exec *exec, const struct ash_column_sum_args *args);
/* norm_wgmma.c: the same by blocks of rows, where rows are of sequences. */
void ash_ref_column_sum_blocks(struct ash_exec *exec, const struct ash_column_sum_args *args);
/* Returns sum plus one step of a product: a and b hold its bf16 values. */
typedef float (*ash_ref_step_fn)(float sum, const float *a, const float *b);
/* gemm_k_steps.c: a bf16 product by steps of group k (a divisor of ASH_K_GROUP; zeros after the last k), each added to
 * its sum by step; all other products as ash_ref_gemm. */
void ash_ref_gemm_steps(struct ash_exec *exec, const struct ash_gemm_args *args, size_t group, ash_ref_step_fn step);
/* A table of the reference, itself its reference, that differs from the others in name and products only. */
#define ASH_REF_OPS(TABLE, NAME, MATRIX)                                                                               \
    const struct ash_ops TABLE = {                                                                                     \
        .name = (NAME),                                                                                                \
        .reference = &TABLE,                                                                                           \
        .matrix = (MATRIX),                                                                                            \
        .embed = &ash_ref_embed,                                                                                       \
        .norm = &ash_ref_norm,                                                                                         \
        .rope = &ash_ref_rope,                                                                                         \
        .attn = &ash_ref_attn,                                                                                         \
        .act = &ash_ref_act,                                                                                           \
        .row = &ash_ref_row,                                                                                           \
        .loss = &ash_ref_loss,                                                                                         \
        .route = &ash_ref_route,                                                                                       \
        .optim = &ash_ref_optim,                                                                                       \
        .family = &ash_ref_family,                                                                                     \
        .sample = &ash_ref_sample,                                                                                     \
    }

/* distill.c: ash_loss_ops.distill. */
void ash_ref_distill(struct ash_exec *exec, const struct ash_distill_args *args);

/* ash_matrix_ops.quant_gemm. */
void ash_ref_quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args);

/* Element index of data (F32, BF16 or F16) as a float. */
static inline float ref_read(const void *data, enum ash_dtype dtype, size_t index)
{
    if (dtype == ASH_BF16) return ash_bf16_to_f32(((const uint16_t *)data)[index]);
    if (dtype == ASH_F16) return ash_f16_to_f32(((const uint16_t *)data)[index]);
    return ((const float *)data)[index];
}

/* Write a value where it is wanted: as it is, or (rounded not NULL) instead of that as bf16. */
static inline void ash_ref_put(float *plain, uint16_t *rounded, size_t index, float value)
{
    if (rounded != NULL)
        rounded[index] = ash_f32_to_bf16(value);
    else
        plain[index] = value;
}

/* Write element (m, n) of a product: its sum of all k, and what the epilogue adds. */
static inline void ash_ref_gemm_put(const struct ash_gemm_args *args, size_t m, size_t n, float sum)
{
    if (args->bias != NULL) sum = sum + args->bias[n];
    if (args->add != NULL) sum = args->add[m * args->add_stride + n] + sum;
    ash_ref_put(args->c, args->c_bf16, m * args->c_stride + n, sum);
}

#endif
