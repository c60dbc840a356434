/* attn_stream - attention of one row (attn_row.cuh) where documents are many: what counts is that memory is always
 * busy. Keys and values of a block of keys lie in one piece in their page. One warp copies such pieces to a ring in
 * shared memory, as far ahead as there is room, from one document to the next; eight others compute. */
#include "compute/cuda/attn/attn_row.cuh"
#include "compute/cuda/ptx/barrier.cuh"
#include "compute/cuda/ptx/copy.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/tile/device.cuh"

#define COPIER WARPS /* the warp that copies */
#define THREADS (WARPS * WARP)

/* Pieces of a ring: of keys or values of a block. */
template <int DIM> struct ring {
    static constexpr int BYTES = BLOCK * DIM * 2, COUNT = ASH_CUDA_ATTN_STREAM_BYTES / BYTES;

    uint64_t full[COUNT], empty[COUNT];
};

/* A document and a kv head. */
struct unit {
    struct ash_cuda_attn_seq seq;
    struct keys keys;
    size_t g, first, end; /* first and end: of its blocks of keys */
};

static __device__ inline struct unit find_unit(const struct ash_cuda_attn &args, size_t number)
{
    struct unit unit;

    unit.seq = args.seqs[args.tiles[number / args.kv_heads].seq];
    unit.g = number % args.kv_heads;
    unit.keys = visible_keys(args, unit.seq.pos);
    unit.first = unit.keys.begin / BLOCK;
    unit.end = (unit.keys.end + BLOCK - 1) / BLOCK;
    return unit;
}

/* The first block of the turn that a document begins with. */
static __device__ inline size_t first_turn(const struct unit &unit)
{
    return unit.first / WARPS * WARPS;
}

/* Blocks of a turn, counted from its first: from begin to end - 1. */
struct turn_blocks {
    int begin, end;
};

