/* Shared memory without a name: found through its key while its owner lives, and refused when it is not the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/shm/copy.h"
#include "fabric/segment.h"

static void test_map(void **state)
{
    struct ash_segment own = {0}, seen = {0};
    struct ash_segment_key key;
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(ash_segment_create(&own, 10000, "test", NULL), 0);
    assert_true(own.size_bytes >= 10000 && own.size_bytes % 4096 == 0 && ((char *)own.data)[9999] == 0);
    assert_int_equal(ash_segment_get_key(&own, &key), 0);
    child = fork();
    if (child == 0) {
        if (ash_segment_map(&seen, &key, NULL) < 0) _exit(1);
        memcpy((char *)seen.data + 5000, "hello", 6);
        ash_segment_fini(&seen);
        _exit(0);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_string_equal((char *)own.data + 5000, "hello");
    assert_int_equal(ash_segment_map(&seen, &key, NULL), 0); /* one's own too */
    ash_segment_fini(&own);
    assert_string_equal((char *)seen.data + 5000, "hello"); /* what is mapped stays */
    ash_segment_fini(&seen);
    ash_segment_fini(&seen);
}

static void test_refused(void **state)
{
    struct ash_segment own = {0}, seen = {0};
    struct ash_segment_key good, key;
    struct ash_err err = {0};
    int open_fd = memfd_create("open", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(ash_segment_create(&own, 4096, "test", NULL), 0);
    assert_int_equal(ash_segment_get_key(&own, &good), 0);
    key = good;
    key.inode++;
    assert_int_equal(ash_segment_map(&seen, &key, &err), -ESRCH);
    key = good;
    key.size_bytes *= 2;
    assert_int_equal(ash_segment_map(&seen, &key, &err), -ESRCH);
    key = good;
    key.fd = 1000000;
    assert_int_equal(ash_segment_map(&seen, &key, &err), -ESRCH);
    key = good;
    key.pid = -1;
    assert_int_equal(ash_segment_map(&seen, &key, &err), -ESRCH);
    assert_true(err.text[0] != '\0' && seen.data == NULL);
    /* memory that its owner could take away is not mapped */
    assert_int_equal(ftruncate(open_fd, 4096), 0);
    assert_int_equal(ash_segment_get_key(&(struct ash_segment){.fd = open_fd, .size_bytes = 4096}, &key), 0);
    assert_int_equal(ash_segment_map(&seen, &key, &err), -ESRCH);
    assert_int_equal(ftruncate(own.fd, 0), -1); /* nor can a segment be */
    close(open_fd);
    ash_segment_fini(&own);
}

static void test_owner_gone(void **state)
{
    struct ash_segment seen = {0};
    struct ash_segment_key key;
    int pipes[2], status;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        struct ash_segment own = {0};

        if (ash_segment_create(&own, 4096, "test", NULL) < 0 || ash_segment_get_key(&own, &key) < 0) _exit(1);
        memcpy(own.data, "left", 5);
        if (write(pipes[1], &key, sizeof(key)) != (ssize_t)sizeof(key)) _exit(1);
        pause();
        _exit(1);
    }
    assert_int_equal(read(pipes[0], &key, sizeof(key)), sizeof(key));
    assert_int_equal(ash_segment_map(&seen, &key, NULL), 0);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_string_equal(seen.data, "left");
    ash_segment_fini(&seen);
    assert_int_equal(ash_segment_map(&seen, &key, NULL), -ESRCH);
    close(pipes[0]);
    close(pipes[1]);
}

/* Copies around the sizes where the way of copying changes, at odd addresses; the bytes around them stay. */
static void test_copy(void **state)
{
    const size_t large = (size_t)4 << 20, room = large + 4096;
    unsigned char *src = test_malloc(room), *dst = test_malloc(room), *want = test_malloc(room);
    const size_t sizes[] = {0, 1, 63, 64, 65, 4096, large - 1, large, large + 1, large + 64, large + 191};

    (void)state;
    for (size_t i = 0; i < room; i++)
        src[i] = (unsigned char)(i * 7 + (i >> 8));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t shift = 0; shift < 70; shift += 23) {
            memset(dst, 0xee, room);
            memset(want, 0xee, room);
            memcpy(want + shift, src + 5, sizes[s]);
            ash_copy(dst + shift, src + 5, sizes[s]);
            assert_memory_equal(dst, want, room);
        }
    test_free(src);
    test_free(dst);
    test_free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_map), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_owner_gone), cmocka_unit_test(test_copy)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
