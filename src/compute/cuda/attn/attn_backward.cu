/* attn_backward - gradients of attention over tiles, as ref/attn_wgmma.c says: dq of 128 query rows, blocks of keys
 * ascending; dk and dv of 128 keys, query heads of their group and then query rows ascending. Scores are made again
 * from the saved log-sums. One warp copies ahead; each of two warpgroups has 64 rows, or keys. */
#include "compute/cuda/attn/attn_backward_steps.cuh"

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

template <int DIM, bool IS_MASKED>
static __device__ inline void query_pairs(const struct part<DIM> &part, int base,
                                          const struct ash_cuda_attn_stats stats[2], float (*s)[4], float (*dp)[4])
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
    query_sums<DIM> own = {};
    int b = part->work.begin, end = part->work.end;
    bool sees_last = (end - 1) * STEP < part->work.first + (part->group + 1) * WGMMA_M || end - b == 1;

#pragma unroll
    for (int half = 0; half < 2; half++)
        if (part->row + half * 8 < part->work.count)
            own.stats[half] =
                part->args.stats[(size_t)part->work.head * part->args.rows + part->work.row + part->row + half * 8];
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
    key_sums<DIM> own = {};
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
template <int DIM> static __device__ inline void begin_unit(struct part<DIM> *part, const struct ring_cursor<1> &kept)
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
    part<DIM> part = {args, {}, shared, room, group, row, {}, {}, {}, {}};
    ring_cursor<1> kept = {};

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
