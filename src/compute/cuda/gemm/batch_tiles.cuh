/* batch_tiles - tiles of weights on their way to shared memory, several ahead of their use. A thread block takes groups
 * of rows of weights, and all of x with each. How a tile lies in shared memory is its shape's business. */
#ifndef ASH_COMPUTE_CUDA_BATCH_TILES_CUH
#define ASH_COMPUTE_CUDA_BATCH_TILES_CUH

#include "compute/cuda/gemm/few_sums.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/tile/device.cuh"

#define PAIR_ROWS 16 /* of weights; with SwiGLU 8 of gate and the same 8 of up */

/* Row r of a group, k 0. Past the last row it is the last: nobody reads the sums. */
static __device__ inline const uint16_t *row_at(const struct ash_cuda_few &op, const struct rows_of_w &rows, int r)
{
    const struct ash_cuda_few_out &out = op.outs[op.swiglu ? r % PAIR_ROWS / 8 : rows.out];
    size_t n = rows.n + (op.swiglu ? r / PAIR_ROWS * 8 + r % 8 : r);

    return out.w + (n < out.N ? n : out.N - 1) * out.stride;
}

/* What a thread copies next: its chunk of some rows of a tile. The shape S says how many k a tile has, where chunk c of
 * a row is in it (w_at), and how far it is to the same chunk of the next row. */
template <typename S> struct loader {
    static constexpr int CHUNKS = S::KT / 8;          /* of 16 bytes, in a row of a tile */
    static constexpr int LINES = S::THREADS / CHUNKS; /* that all threads copy at once */
    static constexpr int W_LOADS = S::N / LINES;

    static_assert(S::N % LINES == 0, "every thread copies as many rows of weights");

    const uint16_t *w[W_LOADS]; /* its rows of weights, at its chunk of k 0 */
    unsigned thread;            /* of those that copy */
    unsigned group, k;          /* what comes next */
    unsigned base, slot;        /* of shared memory; of the next tile there */

    __device__ inline void find(const struct ash_cuda_few &op)
    {
        struct rows_of_w rows;

        if (group >= op.groups) return;
        rows = find_rows(op, group, S::N);
#pragma unroll
        for (int i = 0; i < W_LOADS; i++)
            w[i] = row_at(op, rows, thread / CHUNKS + i * LINES) + thread % CHUNKS * 8;
    }

    __device__ inline void begin(const struct ash_cuda_few &op, unsigned shared_at, unsigned number)
    {
        thread = number;
        group = blockIdx.x;
        k = slot = 0;
        base = shared_at;
        find(op);
    }

    /* Bytes of this thread's chunks: 0 after the last k, where zeros are written. */
    __device__ inline int chunk_bytes(const struct ash_cuda_few &op) const
    {
        return k + thread % CHUNKS * 8 < op.K ? 16 : 0;
    }

    __device__ inline void copy_w(const struct ash_cuda_few &op)
    {
        unsigned to = base + slot * S::TILE_BYTES + S::w_at(thread / CHUNKS, thread % CHUNKS);
        int bytes = chunk_bytes(op);

        if (group >= op.groups) return;
#pragma unroll
        for (int i = 0; i < W_LOADS; i++)
            copy_16_ahead(to + i * LINES * S::LINE_BYTES, bytes != 0 ? w[i] + k : w[i], bytes);
    }

    /* On to the next tile. */
    __device__ inline void end(const struct ash_cuda_few &op)
    {
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        k += S::KT;
        if (k < op.K) return;
        k = 0;
        group += gridDim.x;
        find(op);
    }
};

#endif
