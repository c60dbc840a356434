/* Writing one safetensors file: what lands on disk, byte for byte, and what happens when it cannot be written. */
#include "unit/storage/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "storage/safetensors/safetensors.h"

static size_t count_files(const char *dir)
{
    DIR *entries = opendir(dir);
    size_t count = 0;

    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries))
        count += e->d_name[0] != '.';
    closedir(entries);
    return count;
}

static int write_specs(const char *path, const struct ash_tensor_spec *specs, size_t count, struct ash_err *err)
{
    return ash_safetensors_write(path, specs, count, NULL, 0, NULL, NULL, err);
}

/* The exact bytes: a length, JSON without spaces padded to 8, the data in the order given, larger elements first. */
static void test_bytes_on_disk(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"a\\\"b\":\"\xc3\xa4\\n\"},"
                                 "\"w\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                                 "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
                                 "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[12,14]},"
                                 "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[14,17]},"
                                 "\"none\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[17,17]}}";
    static const char payload[] = "WWWWwwwwSSSSHHuuu";
    const struct ash_tensor_spec specs[] = {
        {.name = "u", .dtype = ASH_U8, .dim_count = 1, .dims = {3}, .data = "uuu"},
        {.name = "w", .dtype = ASH_F32, .dim_count = 2, .dims = {2, 1}, .data = "WWWWwwww"},
        {.name = "none", .dtype = ASH_U8, .dim_count = 1, .dims = {0}},
        {.name = "h", .dtype = ASH_BF16, .dim_count = 1, .dims = {1}, .data = "HH"},
        {.name = "s", .dtype = ASH_F32, .data = "SSSS"},
    };
    const struct ash_metadata metadata[] = {{"format", "pt"}, {"a\"b", "\xc3\xa4\n"}};
    size_t padded = (strlen(header) + 7) / 8 * 8, size = 0;
    struct ash_err err = {0};
    struct stat st;
    char *data = NULL;

    (void)state;
    assert_int_equal(
        ash_safetensors_write(scratch_path("t.safetensors"), specs, ASH_COUNT(specs), metadata, 2, NULL, NULL, &err),
        0);
    assert_int_equal(ash_file_read(scratch_path("t.safetensors"), 1 << 20, &data, &size, &err), 0);
    assert_int_equal(size, 8 + padded + strlen(payload));
    assert_int_equal((unsigned char)data[0] | (unsigned char)data[1] << 8, padded);
    assert_memory_equal(data + 2, "\0\0\0\0\0", 6);
    assert_memory_equal(data + 8, header, strlen(header));
    for (size_t i = 8 + strlen(header); i < 8 + padded; i++)
        assert_int_equal(data[i], ' ');
    assert_memory_equal(data + 8 + padded, payload, strlen(payload));
    free(data);
    assert_int_equal(stat(scratch_path("t.safetensors"), &st), 0);
    assert_int_equal(st.st_mode & 0400, 0400);
    assert_int_equal(count_files(scratch_dir), 1);
}

struct pattern {
    size_t calls, next[2], largest;
    int fail_at;
};

static unsigned char pattern_byte(size_t index, size_t at)
{
    return (unsigned char)(at * 31 + (at >> 12) + index * 101);
}

static int fill_pattern(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    struct pattern *pattern = ctx;

    assert_true(index < 2);
    assert_int_equal(first_byte, pattern->next[index]); /* in order, nothing twice */
    assert_int_equal(size_bytes % 4, 0);
    pattern->next[index] += size_bytes;
    if (size_bytes > pattern->largest) pattern->largest = size_bytes;
    if ((int)++pattern->calls == pattern->fail_at) return -EIO;
    for (size_t i = 0; i < size_bytes; i++)
        ((unsigned char *)buf)[i] = pattern_byte(index, first_byte + i);
    return 0;
}

static const struct ash_tensor_spec big_specs[] = {
    {.name = "big", .dtype = ASH_F32, .dim_count = 2, .dims = {1500, 1999}},
    {.name = "small", .dtype = ASH_F32, .dim_count = 1, .dims = {5}},
};

