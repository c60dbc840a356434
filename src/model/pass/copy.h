/* copy - rectangles of floats between rows of different strides. */
#ifndef ASH_MODEL_PASS_COPY_H
#define ASH_MODEL_PASS_COPY_H

#include "compute/ops.h"

/* Rows of floats: their first element and the floats between two rows. */
struct ash_rows_from {
    const float *data;
    size_t stride;
};
struct ash_rows_to {
    float *data;
    size_t stride;
};

/* Copy cols columns of some rows. */
static inline void ash_copy_columns(struct ash_exec *exec, size_t rows, size_t cols, struct ash_rows_from from,
                                    struct ash_rows_to to)
{
    struct ash_copy_args args = {.rows = rows,
                                 .blocks = 1,
                                 .cols = cols,
                                 .src = from.data,
                                 .src_row = from.stride,
                                 .dst = to.data,
                                 .dst_dtype = ASH_F32,
                                 .dst_row = to.stride};

    exec->ops->row->copy(exec, &args);
}

#endif
