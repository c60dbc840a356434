/* Attention on the GPU: documents are cut into tiles of query rows (or keys), and the list of them goes along. Here:
 * that list, and attention of float32; attn_bf16.c has that of bf16. */
#include "compute/cuda/host/backend_priv.h"

#include <stdlib.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/attn/attn_bf16.h"
#include "compute/cuda/attn/attn_decode.h"
#include "compute/cuda/attn/attn_docs.h"

#define THREADS (ASH_CUDA_ATTN_ROWS * ASH_LANES)

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
        .cap = args->cap,
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
        .dout_bf16 = args->dout_bf16,
        .dq = args->dq,
    };
}

const struct ash_cuda_attn_seq *ash_cuda_attn_seqs(struct ash_exec *exec, const struct ash_attn_args *args)
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

size_t ash_cuda_attn_tiles(struct ash_exec *exec, const struct ash_attn_args *args, size_t rows,
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

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static void forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_attn op = ash_cuda_attn_args(args);
    size_t wide = ash_max(args->dim_k, args->dim_v);
    struct ash_cuda_grid grid = {.y = args->heads, .threads = THREADS};

    check_args(args);
    if (args->round_bf16) {
        ash_cuda_attn_forward_bf16(exec, args);
        return;
    }
    grid.x = ash_cuda_attn_tiles(exec, args, ASH_CUDA_ATTN_ROWS, &op.tiles);
    if (grid.x == 0) return;
    op.seqs = ash_cuda_attn_seqs(exec, args);
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
        ash_cuda_attn_backward_bf16(exec, args);
        return;
    }
    grid.x = ash_cuda_attn_tiles(exec, args, ASH_CUDA_ATTN_ROWS, &op.tiles);
    if (grid.x == 0) return;
    op.seqs = ash_cuda_attn_seqs(exec, args);
    grid.y = args->heads;
    grid.shared_bytes =
        sizeof(float) * ((ASH_CUDA_ATTN_ROWS + ASH_CUDA_ATTN_KEYS) * (args->dim_k + 1 + args->dim_v + 1) +
                         2 * ASH_CUDA_ATTN_ROWS * ASH_CUDA_ATTN_KEYS);
    ash_cuda_run(exec, ASH_KERNEL_attn_queries_64 + size_class(args->dim_k), grid, &op);
    grid.x = ash_cuda_attn_tiles(exec, args, ASH_CUDA_ATTN_KEYS, &op.tiles);
    grid.y = args->kv_heads;
    ash_cuda_run(exec, ASH_KERNEL_attn_keys_64 + size_class(wide), grid, &op);
}

const struct ash_attn_ops ash_cuda_attn = {.forward = forward,
                                           .backward = backward,
                                           .backward_rounded = ash_cuda_attn_backward_rounded,
                                           .kv_write = ash_cuda_attn_write};
