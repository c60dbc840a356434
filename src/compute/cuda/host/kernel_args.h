/* kernel_args - what the host passes to each kernel, by value. Plain C that both compilers read. Sizes in elements. */
#ifndef ASH_COMPUTE_CUDA_KERNEL_ARGS_H
#define ASH_COMPUTE_CUDA_KERNEL_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include "compute/blocks.h"
#include "compute/cuda/host/attn_args.h"
#include "compute/ops.h"

/* Elementwise kernels and moves of rows: what each reads of it is in rows.cu and act.cu. */
struct ash_cuda_rows {
    const float *a, *b, *c;
    float *out, *out2;
    uint16_t *out_bf16, *out2_bf16; /* instead of these, or NULL */
    float factor;
    size_t count, rows, cols, slots;
    const int32_t *index;
    const float *weight;
    int add;
};

/* embed.cu: threads of the block that sorts, of those that add, and columns that a warp of these adds up. */
#define ASH_CUDA_EMBED_SORT_THREADS 1024
#define ASH_CUDA_EMBED_ADD_THREADS 256
#define ASH_CUDA_EMBED_COLS 128

struct ash_cuda_embed {
    const void *table;
    int dtype;
    size_t cols, rows;
    const int32_t *ids;
    int add;
    float *out;        /* [rows, cols] */
    const float *grad; /* [rows, cols] */
    float *dtable;     /* [vocab, cols] */
    int32_t *order;    /* [rows], sorted by id; of one id, ascending */
    int32_t *spare;    /* [rows] */
    int32_t *starts;   /* [rows + 1]: where each id begins in order, and after the last one rows */
    int32_t *count;    /* of ids that differ */
};

/* optim.cu: ranges of flat arrays. Thread blocks take chunks of ASH_CUDA_RANGE_CHUNK elements, whose numbers go on from
 * range to range. */
#define ASH_CUDA_RANGE_CHUNK 4096
#define ASH_CUDA_RANGE_THREADS 256

struct ash_cuda_range {
    size_t param, moment, grad, count;
    size_t chunk; /* its first */
    float decay;  /* AdamW's factor of the weights */
    bool is_wide; /* four elements begin at a 16-byte border in every array of float32, at 8 bytes in bf16 */
};

struct ash_cuda_ranges {
    const struct ash_cuda_range *list; /* [count], none empty */
    size_t count, chunks;
};

/* AdamW's other factors, rounded once on the host as the reference does. */
struct ash_cuda_adamw {
    struct ash_adamw_args args;
    struct ash_cuda_ranges ranges;
    float grow1, grow2, step, root2;
};

/* Ranges begin at `grad`. */
struct ash_cuda_squares {
    const float *x;
    struct ash_cuda_ranges ranges;
    struct ash_squares *sum;
};

struct ash_cuda_group {
    const int32_t *index;
    size_t rows, choices, experts;
    int32_t *order, *flat, *where;
    uint64_t *offsets; /* experts + 1 */
    int32_t *starts;   /* the same; or NULL */
};

/* Rows and columns of a tile of grouped.cu, and threads of its blocks. */
#define ASH_CUDA_GROUPED_TILE 64
#define ASH_CUDA_GROUPED_THREADS 128

/* See ash_grouped_args. */
struct ash_cuda_grouped_args {
    size_t groups, N, K;
    const int32_t *starts;
    const void *const *w; /* [groups] */
    int dtype;
    size_t k_stride, n_stride; /* of each */
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
    bool accumulate;
};

/* See ash_grouped_grad_args. */
struct ash_cuda_grouped_grad_args {
    size_t M, N;
    const int32_t *starts;
    const float *dy, *x;
    size_t dy_stride, x_stride;
    float *const *dw; /* [groups] */
    bool accumulate, round_bf16;
};

/* norm_tile.cu: rows of a thread block (at most 64), and floats after each in shared memory. */
#define ASH_CUDA_NORM_PAD 16
#define ASH_CUDA_NORM_ROWS_MAX 64

struct ash_cuda_norm {
    struct ash_norm_args args;
    unsigned tile_rows; /* norm_tile.cu */
    bool layer;         /* norm_bf16.cu: */
    float *parts;       /* [blocks of rows, cols] of the weights' gradient, then of the bias'; NULL: not wanted */
};

/* norm_bf16.cu: threads of a thread block whose warps have a row each, chunks of 128 columns of such a warp, and of one
 * that shares its row; threads of a block of rows backward, at most. */
