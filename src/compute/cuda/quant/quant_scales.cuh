/* quant_scales - the integers of a quantised product: rounding, and the sub-scales that blocks of a group have. */
#ifndef ASH_COMPUTE_CUDA_QUANT_SCALES_CUH
#define ASH_COMPUTE_CUDA_QUANT_SCALES_CUH

#include "compute/cuda/tile/device.cuh"

static __device__ inline int round_quant(float x)
{
    return (int)(ash_f32_bits(x + ASH_F32_ROUND_MAGIC) - ASH_F32_ROUND_MAGIC_BITS);
}

static __device__ inline bool all_of_group(bool value, int width)
{
    unsigned group = (unsigned)((1ull << width) - 1) << (threadIdx.x % WARP / width * width);

    return (__ballot_sync(0xffffffffu, value) & group) == group;
}

/* A lane's block of w: its integer sub-scale, and the scale and minimum of its group. */
struct scales {
    int sub;
    float group, min;
};

/* scale: of this lane's block, 0 where there is none (real is false). A group is `width` lanes. */
static __device__ inline struct scales find_scales(float scale, bool real, int dtype, int width)
{
    float top = fabsf(scale), steps, most;
    struct scales scales;
    bool finite, few;

    scales.min = 0.0f;
    scales.sub = 1;
    scales.group = __shfl_sync(0xffffffffu, scale, 0, width);
    if (dtype != ASH_Q4_0) return scales;
    finite = all_of_group(isfinite(scale), width);
    for (int half = width / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, top, half, width);

        top = other > top ? other : top;
    }
    steps = (float)round_quant(scale * (ASH_QUANT_SUBSCALE_SMALL_MAX / top));
    few = all_of_group(!real || steps * top == ASH_QUANT_SUBSCALE_SMALL_MAX * scale, width);
    most = few ? ASH_QUANT_SUBSCALE_SMALL_MAX : ASH_QUANT_SUBSCALE_MAX;
    scales.sub = finite && top != 0.0f ? round_quant(scale * (most / top)) : 0;
    scales.group = !finite ? NAN : top == 0.0f ? 0.0f : top / most;
    return scales;
}

#endif
