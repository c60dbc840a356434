/* One suite for every tier: what a place of objects must do, whatever it is made of. Runs on a folder, and on the
 * bucket that TIER_TEST_URL names (tests/e2e/s3_world.sh starts a server for it). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/opts.h"
#include "base/rng.h"
#include "storage/tier/tier.h"

#define BIG_BYTES ((size_t)17 * 1000 * 1000) /* four parts of 5 MiB */

static char place[512], folder[256]; /* folder: where a place of this machine has all that it has */
static const char *server;           /* NULL: folders only */
static const char *kind = "";        /* what comes before folders, or "stripe" */
static struct ash_tier *tier;

static void expect_ok(int rc, const struct ash_err *err)
{
    if (rc < 0) fail_msg("%d: %s", rc, err->text);
}

static struct ash_s3_opts small_parts(void)
{
    return (struct ash_s3_opts){.connections = 3, .part_bytes = 5 << 20, .retry_s = 20};
}

/* A place of its own for each test. */
static int open_place(void **state)
{
    struct ash_s3_opts opts = small_parts();
    struct ash_err err = {0};
    static int serial;

    (void)state;
    if (server != NULL) {
        snprintf(place, sizeof(place), "%s/conform-%d-%d", server, (int)getpid(), serial++);
    } else {
        const char *root = ash_env_get("TIER_TEST_FOLDER"); /* another file system */

        if (root == NULL) root = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof(folder), "%.200s/ashlar-tier-XXXXXX", root);
        assert_non_null(mkdtemp(folder));
        if (strcmp(kind, "stripe:") == 0)
            snprintf(place, sizeof(place), "stripe:%.150s/a,%.150s/b,%.150s/c", folder, folder, folder);
        else
            snprintf(place, sizeof(place), "%s%s", kind, folder);
    }
    expect_ok(ash_tier_open(place, &opts, &tier, &err), &err);
    return 0;
}

static int remove_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    (void)ctx;
    (void)object;
    return ash_tier_remove(tier, key, NULL);
}

static int close_place(void **state)
{
    (void)state;
    ash_tier_list(tier, "", true, remove_one, NULL, NULL);
    ash_tier_close(tier);
    return server != NULL ? 0 : ash_dir_remove(folder, NULL);
}

static void put(const char *key, const void *data, size_t size_bytes)
{
    struct ash_tier_write *write = NULL;
    struct ash_err err = {0};

    expect_ok(ash_tier_write_open(tier, key, size_bytes, false, &write, &err), &err);
    expect_ok(ash_tier_write_add(tier, write, data, size_bytes, &err), &err);
    expect_ok(ash_tier_write_finish(tier, write, &err), &err);
    ash_tier_write_close(tier, write, false);
}

