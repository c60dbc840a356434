/* Tokenizing runs: what lands in the shards, the same bytes for every thread count and after every interruption, and
 * bad input. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/arithmetic.h"
#include "train/data/dataset.h"
#include "train/data/dataset_folder.h"
#include "train/data/tokenize.h"
#include "train/data/tokenize_eos.h"
#include "train/data/tokenizer_files.h"
#include "unit/sanitized.h"

#define LARGE_LINES (SANITIZED ? 60000 : 300000)

static struct ash_err err;

static char path_table[16][PATH_MAX];
static size_t path_count;

/* scratch_dir/name, valid to the end of the test. */
static const char *keep(const char *name)
{
    char *path = path_table[path_count++];

    assert_true(path_count <= ASH_COUNT(path_table));
    assert_int_equal(ash_path_join(path, PATH_MAX, scratch_dir, name), 0);
    return path;
}

/* The character-level tokenizer of arithmetic: ids 2 to 11 are the digits, <eos> is 1, and letters are nothing. */
static int open_scratch(void **state)
{
    const char *json = ash_arithmetic_tokenizer();

    path_count = 0;
    if (scratch_open(state) < 0 || ash_dir_make(scratch_path("tok"), NULL) < 0) return -1;
    return ash_file_replace(scratch_path("tok/tokenizer.json"), json, strlen(json), NULL);
}

static struct ash_tokenize_opts defaults(const char *out)
{
    return (struct ash_tokenize_opts){
        .tokenizer = keep("tok"),
        .out = out,
        .field = "text",
        .eos = "auto",
        .shard_tokens = 1000,
        .max_document = 1 << 20,
        .threads = 1,
    };
}

/* Steps until the end, or limit of them. Returns what the last step returned. */
static int drive(const struct ash_tokenize_opts *opts, const char *const *paths, size_t count, size_t limit,
                 struct ash_tokenize_status *status)
{
    struct ash_tokenize *job = NULL;
    int rc;

    err = (struct ash_err){0};
    rc = ash_tokenize_open(opts, paths, count, &job, &err);
    if (rc < 0) {
        assert_null(job);
        return rc;
    }
    do {
        rc = limit-- > 0 ? ash_tokenize_step(job, &err) : -ECANCELED;
    } while (rc > 0);
    ash_tokenize_get_status(job, status);
    status->eos = status->first_skipped = NULL; /* go with the job */
    ash_tokenize_close(job);
    return rc;
}

static void says(const char *part)
{
    if (strstr(err.text, part) == NULL) fail_msg("'%s' does not say '%s'", err.text, part);
}

/* All documents of a folder as text, each in brackets. */
static void check_texts(const char *dir, const char *expected)
{
    struct ash_data_manifest manifest = {0};
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_str text = {0};
    int32_t ids[64];

    assert_int_equal(ash_data_manifest_load(dir, &manifest, &err), 0);
    assert_int_equal(ash_tokenizer_open(dir, &tokenizer, &err), 0);
    assert_int_equal(ash_tokenizer_hash(tokenizer), manifest.tokenizer_hash);
    for (size_t s = 0; s < manifest.shard_count; s++) {
        char path[PATH_MAX];
        struct ash_shard *shard = NULL;
        size_t begin = 0;

        assert_int_equal(ash_path_join(path, sizeof(path), dir, manifest.shards[s].file), 0);
        assert_int_equal(ash_shard_open(path, &shard, &err), 0);
        assert_int_equal(ash_shard_verify(shard, &err), 0);
        for (size_t d = 0; d < ash_shard_get_info(shard)->documents; d++) {
            size_t end = ash_shard_doc_end(shard, d);

            assert_int_equal(ash_shard_read(shard, begin, end - begin, ids, &err), 0);
            assert_int_equal(ash_str_adds(&text, "["), 0);
            assert_int_equal(ash_tokenizer_decode(tokenizer, ids, end - begin, false, &text, &err), 0);
            assert_int_equal(ash_str_adds(&text, "]"), 0);
            begin = end;
        }
        ash_shard_close(shard);
    }
    assert_string_equal(text.data, expected);
    ash_str_fini(&text);
    ash_tokenizer_close(tokenizer);
    ash_data_manifest_fini(&manifest);
}

