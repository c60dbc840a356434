/* The ops of `apart`: those of the portable CPU path, each between enter and leave. Quantised weights are packed, in a
 * layout that nothing else reads: the file's bytes, inverted. */
#include "compute/apart/apart.h"

#include <stdlib.h>

#include "base/assert.h"
#include "compute/apart/memory.h"
#include "compute/cpu.h"

#define OP(family, op, parameters, arguments)                                                                          \
    static void family##_##op parameters                                                                               \
    {                                                                                                                  \
        ash_apart_enter();                                                                                             \
        ash_ops_portable.family->op arguments;                                                                         \
        ash_apart_leave();                                                                                             \
    }
#include "compute/ops_list.h"
#undef OP
#include "compute/ops_tables.h"

static size_t packed_bytes(enum ash_dtype dtype, size_t N, size_t K)
{
    return ash_dtype_block(dtype) > 1 ? ash_dtype_size(dtype, N * K) : 0;
}

static void invert(const void *from, size_t size_bytes, void *to)
{
    for (size_t i = 0; i < size_bytes; i++)
        ((uint8_t *)to)[i] = (uint8_t) ~((const uint8_t *)from)[i];
}

static void pack(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count, void *packed)
{
    size_t row_bytes = ash_dtype_size(w->mat.dtype, K);

    (void)exec;
    ash_apart_enter();
    invert((const char *)w->mat.data + first * row_bytes, count * row_bytes, (char *)packed + first * row_bytes);
    ash_apart_leave();
}

/* The weight of an output as the file has it, in memory of the caller's. */
static void unpack(struct ash_weight *w, size_t K)
{
    size_t bytes = ash_dtype_size(w->mat.dtype, w->N * K);
    void *plain = malloc(bytes);

    ash_assert(plain != NULL);
    ash_apart_enter();
    invert(w->mat.data, bytes, plain);
    ash_apart_leave();
    w->mat.data = plain;
    w->packed = false;
}

static void project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_project_args plain = *args;

    if (!args->outs[0].w.packed) {
        matrix_ops.project(exec, args);
        return;
    }
    for (size_t i = 0; i < args->out_count; i++)
        unpack(&plain.outs[i].w, args->K);
    matrix_ops.project(exec, &plain);
    for (size_t i = 0; i < args->out_count; i++)
        free((void *)(uintptr_t)plain.outs[i].w.mat.data);
}

static const struct ash_matrix_ops packing_ops = {.gemm = matrix_gemm,
                                                  .quant_gemm = matrix_quant_gemm,
                                                  .project = project,
                                                  .packed_bytes = packed_bytes,
                                                  .pack = pack,
                                                  .column_sum = matrix_column_sum};

const struct ash_ops ash_ops_apart = {
    .name = "apart", .reference = &ash_ops_ref, ASH_WRAPPED_TABLES_BUT_MATRIX, .matrix = &packing_ops};
