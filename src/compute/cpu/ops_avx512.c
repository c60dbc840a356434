/* The vectorised backends of x86-64 with AVX-512: the kernel bodies, compiled for it, and once more with AMX for
 * products of bf16. */
#if defined(__x86_64__)

#include "compute/cpu/vec_avx512.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_avx512 = VEC_OPS("avx512", &ash_ops_ref, &vec_matrix);

static void gemm_bf16(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    if (args->round_bf16 && !args->cut_anywhere)
        ash_gemm_amx(exec, args);
    else
        gemm(exec, args);
}

static void project_bf16(struct ash_exec *exec, const struct ash_project_args *args)
{
    project_with(exec, args, args->round_bf16 ? &ash_few_amx : &few_kernel);
}

static size_t packed_bytes_bf16(enum ash_dtype dtype, size_t N, size_t K)
{
    return ash_dtype_block(dtype) == 1 ? ash_packed_bytes_amx(N, K) : packed_bytes(dtype, N, K);
}

static void pack_bf16(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                      void *packed)
{
    if (ash_dtype_block(w->mat.dtype) == 1)
        ash_pack_amx(exec, w, K, first, count, packed);
    else
        pack(exec, w, K, first, count, packed);
}

static const struct ash_matrix_ops amx_matrix = {.gemm = gemm_bf16,
                                                 .quant_gemm = VEC_QUANT_GEMM,
                                                 .project = project_bf16,
                                                 .packed_bytes = packed_bytes_bf16,
                                                 .pack = pack_bf16,
                                                 .column_sum = column_sum};

const struct ash_ops ash_ops_amx = VEC_OPS("amx", &ash_ops_ref_tdpbf16, &amx_matrix);

#endif