static void test_text(void **state)
{
    static const char lines[] = "{\"text\": \"5+6\", \"x\": [1]}\n\n{\"id\":1,\"text\":\"7\\u0000=\\u00e98\"}";
    const char *paths[] = {keep("a"), keep("b"), keep("c.jsonl")};
    struct ash_tokenize_opts opts = defaults(keep("none"));
    struct ash_tokenize_status status = {0};

    (void)state;
    scratch_write("a", "12\n\n34\n", 7);
    scratch_write("b", "words only\n", 11); /* no tokens */
    scratch_write("c.jsonl", lines, strlen(lines));
    assert_int_equal(drive(&opts, paths, 3, 100, &status), 0);
    check_texts(opts.out, "[1234<eos>][5+6<eos>][7=8<eos>]");
    assert_int_equal(status.documents, 3);
    assert_int_equal(status.empty, 1);
    assert_int_equal(status.tokens, 5 + 4 + 4);
    assert_int_equal(status.eos_id, 1);
    assert_int_equal(status.bytes_done, status.bytes_total);
    opts.split = ASH_SPLIT_BLANK_LINE;
    opts.out = keep("blank");
    opts.eos = "none";
    assert_int_equal(drive(&opts, paths, 3, 100, &status), 0);
    check_texts(opts.out, "[12][34][5+6][7=8]");
    assert_int_equal(status.eos_id, -1);
    opts.split = ASH_SPLIT_LINE;
    opts.out = keep("line");
    opts.eos = "=";
    opts.shard_tokens = 3;
    assert_int_equal(drive(&opts, paths, 1, 100, &status), 0);
    check_texts(opts.out, "[12=][34=]");
    assert_int_equal(status.shards, 2);
    opts.format = ASH_FORMAT_TEXT;
    opts.out = keep("forced");
    opts.eos = "none";
    assert_int_equal(drive(&opts, paths + 2, 1, 100, &status), 0);
    check_texts(opts.out, "[5+61][170000=0098]");
}

/* Some megabytes of lines: many batches, many shards. */
static const char *make_large(void)
{
    struct ash_str text = {0};

    for (unsigned i = 0; i < LARGE_LINES; i++)
        assert_int_equal(
            ash_str_addf(&text, "%u+%u=%u and words%s", i, i * 7919u, i * 104729u, i % 5 == 0 ? "\n\n" : "\n"), 0);
    scratch_write("large", text.data, text.size_bytes);
    ash_str_fini(&text);
    return keep("large");
}

static void same_files(const char *a, const char *b)
{
    struct ash_data_manifest manifest = {0};
    size_t count = 0;

    assert_int_equal(ash_data_manifest_load(scratch_path(a), &manifest, &err), 0);
    for (size_t i = 0; i <= manifest.shard_count; i++) {
        const char *name = i < manifest.shard_count ? manifest.shards[i].file : "manifest.json";
        char path[PATH_MAX], *data[2] = {NULL};
        size_t size_bytes[2] = {0};

        for (int side = 0; side < 2; side++) {
            assert_int_equal(ash_path_join(path, sizeof(path), scratch_path(side == 0 ? a : b), name), 0);
            assert_int_equal(ash_file_read(path, 64 << 20, &data[side], &size_bytes[side], &err), 0);
        }
        assert_int_equal(size_bytes[0], size_bytes[1]);
        assert_memory_equal(data[0], data[1], size_bytes[0]);
        free(data[0]);
        free(data[1]);
        count++;
    }
    assert_true(count > 5);
    ash_data_manifest_fini(&manifest);
}

static void test_same_bytes(void **state)
{
    const char *path = make_large();
    struct ash_tokenize_opts opts = defaults(keep("one"));
    struct ash_tokenize_status status = {0};
    size_t kept = 0;

    (void)state;
    opts.split = ASH_SPLIT_LINE;
    opts.shard_tokens = LARGE_LINES * 5 / 3;
    assert_int_equal(drive(&opts, &path, 1, 1000, &status), 0);
    assert_int_equal(status.documents, LARGE_LINES);
    opts.threads = 3;
    opts.out = keep("three");
    assert_int_equal(drive(&opts, &path, 1, 1000, &status), 0);
    same_files("one", "three");
    /* interrupted: every run gets a step or two further, with a different number of threads */
    opts.out = keep("pieces");
    for (size_t round = 0;; round++) {
        int rc;

        assert_true(round < 50);
        opts.threads = 1 + (int64_t)round % 3;
        rc = drive(&opts, &path, 1, 2, &status);
        if (rc == 0) break;
        assert_int_equal(rc, -ECANCELED);
        assert_true(status.kept_shards >= kept);
        assert_false(ash_path_exists(scratch_path("pieces/manifest.json")));
        kept = status.shards;
    }
    assert_true(kept > 0);
    same_files("one", "pieces");
    /* finished: nothing is left to do */
    assert_int_equal(drive(&opts, &path, 1, 1, &status), 0);
    assert_int_equal(status.kept_shards, status.shards);
    assert_int_equal(status.documents, LARGE_LINES);
    assert_int_equal(status.bytes_done, status.bytes_total);
}

