/* Reading parts of a file past the page cache: every byte arrives once, whatever the alignment; a file that becomes
 * shorter is an error that says so; stopping early and file systems without O_DIRECT do no harm. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "storage/io/direct_reader.h"

#define FILE_BYTES ((size_t)3 * 1000 * 1000 + 17)
#define PARTS 64

struct fixture {
    char path[64];
    uint8_t *bytes; /* what the file holds */
    struct ash_map map;
    struct ash_direct_range parts[PARTS];
    _Atomic int taken[PARTS], wrong;
};

static void open_in(struct fixture *f, const char *folder)
{
    struct ash_err err = {0};
    size_t at = 0;

    snprintf(f->path, sizeof(f->path), "%s/ashlar-intake-%d", folder, (int)getpid());
    f->bytes = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        f->bytes[i] = (uint8_t)ash_rng_below(5, 0, i, 256);
    assert_int_equal(ash_file_replace(f->path, f->bytes, FILE_BYTES, NULL), 0);
    if (ash_map_open(f->path, &f->map, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < PARTS; i++) { /* of all sizes, none among them; the last one ends the file */
        size_t bytes = i == 7 ? 0 : (size_t)ash_rng_below(5, 1, i, 2 * FILE_BYTES / PARTS);

        if (i == PARTS - 1 || bytes > FILE_BYTES - at) bytes = FILE_BYTES - at;
        f->parts[i] = (struct ash_direct_range){i == 3 ? NULL : &f->map, f->map.base + at, bytes};
        at += bytes;
    }
}

static void fixture_close(struct fixture *f)
{
    ash_map_close(&f->map);
    unlink(f->path);
    free(f->bytes);
}

static void take(void *ctx, size_t index, const void *bytes)
{
    struct fixture *f = ctx;
    const struct ash_direct_range *part = &f->parts[index];
    size_t at = (size_t)((const uint8_t *)part->data - f->map.base);

    atomic_fetch_add(&f->taken[index], 1);
    if (memcmp(bytes, f->bytes + at, part->size_bytes) != 0) atomic_fetch_add(&f->wrong, 1);
}

static void check_all(const char *folder)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;
    struct ash_err err = {0};

    open_in(&f, folder);
    if (ash_direct_reader_open(f.parts, PARTS, 0, take, &f, &reader, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_direct_reader_wait(reader, 5, &err), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(f.taken[i], 1);
    assert_int_equal(ash_direct_reader_wait(reader, PARTS, &err), 0);
    ash_direct_reader_close(reader);
    for (size_t i = 0; i < PARTS; i++)
        assert_int_equal(f.taken[i], 1);
    assert_int_equal(f.wrong, 0);
    assert_int_equal(fcntl(f.map.fd, F_GETFL) & O_DIRECT, 0);
    fixture_close(&f);
}

static void test_all(void **state)
{
    (void)state;
    check_all("/tmp");
    check_all("/dev/shm"); /* older kernels refuse O_DIRECT there */
}

static void test_shorter(void **state)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;
    struct ash_err err = {0};

    (void)state;
    open_in(&f, "/tmp");
    f.parts[3].map = &f.map;
    assert_int_equal(truncate(f.path, (off_t)(FILE_BYTES / 2)), 0);
    if (ash_direct_reader_open(f.parts, PARTS, 0, take, &f, &reader, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_direct_reader_wait(reader, PARTS, &err), -ENODATA);
    assert_non_null(strstr(err.text, "shorter"));
    assert_int_equal(ash_direct_reader_wait(reader, PARTS, NULL), -ENODATA); /* and stays so */
    ash_direct_reader_close(reader);
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
}

/* A descriptor that cannot be read. */
static void test_unreadable(void **state)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;
    struct ash_err err = {0};
    int fd, write_only;

    (void)state;
    open_in(&f, "/tmp");
    fd = f.map.fd;
    f.map.fd = write_only = open(f.path, O_WRONLY);
    f.parts[3].map = &f.map;
    if (ash_direct_reader_open(f.parts, PARTS, 0, take, &f, &reader, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_direct_reader_wait(reader, 1, &err), -EBADF);
    assert_true(strlen(err.text) > 0);
    ash_direct_reader_close(reader);
    f.map.fd = fd;
    close(write_only);
    fixture_close(&f);
}

static void test_stopped(void **state)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;

    (void)state;
    open_in(&f, "/tmp");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ash_direct_reader_open(f.parts, PARTS, 0, take, &f, &reader, NULL), 0);
        ash_direct_reader_close(reader);
    }
    assert_int_equal(f.wrong, 0);
    assert_int_equal(ash_direct_reader_open(NULL, 0, 0, take, &f, &reader, NULL), 0);
    assert_int_equal(ash_direct_reader_wait(reader, 0, NULL), 0);
    ash_direct_reader_close(reader);
    ash_direct_reader_close(NULL);
    assert_int_equal(ash_direct_reader_wait(NULL, 1, NULL), 0);
    fixture_close(&f);
}

/* A file that was out of the page cache is there some time after the last part, unless it is to stay as it was. */
static void test_kept(void **state)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;
    struct timespec tick = {.tv_nsec = 1000000};
    int ticks = 0;

    (void)state;
    open_in(&f, "/tmp");
    assert_int_equal(posix_fadvise(f.map.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    if (ash_map_cached(f.map.base + FILE_BYTES / 2)) ticks = -1; /* a file system of memory */
    assert_int_equal(ash_direct_reader_open(f.parts, PARTS, 1, take, &f, &reader, NULL), 0);
    assert_int_equal(ash_direct_reader_wait(reader, PARTS, NULL), 0);
    while (ticks >= 0 && ticks < 20000 && !ash_map_cached(f.map.base + FILE_BYTES - 1)) {
        nanosleep(&tick, NULL);
        ticks++;
    }
    ash_direct_reader_close(reader);
    assert_true(ticks < 20000);
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
}

/* From a disk that counts as slow, all but the first parts are in the page cache as soon as they are taken. */
static void test_slow_disk(void **state)
{
    struct fixture f = {0};
    struct ash_direct_reader *reader = NULL;
    bool possible = false; /* to read past the cache here */

    (void)state;
    open_in(&f, "/tmp");
    for (int slow = 0; slow < 2; slow++) {
        assert_int_equal(posix_fadvise(f.map.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        assert_int_equal(ash_direct_reader_open(f.parts, PARTS, slow ? UINT64_MAX : 1, take, &f, &reader, NULL), 0);
        possible = possible || ash_direct_reader_is_direct(reader);
        assert_int_equal(ash_direct_reader_wait(reader, PARTS, NULL), 0);
        assert_int_equal(ash_direct_reader_is_direct(reader), possible && !slow);
        if (slow) assert_true(ash_map_cached(f.map.base + FILE_BYTES - 1));
        ash_direct_reader_close(reader);
    }
    assert_int_equal(f.wrong, 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all),        cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_slow_disk),  cmocka_unit_test(test_shorter),
                                       cmocka_unit_test(test_unreadable), cmocka_unit_test(test_stopped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