static void expect_bytes(const char *key, uint64_t offset, const void *data, size_t size_bytes)
{
    uint8_t *found = malloc(size_bytes + 1);
    struct ash_err err = {0};

    assert_non_null(found);
    expect_ok(ash_tier_read(tier, &(struct ash_tier_range){key, NULL, offset, size_bytes}, found, &err), &err);
    assert_memory_equal(found, data, size_bytes);
    free(found);
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

static void an_object_comes_back_as_it_was_written(void **state)
{
    struct ash_tier_object object = {0};
    struct ash_err err = {0};

    (void)state;
    put("a/b.bin", "0123456789", 10);
    expect_ok(ash_tier_stat(tier, "a/b.bin", &object, &err), &err);
    assert_int_equal(object.size_bytes, 10);
    assert_true(object.modified_s > 1.7e9);
    assert_true(object.version[0] != '\0');
    expect_bytes("a/b.bin", 0, "0123456789", 10);
    expect_bytes("a/b.bin", 3, "345", 3);
    expect_bytes("a/b.bin", 9, "9", 1);
}

static void an_empty_object_is_an_object(void **state)
{
    struct ash_tier_object object = {.size_bytes = 7};

    (void)state;
    put("empty", "", 0);
    assert_int_equal(ash_tier_stat(tier, "empty", &object, NULL), 0);
    assert_int_equal(object.size_bytes, 0);
}

static void what_is_not_there_says_so(void **state)
{
    struct ash_tier_object object;
    struct ash_err err = {0};
    char byte;

    (void)state;
    assert_int_equal(ash_tier_stat(tier, "none", &object, &err), -ENOENT);
    assert_true(err.text[0] != '\0');
    assert_int_equal(ash_tier_read(tier, &(struct ash_tier_range){"none", NULL, 0, 1}, &byte, &err), -ENOENT);
    assert_int_equal(ash_tier_remove(tier, "none", &err), 0);
    put("a/b", "x", 1);
    assert_int_equal(ash_tier_stat(tier, "a", &object, &err), -ENOENT);
}

static void a_range_beyond_the_end_is_refused(void **state)
{
    char data[20];

    (void)state;
    put("ten", "0123456789", 10);
    assert_true(ash_tier_read(tier, &(struct ash_tier_range){"ten", NULL, 10, 1}, data, NULL) < 0);
    assert_true(ash_tier_read(tier, &(struct ash_tier_range){"ten", NULL, 5, 6}, data, NULL) < 0);
    assert_true(ash_tier_read(tier, &(struct ash_tier_range){"ten", NULL, UINT64_C(1) << 40, 1}, data, NULL) < 0);
}

static void another_version_is_not_read(void **state)
{
    struct ash_tier_object object;
    struct ash_err err = {0};
    char data[4];

    (void)state;
    put("v", "one", 3);
    expect_ok(ash_tier_stat(tier, "v", &object, &err), &err);
    expect_ok(ash_tier_read(tier, &(struct ash_tier_range){"v", object.version, 0, 3}, data, &err), &err);
    put("v", "two", 3);
    assert_int_equal(ash_tier_read(tier, &(struct ash_tier_range){"v", object.version, 0, 3}, data, &err), -ESTALE);
    expect_bytes("v", 0, "two", 3);
}

static void an_unfinished_write_leaves_the_old_object(void **state)
{
    struct ash_tier_write *write = NULL;
    struct ash_err err = {0};

    (void)state;
    put("old", "old", 3);
    expect_ok(ash_tier_write_open(tier, "old", 0, false, &write, &err), &err);
    expect_ok(ash_tier_write_add(tier, write, "new bytes", 9, &err), &err);
    ash_tier_write_close(tier, write, false);
    expect_bytes("old", 0, "old", 3);
}

static void a_removed_object_is_gone(void **state)
{
    struct ash_tier_object object;

    (void)state;
    put("d/e/f", "x", 1);
    assert_int_equal(ash_tier_remove(tier, "d/e/f", NULL), 0);
    assert_int_equal(ash_tier_stat(tier, "d/e/f", &object, NULL), -ENOENT);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

struct seen {
    char text[4096];
};

static int see(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct seen *seen = ctx;
    size_t used = strlen(seen->text);

    if (object == NULL) assert_int_equal(key[strlen(key) - 1], '/');
    snprintf(seen->text + used, sizeof(seen->text) - used, "%s|", key);
    return 0;
}

static void expect_list(const char *prefix, bool is_flat, const char *text)
{
    struct seen seen = {{0}};
    struct ash_err err = {0};

    expect_ok(ash_tier_list(tier, prefix, is_flat, see, &seen, &err), &err);
    assert_string_equal(seen.text, text);
}

static void lists_are_in_the_order_of_bytes(void **state)
{
    static const char *const keys[] = {"b", "a/z", "a.b", "a/b/c", "a0", "B", "a/\xc3\xa9", "a b+c%41&?#"};

    (void)state;
    expect_list("", true, "");
    for (size_t i = 0; i < ASH_COUNT(keys); i++)
        put(keys[i], keys[i], strlen(keys[i]));
    expect_list("", true, "B|a b+c%41&?#|a.b|a/b/c|a/z|a/\xc3\xa9|a0|b|");
    expect_list("a/", true, "a/b/c|a/z|a/\xc3\xa9|");
    expect_list("a/b", true, "a/b/c|");
    expect_list("a/", false, "a/b/|a/z|a/\xc3\xa9|");
    expect_list("", false, "B|a b+c%41&?#|a.b|a/|a0|b|");
    expect_list("x", true, "");
    for (size_t i = 0; i < ASH_COUNT(keys); i++)
        expect_bytes(keys[i], 0, keys[i], strlen(keys[i]));
}

static int count_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    (void)key;
    (void)object;
    ++*(size_t *)ctx;
    return 0;
}

static int stop_at_third(void *ctx, const char *key, const struct ash_tier_object *object)
{
    (void)key;
    (void)object;
    return ++*(size_t *)ctx == 3 ? -ECANCELED : 0;
}

static void a_list_of_several_pages_is_whole(void **state)
{
    size_t count = 0;

    (void)state;
    for (int i = 0; i < 1005; i++) {
        char key[32];

        snprintf(key, sizeof(key), "n/%04d", i);
        put(key, "", 0);
    }
    assert_int_equal(ash_tier_list(tier, "n/", true, count_one, &count, NULL), 0);
    assert_int_equal(count, 1005);
    count = 0;
    assert_int_equal(ash_tier_list(tier, "n/", true, stop_at_third, &count, NULL), -ECANCELED);
}

/* ---- large ones -------------------------------------------------------------------------------------------------- */

static uint8_t *random_bytes(size_t size_bytes, uint64_t seed)
{
    uint8_t *data = malloc(size_bytes + 8);

    assert_non_null(data);
    for (size_t i = 0; i < size_bytes; i += 8) {
        uint64_t word = ash_rng_u64(seed, 0, i);

        memcpy(data + i, &word, 8);
    }
    return data;
}

struct compare {
    const uint8_t *expected;
    size_t at;
};

static int compare_take(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct compare *compare = ctx;

    (void)err;
    assert_memory_equal(data, compare->expected + compare->at, size_bytes);
    compare->at += size_bytes;
    return 0;
}

static void a_large_object_is_streamed_in_pieces(void **state)
{
    uint8_t *data = random_bytes(BIG_BYTES, 1);
    struct compare compare = {data, 0};
    const struct ash_s3_sink sink = {compare_take, &compare};
    struct ash_tier_write *write = NULL;
    struct ash_err err = {0};
    int rc;

    (void)state;
    expect_ok(ash_tier_write_open(tier, "big", 0, false, &write, &err), &err);
    for (size_t at = 0, i = 0; at < BIG_BYTES; i++) {
        size_t bytes = ash_rng_below(2, 0, i, 3000000);

        if (bytes > BIG_BYTES - at) bytes = BIG_BYTES - at;
        expect_ok(ash_tier_write_add(tier, write, data + at, bytes, &err), &err);
        at += bytes;
    }
    expect_ok(ash_tier_write_finish(tier, write, &err), &err);
    ash_tier_write_close(tier, write, false);
    rc = ash_tier_stream(tier, "big", &sink, &err);
    expect_ok(rc, &err);
    assert_int_equal(rc, server != NULL ? 1 : 0); /* a folder has no sums */
    assert_int_equal(compare.at, BIG_BYTES);
    for (uint64_t i = 0; i < 20; i++) {
        size_t first = ash_rng_below(3, 0, i, BIG_BYTES), bytes = ash_rng_below(3, 1, i, BIG_BYTES - first);

        expect_bytes("big", first, data + first, bytes);
    }
    free(data);
}

static void an_interrupted_write_may_be_gone_on_with(void **state)
{
    uint8_t *data = random_bytes(BIG_BYTES, 4);
    struct ash_tier_write *write = NULL;
    struct ash_tier_object object;
    struct ash_err err = {0};
    size_t count = 0;

    (void)state;
    expect_ok(ash_tier_write_open(tier, "half", BIG_BYTES, false, &write, &err), &err);
    expect_ok(ash_tier_write_add(tier, write, data, BIG_BYTES * 9 / 10, &err), &err);
    ash_tier_write_close(tier, write, true);
    assert_int_equal(ash_tier_stat(tier, "half", &object, NULL), -ENOENT);
    data[0] ^= 1; /* the first part is another one now */
    expect_ok(ash_tier_write_open(tier, "half", BIG_BYTES, true, &write, &err), &err);
    expect_ok(ash_tier_write_add(tier, write, data, BIG_BYTES, &err), &err);
    expect_ok(ash_tier_write_finish(tier, write, &err), &err);
    assert_true(ash_tier_write_resumed_bytes(tier, write) % (5 << 20) == 0);
    assert_true(ash_tier_write_resumed_bytes(tier, write) <= 2 * (5 << 20));
    ash_tier_write_close(tier, write, false);
    expect_bytes("half", 0, data, BIG_BYTES);

    expect_ok(ash_tier_write_open(tier, "dead", BIG_BYTES, false, &write, &err), &err);
    expect_ok(ash_tier_write_add(tier, write, data, BIG_BYTES, &err), &err);
    ash_tier_write_close(tier, write, true);
    expect_ok(ash_tier_sweep(tier, "", -60, &count, &err), &err);
    assert_int_equal(count, server != NULL ? 1 : 0); /* a folder keeps nothing of a write that was closed */
    free(data);
}

#define SHARED_BYTES ((size_t)40 * 1000 * 1000) /* eight parts of 5 MiB */
#define PART_BYTES ((size_t)5 << 20)

/* Bytes of an object that is shared, but for a wrong one in the last part. */
static int read_share(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err)
{
    (void)err;
    memcpy(data, (const uint8_t *)ctx + offset, size_bytes);
    if (offset + size_bytes == SHARED_BYTES) ((uint8_t *)data)[5] ^= 1;
    return 0;
}

static void several_may_send_one_object(void **state)
{
    uint8_t *data = random_bytes(SHARED_BYTES, 8);
    const struct ash_s3_share share = {.index = 1, .count = 2, .read = read_share, .ctx = data};
    struct ash_s3_opts opts = small_parts();
    struct ash_tier *other = NULL;
    struct ash_tier_write *write = NULL;
    struct ash_err err = {0};

    (void)state;
    expect_ok(ash_tier_open(place, &opts, &other, &err), &err);
    assert_int_equal(ash_tier_write_help(other, "shared", SHARED_BYTES, &share, &err),
                     server != NULL ? -ENOENT : -ENOTSUP);
    if (server != NULL) {
        expect_ok(ash_tier_write_open(tier, "shared", SHARED_BYTES, true, &write, &err), &err);
        expect_ok(ash_tier_write_add(tier, write, data, PART_BYTES + 1, &err), &err);
        expect_ok(ash_tier_write_help(other, "shared", SHARED_BYTES, &share, &err), &err);
        expect_ok(ash_tier_write_add(tier, write, data + PART_BYTES + 1, SHARED_BYTES - PART_BYTES - 1, &err), &err);
        expect_ok(ash_tier_write_finish(tier, write, &err), &err);
        assert_int_equal(ash_tier_write_resumed_bytes(tier, write), 3 * PART_BYTES); /* the wrong one was sent again */
        ash_tier_write_close(tier, write, false);
        expect_bytes("shared", 0, data, SHARED_BYTES);
        assert_int_equal(ash_tier_write_help(other, "shared", SHARED_BYTES, &share, &err), -ENOENT);
    }
    ash_tier_close(other);
    free(data);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void bad_keys_are_refused(void **state)
{
    char key[1100];
    struct ash_tier_object object;
    struct ash_err err = {0};

    (void)state;
    memset(key, 'k', sizeof(key));
    key[1025] = '\0';
    assert_int_equal(ash_tier_stat(tier, key, &object, &err), -EINVAL);
    assert_int_equal(ash_tier_stat(tier, "a\xff", &object, &err), -EINVAL);
    if (server == NULL) { /* S3 has them; in a folder they would name another file */
        static const char *const keys[] = {"", "..", "../x", "a/../b", "a//b", "/etc/passwd", "./a", "a/"};

        for (size_t i = 0; i < ASH_COUNT(keys); i++) {
            struct ash_tier_write *write = NULL;

            assert_int_equal(ash_tier_stat(tier, keys[i], &object, &err), -EINVAL);
            assert_int_equal(ash_tier_write_open(tier, keys[i], 0, false, &write, &err), -EINVAL);
            assert_int_equal(ash_tier_remove(tier, keys[i], &err), -EINVAL);
        }
    } else {
        put("a/../b", "dots", 4);
        expect_bytes("a/../b", 0, "dots", 4);
        put("ctl\x01key", "c", 1);
        expect_list("ctl", true, "ctl\x01key|");
    }
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, open_place, close_place)

/* ---- several folders --------------------------------------------------------------------------------------------- */

static size_t count_lines(const char *command)
{
    FILE *pipe = popen(command, "r");
    size_t count = 0;

    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe))
        count += c == '\n';
    pclose(pipe);
    return count;
}

