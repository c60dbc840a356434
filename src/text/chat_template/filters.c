/* Filters, and the methods of dicts. Filters of lists: filters_list.c. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- of any value ------------------------------------------------------------------------------------------------ */

static int do_default(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                      struct ash_jinja_value *out)
{
    const struct ash_jinja_value *otherwise = ash_jinja_arg(args, 0, "default_value");
    const struct ash_jinja_value *falsy = ash_jinja_arg(args, 1, "boolean");
    bool replace =
        self.kind == ASH_JINJA_UNDEFINED || (falsy != NULL && ash_jinja_truthy(*falsy) && !ash_jinja_truthy(self));

    (void)run;
    *out = !replace ? self : otherwise != NULL ? *otherwise : ash_jinja_string(ash_jinja_text_of(""));
    return 0;
}

static int do_length(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    size_t length = 0;
    int rc = ash_jinja_length(run, self, &length);

    (void)args;
    *out = ash_jinja_int((int64_t)length);
    return rc;
}

static int do_string(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    (void)args;
    return ash_jinja_to_string(run, self, out);
}

/* separators=(',', ':'). */
static int load_separators(struct ash_jinja_run *run, const struct ash_jinja_value *value,
                           struct ash_jinja_json_style *style)
{
    const struct ash_jinja_list *list = value->kind == ASH_JINJA_LIST ? value->list : NULL;

    if (list == NULL || list->count != 2 || list->items[0].kind != ASH_JINJA_STRING ||
        list->items[1].kind != ASH_JINJA_STRING)
        return ash_jinja_fail(run, -EINVAL, "separators must be two strings");
    style->comma = list->items[0].text;
    style->colon = list->items[1].text;
    return 0;
}

static int do_tojson(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    const struct ash_jinja_value *ascii = ash_jinja_arg(args, 0, "ensure_ascii"),
                                 *indent = ash_jinja_arg(args, 1, "indent");
    const struct ash_jinja_value *separators = ash_jinja_arg(args, 2, "separators");
    struct ash_jinja_json_style style = {.indent = -1, .comma = {", ", 2}, .colon = {": ", 2}};
    struct ash_str text = {0};
    int rc = 0;

    if (args->count > (size_t)(ascii != NULL) + (size_t)(indent != NULL) + (size_t)(separators != NULL))
        return ash_jinja_fail(run, -ENOTSUP, "tojson takes ensure_ascii, indent and separators, nothing else");
    style.ascii = ascii != NULL && ash_jinja_truthy(*ascii);
    if (indent != NULL && indent->kind == ASH_JINJA_INT) {
        if (indent->integer < 0 || indent->integer > 16)
            return ash_jinja_fail(run, -EINVAL, "an indent must be from 0 to 16");
        style.indent = (int)indent->integer;
        style.comma = ash_jinja_text_of(",");
    }
    if (separators != NULL && separators->kind != ASH_JINJA_NONE) rc = load_separators(run, separators, &style);
    if (rc == 0) rc = ash_jinja_print_json(run, &text, self, style);
    if (rc == 0) rc = ash_jinja_copy(run, text.data, text.size_bytes, out);
    ash_str_fini(&text);
    return rc;
}

/* A number from a string of digits (and for float a fraction); other text becomes the default. */
static int to_number(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     bool real, struct ash_jinja_value *out)
{
    const struct ash_jinja_value *otherwise = ash_jinja_arg(args, 0, "default");
    char digits[64] = "", *end = digits;
    double value = 0;

    *out = otherwise != NULL ? *otherwise : real ? ash_jinja_float(0) : ash_jinja_int(0);
    if (self.kind == ASH_JINJA_STRING && self.text.size_bytes > 0 && self.text.size_bytes < sizeof(digits)) {
        memcpy(digits, self.text.data, self.text.size_bytes);
        value = strtod(digits, &end);
        if (end == digits || end[strspn(end, " \t\r\n")] != '\0') return 0;
    } else if (self.kind == ASH_JINJA_INT || self.kind == ASH_JINJA_BOOL) {
        if (!real) return ash_jinja_binary(run, ASH_JINJA_ADD, self, ash_jinja_int(0), out);
        value = self.kind == ASH_JINJA_INT ? (double)self.integer : (double)self.flag;
    } else if (self.kind == ASH_JINJA_FLOAT) {
        value = self.real;
    } else {
        return 0;
    }
    if (real)
        *out = ash_jinja_float(value);
    else if (fabs(value) < 9e18)
        *out = ash_jinja_int((int64_t)value);
    return 0;
}

static int do_int(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                  struct ash_jinja_value *out)
{
    return to_number(run, self, args, false, out);
}

static int do_float(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    return to_number(run, self, args, true, out);
}

static int do_abs(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                  struct ash_jinja_value *out)
{
    (void)args;
    if (self.kind == ASH_JINJA_FLOAT) {
        *out = ash_jinja_float(fabs(self.real));
        return 0;
    }
    if (self.kind != ASH_JINJA_INT) return ash_jinja_fail(run, -EINVAL, "abs of %s", ash_jinja_kind_name(self));
    return self.integer < 0 ? ash_jinja_binary(run, ASH_JINJA_SUB, ash_jinja_int(0), self, out)
                            : ash_jinja_binary(run, ASH_JINJA_ADD, ash_jinja_int(0), self, out);
}

