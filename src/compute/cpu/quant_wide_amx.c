/* Kernels of packed weights with one scale per 256 k (Q8_W) for x86-64 with AMX: 32 rows of x times 32 rows of weights
 * in four tiles of sums, 16 TDPBSSD for a group. What floats take (a conversion, a product of scales and a fused
 * multiply-add for 16 outputs of a group) is less than that, and is done for the group before beside them: dots go
 * through memory. Few rows, which memory decides, stay with VNNI. */
#if defined(__x86_64__)

#include "compute/cpu/quant_pack.h"

#include "compute/cpu/amx.h"
#include "compute/cpu/quant_quads.h"

#define STEPS (ASH_QUANT_WIDE / ASH_QUANT_WIDE_STEP) /* tiles of k in a group */
#define STEP_BYTES (TILE_SIDE * 64)
#define SCALES_BYTES (TILE_SIDE * sizeof(float))
#define GROUP_BYTES (SCALES_BYTES + STEPS * STEP_BYTES) /* of x, as of a panel: scales first */
#define TILE_SUMS (TILE_SIDE * QUADS_ROWS)
#define FETCH_ROWS 4 /* of outputs, beside a step */
#define PARTS 16     /* pieces of the dots of a group: two rows of a tile of x each, with both panels */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* row NULL: zeros. */
static void quantise_row(const float *row, size_t k, size_t at, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_WIDE, tile += GROUP_BYTES) {
        size_t count = k - done < ASH_QUANT_WIDE ? k - done : ASH_QUANT_WIDE;
        uint8_t *numbers = tile + SCALES_BYTES + at * ASH_QUANT_WIDE_STEP;
        float factor = 0.0f, scale = row != NULL ? quads_scale(row + done, count, &factor) : 0.0f;

        memcpy(tile + at * sizeof(scale), &scale, sizeof(scale));
        for (size_t i = 0; i < count; i += ASH_QUANT_WIDE_STEP, numbers += STEP_BYTES) {
            size_t part = count - i < ASH_QUANT_WIDE_STEP ? count - i : ASH_QUANT_WIDE_STEP;

            quads_numbers(row != NULL ? row + done + i : NULL, part, factor, numbers);
            memset(numbers + part, 0, ASH_QUANT_WIDE_STEP - part);
        }
    }
}

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    (void)strip;
    (void)strips;
    for (size_t i = 0; i < TILE_SIDE; i++)
        quantise_row(rows[i], k, i, tile);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Sums of a tile and a panel, row by row. */
struct place {
    float *at;
    size_t stride;
};

/* One group of two tiles of x times two panels. */
struct job {
    const uint8_t *x[2], *w[2];
    struct place from[4], to[4]; /* x0 w0, x0 w1, x1 w0, x1 w1 */
};

/* Where sums of a job's tiles will go; y NULL: it is not known. */
struct outputs {
    const float *y;
    size_t stride;
};

/* Two rows of the dots of a group, with both panels. */
INLINE void add_part(const struct job *job, const __m512 *w_scales, int32_t (*dots)[TILE_SUMS], size_t part)
{
    size_t tile = part / (PARTS / 2), first = part % (PARTS / 2) * 2;
    const float *x_scales = (const float *)(const void *)job->x[tile];

    UNROLL
    for (size_t i = first; i < first + 2; i++) {
        __m512 x_scale = _mm512_set1_ps(x_scales[i]);

        UNROLL
        for (size_t panel = 0; panel < 2; panel++) {
            __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[2 * tile + panel] + i * QUADS_ROWS));
            const struct place *from = &job->from[2 * tile + panel], *to = &job->to[2 * tile + panel];
            __m512 sums = _mm512_load_ps(from->at + i * from->stride);

            _mm512_storeu_ps(to->at + i * to->stride,
                             _mm512_fmadd_ps(dot, _mm512_mul_ps(x_scale, w_scales[panel]), sums));
        }
    }
}

/* The operands of the first step of all. */
INLINE void load_first(const struct job *job)
{
    TILE_LOAD_PASSING(4, job->x[0] + SCALES_BYTES, 64);
    TILE_LOAD(6, job->w[0] + SCALES_BYTES, 64);
    TILE_LOAD_PASSING(5, job->x[1] + SCALES_BYTES, 64);
    TILE_LOAD(7, job->w[1] + SCALES_BYTES, 64);
}