/* Every folder has a third of the bytes. */
static void chunks_go_round(void **state)
{
    uint8_t *data = calloc(1, BIG_BYTES);
    char command[512];

    (void)state;
    put("big", data, BIG_BYTES);
    snprintf(command, sizeof(command), "find %.200s -path '*/.stripes/*' -type f -size +4095k", folder);
    assert_int_equal(count_lines(command), 3);
    free(data);
}

/* A folder goes away: objects with chunks there fail, by name; later writes are whole without it; smaller objects
 * elsewhere are still there; lists and sizes are as before. */
static void a_folder_that_fails_is_left_out(void **state)
{
    uint8_t *data = calloc(1, BIG_BYTES), *back = calloc(1, BIG_BYTES);
    struct ash_tier_range range = {.key = "before", .size_bytes = BIG_BYTES};
    struct ash_tier_object object = {0};
    struct ash_err err = {0};
    char lost[300], moved[300];

    (void)state;
    for (size_t i = 0; i < BIG_BYTES; i++)
        data[i] = (uint8_t)(i * 7 + i / 1000);
    put("before", data, BIG_BYTES);
    put("small", "small", 5);
    snprintf(lost, sizeof(lost), "%.200s/b", folder);
    snprintf(moved, sizeof(moved), "%.200s/gone", folder);
    assert_int_equal(rename(lost, moved), 0);
    { /* a file where the folder was: not even the superuser can write there */
        FILE *file = fopen(lost, "w");

        assert_non_null(file);
        fclose(file);
    }
    assert_int_equal(ash_tier_read(tier, &range, back, &err), -EIO);
    assert_non_null(strstr(err.text, lost));
    expect_ok(ash_tier_stat(tier, "before", &object, &err), &err);
    assert_int_equal(object.size_bytes, BIG_BYTES);
    expect_bytes("small", 0, "small", 5);
    put("after", data, BIG_BYTES);
    put("after", data, BIG_BYTES - 1);
    expect_bytes("after", 0, data, BIG_BYTES - 1);
    expect_list("", true, "after|before|small|");
    assert_int_equal(unlink(lost), 0);
    assert_int_equal(rename(moved, lost), 0);
    expect_bytes("before", 0, data, BIG_BYTES);
    expect_bytes("after", 0, data, BIG_BYTES - 1);
    free(data);
    free(back);
}

