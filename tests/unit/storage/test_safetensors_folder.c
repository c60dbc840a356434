/* Hugging Face weight folders: one file or shards with an index, read and written, and every way an index can be
 * wrong. */
#include "unit/storage/scratch.h"

#include <errno.h>

#include "base/assert.h"
#include "base/json.h"
#include "storage/safetensors/safetensors.h"

#define INDEX "model.safetensors.index.json"

static const struct ash_tensor_spec specs[] = {
    {.name = "e", .dtype = ASH_U8, .dim_count = 1, .dims = {4}, .data = "eeee"},
    {.name = "d", .dtype = ASH_F32, .dim_count = 1, .dims = {1}, .data = "dddd"},
    {.name = "c", .dtype = ASH_U8, .dim_count = 1, .dims = {9}, .data = "ccccccccc"},
    {.name = "b", .dtype = ASH_U8, .dim_count = 1, .dims = {1}, .data = "b"},
    {.name = "a", .dtype = ASH_U8, .dim_count = 1, .dims = {0}},
};

static void write_folder(size_t max_bytes)
{
    struct ash_err err = {0};

    if (ash_safetensors_write_folder(scratch_path("m"), specs, ASH_COUNT(specs), max_bytes, NULL, NULL, &err) != 0)
        fail_msg("%s", err.text);
}

/* The folder must hold all of specs. */
static void expect_all(void)
{
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};

    if (ash_safetensors_open(scratch_path("m"), &set, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(ash_safetensors_size(set), ASH_COUNT(specs));
    for (size_t i = 0; i < ASH_COUNT(specs); i++) {
        const struct ash_tensor_view *view = ash_safetensors_find(set, specs[i].name);
        assert_non_null(view);
        if (view->size_bytes > 0) assert_memory_equal(view->data, specs[i].data, view->size_bytes);
    }
    assert_string_equal(ash_safetensors_metadata(set, "format"), "pt");
    ash_safetensors_close(set);
}

static void test_one_file(void **state)
{
    (void)state;
    write_folder(0);
    assert_true(ash_path_exists(scratch_path("m/model.safetensors")));
    assert_false(ash_path_exists(scratch_path("m/" INDEX)));
    expect_all();
    write_folder(18); /* exactly all of it */
    assert_true(ash_path_exists(scratch_path("m/model.safetensors")));
    expect_all();
}

/* 8 bytes a shard: e and d fit together, c is larger than the limit and is alone. */
static void test_shards(void **state)
{
    static const struct {
        const char *tensor, *shard;
    } map[] = {
        {"e", "model-00001-of-00003.safetensors"}, {"d", "model-00001-of-00003.safetensors"},
        {"c", "model-00002-of-00003.safetensors"}, {"b", "model-00003-of-00003.safetensors"},
        {"a", "model-00003-of-00003.safetensors"},
    };
    json_t *index = NULL;
    const json_t *weight_map = NULL, *metadata = NULL;
    int64_t total = 0;

    (void)state;
    write_folder(8);
    expect_all();
    assert_int_equal(ash_json_load(scratch_path("m/" INDEX), &index, NULL), 0);
    assert_int_equal(ash_json_object(index, "weight_map", &weight_map, NULL), 1);
    assert_int_equal(ash_json_object(index, "metadata", &metadata, NULL), 1);
    assert_int_equal(ash_json_int(metadata, "total_size", 0, INT64_MAX, &total, NULL), 1);
    assert_int_equal(total, 18);
    assert_int_equal(json_object_size(weight_map), ASH_COUNT(map));
    for (size_t i = 0; i < ASH_COUNT(map); i++)
        assert_string_equal(json_string_value(json_object_get(weight_map, map[i].tensor)), map[i].shard);
    json_decref(index);
}

/* Weights written over others: what a reader would take first must be the new ones. */
static void test_old_weights_do_not_shadow_new_ones(void **state)
{
    (void)state;
    write_folder(0);
    scratch_write("m/model-of-mine.safetensors", "x", 1);
    write_folder(8);
    assert_false(ash_path_exists(scratch_path("m/model.safetensors")));
    expect_all();
    write_folder(1);
    assert_false(ash_path_exists(scratch_path("m/model-00001-of-00003.safetensors")));
    assert_true(ash_path_exists(scratch_path("m/model-00001-of-00004.safetensors")));
    expect_all();
    write_folder(0);
    assert_false(ash_path_exists(scratch_path("m/" INDEX)));
    assert_false(ash_path_exists(scratch_path("m/model-00001-of-00004.safetensors")));
    expect_all();
    assert_true(ash_path_exists(scratch_path("m/model-of-mine.safetensors")));
}

static int fill_index(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    (void)ctx;
    memcpy(buf, (const char *)specs[index].data + first_byte, size_bytes);
    return 0;
}

/* fill counts tensors over the whole list, not inside a shard. */
static void test_shards_through_fill(void **state)
{
    struct ash_tensor_spec empty[ASH_COUNT(specs)];

    (void)state;
    memcpy(empty, specs, sizeof(specs));
    for (size_t i = 0; i < ASH_COUNT(specs); i++)
        empty[i].data = NULL;
    assert_int_equal(
        ash_safetensors_write_folder(scratch_path("m"), empty, ASH_COUNT(empty), 5, fill_index, NULL, NULL), 0);
    expect_all();
}

/* Specs that cannot be written are refused before the folder is made. */
static void test_bad_specs(void **state)
{
    struct ash_tensor_spec twice[ASH_COUNT(specs)];
    struct ash_err err = {0};

    (void)state;
    memcpy(twice, specs, sizeof(specs));
    twice[4].name = "e";
    assert_int_equal(ash_safetensors_write_folder(scratch_path("m"), twice, ASH_COUNT(twice), 5, NULL, NULL, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "two tensors are named 'e'"));
    twice[4].name = "a";
    twice[4].dims[0] = 1;
    assert_int_equal(ash_safetensors_write_folder(scratch_path("m"), twice, ASH_COUNT(twice), 5, NULL, NULL, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "tensor 'a': there are no bytes"));
    assert_false(ash_path_exists(scratch_path("m")));
}

/* Opening path must fail with code and words. */
static void expect_error(const char *path, int code, const char *words)
{
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};
    int rc = ash_safetensors_open(path, &set, &err);

    if (rc != code || strstr(err.text, words) == NULL)
        fail_msg("wanted %d '%s', got %d '%s'", code, words, rc, err.text);
    assert_null(set);
}

