/* Fields of requests. jansson alone reads them, strictly: a server that guesses what a client meant answers another
 * question. */
#include "serve/api/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* The deepest nesting of brackets outside strings. */
static size_t depth_of(const char *text, size_t size_bytes)
{
    size_t depth = 0, most = 0;
    bool is_string = false;

    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];

        if (is_string) {
            if (c == '\\') i++;
            is_string = c != '"';
        } else if (c == '"') {
            is_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > most) most = depth;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return most;
}

int ash_fields_parse(const char *text, size_t size_bytes, size_t depth_max, json_t **json_out, struct ash_api_err *err)
{
    size_t valid = ash_utf8_valid_prefix(text, size_bytes), depth = depth_of(text, size_bytes);
    json_error_t where;
    json_t *json;

    if (valid < size_bytes)
        return ash_api_err_set(err, 400, "invalid_utf8", NULL, "the body is not UTF-8: byte %zu", valid);
    if (depth > depth_max)
        return ash_api_err_set(err, 400, "invalid_json", NULL, "the body is nested %zu deep, and %zu is the most",
                               depth, depth_max);
    json = ash_json_load_text(text, size_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (json == NULL)
        return ash_api_err_set(err, 400, "invalid_json", NULL, "the body is not valid JSON: line %d, column %d: %s",
                               where.line, where.column, where.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return ash_api_err_set(err, 400, "invalid_json", NULL, "the body must be a JSON object");
    }
    *json_out = json;
    return 0;
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

void ash_fields_init(struct ash_fields *fields, const json_t *object, const char *prefix, struct ash_api_err *err)
{
    *fields = (struct ash_fields){.object = object, .err = err, .prefix = prefix};
}

const json_t *ash_fields_any(struct ash_fields *fields, const char *key)
{
    const json_t *value = json_object_get(fields->object, key);

    if (fields->known_count < ASH_FIELDS_MAX) fields->known[fields->known_count++] = key;
    return json_is_null(value) ? NULL : value;
}

bool ash_fields_has(struct ash_fields *fields, const char *key)
{
    return ash_fields_any(fields, key) != NULL;
}

void ash_fields_wrong(struct ash_fields *fields, const char *key, const char *fmt, ...)
{
    char param[ASH_API_PARAM_BYTES], text[ASH_ERR_TEXT_BYTES];
    va_list args;

    ash_api_param_set(param, "%s%s", fields->prefix, key);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ash_api_err_set(fields->err, 400, "invalid_value", param, "'%s' %s", param, text);
}

static void wrong_type(struct ash_fields *fields, const char *key, const char *expected, const json_t *value)
{
    char param[ASH_API_PARAM_BYTES];

    ash_api_param_set(param, "%s%s", fields->prefix, key);
    ash_api_err_set(fields->err, 400, "invalid_type", param, "'%s' must be %s, but it is %s", param, expected,
                    ash_json_type_name(value));
}

bool ash_fields_bool(struct ash_fields *fields, const char *key, bool otherwise)
{
    const json_t *value = ash_fields_any(fields, key);

    if (value == NULL) return otherwise;
    if (json_is_boolean(value)) return json_is_true(value);
    wrong_type(fields, key, "true or false", value);
    return otherwise;
}

int64_t ash_fields_int(struct ash_fields *fields, const char *key, int64_t min, int64_t max, int64_t otherwise)
{
    const json_t *value = ash_fields_any(fields, key);
    double real = value != NULL && json_is_number(value) ? json_number_value(value) : NAN;
    int64_t number;

    if (value == NULL) return otherwise;
    if (!json_is_integer(value) && !(real == trunc(real) && fabs(real) < 0x1p63)) {
        wrong_type(fields, key, "an integer", value);
        return otherwise;
    }
    number = json_is_integer(value) ? (int64_t)json_integer_value(value) : (int64_t)real;
    if (number >= min && number <= max) return number;
    ash_fields_wrong(fields, key, "is %lld, but it must be from %lld to %lld", (long long)number, (long long)min,
                     (long long)max);
    return otherwise;
}

double ash_fields_double(struct ash_fields *fields, const char *key, double min, double max, double otherwise)
{
    const json_t *value = ash_fields_any(fields, key);
    double number;

    if (value == NULL) return otherwise;
    if (!json_is_number(value)) {
        wrong_type(fields, key, "a number", value);
        return otherwise;
    }
    number = json_number_value(value);
    if (number >= min && number <= max) return number;
    ash_fields_wrong(fields, key, "is %g, but it must be from %g to %g", number, min, max);
    return otherwise;
}

const char *ash_fields_string(struct ash_fields *fields, const char *key)
{
    const json_t *value = ash_fields_any(fields, key);

    if (value == NULL) return NULL;
    if (!json_is_string(value)) {
        wrong_type(fields, key, "a string", value);
        return NULL;
    }
    if (strlen(json_string_value(value)) == json_string_length(value)) return json_string_value(value);
    ash_fields_wrong(fields, key, "contains a NUL character");
    return NULL;
}

const json_t *ash_fields_array(struct ash_fields *fields, const char *key)
{
    const json_t *value = ash_fields_any(fields, key);

    if (value == NULL || json_is_array(value)) return value;
    wrong_type(fields, key, "an array", value);
    return NULL;
}

const json_t *ash_fields_object(struct ash_fields *fields, const char *key)
{
    const json_t *value = ash_fields_any(fields, key);

    if (value == NULL || json_is_object(value)) return value;
    wrong_type(fields, key, "an object", value);
    return NULL;
}

/* ---- unknown fields ---------------------------------------------------------------------------------------------- */

/* Is word one of the space-separated words? */
static bool is_among(const char *words, const char *word)
{
    size_t bytes = strlen(word);

    for (const char *at = words; *at != '\0'; at += strcspn(at, " ") + strspn(at + strcspn(at, " "), " "))
        if (strcspn(at, " ") == bytes && strncmp(at, word, bytes) == 0) return true;
    return false;
}

void ash_fields_ignore(struct ash_fields *fields, const char *keys)
{
    if (fields->known_count < ASH_FIELDS_MAX) fields->known[fields->known_count++] = keys;
}

int ash_fields_unknown(const struct ash_fields *fields, struct ash_str *names)
{
    const char *key;
    json_t *value;
    int rc = 0;

    json_object_foreach((json_t *)(uintptr_t)fields->object, key, value) {
        bool is_known = false;

        for (size_t i = 0; i < fields->known_count && !is_known; i++)
            is_known = is_among(fields->known[i], key);
        if (is_known || rc < 0) continue;
        rc = ash_str_addf(names, "%s%s", names->size_bytes > 0 ? ", " : "", key);
    }
    return rc;
}
