/* GGUF files: what is written is read back, and every kind of damage gets a sentence, never a pointer outside the
 * file. */
#include <errno.h>
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/assert.h"
#include "storage/gguf/gguf.h"
#include "unit/storage/gguf_maker.h"

/* One value of every type, and one tensor of every dtype. */
static void make_full(struct gguf_maker *maker, uint32_t version)
{
    maker_init(maker, version);
    maker_key(maker, "a.u8", ASH_GGUF_U8), maker_number(maker, 200, 1);
    maker_key(maker, "a.i8", ASH_GGUF_I8), maker_number(maker, (uint64_t)-7, 1);
    maker_key(maker, "a.u16", ASH_GGUF_U16), maker_number(maker, 60000, 2);
    maker_key(maker, "a.i16", ASH_GGUF_I16), maker_number(maker, (uint64_t)-300, 2);
    maker_int(maker, "a.u32", 4000000000u);
    maker_key(maker, "a.i32", ASH_GGUF_I32), maker_number(maker, (uint64_t)-70000, 4);
    maker_float(maker, "a.f32", 0.5f);
    maker_key(maker, "a.bool", ASH_GGUF_BOOL), maker_number(maker, 1, 1);
    maker_text(maker, "a.text", "stein");
    maker_key(maker, "a.u64", ASH_GGUF_U64), maker_number(maker, UINT64_MAX, 8);
    maker_key(maker, "a.i64", ASH_GGUF_I64), maker_number(maker, (uint64_t)INT64_MIN, 8);
    maker_key(maker, "a.f64", ASH_GGUF_F64), maker_number(maker, 0x3fd0000000000000u, 8); /* 0.25 */
    maker_key(maker, "a.numbers", ASH_GGUF_ARRAY), maker_number(maker, ASH_GGUF_I16, 4), maker_number(maker, 3, 8);
    for (uint64_t i = 0; i < 3; i++)
        maker_number(maker, i, 2);
    maker_key(maker, "a.nested", ASH_GGUF_ARRAY), maker_number(maker, ASH_GGUF_ARRAY, 4), maker_number(maker, 2, 8);
    maker_number(maker, ASH_GGUF_STRING, 4), maker_number(maker, 1, 8), maker_string(maker, "x");
    maker_number(maker, ASH_GGUF_U8, 4), maker_number(maker, 0, 8);
    maker_tensor(maker, "t.f32", 0, 2, (uint64_t[]){3, 2}, 24);
    maker_tensor(maker, "t.f16", 1, 1, (uint64_t[]){5}, 10);
    maker_tensor(maker, "t.bf16", 30, 1, (uint64_t[]){1}, 2);
    maker_tensor(maker, "t.q8", 8, 2, (uint64_t[]){64, 2}, 136);
    maker_tensor(maker, "t.q4", 2, 3, (uint64_t[]){32, 2, 3}, 108);
    maker_finish(maker);
}

static void test_values(void **state)
{
    static const struct {
        const char *key;
        int64_t value;
    } whole[] = {{"a.u8", 200},         {"a.i8", -7},      {"a.u16", 60000}, {"a.i16", -300},
                 {"a.u32", 4000000000}, {"a.i32", -70000}, {"a.bool", 1},    {"a.i64", INT64_MIN}};
    struct gguf_maker maker;
    struct ash_gguf *file = NULL;
    struct ash_err err = {0};
    const char *text = NULL;
    int64_t number = 0;
    double real = 0;

    (void)state;
    make_full(&maker, 3);
    assert_int_equal(ash_gguf_parse(maker.file, maker.file_bytes, "x.gguf", &file, &err), 0);
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        assert_int_equal(ash_gguf_int(file, whole[i].key, INT64_MIN, INT64_MAX, &number, &err), 1);
        assert_true(number == whole[i].value);
    }
    assert_int_equal(ash_gguf_double(file, "a.f32", 0, 1, &real, &err), 1);
    assert_true(real == 0.5);
    assert_int_equal(ash_gguf_double(file, "a.f64", 0, 1, &real, &err), 1);
    assert_true(real == 0.25);
    assert_int_equal(ash_gguf_string(file, "a.text", &text, &err), 1);
    assert_string_equal(text, "stein");
    assert_int_equal(ash_gguf_get_value(file, "a.numbers")->count, 3);
    assert_int_equal(ash_gguf_get_value(file, "a.numbers")->size_bytes, 6);
    assert_int_equal(ash_gguf_get_value(file, "a.nested")->element, ASH_GGUF_ARRAY);
    assert_int_equal(ash_gguf_get_value(file, "a.nested")->size_bytes, 12 + 9 + 12);
    /* what cannot be had, says so and leaves the default */
    number = 5;
    assert_int_equal(ash_gguf_int(file, "a.none", 0, 1, &number, &err), 0);
    assert_int_equal(ash_gguf_int(file, "a.u64", INT64_MIN, INT64_MAX, &number, &err), -EINVAL);
    assert_int_equal(ash_gguf_int(file, "a.u8", 0, 100, &number, &err), -EINVAL);
    assert_int_equal(ash_gguf_int(file, "a.f32", 0, 1, &number, &err), -EINVAL);
    assert_int_equal(ash_gguf_int(file, "a.text", 0, 1, &number, &err), -EINVAL);
    assert_int_equal(ash_gguf_double(file, "a.u8", 0, 1, &real, &err), -EINVAL);
    assert_int_equal(ash_gguf_double(file, "a.f32", 1, 2, &real, &err), -EINVAL);
    assert_int_equal(ash_gguf_string(file, "a.u8", &text, &err), -EINVAL);
    assert_int_equal(number, 5);
    ash_gguf_close(file);
    maker_fini(&maker);
}

