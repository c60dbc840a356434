/* Products with a quantised matrix in plain C: exact integer dots of blocks or groups of them, one fused multiply-add
 * chain over them. */
#include "compute/ref/ref_priv.h"

#include "base/assert.h"
#include "compute/quant.h"

/* A unit is one output element; neighbours share a thread. Each quantises its row of x anew, to stay readable. */
#define QUANT_MIN_ELEMENTS 16

static void quant_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_quant_args *args = ctx;
    size_t block_bytes = ash_dtype_bytes(args->dtype), row_bytes = ash_dtype_size(args->dtype, args->K);
    size_t span = ash_quant_span(args->dtype);

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        const float *x = args->x + m * args->x_stride;
        const uint8_t *w = (const uint8_t *)args->w + n * row_bytes;
        float *y = args->y + m * args->y_stride + n;
        float acc = args->accumulate ? *y : 0.0f;

        for (size_t k = 0; k < args->K; k += span) {
            size_t count = args->K - k < span ? args->K - k : span;
            int8_t qx[ASH_QUANT_WIDE], qw[ASH_QUANT_BLOCK];
            float dx = ash_quant_numbers(x + k, count, qx), dw = ash_quant_scale(w);
            int32_t dot = 0;

            for (size_t i = 0; i < count; i += ASH_QUANT_BLOCK, w += block_bytes) {
                ash_quant_unpack(w, args->dtype, qw);
                dot += ash_quant_dot(qx + i, qw);
            }
            acc = fmaf((float)dot, dx * dw, acc);
        }
        *y = args->bias != NULL ? acc + args->bias[n] : acc;
    }
}

void ash_ref_quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args)
{
    ash_assert(args->K % ASH_QUANT_BLOCK == 0 && (args->bias == NULL || !args->accumulate));
    ash_assert(ash_dtype_block(args->dtype) == ASH_QUANT_BLOCK);
    ash_workers_run(exec->workers, args->M * args->N, QUANT_MIN_ELEMENTS, quant_elements, (void *)args);
}
