/* Weights as quantised blocks: what is lost, and that scales of Q4_0 are few steps of a unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include "base/assert.h"
#include "base/bf16.h"
#include "base/rng.h"
#include "compute/quant_open.h"
#include "model/files/quantise.h"

enum { ROW = 2 * ASH_QUANT_GROUP + 96 }; /* the last group has three blocks */

static void draw(uint64_t seed, float size, float *x)
{
    for (size_t i = 0; i < ROW; i++)
        x[i] = size * (float)ash_rng_normal(seed, 1, i);
}

/* Sum of squares of what is lost. */
static double lost(const float *x, enum ash_dtype dtype, const uint8_t *blocks)
{
    float back[ROW];
    double sum = 0;

    ash_quant_to_f32(blocks, dtype, ROW, back);
    for (size_t i = 0; i < ROW; i++)
        sum += ((double)x[i] - back[i]) * ((double)x[i] - back[i]);
    return sum;
}

/* What is lost where the largest number of a block is -8 times its scale. */
static double lost_usually(const float *x)
{
    double sum = 0;

    for (size_t at = 0; at < ROW; at += ASH_QUANT_BLOCK) {
        float top = 0, scale;

        for (size_t i = at; i < at + ASH_QUANT_BLOCK; i++)
            top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
        scale = ash_f16_to_f32(ash_f32_to_f16(top / -8));
        for (size_t i = at; i < at + ASH_QUANT_BLOCK; i++) {
            double nearest = fmin(fmax(rint(x[i] / scale), -8), 7);

            sum += (x[i] - nearest * scale) * (x[i] - nearest * scale);
        }
    }
    return sum;
}

static void assert_few_steps(const uint8_t *blocks)
{
    for (size_t at = 0; at < ROW; at += ASH_QUANT_GROUP) {
        size_t count = (ROW - at < ASH_QUANT_GROUP ? ROW - at : ASH_QUANT_GROUP) / ASH_QUANT_BLOCK;
        int32_t steps[ASH_QUANT_GROUP_BLOCKS], most = 0;

        ash_quant_subscales(blocks + ash_dtype_size(ASH_Q4_0, at), count, ASH_Q4_0, steps);
        for (size_t b = 0; b < count; b++)
            most = abs(steps[b]) > most ? abs(steps[b]) : most;
        assert_int_equal(most, ASH_QUANT_SUBSCALE_SMALL_MAX);
    }
}

static void test_q4(void **state)
{
    static const float sizes[] = {1.0f, 0.02f, 900.0f, 3e-5f}; /* of the last, scales are denormal in f16 */

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        float x[ROW];
        uint8_t blocks[ROW / ASH_QUANT_BLOCK * 18];

        draw(seed, sizes[seed % ASH_COUNT(sizes)], x);
        for (size_t i = 0; i < ASH_QUANT_BLOCK && seed % 3 == 0; i++)
            x[i + ASH_QUANT_BLOCK] *= 0.01f; /* a block that is much smaller than its neighbours */
        ash_quantise_row(x, ROW, ASH_Q4_0, blocks);
        assert_few_steps(blocks);
        if (seed % ASH_COUNT(sizes) < 3) assert_true(lost(x, ASH_Q4_0, blocks) < 0.99 * lost_usually(x));
    }
}

/* A few weights that are much larger than all others do not cost those their precision. */
static void test_q4_outliers(void **state)
{
    float x[ROW];
    uint8_t blocks[ROW / ASH_QUANT_BLOCK * 18];

    (void)state;
    draw(3, 0.02f, x);
    x[40] = 3.0f;
    x[ASH_QUANT_GROUP + 7] = -5.0f;
    ash_quantise_row(x, ROW, ASH_Q4_0, blocks);
    assert_true(lost(x, ASH_Q4_0, blocks) < 1.1 * lost_usually(x));
}

/* Weights that 4 bits have exactly stay what they are. */
static void test_q4_exact(void **state)
{
    float x[ROW], back[ROW];
    uint8_t blocks[ROW / ASH_QUANT_BLOCK * 18];

    (void)state;
    for (size_t i = 0; i < ROW; i++) /* -8 to 7, times 1.875 */
        x[i] = 1.875f * (float)((int)(i % 16) - 8);
    ash_quantise_row(x, ROW, ASH_Q4_0, blocks);
    ash_quant_to_f32(blocks, ASH_Q4_0, ROW, back);
    assert_memory_equal(x, back, sizeof(x));
}

static void test_zeros(void **state)
{
    static const enum ash_dtype dtypes[] = {ASH_Q8_0, ASH_Q8_W, ASH_Q4_0};
    static const float sizes[] = {0.0f, 1e-30f};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(dtypes) * ASH_COUNT(sizes); i++) {
        enum ash_dtype dtype = dtypes[i / ASH_COUNT(sizes)];
        float x[ROW], back[ROW];
        uint8_t blocks[ROW / ASH_QUANT_BLOCK * 34];

        for (size_t j = 0; j < ROW; j++)
            x[j] = sizes[i % ASH_COUNT(sizes)];
        ash_quantise_row(x, ROW, dtype, blocks);
        ash_quant_to_f32(blocks, dtype, ROW, back);
        for (size_t j = 0; j < ROW; j++)
            assert_true(back[j] == 0.0f);
    }
}

static void test_q8(void **state)
{
    float x[ROW];
    uint8_t fine[ROW / ASH_QUANT_BLOCK * 34], wide[sizeof(fine)];
    double size = 0;

    (void)state;
    draw(7, 0.02f, x);
    for (size_t i = 0; i < ROW; i++)
        size += (double)x[i] * x[i];
    ash_quantise_row(x, ROW, ASH_Q8_0, fine);
    ash_quantise_row(x, ROW, ASH_Q8_W, wide);
    assert_true(lost(x, ASH_Q8_0, fine) < 4e-5 * size);
    assert_true(lost(x, ASH_Q8_W, wide) < 8e-5 * size);
    for (size_t b = 0; b < ROW / ASH_QUANT_BLOCK; b++) /* one scale to a group */
        assert_memory_equal(wide + b * 34, wide + b / 8 * 8 * 34, sizeof(uint16_t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_q4),    cmocka_unit_test(test_q4_outliers), cmocka_unit_test(test_q4_exact),
        cmocka_unit_test(test_zeros), cmocka_unit_test(test_q8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
