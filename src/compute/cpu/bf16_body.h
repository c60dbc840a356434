/* bf16_body - the matrix ops of a backend that has an instruction for products of bf16: BF16_GEMM multiplies,
 * BF16_SMALL_M is the kernel for small M and for packed weights. All other ops are those of ops_body.h. */
#ifndef ASH_COMPUTE_BF16_BODY_H
#define ASH_COMPUTE_BF16_BODY_H

#ifndef ASH_COMPUTE_OPS_BODY_H
#error "include ops_body.h first"
#endif
#if !defined(BF16_GEMM) || !defined(BF16_SMALL_M)
#error "define BF16_GEMM and BF16_SMALL_M first"
#endif

static void gemm_bf16(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    if (args->round_bf16 && !args->cut_anywhere && args->fp8 == ASH_FP8_OFF)
        BF16_GEMM(exec, args);
    else
        vec_gemm(exec, args);
}

static void project_bf16(struct ash_exec *exec, const struct ash_project_args *args)
{
#ifdef BF16_PLAIN /* for quantised weights that are not packed, where it fits */
    if (BF16_PLAIN_FITS(args)) {
        BF16_PLAIN(exec, args);
        return;
    }
#endif
    project_with(exec, args, args->round_bf16 ? &BF16_SMALL_M : &small_m_kernel);
}

static size_t packed_bytes_bf16(enum ash_dtype dtype, size_t N, size_t K)
{
    return ash_dtype_block(dtype) == 1 ? BF16_SMALL_M.packed_bytes(N, K) : vec_packed_bytes(dtype, N, K);
}

static void pack_bf16(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                      void *packed)
{
    if (ash_dtype_block(w->mat.dtype) == 1)
        BF16_SMALL_M.pack(exec, w, K, first, count, packed);
    else
        vec_pack(exec, w, K, first, count, packed);
}

static const struct ash_matrix_ops bf16_matrix = {.gemm = gemm_bf16,
                                                  .quant_gemm = VEC_QUANT_GEMM,
                                                  .project = project_bf16,
                                                  .packed_bytes = packed_bytes_bf16,
                                                  .pack = pack_bf16,
                                                  .column_sum = column_sum};

#endif
