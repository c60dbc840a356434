/* Attention on the GPU: documents are cut into tiles of query rows (or keys), and the list of them goes along. */
#include "compute/cuda/host/backend_priv.h"

#include <stdlib.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/attn/attn_decode.h"
#include "compute/cuda/attn/attn_docs.h"

#define THREADS (ASH_CUDA_ATTN_ROWS * ASH_LANES)
#define ANY 2
#define GROUP 16 /* of one step of the tensor cores' sums: dims of a tile are a multiple of it */

/* Which of the kernels 64, 128, 256, 512 has room for heads of this many dims. */
static int size_class(size_t dim)
{
    return dim <= 64 ? 0 : dim <= 128 ? 1 : dim <= 256 ? 2 : 3;
}

struct ash_cuda_attn ash_cuda_attn_args(const struct ash_attn_args *args)
{
    return (struct ash_cuda_attn){
        .heads = args->heads,
        .kv_heads = args->kv_heads,
        .dim_k = args->dim_k,
        .dim_v = args->dim_v,
        .scale = args->scale,
        .window = args->window,
        .kv_dtype = args->kv_dtype,
        .q_stride = args->q_stride,
        .k_stride = args->k_stride,
        .v_stride = args->v_stride,
        .out_stride = args->out_stride,
        .pool = args->pool,
        .page_bytes = args->page_bytes,
        .k_page = args->k_page,
        .v_page = args->v_page,
        .q = args->q,
        .q_bf16 = args->q_bf16,
        .out = args->out,
        .out_bf16 = args->out_bf16,
        .lse = args->lse,
        .dout = args->dout,
        .dq = args->dq,
    };
}

/* The documents, with their block tables, on the GPU. */
static const struct ash_cuda_attn_seq *upload_seqs(struct ash_exec *exec, const struct ash_attn_args *args)
{
    const struct ash_cuda_attn_seq *there = ash_cuda_docs_seqs(exec, args);
    struct ash_cuda_attn_seq *seqs;

    if (there != NULL) return there;
    seqs = calloc(args->seq_count, sizeof(*seqs));
    ash_assert(seqs != NULL);
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];
        size_t keys = seq->pos + seq->q_count;

        seqs[s] = (struct ash_cuda_attn_seq){.q_row = seq->q_row,
                                             .q_count = seq->q_count,
                                             .pos = seq->pos,
                                             .kv_first = seq->q_row,
                                             .k = seq->k,
                                             .v = seq->v,
                                             .dk = seq->dk,
                                             .dv = seq->dv};
        if (seq->pages != NULL)
            seqs[s].pages =
                ash_cuda_upload(exec->cuda->cuda, seq->pages, ash_div_up(keys, ASH_ATTN_BLOCK) * sizeof(*seq->pages));
    }
    there = ash_cuda_upload(exec->cuda->cuda, seqs, args->seq_count * sizeof(*seqs));
    free(seqs);
    return there;
}

/* Every document cut into tiles of `rows` rows. Returns how many; *tiles_out is on the GPU. */
static size_t upload_tiles(struct ash_exec *exec, const struct ash_attn_args *args, size_t rows,
                           const struct ash_cuda_attn_tile **tiles_out)
{
    struct ash_cuda_attn_tile *tiles;
    size_t count = ash_cuda_docs_tiles(exec, args, rows, tiles_out), at = 0;

    if (count > 0) return count;
    for (size_t s = 0; s < args->seq_count; s++)
        count += ash_div_up(args->seqs[s].q_count, rows);
    if (count == 0) return 0;
    tiles = calloc(count, sizeof(*tiles));
    ash_assert(tiles != NULL);
    for (size_t s = 0; s < args->seq_count; s++)
        for (size_t first = 0; first < args->seqs[s].q_count; first += rows)
            tiles[at++] = (struct ash_cuda_attn_tile){.seq = (uint32_t)s,
                                                      .first = (uint32_t)first,
                                                      .count = (uint32_t)ash_min(args->seqs[s].q_count - first, rows)};
    ash_cuda_sort_tiles(tiles, count);
    *tiles_out = ash_cuda_upload(exec->cuda->cuda, tiles, count * sizeof(*tiles));
    free(tiles);
    return count;
}

static void check_args(const struct ash_attn_args *args)
{
    ash_assert(args->dim_k <= ASH_ATTN_HEAD_MAX && args->dim_v <= ASH_ATTN_HEAD_MAX);
    ash_assert(args->kv_heads > 0 && args->heads % args->kv_heads == 0);
}

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

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
static int bf16_class(const struct ash_attn_args *args)
{
    if (args->dim_k != args->dim_v || (args->dim_k != 64 && args->dim_k != 128)) return ANY;
    if (args->kv_dtype != (args->q_bf16 != NULL ? ASH_BF16 : ASH_F32)) return ANY;
    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].pos != 0 || args->seqs[s].pages != NULL) return ANY;
    if (args->q_bf16 != NULL && !is_readable(args)) return ANY;
    return args->dim_k == 64 ? 0 : 1;
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

