/* attn_backward - gradients of attention over tiles, as ref/attn_wgmma.c says: dq of 128 query rows, blocks of keys
 * ascending; dk and dv of 128 keys, query heads of their group and then query rows ascending. Scores are made again from
 * the saved log-sums. One warp copies ahead; each of two warpgroups has 64 rows, or keys. */
#include "compute/cuda/attn/attn_tiled.cuh"

#define ROWS ASH_CUDA_ATTN_TILED_ROWS /* query rows of a unit of dq, and keys of one of dk and dv */
#define STEP ASH_CUDA_ATTN_STEP
#define STAGES ASH_CUDA_ATTN_BACK_STAGES

/* A unit of work: rows that stay, and those that are streamed past them. */
struct work {
    int count;               /* rows (or keys) of the unit; 0: there is no more work */
    int head, row, first;    /* its first, in memory and in its document */
    int begin, end;          /* steps of a head */
    int doc_row, doc_count;  /* the document's first row, and rows */
    int group;               /* query heads that are streamed */
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

/* ---- copies ------------------------------------------------------------------------------------------------------ */

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
    struct ring_cursor<1> kept = {};
    struct ring_cursor<STAGES> at = {};
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
    struct ring_cursor<1> kept = {};
    struct ring_cursor<STAGES> at = {};
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

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* A warpgroup's rows of a tile that stays, as the left side of products. */
template <int DIM> struct own_rows {
    unsigned lines;

    __device__ void take(unsigned from) { lines = from; }

    /* s = these rows by the lines of a step. Only begun. */
    __device__ void begin(float (*s)[4], unsigned step) const { begin_scores<DIM, STEP>(s, lines, ROWS, step, STEP); }
};

/* 64 dims fit into registers, so a product reads only the step's lines from shared memory. */
template <> struct own_rows<PANEL> {
    uint32_t values[PANEL / 16][4];

    __device__ void take(unsigned from)
    {
        int lane = threadIdx.x % WARP, row = threadIdx.x % WARPGROUP / WARP * 16 + lane % 16;

#pragma unroll
        for (int k = 0; k < PANEL / 16; k++)
            load_matrices(from + row * LINE_BYTES + ((k * 2 + lane / 16) ^ row % 8) * 16, values[k]);
    }

    __device__ void begin(float (*s)[4], unsigned step) const
    {
#pragma unroll
        for (int k = 0; k < PANEL / 16; k++)
            wgmma_a<STEP, 0>(s, values[k], wgmma_operand(step + k * 32), k > 0);
    }
};

/* A warpgroup's part of a unit. */
template <int DIM> struct part {
    const struct ash_cuda_attn_tiled &args;
    struct work work;
    struct shared *shared;
    unsigned char *room;
    int group, row; /* the warpgroup, and this thread's first row of the tiles that stay */
    int positions[2]; /* of this thread's two rows, if sums are turned back */
    struct own_rows<DIM> a, b;
    struct ring_cursor<STAGES> at;

    __device__ unsigned step(void) const
    {
        return shared_address(room + shape<DIM>::RING_AT + at.stage * shape<DIM>::STAGE_BYTES);
    }
};

/* Probability s and its gradient dp of a row and a key become the weights that multiply; 0 unless the row sees the
 * key. */
static __device__ inline void pair(bool sees, float scale2, const struct ash_cuda_attn_stats &stats, float *s, float *dp)
{
    float p = ex2_approx(fmaf(*s, scale2, -stats.lse2)), ds = p * (*dp - stats.delta);

    *s = sees ? p : 0.0f;
    *dp = sees ? ds : 0.0f;
}

/* The warpgroups take turns with the tensor cores, so that one's products run under the other's weights. */
static __device__ inline void begin_turn(int group)
{
    named_sync<2 * WARPGROUP>(1 + group);
}

static __device__ inline void end_turn(int group)
{
    named_arrive<2 * WARPGROUP>(2 - group);
}

/* The sums of a step are begun under the scores of the next one, and run on under its weights. Rows of 128 dims leave no
 * registers for that: theirs are begun as soon as their weights are there. */
template <int DIM> static constexpr bool SUMS_LATE = DIM == PANEL;

/* A turn: scores of the rows that stay with those of a step, and gradients of their weights. begin_before() begins the
 * sums of the step before, if there is one. */
template <int DIM, class Sums>
static __device__ inline void take_turn(struct part<DIM> *part, bool has_before, float (*s)[4], float (*dp)[4],
                                        Sums begin_before)
{
    unsigned step = part->step();

    part->at.wait_full(&part->shared->ring);
    if (!SUMS_LATE<DIM>) {
        wgmma_wait();
        if (has_before) part->at.leave_before(&part->shared->ring);
    }
    begin_turn(part->group);
    wgmma_fence();
    part->a.begin(s, step);
    part->b.begin(dp, step + shape<DIM>::STEP_BYTES);
    wgmma_commit();
    if (SUMS_LATE<DIM> && has_before) {
        begin_before();
        wgmma_commit();
        wgmma_wait_for<1>();
    } else {
        wgmma_wait();
    }
    wgmma_take<STEP>(s);
    wgmma_take<STEP>(dp);
    end_turn(part->group);
}

/* The step before has been added up: its rows are not read any more. */
template <int DIM> static __device__ inline void end_before(struct part<DIM> *part, bool has_before)
{
    if (SUMS_LATE<DIM> && has_before) {
        wgmma_wait();
        part->at.leave_before(&part->shared->ring);
    }
    part->at.next();
}

/* A step's weights are packed. */
template <int DIM, class Sums> static __device__ inline void end_step(Sums begin)
{
    if (SUMS_LATE<DIM>) return;
    wgmma_fence();
    begin();
    wgmma_commit();
}

/* A step of which this warpgroup's rows see nothing, before its first or after its last one: the other's turn comes. */
template <int DIM> static __device__ inline void skip_step(struct part<DIM> *part)
{
    part->at.wait_full(&part->shared->ring);
    begin_turn(part->group);
    end_turn(part->group);
    part->at.leave(&part->shared->ring);
    part->at.next();
}

template <int DIM> static __device__ inline void load_positions(struct part<DIM> *part)
{
    if (part->args.rounded == NULL) return;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (part->row + half * 8 < part->work.count)
            part->positions[half] = part->args.positions[part->work.row + part->row + half * 8];
}

/* The last step's sums, and the positions that they are turned back by. */
template <int DIM, class Sums> static __device__ inline void end_steps(struct part<DIM> *part, Sums begin)
{
    if (SUMS_LATE<DIM>) {
        begin_turn(part->group);
        wgmma_fence();
        begin();
        wgmma_commit();
        end_turn(part->group);
    }
    wgmma_wait();
    part->at.leave_before(&part->shared->ring);
}

#define PAIRS 4 /* of two columns of a row, and of those half a head further, that are written at once */

/* Turn sums of a row back by the angles of its position, pairs being halves of a head: as rope with -sine. */
static __device__ inline void turn_back(const float *cos, const float *sin, float2 *low, float2 *high)
{
    float2 cosine[PAIRS], sine[PAIRS];

#pragma unroll
    for (int i = 0; i < PAIRS; i++) { /* all of them on their way before the first is used */
        cosine[i] = *(const float2 *)(cos + i * 8);
        sine[i] = *(const float2 *)(sin + i * 8);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 x = low[i], y = high[i], s = make_float2(-sine[i].x, -sine[i].y);

        low[i] = make_float2(fmaf(x.x, cosine[i].x, -(y.x * s.x)), fmaf(x.y, cosine[i].y, -(y.y * s.y)));
        high[i] = make_float2(fmaf(y.x, cosine[i].x, x.x * s.x), fmaf(y.y, cosine[i].y, x.y * s.y));
    }
}

/* Write two rows of sums times scale, rounded, to column `column` of rows from `row` on; is_turned: back by the angles of
 * their positions. */
template <int DIM>
static __device__ inline void put_rounded(const struct part<DIM> &part, size_t column, bool is_turned, float scale,
                                          const float (*sums)[4])
{
    const struct ash_cuda_attn_tiled &args = part.args;
    int t = threadIdx.x % 4 * 2;

#pragma unroll
    for (int at = 0; at < DIM / 16 * 2; at += PAIRS) {
        int half = at / (DIM / 16), first = at % (DIM / 16), r = part.row + half * 8;
        uint16_t *to = args.rounded + (size_t)(part.work.row + r) * args.rounded_stride + column + first * 8 + t;
        size_t angles = is_turned && r < part.work.count ? (size_t)args.positions[part.work.row + r] * (DIM / 2) + first * 8 + t : 0;
        float2 low[PAIRS], high[PAIRS];

        if (r >= part.work.count) continue;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const float *a = &sums[first + i][half * 2], *b = &sums[first + i + DIM / 16][half * 2];

            low[i] = make_float2(fmaf(a[0], scale, 0.0f), fmaf(a[1], scale, 0.0f));
            high[i] = make_float2(fmaf(b[0], scale, 0.0f), fmaf(b[1], scale, 0.0f));
        }
        if (is_turned) turn_back(args.cos + angles, args.sin + angles, low, high);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            *(uint32_t *)(to + i * 8) = pack_bf16(low[i].x, low[i].y);
            *(uint32_t *)(to + i * 8 + DIM / 2) = pack_bf16(high[i].x, high[i].y);
        }
    }
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

