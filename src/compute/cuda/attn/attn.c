/* Attention on the GPU: documents are cut into tiles of query rows (or keys), and the list of them goes along. */
#include "compute/cuda/host/backend_priv.h"

#include <stdlib.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/attn/attn_decode.h"
#include "compute/cuda/attn/attn_docs.h"

#define THREADS (ASH_CUDA_ATTN_ROWS * ASH_LANES)
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

/* Bytes of a tile in shared memory (attn_bf16.cuh). */
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

/* Which of the kernels 64, 128, any. Those with a size read bf16 of whole documents: as it is, or float32, copied. */
static int bf16_class(const struct ash_attn_args *args)
{
    if (args->dim_k != args->dim_v || (args->dim_k != 64 && args->dim_k != 128)) return 2;
    if (args->kv_dtype != (args->q_bf16 != NULL ? ASH_BF16 : ASH_F32)) return 2;
    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].pos != 0 || args->seqs[s].pages != NULL) return 2;
    if (args->q_bf16 != NULL && !is_readable(args)) return 2;
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

/* Heads that are copied as bf16: those of q, k and v unless they are bf16 already, and of dout where it is wanted. */
static size_t copied_heads(const struct ash_attn_args *args, bool has_dout)
{
    return (args->q_bf16 == NULL ? args->heads + 2 * args->kv_heads : 0) + (has_dout ? args->heads : 0);
}

/* Bytes of the copies, each at a 16-byte border since dims are a multiple of 8. */
static size_t copy_bytes(const struct ash_attn_args *args, size_t rows, bool has_dout)
{
    return copied_heads(args, has_dout) * rows * args->dim_k * sizeof(uint16_t);
}

/* Say where rows of bf16 are; enqueue the copies of those that are not there yet into room. */
static void find_rows(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_attn *op, uint16_t *room,
                      bool has_dout, size_t tiles)
{
    size_t head = op->rows * op->dim_k, copied = copied_heads(args, has_dout);

    op->copies = op->dout_copy = room;
    if (args->q_bf16 != NULL) {
        size_t before = args->seqs[0].q_row * args->k_stride;

        op->q_copy = args->q_bf16;
        op->k_copy = (const uint16_t *)args->seqs[0].k - before;
        op->v_copy = (const uint16_t *)args->seqs[0].v - before;
        op->copy_row = args->q_stride;
        op->kv_row = args->k_stride;
        op->copy_head = op->kv_head = op->dim_k;
        op->first_copy = args->heads + 2 * args->kv_heads;
    } else {
        op->q_copy = room;
        op->k_copy = op->q_copy + op->heads * head;
        op->v_copy = op->k_copy + op->kv_heads * head;
        op->dout_copy = room + (op->heads + 2 * op->kv_heads) * head;
        op->copy_row = op->kv_row = op->dim_k;
        op->copy_head = op->kv_head = head;
    }
    if (copied == 0) return;
    ash_cuda_run(exec, ASH_KERNEL_attn_copy, (struct ash_cuda_grid){.x = tiles, .y = copied, .threads = THREADS}, op);
}

/* Enqueue the kernel that `which` says, for as many tiles. */
static void run_forward(struct ash_exec *exec, const struct ash_cuda_attn *op, int which, size_t tiles)
{
    size_t rows = 16 * (which < 2 ? ASH_CUDA_ATTN_WARPS : ASH_CUDA_ATTN_WARPS_ANY), keys = ASH_CUDA_ATTN_KEYS_BF16;
    struct ash_cuda_grid grid = {.x = tiles, .y = op->heads, .threads = 2 * rows};

    grid.z = which < 2 ? 1 : ash_div_up(op->dim_v, ASH_CUDA_ATTN_COLS);
    grid.shared_bytes = which < 2 ? tile_bytes(rows + 4 * keys, op->dim_k)
                                  : tile_bytes(rows + keys, op->dim_k) + tile_bytes(keys, ASH_CUDA_ATTN_COLS);
    ash_cuda_run(exec, ASH_KERNEL_attn_bf16_forward_64 + which, grid, op);
}

/* Queries, and keys and values out of their pages, as rows of bf16. */
static void copy_pages(struct ash_exec *exec, struct ash_cuda_attn *op, const struct ash_cuda_tables *tables)
{
    size_t q_values = op->heads * op->rows * op->dim_k, kv_values = op->kv_heads * tables->kv_rows * op->dim_k;
    struct ash_cuda_attn pages;

    op->copies = ash_cuda_scratch(exec, (q_values + 2 * kv_values) * sizeof(*op->copies));
    op->q_copy = op->copies;
    op->k_copy = op->q_copy + q_values;
    op->v_copy = op->k_copy + kv_values;
    op->copy_row = op->kv_row = op->dim_k;
    op->copy_head = op->rows * op->dim_k;
    op->kv_head = tables->kv_rows * op->dim_k;
    ash_cuda_run(exec, ASH_KERNEL_attn_copy,
                 (struct ash_cuda_grid){.x = tables->long_count, .y = op->heads, .threads = THREADS}, op);
    pages = *op;
    pages.tiles = tables->page_tiles;
    ash_cuda_run(exec, ASH_KERNEL_attn_unpage,
                 (struct ash_cuda_grid){.x = tables->page_count, .y = op->kv_heads, .threads = THREADS}, &pages);
}