/* Heads of dim columns beside each other in rows, or (is_copy) one after the other. */
static struct ash_cuda_attn_rows head_rows(struct ash_exec *exec, const uint16_t *data, size_t rows, size_t heads,
                                           size_t dim, size_t stride, size_t box_rows, bool is_copy)
{
    struct ash_cuda_bf16_rows matrix = {data, rows, heads * dim, stride};
    struct ash_cuda_attn_rows out = {.head_x = (uint32_t)dim};

    if (is_copy) {
        matrix = (struct ash_cuda_bf16_rows){data, heads * rows, dim, dim};
        out.head_x = 0;
        out.head_y = (uint32_t)rows;
    }
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
    size_t dim = args->dim_k, rows = op->rows, head = rows * dim;
    bool is_copy = args->q_bf16 == NULL;
    const uint16_t *q = args->q_bf16, *k = args->seqs[0].k, *v = args->seqs[0].v;

    if (is_copy) {
        q = op->copies;
        k = q + args->heads * head;
        v = k + args->kv_heads * head;
    } else {
        k -= args->seqs[0].q_row * args->k_stride;
        v -= args->seqs[0].q_row * args->v_stride;
    }
    tiled->q = head_rows(exec, q, rows, args->heads, dim, args->q_stride, boxes.q, is_copy);
    tiled->k = head_rows(exec, k, rows, args->kv_heads, dim, args->k_stride, boxes.kv, is_copy);
    tiled->v = head_rows(exec, v, rows, args->kv_heads, dim, args->v_stride, boxes.kv, is_copy);
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

    ash_cuda_run(exec, ASH_KERNEL_attn_forward_any,
                 (struct ash_cuda_grid){.x = tiles,
                                        .y = op->heads,
                                        .z = ash_div_up(op->dim_v, ASH_CUDA_ATTN_COLS),
                                        .threads = 32 * ASH_CUDA_ATTN_WARPS_ANY,
                                        .shared_bytes = tile_bytes(rows + keys, op->dim_k) +
                                                        tile_bytes(keys, ASH_CUDA_ATTN_COLS)},
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
    tiled->q = head_rows(exec, op->copies, op->rows, args->heads, args->dim_k, 0, ASH_CUDA_ATTN_TILED_ROWS, true);
    tiled->k = head_rows(exec, op->k_copy, tables->kv_rows, args->kv_heads, args->dim_k, 0, ASH_ATTN_KEYS, true);
    tiled->v = head_rows(exec, op->v_copy, tables->kv_rows, args->kv_heads, args->dim_k, 0, ASH_ATTN_KEYS, true);
}

/* Over the pages of a cache. */
static void forward_paged(struct ash_exec *exec, const struct ash_attn_args *args)
{
    const struct ash_cuda_tables *tables = ash_cuda_tables_of(exec, args);
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

static void forward_bf16(struct ash_exec *exec, const struct ash_attn_args *args)
{
    bool is_tiled = bf16_class(args) != ANY;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    struct ash_cuda_attn_tiled tiled;
    size_t tiles;

    if (ash_cuda_attn_paged(args)) {
        forward_paged(exec, args);
        return;
    }
    tiles = upload_tiles(exec, args, is_tiled ? ASH_CUDA_ATTN_TILED_ROWS : 16 * ASH_CUDA_ATTN_WARPS_ANY, &op.tiles);
    if (tiles == 0) return;
    op.seqs = upload_seqs(exec, args);
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

/* Enqueue what the backward pass asks of rows; dout as bf16 goes to op->dout_copy. */
static void run_stats(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op)
{
    size_t wide = 16;

    for (op->stats_lanes = 1; wide < args->dim_v; wide *= 2)
        op->stats_lanes *= 2;
    op->is_stats_wide = wide == args->dim_v && args->out_stride % 8 == 0 &&
                        ((uintptr_t)args->out | (uintptr_t)args->out_bf16 | (uintptr_t)args->dout) % 16 == 0;
    ash_cuda_run(exec, ASH_KERNEL_attn_stats,
                 (struct ash_cuda_grid){
                     .x = ash_div_up(op->rows * args->heads * op->stats_lanes, THREADS), .y = 1, .threads = THREADS},
                 op);
}

static void backward_any(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op)
{
    size_t rows = 16 * ASH_CUDA_ATTN_WARPS_BACK_ANY, keys = ASH_CUDA_ATTN_KEYS_BF16, back = ASH_CUDA_ATTN_BACK_ROWS;
    struct ash_cuda_grid grid = {.y = args->heads, .threads = 2 * rows};

    grid.x = upload_tiles(exec, args, rows, &op->tiles);
    grid.z = ash_div_up(args->dim_k, ASH_CUDA_ATTN_COLS);
    grid.shared_bytes = tile_bytes(rows + keys, args->dim_k) + tile_bytes(rows + keys, args->dim_v);
    ash_cuda_run(exec, ASH_KERNEL_attn_queries_any, grid, op);
    grid.x = upload_tiles(exec, args, keys, &op->tiles);
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
    struct ash_cuda_attn_tiled tiled = tiled_args(args, op), keys;
    struct boxes whole = {rows, step}, steps = {step, rows};

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
    tiled.dout = head_rows(exec, op->dout_copy, op->rows, args->heads, dim, width, rows, false);
    run_tiled(exec, dim == 64 ? ASH_KERNEL_attn_queries_tiled_64 : ASH_KERNEL_attn_queries_tiled_128,
              tiles * args->heads, ASH_CUDA_ATTN_BACKWARD_BYTES(dim), &tiled);
    find_rows(exec, args, op, steps, &keys);
    keys.dout = head_rows(exec, op->dout_copy, op->rows, args->heads, dim, width, step, false);
    run_tiled(exec, dim == 64 ? ASH_KERNEL_attn_keys_tiled_64 : ASH_KERNEL_attn_keys_tiled_128, tiles * args->kv_heads,
              ASH_CUDA_ATTN_BACKWARD_BYTES(dim), &keys);
}

static void backward_bf16(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_rope_args *rope)
{
    bool is_tiled = bf16_class(args) != ANY;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t copies, douts, tiles;
    char *room;

    tiles = upload_tiles(exec, args, ASH_CUDA_ATTN_TILED_ROWS, &op.tiles);
    if (tiles == 0) return;
    op.seqs = upload_seqs(exec, args);
    op.rows = rows_of(args);
    copies = is_tiled ? copy_bytes(args, op.rows) : 0;
    douts = is_tiled ? ash_round_up(op.rows * args->heads * args->dim_v * sizeof(uint16_t), 16) : 0;
    room = ash_cuda_scratch(exec, copies + douts + op.rows * args->heads * sizeof(*op.stats));
    op.copies = (uint16_t *)(void *)room;
    op.dout_copy = is_tiled ? (uint16_t *)(void *)(room + copies) : NULL;
    op.stats = (struct ash_cuda_attn_stats *)(void *)(room + copies + douts);
    run_stats(exec, args, &op);
    if (is_tiled)
        backward_tiled(exec, args, &op, rope, tiles);
    else
        backward_any(exec, args, &op);
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static void forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t wide = ash_max(args->dim_k, args->dim_v);
    struct ash_cuda_grid grid = {.y = args->heads, .threads = THREADS};

    check_args(args);
    if (args->round_bf16) {
        forward_bf16(exec, args);
        return;
    }
    grid.x = upload_tiles(exec, args, ASH_CUDA_ATTN_ROWS, &op.tiles);
    if (grid.x == 0) return;
    op.seqs = upload_seqs(exec, args);
    grid.shared_bytes = sizeof(float) * (ASH_ATTN_BLOCK * (wide + 1) + ASH_CUDA_ATTN_ROWS * (args->dim_k + 1) +
                                         ASH_CUDA_ATTN_ROWS * ASH_ATTN_BLOCK);
    ash_cuda_run(exec, ASH_KERNEL_attn_forward_64 + size_class(args->dim_v), grid, &op);
}

static void backward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t wide = ash_max(args->dim_k, args->dim_v);
    struct ash_cuda_grid grid = {.threads = THREADS};

    check_args(args);
    ash_assert(args->kv_dtype == ASH_F32 || (args->round_bf16 && args->q_bf16 != NULL));
    if (args->round_bf16) {
        backward_bf16(exec, args, NULL);
        return;
    }
    grid.x = upload_tiles(exec, args, ASH_CUDA_ATTN_ROWS, &op.tiles);
    if (grid.x == 0) return;
    op.seqs = upload_seqs(exec, args);
    grid.y = args->heads;
    grid.shared_bytes =
        sizeof(float) * ((ASH_CUDA_ATTN_ROWS + ASH_CUDA_ATTN_KEYS) * (args->dim_k + 1 + args->dim_v + 1) +
                         2 * ASH_CUDA_ATTN_ROWS * ASH_CUDA_ATTN_KEYS);
    ash_cuda_run(exec, ASH_KERNEL_attn_queries_64 + size_class(args->dim_k), grid, &op);
    grid.x = upload_tiles(exec, args, ASH_CUDA_ATTN_KEYS, &op.tiles);
    grid.y = args->kv_heads;
    ash_cuda_run(exec, ASH_KERNEL_attn_keys_64 + size_class(wide), grid, &op);
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

static bool backward_rounded(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_rope_args *rope)
{
    if (!args->round_bf16 || args->seq_count == 0 || args->q_bf16 == NULL) return false;
    if (bf16_class(args) == ANY || !is_turned_whole(args, rope)) return false;
    check_args(args);
    backward_bf16(exec, args, rope);
    return true;
}

const struct ash_attn_ops ash_cuda_attn = {
    .forward = forward, .backward = backward, .backward_rounded = backward_rounded, .kv_write = ash_cuda_attn_write};