template <int DIM, bool IS_MASKED>
static __device__ inline void query_pairs(const struct part<DIM> &part, int base, const struct ash_cuda_attn_stats stats[2],
                                          float (*s)[4], float (*dp)[4])
{
    float scale2 = part.args.scale * ASH_LOG2E;
    int t = threadIdx.x % 4 * 2, window = (int)part.args.window;

#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int ahead = part.work.first + part.row + e / 2 * 8 - (base + n * 8 + t + e % 2);
            bool sees = !IS_MASKED || (ahead >= 0 && (window == 0 || ahead < window));

            pair(sees, scale2, stats[e / 2], &s[n][e], &dp[n][e]);
        }
}

/* Do all rows of this warpgroup see all keys of the step from base on? */
template <int DIM> static __device__ inline bool sees_all(const struct part<DIM> &part, int base)
{
    int first = part.work.first + (part.row & ~(WGMMA_M - 1)), window = (int)part.args.window;

    return base + STEP - 1 <= first && (window == 0 || base > first + WGMMA_M - 1 - window);
}

template <int DIM> static __device__ inline void put_dq(const struct part<DIM> &part, const float (*dq)[4])
{
    const struct ash_cuda_attn_tiled &args = part.args;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = part.row + half * 8;
        float *to = args.dq + (size_t)(part.work.row + r) * args.q_stride + part.work.head * DIM + threadIdx.x % 4 * 2;

        if (r >= part.work.count) continue;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                to[i * 8 + e] = dq[i][half * 2 + e] * args.scale;
    }
}

