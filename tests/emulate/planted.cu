/* Kernels with mistakes (planted.h). */
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "emulate/planted.h"

#define STAGES 2
#define LANES 32

struct ring {
    float tile[STAGES][PLANTED_FLOATS];
    unsigned long long full[STAGES], empty[STAGES];
};

static __device__ inline void fill(const struct planted_ring_args &args, struct ring *ring)
{
    for (int t = 0; t < PLANTED_TILES; t++) {
        unsigned full = shared_address(&ring->full[t % STAGES]), empty = shared_address(&ring->empty[t % STAGES]);

        if (t >= STAGES && args.mode != RING_OVERWRITES) barrier_wait(empty, (t / STAGES - 1) % 2);
        barrier_expect(full, sizeof(ring->tile[0]));
        copy_bulk(shared_address(ring->tile[t % STAGES]), args.tiles + t * PLANTED_FLOATS, sizeof(ring->tile[0]), full);
    }
}

static __device__ inline void add_up(const struct planted_ring_args &args, struct ring *ring)
{
    int lane = threadIdx.x % LANES;
    float sum = 0.0f;

    for (int t = 0; t < PLANTED_TILES; t++) {
        unsigned full = shared_address(&ring->full[t % STAGES]), turn = t / STAGES % 2;

        if (args.mode == RING_WRONG_PARITY) turn ^= 1;
        if (args.mode != RING_NO_WAIT) barrier_wait(full, turn);
        sum += ring->tile[t % STAGES][lane];
        __syncwarp();
        sum += ring->tile[t % STAGES][lane + LANES];
        __syncwarp();
        if (lane == 0 && args.mode != RING_NO_ARRIVAL) barrier_arrive(shared_address(&ring->empty[t % STAGES]));
    }
    args.sums[lane] = sum;
}

extern "C" __global__ void planted_ring(const __grid_constant__ struct planted_ring_args args)
{
    __shared__ __align__(128) struct ring ring;

    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; s++) {
            barrier_init(shared_address(&ring.full[s]), 1);
            barrier_init(shared_address(&ring.empty[s]), 1);
        }
    __syncthreads();
    if (threadIdx.x == 0)
        fill(args, &ring);
    else if (threadIdx.x >= LANES)
        add_up(args, &ring);
    __syncthreads();
}

/* Lines of 16 k, of which the first 32 bytes of 128 are used. */
static __device__ inline void put_lines(unsigned char *to, const uint16_t *from, int lines)
{
    for (int i = threadIdx.x; i < lines * 16; i += blockDim.x) {
        int line = i / 16, k = i % 16;

        *(uint16_t *)(to + line * 128 + ((k / 8) ^ line % 8) * 16 + k % 8 * 2) = from[i];
    }
}

extern "C" __global__ void planted_product(const __grid_constant__ struct planted_product_args args)
{
    DYNAMIC_SHARED(unsigned char, room, 1024);
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    unsigned char *a = room + (1024 - shared_address(room) % 1024) % 1024, *b = a + 64 * 128;
    float sum[1][4], seen[4];

    put_lines(a, args.a, 64);
    put_lines(b, args.b, 8);
    for (int e = 0; e < 4; e++)
        sum[0][e] = args.sums[(row + e / 2 * 8) * 8 + column + e % 2];
    wgmma_see_shared();
    __syncthreads();
    if (args.mode != PRODUCT_NO_FENCE) wgmma_fence();
    wgmma<8, 0, 0>(sum, wgmma_operand(shared_address(a)), wgmma_operand(shared_address(b)), 1);
    wgmma_commit();
    if (args.mode == PRODUCT_OVERWRITES)
        for (int i = threadIdx.x; i < 8 * 128; i += blockDim.x)
            b[i] = 0x3f;
    if (args.mode != PRODUCT_NO_WAIT) wgmma_wait();
    for (int e = 0; e < 4; e++)
        seen[e] = sum[0][e];
    if (args.mode == PRODUCT_NO_WAIT) wgmma_wait();
    for (int e = 0; e < 4; e++)
        args.sums[(row + e / 2 * 8) * 8 + column + e % 2] = seen[e];
}
