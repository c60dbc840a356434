/* attn_args - what the host passes to the kernels of attention: part of kernel_args.h. */
#ifndef ASH_COMPUTE_CUDA_ATTN_ARGS_H
#define ASH_COMPUTE_CUDA_ATTN_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include "infra/device/tensor_map.h"

#define ASH_CUDA_ATTN_ROWS 16 /* query rows of a tile */
#define ASH_CUDA_ATTN_KEYS 32 /* keys of a tile of the backward pass */
/* Of bf16 attention, heads of 64 or 128 dims (attn_tiled.cuh): query rows, or keys, of a unit; threads; shared
 * memory. */
#define ASH_CUDA_ATTN_TILED_ROWS 128
#define ASH_CUDA_ATTN_TILED_THREADS 384
#define ASH_CUDA_ATTN_STEP 64 /* keys, or query rows, of a step of the backward pass */
#define ASH_CUDA_ATTN_FORWARD_BYTES(dim) ((128 + 4 * 128) * (dim)*2 + 128 * (dim)*4)
#define ASH_CUDA_ATTN_BACK_STAGES 4
#define ASH_CUDA_ATTN_BACKWARD_BYTES(dim)                                                                              \
    ((2 * 128 + ASH_CUDA_ATTN_BACK_STAGES * 2 * 64) * (dim)*2 + ASH_CUDA_ATTN_BACK_STAGES * 64 * 8)
/* Of other heads: warps of a tile, forward and backward, of 16 query rows each; keys of a tile; columns that a thread
 * block computes. */
#define ASH_CUDA_ATTN_WARPS_ANY 4
#define ASH_CUDA_ATTN_WARPS_BACK_ANY 2
#define ASH_CUDA_ATTN_KEYS_BF16 64
#define ASH_CUDA_ATTN_COLS 128
#define ASH_CUDA_ATTN_COLS_CAPPED (ASH_CUDA_ATTN_COLS / 2) /* forward, with a cap: that takes registers */
#define ASH_CUDA_ATTN_BACK_ROWS 32                         /* query rows of a tile of dk and dv */
#define ASH_CUDA_ATTN_COPIED_MAX 128                       /* dims of heads that are copied as bf16 */
#define ASH_CUDA_ATTN_TILE_PAD 8                           /* values after each row of a tile */

/* Of attn_spans.cu: threads; shared memory of keys and values on their way, if units are few or many; of queries,
 * weights and sums of `heads` query heads. */
#define ASH_CUDA_ATTN_SPANS_THREADS 160
#define ASH_CUDA_ATTN_SPANS_FEW (80 << 10)
#define ASH_CUDA_ATTN_SPANS_MANY (48 << 10)
#define ASH_CUDA_ATTN_SPANS_BYTES(dim, heads) ((heads) * ((dim)*2 + 8 * 128 + 1112) + 512)

/* A tile of attention: query rows first ... first + count - 1 of document seq. */
struct ash_cuda_attn_tile {
    uint32_t seq, first, count;
};

/* A document of a batch that trains: its first row, and rows. */
struct ash_cuda_attn_doc {
    uint32_t row, count;
};

/* A document as a kernel reads it. */
struct ash_cuda_attn_seq {
    uint64_t q_row, q_count, pos;
    uint64_t kv_first; /* where its keys and values begin in k_copy and v_copy */
    const void *k, *v;
    const int32_t *pages; /* device copy of the block table, or NULL */
    float *dk, *dv;
};

/* attn_docs.cu: documents, where row 0 of keys, values and their gradients (or NULL) is, and where seqs go. */
struct ash_cuda_attn_docs {
    const struct ash_cuda_attn_doc *docs;
    size_t count;
    const void *k, *v;
    float *dk, *dv;
    size_t k_row_bytes, v_row_bytes, k_stride, v_stride; /* strides: of dk and dv */
    struct ash_cuda_attn_seq *seqs;
};

/* Of a query row of a head, for the backward pass: its log-sum as a power of two, and what the softmax takes off its
 * gradients. */
