/* attn_forward - attention of tiles of 128 query rows, as ref/attn_wgmma.c says. One warp copies queries, keys and
 * values ahead; each of two warpgroups has 64 rows. While values of a block of keys are added, scores of the next one
 * are made and become weights. */
#include "compute/cuda/attn/attn_softmax.cuh"
#include "compute/cuda/attn/attn_tiled.cuh"

#define ROWS ASH_CUDA_ATTN_TILED_ROWS
#define KEYS ASH_ATTN_KEYS
#define STAGES 2
#define SPAN_BLOCKS (ASH_ATTN_SPAN / KEYS)

/* A unit of work: a tile of one head. */
struct work {
    int count;      /* rows; 0: there is no more work */
    int head, row;  /* the first row of q and out */
    int first;      /* its position */
    int begin, end; /* blocks of keys */
    int kv_row, kv_head, kv_count;
};

template <int DIM> struct shape {
    static constexpr int Q_BYTES = ROWS * DIM * 2, KV_BYTES = KEYS * DIM * 2;
    static constexpr int K_AT = Q_BYTES, V_AT = K_AT + STAGES * KV_BYTES, ALL_AT = V_AT + STAGES * KV_BYTES;
    static constexpr int BYTES = ALL_AT + ROWS * DIM * 4;
};
static_assert(shape<64>::BYTES == ASH_CUDA_ATTN_FORWARD_BYTES(64), "the host reserves it");
static_assert(shape<128>::BYTES == ASH_CUDA_ATTN_FORWARD_BYTES(128), "the host reserves it");

struct shared {
    struct ring_barriers<1> q;
    struct ring_barriers<STAGES> k, v;
    unsigned long long tail; /* for the last values of a document */
    struct work work;
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static __device__ inline struct work work_of(const struct ash_cuda_attn_tiled &args, const struct unit &unit)
{
    const struct ash_cuda_attn_tile &tile = unit.tile;
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    struct work work;
    int last;

    work.count = (int)tile.count;
    work.head = unit.head;
    work.row = (int)(seq.q_row + tile.first);
    work.first = (int)(seq.pos + tile.first);
    last = work.first + work.count;
    work.begin = args.window != 0 && work.first + 1 > (int)args.window ? (work.first + 1 - (int)args.window) / KEYS : 0;
    work.end = (last + KEYS - 1) / KEYS;
    work.kv_row = (int)seq.kv_first;
    work.kv_head = work.head / (int)(args.heads / args.kv_heads);
    work.kv_count = (int)(seq.pos + seq.q_count);
    return work;
}

/* Values of block b; lines after the document's last become zeros. */
template <int DIM>
static __device__ inline void load_values(const struct ash_cuda_attn_tiled &args, const struct work &work, int b,
                                          unsigned char *to, unsigned full, struct shared *shared, unsigned *tail_turn)
{
    int lane = threadIdx.x % WARP, count = work.kv_count - b * KEYS;
    unsigned barrier = count < KEYS ? shared_address(&shared->tail) : full;

    if (lane == 0) {
        barrier_expect(barrier, shape<DIM>::KV_BYTES);
        load_rows_of<DIM>(args.v, work.kv_head, work.kv_row + b * KEYS, KEYS, shared_address(to), barrier);
    }
    if (count >= KEYS) return;
    barrier_wait(barrier, *tail_turn);
    *tail_turn ^= 1;
    clear_lines<DIM>(to, count, KEYS);
    if (lane == 0) barrier_arrive(full);
}

template <int DIM>
static __device__ inline void copy_all(const struct ash_cuda_attn_tiled &args, unsigned char *room,
                                       struct shared *shared)
{
    using S = shape<DIM>;
    ring_cursor<1> q = {};
    ring_cursor<STAGES> k = {}, v = {};
    unsigned tail_turn = 0;
    int lane = threadIdx.x % WARP;

