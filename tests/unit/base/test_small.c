/* The small parts of the ground floor: errors, element types, clocks, logs, pools, interrupts, spelling. */
#include "ashlar/err.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/spelling.h"

static void test_errors(void **state)
{
    struct ash_err err = {0};
    char longer[2 * ASH_ERR_TEXT_BYTES];
    (void)state;

    assert_int_equal(ash_err_set(NULL, -EINVAL, "nobody listens"), -EINVAL);
    assert_int_equal(ash_err_set(&err, -EINVAL, "%d is odd", 3), -EINVAL);
    assert_string_equal(err.text, "3 is odd");
    assert_int_equal(ash_err_prefix(&err, -EIO, "step %d", 7), -EINVAL);
    assert_string_equal(err.text, "step 7: 3 is odd");
    assert_int_equal(ash_err_prefix(NULL, -EIO, "step %d", 7), -EIO);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(ash_err_set(&err, -EIO, "%s", longer), -EIO);
    assert_int_equal(strlen(err.text), ASH_ERR_TEXT_BYTES - 1);
    assert_int_equal(ash_err_prefix(&err, -EIO, "%s", longer), -EIO);
    assert_int_equal(strlen(err.text), ASH_ERR_TEXT_BYTES - 1);
}

static void test_dtypes(void **state)
{
    (void)state;
    for (int i = 0; i < ASH_DTYPE_COUNT; i++) {
        bool block = ash_dtype_block((enum ash_dtype)i) > 1;

        assert_int_equal(ash_dtype_parse(ash_dtype_name((enum ash_dtype)i)), block ? -1 : i);
        assert_true(ash_dtype_bytes((enum ash_dtype)i) >= 1);
    }
    assert_int_equal(ash_dtype_bytes(ASH_BF16), 2);
    assert_int_equal(ash_dtype_size(ASH_BF16, 64), 128);
    assert_int_equal(ash_dtype_size(ASH_Q8_0, 64), 68);
    assert_int_equal(ash_dtype_size(ASH_Q4_0, 64), 36);
    assert_int_equal(ash_dtype_parse("f32"), -1);
    assert_int_equal(ash_dtype_parse(""), -1);
}

static void test_clock(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } durations[] = {
        {0, "0s"},          {0.4, "0s"},     {58.2, "58s"},     {59.6, "1m00s"},  {192, "3m12s"},
        {3599.7, "1h00m"},  {7500, "2h05m"}, {86399, "23h59m"}, {86400, "1d00h"}, {356400, "4d03h"},
        {1e9, "11574d01h"}, {-1, "?"},       {INFINITY, "?"},   {NAN, "?"},
    };
    uint64_t before = ash_clock_ns();
    char buf[16];
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(durations); i++)
        assert_string_equal(ash_clock_format(durations[i].seconds, buf, sizeof(buf)), durations[i].text);
    assert_true(ash_clock_ns() >= before);
    assert_true(ash_clock_wall_s() > 1.7e9);
}

