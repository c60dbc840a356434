/* Kernels of packed weights of Q8_0 for x86-64 with AMX: 16 rows of x times 16 rows of weights, one block of k, in one
 * TDPBF16PS. Integers of 8 bits are exact in bf16, and their dot over 32 k is exact in float32. TDPBSSD would take as
 * long (each block has scales of its own, so it fills half the depth of a tile) and leave a conversion to the vector
 * units, of which only one computes floats while tiles are busy. Dots go through memory, a few blocks after the tiles,
 * so that neither waits for the other. Small M, which is bound by memory, stays with VNNI. */
#if defined(__x86_64__)

#include "compute/cpu/quant/quant_panels.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/vec/amx.h"
#include "compute/cpu/quant/quant_layout_vnni.h"
#include "compute/quant.h"

#define QUANTS_BYTES (TILE_SIDE * 64)              /* of a tile */
#define BLOCK_BYTES (QUANTS_BYTES + TILE_SIDE * 4) /* with its scales after it: of x, and of expanded weights */
#define TILE_SUMS (TILE_SIDE * VNNI_ROWS)
#define BATCH 4           /* blocks of which each has a tile of dots of its own */
#define X_FACTOR 0x1p112f /* expanded weights are so much too small: see small_bf16 */

/* Of 4 k, 0 1 2 3, a tile has the pairs 0 2 and 1 3: so they come out of bytes with the fewest instructions. The order
 * within a block does not matter to an exact sum. */

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Integers of up to 8 bits as bf16, divided by X_FACTOR: a half with its mantissa cut and its exponent put where bf16
 * has its own, whose bias is 112 larger. */
INLINE __m512i small_bf16(__m512i words)
{
    __m512i halves = _mm512_castph_si512(_mm512_cvtepi16_ph(words));

    return _mm512_and_si512(_mm512_srai_epi16(halves, 3), _mm512_set1_epi16((short)0x8fff));
}

INLINE void store_row(uint8_t *to, size_t row, __m512i quants)
{
    _mm512_storeu_si512(to + row * 64, quants);
}

INLINE void expand_quants(const uint8_t *quants, uint8_t *to)
{
    UNROLL
    for (size_t k4 = 0; k4 < VNNI_K4; k4++) {
        __m512i bytes = _mm512_loadu_si512(quants + k4 * VNNI_LINE);

        store_row(to, 2 * k4, small_bf16(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8)));
        store_row(to, 2 * k4 + 1, small_bf16(_mm512_srai_epi16(bytes, 8)));
    }
}

/* Prefetch the same block of the next k of a panel: it is expanded after other panels. */
INLINE void fetch_block(const uint8_t *block, size_t block_bytes, size_t ahead_bytes)
{
    for (size_t at = 0; at < block_bytes; at += 64)
        _mm_prefetch((const char *)block + ahead_bytes + at, _MM_HINT_T1);
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded)
{
    const size_t block_bytes = ash_quant_panel_group(ASH_QUANT_LAYOUT_VNNI, ASH_Q8_0);
    size_t blocks = k / ASH_QUANT_BLOCK, ahead_bytes = blocks * block_bytes;

    (void)dtype;
    for (size_t b = 0; b < blocks; b++, expanded += BLOCK_BYTES, panel += block_bytes) {
        _mm512_storeu_ps(expanded + QUANTS_BYTES,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)panel)));
        expand_quants(vnni_block(ASH_Q8_0, panel, 0), expanded);
        fetch_block(panel, block_bytes, ahead_bytes);
    }
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* ash_quant_quantise of a block, with quants as bf16 times X_FACTOR in the order of the pairs. */
INLINE float quantise_block(const float *x, __m512i order, uint8_t *quants)
{
    const __m512 rounder = _mm512_set1_ps(ASH_F32_ROUND_MAGIC), large = _mm512_set1_ps(X_FACTOR);
    float factor, d = vnni_scale(x, ASH_QUANT_BLOCK, &factor);
    __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor));
    __m512 high = _mm512_mul_ps(_mm512_loadu_ps(x + 16), _mm512_set1_ps(factor));

    if (factor == 0.0f) { /* x may be no number */
        _mm512_storeu_si512(quants, _mm512_setzero_si512());
        return d;
    }
    low = _mm512_mul_ps(_mm512_sub_ps(_mm512_add_ps(low, rounder), rounder), large);
    high = _mm512_mul_ps(_mm512_sub_ps(_mm512_add_ps(high, rounder), rounder), large);
    _mm512_storeu_si512(quants, _mm512_permutex2var_epi16(_mm512_castps_si512(low), order, _mm512_castps_si512(high)));
    return d;
}