/* A block's sums join those of the blocks before. */
template <int DIM> static __device__ inline void add_block(const float (*sums)[4], float (*dq)[4])
{
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dq[i][e] = dq[i][e] + sums[i][e];
}

/* What a thread of the dq kernel keeps from step to step. */
template <int DIM> struct query_sums {
    float sums[DIM / 8][4], dq[DIM / 8][4]; /* of the block, and of all blocks before */
    uint32_t ds[STEP / 16][4];
    struct ash_cuda_attn_stats stats[2];
    unsigned before; /* the keys of ds */
    int keep;
};

template <int DIM>
static __device__ inline void step_queries(struct part<DIM> *part, bool has_before, int b, struct query_sums<DIM> *own)
{
    constexpr int STEPS = ASH_ATTN_KEYS / STEP; /* of a block */
    float s[STEP / 8][4], dp[STEP / 8][4];
    unsigned keys = part->step();
    auto begin = [=]() { begin_sums<DIM, STEP>(own->sums, own->ds, own->before, STEP, own->keep); };

    take_turn<DIM>(part, has_before, s, dp, begin);
    if (sees_all<DIM>(*part, b * STEP))
        query_pairs<DIM, false>(*part, b * STEP, own->stats, s, dp);
    else
        query_pairs<DIM, true>(*part, b * STEP, own->stats, s, dp);
    end_before<DIM>(part, has_before);
    if (has_before) {
        wgmma_take<DIM>(own->sums);
        own->keep = 1;
        if (b % STEPS == 0) {
            add_block<DIM>(own->sums, own->dq);
            own->keep = 0;
        }
    }
    pack_weights<STEP>(dp, own->ds);
    own->before = keys;
    end_step<DIM>(begin);
}

template <int DIM> static __device__ inline void attend_queries(struct part<DIM> *part)
{
    struct query_sums<DIM> own = {};
    int b = part->work.begin, end = part->work.end;
    bool sees_last = (end - 1) * STEP < part->work.first + (part->group + 1) * WGMMA_M || end - b == 1;

#pragma unroll
    for (int half = 0; half < 2; half++)
        if (part->row + half * 8 < part->work.count)
            own.stats[half] = part->args.stats[(size_t)part->work.head * part->args.rows + part->work.row + part->row +
                                               half * 8];
    if (SUMS_LATE<DIM>) step_queries<DIM>(part, false, b++, &own);
#pragma unroll 1
    for (end -= !sees_last; b < end; b++)
        step_queries<DIM>(part, SUMS_LATE<DIM> || b > part->work.begin, b, &own);
    end_steps<DIM>(part, [&]() { begin_sums<DIM, STEP>(own.sums, own.ds, own.before, STEP, own.keep); });
    if (!sees_last) skip_step<DIM>(part);
    wgmma_take<DIM>(own.sums);
    add_block<DIM>(own.sums, own.dq);
    if (part->args.rounded != NULL)
        put_rounded<DIM>(*part, part->work.head * DIM, true, part->args.scale, own.dq);
    else
        put_dq<DIM>(*part, own.dq);
}

