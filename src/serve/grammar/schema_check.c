/* Reading the keywords of schemas: unknown ones are refused by name, and every message names its place. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/str.h"

/* ---- places in the schema ---------------------------------------------------------------------------------------- */

/* key as a step of a JSON pointer. */
static int add_step(struct ash_str *pointer, const char *key)
{
    int rc = ash_str_adds(pointer, "/");

    for (; rc == 0 && *key != '\0'; key++)
        rc = *key == '~'   ? ash_str_adds(pointer, "~0")
             : *key == '/' ? ash_str_adds(pointer, "~1")
                           : ash_str_add(pointer, key, 1);
    return rc;
}

/* Append the way from json to part; false where part is not below it. */
static bool find_part(const json_t *json, const json_t *part, struct ash_str *pointer, size_t depth)
{
    size_t length = pointer->size_bytes, index;
    const char *key;
    json_t *value;
    char number[24];

    if (json == part) return true;
    if (depth == 0) return false;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (add_step(pointer, key) == 0 && find_part(value, part, pointer, depth - 1)) return true;
        pointer->size_bytes = length;
    }
    json_array_foreach((json_t *)(uintptr_t)json, index, value) {
        snprintf(number, sizeof(number), "%zu", index);
        if (add_step(pointer, number) == 0 && find_part(value, part, pointer, depth - 1)) return true;
        pointer->size_bytes = length;
    }
    return false;
}

int ash_schema_wrap(struct ash_schema *schema, int code, const json_t *part, const char *keyword)
{
    struct ash_str pointer = {0};

    if (ash_str_adds(&pointer, "#") < 0 || !find_part(schema->root, part, &pointer, 512)) ash_str_clear(&pointer);
    if (keyword != NULL) add_step(&pointer, keyword);
    ash_err_prefix(schema->err, code, "schema %.200s", pointer.data != NULL ? pointer.data : "");
    ash_str_fini(&pointer);
    return code;
}

int ash_schema_fail(struct ash_schema *schema, int code, const json_t *part, const char *keyword, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ash_err_set(schema->err, code, "%s", text);
    return ash_schema_wrap(schema, code, part, keyword);
}

/* ---- keywords ---------------------------------------------------------------------------------------------------- */

enum kind {
    ANNOTATION, /* says nothing of what fits */
    A_STRING,
    A_NUMBER,
    A_COUNT,
    A_BOOLEAN,
    A_SCHEMA,
    SCHEMAS,       /* an array of schemas, not empty */
    NAMED_SCHEMAS, /* an object of them */
    STRINGS,
    VALUES, /* an array of anything */
    SCHEMA_OR_SCHEMAS,
    NUMBER_OR_BOOLEAN,
    ANYTHING
};

static const struct {
    const char *name;
    enum kind kind;
} keywords[] = {
    {"type", ANYTHING}, /* looked at in schema.c */
    {"enum", VALUES},
    {"const", ANYTHING},
    {"properties", NAMED_SCHEMAS},
    {"required", STRINGS},
    {"additionalProperties", A_SCHEMA},
    {"patternProperties", NAMED_SCHEMAS},
    {"propertyNames", A_SCHEMA},
    {"minProperties", A_COUNT},
    {"maxProperties", A_COUNT},
    {"items", SCHEMA_OR_SCHEMAS},
    {"prefixItems", SCHEMAS},
    {"additionalItems", A_SCHEMA},
    {"minItems", A_COUNT},
    {"maxItems", A_COUNT},
    {"minLength", A_COUNT},
    {"maxLength", A_COUNT},
    {"pattern", A_STRING},
    {"format", A_STRING},
    {"minimum", A_NUMBER},
    {"maximum", A_NUMBER},
    {"exclusiveMinimum", NUMBER_OR_BOOLEAN},
    {"exclusiveMaximum", NUMBER_OR_BOOLEAN},
    {"multipleOf", A_NUMBER},
    {"anyOf", SCHEMAS},
    {"oneOf", SCHEMAS},
    {"allOf", SCHEMAS},
    {"$ref", A_STRING},
    {"nullable", A_BOOLEAN},
    {"title", ANNOTATION},
    {"description", ANNOTATION},
    {"default", ANNOTATION},
    {"examples", ANNOTATION},
    {"example", ANNOTATION},
    {"deprecated", ANNOTATION},
    {"readOnly", ANNOTATION},
    {"writeOnly", ANNOTATION},
    {"contentEncoding", ANNOTATION},
    {"contentMediaType", ANNOTATION},
    {"discriminator", ANNOTATION},
    {"externalDocs", ANNOTATION},
    {"$schema", ANNOTATION},
    {"$id", ANNOTATION},
    {"id", ANNOTATION},
    {"$comment", ANNOTATION},
    {"$defs", ANNOTATION},
    {"definitions", ANNOTATION},
};

