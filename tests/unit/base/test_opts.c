/* opts: defaults, every type with its limits, unknown keys, the environment, command lines, printing. */
#include "base/opts.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "unit/base/opts_sample.h"

static void check_refused(struct sample *sample, const char *key, const char *value, int code, const char *expected)
{
    struct ash_err err = {0};

    assert_int_equal(ash_opts_set(sample->opts, key, value, "test", &err), code);
    assert_int_equal(err.code, code);
    if (strstr(err.text, expected) == NULL) fail_msg("'%s' is not in '%s'", expected, err.text);
}

static void set(struct sample *sample, const char *key, const char *value)
{
    struct ash_err err = {0};

    if (ash_opts_set(sample->opts, key, value, "test", &err) < 0) fail_msg("%s", err.text);
}

static void test_defaults(void **state)
{
    struct sample *sample = *state;

    assert_null(sample->command.out);
    assert_true(sample->command.stream);
    assert_false(sample->command.resume);
    assert_int_equal(sample->train.steps, 1000);
    assert_int_equal(sample->train.seed, 0);
    assert_int_equal(sample->train.tokens, 4096);
    assert_true(sample->train.rate == 3e-4);
    assert_string_equal(sample->train.data, "data");
    assert_int_equal(sample->train.schedule, 1);
    assert_int_equal(sample->train.stops.count, 2);
    assert_string_equal(sample->train.stops.items[1], "b");
    assert_false(ash_opts_is_set(sample->opts, "train.steps"));
    set(sample, "train.steps", "5");
    assert_true(ash_opts_is_set(sample->opts, "train.steps"));
    assert_false(ash_opts_is_set(sample->opts, "train.nothing"));
}

static void test_ints(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-7", -7},
                {"+7", 7},
                {"2k", 2000},
                {"3M", 3000000},
                {"4g", 4000000000},
                {"2ki", 2048},
                {"3Mi", 3 << 20},
                {"4Gi", (int64_t)4 << 30},
                {"-1k", -1000},
                {"1e9", 1000000000},
                {"1b", 1000000000},
                {"1.5T", 1500000000000},
                {"0.5g", 500000000},
                {"1_000_000", 1000000},
                {"9223372036854775807", INT64_MAX},
                {"007", 7}};
    static const char *const bad[] = {"",    " 1",   "1 ",  "1e-1", "1.5", "0x10", "k",
                                      "1kk", "1kib", "one", "--1",  "+-1", "1,000"};
    struct sample *sample = *state;

    for (size_t i = 0; i < ASH_COUNT(good); i++) {
        set(sample, "train.seed", good[i].text);
        assert_int_equal(sample->train.seed, good[i].value);
    }
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        check_refused(sample, "train.seed", bad[i], -EINVAL, "test: 'train.seed' must be a whole number");
    check_refused(sample, "train.seed", "9223372036854775808", -ERANGE, "too large");
    check_refused(sample, "train.seed", "9223372036854775g", -ERANGE, "too large");
    assert_int_equal(sample->train.seed, 7); /* a refused value changes nothing */
    check_refused(sample, "train.steps", "0", -ERANGE, "'train.steps' is 0, but it must be from 1 to 1000000000");
    check_refused(sample, "train.steps", "2g", -ERANGE, "must be from 1 to 1000000000");
    check_refused(sample, "train.tokens", "0", -ERANGE, "must be at least 1");
    set(sample, "train.steps", "1g");
}

static void test_doubles(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "nan", "-NaN", "1,5", "one", "1e", "k", "1kk", "1x"};
    struct sample *sample = *state;

    set(sample, "train.rate", "1e-3");
    assert_true(sample->train.rate == 1e-3);
    set(sample, "train.rate", "0.002k");
    assert_true(sample->train.rate == 2.0);
    set(sample, "train.rate", "3");
    assert_true(sample->train.rate == 3.0);
    for (size_t i = 0; i < ASH_COUNT(bad); i++)
        check_refused(sample, "train.rate", bad[i], -EINVAL, "must be a number");
    check_refused(sample, "train.rate", "inf", -ERANGE, "finite");
    check_refused(sample, "train.rate", "1e999", -ERANGE, "finite");
    check_refused(sample, "train.rate", "-0.5", -ERANGE, "from 0 to 10");
    check_refused(sample, "train.rate", "-1k", -ERANGE, "from 0 to 10");
    check_refused(sample, "train.rate", "x", -EINVAL, "must be a number, not 'x'"); /* no suffixes up to 10 */
    check_refused(sample, "train.seed", "x", -EINVAL, "2_000");
    check_refused(sample, "train.decay", "1.5", -ERANGE, "at most 1");
    assert_true(sample->train.rate == 3.0);
}

