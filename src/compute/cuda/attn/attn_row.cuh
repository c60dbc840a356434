/* attn_row - attention of one query row over bf16 pages, as a thread block makes it for a document and a kv head: the
 * query heads that read it are the rows of the tensor cores' products. Eight warps have a block of ASH_ATTN_BLOCK keys
 * each; when the largest products of all of them are known their scores become weights, and each warp adds them, times 16
 * columns of values, in the order of keys: ref/attn_wgmma.c. */
#ifndef ASH_COMPUTE_CUDA_ATTN_ROW_CUH
#define ASH_COMPUTE_CUDA_ATTN_ROW_CUH

#include "compute/blocks.h"
#include "compute/cuda/attn/attn.cuh"
#include "compute/cuda/attn/attn_softmax.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/tile/device.cuh"

#define WARPS 8                      /* that compute; blocks of keys of a turn */
#define BLOCK ASH_ATTN_BLOCK         /* keys */
#define ROWS 16                      /* query heads of a kv head, at most */
#define P_PITCH (WARPS * BLOCK + 16) /* values of a row of probabilities: four rows are in different banks */

/* A span: eight blocks of keys, a warp each. Two are a block of the softmax. */
struct turn {
    float max[WARPS][ROWS];        /* largest product with a visible key */
    float classes[WARPS][ROWS][8]; /* sums of weights */
    __align__(16) uint16_t p[ROWS][P_PITCH];
};
static_assert(WARPS * BLOCK == ASH_ATTN_SPAN && 2 * BLOCK == ASH_ATTN_KEYS, "a turn is a span");

/* Of all spans before, by rows. */
struct running {
    float top[ROWS], sum[ROWS];
};

/* A thread's sums of values: of a span, of all before, and the references of these for its two rows. */
struct row_sums {
    float acc[2][4], all[2][4], top[2];
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

/* The reference of a row after block `block` of the softmax, and what that block multiplies older sums by. */
static __device__ inline float reference_at(const struct turn *turn, int row, int block, float scale2, float *alpha)
{
    float top = -INFINITY;

    for (int b = 0; b <= block; b++) {
        float most = fmaxf(turn->max[2 * b][row], turn->max[2 * b + 1][row]) * scale2;

        *alpha = 1.0f;
        if (!(most > top + SOFTMAX_SLACK)) continue;
        *alpha = ex2_approx(top - most);
        top = most;
    }
    return top;
}

/* Sums of weights of half a block by classes, c[j] being those of tile j of a row: this thread has four classes. */
static __device__ inline float4 add_classes(const float c[8][2])
{
    float sums[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* keys 4t + i of each 16, and 8 more in the thread two further */
        float sixteens[4] = {c[i][0], c[4 + i][0], c[i][1], c[4 + i][1]};

#pragma unroll
        for (int n = 0; n < 4; n++)
            sixteens[n] = sixteens[n] + __shfl_xor_sync(0xffffffffu, sixteens[n], 2);
        sums[i] = ((sixteens[0] + sixteens[1]) + sixteens[2]) + sixteens[3];
    }
    return make_float4(sums[0], sums[1], sums[2], sums[3]);
}

/* Scores of block `w` of a turn become weights; zeros where a row does not see a key. All of a turn's largest products
 * are there. */
static __device__ inline void soften(struct turn *turn, int w, float scale2, float s[8][4], const struct in_block &in,
                                     int rows)
{
    int t = threadIdx.x % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = threadIdx.x % WARP / 4 + half * 8;
        float alpha, top, p[8][2];
        float4 classes;

        if (half * 8 >= rows) break;
        top = reference_at(turn, row, w / 2, scale2, &alpha);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float weight = ex2_approx(fmaf(s[j][half * 2 + e], scale2, -top));

                p[j][e] = key_of(j, e) >= in.begin && key_of(j, e) < in.end ? weight : 0.0f;
            }
        classes = add_classes(p);
        if (t < 2) *(float4 *)&turn->classes[w][row][t * 4] = classes;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int first = i % 2 * 4, e = i / 2;

