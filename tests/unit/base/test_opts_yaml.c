/* YAML job files: what is accepted, and that every refusal names the file, the line and what to change. */
#include "base/opts.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/str.h"
#include "unit/base/opts_sample.h"

static void accept(struct sample *sample, const char *text)
{
    struct ash_err err = {0};

    if (ash_opts_parse_yaml(sample->opts, text, strlen(text), "job.yaml", &err) < 0) fail_msg("%s", err.text);
}

static void test_nested_and_dotted(void **state)
{
    struct sample *sample = *state;

    accept(sample, "# a job\n"
                   "out: result\n"
                   "metrics-port: 8080\n"
                   "train.seed: 3\n"
                   "train:\n"
                   "  steps: 2k   # with a suffix\n"
                   "  rate: 1e-3\n"
                   "  clip: off\n"
                   "  data: \"a # b\"\n"
                   "  schedule: 'wsd'\n"
                   "  stops:\n"
                   "    - one, two\n"
                   "    - three\n");
    assert_string_equal(sample->command.out, "result");
    assert_int_equal(sample->command.metrics_port, 8080);
    assert_int_equal(sample->train.seed, 3);
    assert_int_equal(sample->train.steps, 2000);
    assert_true(sample->train.rate == 1e-3);
    assert_false(sample->train.clip);
    assert_string_equal(sample->train.data, "a # b");
    assert_int_equal(sample->train.schedule, 2);
    assert_int_equal(sample->train.stops.count, 2);
    assert_string_equal(sample->train.stops.items[0], "one, two"); /* an item of a sequence is taken whole */
    assert_true(ash_opts_is_set(sample->opts, "train.stops"));
}

static void test_other_spellings(void **state)
{
    struct sample *sample = *state;

    accept(sample, "");
    accept(sample, "# nothing but a comment\n");
    accept(sample, "---\n");
    accept(sample, "{train: {steps: 5, stops: [x, 'y, z']}}");
    assert_int_equal(sample->train.steps, 5);
    assert_int_equal(sample->train.stops.count, 2);
    accept(sample, "train:\n"); /* a section with nothing below */
    accept(sample, "train: {stops: [], data: ~}\nout:\n");
    assert_int_equal(sample->train.stops.count, 0);
    assert_null(sample->train.data);
    assert_null(sample->command.out);
    accept(sample, "train: {stops: 'p,q'}");
    assert_int_equal(sample->train.stops.count, 2);
    accept(sample, "\xef\xbb\xbfout: bom\r\n");
    assert_string_equal(sample->command.out, "bom");
    accept(sample, "out: |\n  two\n  lines\n");
    assert_string_equal(sample->command.out, "two\nlines\n");
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *expected;
        int code;
    } bad[] = {
        {"train:\n  stpes: 5\n", "job.yaml:2: there is no setting 'train.stpes'; did you mean 'train.steps'?", -ENOENT},
        {"\ntrian:\n  steps: 5\n", "job.yaml:2: there is no section 'trian'; did you mean 'train'?", -ENOENT},
        {"steps: 5\n", "job.yaml:1: there is no setting 'steps'; did you mean 'train.steps'?", -ENOENT},
        {"train:\n  steps: many\n", "job.yaml:2: 'train.steps' must be a whole number", -EINVAL},
        {"train:\n  steps: 0\n", "job.yaml:2: 'train.steps' is 0", -ERANGE},
        {"train:\n  steps:\n", "job.yaml:2: 'train.steps' has no value", -EINVAL},
        {"train:\n  rate: .nan\n", "job.yaml:2: 'train.rate' must be a number", -EINVAL},
        {"train:\n\tsteps: 5\n", "job.yaml:2: not valid YAML", -EINVAL},
        {"train:\n\tsteps: 5\n", "spaces, not tabs", -EINVAL},
        {"out: a: b\n", "job.yaml:1: not valid YAML", -EINVAL},
        {"train:\n  stops: [1, 2\n", "not valid YAML", -EINVAL},
        {"out: \"abc\n", "not valid YAML", -EINVAL},
        {"out: &x a\n", "job.yaml:1: anchors", -EINVAL},
        {"out: *x\n", "job.yaml:1: aliases", -EINVAL},
        {"train: &t\n  steps: 1\n", "anchors", -EINVAL},
        {"out: !!str 5\n", "tags", -EINVAL},
        {"train:\n  steps: 1\n  steps: 2\n", "job.yaml:3: 'train.steps' is given twice (first on line 2)", -EINVAL},
        {"train.steps: 1\ntrain:\n  steps: 2\n", "job.yaml:3: 'train.steps' is given twice (first on line 1)", -EINVAL},
        {"train:\n  steps: 1\ntrain:\n  seed: 2\n", "job.yaml:3: the section 'train' is given twice", -EINVAL},
        {"train: 5\n", "job.yaml:1: 'train' is a section", -EINVAL},
        {"train:\n  steps: {a: 1}\n", "'train.steps' takes one value, not a map", -EINVAL},
        {"train:\n  stops: {a: 1}\n", "'train.stops' takes a list, not a map", -EINVAL},
        {"train:\n  steps: [1]\n", "'train.steps' takes one value, not a list", -EINVAL},
        {"train:\n  stops: [[1]]\n", "a list holds plain values", -EINVAL},
        {"- a\n- b\n", "job.yaml:1: a job file is a map", -EINVAL},
        {"hello\n", "a job file is a map", -EINVAL},
        {"out: a\n---\nout: b\n", "job.yaml:2: a second document", -EINVAL},
        {"? [a]\n: b\n", "a key must be a plain word", -EINVAL},
        {"? {a: b}\n: b\n", "a key must be a plain word", -EINVAL},
        {"'': b\n", "a key must be a plain word", -EINVAL},
        {"out: \"a\\0b\"\n", "NUL", -EINVAL},
        {"\"o\\0\": b\n", "a key must be a plain word", -EINVAL},
        {"a: {b: {c: {d: {e: {f: {g: {h: {i: {j: 1}}}}}}}}}\n", "there is no section 'a'", -ENOENT},
        {"out: ok\nseed: \xff\n", "job.yaml:2: byte 0xff is not valid UTF-8", -EILSEQ},
        {"out: \x01\n", "not valid YAML", -EINVAL},
    };
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(bad); i++) {
        struct sample sample = {0};
        struct ash_err err = {0};
        assert_int_equal(sample_open(&sample, NULL), 0);
        assert_int_equal(ash_opts_parse_yaml(sample.opts, bad[i].text, strlen(bad[i].text), "job.yaml", &err),
                         bad[i].code);
        if (strstr(err.text, bad[i].expected) == NULL) fail_msg("'%s' is not in '%s'", bad[i].expected, err.text);
        assert_int_equal(ash_opts_parse_yaml(sample.opts, bad[i].text, strlen(bad[i].text), "job.yaml", NULL),
                         bad[i].code);
        ash_opts_close(sample.opts);
    }
}

