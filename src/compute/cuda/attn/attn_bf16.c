/* See attn_bf16.h. Heads of 64 and 128 dims whose keys are rows have the kernels of attn_tiled.cuh, all others those of
 * attn_any.cu. */
#include "compute/cuda/attn/attn_bf16.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/attn/attn_decode.h"

#define THREADS 256
#define ANY 2
#define GROUP 16 /* of one step of the tensor cores' sums: dims of a tile are a multiple of it */

/* Bytes of a tile in shared memory (attn_any.cuh). */
static size_t tile_bytes(size_t rows, size_t dims)
{
    return rows * (ash_round_up(dims, GROUP) + ASH_CUDA_ATTN_TILE_PAD) * sizeof(uint16_t);
}

/* Are q, k and v rows of bf16 that the kernels of 64 and 128 dims can read where they are: 16-byte pieces, and the
 * documents rows of one block of memory? */
static bool is_readable(const struct ash_attn_args *args)
{
    const struct ash_attn_seq *first = args->seqs;
    const uint16_t *k = first->k, *v = first->v;

    if ((args->q_stride | args->k_stride) % 8 != 0 || args->k_stride != args->v_stride) return false;
    if (((uintptr_t)args->q_bf16 | (uintptr_t)k | (uintptr_t)v) % 16 != 0) return false;
    for (size_t s = 1; s < args->seq_count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];
        size_t rows = seq->q_row - first->q_row;

        if ((const uint16_t *)seq->k != k + rows * args->k_stride) return false;
        if ((const uint16_t *)seq->v != v + rows * args->v_stride) return false;
    }
    return true;
}

/* Which kernels: of tiles, heads of 64 (0) or 128 dims (1); or of any dims (ANY). Those of tiles read bf16 of whole
 * documents: as it is, or float32, copied. */
static int tiled_class(const struct ash_attn_args *args)
{
    if (args->dim_k != args->dim_v || (args->dim_k != 64 && args->dim_k != 128)) return ANY;
    if (args->kv_dtype != (args->q_bf16 != NULL ? ASH_BF16 : ASH_F32)) return ANY;
    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].pos != 0 || args->seqs[s].pages != NULL) return ANY;
    if (args->q_bf16 != NULL && !is_readable(args)) return ANY;
    if (args->dout_bf16 != NULL && (args->out_stride % 8 != 0 || (uintptr_t)args->dout_bf16 % 16 != 0)) return ANY;
    return args->dim_k == 64 ? 0 : 1;
}

/* Those of tiles have no caps, and want wgmma. */
static int bf16_class(const struct ash_exec *exec, const struct ash_attn_args *args)
{
    return exec->cuda->has_wgmma && args->cap == 0 ? tiled_class(args) : ANY;
}

/* Rows of q, up to the last that a document has. */
static size_t rows_of(const struct ash_attn_args *args)
{
    size_t rows = 0;

    for (size_t s = 0; s < args->seq_count; s++)
        rows = ash_max(rows, args->seqs[s].q_row + args->seqs[s].q_count);
    return rows;
}

/* Heads of q, k and v that are copied as bf16 first. */
static size_t copied_heads(const struct ash_attn_args *args)
{
    return args->q_bf16 == NULL ? args->heads + 2 * args->kv_heads : 0;
}

/* Bytes of the copies, each at a 16-byte border since dims are a multiple of 8. */
static size_t copy_bytes(const struct ash_attn_args *args, size_t rows)
{
    return copied_heads(args) * rows * args->dim_k * sizeof(uint16_t);
}

