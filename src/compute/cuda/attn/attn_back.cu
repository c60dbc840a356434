/* attn_back - attention backward, in two kernels that both recompute the scores from the saved log-sum: dq walks
 * keys in ascending order, dk and dv walk the query heads of their group and then query rows in ascending order. */
#include "compute/cuda/attn/attn.cuh"

/* Probability and gradient of the scaled score of the pairs (query row r, keys l and l + 16 of the tile). */
struct pair {
    float p, ds;
};

/* Row sum of dout * out: what the softmax takes off every gradient of the row. All lanes of the row get it. */
static __device__ inline float row_delta(const struct ash_cuda_attn &args, size_t row, size_t h, int l)
{
    size_t at = row * args.out_stride + h * args.dim_v;
    float lane = 0.0f;

    for (size_t d = l; d < args.dim_v; d += ASH_LANES)
        lane = fmaf(args.dout[at + d], args.out[at + d], lane);
    return fold_lanes(lane);
}

static __device__ inline struct pair backward_pair(const struct ash_cuda_attn &args, const float *q, const float *dout,
                                                   const float *k, const float *v, float lse, float delta)
{
    float s = score_of(args, q, k), dp = dot_chain(dout, v, args.dim_v);
    struct pair pair;

    pair.p = ash_expf(s - lse);
    pair.ds = pair.p * (dp - delta);
    if (args.cap != 0.0f) pair.ds = pair.ds * ash_cap_slope(s, args.cap);
    pair.ds = pair.ds * args.scale;
    return pair;
}

/* Shared memory of both kernels. */
struct tiles {
    float *q, *dout; /* [ATTN_ROWS, dim + 1] */
    float *k, *v;    /* [KEYS_BACK, dim + 1] */
    float *p, *ds;   /* [ATTN_ROWS, KEYS_BACK] */
};

static __device__ inline struct tiles lay_out(const struct ash_cuda_attn &args, float *shared)
{
    struct tiles t;

    t.q = shared;
    t.dout = t.q + ATTN_ROWS * (args.dim_k + 1);
    t.k = t.dout + ATTN_ROWS * (args.dim_v + 1);
    t.v = t.k + KEYS_BACK * (args.dim_k + 1);
    t.p = t.v + KEYS_BACK * (args.dim_v + 1);
    t.ds = t.p + ATTN_ROWS * KEYS_BACK;
    return t;
}

template <int K_EACH> static __device__ inline void queries_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(float, shared, 4);
    struct tiles t = lay_out(args, shared);
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads), end = tile.first + tile.count;
    int r = threadIdx.x / ASH_LANES, l = threadIdx.x % ASH_LANES;
    bool real = r < tile.count;
    size_t row = seq.q_row + tile.first + (real ? r : 0);
    struct keys seen = visible_keys(args, tile.first + (real ? r : 0)), first_row = visible_keys(args, tile.first);
    float delta = row_delta(args, row, h, l), lse = args.lse[row * args.heads + h], dq[K_EACH];

    for (int i = 0; i < K_EACH; i++)
        dq[i] = 0.0f;
    load_rows(args.q, args.q_stride, seq.q_row + tile.first, h * args.dim_k, args.dim_k, tile.count, t.q);
    load_rows(args.dout, args.out_stride, seq.q_row + tile.first, h * args.dim_v, args.dim_v, tile.count, t.dout);
    for (size_t base = first_row.begin / KEYS_BACK * KEYS_BACK; base < end; base += KEYS_BACK) {
        struct keys keys = keys_within(seen, base, KEYS_BACK);

        __syncthreads();
        load_keys(args, seq, g, base, end, KEYS_BACK, t.k);
        load_values(args, seq, g, base, end, KEYS_BACK, t.v);
        __syncthreads();
        for (size_t n = l; n < KEYS_BACK; n += ASH_LANES)
            if (real && base + n >= keys.begin && base + n < keys.end)
                t.ds[r * KEYS_BACK + n] =
                    backward_pair(args, t.q + r * (args.dim_k + 1), t.dout + r * (args.dim_v + 1),
                                  t.k + n * (args.dim_k + 1), t.v + n * (args.dim_v + 1), lse, delta)
                        .ds;
        __syncwarp();
        for (size_t j = keys.begin; real && j < keys.end; j++) {
            float ds = t.ds[r * KEYS_BACK + j - base];

#pragma unroll
            for (int i = 0; i < K_EACH; i++)
                if (l + i * ASH_LANES < args.dim_k)
                    dq[i] = fmaf(ds, t.k[(j - base) * (args.dim_k + 1) + l + i * ASH_LANES], dq[i]);
        }
    }
    for (int i = 0; real && i < K_EACH; i++)
        if (l + i * ASH_LANES < args.dim_k) args.dq[row * args.q_stride + h * args.dim_k + l + i * ASH_LANES] = dq[i];
}

#define KEY_THREADS (ATTN_THREADS / KEYS_BACK) /* threads of a key */

