/* project_body - products that share their input, with prologue (norm) and epilogue (bias, residual, SwiGLU). Large M:
 * the table's own product, over as many columns as keep the sums in a cache, and one pass over the sums. Small M: one
 * parallel loop over the rows of all weights; each thread norms x for itself, which costs less than waiting for
 * another. */
#ifndef ASH_COMPUTE_PROJECT_BODY_H
#define ASH_COMPUTE_PROJECT_BODY_H

#if !defined(ASH_COMPUTE_GEMM_SMALL_M_BODY_H) || !defined(ASH_COMPUTE_QUANT_BODY_H)
#error "include gemm_small_m_body.h and quant_body.h first"
#endif

#define PROJECT_SUMS ((size_t)2 << 20) /* sums at once, which wait for the epilogue */
#define PROJECT_COLS 96                /* columns of such a block are a multiple of it: whole tiles of any product */
#define PROJECT_MIN_ROWS 1

/* The epilogue of large M: y = y + sums, or y = silu(y) * sums. */
struct project_epilogue {
    bool swiglu;
    float *y;
    const float *sums;
    size_t y_stride, cols;
};

static void project_epilogue_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct project_epilogue *op = ctx;

    for (size_t r = begin; r < end; r++) {
        float *y = op->y + r * op->y_stride;
        const float *sums = op->sums + r * op->cols;
        struct act_op act = {.x = y, .up = sums, .out = y};

        if (op->swiglu)
            swiglu_forward_range(&act, 0, op->cols, worker);
        else
            add_row(y, sums, op->cols, y);
    }
}

/* A large-M job: x as the products read it, and scratch for the sums of `block` columns, which wait for an epilogue. */
struct large_m_op {
    struct ash_exec *exec;
    const struct ash_project_args *args;
    const struct ash_small_m_kernel *kernel; /* for packed weights */
    const float *x;
    size_t x_stride;
    float *sums;
    size_t block;
};

/* Columns [first, first + cols) of one product. */
static void large_m_product(const struct large_m_op *op, const struct ash_project_out *out, size_t first, size_t cols,
                            float *y, size_t y_stride)
{
    struct ash_gemm_args gemm_args = {.M = op->args->M,
                                      .N = cols,
                                      .K = op->args->K,
                                      .a = {op->x, ASH_F32, op->x_stride, 1},
                                      .b = out->w.mat,
                                      .c = y,
                                      .c_stride = y_stride,
                                      .bias = out->bias != NULL ? out->bias + first : NULL,
                                      .round_bf16 = op->args->round_bf16};

    if (out->w.packed) {
        op->kernel->packed_gemm(op->exec, &gemm_args, first);
        return;
    }
    gemm_args.b.data = pack_at(out->w.mat.data, out->w.mat.dtype, first * out->w.mat.col_stride);
    op->exec->ops->matrix->gemm(op->exec, &gemm_args);
}

/* One product with an epilogue, whose result goes to y. */
static void large_m_with_epilogue(const struct large_m_op *op, const struct ash_project_out *out, float *y,
                                  size_t y_stride)
{
    ash_assert(op->block > 0);
    for (size_t first = 0; first < out->w.N; first += op->block) {
        struct project_epilogue epilogue = {.swiglu = op->args->swiglu,
                                            .y = y + first,
                                            .sums = op->sums,
                                            .y_stride = y_stride,
                                            .cols = ash_min(op->block, out->w.N - first)};

        large_m_product(op, out, first, epilogue.cols, op->sums, epilogue.cols);
        ash_workers_run(op->exec->workers, op->args->M, PROJECT_MIN_ROWS, project_epilogue_rows, &epilogue);
    }
}

/* Columns whose sums fit. */
static size_t project_block(const struct ash_project_args *args)
{
    size_t wide = 0, most = PROJECT_SUMS / args->M;

    if (!args->residual && !args->swiglu) return 0;
    for (size_t i = 0; i < args->out_count; i++)
        if (args->outs[i].w.N > wide) wide = args->outs[i].w.N;
    return wide == 0 ? 0 : gemm_block_size(wide, ash_max(most, PROJECT_COLS), PROJECT_COLS);
}

