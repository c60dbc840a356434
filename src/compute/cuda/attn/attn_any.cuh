/* attn_any - what the kernels of bf16 attention of any dims share: tiles of rows as bf16 in shared memory, and a
 * warp's products of them. A tile has 8 values of room after each row, so that eight rows of one column are in
 * different banks. */
#ifndef ASH_COMPUTE_CUDA_ATTN_ANY_CUH
#define ASH_COMPUTE_CUDA_ATTN_ANY_CUH

#include "compute/cuda/attn/attn.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define GROUP 16                           /* of one step of a sum */
#define GROUP_KEYS ASH_CUDA_ATTN_KEYS_BF16 /* keys of a tile */
#define TILE_PAD ASH_CUDA_ATTN_TILE_PAD

/* Dims of a head, up to a multiple of GROUP. */
static __device__ inline int padded(size_t dims)
{
    return (int)((dims + GROUP - 1) / GROUP * GROUP);
}

/* Keys of a tile, counted from its first. */
struct seen_keys {
    int begin, end;
};

/* Those that a query sees whose position is `ahead` - 1 after the tile's first key. None: end <= begin. */
static __device__ inline struct seen_keys seen_in_tile(const struct ash_cuda_attn &args, int ahead)
{
    struct seen_keys seen = {0, ahead < GROUP_KEYS ? ahead : GROUP_KEYS};

    if (args.window != 0 && ahead > (int)args.window) seen.begin = ahead - (int)args.window;
    return seen;
}

/* A tile in shared memory. */
struct shared_tile {
    uint16_t *data;
    int pitch; /* values from row to row */
};

static __device__ inline unsigned tile_at(const struct shared_tile &tile, int row, int column)
{
    return shared_address(tile.data + row * tile.pitch + column);
}

/* A tile of rows rows after *room, which moves on. */
static __device__ inline struct shared_tile take_tile(unsigned char **room, int rows, int dims)
{
    struct shared_tile tile = {(uint16_t *)*room, dims + TILE_PAD};

    *room += rows * tile.pitch * sizeof(uint16_t);
    return tile;
}

/* rows rows of float32, dims of them real, count rows real; the rest becomes zeros. */
static __device__ inline void fill_tile(const float *from, size_t stride, int rows, int count, size_t dims,
                                        const struct shared_tile &tile)
{
    int wide = padded(dims);

    for (int i = threadIdx.x; i < rows * wide; i += blockDim.x) {
        int row = i / wide, d = i % wide;
        float x = row < count && d < dims ? from[row * stride + d] : 0.0f;

        tile.data[row * tile.pitch + d] = ash_f32_to_bf16(x);
    }
}

/* Keys (is_key) or values first ... of kv head g, columns from `column` on; zeros from `end` on. */
static __device__ inline void fill_keys(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                        bool is_key, size_t g, size_t first, size_t end, size_t column, int wide,
                                        const struct shared_tile &tile)
{
    size_t dim = is_key ? args.dim_k : args.dim_v, stride = is_key ? args.k_stride : args.v_stride;
    size_t dims = dim - column < wide ? dim - column : wide;
    int count = end - first < GROUP_KEYS ? (int)(end - first) : GROUP_KEYS;

    if (seq.pages == NULL && args.kv_dtype == ASH_F32) {
        const float *from = (const float *)(is_key ? seq.k : seq.v) + first * stride + g * dim + column;

        fill_tile(from, stride, GROUP_KEYS, count, dims, tile);
        return;
    }
    for (int i = threadIdx.x; i < GROUP_KEYS * wide; i += blockDim.x) {
        /* Keys of a page are columns: neighbouring threads read neighbouring keys. */
        int row = is_key && seq.pages != NULL ? i % GROUP_KEYS : i / wide;
        int d = is_key && seq.pages != NULL ? i / GROUP_KEYS : i % wide;
        float x = 0.0f;

        if (row < count && d < dims)
            x = is_key ? read_key(args, seq, first + row, g, column + d)
                       : read_value(args, seq, first + row, g, column + d);
        tile.data[row * tile.pitch + d] = ash_f32_to_bf16(x);
    }
}

/* The same of rows of bf16. */
static __device__ inline void fill_tile(const uint16_t *from, size_t stride, int rows, int count, size_t dims,
                                        const struct shared_tile &tile)
{
    int wide = padded(dims);

    for (int i = threadIdx.x; i < rows * wide; i += blockDim.x) {
        int row = i / wide, d = i % wide;

        tile.data[row * tile.pitch + d] = row < count && d < dims ? from[row * stride + d] : 0;
    }
}

/* Rows of q for a kernel of any dims: float32, or bf16. */
static __device__ inline void fill_queries(const struct ash_cuda_attn &args, size_t row, size_t h, int rows, int count,
                                           const struct shared_tile &tile)
{
    size_t at = row * args.q_stride + h * args.dim_k;

    if (args.q_bf16 == NULL)
        fill_tile(args.q + at, args.q_stride, rows, count, args.dim_k, tile);
    else
        fill_tile(args.q_bf16 + at, args.q_stride, rows, count, args.dim_k, tile);
}

/* Likewise the gradients of what attention gave. */
static __device__ inline void fill_douts(const struct ash_cuda_attn &args, size_t row, size_t h, int rows, int count,
                                         const struct shared_tile &tile)
{
    size_t at = row * args.out_stride + h * args.dim_v;

    if (args.dout_bf16 == NULL)
        fill_tile(args.dout + at, args.out_stride, rows, count, args.dim_v, tile);
    else
        fill_tile(args.dout_bf16 + at, args.out_stride, rows, count, args.dim_v, tile);
}

/* sum = a b^T: 16 rows of a from row_a on, N rows of b, over wide columns. */
template <int N>
static __device__ inline void multiply_rows(const struct shared_tile &a, int row_a, const struct shared_tile &b,
                                            int wide, float sum[N / 8][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[n][e] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < wide; k += GROUP) {
        uint32_t x[4];

        load_matrices(tile_at(a, row_a + lane % 16, k + lane / 16 * 8), x);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t y[4];

            load_matrices(tile_at(b, n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8), y);
            mma(sum[n / 8], x, y);
            mma(sum[n / 8 + 1], x, y + 2);
        }
    }
}

/* sum += p b: p holds sums of 16 rows by K columns, which become bf16; b has K rows, of which COLS columns from
 * `column` on are multiplied. */
template <int K, int COLS>
static __device__ inline void multiply_columns(const float p[K / 8][4], const struct shared_tile &b, int column,
                                               int cols, float sum[COLS / 8][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int k = 0; k < K; k += GROUP) {
        const float *left = p[k / 8], *right = p[k / 8 + 1];
        uint32_t x[4] = {pack_bf16(left[0], left[1]), pack_bf16(left[2], left[3]), pack_bf16(right[0], right[1]),
                         pack_bf16(right[2], right[3])};

#pragma unroll
        for (int n = 0; n < COLS; n += 16) {
            uint32_t y[4];

            if (n >= cols) break;
            load_transposed(tile_at(b, k + lane % 16, column + n + lane / 16 * 8), y);
            mma(sum[n / 8], x, y);
            mma(sum[n / 8 + 1], x, y + 2);
        }
    }
}

#endif