static void quantise(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    static const uint8_t pairs[4] = {0, 2, 1, 3};
    uint16_t upper_half[32];
    __m512i order;

    (void)micro;
    (void)micros;
    for (size_t i = 0; i < 32; i++)
        upper_half[i] = (uint16_t)(2 * (i / 4 * 4 + pairs[i % 4]) + 1);
    order = _mm512_loadu_si512(upper_half);
    for (size_t row = 0; row < TILE_SIDE; row++)
        for (size_t b = 0; b < k / ASH_QUANT_BLOCK; b++) {
            uint8_t *block = tile + b * BLOCK_BYTES, *quants = block + row * 64;
            float scale = 0.0f;

            if (rows[row] != NULL)
                scale = quantise_block(rows[row] + b * ASH_QUANT_BLOCK, order, quants);
            else
                memset(quants, 0, 64);
            memcpy(block + QUANTS_BYTES + row * sizeof(scale), &scale, sizeof(scale));
        }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* All tiles of x times all panels, in batches of blocks; a walk is at one of these batches. */
struct job {
    const uint8_t *x;             /* [tiles, blocks] */
    const uint8_t *const *panels; /* [count], each of blocks */
    size_t tiles, count, blocks;
    float *sums;
    size_t panel_sums;
};

struct walk {
    size_t tile, panel, block;
};

INLINE void walk_on(const struct job *job, struct walk *walk)
{
    walk->block += BATCH;
    if (walk->block + BATCH <= job->blocks) return;
    walk->block = 0;
    if (++walk->panel < job->count) return;
    walk->panel = 0;
    walk->tile++;
}

INLINE const uint8_t *walk_x(const struct job *job, const struct walk *walk)
{
    return job->x + (walk->tile * job->blocks + walk->block) * BLOCK_BYTES;
}

INLINE const uint8_t *walk_panel(const struct job *job, const struct walk *walk)
{
    return job->panels[walk->panel] + walk->block * BLOCK_BYTES;
}

INLINE float *walk_sums(const struct job *job, const struct walk *walk)
{
    return job->sums + walk->panel * job->panel_sums + walk->tile * TILE_SUMS;
}

/* Four rows of the dots of a block. */
INLINE void add_rows(const float *dots, const uint8_t *x, __m512 scales, size_t first, __m512 *acc)
{
    const float *x_scales = (const float *)(const void *)(x + QUANTS_BYTES);

    UNROLL
    for (size_t i = first; i < first + 4; i++)
        acc[i] = _mm512_fmadd_ps(_mm512_load_ps(dots + i * VNNI_ROWS),
                                 _mm512_mul_ps(_mm512_set1_ps(x_scales[i]), scales), acc[i]);
}

INLINE void load_sums(const float *sums, __m512 *acc)
{
    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i++)
        acc[i] = _mm512_loadu_ps(sums + i * VNNI_ROWS);
}

INLINE void store_sums(const __m512 *acc, float *sums)
{
    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i++)
        _mm512_storeu_ps(sums + i * VNNI_ROWS, acc[i]);
}