#define ASH_CUDA_NORM_FORWARD_THREADS 256
#define ASH_CUDA_NORM_ALONE_CHUNKS 8
#define ASH_CUDA_NORM_SHARED_CHUNKS 4
#define ASH_CUDA_NORM_BACK_THREADS 512
#define ASH_CUDA_COLUMN_THREADS 128
#define ASH_CUDA_ADD_BLOCKS_THREADS 256
#define ASH_CUDA_ADD_BLOCKS_ROWS 256

/* first[c] (second[c]) += the sum over b < count of parts[b, c] (of the next count rows of parts), ascending. */
struct ash_cuda_add_blocks {
    const float *parts;
    size_t count, cols;
    float *first, *second; /* or NULL */
};

struct ash_cuda_column_blocks {
    struct ash_column_sum_args args;
    float *parts; /* [blocks of rows, cols] */
};

/* family.cu: a soft limit, or with y its gradient. */
struct ash_cuda_cap {
    const float *y; /* or NULL */
    float *x, cap;
    size_t count;
};

/* distill.cu: threads of a row. */
#define ASH_CUDA_DISTILL_THREADS 256

/* loss_row.cu: threads, and the longest row, which must fit into shared memory. */
#define ASH_CUDA_LOSS_ROW_THREADS 1024
#define ASH_CUDA_LOSS_ROW_MAX ((size_t)54 << 10)

#define ASH_CUDA_SWIGLU_EACH 8 /* elements of a thread of act_bf16.cu, where they lie well */

/* loss_bf16.cu: threads at most, floats from block to block in shared memory, where two rows of a multiprocessor may
 * have this many bytes each, and barriers for units of 16 blocks. */
#define ASH_CUDA_LOSS_THREADS 512
#define ASH_CUDA_LOSS_PITCH (ASH_LOSS_BLOCK + 8)
#define ASH_CUDA_LOSS_UNITS_MAX 32
#define ASH_CUDA_LOSS_HALF_BYTES ((size_t)112 << 10)

struct ash_cuda_loss_relative {
    struct ash_loss_part part;
    unsigned part_blocks; /* of a row, in each thread block of its cluster */
};

/* chain.cuh: columns and rows of a tile, floats from column to column, tiles, and bytes of shared memory. */
#define ASH_CUDA_CHAIN_COLS 16
#define ASH_CUDA_CHAIN_ROWS 256
#define ASH_CUDA_CHAIN_PITCH (ASH_CUDA_CHAIN_ROWS + 4)
#define ASH_CUDA_CHAIN_STAGES 2
#define ASH_CUDA_CHAIN_BYTES (sizeof(float) * ASH_CUDA_CHAIN_STAGES * 2 * ASH_CUDA_CHAIN_COLS * ASH_CUDA_CHAIN_PITCH)

#define ASH_CUDA_LINE_ALIGN 8 /* values of 16 bytes */

/* bf16 values as lines of k, each 16-byte aligned: the stride is a multiple of 8. Or, on the host's side, as columns:
 * k lines of count values. */
struct ash_cuda_lines {
    const uint16_t *data;
    size_t count, k, stride, columns; /* the last: 0 or 1 */
};

/* c = a b^T (+ c) (+ bias) (+ add): see ash_gemm_args. */
struct ash_cuda_gemm_bf16 {
    struct ash_cuda_lines a, b;
    uint16_t *room; /* where operands that lie as columns are laid out as lines, if they must be */
    float *c;
    uint16_t *c_bf16; /* instead of c; or NULL */
    size_t c_stride;
    const float *bias, *add;
    size_t add_stride;
    int accumulate;
};

/* gemm_tma.cu: rows of a thread block's tile of sums, k of a stage, threads, thread blocks of a cluster; and for tiles
 * of n columns stages and shared memory. */
#define ASH_CUDA_GEMM_TMA_M 128
#define ASH_CUDA_GEMM_TMA_K 64
#define ASH_CUDA_GEMM_TMA_THREADS 384
#define ASH_CUDA_GEMM_TMA_CLUSTER 2
#define ASH_CUDA_GEMM_TMA_STAGES(n) ((n) > 128 ? 4 : 6)
#define ASH_CUDA_GEMM_TMA_BYTES(n)                                                                                     \
    (ASH_CUDA_GEMM_TMA_STAGES(n) * (ASH_CUDA_GEMM_TMA_M + (n)) * ASH_CUDA_GEMM_TMA_K * 2 + 1024)
