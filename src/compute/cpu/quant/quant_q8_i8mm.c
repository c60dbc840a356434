/* Kernels of packed Q8_0 for arm64 with SMMLA (2 x 8 times 8 x 2), for two and more rows of x. A group is one block, so
 * each block and pair of pairs costs 4 SMMLA, a conversion of dots to floats, a product of scales and a fused
 * multiply-add. quant_pack.h has the layout (i8mm), tile_smmla.h the tile of large M, quant_gemv_i8mm.c GEMV, and
 * quant_panel_i8mm.c the other types. */
#if defined(__aarch64__)

#include "compute/cpu/quant/quant_layout_i8mm.h"
#include "compute/cpu/quant/tile_smmla.h"

#define AHEAD 8                                             /* blocks of a panel that are on their way */
#define PANEL_BYTES (ROWS * sizeof(uint16_t) + BLOCK_BYTES) /* of a block */
#define MICRO_BYTES (VEC + CHUNKS * VEC)                    /* scales of the two rows, each twice; then the chunks */
#define EXPANDED_BYTES (PAIRS * VEC)                        /* scales of a block as tiles take them */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

static void quantise(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, tile += micros * MICRO_BYTES)
        quantise_micro(rows, done, ASH_QUANT_BLOCK, micro, micros, tile);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    (void)dtype;
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, panel += PANEL_BYTES) {
        float32x4_t scales[PAIRS];

        panel_group_scales(ASH_Q8_0, panel, scales);
        UNROLL
        for (size_t p = 0; p < PAIRS; p++, to += VEC)
            vst1q_f32((float *)(void *)to, scales[p]);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A block of a panel times all micro-panels, added to acc. Breadth first: neighbours in the program do not wait for
 * each other. */
INLINE void add_block(const uint8_t *block, const uint8_t *x, size_t micros, float32x4_t acc[][PAIRS])
{
    const int8_t *w = (const int8_t *)group_quants(ASH_Q8_0, block);
    int32x4_t dots[BLOCK_MICROS][PAIRS];
    float32x4_t scales[PAIRS];

    panel_group_scales(ASH_Q8_0, block, scales);
    UNROLL
    for (size_t i = 0; i < micros * PAIRS; i++)
        dots[i / PAIRS][i % PAIRS] = zeros();
    UNROLL
    for (size_t c = 0; c < CHUNKS; c++) {
        UNROLL
        for (size_t i = 0; i < PAIRS * micros; i++)
            dots[i % micros][i / micros] = vmmlaq_s32(
                dots[i % micros][i / micros], vld1q_s8((const int8_t *)x + (micros + c * micros + i % micros) * VEC),
                vld1q_s8(w + (c * PAIRS + i / micros) * VEC));
    }
    UNROLL
    for (size_t i = 0; i < PAIRS * micros; i++) {
        float32x4_t scale = vmulq_f32(vld1q_f32((const float *)(const void *)x + 4 * (i % micros)), scales[i / micros]);

        acc[i % micros][i / micros] =
            vfmaq_f32(acc[i % micros][i / micros], vcvtq_f32_s32(dots[i % micros][i / micros]), scale);
    }
}

/* Bytes that will be needed soon, or (past the last panel) never. */
INLINE void prefetch(const uint8_t *at)
{
    UNROLL
    for (size_t i = 0; i < PANEL_BYTES; i += LINE)
        __builtin_prefetch(at + i);
}

/* k of a panel, as it is packed, times all micro-panels. sums: for each micro-panel and pair of the panel, (row 0 of x)
 * x (w0, w1), (row 1 of x) x (w0, w1). */
INLINE void run_tile(const uint8_t *block, const uint8_t *x, size_t micros, size_t k, float *sums)
{
    float32x4_t acc[BLOCK_MICROS][PAIRS];

    UNROLL
    for (size_t i = 0; i < micros * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vld1q_f32(sums + 4 * i);
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, block += PANEL_BYTES, x += micros * MICRO_BYTES) {
        prefetch(block + AHEAD * PANEL_BYTES);
        add_block(block, x, micros, acc);
    }
    UNROLL
    for (size_t i = 0; i < micros * PAIRS; i++)
        vst1q_f32(sums + 4 * i, acc[i / PAIRS][i % PAIRS]);
}

static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums)
{
    (void)dtype;
    if (micros == BLOCK_MICROS && expanded != NULL)
        tile_smmla_blocks(k / ASH_QUANT_BLOCK, x, group_quants(ASH_Q8_0, panel), PANEL_BYTES, expanded, sums);
    else if (micros == 3)
        run_tile(panel, x, 3, k, sums);
    else if (micros == 2)
        run_tile(panel, x, 2, k, sums);
    else
        run_tile(panel, x, 1, k, sums);
}

#define SMALL_M_MAX 8

ASH_QUANT_CHECK_PANELS(MICRO_ROWS, BLOCK_MICROS, SMALL_M_MAX);

const struct ash_quant_panels ash_quant_q8_i8mm = {.layout = ASH_QUANT_LAYOUT_I8MM,
                                                   .micro_rows = MICRO_ROWS,
                                                   .micro_bytes = MICRO_BYTES,
                                                   .tile_micros = BLOCK_MICROS,
                                                   .expanded_bytes = EXPANDED_BYTES,
                                                   .small_m_max = SMALL_M_MAX,
                                                   .k_groups = 64,
                                                   .expanded_panels = 1,
                                                   .gemv_bytes = GEMV_X_BYTES(ASH_Q8_0),
                                                   .quantise = quantise,
                                                   .expand = expand,
                                                   .tile = tile,
                                                   .untile = ash_quant_i8mm_untile,
                                                   .quantise_gemv = ash_quant_i8mm_quantise_gemv,
                                                   .gemv = ash_quant_i8mm_gemv};

#endif
