/* attn_spans_weights - products of keys with queries of a span, and the softmax that makes weights of them. */
#ifndef ASH_COMPUTE_CUDA_ATTN_SPANS_WEIGHTS_CUH
#define ASH_COMPUTE_CUDA_ATTN_SPANS_WEIGHTS_CUH

#include "compute/cuda/attn/attn_spans_copy.cuh"

static __device__ inline void sync_users(void)
{
    named_sync<WARPGROUP>(1);
}

/* A value of 2 bytes in an operand of lines: its place in the permuted panels of 8 lines. */
static __device__ inline int place_in_lines(int line, int column)
{
    return line * LINE_BYTES + ((column / 8 ^ line % 8) << 4) + column % 8 * 2;
}

/* The queries as lines of bf16, with zeros for heads that are not there. */
template <int DIM, int HEADS>
static __device__ inline void read_queries(const struct ash_cuda_attn_spans &args, const struct unit &unit,
                                           unsigned char *to)
{
    const float *q = args.q + unit.q_row * args.q_stride + (size_t)unit.g * unit.rows * DIM;

    for (int i = threadIdx.x; i < HEADS * DIM / 8; i += WARPGROUP) {
        int head = i / (DIM / 8), d = i % (DIM / 8) * 8;
        float4 low = make_float4(0.0f, 0.0f, 0.0f, 0.0f), high = low;

        if (head < unit.rows) {
            low = *(const float4 *)(q + head * DIM + d);
            high = *(const float4 *)(q + head * DIM + d + 4);
        }
        *(uint4 *)(to + d / PANEL * HEADS * LINE_BYTES + place_in_lines(head, d % PANEL)) = make_uint4(
            pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y), pack_bf16(high.z, high.w));
    }
    wgmma_see_shared();
    sync_users();
}

/* Products of a piece of keys, which lie as columns, with the queries. Only begun. */
template <int DIM, int HEADS> static __device__ inline void begin_piece(float (*s)[4], unsigned keys, unsigned queries)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM; k += 16)
        wgmma<HEADS, 1, 0>(s, wgmma_operand_across(keys + k * LINE_BYTES, BLOCK * LINE_BYTES),
                           wgmma_operand(queries + k / PANEL * HEADS * LINE_BYTES + k % PANEL * 2), k > 0);
    wgmma_commit();
}

/* What a thread knows of keys: s[p] are products of piece p with keys key_at(p, 0) and 8 further, of each 8 heads
 * two. */
static __device__ inline int key_at(int piece, int half)
{
    return piece * BLOCK + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + half * 8;
}

static __device__ inline bool sees(const struct unit &unit, int key)
{
    return key >= unit.begin && key < unit.end;
}

/* The largest products of each head with visible keys of each block, by warps. */
template <int HEADS>
static __device__ inline void find_most(const struct unit &unit, const float (*s)[HEADS / SPLIT][4],
                                        float (*most)[HEADS])
{
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int n = 0; n < HEADS / SPLIT; n++) {
            float largest[2] = {-INFINITY, -INFINITY};

#pragma unroll
            for (int i = 0; i < 4; i++) {
                int p = 2 * b + i / 2;

#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (sees(unit, key_at(p, i % 2))) largest[e] = fmaxf(largest[e], s[p][n][i % 2 * 2 + e]);
            }
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int step = 4; step < WARP; step *= 2)
                    largest[e] = fmaxf(largest[e], __shfl_xor_sync(0xffffffffu, largest[e], step));
            if (threadIdx.x % WARP < 4)
                *(float2 *)&most[b][n * SPLIT + threadIdx.x % 4 * 2] = make_float2(largest[0], largest[1]);
        }
}

/* A head's reference after each block, and what the block multiplies older sums by. */
template <int HEADS>
static __device__ inline void find_references(const float (*most)[BLOCKS][HEADS], int head, float scale2,
                                              float top[BLOCKS], float alpha[BLOCKS])
{
    float now = -INFINITY;

#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        float largest = most[0][b][head];

#pragma unroll
        for (int w = 1; w < USERS; w++)
            largest = fmaxf(largest, most[w][b][head]);
        largest = largest * scale2;
        alpha[b] = 1.0f;
        if (largest > now + SOFTMAX_SLACK) {
            alpha[b] = ex2_approx(now - largest);
            now = largest;
        }
        top[b] = now;
    }
}

/* Products become weights: bf16 lines of keys by heads at `to`, and sums of two keys by classes. */
template <int DIM, int HEADS, int RING>
static __device__ inline void soften(const struct unit &unit, float scale2, float (*s)[HEADS / SPLIT][4],
                                     unsigned char *to, struct shared<DIM, HEADS, RING> *shared)
{
    int warp = threadIdx.x / WARP, t = threadIdx.x % 4, class_of = threadIdx.x % WARP / 4;

#pragma unroll
    for (int n = 0; n < HEADS / SPLIT; n++) {
        int head = n * SPLIT + t * 2;
        float top[2][BLOCKS], alpha[2][BLOCKS];

#pragma unroll
        for (int e = 0; e < 2; e++)
            find_references<HEADS>(shared->most, head + e, scale2, top[e], alpha[e]);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (threadIdx.x < 4) *(float2 *)&shared->alpha[b][head] = make_float2(alpha[0][b], alpha[1][b]);
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            float w[4];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                w[i] = ex2_approx(fmaf(s[p][n][i], scale2, -top[i % 2][p / 2]));
                if (!sees(unit, key_at(p, i / 2))) w[i] = 0.0f;
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t two = pack_bf16(w[half * 2], w[half * 2 + 1]);
                unsigned char *at = to + p * HEADS * LINE_BYTES;

                *(uint16_t *)(at + place_in_lines(head, key_at(0, half))) = (uint16_t)two;
                *(uint16_t *)(at + place_in_lines(head + 1, key_at(0, half))) = (uint16_t)(two >> 16);
            }
            *(float2 *)&shared->classes[p][warp][n][class_of][t * 2] = make_float2(w[0] + w[2], w[1] + w[3]);
        }
    }
}

/* The sums of weights of a span: a thread has a class of a head. Whole warps. */
template <int DIM, int HEADS, int RING>
static __device__ inline void add_weights(float scale2, struct shared<DIM, HEADS, RING> *shared)
{
    int head = threadIdx.x / ASH_ATTN_CLASSES, c = threadIdx.x % ASH_ATTN_CLASSES;
    float top[BLOCKS], alpha[BLOCKS], sum = 0.0f;

    if (head >= HEADS) return;
    find_references<HEADS>(shared->most, head, scale2, top, alpha);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        float halves[2];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            halves[half] = shared->classes[2 * b + half][0][head / SPLIT][c][head % SPLIT];
#pragma unroll
            for (int w = 1; w < USERS; w++)
                halves[half] = halves[half] + shared->classes[2 * b + half][w][head / SPLIT][c][head % SPLIT];
        }
        sum = fmaf(sum, alpha[b], halves[0] + halves[1]);
    }
#pragma unroll
    for (int step = 1; step < ASH_ATTN_CLASSES; step *= 2) /* neighbours first */
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, step);
    if (c != 0) return;
    shared->top[head] = top[BLOCKS - 1];
    shared->sum[head] = sum;
}

#endif