    for (unsigned round = 0;; round++) {
        struct unit unit;
        struct work work = {};

        if (find_unit(args, args.heads, true, &round, &unit)) work = work_of(args, unit);
        q.wait_empty(&shared->q);
        if (lane == 0) {
            shared->work = work;
            if (work.count == 0) {
                barrier_arrive(q.full(&shared->q));
            } else {
                barrier_expect(q.full(&shared->q), S::Q_BYTES);
                load_rows_of<DIM>(args.q, work.head, work.row, ROWS, shared_address(room), q.full(&shared->q));
            }
        }
        q.next();
        if (work.count == 0) return;
        for (int b = work.begin; b < work.end; b++) {
            k.wait_empty(&shared->k);
            if (lane == 0) {
                barrier_expect(k.full(&shared->k), S::KV_BYTES);
                load_rows_of<DIM>(args.k, work.kv_head, work.kv_row + b * KEYS, KEYS,
                                  shared_address(room + S::K_AT + k.stage * S::KV_BYTES), k.full(&shared->k));
            }
            k.next();
            v.wait_empty(&shared->v);
            load_values<DIM>(args, work, b, room + S::V_AT + v.stage * S::KV_BYTES, v.full(&shared->v), shared,
                             &tail_turn);
            v.next();
        }
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* A thread's sums of values of all spans before this one: [DIM / 2][WARPGROUP] floats of its warpgroup. */
template <int DIM>
static __device__ inline void merge_span(const struct span &span, const float (*acc)[4], float *room,
                                         struct all_spans *all)
{
    bool has_sums = all->any;
    float old[2], now[2];

    merge_weights(span, all, old, now);
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float *at = room + (i * 4 + e) * WARPGROUP;
            *at = fmaf(has_sums ? *at : 0.0f, old[e / 2], acc[i][e] * now[e / 2]);
        }
}

/* ---- a tile ------------------------------------------------------------------------------------------------------ */

/* A warpgroup's part of a unit. */
template <int DIM> struct part {
    const struct ash_cuda_attn_tiled &args;
    struct work work;
    struct shared *shared;
    unsigned q, k, v; /* shared memory: this warpgroup's queries; keys and values */
    float *room;      /* this thread's place there for merge_span */
    int row;          /* this thread's first row of the tile */
    struct ring_cursor<STAGES> at_k, at_v;

    __device__ unsigned keys(void) const
    {
        return k + at_k.stage * shape<DIM>::KV_BYTES;
    }

    __device__ unsigned values(void) const
    {
        return v + at_v.stage * shape<DIM>::KV_BYTES;
    }
};

/* soften, with masks where a row of this warpgroup does not see all of block b. */
template <int DIM>
static __device__ inline bool soften_block(const struct part<DIM> &part, int b, float (*s)[4], struct span *span,
                                           float alpha[2])
{
    int group_first = part.work.first + (part.row & ~(WGMMA_M - 1)), base = b * KEYS, window = (int)part.args.window;
    float scale2 = part.args.scale * ASH_LOG2E;
    struct seen seen[2] = {};

    if (base + KEYS - 1 <= group_first && (window == 0 || base > group_first + WGMMA_M - 1 - window))
        return soften<false>(s, seen, scale2, span, alpha);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        seen[half].end = part.work.first + part.row + half * 8 + 1 - base;
        seen[half].begin = window != 0 ? seen[half].end - window : 0;
    }
    return soften<true>(s, seen, scale2, span, alpha);
}

template <int DIM> static __device__ inline void begin_block(const struct part<DIM> &part, float (*s)[4])
{
    part.at_k.wait_full(&part.shared->k);
    wgmma_fence();
    begin_scores<DIM, KEYS>(s, part.q, ROWS, part.keys(), KEYS);
    wgmma_commit();
}

static __device__ inline void put_two(const struct ash_cuda_attn_tiled &args, size_t at, float low, float high)
{
    if (args.is_out_even) {
        if (args.out != NULL) *(float2 *)(args.out + at) = make_float2(low, high);
        if (args.out_bf16 != NULL) *(uint32_t *)(args.out_bf16 + at) = pack_bf16(low, high);
        return;
    }
    if (args.out != NULL) {
        args.out[at] = low;
        args.out[at + 1] = high;
    }
    if (args.out_bf16 == NULL) return;
    args.out_bf16[at] = ash_f32_to_bf16(low);
    args.out_bf16[at + 1] = ash_f32_to_bf16(high);
}

/* Write this thread's two rows. */
template <int DIM>
static __device__ inline void put_rows(const struct part<DIM> &part, const float top[2], const float sum[2],
                                       const float (*acc)[4])
{
    const struct ash_cuda_attn_tiled &args = part.args;
    int t = threadIdx.x % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = part.row + half * 8;
        size_t row = part.work.row + r, at = row * args.out_stride + part.work.head * DIM + t;
        float inverse = 1.0f / sum[half];

        if (r >= part.work.count) continue;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            float low = acc[i][half * 2] * inverse, high = acc[i][half * 2 + 1] * inverse;

            put_two(args, at + i * 8, low, high);
        }
        if (args.lse != NULL && t == 0)
            args.lse[row * args.heads + part.work.head] = fmaf(top[half], ASH_LN2, ash_logf(sum[half]));
    }
}

template <int DIM>
static __device__ inline void finish(const struct part<DIM> &part, const struct span &span, float (*acc)[4],
                                     struct all_spans *all)
{
    float sum[2] = {fold_classes(span.classes[0]), fold_classes(span.classes[1])};

