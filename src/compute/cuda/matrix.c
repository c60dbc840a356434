/* Matrix products on the GPU: which kernel takes a shape. */
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/batch.h"
#include "compute/cuda/gemm/few.h"
#include "compute/cuda/gemm/gemm_mma.h"
#include "compute/cuda/gemm/gemm_tma.h"
#include "compute/cuda/gemm/library.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/cuda/quant/few_quant.h"
#include "compute/cuda/rows/column_sum.h"
#include "compute/gemm_parts.h"
#include "compute/quant.h"

#define LARGE_MIN 64 /* rows of c that are worth a large tile */
#define GRID_ROWS_MAX 65535
#define BF16_CHUNK ASH_CUDA_LINE_ALIGN /* which is how gemm_bf16 reads */
#define BF16_STAGES_K ((size_t)4 * 64) /* k of the stages that gemm_bf16 keeps in shared memory */
#define BF16_BORDER 1024               /* where they begin there */
#define BF16_M 64                      /* rows of its tile of sums */
#define BF16_N 128
#define BF16_LINES_BLOCK 64
#define BF16_LINES_MAX ((size_t)32 * GRID_ROWS_MAX)
#define QUANT_THREADS 128
#define QUANT_COLS 4 /* outputs of a thread block of quant_gemm, one per warp */
#define QUANT_ROWS 8

/* Which kernel, and its tile of c. */
struct choice {
    enum ash_cuda_kernel_id id;
    size_t M, N, threads;
};

/* Are both operands float32 with a stride of 1? */
static bool is_plain(const struct ash_gemm_args *args)
{
    return args->a.dtype == ASH_F32 && args->b.dtype == ASH_F32 && !args->round_bf16 &&
           (args->a.col_stride == 1 || args->a.row_stride == 1) && (args->b.col_stride == 1 || args->b.row_stride == 1);
}

static struct choice choose(const struct ash_gemm_args *args)
{
    if (args->M >= LARGE_MIN && is_plain(args))
        return (struct choice){ASH_KERNEL_gemm_f32_nn + (args->a.col_stride != 1 ? 2 : 0) +
                                   (args->b.row_stride == 1 ? 1 : 0),
                               128, 128, 256};
    if (args->M >= LARGE_MIN) return (struct choice){ASH_KERNEL_gemm_large, 128, 128, 256};
    return (struct choice){ASH_KERNEL_gemm_small, 8, 64, 128};
}

/* An operand as it would be laid out: count lines of k, in `out` (of round_up(k, BF16_CHUNK) values each). */
static struct ash_cuda_to_lines lines_wanted(const struct ash_gemm_args *args, bool is_a)
{
    const struct ash_mat *mat = is_a ? &args->a : &args->b;

    return (struct ash_cuda_to_lines){.data = mat->data,
                                      .dtype = mat->dtype,
                                      .line_stride = is_a ? mat->row_stride : mat->col_stride,
                                      .k_stride = is_a ? mat->col_stride : mat->row_stride,
                                      .count = is_a ? args->M : args->N,
                                      .k = args->K,
                                      .stride = ash_round_up(args->K, BF16_CHUNK)};
}

/* The same operand as k lines of count values: its columns. */
static struct ash_cuda_to_lines columns_wanted(const struct ash_cuda_to_lines *op)
{
    struct ash_cuda_to_lines columns = *op;

    columns.line_stride = op->k_stride;
    columns.k_stride = op->line_stride;
    columns.count = op->k;
    columns.k = op->count;
    columns.stride = ash_round_up(op->count, BF16_CHUNK);
    return columns;
}

/* Is it bf16 with adjacent k, at 16-byte borders? Then the kernel reads it where it is. */
static bool is_lines(const struct ash_cuda_to_lines *op)
{
    return op->dtype == ASH_BF16 && op->k_stride == 1 && op->line_stride % BF16_CHUNK == 0 && op->k % BF16_CHUNK == 0 &&
           (uintptr_t)op->data % 16 == 0;
}

