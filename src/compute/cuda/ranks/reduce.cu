/* reduce - sums over the windows of ranks, in the order of collective/core/sum.h: each element by itself, so no grid
 * changes a bit. The common trees (2, 4 or 8 parts in pairs of pairs) load all parts before they add: a thread takes 16
 * bytes of every part, or one element where something is not at a border of 16 bytes. */
#include "compute/cuda/tile/device.cuh"

#define DEPTH_MAX 16 /* partial sums that can wait: a tree over ASH_CUDA_REDUCE_PARTS parts is not deeper */

/* How values are stored (T), and in what they are added. */
template <typename T> struct sum_of {
    typedef T type;
};
template <> struct sum_of<uint16_t> {
    typedef float type; /* bf16 */
};

template <typename T> __device__ static typename sum_of<T>::type widen(T x)
{
    return x;
}
template <> __device__ float widen<uint16_t>(uint16_t x)
{
    return ash_bf16_to_f32(x);
}

template <typename T> __device__ static T narrow(typename sum_of<T>::type x)
{
    return x;
}
template <> __device__ uint16_t narrow<uint16_t>(float x)
{
    return ash_f32_to_bf16(x);
}

template <typename S> __device__ static S add(S a, S b)
{
    return a + b;
}
/* Integers wrap. */
template <> __device__ int32_t add<int32_t>(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
template <> __device__ int64_t add<int64_t>(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

template <typename S> __device__ static S join(int op, S a, S b)
{
    if (op == 0) return add(a, b);
    if (op == 1) return a < b ? b : a;
    return b < a ? b : a;
}

/* N elements of a part, widened. */
template <typename T, int N> struct unit {
    typename sum_of<T>::type x[N];

    __device__ void load(const void *part, size_t i)
    {
        if (N == 1) {
            x[0] = widen(((const T *)part)[i]);
        } else {
            union {
                uint4 word;
                T value[N];
            } from;

            from.word = ((const uint4 *)part)[i];
#pragma unroll
            for (int n = 0; n < N; n++)
                x[n] = widen(from.value[n]);
        }
    }

    __device__ void join_with(int op, const unit &other)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            x[n] = join(op, x[n], other.x[n]);
    }

    __device__ void store(void *out, size_t i) const
    {
        if (N == 1) {
            ((T *)out)[i] = narrow<T>(x[0]);
        } else {
            union {
                uint4 word;
                T value[N];
            } to;

#pragma unroll
            for (int n = 0; n < N; n++)
                to.value[n] = narrow<T>(x[n]);
            ((uint4 *)out)[i] = to.word;
        }
    }
};

/* 2, 4 or 8 parts in pairs of pairs. */
template <typename T, int N, int P> __device__ static unit<T, N> reduce_pairs(const ash_cuda_reduce &op, size_t i)
{
    unit<T, N> sums[P];

#pragma unroll
    for (int p = 0; p < P; p++)
        sums[p].load(op.parts[p], i);
#pragma unroll
    for (int step = 1; step < P; step *= 2)
#pragma unroll
        for (int p = 0; p < P; p += 2 * step)
            sums[p].join_with(op.op, sums[p + step]);
    return sums[0];
}

template <typename T, int N> __device__ static unit<T, N> reduce_common(const ash_cuda_reduce &op, size_t i)
{
    return op.pairs == 2   ? reduce_pairs<T, N, 2>(op, i)
           : op.pairs == 4 ? reduce_pairs<T, N, 4>(op, i)
                           : reduce_pairs<T, N, 8>(op, i);
}

/* Any other tree. Its partial sums that wait lie in shared memory, a column for each thread: how many there are is not
 * known here, and registers cannot be numbered. */
template <typename T> __device__ static unit<T, 1> reduce_tree(const ash_cuda_reduce &op, size_t i)
{
    __shared__ typename sum_of<T>::type waiting[DEPTH_MAX][ASH_CUDA_REDUCE_THREADS];
    unit<T, 1> sum = {};
    int depth = 0;

    for (unsigned p = 0; p < op.part_count; p++) {
        sum.load(op.parts[p], i);
        for (unsigned j = 0; j < op.joins[p]; j++) {
            unit<T, 1> before = {{waiting[--depth][threadIdx.x]}};

            before.join_with(op.op, sum);
            sum = before;
        }
        waiting[depth++][threadIdx.x] = sum.x[0];
    }
    return sum;
}

template <typename T, int N> __device__ static void store(const ash_cuda_reduce &op, size_t i, const unit<T, N> &sum)
{
    sum.store(op.out, i);
    if (op.also != NULL) sum.store(op.also, i);
}

template <typename T> __device__ static void reduce(const ash_cuda_reduce &op)
{
    const int N = 16 / sizeof(T);
    size_t units = op.is_wide ? op.count / N : 0, first = units * N;

    EACH(i, units) store(op, i, reduce_common<T, N>(op, i));
    EACH(k, op.count - first)
    {
        size_t i = first + k;

        store(op, i, op.pairs == 0 ? reduce_tree<T>(op, i) : reduce_common<T, 1>(op, i));
    }
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_f32(struct ash_cuda_reduce op)
{
    reduce<float>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_bf16(struct ash_cuda_reduce op)
{
    reduce<uint16_t>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_f64(struct ash_cuda_reduce op)
{
    reduce<double>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_i32(struct ash_cuda_reduce op)
{
    reduce<int32_t>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_i64(struct ash_cuda_reduce op)
{
    reduce<int64_t>(op);
}

extern "C" __global__ void __launch_bounds__(ASH_CUDA_REDUCE_THREADS) reduce_u8(struct ash_cuda_reduce op)
{
    reduce<uint8_t>(op);
}
