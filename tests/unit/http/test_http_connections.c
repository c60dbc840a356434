/* Connections to the HTTP server: clients that leave or are too slow, limits, too few descriptors, draining, closing. */
#include "unit/http/http_fixture.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A connection that has a request for good: an answer without end, of which the client reads the first bytes. */
static int connect_busy(int port)
{
    struct ash_str text = {0};
    int fd = http_connect(port);

    assert_true(http_send_request(fd, "POST", "/flood", "", "{}"));
    assert_true(http_read_until(fd, "xxx", &text));
    ash_str_fini(&text);
    return fd;
}

static void wait_for_connections(struct fixture *fixture, size_t most)
{
    for (int i = 0; i < 6000 && ash_http_get_stats(fixture->http).connections > most; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Clients are in a child: their descriptors are not ours. */
static pid_t start_clients(int port, int count, const struct rlimit *limit, int *pipe_out)
{
    int fds[2];
    pid_t child;

    assert_int_equal(pipe(fds), 0);
    child = fork();
    if (child == 0) {
        char byte;

        close(fds[1]);
        setrlimit(RLIMIT_NOFILE, limit);
        for (int i = 0; i < count; i++)
            if (http_connect(port) < 0) _exit(1);
        if (read(fds[0], &byte, 1) < 0) _exit(1); /* until the parent closes its end */
        _exit(0);
    }
    close(fds[0]);
    *pipe_out = fds[1];
    return child;
}

static void *drain(void *arg)
{
    struct fixture *fixture = arg;

    assert_int_equal(ash_http_drain(fixture->http, 20), 0);
    return NULL;
}

/* A client that leaves, and one that closes its end only: both within a moment. */
static void test_clients_that_leave(void **state)
{
    struct fixture *fixture = new_fixture();
    int fd;
    (void)state;

    open_server(fixture);
    for (int round = 0; round < 2; round++) {
        fd = http_connect(fixture->port);
        assert_true(http_send_request(fd, "POST", "/hold", "", "{}"));
        wait_for(&fixture->held, round + 1);
        if (round == 0)
            close(fd);
        else
            shutdown(fd, SHUT_WR);
        wait_for(&fixture->gone, round + 1);
        wait_for(&fixture->ended, round + 1);
        assert_true(ash_http_is_gone(fixture->waiting));
        ash_http_respond(fixture->waiting, 200, "text/plain", &(struct ash_str){0}); /* too late, and harmless */
        ash_http_exchange_put(fixture->waiting);
        if (round == 1) close(fd);
    }
    fd = http_connect(fixture->port);
    assert_true(http_send_request(fd, "POST", "/flood", "", "{}"));
    wait_for(&fixture->streamed, 1);
    close(fd);
    wait_for(&fixture->gone, 3);
    wait_for(&fixture->ended, 3);
    close_server(fixture);
}

static void test_deadlines(void **state)
{
    struct fixture *fixture = new_fixture();
    int header, body, stalled, idle;
    struct ash_str text = {0};
    struct http_answer answer;
    uint64_t begin_ns;
    (void)state;

    fixture->opts.header_seconds = fixture->opts.body_seconds = fixture->opts.stall_seconds =
        fixture->opts.idle_seconds = 3;
    open_server(fixture);
    begin_ns = ash_clock_ns();
    header = http_connect(fixture->port);
    body = http_connect(fixture->port);
    stalled = http_connect(fixture->port);
    idle = http_connect(fixture->port);
    assert_true(http_send(header, "GET /echo HTTP/1.1\r\n"));
    assert_true(http_send(body, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"));
    assert_true(http_send_request(stalled, "POST", "/flood", "", "{}"));
    assert_true(http_send_request(idle, "GET", "/echo", "", NULL));
    answer = http_read(idle, false);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    for (int i = 0; i < 32; i++) { /* a byte now and then keeps no connection alive */
        send(header, "X", 1, MSG_NOSIGNAL);
        send(body, "x", 1, MSG_NOSIGNAL);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    assert_false(http_read_until(header, "never", &text));
    assert_false(http_read_until(body, "never", &text));
    assert_false(http_read_until(idle, "never", &text));
    wait_for(&fixture->gone, 1); /* the one that does not read is dropped, and its handler told */
    assert_in_range(ash_clock_ns() - begin_ns, 3000000000ull, 60000000000ull);
    close(header), close(body), close(stalled), close(idle);
    ash_str_fini(&text);
    close_server(fixture);
}

static void test_connections_over_the_limit(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    int fds[10];
    char value[64];
    (void)state;

    fixture->opts.connections_max = ASH_COUNT(fds);
    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = connect_busy(fixture->port);
    answer = http_do(fixture->port, "GET", "/echo", "", NULL);
    assert_int_equal(answer.status, 503);
    assert_non_null(http_header(&answer, "retry-after: ", value, sizeof(value)));
    http_answer_fini(&answer);
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET"); /* health has no limit */
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
    wait_for_connections(fixture, 0);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close_server(fixture);
}

/* Idle connections give way, the longest idle one first; those with a request stay. */
static void test_idle_connections_give_way(void **state)
{
    struct fixture *fixture = new_fixture();
    struct ash_str text = {0};
    int busy, first, fds[300];
    (void)state;

    fixture->opts.connections_max = 8;
    open_server(fixture);
    busy = connect_busy(fixture->port);
    first = http_connect(fixture->port);
    assert_true(http_send_request(first, "GET", "/echo", "", NULL));
    assert_true(http_read_until(first, "GET::", &text));
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = http_connect(fixture->port); /* sends nothing */
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    assert_false(http_read_until(first, "never", &text)); /* it was closed */
    ash_str_clear(&text);
    assert_true(http_read_until(busy, "xxx", &text));
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
    wait_for_connections(fixture, 1);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close(busy), close(first);
    ash_str_fini(&text);
    close_server(fixture);
}

static void test_connections_of_one_client(void **state)
{
    struct fixture *fixture = new_fixture();
    struct sockaddr_in other = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    struct http_answer answer;
    int fds[4], fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;

    fixture->opts.client_connections_max = ASH_COUNT(fds);
    open_server(fixture);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        fds[i] = connect_busy(fixture->port);
    check_status(fixture->port, "GET", "/echo", "", NULL, 503, "too_many_connections");
    other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)fixture->port);
    assert_int_equal(bind(fd, (struct sockaddr *)&other, sizeof(other)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_true(http_send_request(fd, "GET", "/echo", "", NULL));
    answer = http_read(fd, false);
    assert_int_equal(answer.status, 200);
    http_answer_fini(&answer);
    close(fd);
    for (size_t i = 0; i < ASH_COUNT(fds); i++)
        close(fds[i]);
    close_server(fixture);
}

/* Without descriptors the server waits without using the processor, and continues when there are some again. */
static void test_no_descriptors(void **state)
{
    struct fixture *fixture = new_fixture();
    struct rlimit limit, small;
    double before;
    int status = 0, hold_open = -1, probe;
    pid_t child;
    (void)state;

    open_server(fixture);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    probe = dup(0);
    close(probe);
    small.rlim_cur = (rlim_t)probe + 12;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    ash_log_set_level(ASH_LOG_ERROR);
    child = start_clients(fixture->port, 40, &limit, &hold_open);
    for (int i = 0; i < 600 && ash_http_get_stats(fixture->http).accepted == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    assert_true(cpu_seconds() - before < 0.2);
    assert_in_range(ash_http_get_stats(fixture->http).accepted, 1, 12);
    ash_log_set_level(ASH_LOG_INFO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(hold_open);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_status(fixture->port, "GET", "/echo", "", NULL, 200, "GET");
    close_server(fixture);
}

static void test_drain(void **state)
{
    struct fixture *fixture = new_fixture();
    struct http_answer answer;
    struct ash_str body = {0};
    pthread_t thread;
    char value[64];
    int fd;
    (void)state;

    open_server(fixture);
    fd = http_connect(fixture->port);
    assert_true(http_send_request(fd, "POST", "/hold", "", "{}"));
    wait_for(&fixture->held, 1);
    assert_int_equal(ash_http_drain(fixture->http, 0.01), -ETIMEDOUT);
    assert_int_equal(pthread_create(&thread, NULL, drain, fixture), 0);
    answer = http_do(fixture->port, "POST", "/echo", "", "{}");
    assert_int_equal(answer.status, 503);
    assert_non_null(http_header(&answer, "retry-after: ", value, sizeof(value)));
    http_answer_fini(&answer);
    check_status(fixture->port, "GET", "/quick", "", NULL, 200, "GET");
    ash_str_adds(&body, "late");
    ash_http_respond(fixture->waiting, 200, "text/plain", &body);
    ash_http_exchange_put(fixture->waiting);
    answer = http_read(fd, false);
    assert_string_equal(answer.body.data, "late");
    http_answer_fini(&answer);
    pthread_join(thread, NULL);
    close(fd);
    close_server(fixture);
}

/* Closing ends what is open: exchanges that wait, and streams. */
static void test_close_with_open_exchanges(void **state)
{
    struct fixture *fixture = new_fixture();
    int held, flooded;
    (void)state;

    open_server(fixture);
    held = http_connect(fixture->port);
    flooded = http_connect(fixture->port);
    assert_true(http_send_request(held, "POST", "/hold", "", "{}"));
    assert_true(http_send_request(flooded, "POST", "/flood", "", "{}"));
    wait_for(&fixture->held, 1);
    wait_for(&fixture->streamed, 1);
    close_server(fixture);
    assert_int_equal(atomic_load(&fixture->gone), 2);
    assert_int_equal(atomic_load(&fixture->ended), 2);
    ash_http_exchange_put(fixture->waiting);
    close(held), close(flooded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_connections_over_the_limit),
        cmocka_unit_test(test_idle_connections_give_way),
        cmocka_unit_test(test_connections_of_one_client),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_close_with_open_exchanges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
