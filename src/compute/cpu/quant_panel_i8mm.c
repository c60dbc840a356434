/* Kernels of packed Q4_0 and Q8_W for arm64 with SMMLA (2 x 8 times 8 x 2), for several rows of x; quant_pack.h has the
 * layout (pairs), tile_smmla.h the tiles of many rows, quant_one_i8mm.c what is done for a single row, and
 * quant_q8_i8mm.c Q8_0.
 *
 * A tile is 6 pairs of rows of x by the 4 pairs of rows of a panel; what is left at the end has fewer strips, in plain
 * vectors. For each block and pair of pairs it takes 4 SMMLA; floats come once per group. Panels of Q4_0 are expanded
 * (quant_expand.h), to panels of Q8_W or to numbers and steps: then a tile, of 3 by 4, takes a multiply-add of whole
 * numbers more for each block. */
#if defined(__aarch64__)

#include "compute/cpu/quant_expand.h"
#include "compute/cpu/quant_pairs.h"
#include "compute/cpu/tile_smmla.h"

#define REST_STRIPS 3                          /* of a tile in plain vectors */
#define PACKED_STRIPS 4                        /* the same of packed Q4_0 */
#define STRIP_BYTES (VEC + GROUP_CHUNKS * VEC) /* of a group: scales of the two rows, each twice; then the chunks */

/* ---- quantising x ------------------------------------------------------------------------------------------------ */

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, tile += strips * STRIP_BYTES)
        quantise_strip(rows, done, group_k(k - done), strip, strips, tile);
}

/* ---- Q8_W, and Q4_0 that became it ------------------------------------------------------------------------------- */

/* Strips of x and pairs of a panel that are multiplied together. */
struct part {
    size_t first, count; /* strips */
    size_t pair, pairs;
};

/* Of the rows of x of some strips, from strip `first` of a tile on, the sums with a group of bytes, as whole numbers.
 * Breadth first: neighbours in the program do not wait for each other. */
INLINE void rest_sums(const int8_t *w, const uint8_t *x, size_t strips, const struct part *part, size_t k,
                      int32x4_t total[][PAIRS])
{
    const int8_t *left = (const int8_t *)x + (strips + part->first) * VEC;

    UNROLL
    for (size_t i = 0; i < part->count * PAIRS; i++)
        total[i / PAIRS][i % PAIRS] = vdupq_n_s32(0);
    for (size_t chunk = 0; chunk < k / ASH_QUANT_BLOCK * CHUNKS; chunk++, w += PAIRS * VEC, left += strips * VEC) {
        UNROLL
        for (size_t p = 0; p < PAIRS; p++) {
            UNROLL
            for (size_t s = 0; s < part->count; s++)
                total[s][p] = vmmlaq_s32(total[s][p], vld1q_s8(left + s * VEC), vld1q_s8(w + p * VEC));
        }
    }
}

/* Those sums as floats, added to sums: for each strip and pair of the panel, (row 0 of x) x (w0, w1), (row 1 of x) x
 * (w0, w1). */
INLINE void add_floats(const float32x4_t *units, const uint8_t *x, const struct part *part, int32x4_t total[][PAIRS],
                       float *sums)
{
    UNROLL
    for (size_t s = 0; s < part->count; s++) {
        float32x4_t dx = vld1q_f32((const float *)(const void *)x + 4 * (part->first + s));

        UNROLL
        for (size_t p = 0; p < part->pairs; p++) {
            float32x4_t scale = vmulq_f32(dx, units[part->pair + p]);
            float *at = sums + 4 * ((part->first + s) * PAIRS + part->pair + p);

            vst1q_f32(at, vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(total[s][p]), scale));
        }
    }
}

/* k of a panel of Q8_W times so many strips from `first` on. */
INLINE void add_rest(const uint8_t *panel, const uint8_t *x, size_t strips, size_t first, size_t count, size_t k,
                     float *sums)
{
    const struct part part = {.first = first, .count = count, .pairs = PAIRS};

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, x += strips * STRIP_BYTES) {
        int32x4_t total[REST_STRIPS][PAIRS];
        float32x4_t units[PAIRS];

        rest_sums((const int8_t *)group_numbers(ASH_Q8_W, panel), x, strips, &part, group_k(k - done), total);
        panel_units(ASH_Q8_W, panel, units);
        add_floats(units, x, &part, total, sums);
        panel += ash_quant_panel_group(ASH_QUANT_PAIRS, ASH_Q8_W);
    }
}

