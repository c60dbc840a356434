/* attn - where keys and values are, which of them a query sees, and how tiles of rows come into shared memory. */
#ifndef ASH_COMPUTE_CUDA_ATTN_CUH
#define ASH_COMPUTE_CUDA_ATTN_CUH

#include "compute/cuda/device.cuh"

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

static __device__ inline float read_kv(const struct ash_cuda_attn &args, const void *run, void *const *pages,
                                       size_t stride, size_t page_first, size_t j, size_t column)
{
    if (pages == NULL) return read_element(run, args.kv_dtype, j * stride + column);
    return read_element(pages[j / args.page_tokens], args.kv_dtype,
                        page_first + j % args.page_tokens * stride + column);
}

/* Keys (or values) first ... first + count - 1 of kv head g into tile [keys, dim + 1]; zeros past the last. */
static __device__ inline void load_keys(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq, size_t g,
                                        size_t first, size_t end, int count, float *tile)
{
    for (size_t i = threadIdx.x; i < count * args.dim_k; i += blockDim.x) {
        size_t j = i / args.dim_k, d = i % args.dim_k;

        tile[j * (args.dim_k + 1) + d] =
            first + j < end ? read_kv(args, seq.k, seq.pages, args.k_stride, args.k_page, first + j, g * args.dim_k + d)
                            : 0.0f;
    }
}

static __device__ inline void load_values(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                          size_t g, size_t first, size_t end, int count, float *tile)
{
    for (size_t i = threadIdx.x; i < count * args.dim_v; i += blockDim.x) {
        size_t j = i / args.dim_v, d = i % args.dim_v;

        tile[j * (args.dim_v + 1) + d] =
            first + j < end ? read_kv(args, seq.v, seq.pages, args.v_stride, args.v_page, first + j, g * args.dim_v + d)
                            : 0.0f;
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

#endif