/* Is x written while other products still read it? */
static bool project_in_place(const struct ash_project_args *args)
{
    for (size_t i = 0; i < args->out_count; i++)
        if (args->residual && args->outs[i].y == args->x) return true;
    return false;
}

/* x as the products read it, in copy. */
static void project_input(struct ash_exec *exec, const struct ash_project_args *args, float *copy)
{
    struct ash_norm_args norm = {.rows = args->M,
                                 .groups = 1,
                                 .cols = args->K,
                                 .x_stride = args->x_stride,
                                 .y_stride = args->K,
                                 .x = args->x,
                                 .weight = args->norm,
                                 .eps = args->norm_eps,
                                 .y = copy};

    if (args->norm != NULL)
        norm_rms_forward(exec, &norm);
    else
        copy_block(args->x, args->x_stride, copy, args->K, args->M, args->K);
}

static void project_large_m(struct ash_exec *exec, const struct ash_project_args *args,
                            const struct ash_small_m_kernel *kernel)
{
    const struct ash_project_out *outs = args->outs;
    bool copied = args->norm != NULL || project_in_place(args);
    size_t block = project_block(args), copy_floats = copied ? args->M * args->K : 0;
    float *copy = ash_exec_shared(exec, (copy_floats + args->M * block) * sizeof(float));
    struct large_m_op op = {.exec = exec,
                            .args = args,
                            .kernel = kernel,
                            .x = copied ? copy : args->x,
                            .x_stride = copied ? args->K : args->x_stride,
                            .sums = copy + copy_floats,
                            .block = block};

    if (copied) project_input(exec, args, copy);
    if (args->swiglu) {
        large_m_product(&op, &outs[0], 0, outs[0].w.N, outs[0].y, outs[0].y_stride);
        large_m_with_epilogue(&op, &outs[1], outs[0].y, outs[0].y_stride);
        return;
    }
    for (size_t i = 0; i < args->out_count; i++)
        if (args->residual)
            large_m_with_epilogue(&op, &outs[i], outs[i].y, outs[i].y_stride);
        else
            large_m_product(&op, &outs[i], 0, outs[i].w.N, outs[i].y, outs[i].y_stride);
}

/* ---- small M ----------------------------------------------------------------------------------------------------- */

#define SMALL_M_UNIT ASH_SMALL_M_COLS /* rows of a weight that a thread takes at least */
#define SMALL_M_MIN_UNITS 4
#define SMALL_M_BLOCK 1024                      /* rows of a weight whose sums are kept, at most */
#define SMALL_M_BLOCK_WEIGHTS ((size_t)1 << 17) /* of a block that several groups of rows walk over: it stays in L2 */

_Static_assert(SMALL_M_BLOCK % ASH_SMALL_M_COLS == 0, "the stride of sums has room for whole ASH_SMALL_M_COLS");
_Static_assert(SMALL_M_UNIT % ASH_PACK_ROWS == 0, "kernels get packed rows from such a one on");

struct small_m_op {
    struct ash_exec *exec;
    const struct ash_project_args *args;
    const struct ash_small_m_kernel *kernel;
    size_t group;                /* rows of x that share a pass over the weights */
    size_t left_bytes;           /* of such a group, prepared */
    size_t block;                /* rows of a weight */
    bool ready[ASH_WORKERS_MAX]; /* has this thread prepared x? */
};

/* What a thread works with: x as the kernel reads it, group after group, and the sums of two products. Before there are
 * sums, their memory holds the normed rows of a group. */
struct small_m_scratch {
    char *left;
    float *sums[2];
};

static size_t small_m_groups(const struct small_m_op *op)
{
    return ash_div_up(op->args->M, op->group);
}

static struct small_m_scratch small_m_scratch_get(const struct small_m_op *op, int worker)
{
    size_t normed = op->group * op->args->K, sums = op->group * SMALL_M_BLOCK;
    size_t left = small_m_groups(op) * op->left_bytes;
    char *base = ash_exec_scratch(op->exec, worker, left + ash_max(normed, 2 * sums) * sizeof(float));
    float *first = (float *)(void *)(base + left);

    return (struct small_m_scratch){.left = base, .sums = {first, first + sums}};
}