/* One of the four products of a step, with a quarter of what is beside it: floats of the group before, and behind the
 * last step the dots on their way out. The last step's floats come with its first two products: these dots' place is
 * the next ones'. */
#define RUN_PRODUCT(sums, left, right)                                                                                 \
    do {                                                                                                               \
        const bool last = step + 1 == steps;                                                                           \
                                                                                                                       \
        TILE_MULTIPLY_INT8(sums, left, right);                                                                         \
        if (before != NULL && !last) add_part(before, w_scales, dots, 4 * step + (sums));                              \
        if (before != NULL && last && (sums) < 2) {                                                                    \
            add_part(before, w_scales, dots, 4 * step + 2 * (sums));                                                   \
            add_part(before, w_scales, dots, 4 * step + 2 * (sums) + 1);                                               \
        }                                                                                                              \
        if (last) TILE_STORE(sums, dots[sums], 64);                                                                    \
    } while (0)

/* Fetch some of the rows that the sums will go to: waiting for these lines took a quarter of a product's time. */
INLINE void fetch_rows(const struct outputs *to, size_t first, size_t count)
{
    for (size_t row = first; to->y != NULL && row < first + count; row++)
        __asm__ volatile("prefetchw (%0)\n\tprefetchw 64(%0)" : : "r"(to->y + row * to->stride));
}

/* The steps of a group, and beside them (all four of them are there, then) the floats of the one before. Each operand
 * is loaded again, for the step or job that comes next, as soon as its last product has been issued: a tile that comes
 * out of L2 takes longer than two of them. Tiles of x pass by, and panels stay in L1. */
