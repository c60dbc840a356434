/* attn_bf16_back - attention backward with tensor cores, as ref/attn_wgmma.c says, in three kernels: what the softmax
 * takes off each row's gradients; dq, keys ascending; dk and dv, the query heads of their group and then query rows
 * ascending. Scores are recomputed from the saved log-sum. */
#include "compute/cuda/attn/attn_bf16.cuh"

#define BACK_ROWS ASH_CUDA_ATTN_BACK_ROWS
#define KEY_WARPS (GROUP_KEYS / 16)

/* Row sums of dout * out, [rows, heads]: half a warp owns one. */
extern "C" __global__ void __launch_bounds__(256) attn_delta(const __grid_constant__ struct ash_cuda_attn args)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool real = unit < args.rows * args.heads;
    size_t row = real ? unit / args.heads : 0, h = real ? unit % args.heads : 0;
    const float *dout = args.dout + row * args.out_stride + h * args.dim_v,
                *out = args.out + row * args.out_stride + h * args.dim_v;
    float lane = 0.0f;

    for (size_t d = l; d < args.dim_v; d += ASH_LANES)
        lane = fmaf(dout[d], out[d], lane);
    lane = fold_lanes(lane);
    if (real && l == 0) args.delta[unit] = lane;
}

/* Of a query row and a key: s the product, dp the gradient of its probability. s becomes the probability and dp the
 * gradient of the scaled score; zeros where the row does not see the key. */
template <bool IS_FAST>
static __device__ inline void backward_pair(const struct ash_cuda_attn &args, bool sees, float lse, float delta,
                                            float *s, float *dp)
{
    float p = exp2_softmax<IS_FAST>(fmaf(*s, args.scale * ASH_LOG2E, -(lse * ASH_LOG2E)));
    float ds = (p * (*dp - delta)) * args.scale;

    *s = sees ? p : 0.0f;
    *dp = sees ? ds : 0.0f;
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

/* Tiles in shared memory, and what a thread knows of its two rows (lane / 4 and 8 more). */
struct query_rows {
    struct shared_tile q, dout;
    float lse[2], delta[2];
};

static __device__ inline void read_rows(const struct ash_cuda_attn &args, size_t row0, int count, size_t h,
                                        struct query_rows *rows)
{
    int r = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t row = row0 + (r + half * 8 < count ? r + half * 8 : 0);

        rows->lse[half] = args.lse[row * args.heads + h];
        rows->delta[half] = args.delta[row * args.heads + h];
    }
}

/* backward_pair of a warp's rows and a tile of keys. ahead: see seen_in_tile, of the warp's first row. */
template <bool IS_MASKED, bool IS_FAST>
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

            backward_pair<IS_FAST>(args, sees, rows.lse[e / 2], rows.delta[e / 2], &s[n][e], &dp[n][e]);
        }
}

/* What one tile of keys gives to COLS columns of a warp's dq. ahead: see seen_in_tile, of the warp's first row. */
template <int DIM, int COLS, bool IS_FAST>
static __device__ inline void queries_add(const struct ash_cuda_attn &args, const struct query_rows &rows,
                                          const struct shared_tile &k, const struct shared_tile &v, int column,
                                          int ahead, float dq[COLS / 8][4])
{
    int row_a = threadIdx.x / WARP * 16;
    float s[GROUP_KEYS / 8][4], dp[GROUP_KEYS / 8][4];

    multiply_rows<GROUP_KEYS, DIM>(rows.q, row_a, k, padded<DIM>(args.dim_k), s);
    multiply_rows<GROUP_KEYS, DIM>(rows.dout, row_a, v, padded<DIM>(args.dim_v), dp);
    if (ahead >= GROUP_KEYS && args.window == 0) /* all of the warp's rows see all of these keys */
        query_pairs<false, IS_FAST>(args, rows, ahead, s, dp);
    else
        query_pairs<true, IS_FAST>(args, rows, ahead, s, dp);
    multiply_columns<GROUP_KEYS, COLS>(dp, k, column, (int)args.dim_k - column, dq);
}

/* A warp's sums of 16 rows, from memory or back to it. */
template <int COLS, bool IS_LOAD>
static __device__ inline void move_sums(float *memory, size_t stride, int count, int cols, float sum[COLS / 8][4])
{
    int lane = threadIdx.x % WARP, r = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = r + e / 2 * 8, d = n * 8 + lane % 4 * 2 + e % 2;
            bool inside = row < count && d < cols;

            if (IS_LOAD)
                sum[n][e] = inside ? memory[row * stride + d] : 0.0f;
            else if (inside)
                memory[row * stride + d] = sum[n][e];
        }
}

