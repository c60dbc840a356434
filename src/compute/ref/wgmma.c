/* The reference of GPUs that multiply bf16 with Hopper's tensor cores: the reference backend but for those products,
 * attention, the sums of norms, losses, SwiGLU and what positions rotate. It runs everywhere, so any machine can check,
 * slowly, what a GPU computed. */
#include "compute/ref/wgmma.h"

#include "compute/ref/ref_priv.h"

static float step(float sum, const float *a, const float *b)
{
    return ash_wgmma_step(sum, a, b);
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_ref_gemm_steps(exec, args, ASH_WGMMA_GROUP, step);
}

static const struct ash_matrix_ops wgmma_matrix = {.gemm = gemm,
                                                   .quant_gemm = ash_ref_quant_gemm,
                                                   .project = ash_ref_project,
                                                   .column_sum = ash_ref_column_sum_blocks};

const struct ash_ops ash_ops_ref_wgmma = {
    .name = "ref-wgmma",
    .reference = &ash_ops_ref_wgmma,
    .takes_bf16 = true,
    .matrix = &wgmma_matrix,
    .embed = &ash_ref_embed,
    .norm = &ash_ref_norm_wgmma,
    .rope = &ash_ref_rope_wgmma,
    .attn = &ash_ref_attn_wgmma,
    .act = &ash_ref_act_wgmma,
    .row = &ash_ref_row,
    .loss = &ash_ref_loss_wgmma,
    .route = &ash_ref_route,
    .optim = &ash_ref_optim,
    .sample = &ash_ref_sample,
    .family = &ash_ref_family,
};
