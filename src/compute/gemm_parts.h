/* gemm_parts - what backends do with the epilogue of a product that their kernels do not have: plain products, then
 * their sums are added to and rounded. */
#ifndef ASH_COMPUTE_GEMM_PARTS_H
#define ASH_COMPUTE_GEMM_PARTS_H

#include "base/assert.h"
#include "base/math.h"
#include "compute/ops.h"

#define ASH_GEMM_PART_BYTES ((size_t)64 << 20) /* of sums that are not rounded yet, about */

/* Does something follow the sums, other than a bias? */
static inline bool ash_gemm_has_epilogue(const struct ash_gemm_args *args)
{
    return args->add != NULL || args->c_bf16 != NULL;
}

/* Abort where callers ask for what does not exist. */
static inline void ash_gemm_check(const struct ash_gemm_args *args)
{
    ash_assert(!args->accumulate || (args->bias == NULL && !ash_gemm_has_epilogue(args)));
    ash_assert(args->c_bf16 == NULL || args->c == NULL);
}

/* count rows of a product from row `first` on. */
static inline struct ash_gemm_args ash_gemm_rows(const struct ash_gemm_args *args, size_t first, size_t count)
{
    struct ash_gemm_args part = *args;

    part.M = count;
    part.a.data = (const char *)args->a.data + first * args->a.row_stride * ash_dtype_bytes(args->a.dtype);
    if (args->c != NULL) part.c += first * args->c_stride;
    if (args->c_bf16 != NULL) part.c_bf16 += first * args->c_stride;
    if (args->add != NULL) part.add += first * args->add_stride;
    return part;
}

/* A product with an epilogue, by one without: gemm gets neither add nor c_bf16. Uses ash_exec_shared. */
static inline void ash_gemm_parts(struct ash_exec *exec, const struct ash_gemm_args *args,
                                  void (*gemm)(struct ash_exec *exec, const struct ash_gemm_args *args))
{
    size_t most = args->c_bf16 == NULL ? args->M : ash_max(ASH_GEMM_PART_BYTES / (args->N * sizeof(float)), 1);
    float *room = args->c_bf16 == NULL ? NULL : ash_exec_shared(exec, ash_min(most, args->M) * args->N * sizeof(*room));

    for (size_t first = 0; first < args->M; first += most) {
        const struct ash_gemm_args part = ash_gemm_rows(args, first, ash_min(most, args->M - first));
        struct ash_gemm_args plain = part;
        struct ash_copy_args move = {.rows = part.M, .blocks = 1, .cols = part.N, .dst_dtype = ASH_F32};

        plain.add = NULL;
        plain.c_bf16 = NULL;
        if (room != NULL) plain.c = room, plain.c_stride = part.N;
        gemm(exec, &plain);
        if (part.add != NULL) {
            move.src = part.add, move.src_row = part.add_stride;
            move.dst = plain.c, move.dst_row = plain.c_stride;
            move.add = true;
            exec->ops->row->copy(exec, &move);
        }
        if (part.c_bf16 == NULL) continue;
        move.src = plain.c, move.src_row = plain.c_stride;
        move.dst = part.c_bf16, move.dst_row = part.c_stride, move.dst_dtype = ASH_BF16;
        move.add = false;
        exec->ops->row->copy(exec, &move);
    }
}

#endif
