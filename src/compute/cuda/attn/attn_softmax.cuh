/* attn_softmax - online softmax of bf16 attention, as ref/attn_wgmma.c says: weights of a block of keys relative to a
 * reference, sums of a span, and spans merged. A thread has two rows of the tensor cores' sums (lane / 4 of its warp's
 * 16, and 8 more), of each 8 columns two. */
#ifndef ASH_COMPUTE_CUDA_ATTN_SOFTMAX_CUH
#define ASH_COMPUTE_CUDA_ATTN_SOFTMAX_CUH

#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/tile/device.cuh"

#define SOFTMAX_KEYS ASH_ATTN_KEYS
#define SOFTMAX_SLACK 8.0f /* REFERENCE_SLACK of the reference */

/* What a thread carries of its two rows from block to block of a span. */
struct span {
    float top[2], classes[2][2];
};

static __device__ inline struct span new_span(void)
{
    struct span span = {{-INFINITY, -INFINITY}, {}};

    return span;
}

/* Of all spans before. any: has there been one? */
struct all_spans {
    float top[2], sum[2];
    bool any;
};

#define NO_SPANS                                                                                                       \
    (struct all_spans)                                                                                                 \
    {                                                                                                                  \
        {-INFINITY, -INFINITY}, {0.0f, 0.0f}, false                                                                    \
    }

/* Keys of a block that a row sees: those from begin to end - 1. */
struct seen {
    int begin, end;
};

/* The sum of a class's weights in half a block: see the reference. */
static __device__ inline float add_class(const float (*p)[4], int e)
{
    float sum = p[0][e] + p[1][e];

#pragma unroll
    for (int n = 2; n < SOFTMAX_KEYS / 16; n += 2)
        sum = sum + (p[n][e] + p[n + 1][e]);
    return sum;
}

/* Products of a block become weights. alpha: what the sums of values are multiplied by, if any row of the warp wants
 * that: then true. */
template <bool IS_MASKED>
static __device__ inline bool soften(float (*s)[4], const struct seen seen[2], float scale2, struct span *span,
                                     float alpha[2])
{
    int t = threadIdx.x % 4 * 2;
    bool has_moved = false;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = -INFINITY;

#pragma unroll
        for (int n = 0; n < SOFTMAX_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int j = n * 8 + t + e;

                if (!IS_MASKED || (j >= seen[half].begin && j < seen[half].end)) most = fmaxf(most, s[n][half * 2 + e]);
            }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * scale2;
        alpha[half] = 1.0f;
        if (most > span->top[half] + SOFTMAX_SLACK) {
            alpha[half] = ex2_approx(span->top[half] - most);
            span->top[half] = most;
            has_moved = true;
        }
#pragma unroll
        for (int n = 0; n < SOFTMAX_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int j = n * 8 + t + e;
                float p = ex2_approx(fmaf(s[n][half * 2 + e], scale2, -span->top[half]));

                if (IS_MASKED && !(j >= seen[half].begin && j < seen[half].end)) p = 0.0f;
                s[n][half * 2 + e] = p;
            }
#pragma unroll
        for (int e = 0; e < 2; e++)
            span->classes[half][e] = fmaf(span->classes[half][e], alpha[half],
                                          add_class(s, half * 2 + e) + add_class(s + SOFTMAX_KEYS / 16, half * 2 + e));
    }
    return __any_sync(0xffffffffu, has_moved);
}

static __device__ inline float fold_classes(const float classes[2])
{
    float sum = classes[0] + classes[1];

    sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

/* A span's weights join those before: what the sums of values of these (old) and of that (now) are multiplied by. */
static __device__ inline void merge_weights(const struct span &span, struct all_spans *all, float old[2], float now[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = fmaxf(span.top[half], all->top[half]), sum = fold_classes(span.classes[half]);

        old[half] = 1.0f;
        now[half] = 0.0f;
        if (span.top[half] == -INFINITY) continue; /* this row sees nothing of it */
        old[half] = ex2_approx(all->top[half] - top);
        now[half] = ex2_approx(span.top[half] - top);
        all->sum[half] = fmaf(all->sum[half], old[half], sum * now[half]);
        all->top[half] = top;
    }
    all->any = true;
}

#endif