/* Chunks without an object are swept. */
static void chunks_of_nothing_are_swept(void **state)
{
    char path[400];
    size_t count = 0;
    struct ash_err err = {0};
    FILE *file;

    (void)state;
    put("kept", "kept", 4);
    snprintf(path, sizeof(path), "%.200s/a/.stripes/1-2-3", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    expect_ok(ash_tier_sweep(tier, "", 3600, &count, &err), &err);
    assert_int_equal(count, 0);
    expect_ok(ash_tier_sweep(tier, "", -3600, &count, &err), &err);
    assert_int_equal(count, 1);
    assert_int_not_equal(access(path, F_OK), 0);
    expect_bytes("kept", 0, "kept", 4);
}

int main(void)
{
    const struct CMUnitTest striped[] = {
        PLACED(chunks_go_round),
        PLACED(a_folder_that_fails_is_left_out),
        PLACED(chunks_of_nothing_are_swept),
    };
    const struct CMUnitTest tests[] = {
        PLACED(an_object_comes_back_as_it_was_written),
        PLACED(an_empty_object_is_an_object),
        PLACED(what_is_not_there_says_so),
        PLACED(a_range_beyond_the_end_is_refused),
        PLACED(another_version_is_not_read),
        PLACED(an_unfinished_write_leaves_the_old_object),
        PLACED(a_removed_object_is_gone),
        PLACED(lists_are_in_the_order_of_bytes),
        PLACED(a_list_of_several_pages_is_whole),
        PLACED(a_large_object_is_streamed_in_pieces),
        PLACED(an_interrupted_write_may_be_gone_on_with),
        PLACED(several_may_send_one_object),
        PLACED(bad_keys_are_refused),
    };
    int failed = 0;

    if (ash_env_get("TIER_TEST_FOLDER") == NULL)
        failed += cmocka_run_group_tests_name("tier of a folder", tests, NULL, NULL);
    kind = "shared:";
    failed += cmocka_run_group_tests_name("tier of a shared folder", tests, NULL, NULL);
    if (ash_env_get("TIER_TEST_FOLDER") != NULL) return failed; /* slow, most likely: once */
    kind = "stripe:";
    failed += cmocka_run_group_tests_name("tier of several folders", tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("what only several folders have", striped, NULL, NULL);

    server = ash_env_get("TIER_TEST_URL");
    if (server != NULL) print_message("again in %s\n", server);
    if (server != NULL) failed += cmocka_run_group_tests_name("tier of a bucket", tests, NULL, NULL);
    return failed;
}