static void test_other_run(void **state)
{
    const char *paths[] = {keep("a"), keep("b")};
    struct ash_tokenize_opts opts = defaults(keep("out")), other;
    struct ash_tokenize_status status = {0};

    (void)state;
    scratch_write("a", "12\n34\n", 6);
    scratch_write("b", "5\n", 2);
    opts.split = ASH_SPLIT_LINE;
    assert_int_equal(drive(&opts, paths, 2, 100, &status), 0);
    assert_int_equal(drive(&opts, paths, 1, 100, &status), -EEXIST);
    says("inputs");
    says("--overwrite");
    other = opts, other.shard_tokens = 999;
    assert_int_equal(drive(&other, paths, 2, 100, &status), -EEXIST);
    says("shard_tokens");
    other = opts, other.eos = "none";
    assert_int_equal(drive(&other, paths, 2, 100, &status), -EEXIST);
    says("eos");
    other = opts, other.threads = 2;
    assert_int_equal(drive(&other, paths, 2, 100, &status), 0);
    scratch_write("b", "6\n", 2); /* another time */
    assert_int_equal(drive(&opts, paths, 2, 100, &status), -EEXIST);
    check_texts(opts.out, "[12<eos>][34<eos>][5<eos>]");
    opts.overwrite = true;
    assert_int_equal(drive(&opts, paths, 2, 100, &status), 0);
    check_texts(opts.out, "[12<eos>][34<eos>][6<eos>]");
    /* a shard that is not the one that was noted is not kept */
    opts.overwrite = false;
    assert_int_equal(truncate(scratch_path("out/shard-00000.safetensors"), 100), 0);
    assert_true(drive(&opts, paths, 2, 100, &status) < 0);
    says("shard-00000");
}

static void test_bad_input(void **state)
{
    static const char broken[] = "{\"text\":\"1\"}\n{\"text\":2}\n{\"text\":\"3\"\n[4]\n{\"body\":\"5\"}\n{\"text\":"
                                 "\"\xff\"}\n{\"text\":\"6\"}\n";
    const char *text = keep("t"), *json = keep("j.jsonl"), *nothing = keep("e");
    struct ash_tokenize_opts opts = defaults(keep("out"));
    struct ash_tokenize_status status = {0};

    (void)state;
    scratch_write("t", "12\nab\xc3\xa9\n3\xffx\n45\n", 15);
    assert_int_equal(drive(&opts, &text, 1, 100, &status), -EILSEQ);
    says("/t:3: byte 9 ");
    opts.split = ASH_SPLIT_LINE;
    opts.overwrite = true;
    assert_int_equal(drive(&opts, &text, 1, 100, &status), -EILSEQ);
    says("/t:3: byte 9 ");
    opts.on_error = ASH_ON_ERROR_SKIP;
    assert_int_equal(drive(&opts, &text, 1, 100, &status), 0);
    assert_int_equal(status.skipped, 1);
    check_texts(opts.out, "[12<eos>][45<eos>]");

    scratch_write("j.jsonl", broken, sizeof(broken) - 1);
    assert_int_equal(drive(&opts, &json, 1, 100, &status), 0);
    assert_int_equal(status.skipped, 5);
    check_texts(opts.out, "[1<eos>][6<eos>]");
    opts.on_error = ASH_ON_ERROR_STOP;
    assert_int_equal(drive(&opts, &json, 1, 100, &status), -EINVAL);
    says("j.jsonl:2: the line has no string 'text'");
    opts.field = "body";
    assert_int_equal(drive(&opts, &json, 1, 100, &status), -EINVAL);
    says("j.jsonl:1: the line has no string 'body'");
    scratch_write("j.jsonl", broken + 25, sizeof(broken) - 26);
    assert_int_equal(drive(&opts, &json, 1, 100, &status), -EINVAL);
    says("j.jsonl:1: not valid JSON");

    scratch_write("e", "", 0);
    assert_int_equal(drive(&opts, &nothing, 1, 100, &status), -EINVAL);
    says("no text");
    scratch_write("e", " \n\n", 3);
    assert_int_equal(drive(&opts, &nothing, 1, 100, &status), -EINVAL);
    says("no document");
    assert_int_equal(drive(&opts, &nothing, 0, 100, &status), -EINVAL);
    opts.tokenizer = scratch_path("none");
    scratch_write("e", "1", 1);
    assert_int_equal(drive(&opts, &nothing, 1, 100, &status), -ENOENT);
}