static void test_bools_and_choices(void **state)
{
    static const char *const on[] = {"true", "yes", "on", "1", "TRUE", "Yes"}, *const off[] = {"false", "no", "off",
                                                                                               "0", "No"};
    struct sample *sample = *state;

    for (size_t i = 0; i < ASH_COUNT(on); i++) {
        sample->train.clip = false;
        set(sample, "train.clip", on[i]);
        assert_true(sample->train.clip);
    }
    for (size_t i = 0; i < ASH_COUNT(off); i++) {
        sample->train.clip = true;
        set(sample, "train.clip", off[i]);
        assert_false(sample->train.clip);
    }
    check_refused(sample, "train.clip", "maybe", -EINVAL, "true or false");
    set(sample, "train.schedule", "wsd");
    assert_int_equal(sample->train.schedule, 2);
    check_refused(sample, "train.schedule", "cosin", -EINVAL, "one of constant, cosine, wsd, not 'cosin'");
}

static void test_strings_and_lists(void **state)
{
    struct sample *sample = *state;
    char text[] = "temporary";

    set(sample, "out", text);
    memset(text, 'x', sizeof(text) - 1); /* the value was copied */
    assert_string_equal(sample->command.out, "temporary");
    set(sample, "out", "");
    assert_string_equal(sample->command.out, "");
    check_refused(sample, "out", "\xff", -EILSEQ, "UTF-8");
    set(sample, "train.stops", "x,y,,z");
    assert_int_equal(sample->train.stops.count, 3);
    assert_string_equal(sample->train.stops.items[2], "z");
    set(sample, "train.stops", "a\\,b,\\d{1\\,3},\\"); /* a comma of an item, and other backslashes */
    assert_int_equal(sample->train.stops.count, 3);
    assert_string_equal(sample->train.stops.items[0], "a,b");
    assert_string_equal(sample->train.stops.items[1], "\\d{1,3}");
    assert_string_equal(sample->train.stops.items[2], "\\");
    set(sample, "train.stops", "w"); /* another source starts anew */
    assert_int_equal(sample->train.stops.count, 1);
    set(sample, "train.stops", "");
    assert_int_equal(sample->train.stops.count, 0);
}

static void test_unknown_keys_name_the_nearest(void **state)
{
    struct sample *sample = *state;

    check_refused(sample, "train.stpes", "5", -ENOENT,
                  "there is no setting 'train.stpes'; did you mean 'train.steps'?");
    check_refused(sample, "steps", "5", -ENOENT, "did you mean 'train.steps'?");
    check_refused(sample, "tran.schedul", "5", -ENOENT, "did you mean 'train.schedule'?");
    check_refused(sample, "ouut", "5", -ENOENT, "did you mean 'out'?");
    check_refused(sample, "", "5", -ENOENT, "there is no setting ''");
    check_refused(sample, "architectures", "5", -ENOENT, "there is no setting 'architectures'");
    set(sample, "metrics-port", "1"); /* a dash is an underscore */
    assert_int_equal(sample->command.metrics_port, 1);
}