/* ---- dk and dv --------------------------------------------------------------------------------------------------- */

/* Scores lie transposed: rows are keys, columns query rows. */
template <int DIM, bool IS_MASKED>
static __device__ inline void key_pairs(const struct part<DIM> &part, int base, const struct ash_cuda_attn_stats *stats,
                                        float (*s)[4], float (*dp)[4])
{
    float scale2 = part.args.scale * ASH_LOG2E;
    int t = threadIdx.x % 4 * 2, window = (int)part.args.window;
    /* of this thread's first query row: how far it is ahead of its first key, and rows of the document from there on */
    int ahead0 = base + t - part.work.first - part.row, left = part.work.doc_count - base - t;

#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        const float4 two = *(const float4 *)(stats + n * 8 + t);
        const struct ash_cuda_attn_stats of[2] = {{two.x, two.y}, {two.z, two.w}};

#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = n * 8 + e % 2, ahead = ahead0 + i - e / 2 * 8;
            bool sees = !IS_MASKED || (i < left && ahead >= 0 && (window == 0 || ahead < window));

            pair(sees, scale2, of[e % 2], &s[n][e], &dp[n][e]);
        }
    }
}

/* Do all query rows of the step from base on see all keys of this warpgroup? */
template <int DIM> static __device__ inline bool seen_by_all(const struct part<DIM> &part, int base)
{
    int first = part.work.first + (part.row & ~(WGMMA_M - 1)), window = (int)part.args.window;

    return base + STEP <= part.work.doc_count && first + WGMMA_M - 1 <= base &&
           (window == 0 || base + STEP - 1 - first < window);
}

template <int DIM>
static __device__ inline void put_key_sums(const struct part<DIM> &part, float *to, size_t stride, float scale,
                                           const float (*sums)[4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = part.row + half * 8;
        float *at = to + (size_t)(part.work.first + r) * stride + part.work.head * DIM + threadIdx.x % 4 * 2;

        if (r >= part.work.count) continue;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                at[i * 8 + e] = fmaf(sums[i][half * 2 + e], scale, at[i * 8 + e]);
    }
}

/* What a thread of the kernel of dk and dv keeps from step to step. */
template <int DIM> struct key_sums {
    float dk[DIM / 8][4], dv[DIM / 8][4];
    uint32_t p[STEP / 16][4], ds[STEP / 16][4];
    unsigned before; /* the rows of p and ds */

    __device__ void begin(void)
    {
        begin_sums<DIM, STEP>(dv, p, before + shape<DIM>::STEP_BYTES, STEP, 1);
        begin_sums<DIM, STEP>(dk, ds, before, STEP, 1);
    }
};

template <int DIM>
static __device__ inline void step_keys(struct part<DIM> *part, bool has_before, int base, struct key_sums<DIM> *own)
{
    const struct ash_cuda_attn_stats *stats = (const struct ash_cuda_attn_stats *)(part->room + shape<DIM>::STATS_AT);
    const struct ash_cuda_attn_stats *of_step = stats + part->at.stage * STEP;
    float s[STEP / 8][4], dp[STEP / 8][4];
    unsigned rows = part->step();

    take_turn<DIM>(part, has_before, s, dp, [=]() { own->begin(); });
    if (seen_by_all<DIM>(*part, base))
        key_pairs<DIM, false>(*part, base, of_step, s, dp);
    else
        key_pairs<DIM, true>(*part, base, of_step, s, dp);
    end_before<DIM>(part, has_before);
    wgmma_take<DIM>(own->dk);
    wgmma_take<DIM>(own->dv);
    pack_weights<STEP>(s, own->p);
    pack_weights<STEP>(dp, own->ds);
    own->before = rows;
    end_step<DIM>([=]() { own->begin(); });
}

