/* Kernels of packed Q4_0 and Q8_W for arm64 with SMMLA (2 x 8 times 8 x 2), for two and more rows of x. quant_pack.h
 * has the layout (i8mm), tile_smmla.h the tiles of large M, quant_gemv_i8mm.c GEMV, and quant_q8_i8mm.c Q8_0.
 *
 * A tile is 6 micro-panels (pairs of rows) of x by the 4 pairs of rows of a panel, in assembly. Fewer micro-panels, and
 * panels that come from memory, are multiplied in plain vectors. For each block and pair of pairs it takes 4 SMMLA;
 * floats come once per group. Panels of Q4_0 are expanded (quant_expand.h): to panels of Q8_W, or to quants and
 * sub-scales, where a tile, of 3 by 4, takes one more integer multiply-add for each block. For small M they are read as
 * they are packed (quant_packed_q4.h). */
#if defined(__aarch64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_packed_q4.h"
#include "compute/cpu/quant/tile_smmla.h"

#define REST_AHEAD 1024 /* bytes of a panel that are on their way to L1 */

/* ---- quantising x ------------------------------------------------------------------------------------------------ */

static void quantise(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, tile += micros * GROUP_MICRO_BYTES)
        quantise_micro(rows, done, group_k(k - done), micro, micros, tile);
}

/* ---- Q8_W, and Q4_0 that became it ------------------------------------------------------------------------------- */

/* The integer dots of all micro-panels with a group of bytes. Breadth first, and where micro-panels are few in two sets
 * of sums: neighbouring instructions do not depend on each other. */
INLINE void rest_sums(const int8_t *w, const uint8_t *x, size_t micros, size_t k, int32x4_t total[][PAIRS])
{
    const size_t sets = micros <= 2 ? 2 : 1;
    const int8_t *left = (const int8_t *)x + micros * VEC;
    int32x4_t sums[2][WIDE_MICROS][PAIRS];

    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        UNROLL
        for (size_t s = 0; s < micros; s++)
            sums[0][s][p] = sums[1][s][p] = zeros();
    }
    for (size_t chunk = 0; chunk < k / ASH_QUANT_BLOCK * CHUNKS; chunk += sets) {
        UNROLL
        for (size_t set = 0; set < sets; set++, w += PAIRS * VEC, left += micros * VEC) {
            __builtin_prefetch(w + REST_AHEAD);
            UNROLL
            for (size_t p = 0; p < PAIRS; p++) {
                UNROLL
                for (size_t s = 0; s < micros; s++)
                    sums[set][s][p] = vmmlaq_s32(sums[set][s][p], vld1q_s8(left + s * VEC), vld1q_s8(w + p * VEC));
            }
        }
    }
    UNROLL
    for (size_t p = 0; p < PAIRS; p++) {
        UNROLL
        for (size_t s = 0; s < micros; s++)
            total[s][p] = sets == 2 ? vaddq_s32(sums[0][s][p], sums[1][s][p]) : sums[0][s][p];
    }
}

/* k of a panel of Q8_W times some micro-panels. */
INLINE void add_micros(const uint8_t *panel, const uint8_t *x, size_t micros, size_t k, float *sums)
{
    const struct part part = {.count = micros, .pairs = PAIRS};

    for (size_t done = 0; done < k; done += ASH_QUANT_GROUP, x += micros * GROUP_MICRO_BYTES) {
        int32x4_t total[WIDE_MICROS][PAIRS];
        float32x4_t group_scales[PAIRS];

        rest_sums((const int8_t *)group_quants(ASH_Q8_W, panel), x, micros, group_k(k - done), total);
        panel_group_scales(ASH_Q8_W, panel, group_scales);
        add_floats(group_scales, x, &part, total, sums);
        panel += ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q8_W);
    }
}

/* In plain vectors: fewer micro-panels than a tile in assembly has, or a panel that comes from memory, which its order
 * of loads is not made for. */
static void add_rest(const uint8_t *panel, const uint8_t *x, size_t micros, size_t k, float *sums)
{
    switch (micros) {
    case 1:
        add_micros(panel, x, 1, k, sums);
        break;
    case 2:
        add_micros(panel, x, 2, k, sums);
        break;
    case 3:
        add_micros(panel, x, 3, k, sums);
        break;
    case 4:
        add_micros(panel, x, 4, k, sums);
        break;
    case 5:
        add_micros(panel, x, 5, k, sums);
        break;
    default:
        add_micros(panel, x, WIDE_MICROS, k, sums);
    }
}

static void add_tile(const uint8_t *panel, const uint8_t *x, size_t k, float *sums)
{
    size_t whole = k / ASH_QUANT_GROUP, turns = ash_div_up(k % ASH_QUANT_GROUP, ASH_QUANT_PANEL_STEP);

    if (whole > 0) tile_smmla_wide(whole, ASH_QUANT_GROUP / ASH_QUANT_PANEL_STEP, x, panel, sums);
    if (turns > 0) /* what fills a group up is 0 */
        tile_smmla_wide(1, turns, x + whole * WIDE_MICROS * GROUP_MICRO_BYTES,
                        panel + whole * ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q8_W), sums);
}

/* A panel of Q8_W that was used before or will be again. */
static void add_wide(const uint8_t *panel, const uint8_t *x, size_t micros, size_t k, float *sums)
{
    if (micros == WIDE_MICROS)
        add_tile(panel, x, k, sums);
    else
        add_rest(panel, x, micros, k, sums);
}