static void test_very_long_keys(void **state)
{
    struct sample *sample = *state;
    char key[5000];

    memset(key, 'a', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    check_refused(sample, key, "1", -ENOENT, "there is no setting");
}

static void test_env(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    setenv("ASHLAR_TRAIN_STEPS", "77", 1);
    setenv("ASHLAR_METRICS_PORT", "99", 1);
    setenv("ASHLAR_TRAIN_DATA", "", 1);
    setenv("ASHLAR_TRAIN_STOPS", "p,q", 1);
    assert_int_equal(ash_opts_set_env(sample->opts, &err), 0);
    assert_int_equal(sample->train.steps, 77);
    assert_int_equal(sample->command.metrics_port, 99);
    assert_string_equal(sample->train.data, "data");
    assert_int_equal(sample->train.stops.count, 2);
    setenv("ASHLAR_TRAIN_STEPS", "many", 1);
    assert_int_equal(ash_opts_set_env(sample->opts, &err), -EINVAL);
    assert_non_null(strstr(err.text, "ASHLAR_TRAIN_STEPS: 'train.steps'"));
    unsetenv("ASHLAR_TRAIN_STEPS");
    unsetenv("ASHLAR_METRICS_PORT");
    unsetenv("ASHLAR_TRAIN_DATA");
    unsetenv("ASHLAR_TRAIN_STOPS");
}

/* Parse a line of words; positionals go to a static array. */
static const char *positionals[2];
static size_t positional_count;
static bool help;

static int parse(struct sample *sample, struct ash_err *err, ...)
{
    char *argv[16];
    int argc = 0;
    va_list args;

    va_start(args, err);
    for (char *word = va_arg(args, char *); word != NULL; word = va_arg(args, char *))
        argv[argc++] = word;
    va_end(args);
    return ash_opts_parse_args(sample->opts, argc, argv, positionals, 2, &positional_count, &help, err);
}

static void test_args(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    assert_int_equal(parse(sample, &err, "job.yaml", "--out", "dir", "--resume", "--no-stream", "train.steps=5",
                           "--metrics-port=80", "--train.rate", "0.5", "-", (char *)NULL),
                     0);
    assert_int_equal(positional_count, 2);
    assert_string_equal(positionals[0], "job.yaml");
    assert_string_equal(positionals[1], "-");
    assert_false(help);
    assert_string_equal(sample->command.out, "dir");
    assert_true(sample->command.resume);
    assert_false(sample->command.stream);
    assert_int_equal(sample->train.steps, 5);
    assert_int_equal(sample->command.metrics_port, 80);
    assert_true(sample->train.rate == 0.5);
    assert_int_equal(parse(sample, &err, "--resume=no", "--train.decay", "-2", "--out=a=b", (char *)NULL), 0);
    assert_false(sample->command.resume);
    assert_true(sample->train.decay == -2);
    assert_string_equal(sample->command.out, "a=b");
    assert_int_equal(parse(sample, &err, (char *)NULL), 0);
    assert_int_equal(positional_count, 0);
}

static void test_args_positionals(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    assert_int_equal(parse(sample, &err, "--", "--out", "train.steps=5", (char *)NULL), 0);
    assert_string_equal(positionals[0], "--out");
    assert_string_equal(positionals[1], "train.steps=5");
    assert_int_equal(sample->train.steps, 1000);
    assert_int_equal(parse(sample, &err, "dir/a=b", "1+1=2", (char *)NULL), 0); /* neither looks like a setting */
    assert_int_equal(positional_count, 2);
    positional_count = 7;
    assert_int_equal(parse(sample, &err, "a", "b", "c", (char *)NULL), -E2BIG);
    assert_non_null(strstr(err.text, "'c' is one word too many"));
    assert_int_equal(positional_count, 7);
}

static void test_args_help(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    assert_int_equal(parse(sample, &err, "-h", "--nonsense", (char *)NULL), 0);
    assert_true(help);
    assert_int_equal(parse(sample, &err, "x", "--help", (char *)NULL), 0);
    assert_true(help);
    assert_int_equal(parse(sample, &err, "x", (char *)NULL), 0);
    assert_false(help);
}

/* Whatever a struct held before, a setting without a default is zero. */
static void test_no_default_is_zero(void **state)
{
    struct {
        int64_t whole;
        double number;
        bool flag;
        const char *text;
        int choice;
        struct ash_opt_list list;
    } object;
    const struct ash_opt list[] = {
        {.name = "whole", .type = ASH_OPT_INT, .offset = offsetof(__typeof__(object), whole), .help = "x"},
        {.name = "number", .type = ASH_OPT_DOUBLE, .offset = offsetof(__typeof__(object), number), .help = "x"},
        {.name = "flag", .type = ASH_OPT_BOOL, .offset = offsetof(__typeof__(object), flag), .help = "x"},
        {.name = "text", .type = ASH_OPT_STRING, .offset = offsetof(__typeof__(object), text), .help = "x"},
        {.name = "choice",
         .type = ASH_OPT_CHOICE,
         .offset = offsetof(__typeof__(object), choice),
         .choices = sample_schedules,
         .help = "x"},
        {.name = "list", .type = ASH_OPT_LIST, .offset = offsetof(__typeof__(object), list), .help = "x"},
    };
    const struct ash_opt_table table = {
        .section = "", .help = "flags", .opts = list, .count = sizeof(list) / sizeof(list[0])};
    const struct ash_opt_binding binding = {&table, &object};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};

    (void)state;
    memset(&object, 0xa5, sizeof(object));
    assert_int_equal(ash_opts_open(&binding, 1, &opts, &err), 0);
    assert_int_equal(object.whole, 0);
    assert_true(object.number == 0.0);
    assert_false(object.flag);
    assert_null(object.text);
    assert_int_equal(object.choice, 0);
    assert_int_equal(object.list.count, 0);
    ash_opts_close(opts);
}

