/* Products with a quantised matrix in plain C: an exact integer for each group, one fused multiply-add chain. */
#include "compute/ref/ref_priv.h"

#include "base/math.h"
#include "base/assert.h"
#include "compute/quant_open.h"

/* A unit is one output element; neighbours share a thread. Each quantises its row of x again, to stay readable. */
#define QUANT_MIN_ELEMENTS 16

/* count inputs of a row, a group, added to acc. */
static float add_group(const float *x, const uint8_t *w, enum ash_dtype dtype, size_t count, float acc)
{
    int8_t qx[ASH_QUANT_GROUP];
    int32_t dot = 0, low = 0;
    float dx = ash_quant_quantise(x, count, qx);
    struct ash_quant_opened group;

    ash_quant_open(w, dtype, count, &group);
    for (size_t i = 0; i < count; i++) {
        dot += group.subscales[i / ASH_QUANT_SUB] * group.q[i] * qx[i];
        if (ash_quant_has_min(dtype)) low += group.submins[i / ASH_QUANT_SUB] * qx[i];
    }
    acc = fmaf((float)dot, dx * group.scale, acc);
    return ash_quant_has_min(dtype) ? fmaf((float)low, dx * group.min, acc) : acc;
}

static void quant_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_quant_args *args = ctx;
    size_t row_bytes = ash_dtype_size(args->dtype, args->K), group = ash_quant_group(args->dtype);

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        const float *x = args->x + m * args->x_stride;
        const uint8_t *w = (const uint8_t *)args->w + n * row_bytes;
        float *y = args->y + m * args->y_stride + n;
        float acc = args->accumulate ? *y : 0.0f;

        for (size_t k = 0; k < args->K; k += group) {
            size_t count = ash_min(args->K - k, group);

            acc = add_group(x + k, w + ash_dtype_size(args->dtype, k), args->dtype, count, acc);
        }
        *y = args->bias != NULL ? acc + args->bias[n] : acc;
    }
}

void ash_ref_quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args)
{
    ash_assert(ash_dtype_block(args->dtype) > 1 && args->K % ash_dtype_block(args->dtype) == 0);
    ash_assert(args->bias == NULL || !args->accumulate);
    ash_workers_run(exec->workers, args->M * args->N, QUANT_MIN_ELEMENTS, quant_elements, (void *)args);
}
