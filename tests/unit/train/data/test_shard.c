/* Token shards: what is written is read back, in both widths; every kind of damage is answered; a failed write changes
 * nothing. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "storage/safetensors/safetensors.h"
#include "train/data/shard.h"

static struct ash_err err;

static void write_shard(const char *path, size_t vocab_size, const char *description, size_t documents)
{
    struct ash_shard_writer *writer = NULL;
    struct ash_shard_info info = {0};
    int32_t ids[64];

    assert_int_equal(ash_shard_writer_open(path, vocab_size, 0x1234, description, &writer, &err), 0);
    for (size_t d = 0; d < documents; d++) {
        size_t count = 1 + d % 7;

        for (size_t i = 0; i < count; i++)
            ids[i] = (int32_t)((d * 31 + i) % vocab_size);
        assert_int_equal(ash_shard_writer_add(writer, ids, count, &err), 0);
    }
    assert_int_equal(ash_shard_writer_finish(writer, &info, &err), 0);
    assert_int_equal(info.documents, documents);
    assert_int_equal(info.tokens, ash_shard_writer_tokens(writer));
    ash_shard_writer_close(writer);
}

static void round_trip(size_t vocab_size, enum ash_dtype dtype)
{
    const char *path = scratch_path("s.safetensors");
    struct ash_safetensors *set = NULL;
    struct ash_shard *shard = NULL;
    size_t token = 0, documents = 100000; /* more than one spill buffer */
    int32_t ids[8];

    write_shard(path, vocab_size, "made for a test", documents);
    assert_int_equal(ash_safetensors_open(path, &set, &err), 0);
    assert_int_equal(ash_safetensors_find(set, "tokens")->dtype, dtype);
    ash_safetensors_close(set);
    assert_int_equal(ash_shard_open(path, &shard, &err), 0);
    assert_int_equal(ash_shard_get_info(shard)->documents, documents);
    assert_int_equal(ash_shard_get_info(shard)->vocab_size, vocab_size);
    assert_int_equal(ash_shard_get_info(shard)->tokenizer_hash, 0x1234);
    assert_string_equal(ash_shard_description(shard), "made for a test");
    assert_int_equal(ash_shard_verify(shard, &err), 0);
    for (size_t d = 0; d < documents; d++) {
        size_t count = 1 + d % 7;

        assert_int_equal(ash_shard_doc_at(shard, token), d);
        assert_int_equal(ash_shard_doc_at(shard, token + count - 1), d);
        assert_int_equal(ash_shard_doc_end(shard, d), token + count);
        assert_int_equal(ash_shard_read(shard, token, count, ids, &err), 0);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(ids[i], (d * 31 + i) % vocab_size);
        token += count;
    }
    assert_int_equal(token, ash_shard_get_info(shard)->tokens);
    ash_shard_close(shard);
}

static void test_round_trip_narrow(void **state)
{
    (void)state;
    round_trip(65536, ASH_U16);
}

static void test_round_trip_wide(void **state)
{
    (void)state;
    round_trip(65537, ASH_U32);
}

static void test_same_input_same_bytes(void **state)
{
    char *a = NULL, *b = NULL;
    size_t a_bytes = 0, b_bytes = 0;

    (void)state;
    write_shard(scratch_path("a"), 300, NULL, 50);
    write_shard(scratch_path("b"), 300, NULL, 50);
    assert_int_equal(ash_file_read(scratch_path("a"), 1 << 20, &a, &a_bytes, &err), 0);
    assert_int_equal(ash_file_read(scratch_path("b"), 1 << 20, &b, &b_bytes, &err), 0);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    free(a);
    free(b);
}

static void test_writer_refuses(void **state)
{
    struct ash_shard_writer *writer = NULL;
    struct ash_shard_info info;
    const char *path = scratch_path("s");

    (void)state;
    assert_int_equal(ash_shard_writer_open(path, 0, 0, NULL, &writer, &err), -EINVAL);
    assert_int_equal(ash_shard_writer_open("/no/such/folder/s", 10, 0, NULL, &writer, &err), -ENOENT);
    assert_null(writer);
    assert_int_equal(ash_shard_writer_open(path, 10, 0, NULL, &writer, &err), 0);
    assert_int_equal(ash_shard_writer_finish(writer, &info, &err), -EINVAL);
    assert_int_equal(ash_shard_writer_add(writer, (int32_t[]){3, 10}, 2, &err), -EINVAL);
    assert_non_null(strstr(err.text, "10"));
    assert_int_equal(ash_shard_writer_add(writer, (int32_t[]){-1}, 1, &err), -EINVAL);
    ash_shard_writer_close(writer);
    ash_shard_writer_close(NULL);
    ash_shard_close(NULL);
    assert_false(ash_path_exists(path));
}

/* A shard as a file of its own making, so that every part can be wrong. */
struct forged {
    enum ash_dtype tokens_dtype, ends_dtype;
    const void *tokens;
    size_t token_count;
    const int64_t *ends;
    size_t end_count;
    const char *format, *vocab_size, *tokenizer_hash, *hash;
};

static const uint16_t some_tokens[5] = {1, 2, 3, 4, 5};
static const int64_t some_ends[2] = {2, 5};

static struct forged good(void)
{
    return (struct forged){ASH_U16, ASH_I64, some_tokens, 5, some_ends, 2, ASH_SHARD_FORMAT, "10", "00ff", "1"};
}

