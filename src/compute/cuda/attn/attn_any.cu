/* attn_any - bf16 attention of heads of any dims, keys and values wherever they are, as ref/attn_wgmma.c says:
 * forward; dq, blocks of keys ascending; dk and dv, query heads of their group and then query rows ascending. A warp
 * owns 16 query rows (or keys) of one head. */
#include "compute/cuda/attn/attn_any.cuh"
#include "compute/cuda/attn/attn_softmax.cuh"

#define BACK_ROWS ASH_CUDA_ATTN_BACK_ROWS
#define KEY_WARPS (GROUP_KEYS / 16)

/* ---- forward ----------------------------------------------------------------------------------------------------- */

#define HALF_KEYS GROUP_KEYS /* of a block; a tile has as many */
static_assert(2 * HALF_KEYS == ASH_ATTN_KEYS, "a block of the softmax is two tiles of keys");

/* A warp's sums of 16 rows: of a span, and of all before. */
template <int COLS> struct row_sums {
    struct span span;
    struct all_spans all;
    float acc[COLS / 8][4], all_acc[COLS / 8][4];
};

/* What the exponent of a product is multiplied by. Capped products are scaled already. */
static __device__ inline float scale_of(const struct ash_cuda_attn &args)
{
    return args.cap != 0.0f ? ASH_LOG2E : args.scale * ASH_LOG2E;
}

/* Products with COUNT keys (or rows), scaled and capped if there is a cap. */
template <int COUNT> static __device__ inline void cap_products(const struct ash_cuda_attn &args, float (*s)[4])
{
    if (args.cap == 0.0f) return;
#pragma unroll
    for (int n = 0; n < COUNT / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = ash_cap(s[n][e] * args.scale, args.cap);
}

/* Products of a block become weights; ahead: of the warp's first row, see seen_in_tile. */
template <int COLS, bool IS_CAPPED>
static __device__ inline void soften_rows(const struct ash_cuda_attn &args, int ahead, float (*s)[4],
                                          struct row_sums<COLS> *sums)
{
    struct seen seen[2];
    float alpha[2];

#pragma unroll
    for (int half = 0; half < 2; half++) {
        seen[half].end = ahead + threadIdx.x % WARP / 4 + half * 8;
        seen[half].begin = args.window != 0 ? seen[half].end - (int)args.window : 0;
    }
    if (IS_CAPPED) cap_products<ASH_ATTN_KEYS>(args, s);
    if (!soften<true>(s, seen, IS_CAPPED ? ASH_LOG2E : args.scale * ASH_LOG2E, &sums->span, alpha)) return;
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sums->acc[n][e] = sums->acc[n][e] * alpha[e / 2];
}

template <int COLS> static __device__ inline void end_span(struct row_sums<COLS> *sums)
{
    float old[2], now[2];

    merge_weights(sums->span, &sums->all, old, now);
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sums->all_acc[n][e] = fmaf(sums->all_acc[n][e], old[e / 2], sums->acc[n][e] * now[e / 2]);
            sums->acc[n][e] = 0.0f;
        }
    sums->span = new_span();
}

/* Write a warp's rows, of which `left` are real. */
template <int COLS>
static __device__ inline void put_rows(const struct ash_cuda_attn &args, size_t row0, int left, size_t h, size_t column,
                                       int cols, const struct row_sums<COLS> &sums)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = lane / 4 + half * 8;
        size_t at = (row0 + r) * args.out_stride + h * args.dim_v + column;
        float inverse = 1.0f / sums.all.sum[half];

        if (r >= left) continue;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int d = n * 8 + lane % 4 * 2 + e;
                float value = sums.all_acc[n][half * 2 + e] * inverse;

                if (d >= cols) continue;
                if (args.out != NULL) args.out[at + d] = value;
                if (args.out_bf16 != NULL) args.out_bf16[at + d] = ash_f32_to_bf16(value);
            }
        if (args.lse != NULL && lane % 4 == 0 && column == 0)
            args.lse[(row0 + r) * args.heads + h] = fmaf(sums.all.top[half], ASH_LN2, ash_logf(sums.all.sum[half]));
    }
}