static __device__ inline struct turn_blocks blocks_of(const struct unit &unit, size_t first)
{
    struct turn_blocks blocks = {first < unit.first ? (int)(unit.first - first) : 0, WARPS};

    if (unit.end - first < WARPS) blocks.end = (int)(unit.end - first);
    return blocks;
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

/* Piece `number` of all: when its place is free. */
template <int DIM>
static __device__ inline void copy_piece(struct ring<DIM> *ring, const unsigned char *pieces, unsigned number,
                                         const void *from)
{
    unsigned slot = number % ring->COUNT, turn = number / ring->COUNT, full = shared_address(&ring->full[slot]);

    if (turn > 0) barrier_wait(shared_address(&ring->empty[slot]), (turn - 1) % 2);
    barrier_expect(full, ring->BYTES);
    copy_bulk(shared_address(pieces) + slot * ring->BYTES, from, ring->BYTES, full);
}

/* What the copier does: of every turn the keys of its blocks, then their values. */
template <int DIM>
static __device__ inline void copy_units(const struct ash_cuda_attn &args, struct ring<DIM> *ring,
                                         const unsigned char *pieces)
{
    unsigned number = 0;

    for (size_t u = blockIdx.x; u < args.units; u += gridDim.x) {
        struct unit unit = find_unit(args, u);

        for (size_t first = first_turn(unit); first < unit.end; first += WARPS) {
            struct turn_blocks in = blocks_of(unit, first);
            int blocks = in.end - in.begin, lane = threadIdx.x % WARP % WARPS;
            int32_t page = lane >= in.begin && lane < in.end ? unit.seq.pages[first + lane] : 0;

            for (int i = 0; i < 2 * blocks; i++, number++) {
                int block = in.begin + (i < blocks ? i : i - blocks);
                const char *at = (const char *)args.pool + __shfl_sync(0xffffffffu, page, block) * args.page_bytes;
                size_t element = (i < blocks ? args.k_page : args.v_page) + unit.g * DIM * BLOCK;

                if (threadIdx.x % WARP == 0) copy_piece<DIM>(ring, pieces, number, (const uint16_t *)at + element);
                __syncwarp();
            }
        }
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Until piece `number` is there. Returns it. */
template <int DIM>
static __device__ inline const uint16_t *wait_piece(struct ring<DIM> *ring, const unsigned char *pieces,
                                                    unsigned number)
{
    unsigned slot = number % ring->COUNT;

    barrier_wait(shared_address(&ring->full[slot]), number / ring->COUNT % 2);
    return (const uint16_t *)(pieces + slot * ring->BYTES);
}

/* This warp has read it: as `count` of the WARPS that its place waits for. */
template <int DIM> static __device__ inline void free_piece(struct ring<DIM> *ring, unsigned number, int count)
{
    __syncwarp();
    if (threadIdx.x % WARP < count) barrier_arrive(shared_address(&ring->empty[number % ring->COUNT]));
}

static __device__ inline void sync_warps(void)
{
    named_sync<THREADS>(1);
}

/* What all warps have of a thread block's work. */
template <int DIM> struct room {
    struct turn turns[2]; /* the next one begins while values of this one are added */
    struct running running;
    uint4 queries[DIM / 16][WARP];
};

/* A turn: blocks of keys from `first` on, whose pieces begin with `number`. */
template <int DIM>
static __device__ inline void compute_turn(const struct ash_cuda_attn &args, const struct unit &unit, size_t first,
                                           struct ring<DIM> *ring, const unsigned char *pieces, unsigned number,
                                           struct turn *turn, struct room<DIM> *room, struct row_sums *sums)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, rows = (int)(args.heads / args.kv_heads);
    struct turn_blocks in = blocks_of(unit, first);
    struct in_block own = visible_in(unit.keys, first + warp);
    bool has_keys = warp >= in.begin && warp < in.end;
    float s[8][4], scale2 = args.scale * ASH_LOG2E;

    if (has_keys) {
        unsigned piece = number + warp - in.begin;

        score_keys<DIM, 2>(wait_piece<DIM>(ring, pieces, piece), room->queries, s);
        free_piece<DIM>(ring, piece, WARPS);
        find_max(s, own.begin, own.end, rows, turn->max[warp]);
    } else {
        leave_out_max(turn, warp);
    }
    sync_warps(); /* everybody has read the turn before last, which this one overwrites from here on */
    if (has_keys)
        soften(turn, warp, scale2, s, own, rows);
    else
        leave_out(turn, warp);
    sync_warps();
#pragma unroll 1
    for (int b = in.begin; b < in.end; b++) {
        unsigned piece = number + in.end - in.begin + b - in.begin;
        const uint16_t *values = wait_piece<DIM>(ring, pieces, piece) + warp * 16 + lane / 4 * 2;
        struct in_block visible = visible_in(unit.keys, first + b);
        uint32_t v[16];

        if (warp < DIM / 16) read_values(values, DIM, visible.begin, visible.end, v);
        free_piece<DIM>(ring, piece, 1);
        if (warp >= DIM / 16) continue;
        scale_values(turn, b, b == in.begin, rows, scale2, sums->acc);
        add_values(turn, b, v, rows, sums->acc);
    }
    merge_values(turn, rows, scale2, sums);
    end_turn(turn, rows, scale2, &room->running);
}

template <int DIM>
static __device__ inline void compute_units(const struct ash_cuda_attn &args, struct ring<DIM> *ring,
                                            const unsigned char *pieces, struct room<DIM> *room)
{
    int warp = threadIdx.x / WARP, rows = (int)(args.heads / args.kv_heads);
    unsigned number = 0, turns = 0;

    for (size_t u = blockIdx.x; u < args.units; u += gridDim.x) {
        struct unit unit = find_unit(args, u);
        struct row_sums sums = {{}, {}, {-INFINITY, -INFINITY}};

        sync_warps(); /* everybody is done with the unit before */
        if (threadIdx.x < ROWS) {
            room->running.top[threadIdx.x] = -INFINITY;
            room->running.sum[threadIdx.x] = 0.0f;
        }
        read_queries<DIM>(args.q + unit.seq.q_row * args.q_stride + unit.g * rows * DIM, rows, room->queries);
        sync_warps();
        for (size_t first = first_turn(unit); first < unit.end; first += WARPS) {
            struct turn_blocks in = blocks_of(unit, first);

            compute_turn<DIM>(args, unit, first, ring, pieces, number, &room->turns[turns++ % 2], room, &sums);
            number += 2 * (in.end - in.begin);
        }
        sync_warps();
        if (warp < DIM / 16)
            put_row<DIM>(args, &room->running, unit.seq.q_row, unit.g * rows, rows, warp * 16 + threadIdx.x % 4 * 4,
                         sums.all);
    }
}

template <int DIM> static __device__ inline void stream(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, pieces, 128);
    __shared__ struct ring<DIM> ring;
    __shared__ struct room<DIM> room;

    early_begin();
    if (threadIdx.x == 0)
        for (int slot = 0; slot < ring.COUNT; slot++) {
            barrier_init(shared_address(&ring.full[slot]), 1);
            barrier_init(shared_address(&ring.empty[slot]), WARPS);
        }
    barriers_show();
    __syncthreads();
    early_wait();
    if (threadIdx.x / WARP == COPIER)
        copy_units<DIM>(args, &ring, pieces);
    else
        compute_units<DIM>(args, &ring, pieces, &room);
}

#define STREAM(DIM)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS + WARP, 1)                                                    \
        attn_stream_##DIM(const __grid_constant__ struct ash_cuda_attn args)                                           \
    {                                                                                                                  \
        stream<DIM>(args);                                                                                             \
    }

STREAM(64)
STREAM(128)