static int open_forged(const struct forged *f, const char *tokens_name, struct ash_shard **shard_out)
{
    const struct ash_tensor_spec specs[] = {
        {.name = "doc_ends", .dtype = f->ends_dtype, .dim_count = 1, .dims = {f->end_count}, .data = f->ends},
        {.name = tokens_name, .dtype = f->tokens_dtype, .dim_count = 1, .dims = {f->token_count}, .data = f->tokens},
    };
    struct ash_metadata metadata[4];
    size_t count = 0;

    if (f->format != NULL) metadata[count++] = (struct ash_metadata){"format", f->format};
    if (f->vocab_size != NULL) metadata[count++] = (struct ash_metadata){"vocab_size", f->vocab_size};
    if (f->tokenizer_hash != NULL) metadata[count++] = (struct ash_metadata){"tokenizer_hash", f->tokenizer_hash};
    if (f->hash != NULL) metadata[count++] = (struct ash_metadata){"hash", f->hash};
    assert_int_equal(ash_safetensors_write(scratch_path("f"), specs, 2, metadata, count, NULL, NULL, &err), 0);
    err.text[0] = '\0';
    return ash_shard_open(scratch_path("f"), shard_out, &err);
}

static void refuse(struct forged f, const char *says)
{
    struct ash_shard *shard = NULL;

    assert_int_equal(open_forged(&f, "tokens", &shard), -EBADMSG);
    assert_null(shard);
    if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void test_reader_refuses(void **state)
{
    struct ash_shard *shard = NULL;
    struct forged f = good();

    (void)state;
    assert_int_equal(open_forged(&f, "tokens", &shard), 0);
    ash_shard_close(shard);
    shard = NULL;
    assert_int_equal(open_forged(&f, "ids", &shard), -EBADMSG);
    f = good(), f.tokens_dtype = ASH_I16, refuse(f, "U16 or U32");
    f = good(), f.ends_dtype = ASH_U64, refuse(f, "I64");
    f = good(), f.format = NULL, refuse(f, "not a token shard");
    f = good(), f.format = "pt", refuse(f, "not a token shard");
    f = good(), f.vocab_size = NULL, refuse(f, "vocab_size");
    f = good(), f.vocab_size = "0", refuse(f, "vocab_size");
    f = good(), f.vocab_size = "-3", refuse(f, "vocab_size");
    f = good(), f.vocab_size = "99999999999999999999", refuse(f, "vocab_size");
    f = good(), f.vocab_size = "10 ", refuse(f, "vocab_size");
    f = good(), f.tokenizer_hash = "xyz", refuse(f, "tokenizer_hash");
    f = good(), f.hash = NULL, refuse(f, "hash");
    f = good(), f.end_count = 0, refuse(f, "no document");
    f = good(), f.token_count = 0, refuse(f, "no document");
    f = good(), f.ends = (int64_t[]){0, 5}, refuse(f, "doc_ends[0]");
    f = good(), f.ends = (int64_t[]){-2, 5}, refuse(f, "doc_ends[0]");
    f = good(), f.ends = (int64_t[]){5, 5}, refuse(f, "doc_ends[1]");
    f = good(), f.ends = (int64_t[]){2, 4}, refuse(f, "5 tokens");
    f = good(), f.ends = (int64_t[]){2, 6}, refuse(f, "5 tokens");
    f = good(), f.ends = (int64_t[]){2, INT64_MAX}, refuse(f, "5 tokens");
}

static void test_ids_are_checked_when_read(void **state)
{
    struct ash_shard *shard = NULL;
    struct forged f = good();
    int32_t ids[5];

    (void)state;
    f.vocab_size = "5";
    assert_int_equal(open_forged(&f, "tokens", &shard), 0);
    assert_int_equal(ash_shard_read(shard, 0, 4, ids, &err), 0);
    assert_int_equal(ash_shard_read(shard, 3, 2, ids, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "token 4 has the id 5"));
    assert_int_equal(ash_shard_verify(shard, &err), -EBADMSG);
    ash_shard_close(shard);
    f.vocab_size = "6";
    assert_int_equal(open_forged(&f, "tokens", &shard), 0);
    assert_int_equal(ash_shard_read(shard, 3, 2, ids, &err), 0);
    assert_int_equal(ash_shard_verify(shard, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "hash"));
    ash_shard_close(shard);
    f.tokens_dtype = ASH_U32, f.tokens = (uint32_t[]){1, 2, 3, 0x80000001u, 5};
    assert_int_equal(open_forged(&f, "tokens", &shard), 0);
    assert_int_equal(ash_shard_read(shard, 0, 5, ids, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "token 3"));
    ash_shard_close(shard);
}

/* A limit on the size of files stands for a full disk. */
static void test_no_room_keeps_the_old_shard(void **state)
{
    struct rlimit old, tight;
    struct ash_shard_writer *writer = NULL;
    struct ash_shard_info info;
    struct ash_shard *shard = NULL;
    const char *path = scratch_path("s");
    int32_t ids[1000] = {0};
    int rc = 0;

    (void)state;
    write_shard(path, 300, NULL, 5);
    assert_int_equal(ash_shard_writer_open(path, 300, 0, NULL, &writer, &err), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (int d = 0; d < 200 && rc == 0; d++)
        rc = ash_shard_writer_add(writer, ids, ASH_COUNT(ids), &err);
    if (rc == 0) rc = ash_shard_writer_finish(writer, &info, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, -EFBIG);
    ash_shard_writer_close(writer);
    assert_int_equal(ash_shard_open(path, &shard, &err), 0);
    assert_int_equal(ash_shard_get_info(shard)->documents, 5);
    assert_int_equal(ash_shard_verify(shard, &err), 0);
    ash_shard_close(shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip_narrow, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_round_trip_wide, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_same_input_same_bytes, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_writer_refuses, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_reader_refuses, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_ids_are_checked_when_read, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_no_room_keeps_the_old_shard, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
