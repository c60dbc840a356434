/* Reading one safetensors file: what a good one gives, and the sentence for each way in which one can be bad. */
#include "unit/storage/scratch.h"

#include <errno.h>

#include "base/assert.h"
#include "storage/safetensors/safetensors.h"
#include "unit/storage/sample.h"

static const char good_header[] = "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"me\"},"
                                  "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                  "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
                                  "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
                                  "\"z\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[32,35]}}   ";

static void test_good(void **state)
{
    struct sample sample = sample_of(good_header, 35);
    const unsigned char *data = sample.bytes + sample.size_bytes - 35;
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};
    const char *const names[] = {"a", "b", "empty", "z"};
    const struct ash_tensor_view *view;

    (void)state;
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "good", &set, &err), 0);
    assert_int_equal(ash_safetensors_size(set), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(ash_safetensors_at(set, i)->name, names[i]);
        assert_ptr_equal(ash_safetensors_find(set, names[i]), ash_safetensors_at(set, i));
    }
    assert_null(ash_safetensors_at(set, 4));
    assert_null(ash_safetensors_find(set, "c"));
    assert_null(ash_safetensors_find(set, "__metadata__"));

    view = ash_safetensors_find(set, "b");
    assert_int_equal(view->dtype, ASH_F32);
    assert_int_equal(view->dim_count, 2);
    assert_int_equal(view->dims[0], 2);
    assert_int_equal(view->dims[1], 3);
    assert_int_equal(view->size_bytes, 24);
    assert_int_equal(ash_tensor_count(view), 6);
    assert_memory_equal(view->data, data, 24);
    view = ash_safetensors_find(set, "a");
    assert_int_equal(view->dim_count, 0);
    assert_int_equal(ash_tensor_count(view), 1);
    assert_memory_equal(view->data, data + 24, 8);
    assert_int_equal(ash_tensor_count(ash_safetensors_find(set, "empty")), 0);
    assert_int_equal(ash_safetensors_find(set, "empty")->size_bytes, 0);
    assert_memory_equal(ash_safetensors_find(set, "z")->data, data + 32, 3);

    assert_string_equal(ash_safetensors_metadata(set, "format"), "pt");
    assert_string_equal(ash_safetensors_metadata(set, "who"), "me");
    assert_null(ash_safetensors_metadata(set, "what"));
    ash_safetensors_close(set);
    free(sample.bytes);
}

/* An odd place in memory must not show: views are aligned whatever the file does. */
static void test_unaligned_data_is_copied(void **state)
{
    struct sample sample = sample_of("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                     "\"y\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[1,17]}}",
                                     17);
    struct ash_safetensors *set = NULL;
    const struct ash_tensor_view *view;

    (void)state;
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "odd", &set, NULL), 0);
    view = ash_safetensors_find(set, "y");
    assert_int_equal((uintptr_t)view->data % 8, 0);
    assert_memory_equal(view->data, sample.bytes + sample.size_bytes - 16, 16);
    ash_safetensors_close(set);
    free(sample.bytes);
}

static void test_no_tensor_and_no_metadata(void **state)
{
    struct sample sample = sample_of("{}", 0);
    struct ash_safetensors *set = NULL;

    (void)state;
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "empty", &set, NULL), 0);
    assert_int_equal(ash_safetensors_size(set), 0);
    assert_null(ash_safetensors_at(set, 0));
    assert_null(ash_safetensors_find(set, "x"));
    assert_null(ash_safetensors_metadata(set, "format"));
    ash_safetensors_close(set);
    ash_safetensors_close(NULL);
    free(sample.bytes);
}

/* The sample must be refused as bad input, and the sentence must name the file and hold `words`. */
static void expect_refused(struct sample sample, const char *words)
{
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};
    int rc = ash_safetensors_parse(sample.bytes, sample.size_bytes, "weights", &set, &err);

    free(sample.bytes);
    if (rc != -EINVAL || strstr(err.text, words) == NULL) fail_msg("wanted '%s', got %d '%s'", words, rc, err.text);
    assert_int_equal(err.code, rc);
    assert_null(set);
    assert_non_null(strstr(err.text, "weights"));
}