static void test_tensors(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_maker maker;
        struct ash_gguf *file = NULL;
        const struct ash_tensor_view *view;
        struct ash_err err = {0};

        make_full(&maker, version);
        assert_int_equal(ash_gguf_parse(maker.file, maker.file_bytes, "x.gguf", &file, &err), 0);
        assert_int_equal(ash_gguf_size(file), 5);
        view = ash_gguf_find(file, "t.f32");
        assert_true(view->dtype == ASH_F32 && view->dim_count == 2 && view->dims[0] == 2 && view->dims[1] == 3);
        assert_int_equal(((const uint8_t *)view->data)[23], maker_byte(23)); /* the first tensor's data begin at 0 */
        view = ash_gguf_find(file, "t.q4");
        assert_true(view->dtype == ASH_Q4_0 && view->dims[0] == 3 && view->dims[1] == 2 && view->dims[2] == 32);
        assert_int_equal(view->size_bytes, 108);
        assert_int_equal(ash_gguf_find(file, "t.q8")->size_bytes, 136);
        assert_int_equal(ash_gguf_find(file, "t.bf16")->size_bytes, 2);
        assert_null(ash_gguf_find(file, "t"));
        for (size_t i = 0; i < 5; i++)
            assert_int_equal((uintptr_t)ash_gguf_at(file, i)->data % 8, 0);
        assert_null(ash_gguf_at(file, 5));
        ash_gguf_close(file);
        maker_fini(&maker);
    }
}

/* A file cut anywhere is refused, with a sentence. */
/* Every quantised type by its number in the format, with the bytes of its blocks. */
static void test_quantised(void **state)
{
    static const struct {
        uint32_t number;
        enum ash_dtype dtype;
        size_t block, bytes;
    } types[] = {{2, ASH_Q4_0, 32, 18},    {3, ASH_Q4_1, 32, 20},    {6, ASH_Q5_0, 32, 22},
                 {7, ASH_Q5_1, 32, 24},    {8, ASH_Q8_0, 32, 34},    {10, ASH_Q2_K, 256, 84},
                 {11, ASH_Q3_K, 256, 110}, {12, ASH_Q4_K, 256, 144}, {13, ASH_Q5_K, 256, 176},
                 {14, ASH_Q6_K, 256, 210}, {20, ASH_IQ4_NL, 32, 18}, {23, ASH_IQ4_XS, 256, 136},
                 {39, ASH_MXFP4, 32, 17}};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(types); i++) {
        struct gguf_maker maker;
        struct ash_gguf *file = NULL;
        const struct ash_tensor_view *view;
        struct ash_err err = {0};

        maker_init(&maker, 3);
        maker_tensor(&maker, "t", types[i].number, 2, (uint64_t[]){2 * types[i].block, 3}, 6 * types[i].bytes);
        maker_finish(&maker);
        assert_int_equal(ash_gguf_parse(maker.file, maker.file_bytes, "x.gguf", &file, &err), 0);
        view = ash_gguf_find(file, "t");
        assert_true(view->dtype == types[i].dtype && view->dims[0] == 3 && view->dims[1] == 2 * types[i].block);
        assert_int_equal(view->size_bytes, 6 * types[i].bytes);
        ash_gguf_close(file);
        maker_fini(&maker);
    }
}

static void test_truncated(void **state)
{
    struct gguf_maker maker;

    (void)state;
    make_full(&maker, 3);
    for (size_t bytes = 0; bytes < maker.file_bytes; bytes++) {
        struct ash_gguf *file = NULL;
        struct ash_err err = {0};

        assert_true(ash_gguf_parse(maker.file, bytes, "x.gguf", &file, &err) < 0);
        assert_null(file);
        assert_true(strncmp(err.text, "x.gguf: ", 8) == 0);
    }
    maker_fini(&maker);
}

/* One wrong thing each; the sentence must name it. */
static void refuse(struct gguf_maker *maker, const char *cause)
{
    struct ash_gguf *file = NULL;
    struct ash_err err = {0};

    maker_finish(maker);
    assert_true(ash_gguf_parse(maker->file, maker->file_bytes, "x.gguf", &file, &err) < 0);
    if (strstr(err.text, cause) == NULL) fail_msg("'%s' does not say '%s'", err.text, cause);
    maker_fini(maker);
}