/* What both passes of the kernels of tiles are told, but for where rows are. */
static struct ash_cuda_attn_tiled tiled_args(const struct ash_attn_args *args, const struct ash_cuda_attn *op)
{
    return (struct ash_cuda_attn_tiled){
        .heads = (uint32_t)args->heads,
        .kv_heads = (uint32_t)args->kv_heads,
        .window = (uint32_t)ash_min(args->window, INT32_MAX),
        .scale = args->scale,
        .is_out_even = args->out_stride % 2 == 0 && (uintptr_t)args->out % 8 == 0 && (uintptr_t)args->out_bf16 % 4 == 0,
        .out = args->out,
        .lse = args->lse,
        .out_bf16 = args->out_bf16,
        .out_stride = args->out_stride,
        .rows = op->rows,
        .stats = op->stats,
        .dq = args->dq,
        .q_stride = args->q_stride,
        .k_stride = args->k_stride,
        .v_stride = args->v_stride,
        .seqs = op->seqs,
    };
}

/* Heads of dim columns beside each other in rows. */
static struct ash_cuda_attn_rows heads_beside(struct ash_exec *exec, const struct ash_cuda_bf16_rows *rows, size_t dim,
                                              size_t box_rows)
{
    struct ash_cuda_attn_rows out = {.head_x = (uint32_t)dim};

    ash_cuda_map_rows(exec->cuda->cuda, rows, box_rows, &out.map);
    return out;
}

/* Heads one after the other, [heads, rows, dim]. */
static struct ash_cuda_attn_rows heads_after(struct ash_exec *exec, const uint16_t *data, size_t heads, size_t rows,
                                             size_t dim, size_t box_rows)
{
    struct ash_cuda_bf16_rows matrix = {data, heads * rows, dim, dim};
    struct ash_cuda_attn_rows out = {.head_y = (uint32_t)rows};

    ash_cuda_map_rows(exec->cuda->cuda, &matrix, box_rows, &out.map);
    return out;
}

/* Rows of a box of q, and of k and v. */
struct boxes {
    size_t q, kv;
};

/* Enqueue copies of q, k and v to op->copies if they are float32. */
static void copy_heads(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_cuda_attn *op,
                       size_t tiles)
{
    struct ash_cuda_grid grid = {.x = tiles, .y = copied_heads(args), .threads = THREADS};

    ash_cuda_run(exec, ASH_KERNEL_attn_copy, grid, op);
}

/* Say where rows of q, k and v are. */
static void find_rows(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_cuda_attn *op,
                      struct boxes boxes, struct ash_cuda_attn_tiled *tiled)
{
    size_t dim = args->dim_k, rows = op->rows, before = args->seqs[0].q_row;
    size_t q_width = args->heads * dim, kv_width = args->kv_heads * dim;

    if (args->q_bf16 == NULL) {
        const uint16_t *k = op->copies + q_width * rows;

        tiled->q = heads_after(exec, op->copies, args->heads, rows, dim, boxes.q);
        tiled->k = heads_after(exec, k, args->kv_heads, rows, dim, boxes.kv);
        tiled->v = heads_after(exec, k + kv_width * rows, args->kv_heads, rows, dim, boxes.kv);
    } else {
        struct ash_cuda_bf16_rows q = {args->q_bf16, rows, q_width, args->q_stride};
        struct ash_cuda_bf16_rows k = {(const uint16_t *)args->seqs[0].k - before * args->k_stride, rows, kv_width,
                                       args->k_stride};
        struct ash_cuda_bf16_rows v = {(const uint16_t *)args->seqs[0].v - before * args->v_stride, rows, kv_width,
                                       args->v_stride};

        tiled->q = heads_beside(exec, &q, dim, boxes.q);
        tiled->k = heads_beside(exec, &k, dim, boxes.kv);
        tiled->v = heads_beside(exec, &v, dim, boxes.kv);
    }
}

/* Enqueue a kernel that walks over `units` tiles of heads: one thread block on each multiprocessor. */
static void run_tiled(struct ash_exec *exec, enum ash_cuda_kernel_id id, size_t units, size_t shared_bytes,
                      const struct ash_cuda_attn_tiled *tiled)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count;

    ash_cuda_run(exec, id,
                 (struct ash_cuda_grid){.x = ash_min(units, sm_count),
                                        .y = 1,
                                        .threads = ASH_CUDA_ATTN_TILED_THREADS,
                                        .shared_bytes = shared_bytes},
                 tiled);
}

