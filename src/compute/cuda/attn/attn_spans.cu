/* attn_spans - attention of one query row over bf16 pages, as decoding wants it (flash decoding). A unit of work is a
 * document, a kv head and a span of ASH_ATTN_SPAN keys: the query heads that read the kv head share what is copied.
 * One warp copies keys and values ahead, from one unit to the next; a warpgroup multiplies them, as the 64-row operand,
 * with all query heads. A document of several spans leaves sums of each in memory, and the last thread block to end one
 * merges them in order: ref/attn_wgmma.c. */
#include "compute/cuda/attn/attn_spans_weights.cuh"

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Zeros in lines of keys that no row sees: what lies there may be infinite. Returns whether there are any. */
template <int DIM> static __device__ inline void clear_unseen(const struct unit &unit, int piece, unsigned char *values)
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
    if (args.lse != NULL && d == 0) args.lse[unit.q_row * args.heads + h] = fmaf(all.top, ASH_LN2, ash_logf(all.sum));
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
        ring_cursor<S::STAGES> at = {};
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
