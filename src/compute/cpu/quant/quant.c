/* Products with a quantised matrix that is not packed, on a CPU: quantise ASH_QUANT_MC rows of x once, then split the
 * rows of w among the threads. The weights are read as they lie in the file, once for these rows of x. */
#include "compute/cpu/quant/quant_priv.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cpu.h"
#include "compute/cpu/quant/quant_panels.h"
#include "compute/quant_open.h"
#include "infra/cpu.h"

#define QUANTISE_MIN_BLOCKS 256 /* fewer are not worth another thread */
#define PRODUCT_MIN_TILES 4

struct quant_gemm {
    const struct ash_quant_args *args;
    ash_quant_kernel_fn kernel;
    bool i8mm_layout;
    struct ash_quant_rows x;
    int8_t *q; /* x.q, x.scale and x.sum, to write */
    float *scale;
    int32_t *sum;
};

/* ---- the rows of x ----------------------------------------------------------------------------------------------- */

static void store_plain(const struct quant_gemm *op, size_t row, size_t group, size_t count, const int8_t *q,
                        float scale)
{
    size_t block = row * op->x.blocks + group * op->x.group_blocks;

    memcpy(op->q + block * ASH_QUANT_BLOCK, q, count);
    op->scale[row * op->x.groups + group] = scale;
    for (size_t i = 0; i < count; i += ASH_QUANT_SUB) {
        int32_t *sum = op->sum + (block * ASH_QUANT_BLOCK + i) / ASH_QUANT_SUB;

        *sum = 0;
        for (size_t j = 0; j < ASH_QUANT_SUB; j++)
            *sum += q[i + j];
    }
}

static void store_i8mm(const struct quant_gemm *op, size_t row, size_t group, size_t count, const int8_t *q,
                       float scale)
{
    size_t block = row / 2 * op->x.blocks + group * op->x.group_blocks, half = row % 2;
    float *scales = op->scale + 4 * (row / 2 * op->x.groups + group) + 2 * half;

    for (size_t i = 0; i < count / 8; i++)
        memcpy(op->q + (block * 8 + 2 * i + half) * 8, q + 8 * i, 8);
    scales[0] = scales[1] = scale;
}

/* A unit is one group of one row. */
static void quantise_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_gemm *op = ctx;
    const struct ash_quant_args *args = op->args;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t row = unit / op->x.groups, group = unit % op->x.groups;
        size_t k = group * op->x.group_blocks * ASH_QUANT_BLOCK;
        size_t count = ash_quant_rows_blocks(&op->x, group) * ASH_QUANT_BLOCK;
        int8_t q[ASH_QUANT_GROUP] = {0};
        float scale = 0.0f;

        if (row < op->x.rows) scale = ash_quant_quantise(args->x + (op->x.first + row) * args->x_stride + k, count, q);
        if (op->i8mm_layout)
            store_i8mm(op, row, group, count, q, scale);
        else
            store_plain(op, row, group, count, q, scale);
    }
}

/* Bytes of quants, scales and sums of the current rows: a plain row has a scale per group and two sums per block, a row
 * of the i8mm layout two scales per group and no sums. */
static size_t rows_bytes(const struct quant_gemm *op, size_t rows)
{
    size_t per_block = ASH_QUANT_BLOCK + sizeof(float) + ASH_QUANT_BLOCK / ASH_QUANT_SUB * sizeof(int32_t);

    ash_assert(op->x.groups <= op->x.blocks);
    _Static_assert(sizeof(int32_t) == sizeof(float), "the second scales take the place of the sums");
    return rows * op->x.blocks * per_block;
}

static void quantise(struct ash_exec *exec, struct quant_gemm *op)
{
    size_t rows = op->i8mm_layout ? ash_round_up(op->x.rows, 2) : op->x.rows, blocks = rows * op->x.blocks;

    /* the scratch of one thread, borrowed for all: no unit of this op asks for its own */
    op->q = ash_exec_scratch(exec, 0, rows_bytes(op, rows));
    op->scale = (float *)(void *)(op->q + blocks * ASH_QUANT_BLOCK);
    op->sum = (int32_t *)(void *)(op->scale + blocks);
    op->x.q = op->q;
    op->x.scale = op->scale;
    op->x.sum = op->i8mm_layout ? NULL : op->sum;
    ash_workers_run(exec->workers, rows * op->x.groups, QUANTISE_MIN_BLOCKS / op->x.group_blocks, quantise_units, op);
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static void product_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct quant_gemm *op = ctx;
    size_t last = end * ASH_QUANT_NR;

    (void)worker;
    op->kernel(op->args, &op->x, begin * ASH_QUANT_NR, ash_min(last, op->args->N));
}