/* A thread block computes COLS columns of the output. */
template <int WARPS, int COLS, bool IS_CAPPED>
static __device__ inline void forward_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x]; /* the longest first */
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads), column = (size_t)blockIdx.z * COLS;
    int wide = padded(args.dim_k), cols = args.dim_v - column < COLS ? (int)(args.dim_v - column) : COLS;
    struct shared_tile q = take_tile(&at, WARPS * 16, wide), k = take_tile(&at, HALF_KEYS, wide),
                       v = take_tile(&at, HALF_KEYS, COLS);
    int row0 = threadIdx.x / WARP * 16;
    size_t first = seq.pos + tile.first, end = first + tile.count; /* positions; keys that the last row sees */
    row_sums<COLS> sums = {new_span(), NO_SPANS, {}, {}};

    fill_queries(args, seq.q_row + tile.first, h, WARPS * 16, (int)tile.count, q);
    for (size_t base = visible_keys(args, first).begin / ASH_ATTN_KEYS * ASH_ATTN_KEYS; base < end;
         base += ASH_ATTN_KEYS) {
        float s[ASH_ATTN_KEYS / 8][4] = {};

#pragma unroll
        for (int half = 0; half < 2; half++) {
            size_t from = base + half * HALF_KEYS;

            if (from >= end) break;
            __syncthreads();
            fill_keys(args, seq, true, g, from, end, 0, wide, k);
            __syncthreads();
            multiply_rows<HALF_KEYS>(q, row0, k, wide, s + half * HALF_KEYS / 8);
        }
        soften_rows<COLS, IS_CAPPED>(args, (int)(first + row0 + 1 - base), s, &sums);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            size_t from = base + half * HALF_KEYS;

            if (from >= end) break;
            __syncthreads();
            fill_keys(args, seq, false, g, from, end, column, COLS, v);
            __syncthreads();
            multiply_columns<HALF_KEYS, COLS>(s + half * HALF_KEYS / 8, v, 0, cols, sums.acc);
        }
        if ((base + ASH_ATTN_KEYS) % ASH_ATTN_SPAN == 0 || base + ASH_ATTN_KEYS >= end) end_span<COLS>(&sums);
    }
    put_rows<COLS>(args, seq.q_row + tile.first + row0, (int)tile.count - row0, h, column, cols, sums);
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

/* Of a query row and a key: s the product, dp the gradient of its probability. They become the probability and the
 * gradient of the product, but for the scale; zeros where the row does not see the key. */
static __device__ inline void backward_pair(const struct ash_cuda_attn &args, bool sees,
                                            const struct ash_cuda_attn_stats &stats, float *s, float *dp)
{
    float p = ex2_approx(fmaf(*s, scale_of(args), -stats.lse2)), ds = p * (*dp - stats.delta);

    if (args.cap != 0.0f) ds = ds * ash_cap_slope(*s, args.cap);
    *s = sees ? p : 0.0f;
    *dp = sees ? ds : 0.0f;
}

/* Tiles in shared memory, and what a thread knows of its two rows (lane / 4 and 8 more). */
struct query_rows {
    struct shared_tile q, dout;
    struct ash_cuda_attn_stats stats[2];
};

static __device__ inline void read_rows(const struct ash_cuda_attn &args, size_t row0, int count, size_t h,
                                        struct query_rows *rows)
{
    int r = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t row = row0 + (r + half * 8 < count ? r + half * 8 : 0);

        rows->stats[half] = args.stats[h * args.rows + row];
    }
}

/* backward_pair of a warp's rows and a tile of keys. ahead: see seen_in_tile, of the warp's first row. */
template <bool IS_MASKED>
static __device__ inline void query_pairs(const struct ash_cuda_attn &args, const struct query_rows &rows, int ahead,
                                          float s[GROUP_KEYS / 8][4], float dp[GROUP_KEYS / 8][4])
{
    int lane = threadIdx.x % WARP;
    struct seen_keys seen[2] = {seen_in_tile(args, ahead + lane / 4), seen_in_tile(args, ahead + lane / 4 + 8)};

#pragma unroll
    for (int n = 0; n < GROUP_KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = n * 8 + lane % 4 * 2 + e % 2;
            bool sees = !IS_MASKED || (j >= seen[e / 2].begin && j < seen[e / 2].end);

            backward_pair(args, sees, rows.stats[e / 2], &s[n][e], &dp[n][e]);
        }
}

/* What one tile of keys gives to COLS columns of a warp's dq. ahead: see seen_in_tile, of the warp's first row. */
template <int COLS>
static __device__ inline void queries_add(const struct ash_cuda_attn &args, const struct query_rows &rows,
                                          const struct shared_tile &k, const struct shared_tile &v, int column,
                                          int ahead, float dq[COLS / 8][4])
{
    int row_a = threadIdx.x / WARP * 16;
    float s[GROUP_KEYS / 8][4], dp[GROUP_KEYS / 8][4];

    multiply_rows<GROUP_KEYS>(rows.q, row_a, k, padded(args.dim_k), s);
    multiply_rows<GROUP_KEYS>(rows.dout, row_a, v, padded(args.dim_v), dp);
    cap_products<GROUP_KEYS>(args, s);
    if (ahead >= GROUP_KEYS && args.window == 0) /* all of the warp's rows see all of these keys */
        query_pairs<false>(args, rows, ahead, s, dp);
    else
        query_pairs<true>(args, rows, ahead, s, dp);
    multiply_columns<GROUP_KEYS, COLS>(dp, k, column, (int)args.dim_k - column, dq);
}

