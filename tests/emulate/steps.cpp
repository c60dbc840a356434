/* ash_wgmma_step for a whole tile at once, in 32-bit integers: a product of two bf16 is one of two 8-bit fractions, and
 * what is cut off when it is aligned is a shift. test_emulator.c holds it to ash_wgmma_step. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "emulate/emulator.h"
extern "C" {
#include "base/bf16.h"
#include "compute/ref/wgmma.h"
}

#define K ASH_WGMMA_GROUP
#define COLUMNS 8 /* at once */
#define ZERO_EXPONENT (-2000)
#define PRODUCT_SHIFT (ASH_WGMMA_FRACTION - 14)

#if defined(__x86_64__)
#define FOR_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define FOR_VECTORS
#endif

/* Fractions with sign and exponents of the 16 k of COLUMNS lines. */
struct lines {
    int32_t fraction[K][COLUMNS], exponent[K][COLUMNS];
    bool is_special[COLUMNS]; /* infinities or NaNs */
};

static void decode(uint16_t x, int32_t *fraction, int32_t *exponent, bool *is_special)
{
    int32_t field = x >> 7 & 255, size = (x & 127) | (field != 0 ? 128 : 0);

    *fraction = x >> 15 != 0 ? -size : size;
    *exponent = size == 0 ? ZERO_EXPONENT : (field != 0 ? field : 1) - 127;
    if (field == 255) *is_special = true;
}

/* The sums as fixed point numbers, whose largest exponent is top. */
FOR_VECTORS void emu_step_columns(const float sum[COLUMNS], const int32_t fraction[K], const int32_t exponent[K],
                                  const struct lines *b, int32_t top_out[COLUMNS], int32_t units_out[COLUMNS],
                                  int32_t start_out[COLUMNS])
{
    int32_t bits[COLUMNS], top[COLUMNS], sum_exponent[COLUMNS], units[COLUMNS];

    memcpy(bits, sum, sizeof(bits));
    for (int j = 0; j < COLUMNS; j++) {
        int32_t field = bits[j] >> 23 & 255;

        sum_exponent[j] = (bits[j] & 0x7fffffff) == 0 ? ASH_WGMMA_NO_EXPONENT : (field != 0 ? field : 1) - 127;
        top[j] = sum_exponent[j];
        units[j] = 0;
    }
    for (int k = 0; k < K; k++)
        for (int j = 0; j < COLUMNS; j++) {
            int32_t e = exponent[k] + b->exponent[k][j];

            top[j] = e > top[j] ? e : top[j];
        }
    for (int j = 0; j < COLUMNS; j++) {
        int32_t size = (bits[j] & 0x7fffff) | ((bits[j] & 0x7f800000) != 0 ? 0x800000 : 0);
        int32_t shift = top[j] - sum_exponent[j];

        size = (size << 2) >> (shift < 31 ? shift : 31);
        start_out[j] = bits[j] < 0 ? -size : size;
    }
    for (int k = 0; k < K; k++)
        for (int j = 0; j < COLUMNS; j++) {
            int32_t product = fraction[k] * b->fraction[k][j], shift = top[j] - exponent[k] - b->exponent[k][j];
            int32_t size = product < 0 ? -product : product;

            size = (size << PRODUCT_SHIFT) >> (shift < 31 ? shift : 31);
            units[j] += product < 0 ? -size : size; /* 16 of them stay below 2^31 */
        }
    memcpy(top_out, top, sizeof(top));
    memcpy(units_out, units, sizeof(units));
}

/* ash_wgmma_narrow, which is called for the rare ones. */
static float narrow(int64_t units, int32_t top)
{
    double exact = (double)units; /* below 2^33 */
    uint64_t bits;
    int exponent;

    memcpy(&bits, &exact, sizeof(bits));
    exponent = (int)(bits >> 52 & 2047) - 1023 + top - ASH_WGMMA_FRACTION;
    if (units == 0 || exponent < -126 || exponent > 127) return ash_wgmma_narrow(units, top);
    return ash_f32_from_bits((uint32_t)(bits >> 63) << 31 | (uint32_t)(exponent + 127) << 23 |
                             (uint32_t)(bits >> 29 & 0x7fffff));
}

static float special_step(float sum, const uint16_t a[K], const uint16_t b[K])
{
    float x[K], y[K];

    for (int k = 0; k < K; k++) {
        x[k] = ash_bf16_to_f32(a[k]);
        y[k] = ash_bf16_to_f32(b[k]);
    }
    return ash_wgmma_step(sum, x, y);
}

static void add_row(float sum[COLUMNS], const uint16_t a[K], const uint16_t (*b)[K], const struct lines *lines)
{
    int32_t fraction[K], exponent[K], top[COLUMNS], units[COLUMNS], start[COLUMNS];
    bool is_special = false;

    for (int k = 0; k < K; k++)
        decode(a[k], &fraction[k], &exponent[k], &is_special);
    emu_step_columns(sum, fraction, exponent, lines, top, units, start);
    for (int j = 0; j < COLUMNS; j++)
        if (is_special || lines->is_special[j] || !isfinite(sum[j]))
            sum[j] = special_step(sum[j], a, b[j]);
        else
            sum[j] = top[j] <= ASH_WGMMA_NO_EXPONENT ? 0.0f : narrow((int64_t)start[j] + units[j], top[j]);
}

void emu_steps(float *sums, size_t stride, const uint16_t (*a)[K], size_t rows, const uint16_t (*b)[K], size_t columns)
{
    for (size_t n = 0; n < columns; n += COLUMNS) {
        struct lines lines = {};

        for (int j = 0; j < COLUMNS; j++)
            for (int k = 0; k < K; k++)
                decode(b[n + j][k], &lines.fraction[k][j], &lines.exponent[k][j], &lines.is_special[j]);
        for (size_t m = 0; m < rows; m++)
            add_row(sums + m * stride + n, a[m], b + n, &lines);
    }
}
