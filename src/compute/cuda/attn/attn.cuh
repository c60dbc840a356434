/* attn - where keys and values are, which of them a query sees, and how tiles of rows come into shared memory. */
#ifndef ASH_COMPUTE_CUDA_ATTN_CUH
#define ASH_COMPUTE_CUDA_ATTN_CUH

#include "compute/cuda/tile/device.cuh"
#include "compute/family_math.h"

#define ATTN_ROWS ASH_CUDA_ATTN_ROWS
#define ATTN_THREADS (ATTN_ROWS * ASH_LANES) /* half a warp per query row */
#define KEYS_BACK ASH_CUDA_ATTN_KEYS         /* keys of a tile of the backward pass */

struct keys {
    size_t begin, end;
};

/* The keys that the query at a position sees. */
static __device__ inline struct keys visible_keys(const struct ash_cuda_attn &args, size_t position)
{
    struct keys keys = {0, position + 1};

    if (args.window != 0 && keys.end > args.window) keys.begin = keys.end - args.window;
    return keys;
}

/* Those of them that are in [first, first + count). */
static __device__ inline struct keys keys_within(struct keys keys, size_t first, size_t count)
{
    keys.begin = keys.begin < first ? first : keys.begin;
    keys.end = keys.end > first + count ? first + count : keys.end;
    return keys;
}

/* Element `element` of the page that holds token j. */
static __device__ inline float read_page(const struct ash_cuda_attn &args, const int32_t *pages, size_t j,
                                         size_t element)
{
    return read_element((const char *)args.pool + pages[j / ASH_ATTN_BLOCK] * args.page_bytes, args.kv_dtype, element);
}

/* Dim d of key j of kv head g; a page has keys as columns (attn_pages.h). */
static __device__ inline float read_key(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq, size_t j,
                                        size_t g, size_t d)
{
    if (seq.pages == NULL) return read_element(seq.k, args.kv_dtype, j * args.k_stride + g * args.dim_k + d);
    return read_page(args, seq.pages, j, args.k_page + (g * args.dim_k + d) * ASH_ATTN_BLOCK + j % ASH_ATTN_BLOCK);
}

static __device__ inline float read_value(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                          size_t j, size_t g, size_t d)
{
    if (seq.pages == NULL) return read_element(seq.v, args.kv_dtype, j * args.v_stride + g * args.dim_v + d);
    return read_page(args, seq.pages, j, args.v_page + (g * ASH_ATTN_BLOCK + j % ASH_ATTN_BLOCK) * args.dim_v + d);
}

/* Keys (or values) first ... first + count - 1 of kv head g into tile [keys, dim + 1]; zeros past the last. */
static __device__ inline void load_keys(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq, size_t g,
                                        size_t first, size_t end, int count, float *tile)
{
    for (size_t i = threadIdx.x; i < count * args.dim_k; i += blockDim.x) {
        size_t j = i / args.dim_k, d = i % args.dim_k;

        tile[j * (args.dim_k + 1) + d] = first + j < end ? read_key(args, seq, first + j, g, d) : 0.0f;
    }
}

static __device__ inline void load_values(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                          size_t g, size_t first, size_t end, int count, float *tile)
{
    for (size_t i = threadIdx.x; i < count * args.dim_v; i += blockDim.x) {
        size_t j = i / args.dim_v, d = i % args.dim_v;

        tile[j * (args.dim_v + 1) + d] = first + j < end ? read_value(args, seq, first + j, g, d) : 0.0f;
    }
}

/* count rows of x, dim columns from `column` on, into tile [ATTN_ROWS, dim + 1]. */
static __device__ inline void load_rows(const float *x, size_t stride, size_t row, size_t column, size_t dim, int count,
                                        float *tile)
{
    for (size_t i = threadIdx.x; i < count * dim; i += blockDim.x)
        tile[i / dim * (dim + 1) + i % dim] = x[(row + i / dim) * stride + column + i % dim];
}

/* One chain over d. */
static __device__ inline float dot_chain(const float *a, const float *b, size_t count)
{
    float acc = 0.0f;

#pragma unroll 8
    for (size_t d = 0; d < count; d++)
        acc = fmaf(a[d], b[d], acc);
    return acc;
}

/* Scaled, and perhaps capped, score of a query with a key. */
static __device__ inline float score_of(const struct ash_cuda_attn &args, const float *q, const float *k)
{
    float score = dot_chain(q, k, args.dim_k) * args.scale;

    return args.cap == 0.0f ? score : ash_cap(score, args.cap);
}

#endif
