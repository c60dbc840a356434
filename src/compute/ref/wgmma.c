/* The reference of GPUs that multiply bf16 with Hopper's tensor cores: the reference backend but for those products and
 * attention. It runs everywhere, so any machine can check, slowly, what a GPU computed. */
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

static const struct ash_matrix_ops wgmma_matrix = {
    .gemm = gemm, .quant_gemm = ash_ref_quant_gemm, .project = ash_ref_project, .column_sum = ash_ref_column_sum};

ASH_REF_OPS(ash_ops_ref_wgmma, "ref-wgmma", &wgmma_matrix, &ash_ref_attn_wgmma, true);