static void test_bad_lengths(void **state)
{
    (void)state;
    expect_refused((struct sample){malloc(1), 0}, "too few");
    expect_refused((struct sample){calloc(1, 7), 7}, "too few");
    expect_refused(sample_make(0, "", 0), "does not begin with '{'");
    expect_refused(sample_make(0, "{}", 0), "does not begin with '{'");
    expect_refused(sample_make(3, "{}", 0), "truncated");
    expect_refused(sample_make(ASH_SAFETENSORS_HEADER_MAX, "{}", 0), "truncated");
    expect_refused(sample_make(ASH_SAFETENSORS_HEADER_MAX + 1, "{}", 0), "over the limit");
    expect_refused(sample_make(UINT64_MAX, "{}", 0), "over the limit");
    expect_refused(sample_make((uint64_t)1 << 63, "{}", 0), "over the limit");
}

static void test_bad_json(void **state)
{
    (void)state;
    expect_refused(sample_of(" {}", 0), "does not begin with '{'");
    expect_refused(sample_of("[]", 0), "does not begin with '{'");
    expect_refused(sample_of("{\"a\":", 0), "JSON");
    expect_refused(sample_of("{} {}", 0), "JSON");
    expect_refused(sample_of("{\"\xff\":{}}", 0), "JSON");
    expect_refused(sample_of("{\"a\\u0000b\":{}}", 0), "JSON");
    expect_refused(sample_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                             "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                             0),
                   "duplicate");
    expect_refused(sample_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "duplicate");
}

/* A file cut anywhere is refused. */
static void test_truncated_anywhere(void **state)
{
    struct sample sample = sample_of(good_header, 35);
    struct ash_safetensors *set = NULL;

    (void)state;
    for (size_t size = 0; size < sample.size_bytes; size++) {
        struct ash_err err = {0};
        unsigned char *cut = malloc(size + 1); /* its own block, so that a sanitizer sees a read past the end */
        memcpy(cut, sample.bytes, size);
        assert_int_equal(ash_safetensors_parse(cut, size, "cut", &set, &err), -EINVAL);
        assert_null(set);
        free(cut);
    }
    free(sample.bytes);
}

static void test_bad_metadata(void **state)
{
    (void)state;
    expect_refused(sample_of("{\"__metadata__\":[]}", 0), "__metadata__ is not an object");
    expect_refused(sample_of("{\"__metadata__\":\"pt\"}", 0), "__metadata__ is not an object");
    expect_refused(sample_of("{\"__metadata__\":{\"n\":1}}", 0), "'n' is not a string");
    expect_refused(sample_of("{\"__metadata__\":{\"n\":{}}}", 0), "'n' is not a string");
}

/* One tensor named w with these fields, over data_bytes of data. */
static struct sample sample_tensor(const char *fields, size_t data_bytes)
{
    char header[512];

    snprintf(header, sizeof(header), "{\"w\":{%s}}", fields);
    return sample_of(header, data_bytes);
}

static void test_bad_fields(void **state)
{
    static const struct {
        const char *fields, *words;
        size_t data_bytes;
    } cases[] = {
        {"\"shape\":[1],\"data_offsets\":[0,1]", "no \"dtype\"", 1},
        {"\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]", "no \"dtype\"", 1},
        {"\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,1]", "dtype 'F33' is not known", 1},
        {"\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]", "dtype 'f32' is not known", 4},
        {"\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]", "dtype '' is not known", 4},
        {"\"dtype\":\"U8\",\"data_offsets\":[0,1]", "no \"shape\"", 1},
        {"\"dtype\":\"U8\",\"shape\":{},\"data_offsets\":[0,1]", "no \"shape\"", 1},
        {"\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]", "dimension 0", 1},
        {"\"dtype\":\"U8\",\"shape\":[1,1.5],\"data_offsets\":[0,1]", "dimension 1", 1},
        {"\"dtype\":\"U8\",\"shape\":[1,1.0],\"data_offsets\":[0,1]", "dimension 1", 1},
        {"\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]", "dimension 0", 1},
        {"\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]", "dimension 0", 1},
        {"\"dtype\":\"U8\",\"shape\":[null],\"data_offsets\":[0,1]", "dimension 0", 1},
        {"\"dtype\":\"U8\",\"shape\":[18446744073709551617],\"data_offsets\":[0,1]",
         "dimension 0 of its shape is not a whole number", 1},
        {"\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]", "overflows", 4},
        {"\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]", "overflows", 0},
        {"\"dtype\":\"U8\",\"shape\":[3037000500,3037000500],\"data_offsets\":[0,0]", "overflows", 0},
        {"\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]", "9 dimensions", 1},
        {"\"dtype\":\"U8\",\"shape\":[1]", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":0,\"1\":1}", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]", "data_offsets", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]", "before they begin", 1},
        {"\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]", "truncated", 1},
        {"\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,9223372036854775807]", "truncated", 1},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]", "needs 4 bytes but data_offsets give 8", 8},
        {"\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,2]", "needs 4 bytes but data_offsets give 2", 2},
        {"\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,2]", "needs 0 bytes but data_offsets give 2", 2},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        expect_refused(sample_tensor(cases[i].fields, cases[i].data_bytes), cases[i].words);
    expect_refused(sample_tensor(cases[0].fields, 1), "tensor 'w'");
    expect_refused(sample_of("{\"w\":[]}", 0), "not an object");
    expect_refused(sample_of("{\"w\":7}", 0), "not an object");
}

