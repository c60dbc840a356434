/* The kernel of quantised products for x86-64 with AVX2: four rows of w side by side, one group at a time. Its numbers
 * are widened to 16 bits, which hold them times their steps, so that what is left for each row of x is products of 16
 * bits and sums of 32. (The instruction for bytes, vpmaddubsw, saturates, and the sums must be exact.) */
#if defined(__x86_64__)

#include "compute/cpu/quant_priv.h"

#include <immintrin.h>
#include <string.h>

#include "compute/quant.h"

/* A group of four rows. */
struct group {
    int16_t w[ASH_QUANT_QUAD][ASH_QUANT_GROUP]; /* numbers times their steps */
    float units[ASH_QUANT_QUAD];
    size_t count; /* of k */
};

/* ash_quant_steps with a vector: a lane is a block. */
static float find_steps(const uint8_t *blocks, size_t count, enum ash_dtype dtype, int32_t *steps)
{
    const __m256 sizes = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)),
                 rounder = _mm256_set1_ps(ASH_QUANT_ROUNDER);
    float most = dtype == ASH_Q4_0 ? ASH_QUANT_STEPS_Q4 : ASH_QUANT_STEPS_Q8, tops[4];
    uint16_t halves[ASH_QUANT_GROUP_BLOCKS] = {0};
    __m256 scales, size, whole;
    __m128 top;

    for (size_t b = 0; b < count; b++) {
        memcpy(&halves[b], blocks + b * ash_dtype_bytes(dtype), sizeof(halves[b]));
        steps[b] = dtype == ASH_Q8_W;
    }
    if (dtype == ASH_Q8_W) return ash_quant_scale(blocks);
    scales = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves));
    size = _mm256_and_ps(scales, sizes);
    if (_mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(INFINITY), _CMP_LT_OQ)) != 0xff) return NAN;
    top = _mm_max_ps(_mm256_castps256_ps128(size), _mm256_extractf128_ps(size, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    _mm_storeu_ps(tops, _mm_max_ps(top, _mm_movehdup_ps(top)));
    if (tops[0] == 0.0f) return 0.0f;
    whole = _mm256_add_ps(_mm256_mul_ps(scales, _mm256_set1_ps(most / tops[0])), rounder);
    _mm256_storeu_si256((__m256i *)(void *)steps,
                        _mm256_sub_epi32(_mm256_castps_si256(whole), _mm256_set1_epi32(ASH_QUANT_ROUNDER_BITS)));
    return tops[0] / most;
}

/* 16 numbers of a row times their steps. */
static inline void store_numbers(__m256i numbers, int32_t steps, int16_t *to)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_mullo_epi16(numbers, _mm256_set1_epi16((short)steps)));
}

static inline void open_block(const uint8_t *block, enum ash_dtype dtype, int32_t steps, int16_t *to)
{
    const __m128i *bytes = (const __m128i *)(const void *)(block + sizeof(uint16_t));
    const __m128i nibble = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    __m128i first = _mm_loadu_si128(bytes), second;

    if (dtype == ASH_Q4_0) {
        second = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(first, 4), nibble), eight);
        first = _mm_sub_epi8(_mm_and_si128(first, nibble), eight);
    } else {
        second = _mm_loadu_si128(bytes + 1);
    }
    store_numbers(_mm256_cvtepi8_epi16(first), steps, to);
    store_numbers(_mm256_cvtepi8_epi16(second), steps, to + ASH_QUANT_BLOCK / 2);
}

/* Blocks first ... first + count - 1 of the rows. */
static void open_group(const uint8_t *const *rows, enum ash_dtype dtype, size_t first, size_t count,
                       struct group *group)
{
    group->count = count * ASH_QUANT_BLOCK;
    for (size_t i = 0; i < ASH_QUANT_QUAD; i++) {
        const uint8_t *blocks = rows[i] + first * ash_dtype_bytes(dtype);
        int32_t steps[ASH_QUANT_GROUP_BLOCKS];

        group->units[i] = find_steps(blocks, count, dtype, steps);
        for (size_t b = 0; b < count; b++)
            open_block(blocks + b * ash_dtype_bytes(dtype), dtype, steps[b], group->w[i] + b * ASH_QUANT_BLOCK);
    }
}

static inline __m128i add_across(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));

    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

/* A group of one row of x. */
static inline void add_group(const struct group *group, const int8_t *x, float scale, float *sums)
{
    __m256i dots[ASH_QUANT_QUAD] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                                    _mm256_setzero_si256()};
    __m128 scales = _mm_mul_ps(_mm_set1_ps(scale), _mm_loadu_ps(group->units));

    for (size_t k = 0; k < group->count; k += 16) {
        __m256i numbers = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + k)));

        for (size_t i = 0; i < ASH_QUANT_QUAD; i++) {
            __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(group->w[i] + k));

            dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(w, numbers));
        }
    }
    _mm_storeu_ps(sums, _mm_fmadd_ps(_mm_cvtepi32_ps(add_across(dots[0], dots[1], dots[2], dots[3])), scales,
                                     _mm_loadu_ps(sums)));
}

void ash_quant_kernel_avx2(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n += ASH_QUANT_QUAD) {
        size_t count = end - n < ASH_QUANT_QUAD ? end - n : ASH_QUANT_QUAD;
        float sums[ASH_QUANT_ROWS][ASH_QUANT_QUAD];
        const uint8_t *w[ASH_QUANT_QUAD];

        ash_quant_quad(args, n, count, w);
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_begin(args, x->first + m, n, count, sums[m]);
        for (size_t g = 0; g < x->groups; g++) {
            size_t first = g * ASH_QUANT_GROUP_BLOCKS;
            struct group group;

            open_group(w, args->dtype, first, ash_quant_group_blocks(x, g), &group);
            for (size_t m = 0; m < x->rows; m++)
                add_group(&group, x->q + (m * x->blocks + first) * ASH_QUANT_BLOCK, x->scale[m * x->groups + g],
                          sums[m]);
        }
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_end(args, x->first + m, n, count, sums[m]);
    }
}

#endif
