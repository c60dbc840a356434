/* The kernel of quantised products for x86-64 with AVX2, weights not packed: four rows of w at once, one group at a
 * time. Quants are widened to 16 bits, which hold them times their sub-scales. So each row of x costs products
 * of 16 bits and sums of 32. (The instruction for bytes, vpmaddubsw, saturates, and the sums must be exact.) */
#if defined(__x86_64__)

#include "base/math.h"
#include "compute/cpu/quant/quant_priv.h"

#include <immintrin.h>
#include <string.h>

#include "compute/quant_open.h"

/* A group of four rows. */
struct group {
    int16_t w[ASH_QUANT_NR][ASH_QUANT_GROUP]; /* quants, times their sub-scales if they have any */
    float group_scales[ASH_QUANT_NR];
    size_t count; /* of k */
    bool has_min;
    float mins[ASH_QUANT_NR];
    int32_t submins[ASH_QUANT_SUBS][ASH_QUANT_NR];
};

/* The scales of the blocks at `at` of four rows. */
static void load_scales(const uint8_t *const *rows, size_t at, float *scales)
{
    uint16_t halves[ASH_QUANT_NR];

    for (size_t i = 0; i < ASH_QUANT_NR; i++)
        memcpy(&halves[i], rows[i] + at, sizeof(halves[i]));
    _mm_storeu_ps(scales, _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)halves)));
}

/* Scales as sub-scales of which the largest is `most`, still with ASH_F32_ROUND_MAGIC added. */
static inline __m256 subscales_rounded(__m256 scales, float top, float most)
{
    return _mm256_add_ps(_mm256_mul_ps(scales, _mm256_set1_ps(most / top)), _mm256_set1_ps(ASH_F32_ROUND_MAGIC));
}

/* ash_quant_pick_subscale_max. */
static inline float pick_subscale_max(__m256 scales, float top)
{
    __m256 rounded = subscales_rounded(scales, top, ASH_QUANT_SUBSCALE_SMALL_MAX);
    __m256 size = _mm256_mul_ps(_mm256_sub_ps(rounded, _mm256_set1_ps(ASH_F32_ROUND_MAGIC)), _mm256_set1_ps(top));
    __m256 same = _mm256_cmp_ps(size, _mm256_mul_ps(scales, _mm256_set1_ps(ASH_QUANT_SUBSCALE_SMALL_MAX)), _CMP_EQ_OQ);

    return _mm256_movemask_ps(same) == 0xff ? ASH_QUANT_SUBSCALE_SMALL_MAX : ASH_QUANT_SUBSCALE_MAX;
}

/* ash_quant_subscales of Q4_0 with a vector: a lane is a block. */
static float find_subscales(const uint8_t *blocks, size_t count, int32_t *subscales)
{
    const __m256 sizes = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    uint16_t halves[ASH_QUANT_GROUP_BLOCKS] = {0};
    __m256 scales, size, whole;
    float tops[4], most;
    __m128 top;

    for (size_t b = 0; b < count; b++) {
        memcpy(&halves[b], blocks + b * ash_dtype_bytes(ASH_Q4_0), sizeof(halves[b]));
        subscales[b] = 0;
    }
    scales = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves));
    size = _mm256_and_ps(scales, sizes);
    if (_mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(INFINITY), _CMP_LT_OQ)) != 0xff) return NAN;
    top = _mm_max_ps(_mm256_castps256_ps128(size), _mm256_extractf128_ps(size, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    _mm_storeu_ps(tops, _mm_max_ps(top, _mm_movehdup_ps(top)));
    if (tops[0] == 0.0f) return 0.0f;
    most = pick_subscale_max(scales, tops[0]);
    whole = subscales_rounded(scales, tops[0], most);
    _mm256_storeu_si256((__m256i *)(void *)subscales,
                        _mm256_sub_epi32(_mm256_castps_si256(whole), _mm256_set1_epi32(ASH_F32_ROUND_MAGIC_BITS)));
    return tops[0] / most;
}

static inline void store_words(int16_t *to, __m256i words)
{
    _mm256_storeu_si256((__m256i *)(void *)to, words);
}

static inline void open_block_q8(const uint8_t *block, int16_t *to)
{
    const __m128i *bytes = (const __m128i *)(const void *)(block + sizeof(uint16_t));

    store_words(to, _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)));
    store_words(to + ASH_QUANT_BLOCK / 2, _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1)));
}

static inline void open_block_q4(const uint8_t *block, int32_t subscales, int16_t *to)
{
    const __m128i nibble = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    const __m256i factor = _mm256_set1_epi16((short)subscales);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(block + sizeof(uint16_t)));
    __m128i first = _mm_sub_epi8(_mm_and_si128(bytes, nibble), eight);
    __m128i second = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble), eight);

    store_words(to, _mm256_mullo_epi16(_mm256_cvtepi8_epi16(first), factor));
    store_words(to + ASH_QUANT_BLOCK / 2, _mm256_mullo_epi16(_mm256_cvtepi8_epi16(second), factor));
}

