/* The report: the JSON inside the page holds the run's numbers, thinned out without losing the smallest and the
 * largest, and no name can break out of it. */
#include "unit/storage/scratch.h"

#include <math.h>

#include "base/json.h"
#include "train/run/report.h"

static struct ash_err err;

static struct ash_log_record *make_records(size_t count)
{
    struct ash_log_record *records = calloc(count + 1, sizeof(*records));

    assert_non_null(records);
    for (size_t i = 0; i < count; i++)
        records[i] = (struct ash_log_record){.step = i + 1,
                                             .loss = 3.0f / (float)(i + 1),
                                             .grad_norm = 1.0f,
                                             .lr = 1e-3f,
                                             .tokens_per_s = 1000.0f,
                                             .valid_loss = (i + 1) % 10 == 0 ? 2.0f : NAN};
    return records;
}

/* Write a report and read the run that it holds. */
static json_t *write_and_read(const struct ash_report *report, char **page_out)
{
    static const char mark[] = "id=\"frozen\" nonce=\"frozen\">";
    const char *path = scratch_path("report.html");
    json_t *json = NULL, *run;
    char *page = NULL, *begin, *end;
    size_t size;

    assert_int_equal(ash_report_write(path, report, &err), 0);
    assert_int_equal(ash_file_read(path, 1 << 24, &page, &size, &err), 0);
    begin = strstr(page, mark);
    assert_non_null(begin);
    begin += strlen(mark);
    end = strstr(begin, "</script>");
    assert_non_null(end);
    assert_int_equal(ash_json_parse(begin, (size_t)(end - begin), "report", &json, &err), 0);
    run = json_incref(json_array_get(json_object_get(json, "runs"), 0));
    assert_non_null(run);
    json_decref(json);
    if (page_out != NULL)
        *page_out = page;
    else
        free(page);
    return run;
}

static double at(const json_t *json, const char *series, const char *kind, size_t index)
{
    return json_number_value(json_array_get(json_object_get(json_object_get(json, series), kind), index));
}

static void test_a_short_run_is_shown_step_by_step(void **state)
{
    struct ash_log_record *records = make_records(50);
    struct ash_report_fact facts[] = {{"model", "llama"}};
    struct ash_ledger ledger = {.seconds = {2.5}};
    struct ash_report report = {.title = "t",
                                .status = "finished",
                                .total_steps = 60,
                                .facts = facts,
                                .fact_count = 1,
                                .ledger = &ledger,
                                .records = records,
                                .record_count = 50};

    (void)state;
    records[6].skipped = true;
    records[6].loss = NAN;
    records[6].grad_norm = 77.0f;
    json_t *json = write_and_read(&report, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "step")), 50);
    assert_int_equal(json_array_size(json_object_get(json, "ledger")), 1);
    assert_true(json_number_value(json_array_get(json_array_get(json_object_get(json, "ledger"), 0), 1)) == 2.5);
    assert_true(fabs(at(json, "loss", "mean", 2) - 1.0) < 1e-5);
    assert_true(json_is_null(json_array_get(json_object_get(json_object_get(json, "loss"), "mean"), 6)));
    assert_int_equal(json_array_size(json_object_get(json_object_get(json, "loss"), "low")), 0);
    assert_int_equal(json_array_size(json_object_get(json, "valid")), 5);
    json_t *skipped = json_array_get(json_object_get(json, "skipped"), 0);
    assert_int_equal(json_integer_value(json_array_get(skipped, 0)), 7);
    assert_true(json_is_null(json_array_get(skipped, 1)));
    assert_true(json_number_value(json_array_get(skipped, 2)) == 77.0);
    json_decref(json);
    free(records);
}

static void test_a_long_run_keeps_extremes(void **state)
{
    size_t count = 100003;
    struct ash_log_record *records = make_records(count);
    struct ash_report report = {.title = "t",
                                .status = "running",
                                .running = true,
                                .total_steps = count,
                                .records = records,
                                .record_count = count};
    double low = 1e9, high = 0.0;

    (void)state;
    records[70000].grad_norm = 50.0f;
    records[70001].grad_norm = 0.001f;
    json_t *json = write_and_read(&report, NULL);
    size_t buckets = json_array_size(json_object_get(json, "step"));
    assert_in_range(buckets, 400, 1000);
    for (size_t i = 0; i < buckets; i++) {
        low = fmin(low, at(json, "norm", "low", i));
        high = fmax(high, at(json, "norm", "high", i));
    }
    assert_true(high == 50.0 && fabs(low - 0.001) < 1e-6);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "step"), buckets - 1)), count);
    assert_in_range(json_array_size(json_object_get(json, "valid")), 1000, 2001);
    json_decref(json);
    free(records);
}

static void test_an_empty_run_has_a_page(void **state)
{
    struct ash_report report = {.title = "t", .status = "running", .running = true, .total_steps = 5};

    (void)state;
    json_t *json = write_and_read(&report, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "step")), 0);
    json_decref(json);
}

static void test_names_cannot_break_out(void **state)
{
    struct ash_report_fact facts[] = {{"data", "</script><script>alert(1)</script>"}};
    struct ash_report report = {
        .title = "a\"b<!--", .status = "stopped", .total_steps = 5, .facts = facts, .fact_count = 1};
    char *page = NULL;

    (void)state;
    json_t *json = write_and_read(&report, &page);
    assert_null(strstr(page, "alert(1)</script>"));
    assert_null(strstr(page, "b<!--"));
    assert_string_equal(json_string_value(json_object_get(json, "name")), "a\"b<!--");
    json_decref(json);
    free(page);
}

static void test_a_missing_folder_is_an_error(void **state)
{
    struct ash_report report = {.title = "t", .status = "running", .total_steps = 5};

    (void)state;
    assert_true(ash_report_write(scratch_path("nowhere/report.html"), &report, &err) < 0);
    assert_non_null(strstr(err.text, "nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_short_run_is_shown_step_by_step), cmocka_unit_test(test_a_long_run_keeps_extremes),
        cmocka_unit_test(test_an_empty_run_has_a_page),           cmocka_unit_test(test_names_cannot_break_out),
        cmocka_unit_test(test_a_missing_folder_is_an_error),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