INLINE void run_group(const struct job *job, size_t steps, const struct job *before, const struct job *next,
                      const struct outputs *to, int32_t (*dots)[TILE_SUMS])
{
    __m512 w_scales[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

    for (size_t i = 0; before != NULL && i < 2; i++)
        w_scales[i] = _mm512_load_ps(before->w[i]);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    UNROLL
    for (size_t step = 0; step < steps; step++) {
        const struct job *from = step + 1 < steps ? job : next;
        size_t at = SCALES_BYTES + (step + 1 < steps ? step + 1 : 0) * STEP_BYTES;

        fetch_rows(to, step * FETCH_ROWS, FETCH_ROWS);
        RUN_PRODUCT(0, 4, 6);
        RUN_PRODUCT(1, 4, 7);
        TILE_LOAD_PASSING(4, from->x[0] + at, 64);
        RUN_PRODUCT(2, 5, 6);
        TILE_LOAD(6, from->w[0] + at, 64);
        RUN_PRODUCT(3, 5, 7);
        TILE_LOAD_PASSING(5, from->x[1] + at, 64);
        TILE_LOAD(7, from->w[1] + at, 64);
    }
}

static void add_all(const struct job *job, int32_t (*dots)[TILE_SUMS])
{
    const __m512 w_scales[2] = {_mm512_load_ps(job->w[0]), _mm512_load_ps(job->w[1])};

    for (size_t part = 0; part < PARTS; part++)
        add_part(job, w_scales, dots, part);
}

/* A group with nothing beside it: the first of all, and a last one that is shorter. */
static void run_alone(const struct job *job, size_t steps, const struct job *next, const struct outputs *to,
                      int32_t (*dots)[TILE_SUMS])
{
    run_group(job, steps, NULL, next, to, dots);
}

/* All tiles of x times all panels. */
struct work {
    const struct ash_quant_many *all;
    size_t groups;
    float *zeros; /* where sums begin */
    float *spare; /* where sums go of a tile or panel that makes up a pair */
};

/* Where the sums of a tile and a panel lie before a group, or after it. */
INLINE struct place place_of(const struct work *work, size_t tile, size_t panel, size_t group, bool after)
{
    const struct ash_quant_many *all = work->all;

    if (tile >= all->tiles || panel >= all->count) return (struct place){work->spare, QUADS_ROWS};
    if (!after && all->first && group == 0) return (struct place){work->zeros, 0};
    if (after && group + 1 == work->groups && all->y != NULL && tile < all->y_tiles)
        return (struct place){all->y + tile * TILE_SIDE * all->y_stride + panel * QUADS_ROWS, all->y_stride};
    return (struct place){all->sums + panel * all->panel_sums + tile * TILE_SUMS, QUADS_ROWS};
}

INLINE struct job job_at(const struct work *work, size_t tile, size_t panel, size_t group)
{
    const struct ash_quant_many *all = work->all;
    struct job job;

    for (size_t i = 0; i < 2; i++) {
        size_t t = tile + i < all->tiles ? tile + i : tile, p = panel + i < all->count ? panel + i : panel;

        job.x[i] = all->x + (t * work->groups + group) * GROUP_BYTES;
        job.w[i] = all->panels[p] + group * GROUP_BYTES;
    }
    for (size_t i = 0; i < 4; i++) {
        job.from[i] = place_of(work, tile + i / 2, panel + i % 2, group, false);
        job.to[i] = place_of(work, tile + i / 2, panel + i % 2, group, true);
    }
    return job;
}

/* The job behind (tile, panel, group); at the end the same once more, whose operands are loaded for nothing. */
INLINE struct job job_behind(const struct work *work, size_t tile, size_t panel, size_t group)
{
    if (group + 1 < work->groups) return job_at(work, tile, panel, group + 1);
    if (panel + 2 < work->all->count) return job_at(work, tile, panel + 2, 0);
    if (tile + 2 < work->all->tiles) return job_at(work, tile + 2, 0, 0);
    return job_at(work, tile, panel, group);
}

/* The rows of a job's two tiles are fetched by the groups in turn. */
INLINE struct outputs outputs_at(const struct work *work, size_t tile, size_t panel, size_t group)
{
    const struct ash_quant_many *all = work->all;
    size_t row = tile * TILE_SIDE + group * STEPS * FETCH_ROWS;

    if (all->y == NULL || group * STEPS * FETCH_ROWS >= 2 * TILE_SIDE) return (struct outputs){0};
    return (struct outputs){all->y + row * all->y_stride + panel * QUADS_ROWS, all->y_stride};
}

static void many(const struct ash_quant_many *all)
{
    int32_t dots[4][TILE_SUMS] __attribute__((aligned(64)));
    float spare[TILE_SUMS] __attribute__((aligned(64))) = {0}, zeros[TILE_SIDE] __attribute__((aligned(64))) = {0};
    const struct work work = {
        .all = all, .groups = (all->k + ASH_QUANT_WIDE - 1) / ASH_QUANT_WIDE, .zeros = zeros, .spare = spare};
    size_t steps = (all->k + ASH_QUANT_WIDE_STEP - 1) / ASH_QUANT_WIDE_STEP;
    struct job jobs[3]; /* before, at hand and next, by turns */
    size_t done = 0;

    if (all->tiles == 0 || all->count == 0 || steps == 0) return;
    jobs[0] = job_at(&work, 0, 0, 0);
    load_first(&jobs[0]);
    for (size_t tile = 0; tile < all->tiles; tile += 2)
        for (size_t panel = 0; panel < all->count; panel += 2)
            for (size_t group = 0; group < work.groups; group++, done++) {
                const struct job *job = &jobs[done % 3], *before = &jobs[(done + 2) % 3];
                const struct outputs to = outputs_at(&work, tile, panel, group);
                struct job *next = &jobs[(done + 1) % 3];
                size_t left = steps - group * STEPS;

                *next = job_behind(&work, tile, panel, group);
                if (done > 0 && left >= STEPS) {
                    run_group(job, STEPS, before, next, &to, dots);
                } else {
                    if (done > 0) add_all(before, dots);
                    run_alone(job, left < STEPS ? left : STEPS, next, &to, dots);
                }
            }
    add_all(&jobs[(done + 2) % 3], dots);
}

const struct ash_quant_panels ash_quant_wide_amx = {.layout = ASH_QUANT_QUADS,
                                                    .block_k = ASH_QUANT_WIDE,
                                                    .few = &ash_quant_wide_vnni,
                                                    .strip_rows = TILE_SIDE,
                                                    .strip_bytes = GROUP_BYTES,
                                                    .tile_strips = 1,
                                                    .k_blocks = 2,
                                                    .expanded_panels = 2,
                                                    .pack = ash_quant_quads_pack,
                                                    .quantise = quantise,
                                                    .begin = tile_use_whole,
                                                    .end = tile_release,
                                                    .many = many,
                                                    .many_ends = true,
                                                    .untile = ash_quant_quads_untile};

#endif
