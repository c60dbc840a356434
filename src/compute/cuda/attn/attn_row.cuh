/* attn_row - attention of one query row over bf16 pages, as a thread block makes it for a document and a kv head: the
 * query heads that read it are the rows of the tensor cores' products. Eight warps have a block of ASH_ATTN_BLOCK keys
 * each; when the running maximum of all of them is known their scores become probabilities, and each warp adds them,
 * times 16 columns of values, in the order of keys: ref/attn_wgmma.c. */
#ifndef ASH_COMPUTE_CUDA_ATTN_ROW_CUH
#define ASH_COMPUTE_CUDA_ATTN_ROW_CUH

#include "compute/cuda/attn/attn.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define WARPS 8                      /* that compute; blocks of keys of a turn */
#define BLOCK ASH_ATTN_BLOCK         /* keys */
#define ROWS 16                      /* query heads of a kv head, at most */
#define P_PITCH (WARPS * BLOCK + 16) /* values of a row of probabilities: four rows are in different banks */

struct turn {
    float max[WARPS][ROWS], sum[WARPS][ROWS], alpha[WARPS][ROWS]; /* of each block of keys */
    __align__(16) uint16_t p[ROWS][P_PITCH];
};

/* Of all turns before. */
struct running {
    float max[ROWS], sum[ROWS];
};

static __device__ inline uint32_t low_halves(uint32_t a, uint32_t b)
{
    return __byte_perm(a, b, 0x5410);
}

static __device__ inline uint32_t high_halves(uint32_t a, uint32_t b)
{
    return __byte_perm(a, b, 0x7632);
}

/* The queries as the left operand, for all warps: of 16 dims a thread has four adjacent ones, of rows lane / 4 and 8
 * more. Each warp lays out some of the steps. */
template <int DIM> static __device__ inline void read_queries(const float *q, int rows, uint4 (*queries)[WARP])
{
    int row = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

    for (int s = threadIdx.x / WARP; s < DIM / 16; s += WARPS) {
        float4 x[2];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            x[half] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row + half * 8 < rows) x[half] = *(const float4 *)(q + (row + half * 8) * DIM + s * 16 + t * 4);
        }
        queries[s][threadIdx.x % WARP] = make_uint4(pack_bf16(x[0].x, x[0].y), pack_bf16(x[1].x, x[1].y),
                                                    pack_bf16(x[0].z, x[0].w), pack_bf16(x[1].z, x[1].w));
    }
}

/* Scores of a block of keys, which lie as columns. Column n of the products with tile j is key
 * 4 (n / 2) + 16 (2 (n % 2) + j / 4) + j % 4: so a thread has keys 4t ... 4t + 3 of each 16. AHEAD: steps of 16 dims
 * that are read at once. */
template <int DIM, int AHEAD>
static __device__ inline void score_keys(const uint16_t *keys, const uint4 (*queries)[WARP], float s[8][4])
{
    int n = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const uint16_t *from = keys + t * 4 * BLOCK + n / 2 * 4 + n % 2 * 32;

#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = 0.0f;
#pragma unroll 1
    for (int first = 0; first < DIM / 16; first += AHEAD) {
        uint2 k[AHEAD][4][2]; /* of dim 4t + d: keys of two 16s */

#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int d = 0; d < 4; d++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    k[i][d][half] = *(const uint2 *)(from + ((first + i) * 16 + d) * BLOCK + half * 16);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const uint4 query = queries[first + i][threadIdx.x % WARP];
            const uint32_t a[4] = {query.x, query.y, query.z, query.w};

#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t low[4] = {k[i][0][half].x, k[i][1][half].x, k[i][2][half].x, k[i][3][half].x};
                const uint32_t high[4] = {k[i][0][half].y, k[i][1][half].y, k[i][2][half].y, k[i][3][half].y};
                uint32_t b[4][2] = {{low_halves(low[0], low[1]), low_halves(low[2], low[3])},
                                    {high_halves(low[0], low[1]), high_halves(low[2], low[3])},
                                    {low_halves(high[0], high[1]), low_halves(high[2], high[3])},
                                    {high_halves(high[0], high[1]), high_halves(high[2], high[3])}};

#pragma unroll
                for (int e = 0; e < 4; e++)
                    mma(s[half * 4 + e], a, b[e]);
            }
        }
    }
}

/* Keys of a block that are visible, counted from its first. */
struct in_block {
    int begin, end;
};

static __device__ inline struct in_block visible_in(const struct keys &keys, size_t block)
{
    size_t base = block * BLOCK;
    struct in_block in = {keys.begin > base ? (int)(keys.begin - base) : 0, BLOCK};

    if (keys.end < base + BLOCK) in.end = keys.end > base ? (int)(keys.end - base) : 0;
    return in;
}

/* Number of the key, within its block, of column e (0 or 1) of tile j. */
static __device__ inline int key_of(int j, int e)
{
    return threadIdx.x % 4 * 4 + 16 * (2 * e + j / 4) + j % 4;
}

