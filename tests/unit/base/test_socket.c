/* Reserved ports: no other process gets one, and its owner's processes listen there. */
#include "base/socket.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define PORTS 400

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void test_reserved_once(void **state)
{
    int fds[PORTS], ports[PORTS], sorted[PORTS];

    (void)state;
    for (size_t i = 0; i < PORTS; i++) {
        fds[i] = ash_socket_reserve(&ports[i], NULL);
        assert_true(fds[i] >= 0);
        sorted[i] = ports[i];
    }
    qsort(sorted, PORTS, sizeof(sorted[0]), ascending);
    for (size_t i = 1; i < PORTS; i++)
        assert_int_not_equal(sorted[i], sorted[i - 1]);
    for (size_t i = 0; i < PORTS; i++)
        close(fds[i]);
}

static void test_owner_listens(void **state)
{
    int port = 0, fd = ash_socket_reserve(&port, NULL), listener, other;

    (void)state;
    assert_true(fd >= 0);
    listener = ash_socket_listen(NULL, port, NULL);
    assert_true(listener >= 0);
    assert_int_equal(ash_socket_port(listener), port);
    other = ash_socket_listen(NULL, port, NULL); /* one listener a port */
    assert_true(other < 0);
    close(listener);
    listener = ash_socket_listen("127.0.0.1", port, NULL); /* again, and on one address */
    assert_true(listener >= 0);
    close(listener);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reserved_once), cmocka_unit_test(test_owner_listens)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