/* What a turn of the loop does; what it leaves out at both ends is known when it is compiled. */
struct turn {
    bool multiply_last, multiply; /* the last block of its batch; the first ones of the next */
    bool store_last, store;       /* dots of the batch before each */
    bool add;                     /* the batch before its own */
};

/* One block of each: a tile's dots go to memory and it multiplies another block; dots that came there three blocks ago
 * are added. Mixed finely, because a processor's out-of-order window is short. */
#define TURN_STEP(multiplies, stores, tile, left, right, x, w, add_at)                                                 \
    do {                                                                                                               \
        const uint8_t *add_x = behind_x + (add_at)*BLOCK_BYTES;                                                        \
        __m512 scales = turn.add ? _mm512_loadu_ps(behind_w + (add_at)*BLOCK_BYTES + QUANTS_BYTES) : acc[0];           \
                                                                                                                       \
        if (multiplies) TILE_LOAD(right, (w) + (tile)*BLOCK_BYTES, 64);                                                \
        if (turn.add) add_rows(dots[add_at], add_x, scales, 0, acc);                                                   \
        if (stores) TILE_STORE(tile, dots[tile], 64);                                                                  \
        if (turn.add) add_rows(dots[add_at], add_x, scales, 4, acc);                                                   \
        if (multiplies) TILE_LOAD(left, (x) + (tile)*BLOCK_BYTES, 64);                                                 \
        if (turn.add) add_rows(dots[add_at], add_x, scales, 8, acc);                                                   \
        if (multiplies) TILE_ZERO(tile);                                                                               \
        if (multiplies) TILE_MULTIPLY(tile, left, right);                                                              \
        if (turn.add) add_rows(dots[add_at], add_x, scales, 12, acc);                                                  \
    } while (0)

/* A turn begins with a tile that is one behind the others, so that all dots fit four tiles of memory: stores that are
 * 4 KiB from a load would hold it up. */
INLINE void run_turn(const struct job *job, struct turn turn, struct walk *ahead, struct walk *behind,
                     float (*dots)[TILE_SUMS], __m512 *acc)
{
    const uint8_t *last_x = walk_x(job, ahead), *last_w = walk_panel(job, ahead), *x, *w;
    const uint8_t *behind_x = walk_x(job, behind), *behind_w = walk_panel(job, behind);

    if (turn.add && behind->block == 0) load_sums(walk_sums(job, behind), acc);
    TURN_STEP(turn.multiply_last, turn.store_last, 3, 5, 7, last_x, last_w, 0);
    if (turn.multiply) walk_on(job, ahead);
    x = walk_x(job, ahead);
    w = walk_panel(job, ahead);
    TURN_STEP(turn.multiply, turn.store, 0, 4, 6, x, w, 1);
    TURN_STEP(turn.multiply, turn.store, 1, 5, 7, x, w, 2);
    TURN_STEP(turn.multiply, turn.store, 2, 4, 6, x, w, 3);
    if (turn.add && behind->block + 2 * BATCH > job->blocks) store_sums(acc, walk_sums(job, behind));
    if (turn.add) walk_on(job, behind);
}

/* The first three blocks of all. */
INLINE void run_start(const struct job *job)
{
    TILE_LOAD(6, job->panels[0], 64);
    TILE_LOAD(4, job->x, 64);
    TILE_ZERO(0);
    TILE_MULTIPLY(0, 4, 6);
    TILE_LOAD(7, job->panels[0] + BLOCK_BYTES, 64);
    TILE_LOAD(5, job->x + BLOCK_BYTES, 64);
    TILE_ZERO(1);
    TILE_MULTIPLY(1, 5, 7);
    TILE_LOAD(6, job->panels[0] + 2 * BLOCK_BYTES, 64);
    TILE_LOAD(4, job->x + 2 * BLOCK_BYTES, 64);
    TILE_ZERO(2);
    TILE_MULTIPLY(2, 4, 6);
}

