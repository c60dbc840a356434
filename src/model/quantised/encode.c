/* Encoding rows of weights. A scale is rounded first, and weights are divided by the rounded one. */
#include "model/quantised/encode.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/fp8.h"
#include "base/math.h"

#define MX_BLOCK 32
#define NV_BLOCK 16
#define AWQ_MOST 15.0f
#define AWQ_CODES 8 /* of a word */
#define E8M0_BIAS 127
#define E2M1_TOP_EXPONENT 2 /* of 4 and 6 */

size_t ash_encoding_code_bytes(const struct ash_encoding *encoding, size_t cols)
{
    return cols * encoding->code_bits / 8;
}

size_t ash_encoding_scales(const struct ash_encoding *encoding, size_t cols)
{
    return encoding->block > 0 ? cols / encoding->block : 1;
}

static float top_of(const float *x, size_t count)
{
    float top = 0.0f;

    for (size_t i = 0; i < count; i++)
        top = fmaxf(top, fabsf(x[i]));
    return top;
}

static void fp8_row(const struct ash_encoding *encoding, const float *x, size_t cols, float global,
                    const struct ash_encoded_row *out)
{
    uint16_t stored = ash_f32_to_bf16(top_of(x, cols) * global / ASH_E4M3_MAX);
    float scale;

    (void)encoding;
    if (stored == 0) stored = ash_f32_to_bf16(1.0f); /* zeros, or as good as */
    scale = ash_bf16_to_f32(stored);
    for (size_t i = 0; i < cols; i++) {
        out->codes[i] = ash_f32_to_e4m3(x[i] / scale);
        out->decoded[i] = ash_e4m3_to_f32(out->codes[i]) * scale;
    }
    memcpy(out->scales, &stored, sizeof(stored));
}

/* The codes of a block divided by scale. Returns the squared error. */
static double encode_block(const float *x, size_t count, float scale, uint8_t *codes, float *decoded)
{
    double error = 0.0;

    for (size_t i = 0; i < count; i += 2) {
        uint8_t low = scale > 0 ? ash_f32_to_e2m1(x[i] / scale) : 0;
        uint8_t high = scale > 0 ? ash_f32_to_e2m1(x[i + 1] / scale) : 0;

        codes[i / 2] = (uint8_t)(low | high << 4);
        decoded[i] = ash_e2m1_to_f32(low) * scale;
        decoded[i + 1] = ash_e2m1_to_f32(high) * scale;
        error += pow((double)x[i] - (double)decoded[i], 2) + pow((double)x[i + 1] - (double)decoded[i + 1], 2);
    }
    return error;
}

/* The same with another scale, kept if its error is less. Returns whether it is. */
static bool try_block(const float *x, size_t count, float scale, double error, uint8_t *codes, float *decoded)
{
    uint8_t other_codes[MX_BLOCK / 2];
    float other[MX_BLOCK];

    ash_assert(count <= MX_BLOCK);
    if (!(encode_block(x, count, scale, other_codes, other) < error)) return false;
    memcpy(codes, other_codes, count / 2);
    memcpy(decoded, other, count * sizeof(*decoded));
    return true;
}

static void mxfp4_row(const struct ash_encoding *encoding, const float *x, size_t cols, float global,
                      const struct ash_encoded_row *out)
{
    uint8_t *codes = out->codes, *scales = out->scales;
    float *decoded = out->decoded;

    (void)encoding;
    ash_assert(cols % MX_BLOCK == 0 && global == 1.0f);
    for (size_t at = 0; at < cols; at += MX_BLOCK, codes += MX_BLOCK / 2, scales++) {
        float top = top_of(x + at, MX_BLOCK);
        int exponent = top > 0 ? ilogbf(top) - E2M1_TOP_EXPONENT : 0;
        uint8_t code = (uint8_t)ash_max(exponent + E8M0_BIAS, 0);
        double error = encode_block(x + at, MX_BLOCK, ash_e8m0_to_f32(code), codes, decoded + at);

        if (try_block(x + at, MX_BLOCK, ash_e8m0_to_f32((uint8_t)(code + 1)), error, codes, decoded + at)) code++;
        *scales = code;
    }
}

