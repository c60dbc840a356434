/* Kernels of packed weights of Q4_0 and Q8_W for x86-64 with AMX: 32 rows of x times two tiles of weights in four tiles
 * of sums, 16 TDPBSSD for a group. Two tiles of weights are two panels where a quant has 8 bits (Q8_W, and Q4_0 with
 * small sub-scales), or both bytes of one (other Q4_0: quant_split.h). The floats (a conversion, a product of scales
 * and a fused multiply-add for 16 outputs of a group) take less time than that, and overlap it: those of the previous
 * group are computed during this one. Dots go through memory. Small M, which is bound by memory, stays with VNNI. */
#if defined(__x86_64__)

#include "compute/cpu/quant/quant_panels.h"

#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/vec/amx.h"
#include "compute/cpu/quant/quant_layout_vnni.h"
#include "compute/cpu/quant/quant_split.h"

#define SLICES (ASH_QUANT_GROUP / ASH_QUANT_PANEL_STEP) /* tiles of k in a group */
#define SLICE_BYTES (TILE_SIDE * 64)
#define SCALES_BYTES (TILE_SIDE * sizeof(float))
#define GROUP_BYTES (SCALES_BYTES + SLICES * SLICE_BYTES) /* of x, as of a panel of Q8_W: scales first */
#define TILE_SUMS (TILE_SIDE * VNNI_ROWS)
#define FETCH_ROWS 4 /* of outputs, that are prefetched during a slice */
#define Q4_PANELS 2  /* that are expanded together */
#define PARTS 16     /* pieces of the dots of a group: two rows of a tile of x each, with all panels */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* row NULL: zeros. */
static void quantise_row(const float *row, size_t k, size_t at, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, tile += GROUP_BYTES) {
        size_t count = vnni_group_k(ASH_QUANT_GROUP, k - done);
        uint8_t *quants = tile + SCALES_BYTES + at * ASH_QUANT_PANEL_STEP;
        float factor = 0.0f, scale = row != NULL ? vnni_scale(row + done, count, &factor) : 0.0f;

        memcpy(tile + at * sizeof(scale), &scale, sizeof(scale));
        for (size_t i = 0; i < count; i += ASH_QUANT_PANEL_STEP, quants += SLICE_BYTES) {
            size_t part = ash_min(count - i, ASH_QUANT_PANEL_STEP);

            vnni_quants(row != NULL ? row + done + i : NULL, part, factor, quants);
            memset(quants + part, 0, ASH_QUANT_PANEL_STEP - part);
        }
    }
}

static void quantise(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    (void)micro;
    (void)micros;
    for (size_t i = 0; i < TILE_SIDE; i++)
        quantise_row(rows[i], k, i, tile);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* What follows is compiled for each `shift`: by how much high bytes count more than low ones, or WHOLE. */
#define WHOLE 0

/* Panels of a job. */
INLINE size_t job_panels(unsigned shift)
{
    return shift == WHOLE ? 2 : 1;
}

/* Sums of a tile and a panel, row by row. */
struct place {
    float *at;
    size_t stride;
};

/* One group of two tiles of x times two tiles of weights. */
struct job {
    const uint8_t *x[2], *w[2]; /* quants */
    const float *x_scales[2], *group_scales[2];
    struct place from[4], to[4]; /* of the first tile with each panel, then of the second */
};

/* Where sums of a job's tiles will go; y NULL: it is not known. */
struct outputs {
    const float *y;
    size_t stride;
};

/* A row of the dots of a tile of x: with one of two panels, or with both bytes of the only one. */
INLINE __m512i dots_row(unsigned shift, int32_t (*dots)[TILE_SUMS], size_t panel, size_t row)
{
    if (shift == WHOLE) return _mm512_load_si512(dots[panel] + row * VNNI_ROWS);
    return _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(dots[0] + row * VNNI_ROWS), shift),
                            _mm512_load_si512(dots[1] + row * VNNI_ROWS));
}