/* What indent puts in front of a line: four spaces, as many as width says, or the text that it is. */
static int indent_of(struct ash_jinja_run *run, const struct ash_jinja_value *width, struct ash_jinja_value *out)
{
    *out = ash_jinja_string(ash_jinja_text_of("    "));
    if (width != NULL && width->kind == ASH_JINJA_STRING) *out = *width;
    if (width == NULL || width->kind != ASH_JINJA_INT) return 0;
    return ash_jinja_binary(run, ASH_JINJA_MUL, ash_jinja_string(ash_jinja_text_of(" ")), *width, out);
}

static bool is_set(const struct ash_jinja_value *flag)
{
    return flag != NULL && ash_jinja_truthy(*flag);
}

/* Lines after the first (with first, that one too) move right; blank ones only when asked for. */
static int do_indent(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    bool first = is_set(ash_jinja_arg(args, 1, "first")), blank = is_set(ash_jinja_arg(args, 2, "blank"));
    struct ash_jinja_args none = {.count = 0};
    struct ash_jinja_value lines, indent;
    struct ash_str text = {0};
    int rc = ash_jinja_binary(run, ASH_JINJA_ADD, self, ash_jinja_string(ash_jinja_text_of("\n")), &lines);

    if (rc == 0) rc = indent_of(run, ash_jinja_arg(args, 0, "width"), &indent);
    if (rc == 0) rc = ash_jinja_string_method(ash_jinja_text_of("splitlines"))(run, lines, &none, &lines);
    for (size_t i = 0; rc == 0 && i < lines.list->count; i++) {
        bool is_moved = i == 0 ? first : blank || lines.list->items[i].text.size_bytes > 0;

        if (i > 0) rc = ash_jinja_print(run, &text, ash_jinja_string(ash_jinja_text_of("\n")));
        if (rc == 0 && is_moved) rc = ash_jinja_print(run, &text, indent);
        if (rc == 0) rc = ash_jinja_print(run, &text, lines.list->items[i]);
    }
    if (rc == 0) rc = ash_jinja_copy(run, text.data, text.size_bytes, out);
    ash_str_fini(&text);
    return rc;
}

/* Nothing is escaped here, so everything is safe. */
static int do_safe(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    (void)run, (void)args;
    *out = self;
    return 0;
}

/* ---- of dicts ---------------------------------------------------------------------------------------------------- */

static int add_pair(struct ash_jinja_run *run, struct ash_jinja_list *list, struct ash_jinja_value key,
                    struct ash_jinja_value value)
{
    struct ash_jinja_value pair;
    int rc = ash_jinja_list_new(run, &pair);

    if (rc < 0) return rc;
    pair.list->tuple = true;
    rc = ash_jinja_list_add(run, pair.list, key);
    if (rc < 0) return rc;
    rc = ash_jinja_list_add(run, pair.list, value);
    return rc < 0 ? rc : ash_jinja_list_add(run, list, pair);
}

/* Keys, values, or both as lists of two. */
static int dict_parts(struct ash_jinja_run *run, struct ash_jinja_value self, bool keys, bool values,
                      struct ash_jinja_value *out)
{
    int rc = ash_jinja_list_new(run, out);

    for (size_t i = 0; rc == 0 && i < self.dict->count; i++) {
        struct ash_jinja_value key = ash_jinja_key_value(self.dict->pairs[i].key), value = self.dict->pairs[i].value;
        rc = keys && values ? add_pair(run, out->list, key, value)
                            : ash_jinja_list_add(run, out->list, keys ? key : value);
    }
    return rc;
}

static int do_items(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    (void)args;
    if (self.kind == ASH_JINJA_UNDEFINED) return ash_jinja_list_new(run, out);
    if (self.kind != ASH_JINJA_DICT) return ash_jinja_fail(run, -EINVAL, "%s has no items", ash_jinja_kind_name(self));
    return dict_parts(run, self, true, true, out);
}

static int dict_get(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    const struct ash_jinja_value *key = ash_jinja_arg(args, 0, "key"), *otherwise = ash_jinja_arg(args, 1, "default"),
                                 *found = NULL;
    struct ash_jinja_text text;

    if (key == NULL) return ash_jinja_fail(run, -EINVAL, "an argument is missing");
    if ((key->kind == ASH_JINJA_STRING || key->kind == ASH_JINJA_INT) && ash_jinja_key(run, *key, &text) < 0)
        return -ENOMEM;
    if (key->kind == ASH_JINJA_STRING || key->kind == ASH_JINJA_INT) found = ash_jinja_dict_get(self.dict, text);
    *out = found != NULL ? *found : otherwise != NULL ? *otherwise : ash_jinja_none();
    return 0;
}