/* ---- large M of Q4_0 --------------------------------------------------------------------------------------------- */

/* k of groups that were expanded with sub-scales: whole ones. The rest is taken from the packed panel. */
static void add_subscales(const uint8_t *groups, const uint8_t *panel, const uint8_t *x, size_t k, float *sums)
{
    size_t whole = k / ASH_QUANT_GROUP;

    for (size_t first = 0; whole > 0 && first < WIDE_MICROS; first += SUBSCALE_MICROS)
        tile_smmla_subscales(whole, x, WIDE_MICROS, first, groups, sums);
    add_packed(panel + whole * ash_quant_panel_group(ASH_QUANT_LAYOUT_I8MM, ASH_Q4_0),
               x + whole * WIDE_MICROS * GROUP_MICRO_BYTES, WIDE_MICROS, k % ASH_QUANT_GROUP, sums);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void tile_q4(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x,
                    size_t micros, size_t k, float *sums)
{
    const struct expanded *made = (const struct expanded *)(const void *)expanded;

    (void)dtype;
    if (made != NULL && made->wide)
        add_wide(made->groups, x, micros, k, sums);
    else if (made != NULL && micros == WIDE_MICROS)
        add_subscales(made->groups, panel, x, k, sums);
    else
        add_packed(panel, x, micros, k, sums);
}

static void tile_q8w(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x,
                     size_t micros, size_t k, float *sums)
{
    (void)dtype;
    if (expanded != NULL)
        add_wide(panel, x, micros, k, sums);
    else
        add_rest(panel, x, micros, k, sums);
}

void ash_quant_i8mm_untile(const float *sums, size_t rows, float *y, size_t y_stride)
{
    for (size_t m = 0; m < rows; m += 2, sums += 4 * PAIRS, y += 2 * y_stride)
        for (size_t p = 0; p < PAIRS; p += 2) {
            float64x2_t left = vreinterpretq_f64_f32(vld1q_f32(sums + 4 * p));
            float64x2_t right = vreinterpretq_f64_f32(vld1q_f32(sums + 4 * p + 4));

            vst1q_f32(y + 2 * p, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
            if (m + 1 < rows) vst1q_f32(y + y_stride + 2 * p, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
        }
}

static float subscales(const uint8_t *blocks, size_t count, int32_t *out)
{
    struct subscales eight;
    float group_scale = subscales_load(blocks, count, &eight);

    vst1q_s32(out, eight.four[0]);
    vst1q_s32(out + 4, eight.four[1]);
    return group_scale;
}

#define Q4_SMALL_M_MAX 8
#define Q8W_SMALL_M_MAX (WIDE_MICROS * MICRO_ROWS)

ASH_QUANT_CHECK_PANELS(MICRO_ROWS, WIDE_MICROS, Q4_SMALL_M_MAX);
ASH_QUANT_CHECK_PANELS(MICRO_ROWS, WIDE_MICROS, Q8W_SMALL_M_MAX);
_Static_assert(TILE_SMMLA_X_SLACK_BYTES <= ASH_QUANT_X_SLACK_BYTES, "tiles read so far after x");
_Static_assert(TILE_SMMLA_PANEL_SLACK_BYTES <= ASH_QUANT_PANEL_SLACK_BYTES, "and after a panel");
_Static_assert(HALF_VEC <= ASH_QUANT_PANEL_SLACK_BYTES, "as packed_small_sums() does");

const struct ash_quant_panels ash_quant_q4_i8mm = {.layout = ASH_QUANT_LAYOUT_I8MM,
                                                   .micro_rows = MICRO_ROWS,
                                                   .micro_bytes = GROUP_MICRO_BYTES,
                                                   .tile_micros = WIDE_MICROS,
                                                   .expanded_bytes = EXPANDED_BYTES,
                                                   .small_m_max = Q4_SMALL_M_MAX,
                                                   .k_groups = 4,
                                                   .whole_k = true,
                                                   .expanded_panels = 1,
                                                   .gemv_bytes = GEMV_X_BYTES(ASH_Q4_0),
                                                   .subscales = subscales,
                                                   .quantise = quantise,
                                                   .expand = expand,
                                                   .tile = tile_q4,
                                                   .untile = ash_quant_i8mm_untile,
                                                   .quantise_gemv = ash_quant_i8mm_quantise_gemv,
                                                   .gemv = ash_quant_i8mm_gemv};

const struct ash_quant_panels ash_quant_q8w_i8mm = {.layout = ASH_QUANT_LAYOUT_I8MM,
                                                    .micro_rows = MICRO_ROWS,
                                                    .micro_bytes = GROUP_MICRO_BYTES,
                                                    .tile_micros = WIDE_MICROS,
                                                    .small_m_max = Q8W_SMALL_M_MAX,
                                                    .k_groups = 8,
                                                    .even_tiles = true,
                                                    .whole_k = true,
                                                    .expanded_panels = 1,
                                                    .gemv_bytes = GEMV_X_BYTES(ASH_Q8_W),
                                                    .quantise = quantise,
                                                    .tile = tile_q8w,
                                                    .untile = ash_quant_i8mm_untile,
                                                    .quantise_gemv = ash_quant_i8mm_quantise_gemv,
                                                    .gemv = ash_quant_i8mm_gemv};

#endif