static void run_forward_tiled(struct ash_exec *exec, size_t dim, const struct ash_cuda_attn_tiled *tiled)
{
    run_tiled(exec, dim == 64 ? ASH_KERNEL_attn_forward_tiled_64 : ASH_KERNEL_attn_forward_tiled_128,
              (size_t)tiled->tile_count * tiled->heads, ASH_CUDA_ATTN_FORWARD_BYTES(dim), tiled);
}

static void run_forward_any(struct ash_exec *exec, const struct ash_cuda_attn *op, size_t tiles)
{
    size_t rows = 16 * ASH_CUDA_ATTN_WARPS_ANY, keys = ASH_CUDA_ATTN_KEYS_BF16;
    size_t cols = op->cap != 0 ? ASH_CUDA_ATTN_COLS_CAPPED : ASH_CUDA_ATTN_COLS;

    ash_cuda_run(exec, op->cap != 0 ? ASH_KERNEL_attn_forward_capped : ASH_KERNEL_attn_forward_any,
                 (struct ash_cuda_grid){.x = tiles,
                                        .y = op->heads,
                                        .z = ash_div_up(op->dim_v, cols),
                                        .threads = 32 * ASH_CUDA_ATTN_WARPS_ANY,
                                        .shared_bytes = tile_bytes(rows + keys, op->dim_k) + tile_bytes(keys, cols)},
                 op);
}

/* Queries, and keys and values out of their pages, as rows of bf16. */
static void copy_pages(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op,
                       const struct ash_cuda_tables *tables, struct ash_cuda_attn_tiled *tiled)
{
    size_t q_values = op->heads * op->rows * op->dim_k, kv_values = op->kv_heads * tables->kv_rows * op->dim_k;
    struct ash_cuda_attn pages;

    op->copies = ash_cuda_scratch(exec, (q_values + 2 * kv_values) * sizeof(*op->copies));
    op->k_copy = op->copies + q_values;
    op->v_copy = op->k_copy + kv_values;
    op->kv_row = op->dim_k;
    op->kv_head = tables->kv_rows * op->dim_k;
    ash_cuda_run(exec, ASH_KERNEL_attn_copy,
                 (struct ash_cuda_grid){.x = tables->long_count, .y = op->heads, .threads = THREADS}, op);
    pages = *op;
    pages.tiles = tables->page_tiles;
    ash_cuda_run(exec, ASH_KERNEL_attn_unpage,
                 (struct ash_cuda_grid){.x = tables->page_count, .y = op->kv_heads, .threads = THREADS}, &pages);
    tiled->q = heads_after(exec, op->copies, args->heads, op->rows, args->dim_k, ASH_CUDA_ATTN_TILED_ROWS);
    tiled->k = heads_after(exec, op->k_copy, args->kv_heads, tables->kv_rows, args->dim_k, ASH_ATTN_KEYS);
    tiled->v = heads_after(exec, op->v_copy, args->kv_heads, tables->kv_rows, args->dim_k, ASH_ATTN_KEYS);
}

/* Over the pages of a cache. */
static void forward_paged(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_tables *tables = ash_cuda_tables_of(exec, args);
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    struct ash_cuda_attn_tiled tiled;

    ash_cuda_attn_decode(exec, args, tables);
    if (tables->long_count == 0) return;
    op.tiles = tables->long_tiles;
    op.seqs = tables->seqs;
    op.rows = rows_of(args);
    if (tables->page_count == 0) {
        run_forward_any(exec, &op, tables->long_count);
        return;
    }
    tiled = tiled_args(args, &op);
    tiled.tiles = op.tiles;
    tiled.tile_count = (uint32_t)tables->long_count;
    copy_pages(exec, args, &op, tables, &tiled);
    run_forward_tiled(exec, args->dim_k, &tiled);
}

