/* metrics: exact Prometheus text, and no bump lost between threads. */
#include "record/metrics.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/assert.h"

static const double seconds[] = {0.005, 0.1, 1, 2.5};

ASH_COUNTER(steps, "test_steps_total", "Steps that were\ndone with a \\.");
ASH_GAUGE(loss, "test_loss", "The loss.");
ASH_HISTOGRAM(step_seconds, "test_a_step_seconds", "Time of a step.", seconds);
ASH_COUNTER(never, "test_never_total", "Nobody bumps this.");
ASH_COUNTER(shared, "test_shared_total", "Many threads bump this.");
ASH_HISTOGRAM(shared_seconds, "test_shared_seconds", "And this.", seconds);
ASH_HISTOGRAM(wait_seconds, "test_wait_seconds", "Waits by route.", seconds);
ASH_COUNTER(many, "test_many_total", "Has many labels.");
ASH_COUNTER(same_name, "test_steps_total", "Has another's name.");

__attribute__((noinline)) static char *render(void) /* inlined, gcc 12 takes its result for a local */
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);

    assert_non_null(out);
    ash_metrics_write(out);
    fclose(out);
    return text;
}

static void test_text(void **state)
{
    char *text = render();
    (void)state;

    assert_string_equal(text, ""); /* nothing was bumped */
    free(text);
    ash_metric_add(&steps, 1);
    ash_metric_add(&steps, 2.5);
    ash_metric_set(&loss, 5);
    ash_metric_set(&loss, 0.1);
    ash_metric_observe(&step_seconds, 0.005); /* a bound belongs to its bucket */
    ash_metric_observe(&step_seconds, 0.05);
    ash_metric_observe(&step_seconds, 2);
    ash_metric_observe(&step_seconds, 100);
    text = render();
    assert_string_equal(text, "# HELP test_a_step_seconds Time of a step.\n"
                              "# TYPE test_a_step_seconds histogram\n"
                              "test_a_step_seconds_bucket{le=\"0.005\"} 1\n"
                              "test_a_step_seconds_bucket{le=\"0.1\"} 2\n"
                              "test_a_step_seconds_bucket{le=\"1\"} 2\n"
                              "test_a_step_seconds_bucket{le=\"2.5\"} 3\n"
                              "test_a_step_seconds_bucket{le=\"+Inf\"} 4\n"
                              "test_a_step_seconds_sum 102.055\n"
                              "test_a_step_seconds_count 4\n"
                              "# HELP test_loss The loss.\n"
                              "# TYPE test_loss gauge\n"
                              "test_loss 0.1\n"
                              "# HELP test_steps_total Steps that were\\ndone with a \\\\.\n"
                              "# TYPE test_steps_total counter\n"
                              "test_steps_total 3.5\n");
    free(text);
}

static void test_odd_values(void **state)
{
    static const struct {
        double value;
        const char *line;
    } odd[] = {{NAN, "test_loss NaN\n"},
               {INFINITY, "test_loss +Inf\n"},
               {-INFINITY, "test_loss -Inf\n"},
               {1e300, "test_loss 1e+300\n"},
               {-0.25, "test_loss -0.25\n"}};
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(odd); i++) {
        char *text;
        ash_metric_set(&loss, odd[i].value);
        text = render();
        assert_non_null(strstr(text, odd[i].line));
        free(text);
    }
}

static void *bump(void *arg)
{
    for (int i = 0; i < 10000; i++) {
        ash_metric_add(&shared, 1);
        ash_metric_observe(&shared_seconds, 0.5);
        if (i % 1000 == 0) free(render()); /* reading at the same time is fine */
    }
    return arg;
}

static void test_no_bump_is_lost(void **state)
{
    pthread_t threads[4];
    char *text;
    (void)state;

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, bump, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    text = render();
    assert_non_null(strstr(text, "test_shared_total 40000\n"));
    assert_non_null(strstr(text, "test_shared_seconds_count 40000\n"));
    assert_non_null(strstr(text, "test_shared_seconds_sum 20000\n"));
    assert_non_null(strstr(text, "test_shared_seconds_bucket{le=\"0.1\"} 0\n"));
    assert_null(strstr(text, "test_never_total"));
    free(text);
}

static void test_labels_at_run_time(void **state)
{
    struct ash_str labels = {0};
    struct ash_metric *first, *second;
    char *text;
    (void)state;

    assert_int_equal(ash_metric_add_label(&labels, "model", "a\"b\\c\nd"), 0);
    assert_int_equal(ash_metric_add_label(&labels, "engine", "0"), 0);
    assert_string_equal(labels.data, "model=\"a\\\"b\\\\c\\nd\",engine=\"0\"");
    first = ash_metric_with(&wait_seconds, labels.data);
    second = ash_metric_with(&wait_seconds, "model=\"z\"");
    assert_true(first != second && first != &wait_seconds);
    assert_ptr_equal(ash_metric_with(&wait_seconds, labels.data), first);
    ash_str_fini(&labels);
    ash_metric_observe(second, 0.05);
    ash_metric_observe(first, 2);
    text = render();
    assert_non_null(strstr(text, "# TYPE test_wait_seconds histogram\n"
                                 "test_wait_seconds_bucket{model=\"a\\\"b\\\\c\\nd\",engine=\"0\",le=\"0.005\"} 0\n"));
    assert_non_null(strstr(text, "test_wait_seconds_bucket{model=\"z\",le=\"0.1\"} 1\n"));
    assert_non_null(strstr(text, "test_wait_seconds_sum{model=\"z\"} 0.05\ntest_wait_seconds_count{model=\"z\"} 1\n"));
    free(text);
}

/* Series in the order of their labels, whatever the order in which they were made, under one heading. */
static void test_many_series(void **state)
{
    static const char heading[] = "# TYPE test_many_total counter\n";
    char labels[32], *text;
    const char *line;
    (void)state;

    for (int i = 0; i < 2000; i++) {
        snprintf(labels, sizeof(labels), "n=\"%04d\"", i * 7 % 2000);
        ash_metric_add(ash_metric_with(&many, labels), i * 7 % 2000);
    }
    text = render();
    line = text + (strstr(text, heading) - text) + strlen(heading);
    for (int i = 0; i < 2000; i++) {
        char expected[64];

        snprintf(expected, sizeof(expected), "test_many_total{n=\"%04d\"} %d\n", i, i);
        assert_memory_equal(line, expected, strlen(expected));
        line += strlen(expected);
    }
    free(text);
}

static void wrong_type(void)
{
    ash_metric_set(&never, 1);
}

static void negative_counter(void)
{
    ash_metric_add(&never, -1);
}

static void name_taken(void)
{
    ash_metric_add(&same_name, 1);
}

static void test_misuse_is_caught(void **state)
{
    void (*const bodies[])(void) = {wrong_type, negative_counter, name_taken};
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(bodies); i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO);
            bodies[i]();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_no_bump_is_lost),
        cmocka_unit_test(test_labels_at_run_time),
        cmocka_unit_test(test_many_series),
        cmocka_unit_test(test_misuse_is_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
