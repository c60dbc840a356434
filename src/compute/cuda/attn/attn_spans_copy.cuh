/* attn_spans_copy - units of work of attention over spans of keys, and the warp that copies their keys and values. */
#ifndef ASH_COMPUTE_CUDA_ATTN_SPANS_COPY_CUH
#define ASH_COMPUTE_CUDA_ATTN_SPANS_COPY_CUH

#include "compute/blocks.h"
#include "compute/cuda/attn/attn_softmax.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ring.cuh"

#define WARPGROUP 128
#define USERS 4      /* warps that multiply */
#define COPIER USERS /* the warp that copies */
#define THREADS (WARPGROUP + WARP)
#define LINE_BYTES 128
#define PANEL 64 /* values of a line */
#define BLOCK ASH_ATTN_BLOCK
#define PIECES (ASH_ATTN_SPAN / BLOCK)         /* a piece: keys, or values, of a page */
#define BLOCKS (ASH_ATTN_SPAN / ASH_ATTN_KEYS) /* of the softmax */
#define SPLIT 8                                /* query heads of an 8-column product */

static_assert(BLOCK == WGMMA_M && BLOCK == PANEL, "a page's keys are one operand");
static_assert(THREADS == ASH_CUDA_ATTN_SPANS_THREADS, "the host launches them");

/* Shared memory for heads of DIM dims and HEADS query heads; RING bytes are for pieces. */
template <int DIM, int HEADS, int RING> struct shape {
    static constexpr int PIECE_BYTES = BLOCK * DIM * 2, STAGES = RING / PIECE_BYTES;
    static constexpr int Q_AT = STAGES * PIECE_BYTES, P_AT = Q_AT + HEADS * DIM * 2;
    static constexpr int P_BYTES = HEADS * LINE_BYTES, SHARED_AT = P_AT + PIECES * P_BYTES;
};

template <int DIM, int HEADS, int RING> struct shared {
    struct ring_barriers<shape<DIM, HEADS, RING>::STAGES> ring;
    __align__(16) float most[USERS][BLOCKS][HEADS]; /* largest products with visible keys */
    __align__(16) float alpha[BLOCKS][HEADS];       /* what a block multiplies older sums by */
    /* sums of two keys' weights, by classes of keys */
    __align__(16) float classes[PIECES][USERS][HEADS / SPLIT][ASH_ATTN_CLASSES][SPLIT];
    float top[HEADS], sum[HEADS]; /* of the span */
    unsigned before;              /* spans of the document that had ended before this one */
};

/* A document, a kv head and a span. */
struct unit {
    const int32_t *pages;
    size_t q_row;
    size_t slot, counter; /* of its sums, and of its document's ended spans */
    int g, rows;          /* rows: query heads */
    int span, spans;      /* its number, and how many the row sees, the first of which is span - index */
    int index;
    int begin, end;  /* visible keys, counted from the span's first */
    int first, last; /* pieces with visible keys: first ... last - 1 */
};

/* Returns whether the row sees anything of it. */
static __device__ inline bool find_unit(const struct ash_cuda_attn_spans &args, size_t number, struct unit *unit)
{
    struct ash_cuda_attn_span span = args.batch->spans[number / args.kv_heads];
    int keys, first, base = (int)span.index * ASH_ATTN_SPAN;

    unit->pages = span.pages;
    unit->q_row = span.q_row;
    unit->g = (int)(number % args.kv_heads);
    unit->rows = (int)(args.heads / args.kv_heads);
    unit->slot = (size_t)span.slot * args.kv_heads + unit->g;
    unit->counter = (size_t)span.seq * args.kv_heads + unit->g;
    keys = (int)span.keys;
    first = args.window != 0 && keys > (int)args.window ? keys - (int)args.window : 0;
    unit->span = (int)span.index;
    unit->index = unit->span - first / ASH_ATTN_SPAN;
    unit->spans = (keys - 1) / ASH_ATTN_SPAN + 1 - first / ASH_ATTN_SPAN;
    unit->begin = first > base ? first - base : 0;
    unit->end = keys - base < ASH_ATTN_SPAN ? keys - base : ASH_ATTN_SPAN;
    unit->first = unit->begin / BLOCK;
    unit->last = (unit->end + BLOCK - 1) / BLOCK;
    return unit->index >= 0;
}

static __device__ inline size_t unit_count(const struct ash_cuda_attn_spans &args)
{
    return (size_t)args.batch->count * args.kv_heads;
}

/* A unit that comes next, and the page of this lane's piece. */
struct coming {
    struct unit unit;
    size_t number;
    int32_t page;
    bool is_first;
};

/* The next unit of this thread block that has visible keys; a number of `count` or more: there is none. */
static __device__ inline void find_next(const struct ash_cuda_attn_spans &args, size_t count, struct coming *next)
{
    int lane = threadIdx.x % WARP;

    do {
        next->number = next->is_first ? blockIdx.x : next->number + gridDim.x;
        next->is_first = false;
        if (next->number >= count) return;
    } while (!find_unit(args, next->number, &next->unit));
    next->page =
        lane >= next->unit.first && lane < next->unit.last ? next->unit.pages[next->unit.span * PIECES + lane] : 0;
}

/* Keys, then values, of a piece of a unit. One lane. */
template <int DIM>
static __device__ inline void copy_piece(const struct ash_cuda_attn_spans &args, const struct unit &unit, bool is_keys,
                                         int page, unsigned to, unsigned full)
{
    barrier_expect(full, BLOCK * DIM * 2);
    if (is_keys) {
        tma_load_3d(to, &args.k, 0, unit.g * DIM, page, full);
        return;
    }
#pragma unroll
    for (int p = 0; p < DIM / PANEL; p++)
        tma_load_3d(to + p * BLOCK * LINE_BYTES, &args.v, p * PANEL, unit.g * BLOCK, page, full);
}

template <int DIM, int HEADS, int RING>
static __device__ inline void copy_units(const struct ash_cuda_attn_spans &args, unsigned ring_at,
                                         struct shared<DIM, HEADS, RING> *shared)
{
    using S = shape<DIM, HEADS, RING>;
    ring_cursor<S::STAGES> at = {};
    struct coming next = {.is_first = true};
    int lane = threadIdx.x % WARP;
    size_t count = unit_count(args);

    find_next(args, count, &next);
    early_wait();
    while (next.number < count) {
        struct unit unit = next.unit;
        int32_t page = next.page;

        for (int i = 0; i < 2 * (unit.last - unit.first); i++) {
            bool is_keys = i < unit.last - unit.first;
            int piece = is_keys ? unit.first + i : 2 * unit.first - unit.last + i;
            int from = __shfl_sync(0xffffffffu, page, piece);

            if (i == unit.last - unit.first) find_next(args, count, &next); /* while its keys are on their way */
            at.wait_empty(&shared->ring);
            if (lane == 0)
                copy_piece<DIM>(args, unit, is_keys, from, ring_at + at.stage * S::PIECE_BYTES, at.full(&shared->ring));
            at.next();
        }
    }
}

#endif