/* Over the pages of a cache. */
static void forward_paged(struct ash_exec *exec, const struct ash_attn_args *args)
{
    const struct ash_cuda_tables *tables = ash_cuda_tables_of(exec, args);
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    int which = tables->page_count == 0 ? 2 : args->dim_k == 64 ? 0 : 1;

    ash_cuda_attn_decode(exec, args, tables);
    if (tables->long_count == 0) return;
    op.tiles = tables->long_tiles;
    op.seqs = tables->seqs;
    op.rows = rows_of(args);
    if (which < 2) copy_pages(exec, &op, tables);
    run_forward(exec, &op, which, tables->long_count);
}

static void forward_bf16(struct ash_exec *exec, const struct ash_attn_args *args)
{
    int which = bf16_class(args);
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t tiles;

    if (ash_cuda_attn_paged(args)) {
        forward_paged(exec, args);
        return;
    }
    tiles = upload_tiles(exec, args, 16 * (which < 2 ? ASH_CUDA_ATTN_WARPS : ASH_CUDA_ATTN_WARPS_ANY), &op.tiles);
    if (tiles == 0) return;
    op.seqs = upload_seqs(exec, args);
    op.rows = rows_of(args);
    if (which < 2) find_rows(exec, args, &op, ash_cuda_scratch(exec, copy_bytes(args, op.rows, false)), false, tiles);
    run_forward(exec, &op, which, tiles);
}

static void backward_bf16(struct ash_exec *exec, const struct ash_attn_args *args)
{
    int which = bf16_class(args);
    size_t rows = 16 * (which < 2 ? ASH_CUDA_ATTN_WARPS : ASH_CUDA_ATTN_WARPS_BACK_ANY);
    size_t keys = ASH_CUDA_ATTN_KEYS_BF16, back = ASH_CUDA_ATTN_BACK_ROWS, wide = ash_max(args->dim_k, args->dim_v);
    size_t copies = which < 2 ? copy_bytes(args, rows_of(args), true) : 0;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    struct ash_cuda_grid grid = {.y = args->heads, .threads = 2 * rows};
    char *room;

    grid.x = upload_tiles(exec, args, rows, &op.tiles);
    if (grid.x == 0) return;
    op.seqs = upload_seqs(exec, args);
    op.rows = rows_of(args);
    room = ash_cuda_scratch(exec, copies + op.rows * args->heads * sizeof(float));
    op.delta = (float *)(room + copies);
    ash_cuda_run(exec, ASH_KERNEL_attn_delta, ash_cuda_grid_rows(op.rows * args->heads), &op);
    if (which < 2) find_rows(exec, args, &op, (uint16_t *)room, true, grid.x);
    grid.z = which < 2 ? 1 : ash_div_up(args->dim_k, ASH_CUDA_ATTN_COLS);
    grid.shared_bytes = which < 2 ? tile_bytes(2 * rows + 4 * keys, args->dim_k)
                                  : tile_bytes(rows + keys, args->dim_k) + tile_bytes(rows + keys, args->dim_v);
    ash_cuda_run(exec, ASH_KERNEL_attn_bf16_queries_64 + which, grid, &op);
    grid.x = upload_tiles(exec, args, keys, &op.tiles);
    grid.y = args->kv_heads;
    grid.z = which < 2 ? 1 : ash_div_up(wide, ASH_CUDA_ATTN_COLS);
    grid.threads = 2 * keys;
    grid.shared_bytes = which < 2 ? tile_bytes(2 * keys + 4 * back, args->dim_k)
                                  : tile_bytes(keys + back, args->dim_k) + tile_bytes(keys + back, args->dim_v);
    ash_cuda_run(exec, ASH_KERNEL_attn_bf16_keys_64 + which, grid, &op);
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
        backward_bf16(exec, args);
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

const struct ash_attn_ops ash_cuda_attn = {.forward = forward, .backward = backward, .kv_write = ash_cuda_attn_write};

static void rope_apply(struct ash_exec *exec, const struct ash_rope_args *args)
{
    ash_assert(args->dims <= ASH_ATTN_HEAD_MAX);
    if (args->out_bf16 != NULL)
        ash_cuda_run(exec, ASH_KERNEL_rope_round, (struct ash_cuda_grid){.x = args->rows, .y = 1, .threads = 128},
                     args);
    else
        ash_cuda_run(
            exec, ASH_KERNEL_rope_apply,
            (struct ash_cuda_grid){.x = ash_div_up(args->rows * args->heads * 32, THREADS), .y = 1, .threads = THREADS},
            args);
}

const struct ash_rope_ops ash_cuda_rope = {.apply = rope_apply};