/* Any dims: a thread block computes COLS columns. */
template <int WARPS, int COLS> static __device__ inline void queries_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x]; /* the longest first */
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads), row = seq.q_row + tile.first;
    int wide_k = padded<0>(args.dim_k), wide_v = padded<0>(args.dim_v), column = (int)blockIdx.z * COLS,
        count = tile.count;
    struct query_rows rows = {take_tile(&at, WARPS * 16, wide_k), take_tile(&at, WARPS * 16, wide_v)};
    struct shared_tile k = take_tile(&at, GROUP_KEYS, wide_k), v = take_tile(&at, GROUP_KEYS, wide_v);
    int row0 = threadIdx.x / WARP * 16;
    size_t first = tile.first, end = first + tile.count;
    float dq[COLS / 8][4] = {};

    read_rows(args, row, count, h, &rows);
    fill_queries(args, row, h, WARPS * 16, count, rows.q);
    fill_tile<0>(args.dout + row * args.out_stride + h * args.dim_v, args.out_stride, WARPS * 16, count, args.dim_v,
                 rows.dout);
    for (size_t base = visible_keys(args, first).begin / GROUP_KEYS * GROUP_KEYS; base < end; base += GROUP_KEYS) {
        __syncthreads();
        fill_keys<0>(args, seq, true, g, base, end, 0, wide_k, k);
        fill_keys<0>(args, seq, false, g, base, end, 0, wide_v, v);
        __syncthreads();
        if (base <= first + row0 + 15)
            queries_add<0, COLS, false>(args, rows, k, v, column, (int)(first + row0 + 1 - base), dq);
    }
    move_sums<COLS, false>(args.dq + row * args.q_stride + h * args.dim_k + column, args.q_stride, count,
                           (int)args.dim_k - column, dq);
}

/* Heads of DIM dims that were copied as bf16: the next tile of keys is on its way while one is computed. */
template <int WARPS, int DIM, bool IS_FAST>
static __device__ inline void queries_copied(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x];
    size_t q_row = args.seqs[tile.seq].q_row, row = q_row + tile.first, h = blockIdx.y,
           g = h / (args.heads / args.kv_heads);
    struct query_rows rows = {take_tile(&at, WARPS * 16, DIM), take_tile(&at, WARPS * 16, DIM)};
    struct shared_tile k = take_tile(&at, 2 * GROUP_KEYS, DIM), v = take_tile(&at, 2 * GROUP_KEYS, DIM);
    int row0 = threadIdx.x / WARP * 16, first = (int)tile.first, end = first + (int)tile.count, now = 0;
    int base = (int)(visible_keys(args, first).begin / GROUP_KEYS * GROUP_KEYS);
    float dq[DIM / 8][4] = {};

    read_rows(args, row, (int)tile.count, h, &rows);
    copy_rows<DIM>(query_rows_at(args, h, row), WARPS * 16, (int)tile.count, rows.q);
    copy_rows<DIM>(dout_rows_at<DIM>(args, h, row), WARPS * 16, (int)tile.count, rows.dout);
    copy_rows<DIM>(key_rows_at(args, args.k_copy, g, q_row + base), GROUP_KEYS, end - base, k);
    copy_rows<DIM>(key_rows_at(args, args.v_copy, g, q_row + base), GROUP_KEYS, end - base, v);
    commit_copies();
    for (; base < end; base += GROUP_KEYS, now = 1 - now) {
        int next = base + GROUP_KEYS;

        wait_copies();
        __syncthreads(); /* this tile is there, and nobody reads the one before it any more */
        if (next < end) {
            copy_rows<DIM>(key_rows_at(args, args.k_copy, g, q_row + next), GROUP_KEYS, end - next,
                           turn_of(k, GROUP_KEYS, 1 - now));
            copy_rows<DIM>(key_rows_at(args, args.v_copy, g, q_row + next), GROUP_KEYS, end - next,
                           turn_of(v, GROUP_KEYS, 1 - now));
            commit_copies();
        }
        if (base <= first + row0 + 15)
            queries_add<DIM, DIM, IS_FAST>(args, rows, turn_of(k, GROUP_KEYS, now), turn_of(v, GROUP_KEYS, now), 0,
                                           first + row0 + 1 - base, dq);
    }
    move_sums<DIM, false>(args.dq + row * args.q_stride + h * DIM, args.q_stride, (int)tile.count, DIM, dq);
}

/* ---- dk and dv --------------------------------------------------------------------------------------------------- */

/* Tiles in shared memory: keys and values stay, query rows come and go, with their log-sums and deltas. */
struct key_tiles {
    struct shared_tile k, v, q, dout;
    const float *lse, *delta;
};

/* backward_pair of a warp's keys and ROWS query rows; without masks where all of these see all of those. */
template <int ROWS, bool IS_MASKED, bool IS_FAST>
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

            backward_pair<IS_FAST>(args, sees, t.lse[i], t.delta[i], &s[n][e], &dp[n][e]);
        }
}