static void find_eos(const char *file, const char *text, const char *eos, int rc, int32_t expected)
{
    struct ash_tokenizer *tokenizer = NULL;
    int32_t id = 77;

    scratch_write(file, text, strlen(text));
    err = (struct ash_err){0};
    assert_int_equal(ash_tokenizer_open(scratch_path("tok"), &tokenizer, &err), 0);
    assert_int_equal(ash_tokenizer_find_eos(scratch_path("tok"), tokenizer, eos, &id, &err), rc);
    assert_int_equal(id, rc < 0 ? 77 : expected);
    ash_tokenizer_close(tokenizer);
    assert_int_equal(unlink(scratch_path(file)), 0);
}

static void test_eos(void **state)
{
    static const char unusual[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";

    (void)state;
    find_eos("tok/other", "", "auto", 0, 1);
    find_eos("tok/other", "", "none", 0, -1);
    find_eos("tok/other", "", "=", 0, 15);
    find_eos("tok/other", "", "</s>", -EINVAL, 0);
    find_eos("tok/generation_config.json", "{\"eos_token_id\": 5}", NULL, 0, 5);
    find_eos("tok/generation_config.json", "{\"eos_token_id\": [6, 5]}", "auto", 0, 6);
    find_eos("tok/generation_config.json", "{\"eos_token_id\": null}", "auto", 0, 1);
    find_eos("tok/generation_config.json", "{\"eos_token_id\": 16}", "auto", -EINVAL, 0);
    find_eos("tok/generation_config.json", "{\"eos_token_id\": -1}", "auto", -EINVAL, 0);
    find_eos("tok/generation_config.json", "{", "auto", -EINVAL, 0);
    find_eos("tok/config.json", "{\"eos_token_id\": 7}", "auto", 0, 7);
    find_eos("tok/tokenizer_config.json", "{\"eos_token\": \"+\"}", "auto", 0, 12);
    find_eos("tok/tokenizer_config.json", "{\"eos_token\": {\"content\": \"-\"}}", "auto", 0, 13);
    find_eos("tok/tokenizer_config.json", "{\"eos_token\": \"?\"}", "auto", -EINVAL, 0);
    find_eos("tok/tokenizer_config.json", "{}", "auto", 0, 1);
    scratch_write("tok/tokenizer.json", unusual, strlen(unusual));
    find_eos("tok/other", "", "auto", -EINVAL, 0);
    says("--eos none");
}

/* A tokenizer is named by its folder or by its file; the files next to it are copied too. */
static void test_tokenizer_files(void **state)
{
    const char *paths[] = {keep("a")};
    struct ash_tokenize_opts opts = defaults(keep("out"));
    struct ash_tokenize_status status = {0};
    char dir[PATH_MAX];

    (void)state;
    scratch_write("a", "1", 1);
    scratch_write("tok/chat_template.jinja", "{{x}}", 5);
    scratch_write("tok/tokenizer_config.json", "{\"eos_token\": \"=\"}", 18);
    scratch_write("tok/model.safetensors", "", 0);
    assert_int_equal(rename(scratch_path("tok/tokenizer.json"), scratch_path("tok/other.json")), 0);
    opts.tokenizer = keep("tok/other.json");
    assert_int_equal(drive(&opts, paths, 1, 100, &status), 0);
    check_texts(opts.out, "[1=]");
    assert_true(ash_path_exists(scratch_path("out/tokenizer.json")));
    assert_true(ash_path_exists(scratch_path("out/tokenizer_config.json")));
    assert_true(ash_path_exists(scratch_path("out/chat_template.jinja")));
    assert_false(ash_path_exists(scratch_path("out/model.safetensors")));
    assert_int_equal(ash_tokenizer_files_dir(opts.tokenizer, dir, &err), 0);
    assert_string_equal(dir, scratch_path("tok"));
    assert_int_equal(ash_tokenizer_files_dir(scratch_dir, dir, &err), 0);
    assert_string_equal(dir, scratch_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, open_scratch, scratch_close),
        cmocka_unit_test_setup_teardown(test_same_bytes, open_scratch, scratch_close),
        cmocka_unit_test_setup_teardown(test_other_run, open_scratch, scratch_close),
        cmocka_unit_test_setup_teardown(test_bad_input, open_scratch, scratch_close),
        cmocka_unit_test_setup_teardown(test_eos, open_scratch, scratch_close),
        cmocka_unit_test_setup_teardown(test_tokenizer_files, open_scratch, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