void ash_cuda_attn_forward_bf16(struct ash_exec *exec, const struct ash_attn_args *args)
{
    bool is_tiled = bf16_class(exec, args) != ANY;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    struct ash_cuda_attn_tiled tiled;
    size_t tiles;

    if (ash_cuda_attn_paged(args)) {
        forward_paged(exec, args);
        return;
    }
    tiles =
        ash_cuda_attn_tiles(exec, args, is_tiled ? ASH_CUDA_ATTN_TILED_ROWS : 16 * ASH_CUDA_ATTN_WARPS_ANY, &op.tiles);
    if (tiles == 0) return;
    op.seqs = ash_cuda_attn_seqs(exec, args);
    op.rows = rows_of(args);
    if (!is_tiled) {
        run_forward_any(exec, &op, tiles);
        return;
    }
    op.copies = ash_cuda_scratch(exec, copy_bytes(args, op.rows));
    tiled = tiled_args(args, &op);
    tiled.tiles = op.tiles;
    tiled.tile_count = (uint32_t)tiles;
    copy_heads(exec, args, &op, tiles);
    find_rows(exec, args, &op, (struct boxes){ASH_CUDA_ATTN_TILED_ROWS, ASH_ATTN_KEYS}, &tiled);
    run_forward_tiled(exec, args->dim_k, &tiled);
}

/* Enqueue what the backward pass asks of rows; dout as bf16 goes to op->dout_copy unless that is NULL. */
static void run_stats(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op)
{
    size_t wide = 16;

    for (op->stats_lanes = 1; wide < args->dim_v; wide *= 2)
        op->stats_lanes *= 2;
    op->is_stats_wide =
        wide == args->dim_v && args->out_stride % 8 == 0 &&
        ((uintptr_t)args->out | (uintptr_t)args->out_bf16 | (uintptr_t)args->dout | (uintptr_t)args->dout_bf16) % 16 ==
            0;
    ash_cuda_run(exec, ASH_KERNEL_attn_stats,
                 (struct ash_cuda_grid){
                     .x = ash_div_up(op->rows * args->heads * op->stats_lanes, THREADS), .y = 1, .threads = THREADS},
                 op);
}

static void backward_any(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op)
{
    size_t rows = 16 * ASH_CUDA_ATTN_WARPS_BACK_ANY, keys = ASH_CUDA_ATTN_KEYS_BF16, back = ASH_CUDA_ATTN_BACK_ROWS;
    struct ash_cuda_grid grid = {.y = args->heads, .threads = 2 * rows};

    grid.x = ash_cuda_attn_tiles(exec, args, rows, &op->tiles);
    grid.z = ash_div_up(args->dim_k, ASH_CUDA_ATTN_COLS);
    grid.shared_bytes = tile_bytes(rows + keys, args->dim_k) + tile_bytes(rows + keys, args->dim_v);
    ash_cuda_run(exec, ASH_KERNEL_attn_queries_any, grid, op);
    grid.x = ash_cuda_attn_tiles(exec, args, keys, &op->tiles);
    grid.y = args->kv_heads;
    grid.z = ash_div_up(ash_max(args->dim_k, args->dim_v), ASH_CUDA_ATTN_COLS);
    grid.threads = 2 * keys;
    grid.shared_bytes = tile_bytes(keys + back, args->dim_k) + tile_bytes(keys + back, args->dim_v);
    ash_cuda_run(exec, ASH_KERNEL_attn_keys_any, grid, op);
}

