/* attn_spans - attention of one query row over bf16 pages, as decoding wants it (flash decoding). A unit of work is a
 * document, a kv head and a span of ASH_ATTN_SPAN keys: the query heads that read the kv head share what is copied.
 * One warp copies keys and values ahead, from one unit to the next; a warpgroup multiplies them, as the 64-row operand,
 * with all query heads. A document of several spans leaves sums of each in memory, and the last thread block to end one
 * merges them in order: ref/attn_wgmma.c. */
#include "compute/blocks.h"
#include "compute/cuda/attn/attn_softmax.cuh"
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/ptx/mma.cuh"
#include "compute/cuda/ptx/tma.cuh"
#include "compute/cuda/ptx/wgmma.cuh"
#include "compute/cuda/tile/ring.cuh"

#define WARPGROUP 128
#define USERS 4       /* warps that multiply */
#define COPIER USERS  /* the warp that copies */
#define THREADS (WARPGROUP + WARP)
#define LINE_BYTES 128
#define PANEL 64      /* values of a line */
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
    size_t slot, counter;   /* of its sums, and of its document's ended spans */
    int g, rows;            /* rows: query heads */
    int span, spans;        /* its number, and how many the row sees, the first of which is span - index */
    int index;
    int begin, end;         /* visible keys, counted from the span's first */
    int first, last;        /* pieces with visible keys: first ... last - 1 */
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
    next->page = lane >= next->unit.first && lane < next->unit.last
                     ? next->unit.pages[next->unit.span * PIECES + lane]
                     : 0;
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

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
    struct ring_cursor<S::STAGES> at = {};
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

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static __device__ inline void sync_users(void)
{
    named_sync<WARPGROUP>(1);
}

/* A value of 2 bytes in an operand of lines: its place in the permuted panels of 8 lines. */
static __device__ inline int place_in_lines(int line, int column)
{
    return line * LINE_BYTES + ((column / 8 ^ line % 8) << 4) + column % 8 * 2;
}

/* The queries as lines of bf16, with zeros for heads that are not there. */
template <int DIM, int HEADS>
static __device__ inline void read_queries(const struct ash_cuda_attn_spans &args, const struct unit &unit,
                                           unsigned char *to)
{
    const float *q = args.q + unit.q_row * args.q_stride + (size_t)unit.g * unit.rows * DIM;

    for (int i = threadIdx.x; i < HEADS * DIM / 8; i += WARPGROUP) {
        int head = i / (DIM / 8), d = i % (DIM / 8) * 8;
        float4 low = make_float4(0.0f, 0.0f, 0.0f, 0.0f), high = low;

        if (head < unit.rows) {
            low = *(const float4 *)(q + head * DIM + d);
            high = *(const float4 *)(q + head * DIM + d + 4);
        }
        *(uint4 *)(to + d / PANEL * HEADS * LINE_BYTES + place_in_lines(head, d % PANEL)) =
            make_uint4(pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y),
                       pack_bf16(high.z, high.w));
    }
    wgmma_see_shared();
    sync_users();
}

/* Products of a piece of keys, which lie as columns, with the queries. Only begun. */
template <int DIM, int HEADS>
static __device__ inline void begin_piece(float (*s)[4], unsigned keys, unsigned queries)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM; k += 16)
        wgmma<HEADS, 1, 0>(s, wgmma_operand_across(keys + k * LINE_BYTES, BLOCK * LINE_BYTES),
                           wgmma_operand(queries + k / PANEL * HEADS * LINE_BYTES + k % PANEL * 2), k > 0);
    wgmma_commit();
}

/* What a thread knows of keys: s[p] are products of piece p with keys key_at(p, 0) and 8 further, of each 8 heads
 * two. */
static __device__ inline int key_at(int piece, int half)
{
    return piece * BLOCK + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + half * 8;
}

static __device__ inline bool sees(const struct unit &unit, int key)
{
    return key >= unit.begin && key < unit.end;
}