/* What one block of query rows of one head gives to dk and dv of the tile's keys. */
template <int EACH>
static __device__ inline void keys_add(const struct ash_cuda_attn &args, const struct ash_cuda_attn_seq &seq,
                                       const struct ash_cuda_attn_tile &tile, const struct tiles &t, size_t h,
                                       size_t row0, float *dk, float *dv)
{
    int r = threadIdx.x / ASH_LANES, l = threadIdx.x % ASH_LANES;
    int key = threadIdx.x / KEY_THREADS, part = threadIdx.x % KEY_THREADS;
    int count = seq.q_count - row0 < ATTN_ROWS ? (int)(seq.q_count - row0) : ATTN_ROWS;
    bool real = r < count;
    size_t row = seq.q_row + row0 + (real ? r : 0), j = tile.first + key;
    struct keys seen = keys_within(visible_keys(args, row0 + (real ? r : 0)), tile.first, tile.count);
    float delta = row_delta(args, row, h, l), lse = args.lse[row * args.heads + h];

    __syncthreads();
    load_rows(args.q, args.q_stride, seq.q_row + row0, h * args.dim_k, args.dim_k, count, t.q);
    load_rows(args.dout, args.out_stride, seq.q_row + row0, h * args.dim_v, args.dim_v, count, t.dout);
    __syncthreads();
    for (size_t n = l; n < KEYS_BACK; n += ASH_LANES) {
        struct pair pair;

        if (!real || tile.first + n < seen.begin || tile.first + n >= seen.end) continue;
        pair = backward_pair(args, t.q + r * (args.dim_k + 1), t.dout + r * (args.dim_v + 1),
                             t.k + n * (args.dim_k + 1), t.v + n * (args.dim_v + 1), lse, delta);
        t.p[r * KEYS_BACK + n] = pair.p;
        t.ds[r * KEYS_BACK + n] = pair.ds;
    }
    __syncthreads();
    for (int i = 0; key < tile.count && i < count; i++) {
        struct keys of_row = visible_keys(args, row0 + i);
        float p, ds;

        if (j < of_row.begin || j >= of_row.end) continue;
        p = t.p[i * KEYS_BACK + key];
        ds = t.ds[i * KEYS_BACK + key];
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            size_t d = part + n * KEY_THREADS;

            if (d < args.dim_k) dk[n] = fmaf(ds, t.q[i * (args.dim_k + 1) + d], dk[n]);
            if (d < args.dim_v) dv[n] = fmaf(p, t.dout[i * (args.dim_v + 1) + d], dv[n]);
        }
    }
}

template <int EACH> static __device__ inline void keys_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(float, shared, 4);
    struct tiles t = lay_out(args, shared);
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t g = blockIdx.y, group = args.heads / args.kv_heads;
    int key = threadIdx.x / KEY_THREADS, part = threadIdx.x % KEY_THREADS;
    size_t j = tile.first + key, past = tile.first + tile.count;
    size_t last = args.window != 0 && past - 1 + args.window < seq.q_count ? past - 1 + args.window : seq.q_count;
    float *to_k = seq.dk + j * args.k_stride + g * args.dim_k, *to_v = seq.dv + j * args.v_stride + g * args.dim_v;
    float dk[EACH], dv[EACH];

#pragma unroll
    for (int n = 0; n < EACH; n++) {
        size_t d = part + n * KEY_THREADS;

        dk[n] = key < tile.count && d < args.dim_k ? to_k[d] : 0.0f;
        dv[n] = key < tile.count && d < args.dim_v ? to_v[d] : 0.0f;
    }
    load_keys(args, seq, g, tile.first, past, KEYS_BACK, t.k);
    load_values(args, seq, g, tile.first, past, KEYS_BACK, t.v);
    for (size_t h = g * group; h < (g + 1) * group; h++)
        for (size_t row0 = tile.first / ATTN_ROWS * ATTN_ROWS; row0 < last; row0 += ATTN_ROWS)
            keys_add<EACH>(args, seq, tile, t, h, row0, dk, dv);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        size_t d = part + n * KEY_THREADS;

        if (key < tile.count && d < args.dim_k) to_k[d] = dk[n];
        if (key < tile.count && d < args.dim_v) to_v[d] = dv[n];
    }
}

#define BACKWARD(DIM)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ATTN_THREADS, 1)                                                      \
        attn_queries_##DIM(const __grid_constant__ struct ash_cuda_attn args)                                          \
    {                                                                                                                  \
        queries_tile<DIM / ASH_LANES>(args);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ATTN_THREADS, 1)                                                      \
        attn_keys_##DIM(const __grid_constant__ struct ash_cuda_attn args)                                             \
    {                                                                                                                  \
        keys_tile<DIM / KEY_THREADS>(args);                                                                            \
    }

BACKWARD(64)
BACKWARD(128)
BACKWARD(256)
BACKWARD(512)