static void test_bad_header(void **state)
{
    struct gguf_maker maker;

    (void)state;
    maker_init(&maker, 1);
    refuse(&maker, "version 1");
    maker_init(&maker, 4);
    refuse(&maker, "version 4");
    maker_init(&maker, 0x03000000);
    refuse(&maker, "big-endian");
    maker_init(&maker, 3);
    maker.tensor_count = (uint64_t)1 << 60;
    refuse(&maker, "do not fit");
    maker_init(&maker, 3);
    maker.value_count = UINT64_MAX;
    refuse(&maker, "do not fit");
}

static void test_bad_values(void **state)
{
    struct gguf_maker maker;

    (void)state;
    maker_init(&maker, 3);
    maker_key(&maker, "k", 13), maker_number(&maker, 0, 8);
    refuse(&maker, "'k' is damaged");
    maker_init(&maker, 3);
    maker_key(&maker, "k", ASH_GGUF_BOOL), maker_number(&maker, 2, 1);
    refuse(&maker, "'k' is damaged");
    maker_init(&maker, 3);
    maker_key(&maker, "k", ASH_GGUF_STRING), maker_number(&maker, UINT64_MAX - 3, 8);
    refuse(&maker, "'k' is damaged");
    maker_init(&maker, 3);
    maker_key(&maker, "k", ASH_GGUF_ARRAY), maker_number(&maker, ASH_GGUF_F64, 4),
        maker_number(&maker, (uint64_t)1 << 61, 8);
    refuse(&maker, "'k' is damaged");
    maker_init(&maker, 3);
    maker_key(&maker, "k", ASH_GGUF_ARRAY);
    for (int i = 0; i < 64; i++)
        maker_number(&maker, ASH_GGUF_ARRAY, 4), maker_number(&maker, 1, 8);
    refuse(&maker, "'k' is damaged");
    maker_init(&maker, 3);
    maker_int(&maker, "k", 1), maker_int(&maker, "k", 1);
    refuse(&maker, "twice");
    maker_init(&maker, 3);
    maker_int(&maker, "", 1), maker_int(&maker, "kk", 1);
    refuse(&maker, "0 bytes");
    maker_init(&maker, 3);
    maker_int(&maker, "\xff\xfe", 1);
    refuse(&maker, "not text");
    maker_init(&maker, 3);
    maker_int(&maker, "general.alignment", 24);
    refuse(&maker, "power of two");
    maker_init(&maker, 3);
    maker_int(&maker, "general.alignment", 0);
    refuse(&maker, "general.alignment");
}

static void test_bad_tensors(void **state)
{
    struct gguf_maker maker;

    (void)state;
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 21, 1, (uint64_t[]){256}, 110);
    refuse(&maker, "its type, IQ3_S, is not read; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, "
                   "IQ4_XS and MXFP4 are");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 40, 1, (uint64_t[]){64}, 36);
    refuse(&maker, "its type, NVFP4, is not read");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 12, 1, (uint64_t[]){128}, 144);
    refuse(&maker, "rows of 128 elements are not whole blocks of Q4_K (256 elements)");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 99, 1, (uint64_t[]){256}, 144);
    refuse(&maker, "GGML's number 99");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 8, 1, (uint64_t[]){33}, 34);
    refuse(&maker, "whole blocks");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 0, 2, (uint64_t[]){0, 4}, 4);
    refuse(&maker, "dimension of 0");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 0, 4, (uint64_t[]){(uint64_t)1 << 31, (uint64_t)1 << 31, 4, 4}, 4);
    refuse(&maker, "overflows");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 0, 1, (uint64_t[]){100}, 4);
    refuse(&maker, "beyond the file");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 0, 0, NULL, 4);
    refuse(&maker, "0 dimensions");
    maker_init(&maker, 3);
    maker_tensor(&maker, "t", 0, 1, (uint64_t[]){1}, 4);
    maker_tensor(&maker, "t", 0, 1, (uint64_t[]){1}, 4);
    refuse(&maker, "twice");
    maker_init(&maker, 3);
    maker.data_bytes = 4; /* the next tensor's offset is this */
    maker_tensor(&maker, "t", 0, 1, (uint64_t[]){1}, 64);
    refuse(&maker, "no multiple");
}

static void test_open(void **state)
{
    struct ash_gguf *file = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_gguf_open("/nonexistent/x.gguf", &file, &err), -ENOENT);
    assert_true(ash_gguf_open(TEST_DATA "/CMakeLists.txt", &file, &err) < 0);
    assert_non_null(strstr(err.text, "not a GGUF file"));
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_tensors),    cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_truncated),   cmocka_unit_test(test_bad_header), cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