/* The largest products of each head with visible keys of each block, by warps. */
template <int HEADS>
static __device__ inline void find_most(const struct unit &unit, const float (*s)[HEADS / SPLIT][4],
                                        float (*most)[HEADS])
{
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int n = 0; n < HEADS / SPLIT; n++) {
            float largest[2] = {-INFINITY, -INFINITY};

#pragma unroll
            for (int i = 0; i < 4; i++) {
                int p = 2 * b + i / 2;

#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (sees(unit, key_at(p, i % 2))) largest[e] = fmaxf(largest[e], s[p][n][i % 2 * 2 + e]);
            }
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int step = 4; step < WARP; step *= 2)
                    largest[e] = fmaxf(largest[e], __shfl_xor_sync(0xffffffffu, largest[e], step));
            if (threadIdx.x % WARP < 4)
                *(float2 *)&most[b][n * SPLIT + threadIdx.x % 4 * 2] = make_float2(largest[0], largest[1]);
        }
}

/* A head's reference after each block, and what the block multiplies older sums by. */
template <int HEADS>
static __device__ inline void find_references(const float (*most)[BLOCKS][HEADS], int head, float scale2,
                                              float top[BLOCKS], float alpha[BLOCKS])
{
    float now = -INFINITY;

#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        float largest = most[0][b][head];

#pragma unroll
        for (int w = 1; w < USERS; w++)
            largest = fmaxf(largest, most[w][b][head]);
        largest = largest * scale2;
        alpha[b] = 1.0f;
        if (largest > now + SOFTMAX_SLACK) {
            alpha[b] = ex2_approx(now - largest);
            now = largest;
        }
        top[b] = now;
    }
}

/* Products become weights: bf16 lines of keys by heads at `to`, and sums of two keys by classes. */
template <int DIM, int HEADS, int RING>
static __device__ inline void soften(const struct unit &unit, float scale2, float (*s)[HEADS / SPLIT][4],
                                     unsigned char *to, struct shared<DIM, HEADS, RING> *shared)
{
    int warp = threadIdx.x / WARP, t = threadIdx.x % 4, class_of = threadIdx.x % WARP / 4;

#pragma unroll
    for (int n = 0; n < HEADS / SPLIT; n++) {
        int head = n * SPLIT + t * 2;
        float top[2][BLOCKS], alpha[2][BLOCKS];

#pragma unroll
        for (int e = 0; e < 2; e++)
            find_references<HEADS>(shared->most, head + e, scale2, top[e], alpha[e]);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (threadIdx.x < 4) *(float2 *)&shared->alpha[b][head] = make_float2(alpha[0][b], alpha[1][b]);
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            float w[4];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                w[i] = ex2_approx(fmaf(s[p][n][i], scale2, -top[i % 2][p / 2]));
                if (!sees(unit, key_at(p, i / 2))) w[i] = 0.0f;
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t two = pack_bf16(w[half * 2], w[half * 2 + 1]);
                unsigned char *at = to + p * HEADS * LINE_BYTES;

                *(uint16_t *)(at + place_in_lines(head, key_at(0, half))) = (uint16_t)two;
                *(uint16_t *)(at + place_in_lines(head + 1, key_at(0, half))) = (uint16_t)(two >> 16);
            }
            *(float2 *)&shared->classes[p][warp][n][class_of][t * 2] = make_float2(w[0] + w[2], w[1] + w[3]);
        }
    }
}

/* The sums of weights of a span: a thread has a class of a head. Whole warps. */
template <int DIM, int HEADS, int RING>
static __device__ inline void add_weights(float scale2, struct shared<DIM, HEADS, RING> *shared)
{
    int head = threadIdx.x / ASH_ATTN_CLASSES, c = threadIdx.x % ASH_ATTN_CLASSES;
    float top[BLOCKS], alpha[BLOCKS], sum = 0.0f;

    if (head >= HEADS) return;
    find_references<HEADS>(shared->most, head, scale2, top, alpha);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        float halves[2];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            halves[half] = shared->classes[2 * b + half][0][head / SPLIT][c][head % SPLIT];
#pragma unroll
            for (int w = 1; w < USERS; w++)
                halves[half] = halves[half] + shared->classes[2 * b + half][w][head / SPLIT][c][head % SPLIT];
        }
        sum = fmaf(sum, alpha[b], halves[0] + halves[1]);
    }
