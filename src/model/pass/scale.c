/* scale: families whose factors these are compute on the CPU alone, so there is no op for it. */
#include "model/pass/scale.h"

#include "base/assert.h"
#include "base/workers.h"

#define SCALE_MIN_ROWS 8

struct columns {
    size_t cols, stride;
    float factor;
    float *x;
};

static void scale_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct columns *columns = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++)
        for (size_t c = 0; c < columns->cols; c++)
            columns->x[r * columns->stride + c] = columns->x[r * columns->stride + c] * columns->factor;
}

void ash_scale_columns(const struct ash_pass_step *step, size_t cols, size_t stride, double factor, float *x)
{
    struct columns columns = {cols, stride, (float)factor, x};

    ash_assert(x != NULL && cols <= stride);
    if (factor == 0 || factor == 1) return;
    ash_workers_run(step->exec->workers, step->rows, SCALE_MIN_ROWS, scale_rows, &columns);
}