static void test_fill_in_pieces(void **state)
{
    struct pattern pattern = {0};
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_safetensors_write(scratch_path("f"), big_specs, 2, NULL, 0, fill_pattern, &pattern, &err), 0);
    assert_int_equal(pattern.next[0], 1500 * 1999 * 4);
    assert_int_equal(pattern.next[1], 20);
    assert_true(pattern.largest < 1500 * 1999 * 4);
    assert_int_equal(ash_safetensors_open(scratch_path("f"), &set, &err), 0);
    for (size_t index = 0; index < 2; index++) {
        const struct ash_tensor_view *view = ash_safetensors_find(set, big_specs[index].name);
        for (size_t i = 0; i < view->size_bytes; i++)
            if (((const unsigned char *)view->data)[i] != pattern_byte(index, i))
                fail_msg("tensor %zu byte %zu", index, i);
    }
    ash_safetensors_close(set);
}

/* Every dtype of the format (block types follow them in the enum and are not), all sizes of tensors mixed: what is read
 * back is what was given, and aligned. */
#define FORMAT_DTYPES ASH_Q8_0

static void test_round_trip_of_every_dtype(void **state)
{
    struct ash_tensor_spec specs[FORMAT_DTYPES * 4] = {0};
    struct ash_safetensors *set = NULL;
    unsigned char bytes[1024];
    char names[ASH_COUNT(specs)][16];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t i = 0; i < ASH_COUNT(specs); i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        specs[i] =
            (struct ash_tensor_spec){.name = names[i], .dtype = (enum ash_dtype)(i % FORMAT_DTYPES), .data = bytes + i};
        specs[i].dim_count = (int)(i % (ASH_TENSOR_DIMS_MAX + 1));
        for (int d = 0; d < specs[i].dim_count; d++)
            specs[i].dims[d] = d == 0 ? i % 5 : d == 1 ? 3 : 1;
    }
    assert_int_equal(write_specs(scratch_path("all"), specs, ASH_COUNT(specs), NULL), 0);
    assert_int_equal(ash_safetensors_open(scratch_path("all"), &set, NULL), 0);
    assert_int_equal(ash_safetensors_size(set), ASH_COUNT(specs));
    for (size_t i = 0; i < ASH_COUNT(specs); i++) {
        const struct ash_tensor_view *view = ash_safetensors_find(set, names[i]);
        assert_int_equal(view->dtype, specs[i].dtype);
        assert_int_equal(view->dim_count, specs[i].dim_count);
        assert_memory_equal(view->dims, specs[i].dims, sizeof(specs[i].dims));
        assert_int_equal((uintptr_t)view->data % ash_dtype_bytes(view->dtype), 0);
        assert_int_equal(view->size_bytes, ash_tensor_count(view) * ash_dtype_bytes(view->dtype));
        assert_memory_equal(view->data, specs[i].data, view->size_bytes);
    }
    ash_safetensors_close(set);
}

/* The write must fail with code and words, and leave nothing. */
static void expect_unwritten(const struct ash_tensor_spec *specs, size_t count, int code, const char *words)
{
    struct ash_err err = {0};

    assert_int_equal(write_specs(scratch_path("bad"), specs, count, &err), code);
    if (strstr(err.text, words) == NULL) fail_msg("wanted '%s', got '%s'", words, err.text);
    assert_int_equal(count_files(scratch_dir), 0);
}

static void test_bad_specs(void **state)
{
    const struct ash_tensor_spec good = {.name = "x", .dtype = ASH_U8, .dim_count = 1, .dims = {1}, .data = "x"};
    struct ash_tensor_spec specs[2] = {good, good};

    (void)state;
    expect_unwritten(specs, 2, -EINVAL, "two tensors are named 'x'");
    specs[1].name = NULL;
    expect_unwritten(specs, 2, -EINVAL, "no name");
    specs[1].name = "__metadata__";
    expect_unwritten(specs, 2, -EINVAL, "cannot be named");
    specs[1].name = "\xff";
    expect_unwritten(specs, 2, -EINVAL, "cannot be named");
    specs[1] = good;
    specs[1].name = "y";
    specs[1].data = NULL;
    expect_unwritten(specs, 2, -EINVAL, "no bytes");
    specs[1].dim_count = 9;
    expect_unwritten(specs, 2, -EINVAL, "9 dimensions");
    specs[1].dim_count = 2;
    specs[1].dims[0] = specs[1].dims[1] = SIZE_MAX / 2;
    expect_unwritten(specs, 2, -EOVERFLOW, "overflows");
    specs[1].dim_count = 1;
    specs[1].dims[0] = INT64_MAX;
    specs[1].data = "y";
    expect_unwritten(specs, 2, -EOVERFLOW, "larger than any file");
    specs[1].dtype = ASH_Q8_0;
    expect_unwritten(specs, 2, -EINVAL, "cannot be written");
    specs[1].dtype = ASH_DTYPE_COUNT;
    expect_unwritten(specs, 2, -EINVAL, "cannot be written");
}