struct ash_cuda_attn_stats {
    float lse2, delta;
};

struct ash_cuda_attn {
    size_t heads, kv_heads, dim_k, dim_v;
    float scale, cap; /* cap: 0 for none */
    size_t window;
    int kv_dtype;
    size_t q_stride, k_stride, v_stride, out_stride;
    const void *pool;
    size_t page_bytes, k_page, v_page;
    const float *q;
    float *out, *lse;
    const uint16_t *q_bf16;
    uint16_t *out_bf16;
    const float *dout;
    const uint16_t *dout_bf16;
    float *dq;
    /* bf16 attention: */
    size_t rows;                       /* of q and out */
    struct ash_cuda_attn_stats *stats; /* [heads, rows]: backward */
    unsigned stats_lanes;              /* threads that make one: a power of two */
    int is_stats_wide;                 /* each has 16 whole columns, at borders of 16 bytes */
    uint16_t *dout_copy;               /* [rows, heads, dim_v], or NULL */
    size_t kv_row, kv_head;            /* from row to row and from head to head of k_copy and v_copy */
    uint16_t *copies;                  /* [heads of q, k and v, rows, dim]: of those that are float32 */
    uint16_t *k_copy, *v_copy;         /* of pages */
    const struct ash_cuda_attn_seq *seqs;
    const struct ash_cuda_attn_tile *tiles;
};

/* attn_spans.cu: span number `index` of document seq, whose row q_row sees `keys` keys (or its window's part of them);
 * the slot-th span of all. */
struct ash_cuda_attn_span {
    const int32_t *pages;
    uint32_t seq, index, slot, q_row, keys;
};

/* All of a batch: where replayed work finds it, however many there are by then. */
struct ash_cuda_attn_batch {
    const struct ash_cuda_attn_span *spans;
    size_t count;
};

struct ash_cuda_attn_spans {
    struct ash_cuda_tensor_map k,
        v; /* of the pool: a piece of a page is DIM dims of ASH_ATTN_BLOCK keys, or the reverse */
    const struct ash_cuda_attn_batch *batch;
    size_t heads, kv_heads, window;
    float scale;
    const float *q;
    float *out, *lse;
    uint16_t *out_bf16;
    size_t q_stride, out_stride;
    float *parts;   /* sums of each span and kv head */
    unsigned *done; /* of each document and kv head: spans that have ended, then 0 again */
};

/* Rows of bf16 in memory: row r of head h is row r + h * head_y of the map, from column h * head_x on. */
struct ash_cuda_attn_rows {
    struct ash_cuda_tensor_map map;
    uint32_t head_x, head_y;
};

/* Attention over tiles of rows: attn_tiled.cuh. */
struct ash_cuda_attn_tiled {
    struct ash_cuda_attn_rows q, k, v, dout;
    const struct ash_cuda_attn_tile *tiles;
    const struct ash_cuda_attn_seq *seqs;
    uint32_t tile_count, heads, kv_heads, window;
    float scale;
    int is_out_even; /* two columns of out are written at once */
    float *out, *lse;
    uint16_t *out_bf16;
    size_t out_stride, rows;
    /* backward: */
    const struct ash_cuda_attn_stats *stats;
    float *dq;
    size_t q_stride, k_stride, v_stride;
    /* instead of dq, dk and dv, or NULL: rows of the gradients of q, k and v, turned back and rounded */
    uint16_t *rounded;
    size_t rounded_stride;
    const int32_t *positions;
    const float *cos, *sin; /* [positions, dim / 2] */
};

/* Queries and keys are rotated, queries rounded, keys and values go to pages: see ash_kv_write_args. */
struct ash_cuda_kv_write {
    size_t heads, kv_heads, dim, rows;
    int kv_dtype;
    void *pool;
    size_t page_bytes, k_page, v_page;
    float *q;
    size_t q_stride, dims;
    int interleaved_in, round_bf16;
    const int32_t *positions;
    const float *cos, *sin;
    const struct ash_cuda_attn_seq *seqs;
    size_t seq_count;
};

#endif