/* Stop strings and the like: a comma is part of the text. */
static void test_args_texts(void **state)
{
    struct ash_opt_list stops;
    const struct ash_opt opt = {.name = "stop", .type = ASH_OPT_TEXTS, .help = "text"};
    const struct ash_opt_table table = {.section = "", .help = "flags", .opts = &opt, .count = 1};
    const struct ash_opt_binding binding = {&table, &stops};
    char *argv[] = {(char *)"--stop", (char *)"a,b", (char *)"--stop=", (char *)"stop=, "};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *none[1];
    size_t count = 0;
    bool asked = false;

    (void)state;
    assert_int_equal(ash_opts_open(&binding, 1, &opts, &err), 0);
    assert_int_equal(stops.count, 0);
    assert_int_equal(ash_opts_parse_args(opts, 4, argv, none, 0, &count, &asked, &err), 0);
    assert_int_equal(stops.count, 3);
    assert_string_equal(stops.items[0], "a,b");
    assert_string_equal(stops.items[1], "");
    assert_string_equal(stops.items[2], ", ");
    ash_opts_close(opts);
}

static void test_args_lists(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    assert_int_equal(parse(sample, &err, "--train.stops", "x", "--train.stops=y,z", "train.stops=w", (char *)NULL), 0);
    assert_int_equal(sample->train.stops.count, 4); /* the default is gone, repeats append */
    assert_string_equal(sample->train.stops.items[0], "x");
    assert_string_equal(sample->train.stops.items[3], "w");
}

static void test_args_errors(void **state)
{
    struct sample *sample = *state;
    struct ash_err err = {0};

    assert_int_equal(parse(sample, &err, "--metric-port", "5", (char *)NULL), -ENOENT);
    assert_string_equal(err.text, "there is no flag '--metric-port'; did you mean '--metrics-port'?");
    assert_int_equal(parse(sample, &err, "--steps", "5", (char *)NULL), -ENOENT);
    assert_string_equal(err.text, "there is no flag '--steps'; did you mean 'train.steps=VALUE'?");
    assert_int_equal(parse(sample, &err, "--no-out", (char *)NULL), -ENOENT);
    assert_int_equal(parse(sample, &err, "-x", (char *)NULL), -ENOENT);
    assert_int_equal(parse(sample, &err, "train.stesp=5", (char *)NULL), -ENOENT);
    assert_string_equal(err.text, "there is no setting 'train.stesp'; did you mean 'train.steps'?");
    assert_int_equal(parse(sample, &err, "--out", (char *)NULL), -EINVAL);
    assert_string_equal(err.text, "--out needs a value");
    assert_int_equal(parse(sample, &err, "--out", "--resume", (char *)NULL), -EINVAL);
    assert_non_null(strstr(err.text, "--out=--resume"));
    assert_int_equal(parse(sample, &err, "train.steps=x", (char *)NULL), -EINVAL);
    assert_int_equal(strncmp(err.text, "train.steps must be a whole number", 34), 0);
    assert_int_equal(parse(sample, &err, "--metrics-port", "x", (char *)NULL), -EINVAL);
    assert_int_equal(strncmp(err.text, "--metrics-port must be a whole number", 37), 0);
    assert_int_equal(parse(sample, &err, "--metr", "5", (char *)NULL), -ENOENT); /* the beginning of a name */
    assert_string_equal(err.text, "there is no flag '--metr'; did you mean '--metrics-port'?");
    assert_int_equal(parse(sample, &err, "--json", (char *)NULL), -ENOENT); /* near to nothing */
    assert_string_equal(err.text, "there is no flag '--json'");
    assert_int_equal(parse(sample, &err, "--=5", (char *)NULL), -ENOENT);
}

static void test_table_mistakes(void **state)
{
    static const struct ash_opt wrong[] = {
        {.name = "a", .type = ASH_OPT_INT, .default_text = "x", .help = "wrong default"}};
    static const struct ash_opt_table table = {.section = "s", .opts = wrong, .count = 1};
    struct sample *sample = *state;
    int64_t value = 0;
    const struct ash_opt_binding bad_default = {&table, &value};
    const struct ash_opt_binding twice[] = {{&sample_command_table, &sample->command},
                                            {&sample_command_table, &sample->command}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_opts_open(&bad_default, 1, &opts, &err), -EINVAL);
    assert_int_equal(ash_opts_open(twice, 2, &opts, &err), -EINVAL);
    assert_non_null(strstr(err.text, "two tables have the key 'out'"));
    assert_null(opts);
    ash_opts_close(NULL);
}

static char *print(void (*printer)(const struct ash_opts *, FILE *), const struct ash_opts *opts)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);

    assert_non_null(out);
    printer(opts, out);
    fclose(out);
    return text;
}