/* The first member that equals the argument; as in Python an error if there is none. */
static int list_index(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                      struct ash_jinja_value *out)
{
    const struct ash_jinja_value *wanted = ash_jinja_arg(args, 0, "value");

    if (wanted == NULL) return ash_jinja_fail(run, -EINVAL, "an argument is missing");
    for (size_t i = 0; i < self.list->count; i++) {
        if (!ash_jinja_equal(self.list->items[i], *wanted, 0)) continue;
        *out = ash_jinja_int((int64_t)i);
        return 0;
    }
    return ash_jinja_fail(run, -EINVAL, "a list of %zu has no such member to give the index of", self.list->count);
}

static int list_count(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                      struct ash_jinja_value *out)
{
    const struct ash_jinja_value *wanted = ash_jinja_arg(args, 0, "value");
    int64_t count = 0;

    if (wanted == NULL) return ash_jinja_fail(run, -EINVAL, "an argument is missing");
    for (size_t i = 0; i < self.list->count; i++)
        count += ash_jinja_equal(self.list->items[i], *wanted, 0);
    *out = ash_jinja_int(count);
    return 0;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

static int unknown(struct ash_jinja_run *run, const char *what, struct ash_jinja_text name)
{
    return ash_jinja_fail(run, -ENOTSUP, "the %s '%.*s' is not supported", what,
                          name.size_bytes < 64 ? (int)name.size_bytes : 64, name.data);
}

static int list_method(struct ash_jinja_run *run, struct ash_jinja_value self, struct ash_jinja_text name,
                       const struct ash_jinja_args *args, struct ash_jinja_value *out)
{
    if (ash_jinja_text_is(name, "index")) return list_index(run, self, args, out);
    if (ash_jinja_text_is(name, "count")) return list_count(run, self, args, out);
    return unknown(run, "method", name);
}

static int dict_method(struct ash_jinja_run *run, struct ash_jinja_value self, struct ash_jinja_text name,
                       const struct ash_jinja_args *args, struct ash_jinja_value *out)
{
    if (ash_jinja_text_is(name, "get")) return dict_get(run, self, args, out);
    if (ash_jinja_text_is(name, "items")) return dict_parts(run, self, true, true, out);
    if (ash_jinja_text_is(name, "keys")) return dict_parts(run, self, true, false, out);
    if (ash_jinja_text_is(name, "values")) return dict_parts(run, self, false, true, out);
    return unknown(run, "method", name);
}

int ash_jinja_method(struct ash_jinja_run *run, struct ash_jinja_value self, struct ash_jinja_text name,
                     const struct ash_jinja_args *args, struct ash_jinja_value *out)
{
    ash_jinja_call_fn call = self.kind == ASH_JINJA_STRING ? ash_jinja_string_method(name) : NULL;
    int rc = ash_jinja_spend(run, self.kind == ASH_JINJA_STRING ? self.text.size_bytes : 0);

    if (rc < 0) return rc;
    if (call != NULL) return call(run, self, args, out);
    if (self.kind == ASH_JINJA_UNDEFINED)
        return ash_jinja_fail(run, -EINVAL, "'%.*s' is undefined and has no '%.*s'",
                              self.text.size_bytes < 64 ? (int)self.text.size_bytes : 64,
                              self.text.data != NULL ? self.text.data : "",
                              name.size_bytes < 64 ? (int)name.size_bytes : 64, name.data);
    if (self.kind == ASH_JINJA_LIST) return list_method(run, self, name, args, out);
    if (self.kind == ASH_JINJA_DICT) return dict_method(run, self, name, args, out);
    return unknown(run, "method", name);
}

/* Filters that are methods of the value as a string. */
static ash_jinja_call_fn string_filter(struct ash_jinja_text name)
{
    static const char *const names[] = {"upper", "lower", "title", "capitalize", "replace"};

    if (ash_jinja_text_is(name, "trim")) return ash_jinja_string_method(ash_jinja_text_of("strip"));
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (ash_jinja_text_is(name, names[i])) return ash_jinja_string_method(name);
    return NULL;
}

int ash_jinja_filter(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value value,
                     const struct ash_jinja_args *args, struct ash_jinja_value *out)
{
    static const struct ash_jinja_function filters[] = {
        {"default", do_default},
        {"d", do_default},
        {"length", do_length},
        {"count", do_length},
        {"string", do_string},
        {"tojson", do_tojson},
        {"int", do_int},
        {"float", do_float},
        {"abs", do_abs},
        {"safe", do_safe},
        {"items", do_items},
        {"indent", do_indent},
        {"dictsort", ash_jinja_dictsort},
    };
    ash_jinja_call_fn call = string_filter(name);
    int rc = 0;

    if (call != NULL) {
        rc = ash_jinja_to_string(run, value, &value);
        if (rc < 0) return rc;
        rc = ash_jinja_spend(run, value.text.size_bytes);
        return rc < 0 ? rc : call(run, value, args, out);
    }
    for (size_t i = 0; i < ASH_COUNT(filters); i++)
        if (ash_jinja_text_is(name, filters[i].name)) return filters[i].call(run, value, args, out);
    call = ash_jinja_list_filter(name);
    return call != NULL ? call(run, value, args, out) : unknown(run, "filter", name);
}