#pragma unroll
    for (int step = 1; step < ASH_ATTN_CLASSES; step *= 2) /* neighbours first */
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, step);
    if (c != 0) return;
    shared->top[head] = top[BLOCKS - 1];
    shared->sum[head] = sum;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Zeros in lines of keys that no row sees: what lies there may be infinite. Returns whether there are any. */
template <int DIM>
static __device__ inline void clear_unseen(const struct unit &unit, int piece, unsigned char *values)
{
    int begin = unit.begin - piece * BLOCK, end = unit.end - piece * BLOCK;

    if (begin <= 0 && end >= BLOCK) return;
    for (int i = threadIdx.x; i < DIM / PANEL * BLOCK * LINE_BYTES / 16; i += WARPGROUP) {
        int key = i / (LINE_BYTES / 16) % BLOCK;

        if (key < begin || key >= end) *(uint4 *)(values + i * 16) = make_uint4(0, 0, 0, 0);
    }
    wgmma_see_shared();
    sync_users();
}

/* Older sums, where a block's reference has moved. */
template <int DIM, int HEADS>
static __device__ inline void scale_sums(const float *alpha, float (*acc)[HEADS / SPLIT][4])
{
    float2 by[HEADS / SPLIT];
    bool has_moved = false;

#pragma unroll
    for (int n = 0; n < HEADS / SPLIT; n++) {
        by[n] = *(const float2 *)&alpha[n * SPLIT + threadIdx.x % 4 * 2];
        has_moved = has_moved || by[n].x != 1.0f || by[n].y != 1.0f;
    }
    if (!__any_sync(0xffffffffu, has_moved)) return;
    wgmma_wait();
#pragma unroll
    for (int m = 0; m < DIM / PANEL; m++) {
        wgmma_take<HEADS>(acc[m]);
#pragma unroll
        for (int n = 0; n < HEADS / SPLIT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[m][n][e] = acc[m][n][e] * (e % 2 == 0 ? by[n].x : by[n].y);
    }
}

/* acc = weights times values, keys ascending: of each 64 dims a thread has a row and the one 8 below, as in key_at. */
template <int DIM, int HEADS, int RING>
static __device__ inline void add_values(const struct unit &unit, unsigned char *room,
                                         struct ring_cursor<shape<DIM, HEADS, RING>::STAGES> *at,
                                         struct shared<DIM, HEADS, RING> *shared, float (*acc)[HEADS / SPLIT][4])
{
    using S = shape<DIM, HEADS, RING>;

#pragma unroll 1
    for (int p = unit.first; p < unit.last; p++) {
        unsigned char *values = room + at->stage * S::PIECE_BYTES;
        unsigned weights = shared_address(room + S::P_AT) + p * S::P_BYTES, lines = shared_address(values);

        at->wait_full(&shared->ring);
        clear_unseen<DIM>(unit, p, values);
        if (p > unit.first && p % 2 == 0) scale_sums<DIM, HEADS>(shared->alpha[p / 2], acc);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < BLOCK; k += 16)
#pragma unroll
            for (int m = 0; m < DIM / PANEL; m++)
                wgmma<HEADS, 1, 0>(acc[m],
                                   wgmma_operand_across(lines + (m * BLOCK + k) * LINE_BYTES, BLOCK * LINE_BYTES),
                                   wgmma_operand(weights + k * 2), k > 0 || p > unit.first);
        wgmma_commit();
        if (p > unit.first) {
            wgmma_wait_for<1>();
            at->leave_before(&shared->ring);
        }
        at->next();
    }
    wgmma_wait();
    at->leave_before(&shared->ring);
#pragma unroll
    for (int m = 0; m < DIM / PANEL; m++)
        wgmma_take<HEADS>(acc[m]);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Sums of a row over spans: the reference, weights, and one dim of the values. */
struct merged {
    float top, sum, value;
};

#define NO_SPAN                                                                                                        \
    (struct merged)                                                                                                    \
    {                                                                                                                  \
        -INFINITY, 0.0f, 0.0f                                                                                          \
    }

static __device__ inline void merge(struct merged *all, float top, float sum, float value)
{
    float highest = top > all->top ? top : all->top, old = ex2_approx(all->top - highest);
    float now = ex2_approx(top - highest);

    all->sum = fmaf(all->sum, old, sum * now);
    all->value = fmaf(all->value, old, value * now);
    all->top = highest;
}

/* Write a dim of a query head. */
template <int DIM>
static __device__ inline void put(const struct ash_cuda_attn_spans &args, const struct unit &unit, int head, int d,
                                  const struct merged &all)
{
    size_t h = (size_t)unit.g * unit.rows + head, at = unit.q_row * args.out_stride + h * DIM + d;
    float value = all.value * (1.0f / all.sum);

    args.out[at] = value;
    if (args.out_bf16 != NULL) args.out_bf16[at] = ash_f32_to_bf16(value);
    if (args.lse != NULL && d == 0)
        args.lse[unit.q_row * args.heads + h] = fmaf(all.top, ASH_LN2, ash_logf(all.sum));
}

/* What a span leaves: the rows' values, their references, their sums of weights. */
template <int DIM> static __device__ inline size_t part_floats(const struct unit &unit)
{
    return (size_t)unit.rows * (DIM + 2);
}

/* f(head, dim, sum of values) for each of this thread's. */
template <int DIM, int HEADS, typename F>
static __device__ inline void each_sum(int rows, const float (*acc)[HEADS / SPLIT][4], F f)
{
#pragma unroll
    for (int n = 0; n < HEADS / SPLIT; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int head = n * SPLIT + threadIdx.x % 4 * 2 + e;

            if (head >= rows) continue;
#pragma unroll
            for (int m = 0; m < DIM / PANEL; m++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    f(head, m * PANEL + key_at(0, half), acc[m][n][half * 2 + e]);
        }
}

/* All spans of a document are there. */
template <int DIM>
static __device__ inline void merge_parts(const struct ash_cuda_attn_spans &args, const struct unit &unit)
{
    size_t step = args.kv_heads * part_floats<DIM>(unit);
    const float *parts = args.parts + unit.slot * part_floats<DIM>(unit) - unit.index * step;

    for (int i = threadIdx.x; i < unit.rows * DIM; i += WARPGROUP) {
        int head = i / DIM;
        struct merged all = NO_SPAN;

#pragma unroll 4
        for (int s = 0; s < unit.spans; s++) {
            const float *part = parts + s * step, *tops = part + unit.rows * DIM;

            merge(&all, __ldcg(tops + head), __ldcg(tops + unit.rows + head), __ldcg(part + i));
        }
        put<DIM>(args, unit, head, i % DIM, all);
    }
}

template <int DIM, int HEADS, int RING>
static __device__ inline void leave_part(const struct ash_cuda_attn_spans &args, const struct unit &unit,
                                         const float (*acc)[HEADS / SPLIT][4], struct shared<DIM, HEADS, RING> *shared)
{
    float *part = args.parts + unit.slot * part_floats<DIM>(unit), *tops = part + unit.rows * DIM;

    each_sum<DIM, HEADS>(unit.rows, acc, [&](int head, int d, float value) { part[head * DIM + d] = value; });
    if ((int)threadIdx.x < unit.rows) {
        tops[threadIdx.x] = shared->top[threadIdx.x];
        tops[unit.rows + threadIdx.x] = shared->sum[threadIdx.x];
    }
    __threadfence();
    sync_users();
    if (threadIdx.x == 0) shared->before = atomicInc(&args.done[unit.counter], (unsigned)unit.spans - 1);
    sync_users();
    if (shared->before != (unsigned)unit.spans - 1) return;
    __threadfence();
    merge_parts<DIM>(args, unit);
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

template <int DIM, int HEADS, int RING>
static __device__ inline void attend(const struct ash_cuda_attn_spans &args, const struct unit &unit,
                                     unsigned char *room, struct ring_cursor<shape<DIM, HEADS, RING>::STAGES> *at,
                                     struct shared<DIM, HEADS, RING> *shared)
{
    using S = shape<DIM, HEADS, RING>;
    float s[PIECES][HEADS / SPLIT][4], acc[DIM / PANEL][HEADS / SPLIT][4], scale2 = args.scale * ASH_LOG2E;

    read_queries<DIM, HEADS>(args, unit, room + S::Q_AT);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        bool is_there = p >= unit.first && p < unit.last; /* else products of what lies there are left out later */

        if (is_there) at->wait_full(&shared->ring);
        begin_piece<DIM, HEADS>(s[p], shared_address(room) + at->stage * S::PIECE_BYTES,
                                shared_address(room + S::Q_AT));
        wgmma_wait_for<1>();
        if (is_there && p > unit.first) at->leave_before(&shared->ring);
        if (is_there) at->next();
    }
    wgmma_wait();
    at->leave_before(&shared->ring);
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        wgmma_take<HEADS>(s[p]);
    find_most<HEADS>(unit, s, shared->most[threadIdx.x / WARP]);
    sync_users();
    soften<DIM, HEADS, RING>(unit, scale2, s, room + S::P_AT, shared);
    wgmma_see_shared();
    sync_users();
    add_weights<DIM, HEADS, RING>(scale2, shared);
    add_values<DIM, HEADS, RING>(unit, room, at, shared, acc);
    sync_users();
    if (unit.spans > 1) {
        leave_part<DIM, HEADS, RING>(args, unit, acc, shared);
        return;
    }
    each_sum<DIM, HEADS>(unit.rows, acc, [&](int head, int d, float value) {
        struct merged all = NO_SPAN;

        merge(&all, shared->top[head], shared->sum[head], value);
        put<DIM>(args, unit, head, d, all);
    });
}

template <int DIM, int HEADS, int RING>
static __device__ inline void attend_spans(const struct ash_cuda_attn_spans &args)
{
    using S = shape<DIM, HEADS, RING>;
    using Shared = struct shared<DIM, HEADS, RING>;
    DYNAMIC_SHARED(unsigned char, room, WGMMA_BORDER);
    Shared &shared = *(Shared *)(room + S::SHARED_AT);
    size_t count = unit_count(args); /* the tables were there before the kernel before this one began */

    static_assert(S::SHARED_AT + sizeof(shared) <= RING + ASH_CUDA_ATTN_SPANS_BYTES(DIM, HEADS), "the host's size");
    early_begin();
    if (threadIdx.x == 0) {
        ring_init(&shared.ring, 1, USERS);
        barriers_show();
    }
    __syncthreads();
    if (threadIdx.x / WARP == COPIER) {
        copy_units<DIM, HEADS, RING>(args, shared_address(room), &shared);
    } else {
        struct ring_cursor<S::STAGES> at = {};
        struct coming next = {.is_first = true};

        find_next(args, count, &next);
        early_wait();
        while (next.number < count) {
            struct unit unit = next.unit;

            attend<DIM, HEADS, RING>(args, unit, room, &at, &shared);
            find_next(args, count, &next);
        }
    }
}

/* A few units: their pieces are all on their way at once. Many: BLOCKS_MANY thread blocks share a multiprocessor, so
 * that some wait for memory while others multiply. */
#define SPANS(DIM, HEADS, BLOCKS_MANY)                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        attn_spans_##DIM##_##HEADS(const __grid_constant__ struct ash_cuda_attn_spans args)                            \
    {                                                                                                                  \
        attend_spans<DIM, HEADS, ASH_CUDA_ATTN_SPANS_FEW>(args);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_MANY)                                                 \
        attn_spans_##DIM##_##HEADS##_many(const __grid_constant__ struct ash_cuda_attn_spans args)                     \
    {                                                                                                                  \
        attend_spans<DIM, HEADS, ASH_CUDA_ATTN_SPANS_MANY>(args);                                                      \
    }

SPANS(64, 8, 3)
SPANS(64, 16, 2)
SPANS(128, 8, 3)
SPANS(128, 16, 2)