/* Add to a warp's dk and dv what count query rows of one head give. key0: the warp's first key, as a distance from the
 * first of these rows. */
template <int DIM, int COLS, int ROWS, bool IS_FAST>
static __device__ inline void keys_add(const struct ash_cuda_attn &args, const struct key_tiles &t, int key0, int count,
                                       int column, float dk[COLS / 8][4], float dv[COLS / 8][4])
{
    int row_a = threadIdx.x / WARP * 16;
    float s[ROWS / 8][4], dp[ROWS / 8][4];

    multiply_rows<ROWS, DIM>(t.k, row_a, t.q, padded<DIM>(args.dim_k), s);
    multiply_rows<ROWS, DIM>(t.v, row_a, t.dout, padded<DIM>(args.dim_v), dp);
    if (count == ROWS && key0 + 15 <= 0 && args.window == 0)
        key_pairs<ROWS, false, IS_FAST>(args, t, key0, count, s, dp);
    else
        key_pairs<ROWS, true, IS_FAST>(args, t, key0, count, s, dp);
    multiply_columns<ROWS, COLS>(dp, t.q, column, (int)args.dim_k - column, dk);
    multiply_columns<ROWS, COLS>(s, t.dout, column, (int)args.dim_v - column, dv);
}

/* Past the last query row of a document that sees one of these keys. */
static __device__ inline size_t last_row(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                         size_t past)
{
    return args.window != 0 && past - 1 + args.window < seq.q_count ? past - 1 + args.window : seq.q_count;
}

/* Any dims: a thread block computes COLS columns of dk and of dv. */
template <int COLS> static __device__ inline void keys_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    __shared__ float lse[BACK_ROWS], delta[BACK_ROWS];
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t g = blockIdx.y, group = args.heads / args.kv_heads, past = tile.first + tile.count,
           last = last_row(args, seq, past);
    int wide_k = padded<0>(args.dim_k), wide_v = padded<0>(args.dim_v), column = (int)blockIdx.z * COLS;
    struct key_tiles t = {take_tile(&at, GROUP_KEYS, wide_k),
                          take_tile(&at, GROUP_KEYS, wide_v),
                          take_tile(&at, BACK_ROWS, wide_k),
                          take_tile(&at, BACK_ROWS, wide_v),
                          lse,
                          delta};
    float *to_k = seq.dk + tile.first * args.k_stride + g * args.dim_k + column,
          *to_v = seq.dv + tile.first * args.v_stride + g * args.dim_v + column;
    float dk[COLS / 8][4], dv[COLS / 8][4];

    move_sums<COLS, true>(to_k, args.k_stride, (int)tile.count, (int)args.dim_k - column, dk);
    move_sums<COLS, true>(to_v, args.v_stride, (int)tile.count, (int)args.dim_v - column, dv);
    fill_keys<0>(args, seq, true, g, tile.first, past, 0, wide_k, t.k);
    fill_keys<0>(args, seq, false, g, tile.first, past, 0, wide_v, t.v);
    for (size_t h = g * group; h < (g + 1) * group; h++)
        for (size_t row0 = tile.first / BACK_ROWS * BACK_ROWS; row0 < last; row0 += BACK_ROWS) {
            int count = seq.q_count - row0 < BACK_ROWS ? (int)(seq.q_count - row0) : BACK_ROWS;
            int key0 = (int)((long long)tile.first - (long long)row0) + (int)(threadIdx.x / WARP * 16);
            size_t row = seq.q_row + row0;

            __syncthreads();
            fill_queries(args, row, h, BACK_ROWS, count, t.q);
            fill_tile<0>(args.dout + row * args.out_stride + h * args.dim_v, args.out_stride, BACK_ROWS, count,
                         args.dim_v, t.dout);
            if (threadIdx.x < count) {
                lse[threadIdx.x] = args.lse[(row + threadIdx.x) * args.heads + h];
                delta[threadIdx.x] = args.delta[(row + threadIdx.x) * args.heads + h];
            }
            __syncthreads();
            if (key0 < BACK_ROWS) /* else before all that see this warp's keys */
                keys_add<0, COLS, BACK_ROWS, false>(args, t, key0, count, column, dk, dv);
        }
    move_sums<COLS, false>(to_k, args.k_stride, (int)tile.count, (int)args.dim_k - column, dk);
    move_sums<COLS, false>(to_v, args.v_stride, (int)tile.count, (int)args.dim_v - column, dv);
}

/* Where the loop over query rows is: a head, and the first row of a tile. */
struct place {
    int h, row0;
};

