/* attn_backward_copy - the copying warp of the gradients of attention: units of work, where their rows lie in shared
 * memory, and how they get there. */
#ifndef ASH_COMPUTE_CUDA_ATTN_BACKWARD_COPY_CUH
#define ASH_COMPUTE_CUDA_ATTN_BACKWARD_COPY_CUH

#include "compute/cuda/attn/attn_tiled.cuh"

#define ROWS ASH_CUDA_ATTN_TILED_ROWS /* query rows of a unit of dq, and keys of one of dk and dv */
#define STEP ASH_CUDA_ATTN_STEP
#define STAGES ASH_CUDA_ATTN_BACK_STAGES

/* A unit of work: rows that stay, and those that are streamed past them. */
struct work {
    int count;              /* rows (or keys) of the unit; 0: there is no more work */
    int head, row, first;   /* its first, in memory and in its document */
    int begin, end;         /* steps of a head */
    int doc_row, doc_count; /* the document's first row, and rows */
    int group;              /* query heads that are streamed */
    int seq;
};

template <int DIM> struct shape {
    static constexpr int KEPT_BYTES = ROWS * DIM * 2, STEP_BYTES = STEP * DIM * 2;
    static constexpr int RING_AT = 2 * KEPT_BYTES, STAGE_BYTES = 2 * STEP_BYTES;
    static constexpr int STATS_AT = RING_AT + STAGES * STAGE_BYTES; /* dk and dv: of the rows of each stage */
    static constexpr int BYTES = STATS_AT + STAGES * STEP * sizeof(struct ash_cuda_attn_stats);
};
static_assert(shape<64>::BYTES == ASH_CUDA_ATTN_BACKWARD_BYTES(64), "the host reserves it");
static_assert(shape<128>::BYTES == ASH_CUDA_ATTN_BACKWARD_BYTES(128), "the host reserves it");

struct shared {
    struct ring_barriers<1> kept;
    struct ring_barriers<STAGES> ring;
    unsigned long long tail; /* for the last rows of a document */
    struct work work;
};

/* Two tiles with the same rows: queries and gradients of outputs, or keys and values. */
struct two_tiles {
    const struct ash_cuda_attn_rows *a, *b;
    int head, row;
};

/* The rows that stay. */
template <int DIM>
static __device__ inline void load_kept(const struct two_tiles &from, const struct work &work, unsigned char *room,
                                        struct shared *shared, struct ring_cursor<1> *at)
{
    unsigned full = at->full(&shared->kept);

    at->wait_empty(&shared->kept);
    if (threadIdx.x % WARP == 0) {
        shared->work = work;
        if (work.count == 0) {
            barrier_arrive(full);
        } else {
            barrier_expect(full, 2 * shape<DIM>::KEPT_BYTES);
            load_rows_of<DIM>(*from.a, from.head, from.row, ROWS, shared_address(room), full);
            load_rows_of<DIM>(*from.b, from.head, from.row, ROWS, shared_address(room + shape<DIM>::KEPT_BYTES), full);
        }
    }
    at->next();
}

/* A step: count of its rows belong to the document, the lines of others become zeros. The ring's place is empty. */
template <int DIM>
static __device__ inline void load_step(const struct two_tiles &from, int count, unsigned char *to, unsigned full,
                                        struct shared *shared, unsigned *tail_turn)
{
    unsigned barrier = count < STEP ? shared_address(&shared->tail) : full;
    int lane = threadIdx.x % WARP;

    if (lane == 0) {
        barrier_expect(barrier, shape<DIM>::STAGE_BYTES);
        load_rows_of<DIM>(*from.a, from.head, from.row, STEP, shared_address(to), barrier);
        load_rows_of<DIM>(*from.b, from.head, from.row, STEP, shared_address(to + shape<DIM>::STEP_BYTES), barrier);
    }
    if (count >= STEP) return;
    barrier_wait(barrier, *tail_turn);
    *tail_turn ^= 1;
    clear_lines<DIM>(to, count, STEP);
    clear_lines<DIM>(to + shape<DIM>::STEP_BYTES, count, STEP);
    if (lane == 0) barrier_arrive(full);
}