static void small_m_prologue(struct small_m_op *op, int worker, const struct small_m_scratch *scratch)
{
    const struct ash_project_args *args = op->args;
    size_t group = op->group;

    if (op->ready[worker]) return;
    for (size_t m = 0; m < args->M; m += group) {
        size_t rows = ash_min(group, args->M - m);
        struct ash_norm_args norm_args = {.rows = rows,
                                          .groups = 1,
                                          .cols = args->K,
                                          .x_stride = args->x_stride,
                                          .y_stride = args->K,
                                          .x = args->x + m * args->x_stride,
                                          .weight = args->norm,
                                          .eps = args->norm_eps,
                                          .y = scratch->sums[0]};
        struct norm_op norm = {.args = &norm_args};

        ash_assert(op->kernel->left_bytes(rows, args->K) <= op->left_bytes);
        if (args->norm != NULL)
            norm_forward_rows(&norm, 0, rows, worker);
        else
            copy_block(norm_args.x, args->x_stride, scratch->sums[0], args->K, rows, args->K);
        op->kernel->prepare(scratch->sums[0], rows, args->K, args->round_bf16,
                            scratch->left + m / group * op->left_bytes);
    }
    op->ready[worker] = true;
}

/* The epilogue of count sums of row m of x, from row first of the weights on. */
static void small_m_epilogue(const struct ash_project_args *args, const struct ash_project_out *out, size_t m,
                             size_t first, size_t count, float *const *sums)
{
    float *y = args->outs[args->swiglu ? 0 : out - args->outs].y + m * out->y_stride + first;
    struct act_op act = {.x = sums[0], .up = sums[1], .out = y};

    for (size_t i = 0; i < (args->swiglu ? 2u : 1u); i++)
        if (out[i].bias != NULL) add_row(sums[i], out[i].bias + first, count, sums[i]);
    if (args->swiglu)
        swiglu_forward_range(&act, 0, count, 0);
    else if (args->residual)
        add_row(y, sums[0], count, y);
    else
        memcpy(y, sums[0], count * sizeof(*y));
}

/* Rows [first, first + count) of one weight (swiglu: of both) for the rows of x from m on. */
static void small_m_block(const struct small_m_op *op, const struct ash_project_out *out, size_t m, size_t first,
                          size_t count, const struct small_m_scratch *scratch)
{
    const struct ash_project_args *args = op->args;
    size_t group = op->group, rows = ash_min(group, args->M - m);

    for (size_t i = 0; i < (args->swiglu ? 2u : 1u); i++) {
        struct ash_small_m job = {.w = &out[i].w,
                                  .M = rows,
                                  .K = args->K,
                                  .left = scratch->left + m / group * op->left_bytes,
                                  .round_bf16 = args->round_bf16,
                                  .first = first,
                                  .count = count,
                                  .sums = scratch->sums[i],
                                  .sums_stride = SMALL_M_BLOCK};

        op->kernel->sums(&job);
    }
    for (size_t r = 0; r < rows; r++)
        small_m_epilogue(args, out, m + r, first, count,
                         (float *[]){scratch->sums[0] + r * SMALL_M_BLOCK, scratch->sums[1] + r * SMALL_M_BLOCK});
}

static size_t small_m_units(const struct ash_project_out *out)
{
    return ash_div_up(out->w.N, SMALL_M_UNIT);
}

/* Units of the outs follow each other; swiglu's are those of one. */
static void project_small_m_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct small_m_op *op = ctx;
    const struct ash_project_out *out = op->args->outs;
    struct small_m_scratch scratch = small_m_scratch_get(op, worker);

    small_m_prologue(op, worker, &scratch);
    for (size_t base = 0; begin < end; base += small_m_units(out), out++) {
        size_t last = ash_min(end - base, small_m_units(out));

        for (; begin < base + last; begin = ash_min(begin + op->block / SMALL_M_UNIT, base + last)) {
            size_t first = (begin - base) * SMALL_M_UNIT;
            size_t count = ash_min(op->block, ash_min(last * SMALL_M_UNIT, out->w.N) - first);

            for (size_t m = 0; m < op->args->M; m += op->group)
                small_m_block(op, out, m, first, count, &scratch);
        }
    }
}

