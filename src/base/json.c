/* JSON through jansson, with messages that name the place. What jansson refuses is tried once more, rewritten: whatever
 * Python reads is read. */
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_priv.h"
#include "base/number.h"

/* json_loadb; if that fails, once more after rewriting Python's JSON. Without flags, NUL too. NULL: *where has the
 * error. */
static json_t *load(const char *text, size_t size_bytes, size_t flags, json_error_t *where)
{
    json_t *json = json_loadb(text, size_bytes, flags, where);
    struct ash_str rewritten = {0};

    if (json != NULL) return json;
    if (ash_json_rewrite(text, size_bytes, flags == 0 ? ASH_JSON_REWRITE_NUL : ASH_JSON_REWRITE_PYTHON, &rewritten) > 0)
        json = json_loadb(rewritten.data, rewritten.size_bytes, flags, where);
    ash_str_fini(&rewritten);
    return json;
}

static int parse(const char *text, size_t size_bytes, size_t flags, const char *name, json_t **json_out,
                 struct ash_err *err)
{
    json_error_t where;
    json_t *json = NULL;

    if (size_bytes > ASH_JSON_MAX_BYTES)
        return ash_err_set(err, -EFBIG, "%s: %zu bytes of JSON are more than the limit of %zu", name, size_bytes,
                           ASH_JSON_MAX_BYTES);
    json = load(text, size_bytes, flags, &where);
    if (json == NULL)
        return ash_err_set(err, -EINVAL, "%s:%d:%d: not valid JSON: %s", name, where.line, where.column, where.text);
    *json_out = json;
    return 0;
}

int ash_json_parse(const char *text, size_t size_bytes, const char *name, json_t **json_out, struct ash_err *err)
{
    return parse(text, size_bytes, 0, name, json_out, err);
}

int ash_json_parse_unique(const char *text, size_t size_bytes, const char *name, json_t **json_out, struct ash_err *err)
{
    return parse(text, size_bytes, JSON_REJECT_DUPLICATES, name, json_out, err);
}

int ash_json_parse_line(const char *text, size_t size_bytes, const char *name, uint64_t line, json_t **json_out,
                        struct ash_err *err)
{
    json_error_t where;
    json_t *json = load(text, size_bytes, JSON_ALLOW_NUL, &where);

    if (json == NULL)
        return ash_err_set(err, -EINVAL, "%s:%" PRIu64 ": not valid JSON: %s (column %d)", name, line, where.text,
                           where.column);
    *json_out = json;
    return 0;
}

json_t *ash_json_load_text(const char *text, size_t size_bytes, size_t flags, json_error_t *where)
{
    json_t *json = json_loadb(text, size_bytes, flags, where);
    struct ash_str rewritten = {0};

    if (json != NULL) return json;
    if (ash_json_rewrite(text, size_bytes, ASH_JSON_REWRITE_VALID, &rewritten) > 0)
        json = json_loadb(rewritten.data, rewritten.size_bytes, flags, where);
    ash_str_fini(&rewritten);
    return json;
}

