/* Rows of weights as published codes: blocks by hand; drawn ones decode to what the encoder says, lose no more than
 * with another scale, and what can be said exactly is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/fp8.h"
#include "base/rng.h"
#include "model/quantised/encode.h"

#define COLS 96

static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

static void encode(const struct ash_encoding *encoding, const float *x, size_t cols, float global, uint8_t *codes,
                   uint8_t *scales, float *decoded)
{
    const struct ash_encoded_row row = {.codes = codes, .scales = scales, .decoded = decoded};

    encoding->row(encoding, x, cols, global, &row);
}

static void test_fp8_by_hand(void **state)
{
    const float x[4] = {-896, 2, 1, 0.001f};
    uint8_t codes[4];
    uint16_t scale;
    float decoded[4];

    (void)state;
    encode(&ash_encoding_fp8, x, 4, 1, codes, (uint8_t *)&scale, decoded);
    assert_true(ash_bf16_to_f32(scale) == 2);
    assert_int_equal(codes[0], 0xfe); /* -448 */
    assert_int_equal(codes[1], 0x38); /* 1 */
    assert_int_equal(codes[2], 0x30); /* 1/2 */
    assert_int_equal(codes[3], 0);    /* less than half of 2^-9 */
    assert_true(decoded[0] == -896 && decoded[1] == 2 && decoded[2] == 1 && decoded[3] == 0);
}

static void test_what_fp4_can_say_it_says(void **state)
{
    float x[32], decoded[32];
    uint8_t codes[16], scales[2];

    (void)state;
    for (int i = 0; i < 32; i++)
        x[i] = ldexpf(i % 2 ? -e2m1[i / 2 % 8] : e2m1[i / 2 % 8], -3);
    encode(&ash_encoding_mxfp4, x, 32, 1, codes, scales, decoded);
    assert_int_equal(scales[0], 127 - 3);
    assert_memory_equal(decoded, x, sizeof(x));
    assert_int_equal(codes[1], 0x91); /* 1/16, then -1/16: the first is the low half */
    encode(&ash_encoding_nvfp4, x, 32, 448 * 6 / 0.75f, codes, scales, decoded);
    assert_int_equal(scales[0], 0x7e);
    assert_memory_equal(decoded, x, sizeof(x));
}

static void test_zeros_are_zeros(void **state)
{
    static const struct ash_encoding *const all[] = {&ash_encoding_fp8, &ash_encoding_mxfp4, &ash_encoding_nvfp4};
    const float x[32] = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint8_t codes[32], scales[4];
        float decoded[32];

        memset(decoded, 1, sizeof(decoded));
        encode(all[i], x, 32, 1, codes, scales, decoded);
        for (int k = 0; k < 32; k++)
            assert_true(decoded[k] == 0);
    }
}

static void draw_row(uint64_t seed, float *x)
{
    for (uint64_t i = 0; i < COLS; i++)
        x[i] = (float)(ash_rng_normal(seed, 1, i) * pow(2, ash_rng_normal(seed, 2, i / 16)));
}

static double error_of(const float *x, const float *decoded, size_t count)
{
    double error = 0;

    for (size_t i = 0; i < count; i++)
        error += pow((double)x[i] - (double)decoded[i], 2);
    return error;
}

/* Codes of FP4 and the scales of their blocks, by the definition. */
static void check_pairs(const uint8_t *codes, const float *decoded, size_t block, const float *scales)
{
    for (size_t i = 0; i < COLS; i++) {
        unsigned code = codes[i / 2] >> (i % 2 * 4) & 15;
        float value = (code & 8 ? -e2m1[code & 7] : e2m1[code & 7]) * scales[i / block];

        assert_true(value == decoded[i]);
    }
}

static void test_drawn_mxfp4(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint8_t codes[COLS / 2], scales[COLS / 32];
        float x[COLS], decoded[COLS], factors[COLS / 32], other[32];

        draw_row(seed, x);
        encode(&ash_encoding_mxfp4, x, COLS, 1, codes, scales, decoded);
        for (size_t b = 0; b < COLS / 32; b++) {
            factors[b] = ldexpf(1, scales[b] - 127);
            for (int shift = -3; shift <= 3; shift++) { /* no other power of two is better */
                for (int i = 0; i < 32; i++) {
                    float scale = ldexpf(factors[b], shift);

                    other[i] = ash_e2m1_to_f32(ash_f32_to_e2m1(x[32 * b + (size_t)i] / scale)) * scale;
                }
                assert_true(error_of(x + 32 * b, decoded + 32 * b, 32) <= error_of(x + 32 * b, other, 32));
            }
        }
        check_pairs(codes, decoded, 32, factors);
    }
}

static void test_drawn_nvfp4(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint8_t codes[COLS / 2], scales[COLS / 16];
        float x[COLS], decoded[COLS], factors[COLS / 16], global = (float)exp(ash_rng_normal(seed, 3, 0) + 4);

        draw_row(seed, x);
        encode(&ash_encoding_nvfp4, x, COLS, global, codes, scales, decoded);
        for (size_t b = 0; b < COLS / 16; b++)
            factors[b] = ash_e4m3_to_f32(scales[b]) / global;
        check_pairs(codes, decoded, 16, factors);
    }
}

/* -1 and 2 in steps of 1/5: 0 is code 5. A block of one sign begins or ends at 0. */
static void test_awq_by_hand(void **state)
{
    float x[64] = {-1, 2, 0, 0.39f, 1, 0.3f, 1.5f, -0.9f}, decoded[64];
    uint8_t codes[64], zeros[2];
    uint16_t scales[2];
    const struct ash_encoded_row row = {codes, (uint8_t *)scales, zeros, decoded};

    (void)state;
    for (size_t i = 32; i < 64; i++)
        x[i] = 15.0f + (float)i;
    ash_encoding_awq32.row(&ash_encoding_awq32, x, 64, 1, &row);
    assert_int_equal(scales[0], ash_f32_to_f16(0.2f));
    assert_int_equal(zeros[0], 5);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 15);
    assert_int_equal(codes[2], 5);
    assert_int_equal(codes[3], 7);
    assert_true(decoded[2] == 0 && decoded[3] == 2 * ash_f16_to_f32(scales[0]));
    assert_int_equal(zeros[1], 0);
    assert_int_equal(codes[63], 15);
}

static void test_awq_words_have_their_order(void **state)
{
    uint8_t bytes[16 * 2];
    uint32_t words[2 * 2];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i / 2 % 8 + i % 2 * 8); /* row, and 8 in the second column */
    ash_encode_columns(bytes, 16, 2, words);
    assert_int_equal(words[0], 0x75316420);
    assert_int_equal(words[1], 0x75316420);
    assert_int_equal(words[2], 0xfdb9eca8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_by_hand),
        cmocka_unit_test(test_what_fp4_can_say_it_says),
        cmocka_unit_test(test_zeros_are_zeros),
        cmocka_unit_test(test_drawn_mxfp4),
        cmocka_unit_test(test_drawn_nvfp4),
        cmocka_unit_test(test_awq_by_hand),
        cmocka_unit_test(test_awq_words_have_their_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