static void run_batches(const struct job *job)
{
    const struct turn first = {.multiply_last = true, .multiply = true, .store = true};
    const struct turn only = {.multiply_last = true, .store = true};
    const struct turn any = {.multiply_last = true, .multiply = true, .store_last = true, .store = true, .add = true};
    const struct turn next_to_last = {.multiply_last = true, .store_last = true, .store = true, .add = true};
    const struct turn last = {.store_last = true, .add = true};
    float dots[BATCH][TILE_SUMS] __attribute__((aligned(64)));
    size_t batches = job->tiles * job->count * (job->blocks / BATCH);
    struct walk ahead = {0}, behind = {0};
    __m512 acc[TILE_SIDE];

    if (batches == 0) return;
    UNROLL
    for (size_t i = 0; i < TILE_SIDE; i++)
        acc[i] = _mm512_setzero_ps();
    run_start(job);
    if (batches > 1)
        run_turn(job, first, &ahead, &behind, dots, acc);
    else
        run_turn(job, only, &ahead, &behind, dots, acc);
    for (size_t batch = 1; batch + 1 < batches; batch++)
        run_turn(job, any, &ahead, &behind, dots, acc);
    if (batches > 1) run_turn(job, next_to_last, &ahead, &behind, dots, acc);
    run_turn(job, last, &ahead, &behind, dots, acc);
}

/* The blocks after the last whole batch, one at a time. */
static void run_rest(const struct job *job, size_t tile, size_t panel)
{
    float dots[TILE_SUMS] __attribute__((aligned(64))), *sums = job->sums + panel * job->panel_sums + tile * TILE_SUMS;
    __m512 acc[TILE_SIDE];

    load_sums(sums, acc);
    for (size_t b = job->blocks / BATCH * BATCH; b < job->blocks; b++) {
        const uint8_t *x = job->x + (tile * job->blocks + b) * BLOCK_BYTES;
        const uint8_t *w = job->panels[panel] + b * BLOCK_BYTES;
        __m512 scales = _mm512_loadu_ps(w + QUANTS_BYTES);

        TILE_LOAD(6, w, 64);
        TILE_LOAD(4, x, 64);
        TILE_ZERO(0);
        TILE_MULTIPLY(0, 4, 6);
        TILE_STORE(0, dots, 64);
        UNROLL
        for (size_t i = 0; i < TILE_SIDE; i += 4)
            add_rows(dots, x, scales, i, acc);
    }
    store_sums(acc, sums);
}

static void large_m(const struct ash_quant_large_m *all)
{
    size_t blocks = all->k / ASH_QUANT_BLOCK;
    const struct job job = {.x = all->x,
                            .panels = all->panels,
                            .tiles = all->tiles,
                            .count = all->count,
                            .blocks = blocks,
                            .sums = all->sums,
                            .panel_sums = all->panel_sums};

    run_batches(&job);
    for (size_t tile = 0; tile < job.tiles && blocks % BATCH != 0; tile++)
        for (size_t panel = 0; panel < job.count; panel++)
            run_rest(&job, tile, panel);
}

ASH_QUANT_CHECK_PANELS(TILE_SIDE, 1, VNNI_SMALL_M_MAX); /* which the vnni kernels take */

const struct ash_quant_panels ash_quant_q8_amx = {.layout = ASH_QUANT_LAYOUT_VNNI,
                                                  .small_m = &ash_quant_q8_vnni,
                                                  .micro_rows = TILE_SIDE,
                                                  .micro_bytes = BLOCK_BYTES,
                                                  .tile_micros = 1,
                                                  .small_m_max = VNNI_SMALL_M_MAX,
                                                  .expanded_bytes = BLOCK_BYTES,
                                                  .k_groups = 8,
                                                  .expanded_panels = 2,
                                                  .pack = ash_quant_vnni_pack,
                                                  .quantise = quantise,
                                                  .expand = expand,
                                                  .begin = tile_use_whole,
                                                  .end = tile_release,
                                                  .large_m = large_m,
                                                  .untile = ash_quant_vnni_untile};

#endif
