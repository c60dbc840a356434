/* Pages of metrics in a folder that all users may write: files of other users hide no process, and speak
 * for none. */
#include "record/metrics_page.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "observe/collect/collector.h"
#include "record/metrics.h"

ASH_GAUGE(step_metric, "ashlar_rank_step", "A step.");

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

/* As many copies of a page as fill the list, under names that come first. */
static void copy_page(const char *dir, long pid, size_t count)
{
    char from[PATH_MAX], to[PATH_MAX];

    snprintf(from, sizeof(from), "%s/%ld-0" ASH_METRICS_PAGE_SUFFIX, dir, (long)getpid());
    for (size_t i = 0; i < count; i++) {
        snprintf(to, sizeof(to), "%s/%ld-%zu" ASH_METRICS_PAGE_SUFFIX, dir, pid, 1000 + i);
        assert_int_equal(link(from, to), 0); /* a link is as locked as the page */
    }
}

static void test_copies_hide_no_process(void **state)
{
    char dir[] = "/tmp/ashlar-pages-XXXXXX", self[64];
    struct ash_host_files source = {.pages = dir};
    struct ash_str text = {0};
    struct ash_err err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ash_metrics_page_publish(dir, "rank=\"0\"", &err), 0);
    ash_metric_set(&step_metric, 7);
    copy_page(dir, 0, 1100);
    copy_page(dir, (long)getpid(), 50);
    assert_int_equal(ash_collect_pages.collect(&source, &text, &err), 0);
    snprintf(self, sizeof(self), "ashlar_process_up{rank=\"0\",pid=\"%ld\"} 1\n", (long)getpid());
    assert_int_equal(count_of(text.data, self), 1);
    assert_int_equal(count_of(text.data, "ashlar_process_up{"), 1);
    assert_int_equal(count_of(text.data, "ashlar_rank_step{rank=\"0\"} 7\n"), 1);
    ash_str_fini(&text);
    ash_metrics_page_withdraw();
    assert_int_equal(ash_dir_remove(dir, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_hide_no_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