static void nvfp4_row(const struct ash_encoding *encoding, const float *x, size_t cols, float global,
                      const struct ash_encoded_row *out)
{
    uint8_t *codes = out->codes, *scales = out->scales;
    float *decoded = out->decoded;

    (void)encoding;
    ash_assert(cols % NV_BLOCK == 0);
    for (size_t at = 0; at < cols; at += NV_BLOCK, codes += NV_BLOCK / 2, scales++) {
        float top = top_of(x + at, NV_BLOCK);
        uint8_t code = ash_f32_to_e4m3(top / ASH_E2M1_MAX * global), four = ash_f32_to_e4m3(top / 4 * global);
        double error = encode_block(x + at, NV_BLOCK, ash_e4m3_to_f32(code) / global, codes, decoded + at);

        if (try_block(x + at, NV_BLOCK, ash_e4m3_to_f32(four) / global, error, codes, decoded + at)) code = four;
        *scales = code;
    }
}

/* The range of a block and 0 in 15 steps; the scale is rounded first, and the zero point is what 0 becomes. */
static void awq_row(const struct ash_encoding *encoding, const float *x, size_t cols, float global,
                    const struct ash_encoded_row *out)
{
    ash_assert(cols % encoding->block == 0 && global == 1.0f);
    for (size_t at = 0, b = 0; at < cols; at += encoding->block, b++) {
        float low = 0.0f, high = 0.0f, scale, zero;
        uint16_t half;

        for (size_t i = at; i < at + encoding->block; i++) {
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        half = ash_f32_to_f16((high - low) / AWQ_MOST);
        if (half == 0) half = 1; /* the smallest there is */
        scale = ash_f16_to_f32(half);
        zero = fminf(rintf(-low / scale), AWQ_MOST);
        memcpy(out->scales + b * sizeof(half), &half, sizeof(half));
        out->zeros[b] = (uint8_t)zero;
        for (size_t i = at; i < at + encoding->block; i++) {
            float code = fminf(fmaxf(rintf(x[i] / scale) + zero, 0.0f), AWQ_MOST);

            out->codes[i] = (uint8_t)code;
            out->decoded[i] = (code - zero) * scale;
        }
    }
}

void ash_encode_columns(const uint8_t *bytes, size_t rows, size_t cols, uint32_t *words)
{
    static const uint8_t order[AWQ_CODES] = {0, 2, 4, 6, 1, 3, 5, 7};

    ash_assert(rows % AWQ_CODES == 0);
    for (size_t c = 0; c < cols; c++)
        for (size_t first = 0; first < rows; first += AWQ_CODES) {
            uint32_t word = 0;

            for (size_t i = 0; i < AWQ_CODES; i++)
                word |= (uint32_t)bytes[(first + order[i]) * cols + c] << 4 * i;
            *words++ = word;
        }
}

const struct ash_encoding ash_encoding_fp8 = {
    .name = "fp8", .code_bits = 8, .codes_dtype = ASH_F8_E4M3, .scales_dtype = ASH_BF16, .row = fp8_row};
const struct ash_encoding ash_encoding_mxfp4 = {.name = "mxfp4",
                                                .block = MX_BLOCK,
                                                .code_bits = 4,
                                                .codes_dtype = ASH_U8,
                                                .scales_dtype = ASH_U8,
                                                .row = mxfp4_row};
const struct ash_encoding ash_encoding_nvfp4 = {.name = "nvfp4",
                                                .block = NV_BLOCK,
                                                .code_bits = 4,
                                                .codes_dtype = ASH_U8,
                                                .scales_dtype = ASH_F8_E4M3,
                                                .tensor_top = ASH_E4M3_MAX * ASH_E2M1_MAX,
                                                .row = nvfp4_row};

#define AWQ(group)                                                                                                     \
    {                                                                                                                  \
        .name = "awq", .block = (group), .code_bits = 4, .codes_dtype = ASH_I32, .scales_dtype = ASH_F16,              \
        .has_zeros = true, .row = awq_row                                                                              \
    }

const struct ash_encoding ash_encoding_awq32 = AWQ(32);
const struct ash_encoding ash_encoding_awq64 = AWQ(64);
const struct ash_encoding ash_encoding_awq128 = AWQ(128);

const struct ash_encoding *ash_encoding_fit(const struct ash_encoding *encoding, size_t cols)
{
    if (encoding == &ash_encoding_awq128 && cols % 128 != 0) encoding = &ash_encoding_awq64;
    return encoding == &ash_encoding_awq64 && cols % 64 != 0 ? &ash_encoding_awq32 : encoding;
}