/* Keywords that change nothing when they have this value. */
static bool is_void(const char *name, const json_t *value)
{
    if (strcmp(name, "uniqueItems") == 0) return json_is_false(value);
    if (strcmp(name, "unevaluatedProperties") == 0 || strcmp(name, "unevaluatedItems") == 0) return json_is_true(value);
    return strncmp(name, "x-", 2) == 0; /* an extension */
}

static bool is_schema(const json_t *value)
{
    return json_is_object(value) || json_is_boolean(value);
}

static bool are_all(const json_t *list, bool (*is_right)(const json_t *value))
{
    size_t index;
    const char *key;
    json_t *value;

    json_array_foreach((json_t *)(uintptr_t)list, index, value)
        if (!is_right(value)) return false;
    json_object_foreach((json_t *)(uintptr_t)list, key, value)
        if (!is_right(value)) return false;
    return true;
}

static bool is_a_string(const json_t *value)
{
    return json_is_string(value);
}

static bool is_a_number(const json_t *value)
{
    return json_is_number(value);
}

static bool is_a_count(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) >= 0;
}

static bool is_a_boolean(const json_t *value)
{
    return json_is_boolean(value);
}

static bool are_schemas(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) > 0 && are_all(value, is_schema);
}

static bool are_named_schemas(const json_t *value)
{
    return json_is_object(value) && are_all(value, is_schema);
}

static bool are_strings(const json_t *value)
{
    return json_is_array(value) && are_all(value, is_a_string);
}

static bool are_values(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) > 0;
}

static bool is_schema_or_list(const json_t *value)
{
    return is_schema(value) || (json_is_array(value) && are_all(value, is_schema));
}

static bool is_number_or_boolean(const json_t *value)
{
    return json_is_number(value) || json_is_boolean(value);
}

/* NULL, or what the value should have been. */
static const char *expected(enum kind kind, const json_t *value)
{
    static const struct {
        bool (*is_right)(const json_t *value);
        const char *what;
    } kinds[] = {
        [A_STRING] = {is_a_string, "a string"},
        [A_NUMBER] = {is_a_number, "a number"},
        [A_COUNT] = {is_a_count, "an integer from 0 on"},
        [A_BOOLEAN] = {is_a_boolean, "true or false"},
        [A_SCHEMA] = {is_schema, "a schema"},
        [SCHEMAS] = {are_schemas, "an array of schemas, not empty"},
        [NAMED_SCHEMAS] = {are_named_schemas, "an object of schemas"},
        [STRINGS] = {are_strings, "an array of strings"},
        [VALUES] = {are_values, "an array, not empty"},
        [SCHEMA_OR_SCHEMAS] = {is_schema_or_list, "a schema or an array of schemas"},
        [NUMBER_OR_BOOLEAN] = {is_number_or_boolean, "a number"},
        [ANYTHING] = {NULL, NULL},
    };

    return kinds[kind].is_right == NULL || kinds[kind].is_right(value) ? NULL : kinds[kind].what;
}