static void test_bad_metadata(void **state)
{
    const struct ash_metadata metadata[] = {{"good", "yes"}, {"bad", "\xff"}};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_safetensors_write(scratch_path("bad"), NULL, 0, metadata, 2, NULL, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "metadata 1 is not valid UTF-8"));
    assert_int_equal(count_files(scratch_dir), 0);
    assert_int_equal(ash_safetensors_write(scratch_path("good"), NULL, 0, metadata, 1, NULL, NULL, &err), 0);
}

/* After a failed write, path holds what it held and no temporary file is left. */
static void expect_old_content(void)
{
    size_t size = 0;
    char *data = NULL;

    assert_int_equal(ash_file_read(scratch_path("f"), 100, &data, &size, NULL), 0);
    assert_string_equal(data, "old");
    free(data);
    assert_int_equal(count_files(scratch_dir), 1);
}

static void test_failing_fill_keeps_the_old_file(void **state)
{
    (void)state;
    scratch_write("f", "old", 3);
    for (int call = 1; call <= 4; call++) {
        struct pattern pattern = {.fail_at = call};
        struct ash_err err = {0};
        assert_int_equal(ash_safetensors_write(scratch_path("f"), big_specs, 2, NULL, 0, fill_pattern, &pattern, &err),
                         -EIO);
        assert_non_null(strstr(err.text, call < 4 ? "tensor 'big'" : "tensor 'small'"));
        expect_old_content();
    }
}

/* A file size limit stands for a disk that fills up after that many bytes. */
static void test_full_disk_keeps_the_old_file(void **state)
{
    struct rlimit limit, small;

    (void)state;
    scratch_write("f", "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (rlim_t bytes = 0; bytes < 1500 * 1999 * 4; bytes = bytes * 5 + 3) {
        struct pattern pattern = {0};
        struct ash_err err = {0};
        int rc;

        small = (struct rlimit){.rlim_cur = bytes, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        rc = ash_safetensors_write(scratch_path("f"), big_specs, 2, NULL, 0, fill_pattern, &pattern, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(rc, -EFBIG);
        assert_non_null(strstr(err.text, "larger than this system"));
        expect_old_content();
    }
}

static void test_places_that_cannot_be_written(void **state)
{
    const struct ash_tensor_spec spec = {.name = "x", .dtype = ASH_U8, .dim_count = 1, .dims = {1}, .data = "x"};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(write_specs(scratch_path("no/such/folder"), &spec, 1, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no such file or folder"));
    assert_int_equal(ash_dir_make(scratch_path("folder/inner"), NULL), 0);
    assert_int_equal(write_specs(scratch_path("folder"), &spec, 1, &err), -EISDIR);
    assert_int_equal(count_files(scratch_dir), 1);
    if (geteuid() == 0) return; /* root may write anywhere */
    assert_int_equal(chmod(scratch_path("folder"), 0500), 0);
    assert_int_equal(write_specs(scratch_path("folder/x"), &spec, 1, &err), -EACCES);
    assert_non_null(strstr(err.text, "no permission"));
    assert_int_equal(chmod(scratch_path("folder"), 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes_on_disk, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_fill_in_pieces, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_round_trip_of_every_dtype, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_specs, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_metadata, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_failing_fill_keeps_the_old_file, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_full_disk_keeps_the_old_file, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_places_that_cannot_be_written, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