static void open_row_q4(const uint8_t *blocks, size_t count, int16_t *to, float *group_scale)
{
    int32_t subscales[ASH_QUANT_GROUP_BLOCKS];

    *group_scale = find_subscales(blocks, count, subscales);
    for (size_t b = 0; b < count; b++)
        open_block_q4(blocks + b * ash_dtype_bytes(ASH_Q4_0), subscales[b], to + b * ASH_QUANT_BLOCK);
}

/* Row i of a group of the types that quant_open.h reads. */
static void open_row(const uint8_t *blocks, enum ash_dtype dtype, size_t i, struct group *group)
{
    struct ash_quant_opened row = {0}; /* compilers cannot see that a group is opened whole */

    ash_quant_open(blocks, dtype, group->count, &row);
    group->group_scales[i] = row.scale;
    group->mins[i] = row.min;
    for (size_t s = 0; s < group->count / ASH_QUANT_SUB; s++) {
        const __m256i factor = _mm256_set1_epi16(row.subscales[s]);
        __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(row.q + s * ASH_QUANT_SUB));

        store_words(group->w[i] + s * ASH_QUANT_SUB, _mm256_mullo_epi16(_mm256_cvtepi8_epi16(q), factor));
        if (group->has_min) group->submins[s][i] = row.submins[s];
    }
}

/* Blocks first ... first + count - 1 of the rows. */
static void open_group(const uint8_t *const *rows, enum ash_dtype dtype, size_t first, size_t count,
                       struct group *group)
{
    const size_t block_bytes = ash_dtype_bytes(dtype), at = ash_dtype_size(dtype, first * ASH_QUANT_BLOCK);

    group->count = count * ASH_QUANT_BLOCK;
    group->has_min = ash_quant_has_min(dtype);
    if (ash_quant_is_open(dtype)) {
        for (size_t i = 0; i < ASH_QUANT_NR; i++)
            open_row(rows[i] + at, dtype, i, group);
        return;
    }
    if (dtype == ASH_Q4_0) {
        for (size_t i = 0; i < ASH_QUANT_NR; i++)
            open_row_q4(rows[i] + at, count, group->w[i], &group->group_scales[i]);
        return;
    }
    load_scales(rows, at, group->group_scales);
    for (size_t i = 0; i < ASH_QUANT_NR; i++)
        for (size_t b = 0; b < count; b++)
            open_block_q8(rows[i] + at + b * block_bytes, group->w[i] + b * ASH_QUANT_BLOCK);
}

static inline __m128i add_across(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));

    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

/* The minimums of a group of one row of x. */
static inline void add_min(const struct group *group, const int32_t *x_sums, float scale, float *sums)
{
    __m128 mins = _mm_mul_ps(_mm_set1_ps(scale), _mm_loadu_ps(group->mins));
    __m128i low = _mm_setzero_si128();

    for (size_t s = 0; s < group->count / ASH_QUANT_SUB; s++) {
        __m128i submins = _mm_loadu_si128((const __m128i *)(const void *)group->submins[s]);

        low = _mm_add_epi32(low, _mm_mullo_epi32(submins, _mm_set1_epi32(x_sums[s])));
    }
    _mm_storeu_ps(sums, _mm_fmadd_ps(_mm_cvtepi32_ps(low), mins, _mm_loadu_ps(sums)));
}

/* A group of one row of x. */
static inline void add_group(const struct group *group, const int8_t *x, float scale, float *sums)
{
    __m256i dots[ASH_QUANT_NR] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                                  _mm256_setzero_si256()};
    __m128 scales = _mm_mul_ps(_mm_set1_ps(scale), _mm_loadu_ps(group->group_scales));

    for (size_t k = 0; k < group->count; k += 16) {
        __m256i quants = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + k)));

        for (size_t i = 0; i < ASH_QUANT_NR; i++) {
            __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(group->w[i] + k));

            dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(w, quants));
        }
    }
    _mm_storeu_ps(sums, _mm_fmadd_ps(_mm_cvtepi32_ps(add_across(dots[0], dots[1], dots[2], dots[3])), scales,
                                     _mm_loadu_ps(sums)));
}

void ash_quant_kernel_avx2(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n += ASH_QUANT_NR) {
        size_t count = ash_min(end - n, ASH_QUANT_NR);
        float sums[ASH_QUANT_MC][ASH_QUANT_NR];
        const uint8_t *w[ASH_QUANT_NR];

        ash_quant_w_rows(args, n, count, w);
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_load_sums(args, x->first + m, n, count, sums[m]);
        for (size_t g = 0; g < x->groups; g++) {
            size_t first = g * x->group_blocks;
            struct group group;

            open_group(w, args->dtype, first, ash_quant_rows_blocks(x, g), &group);
            for (size_t m = 0; m < x->rows; m++) {
                size_t at = (m * x->blocks + first) * ASH_QUANT_BLOCK;

                add_group(&group, x->q + at, x->scale[m * x->groups + g], sums[m]);
                if (group.has_min) add_min(&group, x->sum + at / ASH_QUANT_SUB, x->scale[m * x->groups + g], sums[m]);
            }
        }
        for (size_t m = 0; m < x->rows; m++)
            ash_quant_store_sums(args, x->first + m, n, count, sums[m]);
    }
}

#endif
