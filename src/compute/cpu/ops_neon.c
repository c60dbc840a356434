/* The vectorised backends of arm64: the kernel bodies, compiled for it, and once more with BFMMLA for products of bf16.
 */
#if defined(__aarch64__)

#include "compute/cpu/vec_neon.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_neon = VEC_OPS("neon", &ash_ops_ref, &vec_matrix);

static void gemm_bf16(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    if (args->round_bf16 && !args->cut_anywhere)
        ash_gemm_bfmmla(exec, args);
    else
        gemm(exec, args);
}

static const struct ash_matrix_ops bf16_matrix = {.gemm = gemm_bf16,
                                                  .quant_gemm = VEC_QUANT_GEMM,
                                                  .project = project,
                                                  .packed_bytes = packed_bytes,
                                                  .pack = pack,
                                                  .column_sum = column_sum};

const struct ash_ops ash_ops_neon_bf16 = VEC_OPS("neon-bf16", &ash_ops_ref_bfmmla, &bf16_matrix);

#endif