/* Sections may have dots; then maps may nest, up to a limit. */
static void test_depth(void **state)
{
    static const struct ash_opt opt[] = {{.name = "x", .type = ASH_OPT_INT, .help = "a number"}};
    static const struct ash_opt_table table = {.section = "a.b.c.d.e.f.g.h.i", .opts = opt, .count = 1};
    int64_t value = 0;
    const struct ash_opt_binding binding = {&table, &value};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *good = "a.b:\n  c: {d.e: {f.g.h: {i: {x: 5}}}}\n",
               *deep = "a: {b: {c: {d: {e: {f: {g: {h: {i: {x: 6}}}}}}}}}\n";
    (void)state;

    assert_int_equal(ash_opts_open(&binding, 1, &opts, &err), 0);
    assert_int_equal(ash_opts_parse_yaml(opts, good, strlen(good), "deep.yaml", &err), 0);
    assert_int_equal(value, 5);
    assert_int_equal(ash_opts_parse_yaml(opts, deep, strlen(deep), "deep.yaml", &err), -EINVAL);
    assert_non_null(strstr(err.text, "nested too deep"));
    ash_opts_close(opts);
}

static void test_size_is_bounded(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};
    size_t size_bytes = ((size_t)1 << 20) + 1;
    char *text = malloc(size_bytes);

    assert_non_null(text);
    memset(text, '#', size_bytes);
    assert_int_equal(ash_opts_parse_yaml(sample->opts, text, size_bytes, "job.yaml", &err), -EFBIG);
    assert_int_equal(ash_opts_parse_yaml(sample->opts, text, size_bytes - 1, "job.yaml", &err), 0);
    memset(text, '[', size_bytes);
    assert_int_equal(ash_opts_parse_yaml(sample->opts, text, size_bytes - 1, "job.yaml", &err), -EINVAL);
    free(text);
}

static void test_load(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};
    char path[] = "/tmp/ashlar-opts-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "train: {steps: 9}\n", 18), 18);
    close(fd);
    assert_int_equal(ash_opts_load_yaml(sample->opts, path, &err), 0);
    assert_int_equal(sample->train.steps, 9);
    unlink(path);
    assert_int_equal(ash_opts_load_yaml(sample->opts, path, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
}

/* A later source replaces what a job file said; lists too. */
static void test_sources_override(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};
    char *argv[] = {(char[]){"train.stops=cli"}, (char[]){"train.steps=3"}};
    const char *positional[1];
    size_t count = 0;
    bool help = false;

    accept(sample, "train: {steps: 1, stops: [x, y]}");
    accept(sample, "train: {steps: 2, stops: [z]}");
    assert_int_equal(sample->train.steps, 2);
    assert_int_equal(sample->train.stops.count, 1);
    assert_int_equal(ash_opts_parse_args(sample->opts, 2, argv, positional, 1, &count, &help, &err), 0);
    assert_int_equal(sample->train.steps, 3);
    assert_int_equal(sample->train.stops.count, 1);
    assert_string_equal(sample->train.stops.items[0], "cli");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nested_and_dotted), TEST(test_other_spellings),
        TEST(test_refused),           TEST(test_depth),
        TEST(test_size_is_bounded),   TEST(test_load),
        TEST(test_sources_override),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