static int load_file(const char *path, size_t flags, json_t **json_out, struct ash_err *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = ash_file_read(path, ASH_JSON_MAX_BYTES, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = parse(text, size_bytes, flags, path, json_out, err);
    free(text);
    return rc;
}

int ash_json_load(const char *path, json_t **json_out, struct ash_err *err)
{
    return load_file(path, 0, json_out, err);
}

int ash_json_load_unique(const char *path, json_t **json_out, struct ash_err *err)
{
    return load_file(path, JSON_REJECT_DUPLICATES, json_out, err);
}

/* Append a number as jansson wrote it: a real, of which that is 17 digits, in as few as say the same. */
static int add_number(struct ash_str *text, const char *token, size_t length)
{
    char digits[64], shortest[ASH_NUMBER_BYTES];
    double value = 0;
    int rc;

    if (memchr(token, '.', length) == NULL && memchr(token, 'e', length) == NULL)
        return ash_str_add(text, token, length);
    snprintf(digits, sizeof(digits), "%.*s", (int)length, token);
    if (ash_number_parse(digits, &value) < 0) return ash_str_add(text, token, length);
    ash_number_format(value, shortest);
    rc = ash_str_adds(text, shortest);
    return rc == 0 && strpbrk(shortest, ".e") == NULL ? ash_str_adds(text, ".0") : rc; /* it stays a real */
}

/* The bytes of the string that begins at text, quotes included. */
static size_t string_bytes(const char *text)
{
    size_t at = 1;

    while (text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at + 1;
}

int ash_json_add_text(const json_t *json, struct ash_str *text)
{
    char *dump = json_dumps(json, JSON_INDENT(2) | JSON_ENCODE_ANY);
    int rc = dump != NULL ? ash_str_adds(text, "") : -ENOMEM;

    for (const char *at = dump; rc == 0 && *at != '\0';) {
        size_t digits = strspn(at, "+-.0123456789eE"), other = strcspn(at, "\"-0123456789");

        if (*at == '"') {
            rc = ash_str_add(text, at, string_bytes(at));
            at += string_bytes(at);
        } else if (other > 0) {
            rc = ash_str_add(text, at, other);
            at += other;
        } else {
            rc = add_number(text, at, digits);
            at += digits;
        }
    }
    free(dump);
    return rc;
}

int ash_json_save(const char *path, const json_t *json, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_json_add_text(json, &text);

    if (rc == 0) rc = ash_str_adds(&text, "\n"); /* a text file ends in a newline */
    rc = rc < 0 ? ash_err_set(err, rc, "cannot write '%s': out of memory", path)
                : ash_file_replace(path, text.data, text.size_bytes, err);
    ash_str_fini(&text);
    return rc;
}

const char *ash_json_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

/* The value of key, or NULL when it is absent or null. obj may be anything, NULL too. */
static const json_t *find(const json_t *obj, const char *key)
{
    const json_t *value = json_object_get(obj, key);

    return json_is_null(value) ? NULL : value;
}

static int wrong_type(struct ash_err *err, const char *key, const char *expected, const json_t *value)
{
    return ash_err_set(err, -EINVAL, "'%s' must be %s, but it is %s", key, expected, ash_json_type_name(value));
}

int ash_json_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);
    int64_t number;

    if (value == NULL) return 0;
    if (json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63)
        return ash_err_set(err, -EINVAL, "'%s' is %g, but it must be from %lld to %lld", key, json_real_value(value),
                           (long long)min, (long long)max);
    if (!json_is_integer(value)) return wrong_type(err, key, "an integer", value);
    number = json_integer_value(value);
    if (number < min || number > max)
        return ash_err_set(err, -EINVAL, "'%s' is %lld, but it must be from %lld to %lld", key, (long long)number,
                           (long long)min, (long long)max);
    *value_out = number;
    return 1;
}

int ash_json_double(const json_t *obj, const char *key, double min, double max, double *value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);
    double number;

    if (value == NULL) return 0;
    if (!json_is_number(value)) return wrong_type(err, key, "a number", value);
    number = json_number_value(value);
    if (!(number >= min && number <= max))
        return ash_err_set(err, -EINVAL, "'%s' is %g, but it must be from %g to %g", key, number, min, max);
    *value_out = number;
    return 1;
}

int ash_json_bool(const json_t *obj, const char *key, bool *value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);

    if (value == NULL) return 0;
    if (!json_is_boolean(value)) return wrong_type(err, key, "true or false", value);
    *value_out = json_is_true(value);
    return 1;
}

int ash_json_string(const json_t *obj, const char *key, const char **value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);

    if (value == NULL) return 0;
    if (!json_is_string(value)) return wrong_type(err, key, "a string", value);
    *value_out = json_string_value(value);
    return 1;
}

int ash_json_object(const json_t *obj, const char *key, const json_t **value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);

    if (value == NULL) return 0;
    if (!json_is_object(value)) return wrong_type(err, key, "an object", value);
    *value_out = value;
    return 1;
}

int ash_json_array(const json_t *obj, const char *key, const json_t **value_out, struct ash_err *err)
{
    const json_t *value = find(obj, key);

    if (value == NULL) return 0;
    if (!json_is_array(value)) return wrong_type(err, key, "an array", value);
    *value_out = value;
    return 1;
}