static void write_index(const char *text)
{
    scratch_write("m/" INDEX, text, strlen(text));
}

static void test_missing_things(void **state)
{
    (void)state;
    expect_error(scratch_path("nothing"), -ENOENT, "nothing");
    expect_error(scratch_dir, -ENOENT, "neither model.safetensors nor");
    scratch_write("empty", "", 0);
    expect_error(scratch_path("empty"), -EINVAL, "too few");
    write_folder(8);
    assert_int_equal(remove(scratch_path("m/model-00002-of-00003.safetensors")), 0);
    expect_error(scratch_path("m"), -ENOENT, "model-00002-of-00003.safetensors: this shard is missing");
}

static void test_bad_index(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "JSON"},
        {"{", "JSON"},
        {"[]", "no \"weight_map\""},
        {"{\"weight_map\":[]}", "no \"weight_map\""},
        {"{\"weight_map\":{}}", "lists no tensor"},
        {"{\"weight_map\":{\"a\":1}}", "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"\"}}", "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "'..' is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "tensor 'a': '../x.safetensors' is not the name of a file"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"s/x.safetensors\"}}", "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\",\"zz\":\"model-00003-of-00003.safetensors\"}}",
         "tensor 'zz' is not in model-00003-of-00003.safetensors"},
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\",\"e\":\"model-00003-of-00003.safetensors\","
         "\"d\":\"model-00001-of-00003.safetensors\"}}",
         "tensor 'e' is in model-00001-of-00003.safetensors, not in model-00003-of-00003.safetensors"},
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\",\"a\":\"model-00003-of-00003.safetensors\"}}",
         "duplicate"},
    };

    (void)state;
    write_folder(8);
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        write_index(cases[i].text);
        expect_error(scratch_path("m"), -EINVAL, cases[i].words);
    }
}

static void test_tensor_in_two_shards(void **state)
{
    (void)state;
    write_folder(8);
    assert_int_equal(ash_safetensors_write(scratch_path("m/other.safetensors"), specs, 2, NULL, 0, NULL, NULL, NULL),
                     0);
    write_index("{\"weight_map\":{\"e\":\"model-00001-of-00003.safetensors\",\"d\":\"other.safetensors\"}}");
    expect_error(scratch_path("m"), -EINVAL, "tensor 'd' is in both");
}

/* A shard that is broken is named, whichever it is. */
static void test_broken_shard(void **state)
{
    (void)state;
    write_folder(8);
    scratch_write("m/model-00002-of-00003.safetensors", "garbage garbage", 15);
    expect_error(scratch_path("m"), -EINVAL, "model-00002-of-00003.safetensors: ");
    assert_int_equal(remove(scratch_path("m/model-00002-of-00003.safetensors")), 0);
    assert_int_equal(ash_dir_make(scratch_path("m/model-00002-of-00003.safetensors"), NULL), 0);
    expect_error(scratch_path("m"), -EISDIR, "model-00002-of-00003.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_file, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_shards, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_old_weights_do_not_shadow_new_ones, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_shards_through_fill, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_specs, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_missing_things, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_index, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_tensor_in_two_shards, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_broken_shard, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