/* Strips that are no whole tile. */
static void add_rests(const uint8_t *panel, const uint8_t *x, size_t strips, size_t k, float *sums)
{
    size_t first = 0;

    for (; first + 3 <= strips; first += 3)
        add_rest(panel, x, strips, first, 3, k, sums);
    if (strips - first == 2)
        add_rest(panel, x, strips, first, 2, k, sums);
    else if (strips - first == 1)
        add_rest(panel, x, strips, first, 1, k, sums);
}

static void add_wide(const uint8_t *panel, const uint8_t *x, size_t strips, size_t k, float *sums)
{
    size_t whole = k / ASH_QUANT_GROUP, steps = (k % ASH_QUANT_GROUP + ASH_QUANT_PANEL_STEP - 1) / ASH_QUANT_PANEL_STEP;

    if (strips < WIDE_STRIPS) {
        add_rests(panel, x, strips, k, sums);
        return;
    }
    if (whole > 0) tile_smmla_wide(whole, ASH_QUANT_GROUP / ASH_QUANT_PANEL_STEP, x, panel, sums);
    if (steps > 0) /* what fills a group up is 0 */
        tile_smmla_wide(1, steps, x + whole * WIDE_STRIPS * STRIP_BYTES,
                        panel + whole * ash_quant_panel_group(ASH_QUANT_PAIRS, ASH_Q8_W), sums);
}

/* ---- Q4_0 as it is packed ---------------------------------------------------------------------------------------- */

/* A group as it is packed, times a part, as whole numbers: nothing is expanded that is used only once or twice. */
INLINE void packed_sums(const uint8_t *group, const uint8_t *x, size_t strips, const struct part *part, size_t k,
                        int32x4_t total[][PAIRS])
{
    const size_t pairs = part->pairs, sums = part->count * pairs;
    const uint8_t *numbers = group_numbers(ASH_Q4_0, group) + part->pair * VEC;
    const int8_t *left = (const int8_t *)x + (strips + part->first) * VEC;

    UNROLL
    for (size_t i = 0; i < sums; i++)
        total[i / pairs][i % pairs] = vdupq_n_s32(0);
    for (size_t block = 0; block < k / ASH_QUANT_BLOCK; block++) {
        int32x4_t dots[PACKED_STRIPS][PAIRS], steps[PAIRS];

        UNROLL
        for (size_t i = 0; i < sums; i++)
            dots[i / pairs][i % pairs] = zeros();
        UNROLL
        for (size_t i = 0; i < CHUNKS / 2 * pairs; i++) {
            const int8_t *chunk = left + i / pairs * strips * VEC;
            int8x16_t low, high;

            open_nibbles(numbers + (i / pairs * PAIRS + i % pairs) * VEC, &low, &high);
            UNROLL
            for (size_t s = 0; s < part->count; s++)
                dots[s][i % pairs] = vmmlaq_s32(dots[s][i % pairs], vld1q_s8(chunk + s * VEC), low);
            UNROLL
            for (size_t s = 0; s < part->count; s++)
                dots[s][i % pairs] =
                    vmmlaq_s32(dots[s][i % pairs], vld1q_s8(chunk + (CHUNKS / 2 * strips + s) * VEC), high);
        }
        pair_steps(eight_steps(group, block), steps);
        UNROLL
        for (size_t i = 0; i < sums; i++)
            total[i / pairs][i % pairs] =
                vmlaq_s32(total[i / pairs][i % pairs], dots[i / pairs][i % pairs], steps[part->pair + i % pairs]);
        numbers += CHUNKS / 2 * PAIRS * VEC;
        left += CHUNKS * strips * VEC;
    }
}

/* k of a panel times so many strips from `first` on, `pairs` pairs at a time. */
INLINE void add_packed_strips(const uint8_t *panel, const uint8_t *x, size_t strips, size_t first, size_t count,
                              size_t pairs, size_t k, float *sums)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, x += strips * STRIP_BYTES) {
        float32x4_t units[PAIRS];

        panel_units(ASH_Q4_0, panel, units);
        UNROLL
        for (size_t pair = 0; pair < PAIRS; pair += pairs) {
            const struct part part = {.first = first, .count = count, .pair = pair, .pairs = pairs};
            int32x4_t total[PACKED_STRIPS][PAIRS];

            packed_sums(panel, x, strips, &part, group_k(k - done), total);
            add_floats(units, x, &part, total, sums);
        }
        panel += ash_quant_panel_group(ASH_QUANT_PAIRS, ASH_Q4_0);
    }
}

