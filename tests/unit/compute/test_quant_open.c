/* Values of quantised blocks: those that llama.cpp's own functions gave for random blocks of every type
 * (tests/golden/gguf/values.safetensors, made by bench/llama_library.c), to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "compute/quant_open.h"
#include "storage/safetensors/safetensors.h"

#define VALUES_MAX 1024

static void check_type(const struct ash_safetensors *golden, enum ash_dtype dtype)
{
    const struct ash_tensor_view *blocks, *values;
    float got[VALUES_MAX];
    char name[32];
    size_t count;

    snprintf(name, sizeof(name), "%s.blocks", ash_dtype_name(dtype));
    blocks = ash_safetensors_find(golden, name);
    snprintf(name, sizeof(name), "%s.values", ash_dtype_name(dtype));
    values = ash_safetensors_find(golden, name);
    assert_non_null(blocks);
    assert_non_null(values);
    count = values->dims[0];
    assert_true(count > 0 && count <= VALUES_MAX && blocks->dims[0] == ash_dtype_size(dtype, count));
    ash_quant_to_f32(blocks->data, dtype, count, got);
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], (const float *)values->data + i, sizeof(got[i])) != 0)
            fail_msg("%s: value %zu is %.9g, llama.cpp's is %.9g", ash_dtype_name(dtype), i, (double)got[i],
                     (double)((const float *)values->data)[i]);
}

static void test_values(void **state)
{
    struct ash_safetensors *golden = NULL;
    struct ash_err err = {0};
    size_t checked = 0;

    (void)state;
    if (ash_safetensors_open(TEST_DATA "/golden/gguf/values.safetensors", &golden, &err) < 0) fail_msg("%s", err.text);
    for (int i = 0; i < ASH_DTYPE_COUNT; i++) {
        if (ash_dtype_block((enum ash_dtype)i) == 1 || i == ASH_Q8_W) continue; /* Q8_W is read as Q8_0 is */
        check_type(golden, (enum ash_dtype)i);
        checked++;
    }
    assert_int_equal(checked, 13);
    ash_safetensors_close(golden);
}

/* A group as integers is the same values: its sub-scales and minimums are where they belong. */
static void test_opened(void **state)
{
    (void)state;
    for (int i = 0; i < ASH_DTYPE_COUNT; i++) {
        enum ash_dtype dtype = (enum ash_dtype)i;
        struct ash_quant_opened group;
        uint8_t block[256] = {0};

        if (ash_dtype_block(dtype) == 1) continue;
        memset(&group, 1, sizeof(group));
        ash_quant_open(block, dtype, ash_dtype_block(dtype), &group);
        assert_true(group.scale == (dtype == ASH_MXFP4 ? 0x1p-128f : 0.0f) && group.min == 0.0f);
        for (size_t k = 0; k < ash_dtype_block(dtype); k++) { /* quants of 0 bits are minus the offset */
            bool is_signed = dtype == ASH_Q8_0 || dtype == ASH_Q8_W;
            const int8_t *table = ash_quant_table(dtype);

            assert_int_equal(group.q[k], table != NULL ? table[0] : is_signed ? 0 : -ash_quant_offset(dtype));
        }
    }
}

/* Blocks by hand: e2m1 times a power of two; a table times sub-scales of 6 bits. */
static void test_blocks_by_hand(void **state)
{
    static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    uint8_t mxfp4[17] = {125}, nl[18] = {0, 0x3c}, xs[136] = {0, 0x38, 0x1b}; /* 1/4; 1; 1/2 */
    float got[ASH_QUANT_GROUP];

    (void)state;
    for (uint8_t i = 0; i < 16; i++) /* elements i and 16 + i: codes i and 15 - i */
        mxfp4[1 + i] = nl[2 + i] = (uint8_t)(i | (15 - i) << 4);
    for (size_t b = 0; b < 8; b++)
        memcpy(xs + 8 + 16 * b, nl + 2, 16);
    xs[4] = 0x21; /* low nibbles of the sub-scales of blocks 0 and 1; their high bits are 3 and 2 */
    ash_quant_to_f32(mxfp4, ASH_MXFP4, 32, got);
    for (size_t i = 0; i < 16; i++)
        assert_true(got[i] == e2m1[i] / 4 && got[16 + i] == e2m1[15 - i] / 4);
    ash_quant_to_f32(nl, ASH_IQ4_NL, 32, got);
    assert_true(got[0] == -127 && got[8] == 1 && got[15] == 113 && got[16] == 113 && got[31] == -127);
    ash_quant_to_f32(xs, ASH_IQ4_XS, 256, got);
    assert_true(got[0] == -127 * 17 / 2.0f && got[32] == -127 * 2 / 2.0f && got[64] == -127 * -16 / 2.0f);
    assert_true(got[255] == -127 * -32 / 2.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_opened),
                                       cmocka_unit_test(test_blocks_by_hand)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