    if (!all->any) {
        put_rows<DIM>(part, span.top, sum, acc);
        return;
    }
    merge_span<DIM>(span, acc, part.room, all);
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[i][e] = part.room[(i * 4 + e) * WARPGROUP];
    put_rows<DIM>(part, all->top, all->sum, acc);
}

/* Begin the sums of values of the block before the one whose scores were begun last. */
template <int DIM>
static __device__ inline void begin_values(const struct part<DIM> &part, const uint32_t (*p)[4], float (*acc)[4],
                                           int keep)
{
    part.at_v.wait_full(&part.shared->v);
    wgmma_fence();
    begin_sums<DIM, KEYS>(acc, p, part.values(), KEYS, keep);
    wgmma_commit();
}

template <int DIM> static __device__ inline void scale_sums(float (*acc)[4], const float alpha[2])
{
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[i][e] = acc[i][e] * alpha[e / 2];
}

/* All blocks of keys. */
template <int DIM> static __device__ inline void attend(struct part<DIM> *part, struct ring_cursor<1> *at_q)
{
    struct shared *shared = part->shared;
    struct span span = new_span();
    struct all_spans all = NO_SPANS;
    float s[KEYS / 8][4], acc[DIM / 8][4], alpha[2];
    uint32_t p[KEYS / 16][4];
    int keep = 0; /* have the sums of values begun? */

    begin_block<DIM>(*part, s);
    wgmma_wait();
    wgmma_take<KEYS>(s);
    part->at_k.leave(&shared->k);
    part->at_k.next();
    soften_block<DIM>(*part, part->work.begin, s, &span, alpha);
    pack_weights<KEYS>(s, p);
#pragma unroll 1
    for (int b = part->work.begin + 1; b < part->work.end; b++) {
        bool has_moved;

        begin_block<DIM>(*part, s);
        begin_values<DIM>(*part, p, acc, keep);
        keep = 1;
        wgmma_wait_for<1>();
        wgmma_take<KEYS>(s);
        part->at_k.leave(&shared->k);
        part->at_k.next();
        if (b % SPAN_BLOCKS == 0) {
            wgmma_wait();
            wgmma_take<DIM>(acc);
            merge_span<DIM>(span, acc, part->room, &all);
            span = new_span();
            keep = 0;
        }
        has_moved = soften_block<DIM>(*part, b, s, &span, alpha);
        wgmma_wait();
        wgmma_take<DIM>(acc);
        part->at_v.leave(&shared->v);
        part->at_v.next();
        if (has_moved && keep != 0) scale_sums<DIM>(acc, alpha);
        pack_weights<KEYS>(s, p);
    }
    at_q->leave(&shared->q);
    begin_values<DIM>(*part, p, acc, keep);
    wgmma_wait();
    wgmma_take<DIM>(acc);
    part->at_v.leave(&shared->v);
    part->at_v.next();
    finish<DIM>(*part, span, acc, &all);
}

template <int DIM>
static __device__ inline void multiply_all(const struct ash_cuda_attn_tiled &args, unsigned char *room,
                                           struct shared *shared)
{
    using S = shape<DIM>;
    int group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP - 1, 0), thread = threadIdx.x % WARPGROUP;
    part<DIM> part = {args,
                      {},
                      shared,
                      shared_address(room) + group * WGMMA_M * LINE_BYTES,
                      shared_address(room + S::K_AT),
                      shared_address(room + S::V_AT),
                      (float *)(room + S::ALL_AT) + group * WGMMA_M * DIM + thread,
                      group * WGMMA_M + thread / WARP * 16 + thread % WARP / 4,
                      {},
                      {}};
    ring_cursor<1> q = {};

    for (;;) {
        q.wait_full(&shared->q);
        part.work = shared->work;
        if (part.work.count == 0) return;
        attend<DIM>(&part, &q);
        q.next();
    }
}

template <int DIM> static __device__ inline void forward(const struct ash_cuda_attn_tiled &args)
{
    DYNAMIC_SHARED(unsigned char, room, WGMMA_BORDER);
    __shared__ struct shared shared;

    if (threadIdx.x == 0) {
        ring_init(&shared.q, 1, USERS);
        ring_init(&shared.k, 1, USERS);
        ring_init(&shared.v, 1, USERS);
        barrier_init(shared_address(&shared.tail), 1);
        barriers_show();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x < WARP) copy_all<DIM>(args, room, &shared);
    } else {
        registers_take<SUM_REGISTERS>();
        multiply_all<DIM>(args, room, &shared);
    }
}

#define FORWARD(DIM)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(TILED_THREADS, 1)                                                     \
        attn_forward_tiled_##DIM(const __grid_constant__ struct ash_cuda_attn_tiled args)                              \
    {                                                                                                                  \
        forward<DIM>(args);                                                                                            \
    }

FORWARD(64)
FORWARD(128)