#define ASH_CUDA_GEMM_TMA_OUTS 3

/* One product, or several of one a. */
struct ash_cuda_gemm_tma {
    struct ash_cuda_tensor_map a, b[ASH_CUDA_GEMM_TMA_OUTS];
    struct ash_cuda_gemm_bf16 outs[ASH_CUDA_GEMM_TMA_OUTS];
    uint32_t first[ASH_CUDA_GEMM_TMA_OUTS]; /* tile beside tile: the first of each; UINT32_MAX: it is not there */
    uint32_t m_pairs, n_tiles, k_tiles;     /* tiles of a cluster, one below the other; beside each other; stages */
};

/* gemm_mma.cu: a thread block's sums [tile, tile], its threads, and its shared memory: three stages of two operands. */
#define ASH_CUDA_GEMM_MMA_TILE 64
#define ASH_CUDA_GEMM_MMA_THREADS 128
#define ASH_CUDA_GEMM_MMA_BYTES (3 * 2 * ASH_CUDA_GEMM_MMA_TILE * 64)

#define ASH_CUDA_FEW_ROWS 16                                            /* most rows of x */
#define ASH_CUDA_FEW_WARPS 8                                            /* most warps of a thread block that multiply */
#define ASH_CUDA_FEW_RING_BYTES(k, stages) ((stages)*16 * ((k)*2 + 16)) /* of a warp: tiles of 16 rows and k */

/* few.cu, batch.cu: one of the products. */
/* few.cu, batch.cu, few_quant.cu: lines of weights that the next product of a step reads first. They come to the L2
 * cache while this one ends (ahead.h). Addresses are multiples of 16. */
struct ash_cuda_ahead {
    unsigned bytes; /* of each line, a multiple of 16; 0: none */
    struct {
        const char *data;
        size_t stride; /* bytes from line to line */
        unsigned count;
    } parts[ASH_PROJECT_OUTS_MAX];
};

struct ash_cuda_few_out {
    const uint16_t *w; /* lines of k: 16-byte aligned, the stride a multiple of 8 */
    size_t N, stride;
    const float *bias;
    float *y;
    size_t y_stride;
    unsigned groups; /* of rows of weights; with swiglu of both */
};

/* Products of a few rows with bf16 weights: see ash_project_args. */
struct ash_cuda_few {
    size_t M, K; /* K is a multiple of 8 */
    const void *x;
    int x_is_bf16; /* not with norm */
    size_t x_stride;
    const float *norm;
    float norm_eps;
    int residual, swiglu, out_count;
    unsigned warps, groups; /* that multiply in a thread block; of all outs */
    struct ash_cuda_few_out outs[ASH_PROJECT_OUTS_MAX];
    struct ash_cuda_ahead ahead;
};

/* batch.cu: most rows of x; thread blocks that share it; k of a line, and of a tile of M rows of x; bytes of a tile
 * with N rows of weights, tiles in shared memory, and where they begin there. */
#define ASH_CUDA_BATCH_ROWS 128
#define ASH_CUDA_BATCH_CLUSTER 2
#define ASH_CUDA_BATCH_LINE_K 64
#define ASH_CUDA_BATCH_K(M) ((M) <= 64 ? 128 : 64)
#define ASH_CUDA_BATCH_TILE_BYTES(M, N) (((M) + (N)) * ASH_CUDA_BATCH_K(M) * 2)
#define ASH_CUDA_BATCH_BYTES_MAX (204 << 10)
#define ASH_CUDA_BATCH_STAGES(M, N) (ASH_CUDA_BATCH_BYTES_MAX / ASH_CUDA_BATCH_TILE_BYTES(M, N))
#define ASH_CUDA_BATCH_BORDER 1024

/* x of batch.cu: float32 or bf16, perhaps normed, becomes tiles as they lie in shared memory. */
struct ash_cuda_batch_x {
    const float *x;
    const uint16_t *x_bf16; /* instead of it, or NULL */
    size_t x_stride, K;
    const float *norm; /* or NULL */
    float norm_eps;
    size_t rows, tile_k, tiles; /* rows of a tile: 64 or 128 */
    uint16_t *out;              /* [tiles, tile_k / ASH_CUDA_BATCH_LINE_K, rows, ASH_CUDA_BATCH_LINE_K] */
};