/* Rows of x that share a pass over these weights. */
static size_t small_m_group(const struct ash_project_args *args, const struct ash_small_m_kernel *kernel)
{
    for (size_t i = 0; i < args->out_count; i++)
        if (!args->outs[i].w.packed) return kernel->group_rows;
    return kernel->packed_rows;
}

static void project_small_m(struct ash_exec *exec, const struct ash_project_args *args,
                            const struct ash_small_m_kernel *kernel)
{
    struct small_m_op op = {.exec = exec, .args = args, .kernel = kernel};
    size_t units = 0;

    op.group = small_m_group(args, kernel);
    op.left_bytes = ash_round_up(kernel->left_bytes(ash_min(args->M, op.group), args->K), ASH_MEMORY_ALIGN);
    op.block = small_m_groups(&op) == 1 ? SMALL_M_BLOCK
                                        : ash_round_up((SMALL_M_BLOCK_WEIGHTS - 1) / args->K + 1, SMALL_M_UNIT);
    op.block = ash_min(op.block, SMALL_M_BLOCK);
    for (size_t i = 0; i < (args->swiglu ? 1 : args->out_count); i++)
        units += small_m_units(&args->outs[i]);
    ash_workers_run(exec->workers, units, SMALL_M_MIN_UNITS, project_small_m_units, &op);
}

static bool small_m_fits(const struct ash_project_args *args, const struct ash_small_m_kernel *kernel)
{
    if (args->M > kernel->groups_max * small_m_group(args, kernel)) return false;
    if (args->K == 0 || project_in_place(args)) return false;
    for (size_t i = 0; i < args->out_count; i++)
        if (!args->outs[i].w.packed && args->outs[i].w.mat.row_stride != 1) return false;
    return true;
}

/* ---- the op ------------------------------------------------------------------------------------------------------ */

static void project_check(const struct ash_project_args *args, const struct ash_small_m_kernel *kernel)
{
    const struct ash_weight *first = &args->outs[0].w;

    ash_assert(args->out_count >= 1 && args->out_count <= ASH_PROJECT_OUTS_MAX);
    ash_assert(!args->swiglu || (args->out_count == 2 && !args->residual && first->N == args->outs[1].w.N));
    for (size_t i = 1; i < args->out_count; i++)
        ash_assert(args->outs[i].w.packed == first->packed && args->outs[i].w.mat.dtype == first->mat.dtype);
    ash_assert(!first->packed || ash_dtype_block(first->mat.dtype) > 1 || kernel->packed_gemm != NULL);
}

/* kernel: that of small M, and for packed floats of large M too. */
static void project_with(struct ash_exec *exec, const struct ash_project_args *args,
                         const struct ash_small_m_kernel *kernel)
{
    const struct ash_weight *first = &args->outs[0].w;

    project_check(args, kernel);
    if (args->M == 0) return;
    if (ash_dtype_block(first->mat.dtype) > 1 && first->packed)
        quant_project(exec, args);
    else if (ash_dtype_block(first->mat.dtype) > 1)
        ash_ref_project(exec, args);
    else if (small_m_fits(args, kernel))
        project_small_m(exec, args, kernel);
    else
        project_large_m(exec, args, kernel);
}

static void vec_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    project_with(exec, args, &small_m_kernel);
}

static size_t vec_packed_bytes(enum ash_dtype dtype, size_t N, size_t K)
{
    const struct ash_quant_panels *panels = VEC_QUANT_PANELS(NULL, dtype);

    if (ash_dtype_block(dtype) == 1 || panels == NULL) return 0;
    return ash_quant_packed_bytes(panels->layout, dtype, N, K);
}

static void vec_pack(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                     void *packed)
{
    ash_quant_pack(exec, VEC_QUANT_PANELS(exec->ops, w->mat.dtype), w, K, first, count, packed);
}

static const struct ash_matrix_ops vec_matrix = {.gemm = vec_gemm,
                                                 .quant_gemm = VEC_QUANT_GEMM,
                                                 .project = vec_project,
                                                 .packed_bytes = vec_packed_bytes,
                                                 .pack = vec_pack,
                                                 .column_sum = column_sum};

#endif
