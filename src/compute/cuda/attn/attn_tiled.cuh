/* attn_tiled - what the kernels of attention over tiles share (heads of 64 and 128 dims, rows of bf16): their thread
 * blocks, which walk over units of work for as long as there are any; tiles of rows in shared memory; how copies bring
 * them. A thread block is a warp that copies and two warpgroups that multiply. */
#ifndef ASH_COMPUTE_CUDA_ATTN_TILED_CUH
#define ASH_COMPUTE_CUDA_ATTN_TILED_CUH

#include "compute/cuda/attn/attn.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/registers.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ring.cuh"

#define WARPGROUP 128
#define USERS 8 /* warps that multiply */
#define TILED_THREADS (3 * WARPGROUP)
#define COPY_REGISTERS 56
#define SUM_REGISTERS 224
#define PANEL 64 /* dims of a panel: lines of 128 bytes */
#define LINE_BYTES 128

static_assert(TILED_THREADS == ASH_CUDA_ATTN_TILED_THREADS, "the host launches them");
/* A kernel begins with what its threads can have at most, a multiple of 8; more than that never comes. */
static_assert(WARPGROUP * COPY_REGISTERS + 2 * WARPGROUP * SUM_REGISTERS <=
                  65536 / TILED_THREADS / 8 * 8 * TILED_THREADS,
              "registers that are given are as many as are taken");

/* Begin copies of `rows` rows of a head from row `row` on: a panel after the other. The barrier counts their bytes,
 * which somebody announces. One thread. */
template <int DIM>
static __device__ inline void load_rows_of(const struct ash_cuda_attn_rows &from, int head, int row, int rows,
                                           unsigned to, unsigned barrier)
{
#pragma unroll
    for (int p = 0; p < DIM / PANEL; p++)
        tma_load_2d(to + p * rows * LINE_BYTES, &from.map, head * (int)from.head_x + p * PANEL,
                    row + head * (int)from.head_y, barrier);
}

/* Zeros in lines count ... rows - 1 of a tile: they belong to another document, and what is infinite there would reach
 * sums even with a weight of 0. A warp. */
template <int DIM> static __device__ inline void clear_lines(unsigned char *tile, int count, int rows)
{
    constexpr int CHUNKS = LINE_BYTES / 16;

    for (int i = threadIdx.x % WARP; i < (rows - count) * CHUNKS; i += WARP)
#pragma unroll
        for (int p = 0; p < DIM / PANEL; p++)
            *(uint4 *)(tile + (p * rows + count + i / CHUNKS) * LINE_BYTES + i % CHUNKS * 16) = make_uint4(0, 0, 0, 0);
    wgmma_see_shared();
    __syncwarp();
}

/* s = a b^T: 64 lines of a by N lines of b, both with DIM dims in panels of a_lines and b_lines lines. Only begun. */
template <int DIM, int N>
static __device__ inline void begin_scores(float (*s)[4], unsigned a, int a_lines, unsigned b, int b_lines)
{
#pragma unroll
    for (int k = 0; k < DIM; k += 16)
        wgmma<N, 0, 0>(s, wgmma_operand(a + k / PANEL * a_lines * LINE_BYTES + k % PANEL * 2),
                       wgmma_operand(b + k / PANEL * b_lines * LINE_BYTES + k % PANEL * 2), k > 0);
}

/* sums += p b: 64 rows of p, K weights in registers, by K lines of b with DIM dims in panels of b_lines lines. keep: as
 * in wgmma. Only begun. */
template <int DIM, int K>
static __device__ inline void begin_sums(float (*sums)[4], const uint32_t (*p)[4], unsigned b, int b_lines, int keep)
{
#pragma unroll
    for (int k = 0; k < K; k += 16)
        wgmma_a<DIM, 1>(sums, p[k / 16], wgmma_operand_across(b + k * LINE_BYTES, b_lines * LINE_BYTES),
                        k > 0 ? 1 : keep);
}

/* Sums of K columns become weights for begin_sums. */
template <int K> static __device__ inline void pack_weights(const float (*s)[4], uint32_t (*p)[4])
{
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        p[k][0] = pack_bf16(s[2 * k][0], s[2 * k][1]);
        p[k][1] = pack_bf16(s[2 * k][2], s[2 * k][3]);
        p[k][2] = pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]);
        p[k][3] = pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
}

/* A tile of a head. */
struct unit {
    struct ash_cuda_attn_tile tile;
    int head;
};

/* This thread block's unit of round *round or a later one: units are counted by tiles (from the last one if
 * is_backwards: those with the most keys come first), then heads. Rounds go forth and back, so that long and short
 * units even out. Units without rows are passed over; false after the last. */
static __device__ inline bool find_unit(const struct ash_cuda_attn_tiled &args, unsigned heads, bool is_backwards,
                                        unsigned *round, struct unit *unit)
{
    for (;; ++*round) {
        unsigned place = *round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
        unsigned number = *round * gridDim.x + place, tile = number / heads;

        if (*round * gridDim.x >= args.tile_count * heads) return false;
        if (tile >= args.tile_count) continue;
        unit->tile = args.tiles[is_backwards ? args.tile_count - 1 - tile : tile];
        unit->head = (int)(number % heads);
        if (unit->tile.count > 0) return true;
    }
}

#endif