/* k of a panel, for few rows and for what no tile in assembly takes. Four strips leave registers for two pairs. */
static void add_packed(const uint8_t *panel, const uint8_t *x, size_t strips, size_t k, float *sums)
{
    size_t first = 0;

    for (; first + 4 <= strips; first += 4)
        add_packed_strips(panel, x, strips, first, 4, 2, k, sums);
    if (strips - first == 3)
        add_packed_strips(panel, x, strips, first, 3, PAIRS, k, sums);
    else if (strips - first == 2)
        add_packed_strips(panel, x, strips, first, 2, PAIRS, k, sums);
    else if (strips - first == 1)
        add_packed_strips(panel, x, strips, first, 1, PAIRS, k, sums);
}

/* ---- many rows of Q4_0 ------------------------------------------------------------------------------------------- */

/* k of groups that were expanded with steps: whole ones. What is left is taken from the panel. */
static void add_steps(const uint8_t *groups, const uint8_t *panel, const uint8_t *x, size_t k, float *sums)
{
    size_t whole = k / ASH_QUANT_GROUP;

    for (size_t first = 0; whole > 0 && first < WIDE_STRIPS; first += STEPS_STRIPS)
        tile_smmla_steps(whole, x, WIDE_STRIPS, first, groups, sums);
    add_packed(panel + whole * ash_quant_panel_group(ASH_QUANT_PAIRS, ASH_Q4_0), x + whole * WIDE_STRIPS * STRIP_BYTES,
               WIDE_STRIPS, k % ASH_QUANT_GROUP, sums);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void tile_q4(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x,
                    size_t strips, size_t k, float *sums)
{
    const struct expanded *made = (const struct expanded *)(const void *)expanded;

    (void)dtype;
    if (made != NULL && made->wide)
        add_wide(made->groups, x, strips, k, sums);
    else if (made != NULL && strips == WIDE_STRIPS)
        add_steps(made->groups, panel, x, k, sums);
    else
        add_packed(panel, x, strips, k, sums);
}

static void tile_q8w(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x,
                     size_t strips, size_t k, float *sums)
{
    (void)dtype;
    (void)expanded;
    add_wide(panel, x, strips, k, sums);
}

void ash_quant_pairs_untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m += 2, sums += 4 * PAIRS, y += 2 * y_stride)
        for (size_t p = 0; p < PAIRS; p += 2) {
            float64x2_t left = vreinterpretq_f64_f32(vld1q_f32(sums + 4 * p));
            float64x2_t right = vreinterpretq_f64_f32(vld1q_f32(sums + 4 * p + 4));

            vst1q_f32(y + 2 * p, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
            if (m + 1 < rows) vst1q_f32(y + y_stride + 2 * p, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
        }
}

static float steps(const uint8_t *blocks, size_t count, int32_t *out)
{
    struct steps eight;
    float unit = steps_load(blocks, count, &eight);

    vst1q_s32(out, eight.four[0]);
    vst1q_s32(out + 4, eight.four[1]);
    return unit;
}

const struct ash_quant_panels ash_quant_q4_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                   .strip_rows = 2,
                                                   .strip_bytes = STRIP_BYTES,
                                                   .tile_strips = WIDE_STRIPS,
                                                   .expanded_bytes = EXPANDED_BYTES,
                                                   .k_groups = 4,
                                                   .expanded_panels = 1,
                                                   .one_bytes = ONE_BYTES(ASH_Q4_0),
                                                   .steps = steps,
                                                   .quantise = quantise,
                                                   .expand = expand,
                                                   .tile = tile_q4,
                                                   .untile = ash_quant_pairs_untile,
                                                   .quantise_one = ash_quant_pairs_quantise_one,
                                                   .one = ash_quant_pairs_one};

const struct ash_quant_panels ash_quant_q8w_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                    .strip_rows = 2,
                                                    .strip_bytes = STRIP_BYTES,
                                                    .tile_strips = WIDE_STRIPS,
                                                    .k_groups = 4,
                                                    .expanded_panels = 1,
                                                    .one_bytes = ONE_BYTES(ASH_Q8_W),
                                                    .quantise = quantise,
                                                    .tile = tile_q8w,
                                                    .untile = ash_quant_pairs_untile,
                                                    .quantise_one = ash_quant_pairs_quantise_one,
                                                    .one = ash_quant_pairs_one};

#endif