/* Enqueue the copy that lays an operand out in op->out. */
static void lay_out(struct ash_exec *exec, const struct ash_cuda_to_lines *op)
{
    if (op->dtype == ASH_F32 && op->k_stride == 1 && op->k % BF16_CHUNK == 0 && op->line_stride % 4 == 0 &&
        (uintptr_t)op->data % 16 == 0)
        ash_cuda_run(exec, ASH_KERNEL_round_lines, ash_cuda_grid_elements(op->count * op->k / BF16_CHUNK), op);
    else if (op->dtype == ASH_F32 && op->line_stride == 1 && op->count % 4 == 0 && op->k_stride % 4 == 0 &&
             (uintptr_t)op->data % 16 == 0 && ash_div_up(op->stride, BF16_LINES_BLOCK) <= GRID_ROWS_MAX)
        ash_cuda_run(exec, ASH_KERNEL_transpose_lines,
                     (struct ash_cuda_grid){.x = ash_div_up(op->count, BF16_LINES_BLOCK),
                                            .y = ash_div_up(op->stride, BF16_LINES_BLOCK),
                                            .threads = 256},
                     op);
    else
        ash_cuda_run(exec, ASH_KERNEL_to_bf16_lines,
                     (struct ash_cuda_grid){.x = ash_div_up(op->stride, BF16_LINES_BLOCK),
                                            .y = ash_div_up(op->count, BF16_LINES_BLOCK),
                                            .threads = 256},
                     op);
}

/* An operand of a product, and what must be copied for it. */
struct operand {
    struct ash_cuda_to_lines copy;
    bool columns, copies;
    size_t room; /* values of the copy */
};

/* may_be_columns: whoever multiplies takes columns where those need no transposing. */
static struct operand operand_of(const struct ash_gemm_args *args, bool is_a, bool may_be_columns)
{
    struct operand operand = {.copy = lines_wanted(args, is_a)};

    operand.columns = may_be_columns && operand.copy.line_stride == 1 && operand.copy.k_stride != 1;
    if (operand.columns) operand.copy = columns_wanted(&operand.copy);
    operand.copies = !is_lines(&operand.copy);
    operand.room = operand.copies ? operand.copy.count * operand.copy.stride : 0;
    return operand;
}

/* The operand as it is multiplied: where it lies, or where its copy will. */
static struct ash_cuda_lines lines_of(const struct operand *operand)
{
    const struct ash_cuda_to_lines *copy = &operand->copy;
    size_t k = operand->copies ? copy->stride : copy->k; /* zeros after the last k change no sum */

    return (struct ash_cuda_lines){.data = operand->copies ? copy->out : copy->data,
                                   .count = operand->columns ? copy->k : copy->count,
                                   .k = operand->columns ? copy->count : k,
                                   .stride = operand->copies ? copy->stride : copy->line_stride,
                                   .columns = operand->columns};
}

/* What lies as columns, laid out as lines in *room, which moves on. */
static struct ash_cuda_lines as_lines(struct ash_exec *exec, const struct ash_cuda_lines *from, uint16_t **room)
{
    struct ash_cuda_to_lines copy = {.data = from->data,
                                     .dtype = ASH_BF16,
                                     .line_stride = 1,
                                     .k_stride = from->stride,
                                     .count = from->count,
                                     .k = from->k,
                                     .stride = ash_round_up(from->k, BF16_CHUNK),
                                     .out = *room};

    if (!from->columns) return *from;
    *room += copy.count * copy.stride;
    lay_out(exec, &copy);
    return (struct ash_cuda_lines){.data = copy.out, .count = copy.count, .k = copy.stride, .stride = copy.stride};
}

/* Many sums take the kernel that reads operands where they lie. */
static void run_gemm_bf16(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *args)
{
    struct ash_cuda_gemm_bf16 op = *args;
    uint16_t *room = args->room;

    if (ash_cuda_tma_takes(exec->cuda, args)) {
        ash_cuda_tma_gemm(exec, args);
        return;
    }
    op.a = as_lines(exec, &args->a, &room);
    op.b = as_lines(exec, &args->b, &room);
    if (!exec->cuda->has_wgmma) {
        ash_cuda_gemm_mma(exec, &op);
        return;
    }
    ash_cuda_run(
        exec, ASH_KERNEL_gemm_bf16,
        (struct ash_cuda_grid){.x = ash_div_up(op.b.count, BF16_N),
                               .y = ash_div_up(op.a.count, BF16_M),
                               .threads = 128,
                               .shared_bytes = BF16_BORDER + BF16_STAGES_K * (BF16_M + BF16_N) * sizeof(uint16_t)},
        &op);
}

