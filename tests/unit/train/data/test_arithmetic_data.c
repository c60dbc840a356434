/* Arithmetic as a data folder: documents are the problems, the tokenizer reads them, and a folder is only replaced when
 * asked to. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/arithmetic.h"
#include "train/data/dataset.h"
#include "train/data/dataset_folder.h"

static struct ash_err err;

static struct ash_arithmetic make(int64_t seed)
{
    static const char *ops[] = {"add", "sub", "mul"};
    const struct ash_arithmetic_opts opts = {
        .seed = seed, .ops = {ops, 3}, .min_digits = 1, .max_digits = 3, .mul_digits = 2, .negative = true};
    struct ash_arithmetic arithmetic;

    assert_int_equal(ash_arithmetic_init(&arithmetic, &opts, &err), 0);
    return arithmetic;
}

static void test_documents(void **state)
{
    enum { COUNT = 500 };
    struct ash_arithmetic arithmetic = make(1);
    struct ash_data_manifest manifest = {0};
    struct ash_tokenizer *tokenizer = NULL;
    uint64_t index = 0;

    (void)state;
    assert_int_equal(ash_arithmetic_write(&arithmetic, scratch_dir, COUNT, 1000, false, &err), 0);
    assert_int_equal(ash_data_manifest_load(scratch_dir, &manifest, &err), 0);
    assert_true(manifest.shard_count > 3);
    assert_int_equal(manifest.eos_id, 1);
    assert_int_equal(ash_tokenizer_open(scratch_dir, &tokenizer, &err), 0);
    assert_int_equal(manifest.vocab_size, ash_tokenizer_vocab_size(tokenizer));
    assert_int_equal(manifest.tokenizer_hash, ash_tokenizer_hash(tokenizer));
    for (size_t s = 0; s < manifest.shard_count; s++) {
        struct ash_shard *shard = NULL;
        size_t begin = 0;

        assert_int_equal(ash_shard_open(scratch_path(manifest.shards[s].file), &shard, &err), 0);
        assert_int_equal(ash_shard_verify(shard, &err), 0);
        assert_non_null(strstr(ash_shard_description(shard), "\"kind\":\"arithmetic\""));
        for (size_t d = 0; d < ash_shard_get_info(shard)->documents; d++, index++) {
            size_t end = ash_shard_doc_end(shard, d);
            struct ash_problem problem;
            struct ash_ids expected = {0};
            char text[2 * ASH_ARITHMETIC_TEXT_BYTES + 8];
            int32_t ids[2 * ASH_ARITHMETIC_TEXT_BYTES];

            ash_arithmetic_problem(&arithmetic, index, &problem);
            snprintf(text, sizeof(text), "%s%s<eos>", problem.prompt, problem.answer);
            assert_int_equal(ash_tokenizer_encode(tokenizer, text, strlen(text), false, &expected, &err), 0);
            assert_int_equal(expected.count, end - begin);
            assert_int_equal(ash_shard_read(shard, begin, end - begin, ids, &err), 0);
            assert_memory_equal(ids, expected.data, expected.count * sizeof(ids[0]));
            ash_ids_fini(&expected);
            begin = end;
        }
        ash_shard_close(shard);
    }
    assert_int_equal(index, COUNT);
    ash_tokenizer_close(tokenizer);
    ash_data_manifest_fini(&manifest);
}

/* What users type is read, and what the model says is text again. */
static void test_tokenizer(void **state)
{
    static const int32_t expected[] = {5, 9, 12, 7, 10, 15};
    const char *json = ash_arithmetic_tokenizer();
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_ids ids = {0};
    struct ash_str text = {0};

    (void)state;
    assert_int_equal(ash_tokenizer_parse(json, strlen(json), "tokenizer", &tokenizer, &err), 0);
    assert_int_equal(ash_tokenizer_vocab_size(tokenizer), 16);
    assert_true(ash_tokenizer_is_special(tokenizer, 0) && ash_tokenizer_is_special(tokenizer, 1));
    assert_int_equal(ash_tokenizer_encode(tokenizer, " 37 + 58 = ?\n", 13, true, &ids, &err), 0);
    assert_int_equal(ids.count, ASH_COUNT(expected));
    assert_memory_equal(ids.data, expected, sizeof(expected));
    assert_int_equal(ash_ids_add(&ids, 1), 0);
    assert_int_equal(ash_tokenizer_decode(tokenizer, ids.data, ids.count, true, &text, &err), 0);
    assert_string_equal(text.data, "37+58=");
    ash_str_fini(&text);
    ash_ids_fini(&ids);
    ash_tokenizer_close(tokenizer);
}

static uint64_t folder_hash(void)
{
    struct ash_dataset *dataset = NULL;
    uint64_t hash;

    assert_int_equal(ash_dataset_open(scratch_dir, 8, 1, &dataset, &err), 0);
    hash = ash_dataset_hash(dataset);
    ash_dataset_close(dataset);
    return hash;
}

static void test_folder(void **state)
{
    struct ash_arithmetic one = make(1), two = make(2);
    uint64_t hash;

    (void)state;
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 0, 1000, false, &err), -EINVAL);
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 500, 1000, false, &err), 0);
    hash = folder_hash();
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 500, 1000, false, &err), 1);
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 400, 1000, false, &err), -EEXIST);
    assert_non_null(strstr(err.text, "count"));
    assert_int_equal(ash_arithmetic_write(&two, scratch_dir, 500, 1000, false, &err), -EEXIST);
    assert_int_equal(folder_hash(), hash);
    assert_int_equal(ash_arithmetic_write(&two, scratch_dir, 500, 1000, true, &err), 0);
    assert_int_not_equal(folder_hash(), hash);
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 500, 1000, true, &err), 0);
    assert_int_equal(folder_hash(), hash);
    /* a damaged or unfinished folder of the same run is rebuilt */
    assert_int_equal(truncate(scratch_path("shard-00001.safetensors"), 50), 0);
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 500, 1000, false, &err), 0);
    assert_int_equal(unlink(scratch_path("manifest.json")), 0);
    assert_int_equal(ash_arithmetic_write(&one, scratch_dir, 500, 1000, false, &err), 0);
    assert_int_equal(folder_hash(), hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test_setup_teardown(test_documents, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_folder, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