/* Enqueue log-sums and deltas of a step's rows; the barrier counts each lane. */
static __device__ inline void load_stats(const struct ash_cuda_attn_tiled &args, int head, int row, int count,
                                         struct ash_cuda_attn_stats *to, unsigned full)
{
    const struct ash_cuda_attn_stats *from = args.stats + (size_t)head * args.rows + row;

    for (int i = threadIdx.x % WARP; i < STEP; i += WARP)
        if (i < count) copy_8(shared_address(to + i), from + i);
    barrier_arrive_copied(full);
}

static __device__ inline struct work work_of(const struct ash_cuda_attn_tiled &args, const struct unit &unit)
{
    const struct ash_cuda_attn_tile &tile = unit.tile;
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    struct work work;

    work.count = (int)tile.count;
    work.head = unit.head;
    work.first = (int)tile.first;
    work.doc_row = (int)seq.q_row;
    work.doc_count = (int)seq.q_count;
    work.row = work.doc_row + work.first;
    work.group = (int)(args.heads / args.kv_heads);
    work.seq = (int)tile.seq;
    return work;
}

/* Queries and gradients of outputs stay, keys and values stream by. */
template <int DIM>
static __device__ inline void copy_for_queries(const struct ash_cuda_attn_tiled &args, unsigned char *room,
                                               struct shared *shared)
{
    using S = shape<DIM>;
    ring_cursor<1> kept = {};
    ring_cursor<STAGES> at = {};
    unsigned tail_turn = 0;

    for (unsigned round = 0;; round++) {
        struct unit unit;
        struct work work = {};
        int window = (int)args.window;

        if (find_unit(args, args.heads, true, &round, &unit)) {
            work = work_of(args, unit);
            work.begin = window != 0 && work.first + 1 > window ? (work.first + 1 - window) / STEP : 0;
            work.end = (work.first + work.count + STEP - 1) / STEP;
        }
        load_kept<DIM>({&args.q, &args.dout, work.head, work.row}, work, room, shared, &kept);
        if (work.count == 0) return;
        for (int b = work.begin; b < work.end; b++) {
            at.wait_empty(&shared->ring);
            load_step<DIM>({&args.k, &args.v, work.head / work.group, work.doc_row + b * STEP},
                           work.doc_count - b * STEP, room + S::RING_AT + at.stage * S::STAGE_BYTES,
                           at.full(&shared->ring), shared, &tail_turn);
            at.next();
        }
    }
}

/* Past the last query row of a document that sees one of the unit's keys. */
static __device__ inline int last_row(const struct ash_cuda_attn_tiled &args, const struct work &work)
{
    int last = work.first + work.count - 1 + (int)args.window;

    return args.window != 0 && last < work.doc_count ? last : work.doc_count;
}

/* Keys and values stay, queries and gradients of outputs stream by, with their log-sums. */
template <int DIM>
static __device__ inline void copy_for_keys(const struct ash_cuda_attn_tiled &args, unsigned char *room,
                                            struct shared *shared)
{
    using S = shape<DIM>;
    struct ash_cuda_attn_stats *stats = (struct ash_cuda_attn_stats *)(room + S::STATS_AT);
    ring_cursor<1> kept = {};
    ring_cursor<STAGES> at = {};
    unsigned tail_turn = 0;

    for (unsigned round = 0;; round++) {
        struct unit unit;
        struct work work = {};

        if (find_unit(args, args.kv_heads, false, &round, &unit)) {
            work = work_of(args, unit);
            work.begin = work.first / STEP;
            work.end = (last_row(args, work) + STEP - 1) / STEP;
        }
        load_kept<DIM>({&args.k, &args.v, work.head, work.row}, work, room, shared, &kept);
        if (work.count == 0) return;
        for (int h = work.head * work.group; h < (work.head + 1) * work.group; h++)
            for (int b = work.begin; b < work.end; b++) {
                int row = work.doc_row + b * STEP, count = work.doc_count - b * STEP;

                at.wait_empty(&shared->ring);
                load_stats(args, h, row, count, stats + at.stage * STEP, at.full(&shared->ring));
                load_step<DIM>({&args.q, &args.dout, h, row}, count, room + S::RING_AT + at.stage * S::STAGE_BYTES,
                               at.full(&shared->ring), shared, &tail_turn);
                at.next();
            }
    }
}

#endif