/* Run body with standard error caught in buf. */
static void catch_stderr(void (*body)(void), char *buf, size_t buf_bytes)
{
    int fds[2], kept = dup(STDERR_FILENO);
    ssize_t got;

    assert_int_equal(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    got = read(fds[0], buf, buf_bytes - 1);
    close(fds[0]);
    buf[got < 0 ? 0 : got] = '\0';
}

static void write_logs(void)
{
    ash_log(ASH_LOG_DEBUG, "hidden");
    ash_log(ASH_LOG_INFO, "step %d", 3);
    ash_log(ASH_LOG_WARN, "slow");
    ash_log_set_level(ASH_LOG_ERROR);
    ash_log(ASH_LOG_WARN, "hidden");
    ash_log(ASH_LOG_ERROR, "gone");
    ash_log_set_level(ASH_LOG_INFO);
}

static void write_long_log(void)
{
    char text[5000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ash_log(ASH_LOG_INFO, "%s", text);
}

static void test_log(void **state)
{
    static char buf[8192];
    (void)state;

    catch_stderr(write_logs, buf, sizeof(buf));
    assert_string_equal(buf, "ashlar: step 3\nashlar: warning: slow\nashlar: error: gone\n");
    catch_stderr(write_long_log, buf, sizeof(buf));
    assert_int_equal(strlen(buf), 2048);
    assert_int_equal(buf[2047], '\n'); /* cut, but still one line */
    assert_int_equal(buf[2046], 'x');
}

static void test_pool(void **state)
{
    struct ash_pool *pool = NULL;
    struct ash_err err = {0};
    char *objects[5];
    (void)state;

    assert_int_equal(ash_pool_open("requests", 100, 5, &pool, &err), 0);
    for (int i = 0; i < 5; i++) {
        objects[i] = ash_pool_get(pool, &err);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 64, 0);
        memset(objects[i], i, 100);
    }
    for (int i = 0; i < 5; i++)
        assert_true(objects[i][0] == i && objects[i][99] == i);
    assert_int_equal(ash_pool_used_count(pool), 5);
    assert_null(ash_pool_get(pool, NULL));
    assert_null(ash_pool_get(pool, &err));
    assert_int_equal(err.code, -EAGAIN);
    assert_string_equal(err.text, "all 5 requests are in use");
    ash_pool_put(pool, objects[2]);
    ash_pool_put(pool, NULL);
    assert_int_equal(ash_pool_used_count(pool), 4);
    assert_ptr_equal(ash_pool_get(pool, &err), objects[2]);
    ash_pool_close(pool);
    ash_pool_close(NULL);
    assert_int_equal(ash_pool_open("requests", 0, 5, &pool, &err), -EINVAL);
    assert_int_equal(ash_pool_open("requests", 5, 0, &pool, &err), -EINVAL);
    assert_int_equal(ash_pool_open("requests", SIZE_MAX / 4, 16, &pool, &err), -ENOMEM);
}

/* What a child process that runs body dies of: a signal's number, or 0. */
static int fatal_signal(void (*body)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        close(STDERR_FILENO);
        body();
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void put_twice(void)
{
    struct ash_pool *pool = NULL;
    void *object;

    if (ash_pool_open("objects", 8, 2, &pool, NULL) < 0) return;
    object = ash_pool_get(pool, NULL);
    ash_pool_put(pool, object);
    ash_pool_put(pool, object);
}

static void test_assertions_abort(void **state)
{
    (void)state;
    assert_int_equal(fatal_signal(put_twice), SIGABRT);
}

static void interrupt_twice(void)
{
    ash_interrupt_install();
    raise(SIGINT);
    raise(SIGINT);
}

static void test_interrupt(void **state)
{
    (void)state;
    ash_interrupt_install();
    assert_false(ash_interrupt_requested());
    raise(SIGINT);
    assert_true(ash_interrupt_requested());
    ash_interrupt_install();
    assert_false(ash_interrupt_requested());
    raise(SIGTERM);
    raise(SIGTERM);
    assert_true(ash_interrupt_requested());
    assert_int_equal(fatal_signal(interrupt_twice), SIGINT);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

static void test_spelling(void **state)
{
    (void)state;
    assert_true(ash_spelling_same("Seq Len", "seq_len"));
    assert_true(ash_spelling_same("H100 SXM5-80GB", "h100-sxm5-80gb "));
    assert_true(ash_spelling_same("", "-"));
    assert_false(ash_spelling_same("seq_len", "seq_lens"));
    assert_false(ash_spelling_same("H100", "H200"));
    assert_int_equal(ash_spelling_distance("Seq-len", "seq_len"), 0);
    assert_int_equal(ash_spelling_distance("leraning_rate", "learning_rate"), 1);
    assert_int_equal(ash_spelling_distance("lr", ""), 2);
    assert_int_equal(ash_spelling_nearness("Seq-len", "seq_len"), 0);
    assert_true(ash_spelling_nearness("gpt2", "gpt2-124m") < ash_spelling_nearness("gpt2", "gpt3"));
    assert_true(ash_spelling_nearness("stesp", "steps") < SIZE_MAX);
    assert_true(ash_spelling_nearness("json", "show") == SIZE_MAX);
    assert_true(ash_spelling_nearness("architectures", "resume") == SIZE_MAX);
    assert_true(ash_spelling_nearness("prompt", "out") == SIZE_MAX);
    assert_true(ash_spelling_nearness("x", "y") < SIZE_MAX);
}

static void test_array(void **state)
{
    uint32_t *items = NULL;
    size_t capacity = 0, moves = 0;
    (void)state;

    for (uint32_t i = 0; i < 5000; i++) {
        size_t before = capacity;

        assert_int_equal(ash_array_reserve(&items, &capacity, i + 1, sizeof(*items)), 0);
        assert_true(capacity > i);
        moves += capacity != before;
        items[i] = i;
    }
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(items[i], i);
    assert_in_range(moves, 1, 13); /* each doubles it */
    assert_int_equal(ash_array_reserve(&items, &capacity, 100000, sizeof(*items)), 0);
    assert_true(capacity >= 100000);
    capacity = 8;
    assert_int_equal(ash_array_reserve(&items, &capacity, SIZE_MAX / 2, sizeof(*items)), -ENOMEM);
    assert_int_equal(capacity, 8);
    assert_int_equal(items[4999], 4999);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_assertions_abort),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_spelling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
