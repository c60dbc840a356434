/* cuda - what CUDA C++ has and C++ has not, for kernels that are compiled for the host. Included before each of them. */
#ifndef TEST_EMULATE_CUDA_H
#define TEST_EMULATE_CUDA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include "emulate/emulator.h"

/* ---- declarations ------------------------------------------------------------------------------------------------ */

#define __device__
#define __host__
#define __global__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
/* Of the image's thread-local memory, which is a thread block's while that runs. */
#define __shared__ static __thread
/* Kernels of a cluster size have a section of their own, by which emu_image knows them. */
#define EMU_TEXT_OF(x) #x
#define EMU_TEXT(x) EMU_TEXT_OF(x)
#define __cluster_dims__(x, ...) __attribute__((section("emu_cluster_" EMU_TEXT(x))))

#define threadIdx (emu_now->index)
#define blockIdx (emu_now->block->index)
#define gridDim (emu_run.grid.blocks)
#define blockDim (uint3{emu_run.grid.threads, 1, 1})
#define warpSize 32

struct dim3 {
    unsigned x, y, z;
};
#define EMU_VECTOR(type, of)                                                                                           \
    struct alignas(2 * sizeof(of)) type##2                                                                             \
    {                                                                                                                  \
        of x, y;                                                                                                       \
    };                                                                                                                 \
    struct alignas(sizeof(of) == 8 ? 16 : 4 * sizeof(of)) type##4                                                      \
    {                                                                                                                  \
        of x, y, z, w;                                                                                                 \
    };                                                                                                                 \
    static inline type##2 make_##type##2(of x, of y)                                                                   \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    static inline type##4 make_##type##4(of x, of y, of z, of w)                                                       \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
EMU_VECTOR(float, float)
EMU_VECTOR(int, int)
EMU_VECTOR(uint, unsigned)
EMU_VECTOR(short, short)
EMU_VECTOR(ushort, unsigned short)
EMU_VECTOR(char, signed char)
EMU_VECTOR(uchar, unsigned char)
EMU_VECTOR(double, double)
EMU_VECTOR(longlong, long long)
EMU_VECTOR(ulonglong, unsigned long long)

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static inline void __syncthreads(void)
{
    emu_block_sync("__syncthreads", 0);
}

static inline int __syncthreads_or(int value)
{
    return emu_block_sync("__syncthreads_or", value != 0);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_meet(
        mask, "__syncwarp", NULL, [](struct emu_meeting *) {}, false);
}

static inline void __threadfence(void)
{
    emu_maybe_yield();
}

static inline void __threadfence_block(void)
{
    emu_maybe_yield();
}

static inline void __nanosleep(unsigned)
{
    emu_spin("__nanosleep");
}

/* What a lane brings to an exchange, and takes away. */
struct emu_exchange {
    uint64_t value, result;
    unsigned from; /* a lane */
};

static inline void emu_finish_exchange(struct emu_meeting *meeting)
{
    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        struct emu_exchange *mine = (struct emu_exchange *)meeting->of[lane];

        if (mine == NULL) continue;
        if (meeting->of[mine->from] != NULL)
            mine->result = ((struct emu_exchange *)meeting->of[mine->from])->value;
        else
            memset(&mine->result, EMU_POISON, sizeof(mine->result)); /* of a lane that is not there */
    }
}

template <typename T> static inline T emu_exchange_values(unsigned mask, const char *name, T value, unsigned from)
{
    struct emu_exchange mine = {};

    static_assert(sizeof(T) <= sizeof(mine.value), "one register or two");
    memcpy(&mine.value, &value, sizeof(T));
    mine.from = from % EMU_WARP;
    emu_meet(mask, name, &mine, emu_finish_exchange, false);
    memcpy(&value, &mine.result, sizeof(T));
    return value;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = EMU_WARP)
{
    unsigned lane = emu_now->lane;

    return emu_exchange_values(mask, "__shfl_sync", value, lane / width * width + (unsigned)from % width);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int other, int width = EMU_WARP)
{
    unsigned lane = emu_now->lane, from = lane ^ (unsigned)other;

    return emu_exchange_values(mask, "__shfl_xor_sync", value, from / width > lane / width ? lane : from);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = EMU_WARP)
{
    unsigned lane = emu_now->lane;

    return emu_exchange_values(mask, "__shfl_down_sync", value, lane % width + by < (unsigned)width ? lane + by : lane);
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = EMU_WARP)
{
    unsigned lane = emu_now->lane;

    return emu_exchange_values(mask, "__shfl_up_sync", value, lane % width >= by ? lane - by : lane);
}

/* Every lane gets what `op` makes of all lanes' values. */
template <typename Op> static inline void emu_finish_fold(struct emu_meeting *meeting)
{
    bool is_first = true;
    uint64_t all = 0;

    for (void *of : meeting->of) {
        if (of == NULL) continue;
        all = is_first ? ((struct emu_exchange *)of)->value : Op::join(all, ((struct emu_exchange *)of)->value);
        is_first = false;
    }
    for (void *of : meeting->of)
        if (of != NULL) ((struct emu_exchange *)of)->result = all;
}

template <typename Op> static inline uint64_t emu_fold(unsigned mask, const char *name, uint64_t value)
{
    struct emu_exchange mine = {value, 0, 0};

    emu_meet(mask, name, &mine, emu_finish_fold<Op>, false);
    return mine.result;
}

