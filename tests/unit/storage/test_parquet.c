/* The Parquet reader on files of other writers: tests/golden/parquet holds one table of 40 rows, written by arrow-rs
 * (rs-*), hyparquet-writer (hy-*: it has "" for null) and DuckDB, and its rows as JSON. */
#include "unit/storage/scratch.h"

#include <dirent.h>
#include <errno.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/rng.h"
#include "storage/parquet/parquet_priv.h"

#define FOLDER TEST_DATA "/golden/parquet/"
#define SUFFIX ".parquet"
#define FILES_MAX 32

static struct ash_err err;
static json_t *rows;
static char names[FILES_MAX][NAME_MAX + 1];
static size_t name_count;

static int load(void **state)
{
    DIR *dir = opendir(FOLDER);
    struct dirent *entry;

    (void)state;
    if (dir == NULL || ash_json_load(FOLDER "rows.json", &rows, NULL) < 0) return -1;
    while ((entry = readdir(dir)) != NULL && name_count < FILES_MAX)
        if (strstr(entry->d_name, SUFFIX) != NULL) snprintf(names[name_count++], sizeof(names[0]), "%s", entry->d_name);
    closedir(dir);
    return name_count > 0 ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    json_decref(rows);
    return 0;
}

/* False where this build lacks the codec. */
static bool open_file(const char *name, struct ash_parquet **file)
{
    char path[PATH_MAX];
    int rc;

    assert_int_equal(ash_path_join(path, sizeof(path), FOLDER, name), 0);
    rc = ash_parquet_open(path, "text", file, &err);
    if (rc == -ENOTSUP && strstr(err.text, "this build lacks") != NULL) return false;
    if (rc < 0) fail_msg("%s", err.text);
    return true;
}

static void check_row(const char *name, size_t row, const struct ash_parquet_value *value)
{
    const json_t *want = json_array_get(rows, row);
    bool is_null = json_is_null(want);

    if (is_null && strncmp(name, "hy-", 3) == 0) is_null = value->is_null;
    if (value->is_null != is_null) fail_msg("%s: row %zu: null is %d", name, row, value->is_null);
    if (value->size_bytes != json_string_length(want) ||
        (value->size_bytes > 0 && memcmp(value->data, json_string_value(want), value->size_bytes) != 0))
        fail_msg("%s: row %zu: %.*s", name, row, (int)value->size_bytes, value->data);
}

static void check_from(const char *name, struct ash_parquet *file, size_t row)
{
    struct ash_parquet_value value;
    int rc;

    for (; (rc = ash_parquet_next(file, &value, &err)) == 1; row++)
        check_row(name, row, &value);
    if (rc < 0) fail_msg("%s", err.text);
    assert_int_equal(row, json_array_size(rows));
    assert_int_equal(ash_parquet_next(file, &value, &err), 0); /* the end stays the end */
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < name_count; i++) {
        struct ash_parquet *file = NULL;

        if (!open_file(names[i], &file)) continue;
        assert_int_equal(ash_parquet_rows(file), json_array_size(rows));
        check_from(names[i], file, 0);
        for (size_t row = json_array_size(rows) + 1; row-- > 0;) {
            assert_int_equal(ash_parquet_seek(file, row, &err), 0);
            check_from(names[i], file, row);
        }
        assert_int_equal(ash_parquet_seek(file, json_array_size(rows) + 1, &err), -EINVAL);
        ash_parquet_close(file);
    }
    ash_parquet_close(NULL);
}

/* Read all that a damaged file gives; a refusal has a sentence and a sensible code. */
static int read_damaged(const char *path)
{
    struct ash_parquet *file = NULL;
    struct ash_parquet_value value;
    volatile unsigned sum = 0;
    int rc, left = 100000;

    err = (struct ash_err){0};
    rc = ash_parquet_open(path, "text", &file, &err);
    while (rc >= 0 && left-- > 0 && (rc = ash_parquet_next(file, &value, &err)) == 1)
        for (size_t i = 0; i < value.size_bytes; i++)
            sum = sum + (uint8_t)value.data[i];
    ash_parquet_close(file);
    if (rc < 0) {
        assert_int_equal(err.code, rc);
        assert_true(rc == -EBADMSG || rc == -EINVAL || rc == -ENOTSUP || rc == -ENOMEM);
    }
    return rc;
}

static void test_torn(void **state)
{
    (void)state;
    for (size_t i = 0; i < name_count; i++) {
        char path[PATH_MAX], *data = NULL;
        size_t size_bytes = 0;

        assert_int_equal(ash_path_join(path, sizeof(path), FOLDER, names[i]), 0);
        assert_int_equal(ash_file_read(path, 1 << 20, &data, &size_bytes, &err), 0);
        for (size_t cut = 0; cut < size_bytes; cut += 7) { /* without its end, and without its beginning */
            scratch_write("torn", data, cut);
            assert_true(read_damaged(scratch_path("torn")) < 0);
            scratch_write("torn", data + cut + 1, size_bytes - cut - 1);
            assert_true(read_damaged(scratch_path("torn")) < 0);
        }
        free(data);
    }
}

