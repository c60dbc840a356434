/* The kernel of quantised products for x86-64 with AVX2: four rows of w side by side, one block at a time. Bytes are
 * widened to 16 bits first: the byte instruction (vpmaddubsw) saturates, and the sums must be exact. */
#if defined(__x86_64__)

#include "compute/cpu/quant_priv.h"

#include <immintrin.h>
#include <string.h>

/* The scales of block `at` of four rows. */
static inline __m128 scales(const uint8_t *const *w, size_t at)
{
    uint16_t halves[ASH_QUANT_QUAD];

    for (int i = 0; i < ASH_QUANT_QUAD; i++)
        memcpy(&halves[i], w[i] + at, sizeof(halves[i]));
    return _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)halves));
}

static inline __m256i widen(const void *bytes)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes));
}

static inline __m256i block_q8(const uint8_t *w, __m256i low, __m256i high)
{
    const uint8_t *q = w + sizeof(uint16_t);

    return _mm256_add_epi32(_mm256_madd_epi16(widen(q), low), _mm256_madd_epi16(widen(q + 16), high));
}

static inline __m256i block_q4(const uint8_t *w, __m256i low, __m256i high)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(w + sizeof(uint16_t))), mask = _mm_set1_epi8(15);
    __m256i first = _mm256_cvtepi8_epi16(_mm_and_si128(q, mask));
    __m256i second = _mm256_cvtepi8_epi16(_mm_and_si128(_mm_srli_epi16(q, 4), mask)), eight = _mm256_set1_epi16(8);

    return _mm256_add_epi32(_mm256_madd_epi16(_mm256_sub_epi16(first, eight), low),
                            _mm256_madd_epi16(_mm256_sub_epi16(second, eight), high));
}

static inline __m128i add_across(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));

    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

static inline void add_block(const uint8_t *const *w, enum ash_dtype dtype, size_t at, const int8_t *x, __m256i *dots)
{
    __m256i low = widen(x), high = widen(x + 16);

    for (int i = 0; i < ASH_QUANT_QUAD; i++)
        dots[i] = _mm256_add_epi32(dots[i],
                                   dtype == ASH_Q4_0 ? block_q4(w[i] + at, low, high) : block_q8(w[i] + at, low, high));
}

static void quad(const uint8_t *const *w, enum ash_dtype dtype, const struct ash_quant_rows *rows, size_t m,
                 float *sums)
{
    const size_t block_bytes = ash_dtype_bytes(dtype);
    const int8_t *x = rows->q + m * rows->blocks * ASH_QUANT_BLOCK;
    const float *scale = rows->scale + m * rows->groups;
    __m128 acc = _mm_loadu_ps(sums);

    for (size_t group = 0, b = 0; group < rows->groups; group++) {
        __m256i dots[ASH_QUANT_QUAD] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                                        _mm256_setzero_si256()};
        __m128 d = _mm_mul_ps(_mm_set1_ps(scale[group]), scales(w, b * block_bytes));

        for (size_t end = ash_quant_group_end(rows, b); b < end; b++, x += ASH_QUANT_BLOCK)
            add_block(w, dtype, b * block_bytes, x, dots);
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(add_across(dots[0], dots[1], dots[2], dots[3])), d, acc);
    }
    _mm_storeu_ps(sums, acc);
}

void ash_quant_kernel_avx2(const struct ash_quant_args *args, const struct ash_quant_rows *x, size_t begin, size_t end)
{
    for (size_t n = begin; n < end; n += ASH_QUANT_QUAD) {
        size_t count = end - n < ASH_QUANT_QUAD ? end - n : ASH_QUANT_QUAD;
        const uint8_t *w[ASH_QUANT_QUAD];

        ash_quant_quad(args, n, count, w);
        for (size_t m = 0; m < x->rows; m++) {
            float sums[ASH_QUANT_QUAD];

            ash_quant_begin(args, x->first + m, n, count, sums);
            quad(w, args->dtype, x, m, sums);
            ash_quant_end(args, x->first + m, n, count, sums);
        }
    }
}

#endif