static void test_help(void **state)
{
    struct sample *sample = *state;
    char *text = print(ash_opts_print_help, sample->opts);

    assert_string_equal(text, "flags:\n"
                              "  --out TEXT             folder for the result\n"
                              "  --resume               continue where the last run stopped\n"
                              "  --[no-]stream          print text as it comes (default true)\n"
                              "  --metrics-port N       serve metrics on this port (default 0, 0..65535)\n"
                              "\n"
                              "train - the optimizer:\n"
                              "  train.steps N          optimizer steps (default 1k, 1..1000000000)\n"
                              "  train.seed N           of all random numbers\n"
                              "  train.tokens N         tokens in a batch (default 4ki, at least 1)\n"
                              "  train.rate X           learning rate at its peak (default 3e-4, 0..10)\n"
                              "  train.decay X          weight decay (default -0.1, at most 1)\n"
                              "  train.clip true|false  clip gradients (default true)\n"
                              "  train.data TEXT        folder of token shards (default data)\n"
                              "  train.schedule constant|cosine|wsd\n"
                              "                         how the rate falls (default cosine)\n"
                              "  train.stops A,B...     strings that end a text (default a,b)\n"
                              "  train.notes TEXT       remarks, taken whole\n");
    free(text);
}

static void test_help_wraps(void **state)
{
    static const struct ash_opt opt[] = {{.name = "x",
                                          .type = ASH_OPT_INT,
                                          .help = "one two three four five six seven eight nine ten eleven twelve "
                                                  "thirteen fourteen fifteen sixteen seventeen"}};
    static const struct ash_opt_table table = {.section = "", .opts = opt, .count = 1};
    int64_t value = 0;
    const struct ash_opt_binding binding = {&table, &value};
    struct ash_opts *opts = NULL;
    char *text;
    (void)state;

    assert_int_equal(ash_opts_open(&binding, 1, &opts, NULL), 0);
    text = print(ash_opts_print_help, opts);
    assert_string_equal(text,
                        "flags:\n"
                        "  --x N  one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
                        "fifteen\n"
                        "         sixteen seventeen\n");
    free(text);
    ash_opts_close(opts);
}

/* What is printed reads back as the same values, hard strings and odd numbers included. */
static void test_yaml_round_trip(void **state)
{
    struct sample *sample = *state, other = {0};
    struct ash_err err = {0};
    char *text, *again;

    set(sample, "out", "a: \"b\\c\" #x\n\ttab \x01 \xc2\x85 \xef\xbb\xbf \xf0\x9f\x98\x80 null");
    set(sample, "train.data", "null");
    set(sample, "train.seed", "-9223372036854775807");
    set(sample, "train.rate", "0.1");
    set(sample, "train.decay", "-1.2345678901234567e-300");
    set(sample, "train.schedule", "constant");
    set(sample, "train.stops", "x y,]\"[,~");
    text = print(ash_opts_print_yaml, sample->opts);
    assert_int_equal(sample_open(&other, &err), 0);
    if (ash_opts_parse_yaml(other.opts, text, strlen(text), "printed", &err) < 0) fail_msg("%s in\n%s", err.text, text);
    assert_string_equal(other.command.out, sample->command.out);
    assert_string_equal(other.train.data, "null");
    assert_int_equal(other.train.seed, sample->train.seed);
    assert_true(other.train.rate == 0.1 && other.train.decay == sample->train.decay);
    assert_int_equal(other.train.stops.count, 3);
    assert_string_equal(other.train.stops.items[1], "]\"[");
    again = print(ash_opts_print_yaml, other.opts);
    assert_string_equal(text, again);
    free(text);
    free(again);
    ash_opts_close(other.opts);
}

/* A program that set a locale with decimal commas reads and writes the same numbers. */
static void test_locale_does_not_matter(void **state)
{
    struct sample *sample = *state;
    char *text;

    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL) skip();
    set(sample, "train.rate", "0.25");
    assert_true(sample->train.rate == 0.25);
    text = print(ash_opts_print_yaml, sample->opts);
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(text, "rate: 0.25\n"));
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_ints),
        TEST(test_doubles),
        TEST(test_bools_and_choices),
        TEST(test_strings_and_lists),
        TEST(test_unknown_keys_name_the_nearest),
        TEST(test_very_long_keys),
        TEST(test_env),
        TEST(test_args),
        TEST(test_args_positionals),
        TEST(test_args_help),
        TEST(test_args_lists),
        TEST(test_no_default_is_zero),
        TEST(test_args_texts),
        TEST(test_args_errors),
        TEST(test_table_mistakes),
        TEST(test_help),
        TEST(test_help_wraps),
        TEST(test_yaml_round_trip),
        TEST(test_locale_does_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
