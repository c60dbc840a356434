/* Tests (`is …`) and global functions. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/math.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* What a test asks of the kind of a value: one bit per kind. */
#define KIND(kind) (1u << ASH_JINJA_##kind)

static const struct {
    const char *name;
    unsigned kinds;
} kind_tests[] = {
    {"undefined", KIND(UNDEFINED)},
    {"none", KIND(NONE)},
    {"boolean", KIND(BOOL)},
    {"integer", KIND(INT)},
    {"float", KIND(FLOAT)},
    {"number", KIND(INT) | KIND(FLOAT) | KIND(BOOL)},
    {"string", KIND(STRING)},
    {"mapping", KIND(DICT)},
    {"iterable", KIND(STRING) | KIND(LIST) | KIND(DICT) | KIND(UNDEFINED)},
    {"sequence", KIND(STRING) | KIND(LIST) | KIND(DICT) | KIND(UNDEFINED)},
    {"callable", KIND(MACRO) | KIND(FUNCTION)},
    {"defined", ~KIND(UNDEFINED)},
};

static const struct {
    const char *name;
    enum ash_jinja_op op;
} comparing_tests[] = {
    {"eq", ASH_JINJA_EQ},          {"equalto", ASH_JINJA_EQ},  {"sameas", ASH_JINJA_EQ}, {"ne", ASH_JINJA_NE},
    {"lt", ASH_JINJA_LT},          {"lessthan", ASH_JINJA_LT}, {"le", ASH_JINJA_LE},     {"gt", ASH_JINJA_GT},
    {"greaterthan", ASH_JINJA_GT}, {"ge", ASH_JINJA_GE},       {"in", ASH_JINJA_IN},
};

static int divides(struct ash_jinja_run *run, struct ash_jinja_value value, int64_t by, int64_t remainder, bool *out)
{
    struct ash_jinja_value rest;
    int rc = ash_jinja_binary(run, ASH_JINJA_MOD, value, ash_jinja_int(by), &rest);

    if (rc == 0) *out = ash_jinja_equal(rest, ash_jinja_int(remainder), 0);
    return rc;
}

/* Is it a string that a change of case leaves as it is? */
static int has_case(struct ash_jinja_run *run, struct ash_jinja_value value, const char *method, bool *out)
{
    struct ash_jinja_args none = {.count = 0};
    struct ash_jinja_value changed;
    int rc;

    *out = false;
    if (value.kind != ASH_JINJA_STRING) return 0;
    rc = ash_jinja_string_method(ash_jinja_text_of(method))(run, value, &none, &changed);
    if (rc == 0) *out = ash_jinja_equal(value, changed, 0);
    return rc;
}

static int is_true(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    (void)run;
    *out = value.kind == ASH_JINJA_BOOL && value.flag;
    return 0;
}

static int is_false(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    (void)run;
    *out = value.kind == ASH_JINJA_BOOL && !value.flag;
    return 0;
}

static int is_odd(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    return divides(run, value, 2, 1, out);
}

static int is_even(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    return divides(run, value, 2, 0, out);
}

static int is_lower(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    return has_case(run, value, "lower", out);
}

static int is_upper(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out)
{
    return has_case(run, value, "upper", out);
}

/* Tests that look at the value itself. */
static const struct {
    const char *name;
    int (*test)(struct ash_jinja_run *run, struct ash_jinja_value value, bool *out);
} value_tests[] = {
    {"true", is_true}, {"false", is_false}, {"odd", is_odd},
    {"even", is_even}, {"lower", is_lower}, {"upper", is_upper},
};

/* Tests that compare the value with an argument. */
static int test_with(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value value,
                     const struct ash_jinja_value *arg, bool *out)
{
    for (size_t i = 0; i < ASH_COUNT(comparing_tests); i++) {
        if (!ash_jinja_text_is(name, comparing_tests[i].name)) continue;
        if (arg == NULL)
            return ash_jinja_fail(run, -EINVAL, "the test '%s' needs an argument", comparing_tests[i].name);
        return ash_jinja_compare(run, comparing_tests[i].op, value, *arg, out);
    }
    if (ash_jinja_text_is(name, "divisibleby") && arg != NULL && arg->kind == ASH_JINJA_INT)
        return divides(run, value, arg->integer, 0, out);
    return ash_jinja_fail(run, -ENOTSUP, "the test '%.*s' is not supported", (int)ash_min(name.size_bytes, 64),
                          name.data);
}