#define EMU_FOLD(name, expression)                                                                                     \
    struct emu_op_##name {                                                                                             \
        static uint64_t join(uint64_t a, uint64_t b)                                                                   \
        {                                                                                                              \
            return expression;                                                                                         \
        }                                                                                                              \
    };
EMU_FOLD(or, a | b)
EMU_FOLD(and, a &b)
EMU_FOLD(add, (uint32_t)(a + b))
EMU_FOLD(max, a > b ? a : b)
EMU_FOLD(min, a < b ? a : b)
EMU_FOLD(top, (uint32_t)((int32_t)a > (int32_t)b ? a : b))
EMU_FOLD(least, (uint32_t)((int32_t)a < (int32_t)b ? a : b))

static inline unsigned __ballot_sync(unsigned mask, int value)
{
    return (unsigned)emu_fold<emu_op_or>(mask, "__ballot_sync", (uint64_t)(value != 0) << emu_now->lane);
}

static inline int __any_sync(unsigned mask, int value)
{
    return (int)emu_fold<emu_op_or>(mask, "__any_sync", value != 0);
}

static inline int __all_sync(unsigned mask, int value)
{
    return (int)emu_fold<emu_op_and>(mask, "__all_sync", value != 0);
}

/* The lanes with this lane's value. */
static inline void emu_finish_match(struct emu_meeting *meeting)
{
    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        struct emu_exchange *mine = (struct emu_exchange *)meeting->of[lane];

        for (unsigned other = 0; mine != NULL && other < EMU_WARP; other++)
            if (meeting->of[other] != NULL && ((struct emu_exchange *)meeting->of[other])->value == mine->value)
                mine->result |= (uint64_t)1 << other;
    }
}

template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    struct emu_exchange mine = {};

    memcpy(&mine.value, &value, sizeof(T));
    emu_meet(mask, "__match_any_sync", &mine, emu_finish_match, false);
    return (unsigned)mine.result;
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return (unsigned)emu_fold<emu_op_add>(mask, "__reduce_add_sync", value);
}

static inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return (unsigned)emu_fold<emu_op_or>(mask, "__reduce_or_sync", value);
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    return (unsigned)emu_fold<emu_op_max>(mask, "__reduce_max_sync", value);
}

static inline unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    return (unsigned)emu_fold<emu_op_min>(mask, "__reduce_min_sync", value);
}

static inline int __reduce_max_sync(unsigned mask, int value)
{
    return (int)emu_fold<emu_op_top>(mask, "__reduce_max_sync", (uint32_t)value);
}

static inline int __reduce_min_sync(unsigned mask, int value)
{
    return (int)emu_fold<emu_op_least>(mask, "__reduce_min_sync", (uint32_t)value);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* One host thread runs all, so plain operations are atomic. */
template <typename T, typename U> static inline T atomicAdd(T *at, U value)
{
    T old = *at;

    *at = old + (T)value;
    emu_maybe_yield();
    return old;
}

template <typename T, typename U> static inline T atomicMax(T *at, U value)
{
    T old = *at;

    if ((T)value > old) *at = (T)value;
    emu_maybe_yield();
    return old;
}

template <typename T, typename U> static inline T atomicMin(T *at, U value)
{
    T old = *at;

    if ((T)value < old) *at = (T)value;
    emu_maybe_yield();
    return old;
}

template <typename T, typename U> static inline T atomicOr(T *at, U value)
{
    T old = *at;

    *at = old | (T)value;
    emu_maybe_yield();
    return old;
}

static inline unsigned atomicInc(unsigned *at, unsigned last)
{
    unsigned old = *at;

    *at = old >= last ? 0 : old + 1;
    emu_maybe_yield();
    return old;
}

template <typename T, typename U> static inline T atomicExch(T *at, U value)
{
    T old = *at;

    *at = (T)value;
    emu_maybe_yield();
    return old;
}

template <typename T, typename U> static inline T atomicCAS(T *at, U expected, U value)
{
    T old = *at;

    if (old == (T)expected)
        *at = (T)value;
    else
        emu_spin("atomicCAS");
    return old;
}

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}

template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}

template <typename T> static inline T __ldcs(const T *at)
{
    return *at;
}

template <typename T> static inline void __stcs(T *at, T value)
{
    *at = value;
}

template <typename T> static inline void __stcg(T *at, T value)
{
    *at = value;
}

static inline size_t __cvta_generic_to_shared(const void *at)
{
    return emu_shared_address(at);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline int __float_as_int(float x)
{
    return (int)__float_as_uint(x);
}

static inline float __int_as_float(int bits)
{
    return __uint_as_float((unsigned)bits);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned out = 0;

    for (unsigned i = 0; i < 4; i++) {
        unsigned pick = selector >> (4 * i) & 15, byte = (unsigned)(both >> (8 * (pick & 7))) & 255;

        if (pick & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}

static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by < 32 ? by : 32));
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
    return c;
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

template <typename T, typename U> static inline typename std::common_type<T, U>::type max(T a, U b)
{
    typedef typename std::common_type<T, U>::type type;

    return (type)a > (type)b ? (type)a : (type)b;
}

template <typename T, typename U> static inline typename std::common_type<T, U>::type min(T a, U b)
{
    typedef typename std::common_type<T, U>::type type;

    return (type)a < (type)b ? (type)a : (type)b;
}

#endif
