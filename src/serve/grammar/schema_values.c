/* enum and const: of the values that one schema lists, those that fit all others. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/grammar/pda_priv.h"

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return ASH_SCHEMA_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return ASH_SCHEMA_BOOLEAN;
    case JSON_INTEGER:
        return ASH_SCHEMA_INTEGER;
    case JSON_REAL:
        return json_real_value(value) == (double)(int64_t)json_real_value(value) ? ASH_SCHEMA_INTEGER
                                                                                 : ASH_SCHEMA_FRACTION;
    case JSON_STRING:
        return ASH_SCHEMA_STRING;
    default:
        return json_is_array(value) ? ASH_SCHEMA_ARRAY : ASH_SCHEMA_OBJECT;
    }
}

/* JSON schema compares numbers by value. */
static bool is_same(const json_t *left, const json_t *right)
{
    if (json_is_number(left) && json_is_number(right)) return json_number_value(left) == json_number_value(right);
    return json_equal((json_t *)(uintptr_t)left, (json_t *)(uintptr_t)right) == 1;
}

static bool is_listed(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_same(json_array_get(list, i), value)) return true;
    return false;
}

/* A keyword next to the list that says something of arrays or objects. */
static const char *structure_keyword(const json_t *part)
{
    static const char *const names[] = {
        "properties",    "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
        "maxProperties", "items",    "prefixItems",          "minItems",          "maxItems"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_object_get(part, names[i]) != NULL) return names[i];
    return NULL;
}

/* Does value fit every part of the set? 1, 0 or a negative errno. */
static int fits(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types, const json_t *value)
{
    unsigned type = type_of(value);

    if ((type & types) == 0) return 0;
    for (size_t i = 0; i < set->count; i++) {
        const json_t *part = set->parts[i].schema, *list = json_object_get(part, "enum");
        const json_t *single = json_object_get(part, "const");
        const char *keyword = structure_keyword(part);
        if ((list != NULL && !is_listed(list, value)) || (single != NULL && !is_same(single, value))) return 0;
        if (keyword != NULL && (type & (ASH_SCHEMA_ARRAY | ASH_SCHEMA_OBJECT)) != 0)
            return ash_schema_fail(schema, -ENOTSUP, part, keyword,
                                   "is not supported together with enum or const of arrays or "
                                   "objects");
    }
    if (type == ASH_SCHEMA_STRING)
        return ash_schema_fits_string(schema, set, json_string_value(value), json_string_length(value));
    if (json_is_number(value)) return ash_schema_fits_number(schema, set, value);
    return 1;
}

/* The list to begin with, as an array that the caller owns. */
static json_t *first_list(const struct ash_schema_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        json_t *list = json_object_get(set->parts[i].schema, "enum");
        json_t *single = json_object_get(set->parts[i].schema, "const");
        if (single != NULL) return json_pack("[O]", single);
        if (list != NULL) return json_incref(list);
    }
    return NULL;
}

/* Most listed values are strings: they share beginnings. Others are drawn one by one. */
static int draw_strings(struct ash_schema *schema, json_t *const *values, size_t count, struct ash_schema_place place)
{
    struct ash_pda_text *texts = calloc(count + 1, sizeof(*texts));
    int rc = texts == NULL ? -ENOMEM : 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        texts[i].bytes = json_dumps(values[i], JSON_ENCODE_ANY);
        if (texts[i].bytes == NULL)
            rc = -ENOMEM;
        else
            texts[i].size_bytes = strlen(texts[i].bytes);
    }
    if (rc == 0 && count > 0) ash_pda_add_choice(schema->draft, place.from, place.to, texts, count);
    for (size_t i = 0; texts != NULL && i < count; i++)
        free((void *)(uintptr_t)texts[i].bytes);
    free(texts);
    return rc < 0 ? ash_err_set(schema->err, rc, "out of memory for a grammar") : 0;
}

int ash_schema_draw_values(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                           struct ash_schema_place place)
{
    json_t *list = first_list(set), *value;
    size_t index, count = 0;
    json_t **strings = calloc(json_array_size(list) + 1, sizeof(json_t *));
    int rc = list == NULL || strings == NULL ? ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar") : 0;

    json_array_foreach(list, index, value) {
        int fit = rc < 0 ? rc : fits(schema, set, types, value);
        if (fit < 0) rc = fit;
        if (fit <= 0) continue;
        if (json_is_string(value))
            strings[count++] = value;
        else
            rc = ash_schema_draw_json(schema, value, place);
    }
    if (rc == 0) rc = draw_strings(schema, strings, count, place);
    free(strings);
    json_decref(list);
    return rc;
}
