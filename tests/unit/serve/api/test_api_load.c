/* Many at once: a thousand streams that all join to their whole answer, and thousands of cancelled ones, with memory that
 * does not grow. ASHLAR_TEST_STREAMS and ASHLAR_TEST_CANCELS ask for more. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/opts.h"
#include "base/rng.h"
#include "harness/api_server.h"
#include "unit/sanitized.h"

#define STREAMS 1000
#define CANCELS 300

static struct api_server server;

static size_t count_from(const char *name, size_t otherwise)
{
    const char *text = ash_env_get(name);

    return text != NULL ? (size_t)atoi(text) : otherwise;
}

static size_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long size = 0, resident = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static bool is_idle(void)
{
    struct ash_core_stats stats = ash_runner_stats(server.runner);

    return ash_http_get_stats(server.http).connections == 0 && stats.running + stats.waiting + stats.pages_held == 0;
}

static void wait_idle(void)
{
    for (int i = 0; i < 6000 && !is_idle(); i++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (!is_idle()) {
        struct ash_core_stats stats = ash_runner_stats(server.runner);
        struct ash_http_stats http = ash_http_get_stats(server.http);

        fail_msg("not idle: %zu connections, %zu exchanges, %zu running, %zu waiting, %zu pages held, stalled %g s",
                 http.connections, http.exchanges, stats.running, stats.waiting, stats.pages_held,
                 ash_runner_stalled_seconds(server.runner));
    }
}

static const char stream_body[] = "{\"prompt\":\"Once upon\",\"max_tokens\":24,\"temperature\":0,\"stream\":true}";

/* Read all streams to their ends as they come. */
static void read_streams(const int *fds, struct ash_str *texts, size_t count)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    size_t left = count;
    char buf[8192];

    for (size_t i = 0; i < count; i++) {
        event.data.u64 = i;
        assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[i], &event), 0);
    }
    while (left > 0) {
        int ready = epoll_wait(epoll_fd, events, 64, 60000);

        assert_true(ready > 0);
        for (int e = 0; e < ready; e++) {
            size_t i = events[e].data.u64;
            ssize_t got = recv(fds[i], buf, sizeof(buf), MSG_DONTWAIT);

            assert_true(got > 0);
            ash_str_add(&texts[i], buf, (size_t)got);
            if (strstr(texts[i].data, "data: [DONE]") == NULL) continue;
            epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fds[i], NULL);
            left--;
        }
    }
    close(epoll_fd);
}

/* The texts of a stream's events, joined. */
static void join(const struct ash_str *stream, struct ash_str *text)
{
    for (const char *at = stream->data; (at = strstr(at, "\"text\":\"")) != NULL;) {
        at += 8;
        ash_str_add(text, at, strcspn(at, "\""));
    }
}

static void run_streams(size_t count)
{
    int *fds = calloc(count, sizeof(*fds));
    struct ash_str *texts = calloc(count, sizeof(*texts)), first = {0};

    for (size_t i = 0; i < count; i++) {
        fds[i] = http_connect(server.port);
        assert_true(fds[i] >= 0);
        assert_true(http_send_request(fds[i], "POST", "/v1/completions", "", stream_body));
    }
    read_streams(fds, texts, count);
    join(&texts[0], &first);
    assert_true(first.size_bytes > 20);
    for (size_t i = 0; i < count; i++) {
        struct ash_str text = {0};

        join(&texts[i], &text);
        assert_string_equal(text.data, first.data);
        ash_str_fini(&text);
        ash_str_fini(&texts[i]);
        close(fds[i]);
    }
    ash_str_fini(&first);
    free(texts);
    free(fds);
    wait_idle();
}

static void test_a_thousand_streams(void **state)
{
    size_t count = count_from("ASHLAR_TEST_STREAMS", STREAMS);
    uint64_t begin_ns = ash_clock_ns();
    (void)state;

    run_streams(count);
    print_message("%zu streams: %.2f s\n", count, (double)(ash_clock_ns() - begin_ns) / 1e9);
}

/* One that is cancelled somewhere: before it is read, while it waits, in the middle. */
static void cancel_one(uint64_t i)
{
    int fd = http_connect(server.port);
    char buf[64];

    assert_true(http_send_request(fd, "POST", "/v1/completions", "",
                                  i % 3 == 0 ? "{\"prompt\":\"Once upon\",\"max_tokens\":1000,\"ignore_eos\":true}"
                                             : "{\"prompt\":\"Once upon\",\"max_tokens\":1000,\"ignore_eos\":true,"
                                               "\"stream\":true,\"n\":2,\"logprobs\":2}"));
    if (i % 3 == 2) assert_true(recv(fd, buf, sizeof(buf), 0) > 0);
    close(fd);
}

static void run_cancels(size_t count)
{
    for (uint64_t i = 0; i < count; i++)
        cancel_one(i);
    wait_idle();
}

/* This process has 8 MB, of which malloc's fragments are some percent and come and go with how many are at it at once. A
 * leak comes with every round. */
static void test_memory_does_not_grow(void **state)
{
    size_t count = count_from("ASHLAR_TEST_CANCELS", CANCELS), before, after, limit;
    (void)state;

    run_cancels(count);
    run_cancels(count);
    malloc_trim(0);
    before = after = resident_bytes();
    limit = before + before / 100 + (256 << 10);
    for (int round = 0; round == 0 || (round < 5 && after >= limit); round++) {
        run_cancels(count);
        malloc_trim(0);
        after = resident_bytes();
        print_message("%zu cancels: resident %zu, then %zu KiB\n", count, before >> 10, after >> 10);
    }
    if (!SANITIZED) assert_true(after < limit);
}

static int setup(void **state)
{
    struct rlimit limit;
    (void)state;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    ash_log_set_level(ASH_LOG_WARN);
    api_server_init(&server);
    server.api_opts.queue_max = 0;
    server.core_opts.max_seqs = 256;
    server.core_opts.kv_bytes = 1 << 18;
    server.http_opts.connections_max = 2048;
    api_server_open(&server, TEST_DATA);
    api_say(&server, "there was a little girl who loved to play in the park with her dog");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    api_server_close(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thousand_streams),
        cmocka_unit_test(test_memory_does_not_grow),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