int ash_jinja_test(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value value,
                   const struct ash_jinja_args *args, bool *out)
{
    for (size_t i = 0; i < ASH_COUNT(kind_tests); i++) {
        if (!ash_jinja_text_is(name, kind_tests[i].name)) continue;
        *out = kind_tests[i].kinds >> value.kind & 1;
        return 0;
    }
    for (size_t i = 0; i < ASH_COUNT(value_tests); i++)
        if (ash_jinja_text_is(name, value_tests[i].name)) return value_tests[i].test(run, value, out);
    return test_with(run, name, value, ash_jinja_arg(args, 0, NULL), out);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static int do_raise(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    const struct ash_jinja_value *message = ash_jinja_arg(args, 0, "message");
    struct ash_jinja_text text =
        message != NULL && message->kind == ASH_JINJA_STRING ? message->text : ash_jinja_text_of("");

    (void)self, (void)out;
    return ash_jinja_fail(run, -EINVAL, "the template refuses these messages: %.*s",
                          text.size_bytes < 200 ? (int)text.size_bytes : 200, text.data);
}

/* namespace(a=1) and dict(a=1). */
static int make_dict(struct ash_jinja_run *run, enum ash_jinja_kind kind, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    struct ash_jinja_value dict;
    int rc = ash_jinja_dict_new(run, kind, &dict);

    for (size_t i = 0; rc == 0 && i < args->count; i++) {
        bool copy = args->names[i].size_bytes == 0 && args->values[i].kind == ASH_JINJA_DICT;
        if (args->names[i].size_bytes > 0) rc = ash_jinja_dict_set(run, dict.dict, args->names[i], args->values[i]);
        for (size_t k = 0; rc == 0 && copy && k < args->values[i].dict->count; k++)
            rc = ash_jinja_dict_set(run, dict.dict, args->values[i].dict->pairs[k].key,
                                    args->values[i].dict->pairs[k].value);
        if (args->names[i].size_bytes == 0 && !copy) rc = ash_jinja_fail(run, -EINVAL, "arguments here need names");
    }
    *out = dict;
    return rc;
}

static int do_namespace(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                        struct ash_jinja_value *out)
{
    (void)self;
    return make_dict(run, ASH_JINJA_NAMESPACE, args, out);
}

static int do_dict(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    (void)self;
    return make_dict(run, ASH_JINJA_DICT, args, out);
}

static int do_range(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    int64_t bounds[3] = {0, 0, 1}, at;
    int rc = ash_jinja_list_new(run, out);

    (void)self;
    for (size_t i = 0; i < args->count; i++) {
        if (i == 3 || args->values[i].kind != ASH_JINJA_INT)
            return ash_jinja_fail(run, -EINVAL, "range takes up to three integers");
        bounds[args->count == 1 ? 1 : i] = args->values[i].integer;
    }
    if (args->count == 0 || bounds[2] == 0)
        return ash_jinja_fail(run, -EINVAL, "range needs an end, and a step that is not zero");
    at = bounds[0];
    while (rc == 0 && (bounds[2] > 0 ? at < bounds[1] : at > bounds[1])) {
        if (out->list->count == ASH_JINJA_RANGE_MAX)
            return ash_jinja_fail(run, -E2BIG, "a range has more than %d members", ASH_JINJA_RANGE_MAX);
        rc = ash_jinja_list_add(run, out->list, ash_jinja_int(at));
        if (__builtin_add_overflow(at, bounds[2], &at)) break;
    }
    return rc;
}

/* Today, for templates that tell the model. */
static int do_strftime_now(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                           struct ash_jinja_value *out)
{
    const struct ash_jinja_value *format = ash_jinja_arg(args, 0, "format");
    time_t now = time(NULL);
    char pattern[128] = "", text[512];
    struct tm local;

    (void)self;
    if (format == NULL || format->kind != ASH_JINJA_STRING || format->text.size_bytes >= sizeof(pattern))
        return ash_jinja_fail(run, -EINVAL, "strftime_now needs a format of less than %zu bytes", sizeof(pattern));
    memcpy(pattern, format->text.data, format->text.size_bytes);
    if (localtime_r(&now, &local) == NULL) return ash_jinja_fail(run, -EINVAL, "the clock is out of range");
    return ash_jinja_copy(run, text, strftime(text, sizeof(text), pattern, &local), out);
}

const struct ash_jinja_function *ash_jinja_find_function(struct ash_jinja_text name)
{
    static const struct ash_jinja_function functions[] = {
        {"raise_exception", do_raise}, {"namespace", do_namespace},       {"dict", do_dict},
        {"range", do_range},           {"strftime_now", do_strftime_now},
    };

    for (size_t i = 0; i < ASH_COUNT(functions); i++)
        if (ash_jinja_text_is(name, functions[i].name)) return &functions[i];
    return NULL;
}
