/* Products with a quantised matrix on a processor: quantise some rows of x once, then share the rows of w among the
 * threads. The weights are read as they lie in the file, each once per ASH_QUANT_ROWS rows of x. */
#include "compute/cpu/quant_priv.h"

#include "base/assert.h"
#include "compute/cpu/cpu_priv.h"
#include "compute/cpu/quant_pack.h"
#include "compute/quant.h"
#include "infra/cpu.h"

#define QUANTISE_MIN_BLOCKS 256 /* fewer are not worth another thread */
#define PRODUCT_MIN_QUADS 4

struct quant {
    const struct ash_quant_args *args;
    ash_quant_kernel_fn kernel;
    bool paired;
    struct ash_quant_rows x;
    int8_t *q; /* x.q, x.scale and x.sum, to write */
    float *scale;
    int32_t *sum;
};

/* ---- the rows of x ----------------------------------------------------------------------------------------------- */

static void store_plain(const struct quant *op, size_t place, const int8_t *q, float scale)
{
    memcpy(op->q + place * ASH_QUANT_BLOCK, q, ASH_QUANT_BLOCK);
    op->scale[place] = scale;
    op->sum[place] = 0;
    for (size_t i = 0; i < ASH_QUANT_BLOCK; i++)
        op->sum[place] += q[i];
}

static void store_paired(const struct quant *op, size_t row, size_t block, const int8_t *q, float scale)
{
    size_t place = row / 2 * op->x.blocks + block, half = row % 2;

    for (size_t i = 0; i < ASH_QUANT_BLOCK / 8; i++)
        memcpy(op->q + (place * 8 + 2 * i + half) * 8, q + 8 * i, 8);
    op->scale[4 * place + 2 * half] = op->scale[4 * place + 2 * half + 1] = scale;
}

/* A unit is one block of one row. */
static void quantise_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant *op = ctx;
    const struct ash_quant_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t row = unit / op->x.blocks, block = unit % op->x.blocks;
        int8_t q[ASH_QUANT_BLOCK] = {0};
        float scale = 0.0f;

        if (row < op->x.rows)
            scale = ash_quant_block(args->x + (op->x.first + row) * args->x_stride + block * ASH_QUANT_BLOCK, q);
        if (op->paired)
            store_paired(op, row, block, q, scale);
        else
            store_plain(op, unit, q, scale);
    }
}

static void quantise(struct ash_exec *exec, struct quant *op)
{
    size_t rows = op->paired ? (op->x.rows + 1) / 2 * 2 : op->x.rows, blocks = rows * op->x.blocks;

    /* the scratch of one thread, borrowed for all: no unit of this op asks for its own */
    op->q = ash_exec_scratch(exec, 0, blocks * (ASH_QUANT_BLOCK + 2 * sizeof(float)));
    op->scale = (float *)(void *)(op->q + blocks * ASH_QUANT_BLOCK);
    op->x.q = op->q;
    op->x.scale = op->scale;
    op->sum = (int32_t *)(void *)(op->scale + blocks); /* paired: the second half of the scales instead */
    op->x.sum = op->sum;
    ash_workers_run(exec->workers, blocks, QUANTISE_MIN_BLOCKS, quantise_units, op);
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static void product_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant *op = ctx;
    size_t last = end * ASH_QUANT_QUAD;

    (void)worker;
    op->kernel(op->args, &op->x, begin * ASH_QUANT_QUAD, last < op->args->N ? last : op->args->N);
}

static void drive(struct ash_exec *exec, const struct ash_quant_args *args, ash_quant_kernel_fn kernel, bool paired)
{
    struct quant op = {.args = args, .kernel = kernel, .paired = paired, .x.blocks = args->K / ASH_QUANT_BLOCK};

    ash_assert(args->K % ASH_QUANT_BLOCK == 0 && (args->bias == NULL || !args->accumulate));
    ash_assert(args->dtype == ASH_Q8_0 || args->dtype == ASH_Q4_0);
    for (size_t m = 0; m < args->M; m += ASH_QUANT_ROWS) {
        op.x.first = m;
        op.x.rows = args->M - m < ASH_QUANT_ROWS ? args->M - m : ASH_QUANT_ROWS;
        quantise(exec, &op);
        ash_workers_run(exec->workers, (args->N + ASH_QUANT_QUAD - 1) / ASH_QUANT_QUAD, PRODUCT_MIN_QUADS,
                        product_units, &op);
    }
}

/* ---- plain C ----------------------------------------------------------------------------------------------------- */

/* One row of w against all rows of x, so that each block is unpacked once. */
static void plain_row(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t n)
{
    const uint8_t *w = (const uint8_t *)args->w + n * ash_dtype_size(args->dtype, args->K);
    float *y = args->y + x->first * args->y_stride + n;
    float sums[ASH_QUANT_ROWS];

    for (size_t m = 0; m < x->rows; m++)
        sums[m] = args->accumulate ? y[m * args->y_stride] : 0.0f;
    for (size_t b = 0; b < x->blocks; b++, w += ash_dtype_bytes(args->dtype)) {
        float scale = ash_quant_scale(w);
        int8_t q[ASH_QUANT_BLOCK];

        ash_quant_unpack(w, args->dtype, q);
        for (size_t m = 0; m < x->rows; m++) {
            size_t place = m * x->blocks + b;

            sums[m] = fmaf((float)ash_quant_dot(x->q + place * ASH_QUANT_BLOCK, q), x->scale[place] * scale, sums[m]);
        }
    }
    for (size_t m = 0; m < x->rows; m++)
        y[m * args->y_stride] = args->bias != NULL ? sums[m] + args->bias[n] : sums[m];
}

static void plain_kernel(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n++)
        plain_row(args, x, n);
}

/* ---- by processor ------------------------------------------------------------------------------------------------ */

void ash_quant_gemm_plain(struct ash_exec *exec, const struct ash_quant_args *args)
{
    drive(exec, args, plain_kernel, false);
}

#if defined(__aarch64__)
const struct ash_quant_panels *ash_quant_panels_neon(const struct ash_ops *ops)
{
    (void)ops;
    return ash_cpu_get()->i8mm ? &ash_quant_panels_i8mm : NULL;
}

void ash_quant_gemm_neon(struct ash_exec *exec, const struct ash_quant_args *args)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (cpu->i8mm && args->M > 1)
        drive(exec, args, ash_quant_kernel_i8mm, true);
    else if (cpu->dotprod)
        drive(exec, args, ash_quant_kernel_dot, false);
    else
        drive(exec, args, plain_kernel, false);
}
#elif defined(__x86_64__)
const struct ash_quant_panels *ash_quant_panels_avx512(const struct ash_ops *ops)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (!cpu->avx512_vnni) return NULL;
    return ops == &ash_ops_amx && cpu->avx512_fp16 ? &ash_quant_panels_amx : &ash_quant_panels_vnni;
}

void ash_quant_gemm_avx2(struct ash_exec *exec, const struct ash_quant_args *args)
{
    drive(exec, args, ash_quant_kernel_avx2, false);
}
#endif
