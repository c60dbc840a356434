/* attn_backward_steps - what both kernels of the gradients of attention do at each step: two warpgroups take turns with
 * the tensor cores, sums run on under the weights of the next step, and sums of a unit are written. */
#ifndef ASH_COMPUTE_CUDA_ATTN_BACKWARD_STEPS_CUH
#define ASH_COMPUTE_CUDA_ATTN_BACKWARD_STEPS_CUH

#include "compute/cuda/attn/attn_backward_copy.cuh"

/* A warpgroup's rows of a tile that stays, as the left side of products. */
template <int DIM> struct own_rows {
    unsigned lines;

    __device__ void take(unsigned from)
    {
        lines = from;
    }

    /* s = these rows by the lines of a step. Only begun. */
    __device__ void begin(float (*s)[4], unsigned step) const
    {
        begin_scores<DIM, STEP>(s, lines, ROWS, step, STEP);
    }
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
    int group, row;   /* the warpgroup, and this thread's first row of the tiles that stay */
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
static __device__ inline void pair(bool sees, float scale2, const struct ash_cuda_attn_stats &stats, float *s,
                                   float *dp)
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

/* The sums of a step are begun under the scores of the next one, and run on under its weights. Rows of 128 dims
 * leave no registers for that: theirs are begun as soon as their weights are there. */
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

/* Write two rows of sums times scale, rounded, to column `column` of rows from `row` on; is_turned: back by the
 * angles of their positions. */
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
        size_t angles = is_turned && r < part.work.count
                            ? (size_t)args.positions[part.work.row + r] * (DIM / 2) + first * 8 + t
                            : 0;
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

#endif