/* Write a warp's sums of 16 rows: was + sum * scale, was being what is there (or 0). */
template <int COLS, bool IS_ADDED>
static __device__ inline void put_sums(float *memory, size_t stride, int count, int cols, float scale,
                                       const float sum[COLS / 8][4])
{
    int lane = threadIdx.x % WARP, r = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = r + e / 2 * 8, d = n * 8 + lane % 4 * 2 + e % 2;
            float *at = memory + row * stride + d;

            if (row >= count || d >= cols) continue;
            *at = IS_ADDED ? fmaf(sum[n][e], scale, *at) : sum[n][e] * scale;
        }
}

/* A block's sums join those of the blocks before. */
template <int COLS> static __device__ inline void end_block(float sums[COLS / 8][4], float dq[COLS / 8][4])
{
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            dq[n][e] = dq[n][e] + sums[n][e];
            sums[n][e] = 0.0f;
        }
}

/* A thread block computes COLS columns. */
template <int WARPS, int COLS> static __device__ inline void queries_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x]; /* the longest first */
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads), row = seq.q_row + tile.first;
    int wide_k = padded(args.dim_k), wide_v = padded(args.dim_v), column = (int)blockIdx.z * COLS, count = tile.count;
    struct query_rows rows = {take_tile(&at, WARPS * 16, wide_k), take_tile(&at, WARPS * 16, wide_v)};
    struct shared_tile k = take_tile(&at, GROUP_KEYS, wide_k), v = take_tile(&at, GROUP_KEYS, wide_v);
    int row0 = threadIdx.x / WARP * 16;
    size_t first = tile.first, end = first + tile.count;
    float sums[COLS / 8][4] = {}, dq[COLS / 8][4] = {}; /* of a block; of all before */

    read_rows(args, row, count, h, &rows);
    fill_queries(args, row, h, WARPS * 16, count, rows.q);
    fill_douts(args, row, h, WARPS * 16, count, rows.dout);
    for (size_t base = visible_keys(args, first).begin / GROUP_KEYS * GROUP_KEYS; base < end; base += GROUP_KEYS) {
        __syncthreads();
        fill_keys(args, seq, true, g, base, end, 0, wide_k, k);
        fill_keys(args, seq, false, g, base, end, 0, wide_v, v);
        __syncthreads();
        if (base <= first + row0 + 15)
            queries_add<COLS>(args, rows, k, v, column, (int)(first + row0 + 1 - base), sums);
        if ((base + GROUP_KEYS) % ASH_ATTN_KEYS == 0 || base + GROUP_KEYS >= end) end_block<COLS>(sums, dq);
    }
    put_sums<COLS, false>(args.dq + row * args.q_stride + h * args.dim_k + column, args.q_stride, count,
                          (int)args.dim_k - column, args.scale, dq);
}

/* ---- dk and dv --------------------------------------------------------------------------------------------------- */

/* Tiles in shared memory: keys and values stay, query rows come and go, with what is known of them. */
struct key_tiles {
    struct shared_tile k, v, q, dout;
    const struct ash_cuda_attn_stats *stats;
};

/* backward_pair of a warp's keys and ROWS query rows; without masks where all of these see all of those. */
template <int ROWS, bool IS_MASKED>
static __device__ inline void key_pairs(const struct ash_cuda_attn &args, const struct key_tiles &t, int key0,
                                        int count, float s[ROWS / 8][4], float dp[ROWS / 8][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = n * 8 + lane % 4 * 2 + e % 2, j = key0 + lane / 4 + e / 2 * 8;
            bool sees = !IS_MASKED || (i < count && j <= i && (args.window == 0 || i - j < (int)args.window));

            backward_pair(args, sees, t.stats[i], &s[n][e], &dp[n][e]);
        }
}

/* Add to a warp's dk and dv what count query rows of one head give. key0: the warp's first key, as a distance from the
 * first of these rows. */
