/* The section `job`: names, durations, what must fit together; and that other commands pass over it. */
#include "orchestrate/job/spec.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"

struct read {
    struct ash_spec spec;
    struct ash_opts *opts;
    char name[ASH_SPEC_NAME_MAX + 1];
    struct ash_err err;
};

static int read_spec(struct read *read, const char *yaml, const char *file)
{
    struct ash_opt_binding bindings[ASH_SPEC_SECTIONS];
    int rc;

    ash_spec_bind(&read->spec, bindings);
    assert_int_equal(ash_opts_open(bindings, ASH_SPEC_SECTIONS, &read->opts, &read->err), 0);
    ash_opts_pass_others(read->opts);
    rc = ash_opts_parse_yaml(read->opts, yaml, strlen(yaml), "job.yaml", &read->err);
    return rc < 0 ? rc : ash_spec_resolve(&read->spec, file, read->name, &read->err);
}

static void test_whole(void **state)
{
    struct read read = {0};
    (void)state;

    assert_int_equal(
        read_spec(&read,
                  "job: {nodes: 8, min_nodes: 4, gpus: 8, spares: 1, time: 1d12h, notice: 90s, class: training,\n"
                  "      topology: {required: block, preferred: rack, group: 4}, env: {A: 1, B: 'x=y z'}}\n"
                  "model: {anything: [goes, {here: too}]}\n"
                  "train: {steps: 3}\n",
                  "runs/My Job_2.yaml"),
        0);
    assert_string_equal(read.spec.name, "my-job-2");
    assert_int_equal(read.spec.procs, 8);
    assert_int_equal(ash_spec_all_nodes(&read.spec), 9);
    assert_true(read.spec.time_s == 36 * 3600.0 && read.spec.notice_s == 90.0);
    assert_string_equal(read.spec.topology.required, "block");
    assert_int_equal(read.spec.topology.group, 4);
    assert_int_equal(read.spec.env.count, 2);
    assert_string_equal(read.spec.env.items[0], "A=1");
    assert_string_equal(read.spec.env.items[1], "B=x=y z");
    ash_opts_close(read.opts);
}

static void test_refused(void **state)
{
    static const struct {
        const char *yaml, *word;
    } cases[] = {{"job: {min_nodes: 3}", "job.min_nodes"},
                 {"job: {name: Upper}", "job.name"},
                 {"job: {name: -x}", "job.name"},
                 {"job: {time: soon}", "job.time"},
                 {"job: {time: 1m, notice: 2m}", "job.notice"},
                 {"job: {nodes: 6, topology: {preferred: rack, group: 4}}", "multiple"},
                 {"job: {topology: {group: 1}}", "preferred"},
                 {"job: {env: [x]}", "NAME=VALUE"},
                 {"job: {env: {A: [1]}}", "plain values"},
                 {"job: {nodez: 1}", "nodes"}};
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct read read = {0};

        assert_true(read_spec(&read, cases[i].yaml, "job.yaml") < 0);
        if (strstr(read.err.text, cases[i].word) == NULL) fail_msg("%s: %s", cases[i].yaml, read.err.text);
        ash_opts_close(read.opts);
    }
}

static void test_durations(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"90", 90},       {"90s", 90},        {"30m", 1800},   {"24h", 86400},    {"1d12h", 129600},
                 {"500ms", 0.5},   {"1h30m5s", 5405},  {"30:00", 1800}, {"1:00:00", 3600}, {"2-00:00:00", 172800},
                 {"1-12", 129600}, {"1-12:30", 131400}};
    static const char *const wrong[] = {"",  "h", "1x", "1h2", "-5s", "1:2:3:4", "5 s", "1e3", "99999999999999s",
                                        ":", "1-"};
    double seconds;
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        assert_int_equal(ash_clock_parse(cases[i].text, &seconds), 0);
        if (seconds != cases[i].seconds) fail_msg("%s is %g", cases[i].text, seconds);
    }
    for (size_t i = 0; i < ASH_COUNT(wrong); i++)
        if (ash_clock_parse(wrong[i], &seconds) == 0) fail_msg("'%s' is taken for %g", wrong[i], seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_durations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
