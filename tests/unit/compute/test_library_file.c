/* library_file: what is written is read again, and nothing else is: damaged files, foreign ones, several writers. */
#include "compute/cuda/gemm/library_file.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/rng.h"

static char folder[64];
static const struct ash_library_key key = {"NVIDIA H200", 13000, 130100};

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/ashlar-library-XXXXXX");
    return mkdtemp(folder) == NULL || unsetenv("ASHLAR_CACHE_DIR") < 0 || setenv("XDG_CACHE_HOME", folder, 1) < 0 ? -1
                                                                                                                  : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return ash_dir_remove(folder, NULL);
}

/* Choice number i of those that a seed draws: its shape says which it is. */
static struct ash_library_choice choice_of(uint64_t seed, uint64_t i)
{
    struct ash_library_choice choice = {.shape = {.M = (size_t)i, .N = 64, .K = 32, .c_stride = 64},
                                        .agrees = ash_rng_below(seed, 1, i, 2)};

    for (size_t w = 0; w < 8; w++)
        choice.algo.data[w] = ash_rng_below(seed, 2, 8 * i + w, UINT64_MAX);
    return choice;
}

static struct ash_library_choices choices_of(uint64_t seed, size_t count)
{
    struct ash_library_choices choices = {.count = count};

    for (size_t i = 0; i < count; i++)
        choices.list[i] = choice_of(seed, i);
    return choices;
}

static void assert_same(const struct ash_library_choices *got, const struct ash_library_choices *want)
{
    assert_int_equal(got->count, want->count);
    assert_memory_equal(got->list, want->list, want->count * sizeof(want->list[0]));
}

/* All lengths; every file that ends early or has one other bit has no choices. */
static void test_bytes(void **state)
{
    static const size_t counts[] = {0, 1, 3, ASH_LIBRARY_CHOICES_MAX};

    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct ash_library_choices choices = choices_of(c, counts[c]), got;
        size_t size = ash_library_file_bytes(choices.count);
        unsigned char *data = malloc(size);

        assert_non_null(data);
        ash_library_file_encode(&key, &choices, data);
        ash_library_file_decode(data, size, &key, &got);
        assert_same(&got, &choices);
        for (size_t i = 0; i < size; i += counts[c] < 10 ? 1 : 97) {
            data[i] ^= (unsigned char)(1 << i % 8);
            ash_library_file_decode(data, size, &key, &got);
            assert_int_equal(got.count, 0);
            data[i] ^= (unsigned char)(1 << i % 8);
            ash_library_file_decode(data, i, &key, &got);
            assert_int_equal(got.count, 0);
        }
        free(data);
    }
}

/* Of another GPU, driver or library. */
static void test_foreign(void **state)
{
    struct ash_library_key others[3] = {key, key, key};
    struct ash_library_choices choices = choices_of(1, 4), got;
    unsigned char data[4096];

    (void)state;
    others[0].gpu[0] = 'X';
    others[1].driver++;
    others[2].library++;
    assert_true(ash_library_file_bytes(4) <= sizeof(data));
    for (size_t i = 0; i < 3; i++) {
        ash_library_file_encode(&others[i], &choices, data);
        ash_library_file_decode(data, ash_library_file_bytes(4), &key, &got);
        assert_int_equal(got.count, 0);
    }
}

/* Newer choices come first and in the place of older ones; the oldest go where there are too many. */
static void test_merge(void **state)
{
    struct ash_library_choices choices = choices_of(1, ASH_LIBRARY_CHOICES_MAX);
    struct ash_library_choice more[3] = {choice_of(2, 5), choice_of(2, 1000), choice_of(2, 1001)};

    (void)state;
    ash_library_choices_merge(&choices, more, 3);
    assert_int_equal(choices.count, ASH_LIBRARY_CHOICES_MAX);
    assert_memory_equal(choices.list, more, sizeof(more));
    for (size_t i = 0, at = 3; at < choices.count; i++) {
        struct ash_library_choice old = choice_of(1, i);

        if (i != 5) assert_memory_equal(&choices.list[at++], &old, sizeof(old));
    }
    choices.count = 0;
    ash_library_choices_merge(&choices, more, 0);
    assert_int_equal(choices.count, 0);
}

/* The path of the only file that there is. */
static const char *only_file(void)
{
    static char path[512];
    char pattern[128];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/ashlar/products-*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

/* A file is made with its folders, added to, and replaced where it is damaged. */
static void test_file(void **state)
{
    struct ash_library_choices want = choices_of(3, 2), got;

    (void)state;
    ash_library_file_read(&key, &got);
    assert_int_equal(got.count, 0);
    ash_library_file_add(&key, &want.list[1], 1);
    ash_library_file_add(&key, &want.list[0], 1);
    ash_library_file_read(&key, &got);
    assert_same(&got, &want);
    assert_int_equal(ash_file_replace(only_file(), "something else", 14, NULL), 0);
    ash_library_file_read(&key, &got);
    assert_int_equal(got.count, 0);
    ash_library_file_add(&key, want.list, 2);
    ash_library_file_read(&key, &got);
    assert_same(&got, &want);
}

/* In any order of writers the file is whole, and every entry was written. */
static void test_writers(void **state)
{
    enum { WRITERS = 4, ROUNDS = 10 };
    const struct ash_library_key shared = {"shared", 1, 1};
    struct ash_library_choices got;

    (void)state;
    for (uint64_t w = 0; w < WRITERS; w++) {
        pid_t child = fork();

        assert_true(child >= 0);
        for (uint64_t r = 0; child == 0 && r < ROUNDS; r++) {
            struct ash_library_choice mine = choice_of(w, 10 * w + r);

            ash_library_file_add(&shared, &mine, 1);
            ash_library_file_read(&shared, &got);
            if (got.count == 0) _exit(1);
        }
        if (child == 0) _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;

        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    ash_library_file_read(&shared, &got);
    assert_true(got.count > 0);
    for (size_t i = 0; i < got.count; i++) {
        uint64_t which = got.list[i].shape.M;
        struct ash_library_choice want = choice_of(which / 10, which);

        assert_memory_equal(&got.list[i], &want, sizeof(want));
    }
}

/* Without a place for it, nothing is written, and nothing is wrong. */
static void test_no_place(void **state)
{
    struct ash_library_choices choices = choices_of(4, 1), got;

    (void)state;
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null", 1), 0);
    ash_library_file_add(&key, choices.list, 1);
    ash_library_file_read(&key, &got);
    assert_int_equal(got.count, 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(setenv("HOME", "", 1), 0);
    ash_library_file_add(&key, choices.list, 1);
    ash_library_file_read(&key, &got);
    assert_int_equal(got.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_foreign), cmocka_unit_test(test_merge),
        cmocka_unit_test(test_file),  cmocka_unit_test(test_writers), cmocka_unit_test(test_no_place),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