static void test_bad_tiling(void **state)
{
    static const struct {
        size_t begin_a, end_a, begin_b, end_b, data_bytes;
        const char *words;
    } cases[] = {
        {0, 4, 2, 6, 6, "tensors 'a' and 'b' overlap"},   {0, 4, 0, 4, 4, "overlap"},
        {0, 4, 2, 2, 4, "tensors 'a' and 'b' overlap"},   {0, 2, 3, 5, 5, "tensor 'b': a hole of 1 bytes"},
        {2, 4, 4, 6, 6, "tensor 'a': a hole of 2 bytes"}, {0, 2, 2, 4, 5, "last 1 bytes belong to no tensor"},
        {4, 6, 1, 4, 6, "tensor 'b': a hole of 1 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        char header[512];
        snprintf(header, sizeof(header),
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},"
                 "\"b\":{\"dtype\":\"I8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
                 cases[i].end_a - cases[i].begin_a, cases[i].begin_a, cases[i].end_a, cases[i].end_b - cases[i].begin_b,
                 cases[i].begin_b, cases[i].end_b);
        expect_refused(sample_of(header, cases[i].data_bytes), cases[i].words);
    }
    expect_refused(sample_of("{}", 1), "last 1 bytes belong to no tensor");
}

/* Names end up on terminals: no escape sequence of a file may get there, and a huge name must not push the cause
 * out. */
static void test_names_in_messages_are_tame(void **state)
{
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};
    struct sample sample = sample_of("{\"\\u001b[2J\":{}}", 0);
    char *header = malloc(4096);

    (void)state;
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "f", &set, &err), -EINVAL);
    assert_string_equal(err.text, "f: tensor '?[2J': it has no \"dtype\" string");
    free(sample.bytes);
    memset(header, 'n', 4096);
    memcpy(header, "{\"", 2);
    strcpy(header + 4000, "\":{}}");
    sample = sample_of(header, 0);
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "f", &set, &err), -EINVAL);
    assert_non_null(strstr(err.text, "nnn...': it has no \"dtype\" string"));
    free(sample.bytes);
    free(header);
}

/* A large header (100,000 tensors) is read in a moment: nothing in it is quadratic. */
static void test_large_header(void **state)
{
    enum { TENSORS = 100000, BYTES = 80 };
    char *header = malloc((size_t)TENSORS * BYTES + 16);
    struct ash_safetensors *set = NULL;
    struct sample sample;
    size_t used = 0;

    (void)state;
    for (size_t i = 0; i < TENSORS; i++)
        used += (size_t)snprintf(header + used, BYTES,
                                 "%c\"t%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                                 i == 0 ? '{' : ',', i, TENSORS - 1 - i, TENSORS - i);
    memcpy(header + used, "}", 2);
    sample = sample_of(header, TENSORS);
    free(header);
    assert_int_equal(ash_safetensors_parse(sample.bytes, sample.size_bytes, "large", &set, NULL), 0);
    assert_int_equal(ash_safetensors_size(set), TENSORS);
    assert_int_equal(*(const unsigned char *)ash_safetensors_find(set, "t99999")->data, 0);
    assert_int_equal(*(const unsigned char *)ash_safetensors_find(set, "t99998")->data, 1);
    ash_safetensors_close(set);
    free(sample.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_unaligned_data_is_copied),
        cmocka_unit_test(test_no_tensor_and_no_metadata),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_truncated_anywhere),
        cmocka_unit_test(test_bad_metadata),
        cmocka_unit_test(test_bad_fields),
        cmocka_unit_test(test_bad_tiling),
        cmocka_unit_test(test_names_in_messages_are_tame),
        cmocka_unit_test(test_large_header),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