int ash_schema_check(struct ash_schema *schema, const json_t *part)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)part, name, value) {
        const char *wanted = NULL;
        size_t i;
        for (i = 0; i < ASH_COUNT(keywords); i++)
            if (strcmp(name, keywords[i].name) == 0) break;
        if (i < ASH_COUNT(keywords)) wanted = expected(keywords[i].kind, value);
        if (wanted != NULL) return ash_schema_fail(schema, -EINVAL, part, name, "must be %s", wanted);
        if (i == ASH_COUNT(keywords) && !is_void(name, value) && !schema->is_lenient)
            return ash_schema_fail(schema, -ENOTSUP, part, name, "this keyword is not supported");
    }
    return 0;
}

int ash_schema_count(struct ash_schema *schema, const json_t *part, const char *keyword, uint32_t *value_out)
{
    const json_t *value = json_object_get(part, keyword);
    double number = json_number_value(value);

    if (value == NULL) return 0;
    if (number != (double)(int64_t)number && number < 1e15)
        return ash_schema_fail(schema, -EINVAL, part, keyword, "must be an integer from 0 on");
    if (number >= 0x1p31 && strncmp(keyword, "min", 3) == 0)
        return ash_schema_fail(schema, -E2BIG, part, keyword, "is too large");
    *value_out = number >= 0x1p31 ? ASH_PDA_UNBOUNDED : (uint32_t)number;
    return 0;
}

/* ---- references -------------------------------------------------------------------------------------------------- */

/* Decode one step of a JSON pointer in a URI fragment into step. -EINVAL for bad escapes. */
static int decode_step(const char *text, size_t size_bytes, struct ash_str *step)
{
    int rc = 0;

    ash_str_clear(step);
    if (ash_str_adds(step, "") < 0) return -ENOMEM;
    for (size_t i = 0; i < size_bytes && rc == 0; i++) {
        char c = text[i];
        if (c == '%') {
            char hex[3] = {0};
            if (i + 2 >= size_bytes) return -EINVAL;
            memcpy(hex, text + i + 1, 2);
            if (strspn(hex, "0123456789abcdefABCDEF") != 2) return -EINVAL;
            c = (char)strtoul(hex, NULL, 16);
            i += 2;
        }
        rc = ash_str_add(step, &c, 1);
    }
    for (char *at = step->data; rc == 0 && (at = strchr(at, '~')) != NULL; at++) {
        if (at[1] != '0' && at[1] != '1') return -EINVAL;
        *at = at[1] == '0' ? '~' : '/';
        memmove(at + 1, at + 2, strlen(at + 2) + 1);
    }
    return rc;
}

/* What a step leads to from target; NULL for nothing. */
static const json_t *follow_step(const json_t *target, const char *step)
{
    if (!json_is_array(target)) return json_object_get(target, step);
    if (step[0] == '\0' || step[strspn(step, "0123456789")] != '\0') return NULL;
    return json_array_get(target, strtoul(step, NULL, 10));
}

int ash_schema_refer(struct ash_schema *schema, const json_t *part, const json_t **target_out)
{
    const char *ref = json_string_value(json_object_get(part, "$ref")), *at = ref + 1;
    const json_t *target = schema->root;
    struct ash_str step = {0};
    int rc = 0;

    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/'))
        return ash_schema_fail(schema, -ENOTSUP, part, "$ref",
                               "only references into the schema itself (#/...) are supported, not '%.100s'", ref);
    while (rc == 0 && target != NULL && *at == '/') {
        size_t size = strcspn(at + 1, "/");
        rc = decode_step(at + 1, size, &step);
        if (rc == 0) target = follow_step(target, step.data);
        at += size + 1;
    }
    ash_str_fini(&step);
    if (rc == -ENOMEM) return ash_err_set(schema->err, rc, "out of memory for a grammar");
    if (rc < 0 || target == NULL || !is_schema(target))
        return ash_schema_fail(schema, -EINVAL, part, "$ref", "'%.100s' is no schema in it", ref);
    *target_out = target;
    return 0;
}