template <int DIM> static __device__ inline void attend_keys(struct part<DIM> *part)
{
    struct key_sums<DIM> own = {};
    int b = part->work.begin, left = (part->work.end - b) * part->work.group;
    bool has_before = false;

    if (b * STEP + STEP <= part->work.first + part->group * WGMMA_M && left > 1) { /* rows before its keys */
        skip_step<DIM>(part);
        b = b + 1 < part->work.end ? b + 1 : b;
        left--;
    }
    if (SUMS_LATE<DIM>) {
        step_keys<DIM>(part, false, b * STEP, &own);
        b = b + 1 < part->work.end ? b + 1 : part->work.begin;
        left--;
    }
#pragma unroll 1
    for (; left > 0; left--) {
        step_keys<DIM>(part, SUMS_LATE<DIM> || has_before, b * STEP, &own);
        has_before = true;
        b = b + 1 < part->work.end ? b + 1 : part->work.begin;
    }
    end_steps<DIM>(part, [&]() { own.begin(); });
    if (!SUMS_LATE<DIM>) part->work = part->shared->work; /* which nothing had registers for */
    wgmma_take<DIM>(own.dk);
    wgmma_take<DIM>(own.dv);
    if (part->args.rounded != NULL) {
        size_t column = (part->args.heads + part->work.head) * DIM;

        put_rounded<DIM>(*part, column, true, part->args.scale, own.dk);
        put_rounded<DIM>(*part, column + part->args.kv_heads * DIM, false, 1.0f, own.dv);
        return;
    }
    put_key_sums<DIM>(*part, part->args.seqs[part->work.seq].dk, part->args.k_stride, part->args.scale, own.dk);
    put_key_sums<DIM>(*part, part->args.seqs[part->work.seq].dv, part->args.v_stride, 1.0f, own.dv);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Take the rows that stay; heads of 64 dims leave their place in shared memory to the next unit at once. */
template <int DIM>
static __device__ inline void begin_unit(struct part<DIM> *part, const struct ring_cursor<1> &kept)
{
    unsigned lines = shared_address(part->room) + part->group * WGMMA_M * LINE_BYTES;

    part->a.take(lines);
    part->b.take(lines + shape<DIM>::KEPT_BYTES);
    if (DIM == PANEL) kept.leave(&part->shared->kept);
}

template <int DIM, bool IS_KEYS>
static __device__ inline void multiply_all(const struct ash_cuda_attn_tiled &args, unsigned char *room,
                                           struct shared *shared)
{
    int group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP - 1, 0), thread = threadIdx.x % WARPGROUP;
    int row = group * WGMMA_M + thread / WARP * 16 + thread % WARP / 4;
    struct part<DIM> part = {args, {}, shared, room, group, row, {}, {}, {}, {}};
    struct ring_cursor<1> kept = {};

    if (group == 1) end_turn(group); /* the first warpgroup's turn */
    for (;;) {
        kept.wait_full(&shared->kept);
        part.work = shared->work;
        if (part.work.count == 0) break;
        begin_unit<DIM>(&part, kept);
        if (IS_KEYS)
            attend_keys<DIM>(&part);
        else
            attend_queries<DIM>(&part);
        if (DIM > PANEL) kept.leave(&shared->kept);
        kept.next();
    }
    if (group == 0) begin_turn(group); /* what the other arrived for */
}

template <int DIM, bool IS_KEYS> static __device__ inline void backward(const struct ash_cuda_attn_tiled &args)
{
    DYNAMIC_SHARED(unsigned char, room, WGMMA_BORDER);
    __shared__ struct shared shared;

    if (threadIdx.x == 0) {
        ring_init(&shared.kept, 1, USERS);
        ring_init(&shared.ring, IS_KEYS ? 1 + WARP : 1, USERS);
        barrier_init(shared_address(&shared.tail), 1);
        barriers_show();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        registers_give<COPY_REGISTERS>();
        if (threadIdx.x >= WARP) return;
        if (IS_KEYS)
            copy_for_keys<DIM>(args, room, &shared);
        else
            copy_for_queries<DIM>(args, room, &shared);
    } else {
        registers_take<SUM_REGISTERS>();
        multiply_all<DIM, IS_KEYS>(args, room, &shared);
    }
}

#define BACKWARD(DIM)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED_THREADS, 1)                                                     \
        attn_queries_tiled_##DIM(const __grid_constant__ struct ash_cuda_attn_tiled args)                              \
    {                                                                                                                  \
        backward<DIM, false>(args);                                                                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILED_THREADS, 1)                                                     \
        attn_keys_tiled_##DIM(const __grid_constant__ struct ash_cuda_attn_tiled args)                                 \
    {                                                                                                                  \
        backward<DIM, true>(args);                                                                                     \
    }

BACKWARD(64)
BACKWARD(128)