/* Values of what must be laid out as lines if no kernel takes a product of columns. */
static size_t lines_room(const struct operand *operand)
{
    return operand->columns ? operand->copy.k * ash_round_up(operand->copy.count, BF16_CHUNK) : 0;
}

static void gemm_bf16(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct ash_cuda_gemm_bf16 op = {.a = {.count = args->M, .k = args->K},
                                    .b = {.count = args->N},
                                    .c = args->c,
                                    .c_bf16 = args->c_bf16,
                                    .c_stride = args->c_stride,
                                    .bias = args->bias,
                                    .add = args->add,
                                    .add_stride = args->add_stride,
                                    .accumulate = args->accumulate};
    bool by_tma = ash_cuda_tma_takes(exec->cuda, &op), may_be_columns = by_tma || ash_cuda_library_takes(exec, &op);
    struct operand a = operand_of(args, true, may_be_columns), b = operand_of(args, false, may_be_columns);
    bool by_library;
    uint16_t *room;
    size_t values;

    ash_assert(args->M <= BF16_LINES_MAX && args->N <= BF16_LINES_MAX);
    /* of one k: zeros after the last one are those of both, or of none */
    if (a.columns != b.columns && args->K % BF16_CHUNK != 0)
        a = operand_of(args, true, false), b = operand_of(args, false, false);
    if (!b.columns) a = operand_of(args, true, false); /* no pass has such a product, and no kernel is made for it */
    op.a = lines_of(&a);
    op.b = lines_of(&b);
    by_library = ash_cuda_library_knows(exec, &op, run_gemm_bf16);
    values = a.room + b.room + (by_library || by_tma ? 0 : lines_room(&a) + lines_room(&b));
    room = ash_cuda_scratch(exec, values * sizeof(*room));
    a.copy.out = room;
    b.copy.out = a.room > 0 ? room + a.room : room;
    op.room = a.room + b.room > 0 ? room + a.room + b.room : room;
    if (a.copies) lay_out(exec, &a.copy);
    if (b.copies) lay_out(exec, &b.copy);
    op.a = lines_of(&a);
    op.b = lines_of(&b);
    if (!by_library)
        run_gemm_bf16(exec, &op);
    else if (!ash_cuda_library_gemm(exec, &op))
        gemm_bf16(exec, args); /* from now on the library does not know it */
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct choice choice = choose(args);
    size_t most = choice.M * GRID_ROWS_MAX;

    ash_gemm_check(args);
    ash_assert(args->fp8 == ASH_FP8_OFF);
    if (args->N == 0 || args->M == 0) return;
    if (exec->cuda->has_wgmma && !ash_gemm_has_epilogue(args) &&
        (ash_cuda_few_gemm(exec, args) || ash_cuda_batch_gemm(exec, args)))
        return;
    if (args->round_bf16 && !args->cut_anywhere && args->K > 0) {
        gemm_bf16(exec, args);
        return;
    }
    if (ash_gemm_has_epilogue(args)) {
        ash_gemm_parts(exec, args, gemm);
        return;
    }
    for (size_t first = 0; first < args->M; first += most) {
        struct ash_gemm_args part = ash_gemm_rows(args, first, ash_min(args->M - first, most));
        struct ash_cuda_grid grid = {
            .x = ash_div_up(args->N, choice.N), .y = ash_div_up(part.M, choice.M), .threads = choice.threads};

        ash_cuda_run(exec, choice.id, grid, &part);
    }
}

