/* exporter: scraped over real sockets; refusals have a cause; closing is total. */
#include "observe/exporter/exporter.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "record/metrics.h"

ASH_COUNTER(scrapes, "test_scrapes_total", "Scrapes.");

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Send a request and return the whole answer (until the server closes). */
static char *exchange(int port, const char *request)
{
    static char answer[65536];
    size_t used = 0;
    ssize_t got;
    int fd = connect_to(port);

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    while ((got = recv(fd, answer + used, sizeof(answer) - 1 - used, 0)) > 0)
        used += (size_t)got;
    assert_int_equal(got, 0);
    answer[used] = '\0';
    close(fd);
    return answer;
}

static struct ash_exporter *open_exporter(void)
{
    struct ash_exporter *exporter = NULL;
    struct ash_err err = {0};

    if (ash_exporter_open(NULL, 0, &exporter, &err) < 0) fail_msg("%s", err.text);
    assert_true(ash_exporter_port(exporter) > 0);
    return exporter;
}

static void check_line(const char *text, const char *name, double min, double max)
{
    char start[64];
    const char *line;

    snprintf(start, sizeof(start), "\n%s ", name);
    line = strstr(text, start);
    if (line == NULL) fail_msg("no %s in\n%s", name, text);
    assert_true(strtod(line + strlen(start), NULL) >= min && strtod(line + strlen(start), NULL) <= max);
}

static void test_metrics(void **state)
{
    struct ash_exporter *exporter = open_exporter();
    double now = (double)time(NULL);
    char *answer;
    (void)state;

    ash_metric_add(&scrapes, 3);
    answer =
        exchange(ash_exporter_port(exporter), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_non_null(strstr(answer, "# TYPE test_scrapes_total counter\ntest_scrapes_total 3\n"));
    check_line(answer, "process_resident_memory_bytes", 1e5, 1e12);
    check_line(answer, "process_cpu_seconds_total", 0, 300);
    check_line(answer, "process_start_time_seconds", now - 600, now + 5);
    ash_metric_add(&scrapes, 1);
    answer = exchange(ash_exporter_port(exporter), "GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert_non_null(strstr(answer, "test_scrapes_total 4\n"));
    ash_exporter_close(exporter);
}

static void test_other_paths(void **state)
{
    struct ash_exporter *exporter = open_exporter();
    int port = ash_exporter_port(exporter);
    (void)state;

    assert_non_null(strstr(exchange(port, "GET /healthz HTTP/1.0\r\n\r\n"), "\r\n\r\nok\n"));
    assert_non_null(strstr(exchange(port, "GET / HTTP/1.0\r\n\r\n"), " 404 "));
    assert_non_null(strstr(exchange(port, "GET /metrics/x HTTP/1.0\r\n\r\n"), " 404 "));
    assert_non_null(strstr(exchange(port, "HEAD /healthz HTTP/1.0\r\n\r\n"), " 200 "));
    assert_non_null(strstr(exchange(port, "POST /metrics HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi"), " 405 "));
    exchange(port, "nonsense\r\n\r\n"); /* whatever it answers, it lives on */
    assert_non_null(strstr(exchange(port, "GET /healthz HTTP/1.0\r\n\r\n"), " 200 "));
    ash_exporter_close(exporter);
}

static void test_refusals(void **state)
{
    struct ash_exporter *exporter = open_exporter(), *second = NULL;
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_exporter_open(NULL, ash_exporter_port(exporter), &second, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(ash_exporter_open(NULL, -1, &second, &err), -EINVAL);
    assert_int_equal(ash_exporter_open(NULL, 65536, &second, &err), -EINVAL);
    assert_int_equal(ash_exporter_open("localhost.invalid", 0, &second, &err), -EINVAL);
    assert_non_null(strstr(err.text, "localhost.invalid"));
    assert_int_equal(ash_exporter_open("192.0.2.1", 0, &second, &err), -EADDRNOTAVAIL);
    assert_null(second);
    ash_exporter_close(exporter);
    ash_exporter_close(NULL);
}

/* A client that never finishes its request does not keep the exporter from closing, and the port is free afterwards. */
static void test_close_is_total(void **state)
{
    struct ash_exporter *exporter = open_exporter(), *again = NULL;
    int port = ash_exporter_port(exporter), fd = connect_to(port);
    char byte;
    (void)state;

    assert_int_equal(send(fd, "GET /met", 8, MSG_NOSIGNAL), 8);
    assert_non_null(strstr(exchange(port, "GET /healthz HTTP/1.0\r\n\r\n"), " 200 "));
    ash_exporter_close(exporter);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    assert_int_equal(ash_exporter_open("127.0.0.1", port, &again, NULL), 0);
    ash_exporter_close(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_other_paths),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_close_is_total),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