/* Two rows of the dots of a group. */
INLINE void add_part(unsigned shift, const struct job *job, const __m512 *group_scales, int32_t (*dots)[TILE_SUMS],
                     size_t part)
{
    size_t tile = part / (PARTS / 2), first = part % (PARTS / 2) * 2;

    UNROLL
    for (size_t i = first; i < first + 2; i++) {
        __m512 x_scale = _mm512_set1_ps(job->x_scales[tile][i]);

        UNROLL
        for (size_t panel = 0; panel < job_panels(shift); panel++) {
            __m512 dot = _mm512_cvtepi32_ps(dots_row(shift, dots + 2 * tile, panel, i));
            const struct place *from = &job->from[tile * job_panels(shift) + panel];
            const struct place *to = &job->to[tile * job_panels(shift) + panel];
            __m512 sums = _mm512_load_ps(from->at + i * from->stride);

            _mm512_storeu_ps(to->at + i * to->stride,
                             _mm512_fmadd_ps(dot, _mm512_mul_ps(x_scale, group_scales[panel]), sums));
        }
    }
}

INLINE void load_group_scales(unsigned shift, const struct job *job, __m512 *group_scales)
{
    UNROLL
    for (size_t panel = 0; panel < job_panels(shift); panel++)
        group_scales[panel] = _mm512_load_ps(job->group_scales[panel]);
}

INLINE void add_all(unsigned shift, const struct job *job, int32_t (*dots)[TILE_SUMS])
{
    __m512 group_scales[2];

    load_group_scales(shift, job, group_scales);
    for (size_t part = 0; part < PARTS; part++)
        add_part(shift, job, group_scales, dots, part);
}

/* The operands of the first slice of all. */
INLINE void load_first(const struct job *job)
{
    TILE_LOAD_PASSING(4, job->x[0], 64);
    TILE_LOAD(6, job->w[0], 64);
    TILE_LOAD_PASSING(5, job->x[1], 64);
    TILE_LOAD(7, job->w[1], 64);
}

/* One of the four products of a slice, with a quarter of what overlaps it: floats of the previous group, and after the
 * last slice the store of dots. The last slice's floats come with its first two products: their dots are overwritten
 * next. */
#define RUN_PRODUCT(sums, left, right)                                                                                 \
    do {                                                                                                               \
        const bool last = slice + 1 == slices;                                                                         \
                                                                                                                       \
        if (shift != WHOLE && (right) == 7)                                                                            \
            TILE_MULTIPLY_INT8_UINT8(sums, left, right);                                                               \
        else                                                                                                           \
            TILE_MULTIPLY_INT8(sums, left, right);                                                                     \
        if (before != NULL && !last) add_part(shift, before, group_scales, dots, 4 * slice + (sums));                  \
        if (before != NULL && last && (sums) < 2) {                                                                    \
            add_part(shift, before, group_scales, dots, 4 * slice + 2 * (sums));                                       \
            add_part(shift, before, group_scales, dots, 4 * slice + 2 * (sums) + 1);                                   \
        }                                                                                                              \
        if (last) TILE_STORE(sums, dots[sums], 64);                                                                    \
    } while (0)

/* Fetch some of the rows that the sums will go to: waiting for these lines took a quarter of a product's time. */
INLINE void fetch_rows(unsigned shift, const struct outputs *to, size_t first, size_t count)
{
    for (size_t row = first; to->y != NULL && row < first + count; row++) {
        __asm__ volatile("prefetchw (%0)" : : "r"(to->y + row * to->stride));
        if (shift == WHOLE) __asm__ volatile("prefetchw 64(%0)" : : "r"(to->y + row * to->stride));
    }
}

/* The slices of a group; where there are all four, the floats of the previous group overlap them. Each operand is
 * loaded again, for the next slice or job, as soon as its last product has been issued: a tile that comes out of L2
 * takes longer than two products. Tiles of x bypass L1, and panels stay there. */
