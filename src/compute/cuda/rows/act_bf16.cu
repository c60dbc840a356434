/* act_bf16 - SwiGLU of bf16 models: eight elements a thread where all of them are bf16 and lie at 16-byte borders. */
#include "compute/cuda/tile/blocks.cuh"
#include "compute/cuda/tile/swiglu.cuh"

#define EACH_THREAD ASH_CUDA_SWIGLU_EACH

/* Where element i of what may lie in rows of cols elements, stride apart, is. */
static __device__ inline size_t place_of(size_t cols, size_t stride, size_t i)
{
    size_t row;

    if (cols == 0) return i;
    row = i <= UINT32_MAX ? (uint32_t)i / (uint32_t)cols : i / cols;
    return row * stride + (i - row * cols);
}

/* ---- eight at a time --------------------------------------------------------------------------------------------- */

static __device__ inline uint4 read_eight(const uint16_t *from, size_t at)
{
    return *(const uint4 *)(from + at);
}

static __device__ inline uint32_t gated_two(uint32_t gate, uint32_t up)
{
    return pack_bf16(swiglu_bf16(low_bf16(gate), low_bf16(up)), swiglu_bf16(high_bf16(gate), high_bf16(up)));
}

extern "C" __global__ void swiglu_eight(const __grid_constant__ struct ash_swiglu_args args)
{
    EACH(i, args.count / EACH_THREAD)
    {
        size_t at = place_of(args.cols, args.stride, i * EACH_THREAD);
        uint4 gate = read_eight(args.gate_bf16, at), up = read_eight(args.up_bf16, at);

        *(uint4 *)(args.out_bf16 + i * EACH_THREAD) = make_uint4(gated_two(gate.x, up.x), gated_two(gate.y, up.y),
                                                                 gated_two(gate.z, up.z), gated_two(gate.w, up.w));
    }
}

/* x: two of the gate, y: two of up. */
static __device__ inline uint2 gradients_of_two(uint32_t gate, uint32_t up, uint32_t dout)
{
    float2 first = swiglu_gradients_bf16(low_bf16(gate), low_bf16(up), low_bf16(dout));
    float2 second = swiglu_gradients_bf16(high_bf16(gate), high_bf16(up), high_bf16(dout));

    return make_uint2(pack_bf16(first.x, second.x), pack_bf16(first.y, second.y));
}

extern "C" __global__ void swiglu_back_eight(const __grid_constant__ struct ash_swiglu_grad_args args)
{
    EACH(i, args.count / EACH_THREAD)
    {
        size_t at = place_of(args.cols, args.stride, i * EACH_THREAD);
        uint4 gate = read_eight(args.gate_bf16, at), up = read_eight(args.up_bf16, at);
        uint4 dout = read_eight(args.dout_bf16, i * EACH_THREAD);
        uint2 a = gradients_of_two(gate.x, up.x, dout.x), b = gradients_of_two(gate.y, up.y, dout.y),
              c = gradients_of_two(gate.z, up.z, dout.z), d = gradients_of_two(gate.w, up.w, dout.w);

        *(uint4 *)(args.dgate_bf16 + at) = make_uint4(a.x, b.x, c.x, d.x);
        *(uint4 *)(args.dup_bf16 + at) = make_uint4(a.y, b.y, c.y, d.y);
        if (args.hidden_bf16 == NULL) continue;
        *(uint4 *)(args.hidden_bf16 + i * EACH_THREAD) = make_uint4(gated_two(gate.x, up.x), gated_two(gate.y, up.y),
                                                                    gated_two(gate.z, up.z), gated_two(gate.w, up.w));
    }
}

/* ---- any --------------------------------------------------------------------------------------------------------- */

static __device__ inline float read_rounded(const float *plain, const uint16_t *rounded, size_t at)
{
    return rounded != NULL ? ash_bf16_to_f32(rounded[at]) : ash_bf16_round(plain[at]);
}

static __device__ inline void put(float *plain, uint16_t *rounded, size_t at, float value)
{
    if (rounded != NULL)
        rounded[at] = ash_f32_to_bf16(value);
    else
        plain[at] = value;
}

extern "C" __global__ void swiglu_any(const __grid_constant__ struct ash_swiglu_args args)
{
    EACH(i, args.count)
    {
        size_t at = place_of(args.cols, args.stride, i);

        put(args.out, args.out_bf16, i,
            swiglu_bf16(read_rounded(args.gate, args.gate_bf16, at), read_rounded(args.up, args.up_bf16, at)));
    }
}

extern "C" __global__ void swiglu_back_any(const __grid_constant__ struct ash_swiglu_grad_args args)
{
    EACH(i, args.count)
    {
        size_t at = place_of(args.cols, args.stride, i);
        float gate = read_rounded(args.gate, args.gate_bf16, at), up = read_rounded(args.up, args.up_bf16, at);
        float2 both = swiglu_gradients_bf16(gate, up, read_rounded(args.dout, args.dout_bf16, i));

        put(args.dgate, args.dgate_bf16, at, both.x);
        put(args.dup, args.dup_bf16, at, both.y);
        if (args.hidden_bf16 != NULL) args.hidden_bf16[i] = ash_f32_to_bf16(swiglu_bf16(gate, up));
    }
}