static void test_damaged(void **state)
{
    size_t refused = 0, count = 0;

    (void)state;
    for (size_t i = 0; i < name_count; i++) {
        char path[PATH_MAX], *data = NULL;
        size_t size_bytes = 0;

        assert_int_equal(ash_path_join(path, sizeof(path), FOLDER, names[i]), 0);
        assert_int_equal(ash_file_read(path, 1 << 20, &data, &size_bytes, &err), 0);
        for (size_t at = 0; at < size_bytes; at++) {
            char kept = data[at];

            data[at] = (char)(data[at] ^ (1 + ash_rng_below(11, i, at, 255)));
            scratch_write("damaged", data, size_bytes);
            refused += read_damaged(scratch_path("damaged")) < 0;
            count++;
            data[at] = kept;
        }
        free(data);
    }
    assert_true(refused > count / 3);
}

static void expect_refused(const char *name, const char *column, int code, const char *what)
{
    struct ash_parquet *file = NULL;
    char path[PATH_MAX];

    assert_int_equal(ash_path_join(path, sizeof(path), FOLDER, name), 0);
    assert_int_equal(ash_parquet_open(path, column, &file, &err), code);
    assert_null(file);
    if (strstr(err.text, what) == NULL) fail_msg("%s", err.text);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("duck-nested.parquet", "list", -EINVAL, "the column 'list' is nested");
    expect_refused("duck-nested.parquet", "both", -EINVAL, "one text per row are read (text)");
    expect_refused("duck-nested.parquet", "i", -EINVAL, "the column 'i' holds no text");
    expect_refused("duck-nested.parquet", "none", -EINVAL, "there is no column 'none'");
    expect_refused("rows.json", "text", -EINVAL, "this is not a Parquet file");
    expect_refused("not-there", "text", -ENOENT, "not-there");
    assert_int_equal(ash_parquet_detect(FOLDER "rs-plain-v1.parquet"), 1);
    assert_int_equal(ash_parquet_detect(FOLDER "rows.json"), 0);
    assert_int_equal(ash_parquet_detect(FOLDER "not-there"), 0);
}

/* What a page claims is held against what it could be before memory is taken. */
static void test_bounds(void **state)
{
    static const uint8_t claims[] = {0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0x10, 0x00};
    struct ash_parquet_page_header header;
    struct ash_parquet_dictionary dictionary = {0};
    const uint8_t short_one[8] = {0};

    (void)state;
    assert_int_equal(ash_parquet_page_header_parse(claims, sizeof(claims), &header), 0);
    assert_int_equal(header.plain_bytes, INT32_MAX);
    assert_true(ash_parquet_codec_bound(1, (size_t)header.packed_bytes) < 1024);
    assert_int_equal(ash_parquet_page_header_parse(claims, sizeof(claims) - 1, &header), -EAGAIN);
    assert_int_equal(
        ash_parquet_dictionary_fill(&dictionary, (struct ash_parquet_bytes){short_one, short_one + 8}, 1 << 30),
        -EBADMSG);
    assert_null(dictionary.texts);
    assert_int_equal(ash_parquet_codec_check(3, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "LZO"));
    assert_int_equal(ash_parquet_codec_check(99, &err), -ENOTSUP);
}

/* Runs against a plain encoder of drawn numbers, at every width. */
static void test_numbers(void **state)
{
    (void)state;
    for (unsigned width = 0; width <= 32; width++) {
        uint8_t bytes[1 + 4 * 8 + 6] = {0};
        uint32_t values[8], got = 0;
        struct ash_parquet_runs runs;
        size_t size_bytes = 1 + width;

        bytes[0] = 1 << 1 | 1; /* one group of eight, packed; then a run of three */
        for (size_t v = 0; v < 8; v++) {
            values[v] = (uint32_t)(ash_rng_u64(5, width, v) & (((uint64_t)1 << width) - 1));
            for (unsigned b = 0; b < width; b++)
                bytes[1 + (v * width + b) / 8] |= (uint8_t)((values[v] >> b & 1) << (v * width + b) % 8);
        }
        bytes[size_bytes++] = 3 << 1;
        for (unsigned b = 0; b < (width + 7) / 8; b++)
            bytes[size_bytes++] = (uint8_t)(values[0] >> 8 * b);
        ash_parquet_runs_init(&runs, (struct ash_parquet_bytes){bytes, bytes + size_bytes}, width);
        for (size_t v = 0; v < 11; v++) {
            assert_int_equal(ash_parquet_runs_next(&runs, &got), 0);
            assert_int_equal(got, values[v < 8 ? v : 0]);
        }
        assert_int_equal(ash_parquet_runs_next(&runs, &got), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test_setup_teardown(test_torn, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_damaged, scratch_open, scratch_close),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