/* Heads of DIM dims that were copied as bf16: the next query rows are on their way while some are computed. */
template <int DIM, int ROWS, bool IS_FAST> static __device__ inline void keys_copied(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    __shared__ float lse[2][ROWS], delta[2][ROWS];
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    int g = (int)blockIdx.y, group = (int)(args.heads / args.kv_heads), rows = (int)seq.q_count;
    int last = (int)last_row(args, seq, tile.first + tile.count), begin = (int)tile.first / ROWS * ROWS;
    struct key_tiles t = {take_tile(&at, GROUP_KEYS, DIM), take_tile(&at, GROUP_KEYS, DIM)};
    struct shared_tile q = take_tile(&at, 2 * ROWS, DIM), dout = take_tile(&at, 2 * ROWS, DIM);
    struct place place = {g * group, begin};
    float dk[DIM / 8][4], dv[DIM / 8][4];
    int now = 0;
    auto fetch = [&](struct place from, int turn) {
        size_t row = seq.q_row + from.row0;
        int count = rows - from.row0 < ROWS ? rows - from.row0 : ROWS;

        copy_rows<DIM>(query_rows_at(args, from.h, row), ROWS, count, turn_of(q, ROWS, turn));
        copy_rows<DIM>(dout_rows_at<DIM>(args, from.h, row), ROWS, count, turn_of(dout, ROWS, turn));
        if (threadIdx.x < count) {
            lse[turn][threadIdx.x] = args.lse[(row + threadIdx.x) * args.heads + from.h];
            delta[turn][threadIdx.x] = args.delta[(row + threadIdx.x) * args.heads + from.h];
        }
        commit_copies();
    };

    move_sums<DIM, true>(seq.dk + tile.first * args.k_stride + g * DIM, args.k_stride, (int)tile.count, DIM, dk);
    move_sums<DIM, true>(seq.dv + tile.first * args.v_stride + g * DIM, args.v_stride, (int)tile.count, DIM, dv);
    copy_rows<DIM>(key_rows_at(args, args.k_copy, g, seq.q_row + tile.first), GROUP_KEYS, (int)tile.count, t.k);
    copy_rows<DIM>(key_rows_at(args, args.v_copy, g, seq.q_row + tile.first), GROUP_KEYS, (int)tile.count, t.v);
    fetch(place, 0);
    while (place.h < (g + 1) * group) {
        struct place next = {place.h, place.row0 + ROWS};
        int count = rows - place.row0 < ROWS ? rows - place.row0 : ROWS;
        int key0 = (int)tile.first - place.row0 + (int)(threadIdx.x / WARP * 16);

        if (next.row0 >= last) next = (struct place){place.h + 1, begin};
        wait_copies();
        __syncthreads(); /* these rows are there, and nobody reads those before them any more */
        if (next.h < (g + 1) * group) fetch(next, 1 - now);
        t.q = turn_of(q, ROWS, now);
        t.dout = turn_of(dout, ROWS, now);
        t.lse = lse[now];
        t.delta = delta[now];
        if (key0 < ROWS) keys_add<DIM, DIM, ROWS, IS_FAST>(args, t, key0, count, 0, dk, dv);
        place = next;
        now = 1 - now;
    }
    move_sums<DIM, false>(seq.dk + tile.first * args.k_stride + g * DIM, args.k_stride, (int)tile.count, DIM, dk);
    move_sums<DIM, false>(seq.dv + tile.first * args.v_stride + g * DIM, args.v_stride, (int)tile.count, DIM, dv);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define COPIED(DIM, ARITHMETIC, IS_FAST, BLOCKS, KEY_BLOCKS)                                                           \
    extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS *WARP, BLOCKS)                                    \
        attn_##ARITHMETIC##_queries_##DIM(const __grid_constant__ struct ash_cuda_attn args)                           \
    {                                                                                                                  \
        queries_copied<ASH_CUDA_ATTN_WARPS, DIM, IS_FAST>(args);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(KEY_WARPS *WARP, KEY_BLOCKS)                                          \
        attn_##ARITHMETIC##_keys_##DIM(const __grid_constant__ struct ash_cuda_attn args)                              \
    {                                                                                                                  \
        keys_copied<DIM, BACK_ROWS, IS_FAST>(args);                                                                    \
    }

COPIED(64, bf16, false, 2, 3)
COPIED(128, bf16, false, 1, 1)
COPIED(64, fast, true, 2, 3)
COPIED(128, fast, true, 1, 1)

extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS_BACK_ANY *WARP, 1)
    attn_bf16_queries_any(const __grid_constant__ struct ash_cuda_attn args)
{
    queries_tile<ASH_CUDA_ATTN_WARPS_BACK_ANY, ASH_CUDA_ATTN_COLS>(args);
}

extern "C" __global__ void __launch_bounds__(KEY_WARPS *WARP, 1)
    attn_bf16_keys_any(const __grid_constant__ struct ash_cuda_attn args)
{
    keys_tile<ASH_CUDA_ATTN_COLS>(args);
}