INLINE void run_group(unsigned shift, const struct job *job, size_t slices, const struct job *before,
                      const struct job *next, const struct outputs *to, int32_t (*dots)[TILE_SUMS])
{
    __m512 group_scales[2];

    if (before != NULL) load_group_scales(shift, before, group_scales);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    UNROLL
    for (size_t slice = 0; slice < slices; slice++) {
        const struct job *from = slice + 1 < slices ? job : next;
        size_t at = slice + 1 < slices ? (slice + 1) * SLICE_BYTES : 0;

        fetch_rows(shift, to, slice * FETCH_ROWS, FETCH_ROWS);
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

/* All tiles of x times all panels. */
struct work {
    const struct ash_quant_large_m *all;
    size_t groups;
    float *zeros; /* where sums begin */
    float *spare; /* where sums of padding go: a tile or panel that completes a pair */
};

/* Where the sums of a tile and a panel lie before a group, or after it. */
INLINE struct place place_of(const struct work *work, size_t tile, size_t panel, size_t group, bool after)
{
    const struct ash_quant_large_m *all = work->all;

    if (tile >= all->tiles || panel >= all->count) return (struct place){work->spare, VNNI_ROWS};
    if (!after && all->first && group == 0) return (struct place){work->zeros, 0};
    if (after && group + 1 == work->groups && all->y != NULL && tile < all->y_tiles)
        return (struct place){all->y + tile * TILE_SIDE * all->y_stride + panel * VNNI_ROWS, all->y_stride};
    return (struct place){all->sums + panel * all->panel_sums + tile * TILE_SUMS, VNNI_ROWS};
}

/* The operands of a job; where a pair lacks its second one, the first is repeated. */
INLINE void job_operands(unsigned shift, const struct work *work, size_t tile, size_t panel, size_t group,
                         struct job *job)
{
    const struct ash_quant_large_m *all = work->all;

    for (size_t i = 0; i < 2; i++) {
        size_t t = tile + i < all->tiles ? tile + i : tile, p = panel + i < all->count ? panel + i : panel;
        const uint8_t *x = all->x + (t * work->groups + group) * GROUP_BYTES;
        const uint8_t *w =
            shift == WHOLE ? all->panels[p] + group * GROUP_BYTES : all->panels[panel] + group * SPLIT_BYTES;

        job->x_scales[i] = (const float *)(const void *)x;
        job->group_scales[i] = (const float *)(const void *)w;
        job->x[i] = x + SCALES_BYTES;
        job->w[i] = w + SCALES_BYTES + (shift == WHOLE ? 0 : i * SPLIT_QUANTS);
    }
}

INLINE struct job job_at(unsigned shift, const struct work *work, size_t tile, size_t panel, size_t group)
{
    const size_t panels = job_panels(shift);
    struct job job;

    job_operands(shift, work, tile, panel, group, &job);
    for (size_t i = 0; i < 2 * panels; i++) {
        job.from[i] = place_of(work, tile + i / panels, panel + i % panels, group, false);
        job.to[i] = place_of(work, tile + i / panels, panel + i % panels, group, true);
    }
    return job;
}

/* The job after (tile, panel, group); at the end the same again, whose operands are loaded and not used. */
INLINE struct job job_behind(unsigned shift, const struct work *work, size_t tile, size_t panel, size_t group)
{
    if (group + 1 < work->groups) return job_at(shift, work, tile, panel, group + 1);
    if (panel + job_panels(shift) < work->all->count) return job_at(shift, work, tile, panel + job_panels(shift), 0);
    if (tile + 2 < work->all->tiles) return job_at(shift, work, tile + 2, 0, 0);
    return job_at(shift, work, tile, panel, group);
}

/* The rows of a job's two tiles are fetched by the groups in turn. */
INLINE struct outputs outputs_at(const struct work *work, size_t tile, size_t panel, size_t group)
{
    const struct ash_quant_large_m *all = work->all;
    size_t row = tile * TILE_SIDE + group * SLICES * FETCH_ROWS;

    if (all->y == NULL || group * SLICES * FETCH_ROWS >= 2 * TILE_SIDE) return (struct outputs){0};
    return (struct outputs){all->y + row * all->y_stride + panel * VNNI_ROWS, all->y_stride};
}

INLINE void run_large_m(unsigned shift, const struct ash_quant_large_m *all)
{
    int32_t dots[4][TILE_SUMS] __attribute__((aligned(64)));
    float spare[TILE_SUMS] __attribute__((aligned(64))) = {0}, zeros[TILE_SIDE] __attribute__((aligned(64))) = {0};
    const struct work work = {
        .all = all, .groups = ash_div_up(all->k, ASH_QUANT_GROUP), .zeros = zeros, .spare = spare};
    size_t slices = ash_div_up(all->k, ASH_QUANT_PANEL_STEP);
    struct job jobs[3]; /* previous, current and next, rotating */
    size_t done = 0;

    if (all->tiles == 0 || all->count == 0 || slices == 0) return;
    jobs[0] = job_at(shift, &work, 0, 0, 0);
    load_first(&jobs[0]);
    for (size_t tile = 0; tile < all->tiles; tile += 2)
        for (size_t panel = 0; panel < all->count; panel += job_panels(shift))
            for (size_t group = 0; group < work.groups; group++, done++) {
                const struct job *job = &jobs[done % 3], *before = &jobs[(done + 2) % 3];
                const struct outputs to = outputs_at(&work, tile, panel, group);
                struct job *next = &jobs[(done + 1) % 3];
                size_t left = slices - group * SLICES;

                *next = job_behind(shift, &work, tile, panel, group);
                if (done > 0 && left >= SLICES) {
                    run_group(shift, job, SLICES, before, next, &to, dots);
                } else { /* nothing overlaps the first group of all, nor a last one that is shorter */
                    if (done > 0) add_all(shift, before, dots);
                    run_group(shift, job, left < SLICES ? left : SLICES, NULL, next, &to, dots);
                }
            }
    add_all(shift, &jobs[(done + 2) % 3], dots);
}

static void large_m_whole(const struct ash_quant_large_m *all)
{
    run_large_m(WHOLE, all);
}

static void large_m_split(const struct ash_quant_large_m *all)
{
    run_large_m(SPLIT_SHIFT, all);
}

/* Panels as split() made them: together, if all are as those of Q8_W, else one at a time. */
static void large_m_q4(const struct ash_quant_large_m *all)
{
    const uint8_t *panels[Q4_PANELS];
    struct ash_quant_large_m part = *all;
    bool whole = true;

    ash_assert(all->count <= Q4_PANELS);
    for (size_t i = 0; i < all->count; i++) {
        panels[i] = all->panels[i] + VNNI_LINE;
        whole = whole && split_is_whole(all->panels[i]);
    }
    part.panels = panels;
    if (whole) {
        large_m_whole(&part);
        return;
    }
    part.count = 1;
    for (size_t i = 0; i < all->count; i++, part.panels++, part.sums += all->panel_sums) {
        (split_is_whole(all->panels[i]) ? large_m_whole : large_m_split)(&part);
        if (part.y != NULL) part.y += VNNI_ROWS;
    }
}

ASH_QUANT_CHECK_PANELS(TILE_SIDE, 1, VNNI_SMALL_M_MAX); /* which the vnni kernels take */

const struct ash_quant_panels ash_quant_q8w_amx = {.layout = ASH_QUANT_LAYOUT_VNNI,
                                                   .small_m = &ash_quant_wide_vnni,
                                                   .micro_rows = TILE_SIDE,
                                                   .micro_bytes = GROUP_BYTES,
                                                   .tile_micros = 1,
                                                   .small_m_max = VNNI_SMALL_M_MAX,
                                                   .k_groups = 2,
                                                   .expanded_panels = 2,
                                                   .pack = ash_quant_vnni_pack,
                                                   .quantise = quantise,
                                                   .begin = tile_use_whole,
                                                   .end = tile_release,
                                                   .large_m = large_m_whole,
                                                   .large_m_writes_y = true,
                                                   .untile = ash_quant_vnni_untile};

const struct ash_quant_panels ash_quant_q4_amx = {.layout = ASH_QUANT_LAYOUT_VNNI,
                                                  .small_m = &ash_quant_wide_vnni,
                                                  .micro_rows = TILE_SIDE,
                                                  .micro_bytes = GROUP_BYTES,
                                                  .tile_micros = 1,
                                                  .small_m_max = VNNI_SMALL_M_MAX,
                                                  .expanded_bytes = VNNI_LINE + SPLIT_BYTES,
                                                  .k_groups = 2,
                                                  .expanded_panels = Q4_PANELS,
                                                  .pack = ash_quant_vnni_pack,
                                                  .quantise = quantise,
                                                  .expand = split,
                                                  .begin = tile_use_whole,
                                                  .end = tile_release,
                                                  .large_m = large_m_q4,
                                                  .large_m_writes_y = true,
                                                  .untile = ash_quant_vnni_untile};

#endif
