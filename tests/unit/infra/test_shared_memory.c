/* shared_memory on the host: what one opens is what the other wrote, in any order of closing; and everything that is no
 * shared memory is a sentence. tests/gpu/gpu_share.c has processes that die, and GPUs. */
#include "infra/device/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define BYTES ((size_t)100001)

static void test_both_see_it(void **state)
{
    struct ash_shared_memory *own = NULL, *other = NULL;
    unsigned char *x;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(ash_shared_memory_create(NULL, BYTES, &own, NULL), 0);
    x = ash_shared_memory_data(own);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(x[i], 0);
    memset(x, 7, BYTES);
    assert_int_equal(ash_shared_memory_send(own, pair[0], NULL), 0);
    ash_shared_memory_close(own);
    assert_int_equal(ash_shared_memory_receive(NULL, pair[1], &other, NULL), 0);
    assert_int_equal(ash_shared_memory_bytes(other), BYTES);
    x = ash_shared_memory_data(other);
    assert_true(x[0] == 7 && x[BYTES - 1] == 7);
    assert_int_equal(ash_shared_memory_open(NULL, ash_shared_memory_fd(other), 10, &own, NULL), 0);
    x[9] = 3;
    assert_int_equal(((const unsigned char *)ash_shared_memory_data(own))[9], 3);
    ash_shared_memory_close(own);
    ash_shared_memory_close(other);
    ash_shared_memory_close(NULL);
    close(pair[0]);
    close(pair[1]);
}

/* Refused with words of which these are some. */
static void refuses(int fd, size_t size_bytes, const char *words)
{
    struct ash_shared_memory *memory = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_shared_memory_open(NULL, fd, size_bytes, &memory, &err), -EINVAL);
    assert_null(memory);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' is not in: %s", words, err.text);
}

static void test_wrong_descriptors(void **state)
{
    struct ash_shared_memory *memory = NULL;
    struct ash_err err = {0};
    int unsealed = memfd_create("unsealed", 0), null = open("/dev/null", O_RDWR), pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    refuses(-1, BYTES, "not open");
    refuses(null, BYTES, "no shared memory");
    refuses(pipes[0], BYTES, "no shared memory");
    refuses(unsealed, 1, "no shared memory"); /* it could shrink under a reader */
    assert_int_equal(ash_shared_memory_create(NULL, 0, &memory, &err), -EINVAL);
    assert_int_equal(ash_shared_memory_create(NULL, (size_t)-1, &memory, &err), -ENOMEM);
    assert_null(memory);
    assert_int_equal(ash_shared_memory_create(NULL, BYTES, &memory, &err), 0);
    refuses(ash_shared_memory_fd(memory), BYTES + 1, "has 100001 bytes, not 100002");
    refuses(ash_shared_memory_fd(memory), 0, "no bytes");
    ash_shared_memory_close(memory);
    close(unsealed);
    close(null);
    close(pipes[0]);
    close(pipes[1]);
}

/* What comes over a socket without being shared memory. */
static void test_wrong_messages(void **state)
{
    static const char words[24] = "GET / HTTP/1.1";
    struct ash_shared_memory *memory = NULL;
    struct ash_err err = {0};
    int pair[2];

    (void)state;
    for (size_t bytes = 0; bytes <= sizeof(words); bytes += 12) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_int_equal(write(pair[0], words, bytes), (ssize_t)bytes);
        close(pair[0]);
        assert_int_equal(ash_shared_memory_receive(NULL, pair[1], &memory, &err), bytes == 0 ? -ECONNRESET : -EINVAL);
        assert_non_null(strstr(err.text, bytes == 0 ? "has gone" : "no shared memory"));
        assert_null(memory);
        close(pair[1]);
    }
    assert_int_equal(ash_shared_memory_create(NULL, 1, &memory, NULL), 0);
    assert_int_equal(ash_shared_memory_send(memory, -1, &err), -EIO);
    ash_shared_memory_close(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_see_it), cmocka_unit_test(test_wrong_descriptors),
                                       cmocka_unit_test(test_wrong_messages)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
