/* attn_decode - what decoding does around attention: a row's queries and keys are rotated and its keys and values go to
 * their cache page; and attention of one row where documents are few (attn_row.cuh): keys and values go from memory to
 * registers. */
#include "compute/cuda/attn/attn_row.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/tile/device.cuh"

/* ---- writing pages ----------------------------------------------------------------------------------------------- */

/* The document of a row. */
static __device__ inline const struct ash_cuda_attn_seq *find_seq(const struct ash_cuda_kv_write &op, size_t row)
{
    size_t low = 0, high = op.seq_count;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;

        if (op.seqs[middle].q_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &op.seqs[low];
}

static __device__ inline void put_page(const struct ash_cuda_kv_write &op, char *page, size_t element, float value)
{
    if (op.kv_dtype == ASH_BF16)
        ((uint16_t *)page)[element] = ash_f32_to_bf16(value);
    else
        ((float *)page)[element] = value;
}

/* Where element d of a head of a row goes: a query back, keys to a column of their page, values to a row. */
struct kv_place {
    float *q;
    char *page;
    size_t first, step;
};

static __device__ inline void put_element(const struct ash_cuda_kv_write &op, const struct kv_place &to, size_t d,
                                          float value)
{
    if (to.q != NULL)
        to.q[d] = op.round_bf16 ? ash_bf16_round(value) : value;
    else
        put_page(op, to.page, to.first + d * to.step, value);
}

/* A warp owns a head of a row: all of it is read before any of it is written. */
extern "C" __global__ void __launch_bounds__(256) attn_kv_write(const __grid_constant__ struct ash_cuda_kv_write op)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, heads = op.heads + 2 * op.kv_heads;
    size_t row = unit / heads, h = unit % heads, lane = threadIdx.x % WARP, dim = op.dim, half, position;
    constexpr int EACH_MAX = ASH_ATTN_HEAD_MAX / WARP;
    struct kv_place to = {NULL, NULL, 0, 1};
    float x[EACH_MAX], partner[EACH_MAX], *at;
    const struct ash_cuda_attn_seq *seq;
    bool is_pairs = op.interleaved_in != 0;

    early_begin();
    if (row >= op.rows) {
        early_wait();
        return;
    }
    at = op.q + row * op.q_stride + h * dim;
    seq = find_seq(op, row);
    position = seq->pos + row - seq->q_row;
    half = h < op.heads + op.kv_heads ? op.dims / 2 : 0;
    if (h < op.heads) {
        to.q = at;
    } else {
        bool is_key = h < op.heads + op.kv_heads;
        size_t g = h - op.heads - (is_key ? 0 : op.kv_heads), slot = position % ASH_ATTN_BLOCK;

        to.page = (char *)op.pool + seq->pages[position / ASH_ATTN_BLOCK] * op.page_bytes;
        to.first = is_key ? op.k_page + g * dim * ASH_ATTN_BLOCK + slot : op.v_page + (g * ASH_ATTN_BLOCK + slot) * dim;
        to.step = is_key ? ASH_ATTN_BLOCK : 1;
    }
    early_wait(); /* the tables were there before the kernel before this one began; what it makes was not */
#pragma unroll
    for (int n = 0; n < EACH_MAX; n++) {
        size_t d = lane + (size_t)n * WARP;

        if (d >= dim) break;
        /* what dim d of the result is made of: the first of its pair, then the second */
        if (d < 2 * half) {
            size_t i = d < half ? d : d - half;

            x[n] = at[is_pairs ? 2 * i : i];
            partner[n] = at[is_pairs ? 2 * i + 1 : i + half];
            if (op.round_bf16) x[n] = ash_bf16_round(x[n]), partner[n] = ash_bf16_round(partner[n]);
        } else {
            x[n] = at[d];
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < EACH_MAX; n++) {
        size_t d = lane + (size_t)n * WARP;
        float value = x[n];

        if (d >= dim) break;
        if (d < 2 * half) {
            size_t i = d < half ? d : d - half, angle = (size_t)op.positions[row] * half + i;
            float cosine = op.cos[angle], sine = op.sin[angle];

            value = d < half ? fmaf(x[n], cosine, -(partner[n] * sine)) : fmaf(partner[n], cosine, x[n] * sine);
        }
        put_element(op, to, d, value);
    }
}

/* ---- attention of one row ---------------------------------------------------------------------------------------- */

/* K_AHEAD steps of keys and the values of V_AHEAD blocks are read before they are used. Thread blocks of one document
 * and kv head (blockIdx.z) all compute its scores, and share out the columns of values. */
template <int DIM, int K_AHEAD, int V_AHEAD> static __device__ inline void decode(const struct ash_cuda_attn &args)
{
    __shared__ struct turn turns[2]; /* the next one begins while values of this one are added */
    __shared__ struct running running;
    __shared__ uint4 queries[DIM / 16][WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, rows = (int)(args.heads / args.kv_heads);
    int adders = DIM / 16 / gridDim.z, column = (blockIdx.z * adders + warp) * 16; /* this warp's, if warp < adders */
    size_t g = blockIdx.y;
    float scale2 = args.scale * ASH_LOG2E;
    struct row_sums sums = {{}, {}, {-INFINITY, -INFINITY}};

    early_begin();
    /* The tables were there before the kernel before this one began. */
    struct ash_cuda_attn_seq seq = args.seqs[args.tiles[blockIdx.x].seq];
    struct keys keys = visible_keys(args, seq.pos);
    size_t begin = keys.begin / BLOCK, end = (keys.end + BLOCK - 1) / BLOCK, first = begin / WARPS * WARPS;
    const char *pool = (const char *)args.pool;
    size_t k_at = args.k_page + g * DIM * BLOCK, v_at = args.v_page + g * DIM * BLOCK + column + lane / 4 * 2;
    auto page_at = [&](size_t block) { return block >= begin && block < end ? seq.pages[block] : 0; };
    int32_t page = page_at(first + lane % WARPS); /* of the turn's blocks */

    if (threadIdx.x < ROWS) {
        running.top[threadIdx.x] = -INFINITY;
        running.sum[threadIdx.x] = 0.0f;
    }
    early_wait();
    read_queries<DIM>(args.q + seq.q_row * args.q_stride + g * rows * DIM, rows, queries);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; first < end; first += WARPS, i ^= 1) {
        struct turn *turn = &turns[i];
        int blocks = end - first < WARPS ? (int)(end - first) : WARPS, before = first < begin ? (int)(begin - first) : 0;
        bool has_keys = warp >= before && warp < blocks;
        struct in_block own = visible_in(keys, first + warp);
        auto values_of = [&](int b, uint32_t v[16]) {
            const char *at = pool + __shfl_sync(0xffffffffu, page, b) * args.page_bytes;
            struct in_block in = visible_in(keys, first + b);

            if (b >= before && b < blocks && warp < adders)
                read_values((const uint16_t *)at + v_at, DIM, in.begin, in.end, v);
        };
        const char *keys_at = pool + __shfl_sync(0xffffffffu, page, warp) * args.page_bytes;
        uint32_t v[V_AHEAD][16];
        float s[8][4];

        if (has_keys) {
            score_keys<DIM, K_AHEAD>((const uint16_t *)keys_at + k_at, queries, s);
            find_max(s, own.begin, own.end, rows, turn->max[warp]);
        } else {
            leave_out_max(turn, warp);
        }
#pragma unroll
        for (int b = 0; b < V_AHEAD; b++)
            values_of(b, v[b]);
        __syncthreads(); /* everybody has read the turn before last, which this one overwrites from here on */
        if (has_keys)
            soften(turn, warp, scale2, s, own, rows);
        else
            leave_out(turn, warp);
        __syncthreads();
#pragma unroll
        for (int b = 0; b < WARPS; b++) {
            if (b >= before && b < blocks && warp < adders) {
                scale_values(turn, b, b == before, rows, scale2, sums.acc);
                add_values(turn, b, v[b % V_AHEAD], rows, sums.acc);
            }
            if (b + V_AHEAD < WARPS) values_of(b + V_AHEAD, v[b % V_AHEAD]);
        }
        page = page_at(first + WARPS + lane % WARPS);
        merge_values(turn, rows, scale2, &sums);
        end_turn(turn, rows, scale2, &running);
    }
    __syncthreads();
    if (warp < adders) put_row<DIM>(args, &running, seq.q_row, g * rows, rows, column + lane % 4 * 4, sums.all);
}

#define DECODE(DIM, K_AHEAD, V_AHEAD)                                                                                  \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, 1)                                                       \
        attn_decode_##DIM(const __grid_constant__ struct ash_cuda_attn args)                                           \
    {                                                                                                                  \
        decode<DIM, K_AHEAD, V_AHEAD>(args);                                                                           \
    }

DECODE(64, 4, 4)
DECODE(128, 8, 4)