            *(uint2 *)&turn->p[row][w * BLOCK + i * 16 + t * 4] =
                make_uint2(pack_bf16(p[first][e], p[first + 1][e]), pack_bf16(p[first + 2][e], p[first + 3][e]));
        }
    }
}

/* What a warp leaves of a block that no row sees. */
static __device__ inline void leave_out_max(struct turn *turn, int w)
{
    if (threadIdx.x % WARP < ROWS) turn->max[w][threadIdx.x % WARP] = -INFINITY;
}

static __device__ inline void leave_out(struct turn *turn, int w)
{
    for (int i = threadIdx.x % WARP; i < ROWS * 8; i += WARP)
        (&turn->classes[w][0][0])[i] = 0.0f;
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

/* Where block w of a turn begins a block of the softmax whose reference moves, older sums are scaled. is_first: of those
 * that are added. */
static __device__ inline void scale_values(const struct turn *turn, int w, bool is_first, int rows, float scale2,
                                           float acc[2][4])
{
    float alpha[2] = {1.0f, 1.0f};

    if (is_first || w % 2 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (half * 8 < rows) reference_at(turn, threadIdx.x % WARP / 4 + half * 8, w / 2, scale2, &alpha[half]);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[n][e] = acc[n][e] * alpha[e / 2];
}

/* acc += p v: 16 keys at a time. */
static __device__ inline void add_values(const struct turn *turn, int w, const uint32_t v[16], int rows,
                                         float acc[2][4])
{
    int row = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

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

/* After a turn: a span's sums of values join those before. */
static __device__ inline void merge_values(const struct turn *turn, int rows, float scale2, struct row_sums *sums)
{
    float old[2] = {1.0f, 1.0f}, now[2] = {0.0f, 0.0f}, alpha;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float span, top;

        if (half * 8 >= rows) continue;
        span = reference_at(turn, threadIdx.x % WARP / 4 + half * 8, WARPS / 2 - 1, scale2, &alpha);
        if (span == -INFINITY) continue;
        top = fmaxf(sums->top[half], span);
        old[half] = ex2_approx(sums->top[half] - top);
        now[half] = ex2_approx(span - top);
        sums->top[half] = top;
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sums->all[n][e] = fmaf(sums->all[n][e], old[e / 2], sums->acc[n][e] * now[e / 2]);
            sums->acc[n][e] = 0.0f;
        }
}

/* After a turn: the sums of weights of each row. */
static __device__ inline void end_turn(const struct turn *turn, int rows, float scale2, struct running *running)
{
    int row = threadIdx.x;
    float classes[8] = {}, span = -INFINITY, top, alpha;

    if (row >= rows) return;
    for (int b = 0; b < WARPS / 2; b++) {
        float next = reference_at(turn, row, b, scale2, &alpha);

        for (int c = 0; c < 8; c++)
            classes[c] = fmaf(classes[c], alpha, turn->classes[2 * b][row][c] + turn->classes[2 * b + 1][row][c]);
        span = next;
    }
    if (span == -INFINITY) return;
    top = fmaxf(running->top[row], span);
    running->sum[row] = fmaf(running->sum[row], ex2_approx(running->top[row] - top),
                             ash_sum_neighbours(classes, 8) * ex2_approx(span - top));
    running->top[row] = top;
}

/* Columns `column` ... + 3 of this thread's rows. */
template <int DIM>
static __device__ inline void put_row(const struct ash_cuda_attn &args, const struct running *running, size_t q_row,
                                      size_t h0, int rows, int column, const float acc[2][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = threadIdx.x % WARP / 4 + half * 8;
        float sum = running->sum[row], inverse = 1.0f / sum;

        if (row >= rows) continue;
        *(float4 *)(args.out + q_row * args.out_stride + (h0 + row) * DIM + column) =
            make_float4(acc[0][half * 2] * inverse, acc[1][half * 2] * inverse, acc[0][half * 2 + 1] * inverse,
                        acc[1][half * 2 + 1] * inverse);
        if (args.lse != NULL && column == 0)
            args.lse[q_row * args.heads + h0 + row] = fmaf(running->top[row], ASH_LN2, ash_logf(sum));
    }
}

#endif