static void drive(struct ash_exec *exec, const struct ash_quant_args *args, ash_quant_kernel_fn kernel,
                  bool i8mm_layout)
{
    struct quant_gemm op = {.args = args, .kernel = kernel, .i8mm_layout = i8mm_layout};

    ash_assert(ash_dtype_block(args->dtype) > 1 && args->K % ash_dtype_block(args->dtype) == 0);
    ash_assert(args->bias == NULL || !args->accumulate);
    op.x.blocks = args->K / ASH_QUANT_BLOCK;
    op.x.groups = ash_quant_groups(args->dtype, args->K);
    op.x.group_blocks = ash_quant_group_blocks(args->dtype);
    for (size_t m = 0; m < args->M; m += ASH_QUANT_MC) {
        op.x.first = m;
        op.x.rows = ash_min(args->M - m, ASH_QUANT_MC);
        quantise(exec, &op);
        ash_workers_run(exec->workers, ash_div_up(args->N, ASH_QUANT_NR), PRODUCT_MIN_TILES, product_units, &op);
    }
}

/* ---- plain C ----------------------------------------------------------------------------------------------------- */

/* A group of one row of x: subs sub-blocks. */
struct plain_x {
    const int8_t *q;
    const int32_t *sums;
    float scale;
    size_t subs;
};

/* It times a group of one row of w, added to acc. */
static float plain_group(const struct ash_quant_opened *w, bool has_min, const struct plain_x *x, float acc)
{
    int32_t dot = 0, low = 0;

    for (size_t s = 0; s < x->subs; s++) {
        int32_t part = 0;

        for (size_t i = s * ASH_QUANT_SUB; i < (s + 1) * ASH_QUANT_SUB; i++)
            part += w->q[i] * x->q[i];
        dot += w->subscales[s] * part;
        if (has_min) low += w->submins[s] * x->sums[s];
    }
    acc = fmaf((float)dot, x->scale * w->scale, acc);
    return has_min ? fmaf((float)low, x->scale * w->min, acc) : acc;
}

/* One row of w against all rows of x, so that each group is opened once. */
static void plain_row(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t n)
{
    const uint8_t *w = (const uint8_t *)args->w + n * ash_dtype_size(args->dtype, args->K);
    float *y = args->y + x->first * args->y_stride + n;
    float sums[ASH_QUANT_MC];

    for (size_t m = 0; m < x->rows; m++)
        sums[m] = args->accumulate ? y[m * args->y_stride] : 0.0f;
    for (size_t group = 0; group < x->groups; group++) {
        size_t count = ash_quant_rows_blocks(x, group) * ASH_QUANT_BLOCK;
        struct ash_quant_opened opened;

        ash_quant_open(w, args->dtype, count, &opened);
        w += ash_dtype_size(args->dtype, count);
        for (size_t m = 0; m < x->rows; m++) {
            size_t at = (m * x->blocks + group * x->group_blocks) * ASH_QUANT_BLOCK;
            struct plain_x row = {x->q + at, x->sum + at / ASH_QUANT_SUB, x->scale[m * x->groups + group],
                                  count / ASH_QUANT_SUB};

            sums[m] = plain_group(&opened, ash_quant_has_min(args->dtype), &row, sums[m]);
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
const struct ash_quant_panels *ash_quant_panels_neon(const struct ash_ops *ops, enum ash_dtype dtype)
{
    (void)ops;
    if (!ash_cpu_get()->i8mm || ash_quant_table(dtype) != NULL) return NULL;
    if (ash_quant_is_open(dtype))
        return ash_quant_group_blocks(dtype) > 1 ? &ash_quant_open_wide_i8mm : &ash_quant_open_block_i8mm;
    if (dtype == ASH_Q8_0) return &ash_quant_q8_i8mm;
    return dtype == ASH_Q4_0 ? &ash_quant_q4_i8mm : &ash_quant_q8w_i8mm;
}

void ash_quant_gemm_neon(struct ash_exec *exec, const struct ash_quant_args *args)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (ash_quant_is_open(args->dtype))
        drive(exec, args, cpu->dotprod ? ash_quant_kernel_open_dot : plain_kernel, false);
    else if (cpu->i8mm && args->M > 1)
        drive(exec, args, ash_quant_kernel_i8mm, true);
    else if (cpu->dotprod)
        drive(exec, args, ash_quant_kernel_dot, false);
    else
        drive(exec, args, plain_kernel, false);
}
#elif defined(__x86_64__)
const struct ash_quant_panels *ash_quant_panels_avx512(const struct ash_ops *ops, enum ash_dtype dtype)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (!cpu->avx512_vnni) return NULL;
    if (ash_quant_is_open(dtype))
        return ash_quant_group_blocks(dtype) > 1 ? &ash_quant_open_wide_vnni : &ash_quant_open_block_vnni;
    if (dtype == ASH_Q8_0) return ops == &ash_ops_amx && cpu->avx512_fp16 ? &ash_quant_q8_amx : &ash_quant_q8_vnni;
    if (ops != &ash_ops_amx || !cpu->amx_int8) return &ash_quant_wide_vnni;
    return dtype == ASH_Q4_0 ? &ash_quant_q4_amx : &ash_quant_q8w_amx;
}

void ash_quant_gemm_avx2(struct ash_exec *exec, const struct ash_quant_args *args)
{
    drive(exec, args, ash_quant_kernel_avx2, false);
}
#endif