/* The largest product of each row with a visible key of this block (begin ... end - 1). */
static __device__ inline void find_max(const float s[8][4], int begin, int end, int rows, float *max)
{
    int row = threadIdx.x % WARP / 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float now = -INFINITY;

        if (half * 8 >= rows) break;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (key_of(j, e) >= begin && key_of(j, e) < end && s[j][half * 2 + e] > now) now = s[j][half * 2 + e];
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
            float other = __shfl_xor_sync(0xffffffffu, now, step);

            now = other > now ? other : now;
        }
        if (threadIdx.x % 4 == 0) max[row + half * 8] = now;
    }
}

/* Scores of block `w` of a turn become probabilities, with what older sums are multiplied by. */
static __device__ inline void soften(struct turn *turn, const struct running *running, int w, float scale2,
                                     float s[8][4], const struct in_block &in, int rows)
{
    int t = threadIdx.x % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = threadIdx.x % WARP / 4 + half * 8;
        float old = running->max[row], now, off, lanes[4], sum;

        if (half * 8 >= rows) break;
        for (int b = 0; b < w; b++)
            old = turn->max[b][row] > old ? turn->max[b][row] : old;
        now = turn->max[w][row] > old ? turn->max[w][row] : old;
        off = -(now * scale2);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float p = ash_exp2_weight(fmaf(s[j][half * 2 + e], scale2, off));

                s[j][half * 2 + e] = key_of(j, e) >= in.begin && key_of(j, e) < in.end ? p : 0.0f;
            }
            /* Lanes 4t ... 4t + 3 of the row sum are this thread's. ash_lanes_fold: l with l + 8, + 4, + 2, + 1. */
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const float *c = &s[0][half * 2];

            lanes[l] = ((c[l * 4] + c[(4 + l) * 4]) + c[l * 4 + 1]) + c[(4 + l) * 4 + 1];
            lanes[l] = lanes[l] + __shfl_xor_sync(0xffffffffu, lanes[l], 2);
            lanes[l] = lanes[l] + __shfl_xor_sync(0xffffffffu, lanes[l], 1);
        }
        sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int first = i % 2 * 4, e = half * 2 + i / 2;

            *(uint2 *)&turn->p[row][w * BLOCK + i * 16 + t * 4] =
                make_uint2(pack_bf16(s[first][e], s[first + 1][e]), pack_bf16(s[first + 2][e], s[first + 3][e]));
        }
        if (t != 0) continue;
        turn->alpha[w][row] = ash_exp2_weight(fmaf(old, scale2, off));
        turn->sum[w][row] = sum;
    }
}

/* Two columns of values of a block, four keys of each 16: those from begin to end - 1, zeros for others. */
static __device__ inline void read_values(const uint16_t *values, size_t dim, int begin, int end, uint32_t v[16])
{
    int t = threadIdx.x % 4;

#pragma unroll
    for (int i = 0; i < 16; i++) {
        int key = i / 4 * 16 + t * 4 + i % 4;

        v[i] = key >= begin && key < end ? *(const uint32_t *)(values + key * dim) : 0;
    }
}

/* acc = acc alpha + p v: 16 keys at a time. */
static __device__ inline void add_values(const struct turn *turn, int w, const uint32_t v[16], int rows,
                                         float acc[2][4])
{
    int row = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    float alpha[2] = {turn->alpha[w][row], rows > 8 ? turn->alpha[w][row + 8] : 0.0f};

#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[n][e] = acc[n][e] * alpha[e / 2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint2 top = *(const uint2 *)&turn->p[row][w * BLOCK + i * 16 + t * 4], low = make_uint2(0, 0);
        const uint32_t *k = v + i * 4;
        uint32_t b[2][2] = {{low_halves(k[0], k[1]), low_halves(k[2], k[3])},
                            {high_halves(k[0], k[1]), high_halves(k[2], k[3])}};

        if (rows > 8) low = *(const uint2 *)&turn->p[row + 8][w * BLOCK + i * 16 + t * 4];
        const uint32_t a[4] = {top.x, low.x, top.y, low.y};

        mma(acc[0], a, b[0]);
        mma(acc[1], a, b[1]);
    }
}

/* After a turn: the running maximum and sum of each row. */
static __device__ inline void end_turn(const struct turn *turn, int blocks, int rows, struct running *running)
{
    int row = threadIdx.x;

    if (row >= rows) return;
    for (int b = 0; b < blocks; b++) {
        running->sum[row] = fmaf(running->sum[row], turn->alpha[b][row], turn->sum[b][row]);
        running->max[row] = turn->max[b][row] > running->max[row] ? turn->max[b][row] : running->max[row];
    }
}

/* Columns `column` ... + 3 of this thread's rows. */
template <int DIM>
static __device__ inline void put_row(const struct ash_cuda_attn &args, const struct running *running, size_t q_row,
                                      size_t h0, int rows, int column, const float acc[2][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = threadIdx.x % WARP / 4 + half * 8;
        float sum = running->sum[row];

        if (row >= rows) continue;
        *(float4 *)(args.out + q_row * args.out_stride + (h0 + row) * DIM + column) = make_float4(
            acc[0][half * 2] / sum, acc[1][half * 2] / sum, acc[0][half * 2 + 1] / sum, acc[1][half * 2 + 1] / sum);
        if (args.lse != NULL && column == 0)
            args.lse[q_row * args.heads + h0 + row] = fmaf(running->max[row], args.scale, ash_logf(sum));
    }
}

#endif
