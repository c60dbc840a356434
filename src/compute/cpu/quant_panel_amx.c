/* Kernels of packed quantised weights for x86-64 with AMX: 16 rows of x times 16 rows of weights, a block of k, in one
 * TDPBSSD, of which half the depth of a tile is used: each block has scales of its own. The dots go through memory, and
 * while the tiles work on the next block the vector units add the last. Few rows, which memory decides, stay with VNNI.
 */
#if defined(__x86_64__)

#include "compute/cpu/quant_pack.h"

#include <immintrin.h>
#include <string.h>

#include "compute/cpu/amx.h"
#include "compute/cpu/quant_quads.h"

/* ---- weights: as for VNNI, but signed ---------------------------------------------------------------------------- */

INLINE void expand_as(enum ash_dtype dtype, const uint8_t *panel, size_t blocks, uint8_t *to)
{
    const __m512i nibble = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), flip = _mm512_set1_epi8((char)0x80);

    for (size_t b = 0; b < blocks; b++, to += QUADS_EXPANDED_BYTES) {
        const uint8_t *numbers = panel + QUADS_ROWS * sizeof(uint16_t);

        _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)panel)));
        for (size_t quad = 0; quad < (dtype == ASH_Q8_0 ? QUADS : QUADS / 2); quad++) {
            __m512i bytes = _mm512_loadu_si512(numbers + quad * 64);
            uint8_t *low = to + (1 + quad) * 64, *high = low + QUADS / 2 * 64;

            if (dtype == ASH_Q8_0) {
                _mm512_storeu_si512(low, _mm512_xor_si512(bytes, flip));
                continue;
            }
            _mm512_storeu_si512(low, _mm512_sub_epi8(_mm512_and_si512(bytes, nibble), eight));
            _mm512_storeu_si512(high, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble), eight));
        }
        panel += dtype == ASH_Q8_0 ? QUADS_ROWS * 34 : QUADS_ROWS * 18;
    }
}

static void expand(enum ash_dtype dtype, const uint8_t *panel, size_t blocks, uint8_t *expanded)
{
    if (dtype == ASH_Q8_0)
        expand_as(ASH_Q8_0, panel, blocks, expanded);
    else
        expand_as(ASH_Q4_0, panel, blocks, expanded);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* Tile 0: dots; 4: x; 6: weights. */
static void use_tiles(size_t rows)
{
    struct tile_config config = {.palette = 1};

    config.rows[0] = config.rows[4] = (uint8_t)rows;
    config.rows[6] = QUADS;
    config.row_bytes[0] = config.row_bytes[6] = QUADS_ROWS * sizeof(int32_t);
    config.row_bytes[4] = ASH_QUANT_BLOCK;
    tile_use(&config);
}

/* One block: dots[rows, QUADS_ROWS]. */
INLINE void dots_block(const uint8_t *panel, const uint8_t *x, size_t rows, int32_t *dots)
{
    TILE_LOAD(6, panel + QUADS_ROWS * sizeof(float), QUADS_ROWS * sizeof(int32_t));
    TILE_LOAD(4, quads_row(x, rows, 0), ASH_QUANT_BLOCK);
    TILE_ZERO(0);
    TILE_MULTIPLY_INT8(0, 4, 6);
    TILE_STORE(0, dots, QUADS_ROWS * sizeof(int32_t));
}

/* Add the dots of one block. */
INLINE void add_block(const uint8_t *panel, const uint8_t *x, size_t rows, const int32_t *dots, __m512 *acc)
{
    __m512 scales = _mm512_loadu_ps(panel);

    UNROLL
    for (size_t i = 0; i < rows; i++) {
        __m512 dot = _mm512_cvtepi32_ps(_mm512_loadu_si512(dots + i * QUADS_ROWS));

        acc[i] = _mm512_fmadd_ps(dot, _mm512_mul_ps(_mm512_set1_ps(quads_scales(x)[i]), scales), acc[i]);
    }
}

INLINE void run_tile(const uint8_t *panel, const uint8_t *x, size_t rows, size_t blocks, float *sums)
{
    int32_t dots[2][QUADS_TILE_STRIPS * QUADS_ROWS] __attribute__((aligned(64)));
    __m512 acc[QUADS_TILE_STRIPS];

    UNROLL
    for (size_t i = 0; i < QUADS_TILE_STRIPS; i++)
        acc[i] = i < rows ? _mm512_loadu_ps(sums + i * QUADS_ROWS) : _mm512_setzero_ps();
    dots_block(panel, x, rows, dots[0]);
    for (size_t b = 1; b < blocks; b++) {
        const uint8_t *last_panel = panel, *last_x = x;

        panel += QUADS_EXPANDED_BYTES;
        x += rows * QUADS_STRIP_BYTES;
        dots_block(panel, x, rows, dots[b % 2]);
        add_block(last_panel, last_x, rows, dots[(b - 1) % 2], acc);
    }
    add_block(panel, x, rows, dots[(blocks - 1) % 2], acc);
    UNROLL
    for (size_t i = 0; i < rows; i++)
        _mm512_storeu_ps(sums + i * QUADS_ROWS, acc[i]);
}

static void tile(enum ash_dtype dtype, bool expanded, const uint8_t *panel, const uint8_t *x, size_t strips,
                 size_t blocks, float *sums)
{
    if (!expanded) {
        ash_quant_quads_tile(dtype, false, panel, x, strips, blocks, sums);
        return;
    }
    if (blocks == 0) return;
    use_tiles(strips);
    if (strips == QUADS_TILE_STRIPS)
        run_tile(panel, x, QUADS_TILE_STRIPS, blocks, sums);
    else
        run_tile(panel, x, strips, blocks, sums);
    tile_release();
}

const struct ash_quant_panels ash_quant_panels_amx = {.layout = ASH_QUANT_QUADS,
                                                      .strip_rows = 1,
                                                      .strip_bytes = QUADS_STRIP_BYTES,
                                                      .tile_strips = QUADS_TILE_STRIPS,
                                                      .expanded_bytes = QUADS_EXPANDED_BYTES,
                                                      .one_bytes = QUADS_STRIP_BYTES,
                                                      .quantise = ash_quant_quads_quantise,
                                                      .expand = expand,
                                                      .tile = tile,
                                                      .untile = ash_quant_quads_untile,
                                                      .quantise_one = ash_quant_quads_quantise_one,
                                                      .one = ash_quant_quads_one};

#endif