/* Scratch holds x, quantised, and the scales of its groups. */
static void quant_gemm(struct ash_exec *exec, const struct ash_quant_args *args)
{
    size_t groups = ash_quant_groups(args->dtype, args->K);
    size_t quants = ash_round_up(args->M * args->K, ASH_MEMORY_ALIGN);
    char *room;
    struct ash_cuda_quant op = {.M = args->M,
                                .N = args->N,
                                .K = args->K,
                                .groups = groups,
                                .x = args->x,
                                .x_stride = args->x_stride,
                                .w = args->w,
                                .dtype = args->dtype,
                                .y = args->y,
                                .y_stride = args->y_stride,
                                .bias = args->bias,
                                .accumulate = args->accumulate};

    ash_assert(args->K % ash_dtype_block(args->dtype) == 0 && (args->bias == NULL || !args->accumulate));
    ash_assert(args->M <= (size_t)GRID_ROWS_MAX * QUANT_ROWS);
    if (args->M == 0 || args->N == 0) return;
    room = ash_cuda_scratch(exec, quants + args->M * groups * sizeof(float));
    op.qx = (int8_t *)room;
    op.dx = (float *)(room + quants);
    ash_cuda_run(
        exec, ASH_KERNEL_quant_rows,
        (struct ash_cuda_grid){.x = ash_div_up(args->M * groups * 32, QUANT_THREADS), .y = 1, .threads = QUANT_THREADS},
        &op);
    ash_cuda_run(exec, ASH_KERNEL_quant_gemm,
                 (struct ash_cuda_grid){.x = ash_div_up(args->N, QUANT_COLS),
                                        .y = ash_div_up(args->M, QUANT_ROWS),
                                        .threads = QUANT_THREADS},
                 &op);
}

/* ---- several products of one input ------------------------------------------------------------------------------- */

#define PROJECT_BYTES ((size_t)256 << 20) /* of sums that are not outputs yet, about */

/* sums (or rounded) [M, N] = x w^T + bias. */
static void product(struct ash_exec *exec, const struct ash_project_args *args, const struct ash_project_out *out,
                    float *sums, uint16_t *rounded, size_t stride)
{
    const struct ash_mat *w = &out->w.mat;

    ash_assert(!out->w.packed && (rounded == NULL || ash_dtype_block(w->dtype) == 1));
    if (ash_dtype_block(w->dtype) > 1) {
        quant_gemm(exec, &(struct ash_quant_args){.M = args->M,
                                                  .N = out->w.N,
                                                  .K = args->K,
                                                  .x = args->x,
                                                  .x_stride = args->x_stride,
                                                  .w = w->data,
                                                  .dtype = w->dtype,
                                                  .y = sums,
                                                  .y_stride = stride,
                                                  .bias = out->bias});
        return;
    }
    gemm(exec,
         &(struct ash_gemm_args){.M = args->M,
                                 .N = out->w.N,
                                 .K = args->K,
                                 .a = args->x_bf16 != NULL ? (struct ash_mat){args->x_bf16, ASH_BF16, args->x_stride, 1}
                                                           : (struct ash_mat){args->x, ASH_F32, args->x_stride, 1},
                                 .b = *w,
                                 .c = sums,
                                 .c_bf16 = rounded,
                                 .c_stride = stride,
                                 .bias = out->bias,
                                 .round_bf16 = args->round_bf16});
}

/* Sums [M, N] to an output, or added to it. */
static void put_sums(struct ash_exec *exec, const struct ash_project_args *args, const struct ash_project_out *out,
                     const float *sums)
{
    exec->ops->row->copy(exec, &(struct ash_copy_args){.rows = args->M,
                                                       .blocks = 1,
                                                       .cols = out->w.N,
                                                       .src = sums,
                                                       .src_row = out->w.N,
                                                       .dst = out->y,
                                                       .dst_dtype = ASH_F32,
                                                       .dst_row = out->y_stride,
                                                       .add = args->residual});
}

