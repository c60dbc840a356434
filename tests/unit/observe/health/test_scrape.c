/* Prometheus text: what exporters write, what our own writes, and everything that is no sample. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "observe/health/scrape.h"
#include "record/metrics.h"

static struct ash_scrape *parse(const char *text)
{
    struct ash_scrape *scrape = NULL;
    struct ash_err err = {0};

    if (ash_scrape_parse(text, strlen(text), "t.prom", &scrape, &err) < 0) fail_msg("%s", err.text);
    return scrape;
}

static void test_samples(void **state)
{
    struct ash_scrape *scrape = parse("# HELP a text\n# TYPE a gauge\n\n"
                                      "a 1\r\n"
                                      "a:b_c{} -2.5e3 1700000000000\n"
                                      "DCGM_FI_DEV_GPU_TEMP{gpu=\"3\", Hostname=\"n\\\"1\\\\\\n\",} 41\n"
                                      "  h_bucket { le = \"+Inf\" } +Inf # {trace=\"x\"} 1\n"
                                      "nan{a=\"}, b=\"} NaN\n# EOF");
    const struct ash_scrape_sample *sample = ash_scrape_at(scrape, 2);

    (void)state;
    assert_int_equal(ash_scrape_count(scrape), 5);
    assert_int_equal(ash_scrape_skipped(scrape), 0);
    assert_string_equal(ash_scrape_at(scrape, 0)->name, "a");
    assert_true(ash_scrape_at(scrape, 0)->value == 1);
    assert_string_equal(ash_scrape_at(scrape, 1)->name, "a:b_c");
    assert_true(ash_scrape_at(scrape, 1)->value == -2500);
    assert_int_equal(sample->label_count, 2);
    assert_string_equal(ash_scrape_label_of(sample, "gpu"), "3");
    assert_string_equal(ash_scrape_label_of(sample, "Hostname"), "n\"1\\\n");
    assert_string_equal(ash_scrape_label_of(sample, "none"), "");
    assert_true(isinf(ash_scrape_at(scrape, 3)->value));
    assert_string_equal(ash_scrape_label_of(ash_scrape_at(scrape, 4), "a"), "}, b=");
    assert_true(isnan(ash_scrape_at(scrape, 4)->value));
    ash_scrape_close(scrape);
}

/* Lines that are no samples are counted, and take nothing of their neighbours with them. */
static void test_bad_lines(void **state)
{
    static const char *const lines[] = {"1a 1",        "a",          "a ",       "a{b=\"c\" 1",  "a{b=c} 1", "a{b} 1",
                                        "a{=\"c\"} 1", "a{b=\"c} 1", "a{b=\"\\", "a 1x",         "<html>",   "a{,} 1",
                                        "a 0x",        "a{b=\"c\"}", "a 1 x",    "a{b=\"c\"d} 1"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(lines); i++) {
        struct ash_scrape *scrape;

        snprintf(text, sizeof(text), "x{l=\"1\"} 1\n%s\ny{l=\"2\"} 2", lines[i]);
        scrape = parse(text);
        if (ash_scrape_count(scrape) != 2 || ash_scrape_skipped(scrape) != 1) fail_msg("taken: %s", lines[i]);
        assert_string_equal(ash_scrape_label_of(ash_scrape_at(scrape, 0), "l"), "1");
        assert_string_equal(ash_scrape_label_of(ash_scrape_at(scrape, 1), "l"), "2");
        ash_scrape_close(scrape);
    }
}

static void test_no_scrape(void **state)
{
    static const char *const texts[] = {"", "\n\n", "# HELP a b\n", "<html>404</html>\n"};
    struct ash_scrape *scrape = NULL;
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        assert_true(ash_scrape_parse(texts[i], strlen(texts[i]), "t.prom", &scrape, &err) < 0);
        assert_non_null(strstr(err.text, "t.prom"));
        assert_null(scrape);
    }
    assert_true(ash_scrape_load("/no/such/file", &scrape, &err) < 0);
    assert_non_null(strstr(err.text, "/no/such/file"));
    ash_scrape_close(NULL);
}

static void test_many_labels(void **state)
{
    char text[4096] = "a{", *end = text + 2;
    struct ash_scrape *scrape;

    (void)state;
    for (int i = 0; i <= ASH_SCRAPE_LABELS_MAX; i++)
        end += snprintf(end, 64, "l%d=\"%d\",", i, i);
    snprintf(end, 64, "} 1\nb 2\n");
    scrape = parse(text);
    assert_int_equal(ash_scrape_skipped(scrape), 1);
    assert_string_equal(ash_scrape_at(scrape, 0)->name, "b");
    ash_scrape_close(scrape);
}

/* What ashlar train --metrics-port answers is read without a word left over. */
static void test_own_exporter(void **state)
{
    static const double bounds[] = {0.1, 1};
    static struct ash_metric counter = {
        .name = "t_total", .help = "a \\ b\nc", .type = ASH_METRIC_COUNTER, .labels = "path=\"shm\""};
    ASH_GAUGE(gauge, "t_gauge", "g");
    ASH_HISTOGRAM(histogram, "t_seconds", "h", bounds);
    struct ash_scrape *scrape;
    char *text = NULL;
    size_t bytes = 0, seen = 0;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    ash_metric_add(&counter, 3);
    ash_metric_set(&gauge, 0.125);
    ash_metric_observe(&histogram, 0.5);
    ash_metrics_write(out);
    fclose(out);
    scrape = parse(text);
    assert_int_equal(ash_scrape_skipped(scrape), 0);
    for (size_t i = 0; i < ash_scrape_count(scrape); i++) {
        const struct ash_scrape_sample *sample = ash_scrape_at(scrape, i);

        if (strcmp(sample->name, "t_total") == 0)
            seen += sample->value == 3 && strcmp(ash_scrape_label_of(sample, "path"), "shm") == 0;
        seen += strcmp(sample->name, "t_gauge") == 0 && sample->value == 0.125;
        seen += strcmp(sample->name, "t_seconds_sum") == 0 && sample->value == 0.5;
        seen += strcmp(sample->name, "t_seconds_count") == 0 && sample->value == 1;
        seen += strcmp(sample->name, "t_seconds_bucket") == 0 && strcmp(ash_scrape_label_of(sample, "le"), "+Inf") == 0;
    }
    assert_int_equal(seen, 5);
    ash_scrape_close(scrape);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),     cmocka_unit_test(test_bad_lines),    cmocka_unit_test(test_no_scrape),
        cmocka_unit_test(test_many_labels), cmocka_unit_test(test_own_exporter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
