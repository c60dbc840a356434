/* The reference of backends that multiply bf16 with BFMMLA: the reference backend but for those products. It runs
 * everywhere, so any machine can check, slowly, what an arm64 one computed. */
#include "compute/ref/bfmmla.h"

#include "compute/ref/ref_priv.h"

static float step(float sum, const float *a, const float *b)
{
    return bfmmla_step(sum, a, b);
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    ash_ref_gemm_steps(exec, args, ASH_BFMMLA_GROUP, step);
}

static const struct ash_matrix_ops bfmmla_matrix = {
    .gemm = gemm, .quant_gemm = ash_ref_quant_gemm, .project = ash_ref_project, .column_sum = ash_ref_column_sum};

ASH_REF_OPS(ash_ops_ref_bfmmla, "ref-bfmmla", &bfmmla_matrix);
