/* metrics_page: instruments of another process, alive, killed in the middle, and from damaged files. */
#include "record/metrics_page.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"

static const double bounds[] = {1, 10};

ASH_COUNTER(early, "test_early_total", "Bumped before the page was there.");
ASH_COUNTER(late, "test_late_total", "Bumped afterwards.");
ASH_GAUGE(by_part, "test_part_seconds", "Has labels.");
ASH_HISTOGRAM(sizes, "test_sizes", "Sizes.", bounds);

static char dir[] = "/tmp/ashlar-page-XXXXXX";

/* A process that bumps and then waits to be killed. */
static void be_rank(int ready_fd)
{
    struct ash_err err = {0};

    ash_metric_add(&early, 2);
    if (ash_metrics_page_publish(dir, "job=\"7\",rank=\"3\"", &err) < 0) _exit(1);
    ash_metric_add(&early, 1);
    ash_metric_add(&late, 5);
    ash_metric_set(ash_metric_with(&by_part, "part=\"data\""), 0.25);
    ash_metric_observe(&sizes, 0.5);
    ash_metric_observe(&sizes, 100);
    if (write(ready_fd, "x", 1) != 1) _exit(1);
    for (;;)
        pause();
}

static void find_page(char *path, size_t path_bytes)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;

    assert_non_null(folder);
    path[0] = '\0';
    while ((entry = readdir(folder)) != NULL)
        if (strstr(entry->d_name, ASH_METRICS_PAGE_SUFFIX) != NULL)
            snprintf(path, path_bytes, "%s/%s", dir, entry->d_name);
    closedir(folder);
    assert_string_not_equal(path, "");
}

static void check_page(const struct ash_metrics_page *page)
{
    struct ash_metrics_page_metric metric;
    size_t cursor = 0, count = 0;

    assert_string_equal(page->labels, "job=\"7\",rank=\"3\"");
    while (ash_metrics_page_next(page, &cursor, &metric) == 1) {
        count++;
        if (strncmp(metric.name, "test_early_total", metric.name_bytes) == 0) assert_true(metric.value == 3);
        if (strncmp(metric.name, "test_late_total", metric.name_bytes) == 0) assert_true(metric.value == 5);
        if (strncmp(metric.name, "test_part_seconds", metric.name_bytes) == 0) {
            assert_true(metric.value == 0.25);
            assert_memory_equal(metric.labels, "part=\"data\"", metric.labels_bytes);
        }
        if (strncmp(metric.name, "test_sizes", metric.name_bytes) == 0) {
            assert_true(metric.value == 100.5 && metric.bound_count == 2 && metric.bounds[1] == 10);
            assert_true(metric.buckets[0] == 1 && metric.buckets[1] == 0 && metric.buckets[2] == 1);
        }
    }
    assert_int_equal(count, 4);
}

static void test_page_outlives_a_killed_process(void **state)
{
    char path[PATH_MAX], byte;
    int ready[2], status;
    struct ash_metrics_page page;
    pid_t child;
    (void)state;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) be_rank(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    find_page(path, sizeof(path));
    assert_int_equal(ash_metrics_page_open(path, &page, NULL), 0);
    assert_true(page.is_alive && page.pid == (uint32_t)child);
    check_page(&page);
    ash_metrics_page_close(&page);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_int_equal(ash_metrics_page_open(path, &page, NULL), 0);
    assert_false(page.is_alive);
    check_page(&page);
    ash_metrics_page_close(&page);
    close(ready[0]), close(ready[1]);
}

/* Every byte of the used part is set to every of some values; nothing is read beyond it. */
static void test_damaged_pages(void **state)
{
    char path[PATH_MAX], *data = NULL;
    size_t size_bytes = 0;
    struct ash_metrics_page page;
    struct ash_metrics_page_metric metric;
    (void)state;

    find_page(path, sizeof(path));
    assert_int_equal(ash_file_read(path, ASH_METRICS_PAGE_BYTES, &data, &size_bytes, NULL), 0);
    for (size_t i = 0; i < 1400; i++) {
        static const unsigned char values[] = {0, 1, 0x7f, 0xff};
        char kept = data[i];

        for (size_t v = 0; v < sizeof(values); v++) {
            size_t cursor = 0, count = 0;

            data[i] = (char)values[v];
            if (ash_metrics_page_view(data, size_bytes, &page, NULL) < 0) continue;
            while (ash_metrics_page_next(&page, &cursor, &metric) == 1)
                count++;
            assert_true(count <= size_bytes / 16);
        }
        data[i] = kept;
    }
    free(data);
    assert_int_equal(truncate(path, 700), 0);
    assert_int_equal(ash_metrics_page_open(path, &page, NULL), -EINVAL);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ash_metrics_page_open(path, &page, NULL), -EINVAL);
    unlink(path);
}

static void test_withdrawn_page_is_gone(void **state)
{
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_metrics_page_publish(dir, "", &err), 0);
    assert_int_equal(ash_metrics_page_publish(dir, "", &err), -EEXIST);
    ash_metric_add(&late, 1);
    ash_metrics_page_withdraw();
    ash_metric_add(&late, 1); /* its memory is still there */
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_outlives_a_killed_process),
        cmocka_unit_test(test_damaged_pages),
        cmocka_unit_test(test_withdrawn_page_is_gone),
    };

    if (mkdtemp(dir) == NULL) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
