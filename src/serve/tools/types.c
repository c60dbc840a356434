/* The types that a schema allows, as far as a parser needs them: is a text without quotes a string, or JSON? */
#include "serve/tools/tagged.h"

#include <string.h>

#define DEPTH_MAX 8 /* of alternatives and references in each other */

unsigned ash_tool_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return ASH_TOOL_TYPE_OBJECT;
    case JSON_ARRAY:
        return ASH_TOOL_TYPE_ARRAY;
    case JSON_STRING:
        return ASH_TOOL_TYPE_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return ASH_TOOL_TYPE_NUMBER;
    case JSON_NULL:
        return ASH_TOOL_TYPE_NULL;
    default:
        return ASH_TOOL_TYPE_BOOLEAN;
    }
}

static unsigned type_by_name(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } known[] = {{"string", ASH_TOOL_TYPE_STRING},   {"integer", ASH_TOOL_TYPE_NUMBER},
                 {"boolean", ASH_TOOL_TYPE_BOOLEAN}, {"number", ASH_TOOL_TYPE_NUMBER},
                 {"null", ASH_TOOL_TYPE_NULL},       {"object", ASH_TOOL_TYPE_OBJECT},
                 {"array", ASH_TOOL_TYPE_ARRAY}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (json_is_string(name) && strcmp(json_string_value(name), known[i].name) == 0) return known[i].types;
    return 0;
}

/* What "#/a/b" points to in root, or NULL. */
static const json_t *follow(const json_t *root, const char *pointer)
{
    if (strncmp(pointer, "#", 1) != 0) return NULL;
    for (pointer++; root != NULL && *pointer == '/';) {
        size_t bytes = strcspn(++pointer, "/");

        root = json_object_getn(root, pointer, bytes);
        pointer += bytes;
    }
    return root;
}

static unsigned types_in(const json_t *schema, const json_t *root, int depth);

/* The types of any of a list of schemas. */
static unsigned types_of_any(const json_t *list, const json_t *root, int depth)
{
    unsigned types = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        types |= types_in(json_array_get(list, i), root, depth + 1);
    return types;
}

static unsigned types_of_values(const json_t *values)
{
    unsigned types = 0;

    for (size_t i = 0; i < json_array_size(values); i++)
        types |= ash_tool_type_of(json_array_get(values, i));
    return types;
}

static unsigned types_of_names(const json_t *type)
{
    unsigned types = type_by_name(type);

    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_by_name(json_array_get(type, i));
    return types;
}

static unsigned types_in(const json_t *schema, const json_t *root, int depth)
{
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    const json_t *all = json_object_get(schema, "allOf"), *value = json_object_get(schema, "const");
    unsigned types = ASH_TOOL_TYPES_ALL, said;

    if (depth > DEPTH_MAX || !json_is_object(schema)) return types;
    if ((said = types_of_names(json_object_get(schema, "type"))) != 0) types &= said;
    if ((said = types_of_values(json_object_get(schema, "enum"))) != 0) types &= said;
    if ((said = types_of_any(json_object_get(schema, "anyOf"), root, depth)) != 0) types &= said;
    if ((said = types_of_any(json_object_get(schema, "oneOf"), root, depth)) != 0) types &= said;
    if (value != NULL) types &= ash_tool_type_of(value);
    if (reference != NULL) types &= types_in(follow(root, reference), root, depth + 1);
    for (size_t i = 0; i < json_array_size(all); i++)
        types &= types_in(json_array_get(all, i), root, depth + 1);
    return types != 0 ? types : ASH_TOOL_TYPES_ALL;
}

unsigned ash_tool_types_in(const json_t *schema, const json_t *root)
{
    return types_in(schema, root, 0);
}

unsigned ash_tool_types_of(const struct ash_tool *tool, const char *key)
{
    const json_t *root = tool != NULL ? tool->parameters : NULL;

    return types_in(json_object_get(json_object_get(root, "properties"), key), root, 0);
}
