/* The vectorised backends of x86-64 with AVX-512: the kernel bodies, compiled for it, and once more with AMX for
 * products of bf16. */
#if defined(__x86_64__)

#include "base/math.h"
#include "compute/cpu/vec/vec_avx512.h"
#include "compute/cpu/gemm/gemm_bf16.h"
#include "compute/cpu/ops_body.h"

const struct ash_ops ash_ops_avx512 = VEC_OPS("avx512", &ash_ops_ref, &vec_matrix);

#define PLAIN_PACKED_BYTES ((size_t)1 << 20) /* of rows that are packed and used at once: they stay in L2 */

/* Quantised weights that are not packed, as the first token finds them: with several rows of x it pays to pack some
 * rows of w, multiply, and pack the next over them. */
static bool plain_fits(const struct ash_project_args *args)
{
    const struct ash_weight *w = &args->outs[0].w;

    return ash_dtype_block(w->mat.dtype) > 1 && !w->packed && args->M > 1 && args->K > 0 &&
           VEC_QUANT_PANELS(NULL, w->mat.dtype) != NULL && !quant_overlaps(args);
}

/* Rows [first, first + count) of an out (swiglu: of both). */
static void plain_rows(struct ash_exec *exec, const struct ash_project_args *args, size_t out, size_t first,
                       size_t count, char *packed)
{
    const struct ash_quant_panels *kernels = VEC_QUANT_PANELS(exec->ops, args->outs[0].w.mat.dtype);
    struct ash_project_args part = *args;

    part.out_count = args->swiglu ? 2 : 1;
    for (size_t i = 0; i < part.out_count; i++) {
        struct ash_project_out *to = &part.outs[i];
        size_t row_bytes;

        *to = args->outs[out + i];
        row_bytes = ash_dtype_size(to->w.mat.dtype, args->K);
        to->w.mat.data = (const char *)to->w.mat.data + first * row_bytes;
        to->w.N = count;
        ash_quant_pack(exec, kernels, &to->w, args->K, 0, count, packed);
        to->w.mat.data = packed;
        to->w.packed = true;
        if (to->bias != NULL) to->bias += first;
        if (to->y != NULL) to->y += first;
        packed += ash_quant_packed_bytes(kernels->layout, to->w.mat.dtype, count, args->K);
    }
    quant_project(exec, &part);
}

static void project_plain(struct ash_exec *exec, const struct ash_project_args *args)
{
    enum ash_dtype dtype = args->outs[0].w.mat.dtype;
    size_t rows = ash_round_up(PLAIN_PACKED_BYTES / ash_dtype_size(dtype, args->K) + 1, ASH_PACK_ROWS);
    size_t bytes = ash_quant_packed_bytes(VEC_QUANT_PANELS(exec->ops, dtype)->layout, dtype, rows, args->K);
    char *packed = ash_exec_shared(exec, (args->swiglu ? 2 : 1) * bytes);

    for (size_t out = 0; out < (args->swiglu ? 1 : args->out_count); out++)
        for (size_t first = 0; first < args->outs[out].w.N; first += rows)
            plain_rows(exec, args, out, first, ash_min(rows, args->outs[out].w.N - first), packed);
}

#define BF16_GEMM ash_gemm_amx
#define BF16_SMALL_M ash_small_m_amx
#define BF16_PLAIN_FITS plain_fits
#define BF16_PLAIN project_plain
#include "compute/cpu/bf16_body.h"

const struct ash_ops ash_ops_amx = VEC_OPS("amx", &ash_ops_ref_tdpbf16, &bf16_matrix);

#endif