template <int COLS, int ROWS>
static __device__ inline void keys_add(const struct ash_cuda_attn &args, const struct key_tiles &t, int key0, int count,
                                       int column, float dk[COLS / 8][4], float dv[COLS / 8][4])
{
    int row_a = threadIdx.x / WARP * 16;
    float s[ROWS / 8][4], dp[ROWS / 8][4];

    multiply_rows<ROWS>(t.k, row_a, t.q, padded(args.dim_k), s);
    multiply_rows<ROWS>(t.v, row_a, t.dout, padded(args.dim_v), dp);
    cap_products<ROWS>(args, s);
    if (count == ROWS && key0 + 15 <= 0 && args.window == 0)
        key_pairs<ROWS, false>(args, t, key0, count, s, dp);
    else
        key_pairs<ROWS, true>(args, t, key0, count, s, dp);
    multiply_columns<ROWS, COLS>(dp, t.q, column, (int)args.dim_k - column, dk);
    multiply_columns<ROWS, COLS>(s, t.dout, column, (int)args.dim_v - column, dv);
}

/* Past the last query row of a document that sees one of these keys. */
static __device__ inline size_t last_row(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                         size_t past)
{
    return args.window != 0 && past - 1 + args.window < seq.q_count ? past - 1 + args.window : seq.q_count;
}

/* A thread block computes COLS columns of dk and of dv. */
template <int COLS> static __device__ inline void keys_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    __shared__ struct ash_cuda_attn_stats stats[BACK_ROWS];
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t g = blockIdx.y, group = args.heads / args.kv_heads, past = tile.first + tile.count,
           last = last_row(args, seq, past);
    int wide_k = padded(args.dim_k), wide_v = padded(args.dim_v), column = (int)blockIdx.z * COLS;
    struct key_tiles t = {take_tile(&at, GROUP_KEYS, wide_k), take_tile(&at, GROUP_KEYS, wide_v),
                          take_tile(&at, BACK_ROWS, wide_k), take_tile(&at, BACK_ROWS, wide_v), stats};
    float *to_k = seq.dk + tile.first * args.k_stride + g * args.dim_k + column,
          *to_v = seq.dv + tile.first * args.v_stride + g * args.dim_v + column;
    float dk[COLS / 8][4] = {}, dv[COLS / 8][4] = {};

    fill_keys(args, seq, true, g, tile.first, past, 0, wide_k, t.k);
    fill_keys(args, seq, false, g, tile.first, past, 0, wide_v, t.v);
    for (size_t h = g * group; h < (g + 1) * group; h++)
        for (size_t row0 = tile.first / BACK_ROWS * BACK_ROWS; row0 < last; row0 += BACK_ROWS) {
            int count = seq.q_count - row0 < BACK_ROWS ? (int)(seq.q_count - row0) : BACK_ROWS;
            int key0 = (int)((long long)tile.first - (long long)row0) + (int)(threadIdx.x / WARP * 16);
            size_t row = seq.q_row + row0;

            __syncthreads();
            fill_queries(args, row, h, BACK_ROWS, count, t.q);
            fill_douts(args, row, h, BACK_ROWS, count, t.dout);
            if (threadIdx.x < count) stats[threadIdx.x] = args.stats[h * args.rows + row + threadIdx.x];
            __syncthreads();
            if (key0 < BACK_ROWS) /* else before all that see this warp's keys */
                keys_add<COLS, BACK_ROWS>(args, t, key0, count, column, dk, dv);
        }
    put_sums<COLS, true>(to_k, args.k_stride, (int)tile.count, (int)args.dim_k - column, args.scale, dk);
    put_sums<COLS, true>(to_v, args.v_stride, (int)tile.count, (int)args.dim_v - column, 1.0f, dv);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS_ANY *WARP, 1)
    attn_forward_any(const __grid_constant__ struct ash_cuda_attn args)
{
    forward_tile<ASH_CUDA_ATTN_WARPS_ANY, ASH_CUDA_ATTN_COLS, false>(args);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS_ANY *WARP, 1)
    attn_forward_capped(const __grid_constant__ struct ash_cuda_attn args)
{
    forward_tile<ASH_CUDA_ATTN_WARPS_ANY, ASH_CUDA_ATTN_COLS_CAPPED, true>(args);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS_BACK_ANY *WARP, 1)
    attn_queries_any(const __grid_constant__ struct ash_cuda_attn args)
{
    queries_tile<ASH_CUDA_ATTN_WARPS_BACK_ANY, ASH_CUDA_ATTN_COLS>(args);
}

extern "C" __global__ void __launch_bounds__(KEY_WARPS *WARP, 1)
    attn_keys_any(const __grid_constant__ struct ash_cuda_attn args)
{
    keys_tile<ASH_CUDA_ATTN_COLS>(args);
}
