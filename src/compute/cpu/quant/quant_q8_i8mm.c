/* Kernels of packed Q8_0 for arm64 with SMMLA (2 x 8 times 8 x 2), for several rows of x: a group is one block, so what
 * takes time for each block and pair of pairs is 4 SMMLA, making floats of dots, a product of scales and a fused
 * multiply-add. quant_pack.h has the layout (pairs), tile_smmla.h the tile of many rows, quant_one_i8mm.c what is done
 * for a single row, and quant_panel_i8mm.c the other types. */
#if defined(__aarch64__)

#include "compute/cpu/quant/quant_pairs.h"
#include "compute/cpu/quant/tile_smmla.h"

#define AHEAD 8                                             /* blocks of a panel that are on their way */
#define PANEL_BYTES (ROWS * sizeof(uint16_t) + BLOCK_BYTES) /* of a block */
#define STRIP_BYTES (VEC + CHUNKS * VEC)                    /* scales of the two rows, each twice; then the chunks */
#define EXPANDED_BYTES (PAIRS * VEC)                        /* scales of a block as tiles take them */

/* ---- x ----------------------------------------------------------------------------------------------------------- */

static void quantise(const float *const *rows, size_t k, size_t strip, size_t strips, uint8_t *tile)
{
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, tile += strips * STRIP_BYTES)
        quantise_strip(rows, done, ASH_QUANT_BLOCK, strip, strips, tile);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *to)
{
    (void)dtype;
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, panel += PANEL_BYTES) {
        float32x4_t scales[PAIRS];

        panel_units(ASH_Q8_0, panel, scales);
        UNROLL
        for (size_t p = 0; p < PAIRS; p++, to += VEC)
            vst1q_f32((float *)(void *)to, scales[p]);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A block of a panel times all strips, added to acc. Breadth first: neighbours in the program do not wait for each
 * other. */
INLINE void add_block(const uint8_t *block, const uint8_t *x, size_t strips, float32x4_t acc[][PAIRS])
{
    const int8_t *w = (const int8_t *)group_numbers(ASH_Q8_0, block);
    int32x4_t dots[BLOCK_STRIPS][PAIRS];
    float32x4_t scales[PAIRS];

    panel_units(ASH_Q8_0, block, scales);
    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        dots[i / PAIRS][i % PAIRS] = zeros();
    UNROLL
    for (size_t c = 0; c < CHUNKS; c++) {
        UNROLL
        for (size_t i = 0; i < PAIRS * strips; i++)
            dots[i % strips][i / strips] = vmmlaq_s32(
                dots[i % strips][i / strips], vld1q_s8((const int8_t *)x + (strips + c * strips + i % strips) * VEC),
                vld1q_s8(w + (c * PAIRS + i / strips) * VEC));
    }
    UNROLL
    for (size_t i = 0; i < PAIRS * strips; i++) {
        float32x4_t scale = vmulq_f32(vld1q_f32((const float *)(const void *)x + 4 * (i % strips)), scales[i / strips]);

        acc[i % strips][i / strips] =
            vfmaq_f32(acc[i % strips][i / strips], vcvtq_f32_s32(dots[i % strips][i / strips]), scale);
    }
}

/* Bytes that will be needed soon, or (past the last panel) never. */
INLINE void prefetch(const uint8_t *at)
{
    UNROLL
    for (size_t i = 0; i < PANEL_BYTES; i += LINE)
        __builtin_prefetch(at + i);
}

/* k of a panel, as it is packed, times all strips. sums: for each strip and pair of the panel, (row 0 of x) x (w0, w1),
 * (row 1 of x) x (w0, w1). */
INLINE void run_tile(const uint8_t *block, const uint8_t *x, size_t strips, size_t k, float *sums)
{
    float32x4_t acc[BLOCK_STRIPS][PAIRS];

    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vld1q_f32(sums + 4 * i);
    for (size_t done = 0; done < k; done += ASH_QUANT_BLOCK, block += PANEL_BYTES, x += strips * STRIP_BYTES) {
        prefetch(block + AHEAD * PANEL_BYTES);
        add_block(block, x, strips, acc);
    }
    UNROLL
    for (size_t i = 0; i < strips * PAIRS; i++)
        vst1q_f32(sums + 4 * i, acc[i / PAIRS][i % PAIRS]);
}

static void tile(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t strips,
                 size_t k, float *sums)
{
    (void)dtype;
    if (strips == BLOCK_STRIPS && expanded != NULL)
        tile_smmla_blocks(k / ASH_QUANT_BLOCK, x, group_numbers(ASH_Q8_0, panel), PANEL_BYTES, expanded, sums);
    else if (strips == 3)
        run_tile(panel, x, 3, k, sums);
    else if (strips == 2)
        run_tile(panel, x, 2, k, sums);
    else
        run_tile(panel, x, 1, k, sums);
}

const struct ash_quant_panels ash_quant_q8_i8mm = {.layout = ASH_QUANT_PAIRS,
                                                   .strip_rows = 2,
                                                   .strip_bytes = STRIP_BYTES,
                                                   .tile_strips = BLOCK_STRIPS,
                                                   .expanded_bytes = EXPANDED_BYTES,
                                                   .few_rows = 8,
                                                   .k_groups = 64,
                                                   .expanded_panels = 1,
                                                   .one_bytes = ONE_BYTES(ASH_Q8_0),
                                                   .quantise = quantise,
                                                   .expand = expand,
                                                   .tile = tile,
                                                   .untile = ash_quant_pairs_untile,
                                                   .quantise_one = ash_quant_pairs_quantise_one,
                                                   .one = ash_quant_pairs_one};

#endif