/* few_quant.cu: warps, most rows of x, units of a stage (quant/packed.h), most stages of all warps. */
#define ASH_CUDA_FEW_QUANT_WARPS 8
#define ASH_CUDA_FEW_QUANT_ROWS 8
#define ASH_CUDA_FEW_QUANT_UNITS 4
#define ASH_CUDA_FEW_QUANT_STAGES_MAX 32
/* Shared memory of its thread blocks: the kernel shares multiprocessors with the next one. Half of 228 KB at most, with
 * what the driver and static variables take, and more than a third: so that there is no place for a third one. */
#define ASH_CUDA_FEW_QUANT_PLACE_BYTES (112 << 10)
#define ASH_CUDA_FEW_QUANT_PLACE_BYTES_MIN (77 << 10)

struct ash_cuda_few_quant_out {
    const uint8_t *w; /* packed */
    size_t N;
    const float *bias;
    float *y;
    size_t y_stride;
    unsigned groups; /* of 8 rows of weights (swiglu: of both) */
};

/* Products of a few rows with packed quantised weights: see ash_project_args. */
struct ash_cuda_few_quant {
    size_t M, K; /* K is whole blocks of 32 */
    const float *x;
    size_t x_stride;
    const float *norm;
    float norm_eps;
    int residual, swiglu, out_count, round_bf16; /* round_bf16: of a bf16 model: its norm and SwiGLU */
    unsigned warps, groups, stages, units;       /* stages: of a warp. units: of a row */
    size_t panel_bytes, x_bytes;                 /* of 8 rows of weights; of x, quantised, with scales */
    struct ash_cuda_few_quant_out outs[ASH_PROJECT_OUTS_MAX];
    struct ash_cuda_ahead ahead;
};

/* pack.cu: rows of weights of the file to panels, the last of which may have fewer rows. */
struct ash_cuda_quant_pack {
    const uint8_t *w;
    int dtype;
    size_t K, rows, row_bytes, panels;
    uint8_t *packed;
};

/* An operand of any dtype and strides that becomes lines. */
struct ash_cuda_to_lines {
    const void *data;
    int dtype;
    size_t line_stride, k_stride, count, k, stride;
    uint16_t *out;
};

/* bf16 values drawn for a test of products. */
struct ash_cuda_draw {
    uint16_t *out;
    size_t count;
    uint32_t seed;
};

/* A sum over the words of a matrix that tells it from any other. */
struct ash_cuda_checksum {
    const float *x;
    const uint16_t *x_bf16; /* instead of x; or NULL */
    size_t rows, cols, stride;
    uint64_t *sum;
};

/* Products with a quantised matrix: x is quantised first, row by row. */
struct ash_cuda_quant {
    size_t M, N, K, groups;
    const float *x;
    size_t x_stride;
    int8_t *qx; /* [M, K] */
    float *dx;  /* [M, groups] */
    const uint8_t *w;
    int dtype;
    float *y;
    size_t y_stride;
    const float *bias;
    int accumulate;
};

/* trial.cu: operands and results of `count` tiles (of ex2: of elements). */
#define ASH_CUDA_TRIAL_THREADS 128
struct ash_cuda_trial {
    const void *a, *b;
    const float *c;
    float *d;
    size_t count;
};

/* A row's choice: ash_sample_row, with its lists at bytes of the block. */
struct ash_cuda_sample_row {
    double temperature, top_p, min_p, typical_p;
    uint64_t random;
    size_t top_k;
    size_t bias_at, bias_count, counts_at, count_count, mask_at;
    float repetition, presence, frequency;
    int filters_first, sorts, has_mask; /* sorts: ash_sample_sorts */
};

/* Choices of rows, a thread block each. */
struct ash_cuda_sample {
    size_t vocab, stride; /* stride: between rows of logits */
    float *logits;        /* edited in place */
    float *weight;        /* [rows, vocab] */
    int32_t *ids, *next;
    const unsigned char *block; /* [rows] of struct ash_cuda_sample_row, and their lists */
};

/* reduce.cu: a sum over windows of ranks; see infra/device_queue.h. */
#define ASH_CUDA_REDUCE_PARTS 256
#define ASH_CUDA_REDUCE_THREADS 256
struct ash_cuda_reduce {
    const void *parts[ASH_CUDA_REDUCE_PARTS];
    uint8_t joins[ASH_CUDA_REDUCE_PARTS];
    void *out, *also; /* also: or NULL */
    size_t count;
    unsigned part_count;
    int op, pairs, is_wide; /* op: 0 sum, 1 maximum, 2 minimum; pairs: 2, 4, 8, or 0 for another tree, never wide */
};

#endif