/* rope: as in ash_attn_ops.backward_rounded, or NULL. */
static void backward_tiled(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op,
                           const struct ash_rope_args *rope, size_t tiles)
{
    size_t dim = args->dim_k, rows = ASH_CUDA_ATTN_TILED_ROWS, step = ASH_CUDA_ATTN_STEP, width = args->heads * dim;
    struct ash_cuda_bf16_rows dout = {op->dout_copy, op->rows, width, width};
    struct ash_cuda_attn_tiled tiled = tiled_args(args, op), keys;
    struct boxes whole = {rows, step}, steps = {step, rows};

    if (args->dout_bf16 != NULL) dout = (struct ash_cuda_bf16_rows){args->dout_bf16, op->rows, width, args->out_stride};
    tiled.tiles = op->tiles;
    tiled.tile_count = (uint32_t)tiles;
    if (rope != NULL) {
        tiled.rounded = rope->out_bf16;
        tiled.rounded_stride = rope->out_cols;
        tiled.positions = rope->positions;
        tiled.cos = rope->cos;
        tiled.sin = rope->sin;
    }
    keys = tiled;
    copy_heads(exec, args, op, tiles);
    find_rows(exec, args, op, whole, &tiled);
    tiled.dout = heads_beside(exec, &dout, dim, rows);
    run_tiled(exec, dim == 64 ? ASH_KERNEL_attn_queries_tiled_64 : ASH_KERNEL_attn_queries_tiled_128,
              tiles * args->heads, ASH_CUDA_ATTN_BACKWARD_BYTES(dim), &tiled);
    find_rows(exec, args, op, steps, &keys);
    keys.dout = heads_beside(exec, &dout, dim, step);
    run_tiled(exec, dim == 64 ? ASH_KERNEL_attn_keys_tiled_64 : ASH_KERNEL_attn_keys_tiled_128, tiles * args->kv_heads,
              ASH_CUDA_ATTN_BACKWARD_BYTES(dim), &keys);
}

static void backward_bf16(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_rope_args *rope)
{
    bool is_tiled = bf16_class(exec, args) != ANY, copies_dout = is_tiled && args->dout_bf16 == NULL;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t copies, douts, tiles;
    char *room;

    tiles = ash_cuda_attn_tiles(exec, args, ASH_CUDA_ATTN_TILED_ROWS, &op.tiles);
    if (tiles == 0) return;
    op.seqs = ash_cuda_attn_seqs(exec, args);
    op.rows = rows_of(args);
    copies = is_tiled ? copy_bytes(args, op.rows) : 0;
    douts = copies_dout ? ash_round_up(op.rows * args->heads * args->dim_v * sizeof(uint16_t), 16) : 0;
    room = ash_cuda_scratch(exec, copies + douts + op.rows * args->heads * sizeof(*op.stats));
    op.copies = (uint16_t *)(void *)room;
    op.dout_copy = copies_dout ? (uint16_t *)(void *)(room + copies) : NULL;
    op.stats = (struct ash_cuda_attn_stats *)(void *)(room + copies + douts);
    run_stats(exec, args, &op);
    if (is_tiled)
        backward_tiled(exec, args, &op, rope, tiles);
    else
        backward_any(exec, args, &op);
}

void ash_cuda_attn_backward_bf16(struct ash_exec *exec, const struct ash_attn_args *args)
{
    backward_bf16(exec, args, NULL);
}

/* Are the heads of rope all of q and k, each turned as a whole by halves, and dk and dv columns of its rows? */
static bool is_turned_whole(const struct ash_attn_args *args, const struct ash_rope_args *rope)
{
    size_t dim = args->dim_k, k = args->heads * dim, v = k + args->kv_heads * dim, row = args->seqs[0].q_row;
    const float *first = args->dq + row * args->k_stride;

    return rope->inverse && rope->dims == dim && rope->head_stride == dim && !rope->interleaved_in &&
           rope->heads == args->heads + args->kv_heads && rope->out_bf16 != NULL && rope->x == args->dq &&
           args->q_stride == args->k_stride && args->seqs[0].dk == first + k && args->seqs[0].dv == first + v &&
           rope->out_cols == v + args->kv_heads * dim && rope->row_stride == args->q_stride &&
           rope->rows == rows_of(args) && (uintptr_t)rope->out_bf16 % 4 == 0 &&
           ((uintptr_t)rope->cos | (uintptr_t)rope->sin) % 8 == 0;
}

bool ash_cuda_attn_backward_rounded(struct ash_exec *exec, const struct ash_attn_args *args,
                                    const struct ash_rope_args *rope)
{
    if (!args->round_bf16 || args->seq_count == 0 || args->q_bf16 == NULL) return false;
    if (bf16_class(exec, args) == ANY || !is_turned_whole(args, rope)) return false;
    backward_bf16(exec, args, rope);
    return true;
}