/* Rows that fit into room: x [M, K] where it is normed, and two outputs. */
static void project_rows(struct ash_exec *exec, struct ash_project_args args, float *room)
{
    float *sums = args.norm != NULL ? room + args.M * args.K : room; /* room NULL: nothing is kept */

    if (args.norm != NULL) {
        exec->ops->norm->rms_forward(exec, &(struct ash_norm_args){.rows = args.M,
                                                                   .groups = 1,
                                                                   .cols = args.K,
                                                                   .x_stride = args.x_stride,
                                                                   .y_stride = args.K,
                                                                   .x = args.x,
                                                                   .weight = args.norm,
                                                                   .eps = args.norm_eps,
                                                                   .y = room,
                                                                   .round_bf16 = args.round_bf16});
        args.x = room;
        args.x_stride = args.K;
    }
    if (args.swiglu) {
        size_t count = args.M * args.outs[0].w.N;

        product(exec, &args, &args.outs[0], sums, NULL, args.outs[0].w.N);
        product(exec, &args, &args.outs[1], sums + count, NULL, args.outs[1].w.N);
        exec->ops->act->swiglu_forward(
            exec, &(struct ash_swiglu_args){
                      .count = count, .gate = sums, .up = sums + count, .round_bf16 = args.round_bf16, .out = sums});
        put_sums(exec, &args, &args.outs[0], sums);
        return;
    }
    for (size_t i = 0; i < args.out_count; i++) {
        product(exec, &args, &args.outs[i], args.residual ? sums : args.outs[i].y, args.outs[i].y_bf16,
                args.residual ? args.outs[i].w.N : args.outs[i].y_stride);
        if (args.residual) put_sums(exec, &args, &args.outs[i], sums);
    }
}

static void offset(struct ash_project_out *out, size_t rows)
{
    if (out->y_bf16 != NULL)
        out->y_bf16 += rows * out->y_stride;
    else
        out->y += rows * out->y_stride;
}

/* The same products of count rows from row `first` on. */
static struct ash_project_args some_rows(const struct ash_project_args *args, size_t first, size_t count)
{
    struct ash_project_args part = *args;

    part.M = count;
    if (args->x != NULL) part.x += first * args->x_stride;
    if (args->x_bf16 != NULL) part.x_bf16 += first * args->x_stride;
    for (size_t i = 0; i < args->out_count; i++)
        offset(&part.outs[i], first);
    return part;
}

/* Does one kernel take all of it? Then it is enqueued. Packed weights are always taken. */
static bool project_whole(struct ash_exec *exec, const struct ash_project_args *args)
{
    for (size_t i = 0; i < args->out_count; i++)
        if (args->outs[i].y_bf16 != NULL) return false;
    if (args->outs[0].w.packed) {
        ash_cuda_project_packed(exec, args);
        return true;
    }
    if (!exec->cuda->has_wgmma) return false;
    return ash_cuda_few_project(exec, args) || ash_cuda_batch_project(exec, args) || ash_cuda_tma_project(exec, args);
}

static void project(struct ash_exec *exec, const struct ash_project_args *args)
{
    bool has_sums = args->swiglu || args->residual;
    size_t wide = 0, width, most;
    float *room;

    ash_assert(args->out_count >= 1 && args->out_count <= ASH_PROJECT_OUTS_MAX);
    ash_assert(!args->swiglu || (args->out_count == 2 && !args->residual && args->outs[0].w.N == args->outs[1].w.N));
    ash_assert(args->x_bf16 == NULL || args->norm == NULL);
    if (args->M == 0 || project_whole(exec, args)) return;
    for (size_t i = 0; i < args->out_count; i++)
        wide = ash_max(wide, args->outs[i].w.N);
    width = (args->norm != NULL ? args->K : 0) + (has_sums ? 2 * wide : 0);
    most = ash_min(args->M, width == 0 ? args->M : ash_max(PROJECT_BYTES / (width * sizeof(float)), 1));
    room = width > 0 ? ash_exec_shared(exec, most * width * sizeof(float)) : NULL;
    for (size_t first = 0; first < args->M; first += most)
        project_rows(exec, some_rows(args, first, ash_min(args->M - first, most)), room);
}

const struct ash_matrix_ops ash_cuda_matrix = {
    .gemm = gemm,
    .quant_gemm = quant_gemm,
    .project = project,
    .packed_bytes = ash_cuda_packed_bytes,
    .pack = ash_cuda_pack,
    .column_sum = ash_cuda_column_sum,
};

/* Weights stay as they are in the file. */
const struct ash_matrix_ops ash_cuda_matrix_portable = {
    .gemm = gemm, .quant_gemm = quant_gemm, .project = project, .column_sum = ash_cuda_column_sum};
