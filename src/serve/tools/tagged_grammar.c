/* Grammars of calls in tags: parameters in the order of the schema's properties. A value that may be a string is any
 * text up to its closing tag, or one of the listed ones if it can be nothing else; all others are JSON of their
 * schemas. */
#include <errno.h>
#include <string.h>

#include "serve/grammar/schema.h"
#include "serve/tools/tagged.h"
#include "serve/tools/tool_draw.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The end of a value. */
static uint32_t close_value(struct ash_tool_builder *builder, const struct ash_tool_tags *tags, uint32_t at)
{
    return ash_tool_draw_mark(builder, at, tags->line_close != NULL ? tags->line_close : tags->value_close);
}

/* JSON of a schema, whose references are in root. */
static int draw_json(struct ash_tool_builder *builder, const json_t *schema, const json_t *root, uint32_t from,
                     uint32_t to)
{
    static const char *const places[] = {"$defs", "definitions"};
    json_t *whole = json_is_object(schema) ? json_copy((json_t *)(uintptr_t)schema) : json_object();
    int rc;

    for (size_t i = 0; i < 2; i++)
        if (json_object_get(whole, places[i]) == NULL && json_object_get(root, places[i]) != NULL)
            json_object_set(whole, places[i], json_object_get(root, places[i]));
    rc = whole == NULL ? ash_err_set(builder->err, -ENOMEM, "out of memory for a grammar")
                       : ash_schema_draw(whole, &builder->grammar, builder->draft, from, to, builder->err);
    json_decref(whole);
    return rc;
}

/* One of the listed strings, as they are. */
static uint32_t draw_listed(struct ash_tool_builder *builder, const json_t *list, uint32_t from)
{
    uint32_t to = ash_pda_add_state(builder->draft);

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);

        ash_pda_add_text(builder->draft, from, to, json_string_value(value), json_string_length(value));
    }
    return to;
}

/* A string without quotes, and its end. */
static uint32_t draw_text(struct ash_tool_builder *builder, const struct ash_tool_tags *tags, const json_t *schema,
                          uint32_t from)
{
    const json_t *list = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");

    if (json_array_size(list) > 0) return close_value(builder, tags, draw_listed(builder, list, from));
    if (value != NULL) return close_value(builder, tags, ash_tool_draw_text(builder, from, json_string_value(value)));
    return ash_tool_draw_until(builder, ash_tool_draw_text(builder, from, ""), tags->value_close, ASH_PDA_UNBOUNDED);
}

/* A value of the schema from its opening to its closing tag; *to_out is the state after it. */
static int draw_value(struct ash_tool_builder *builder, const json_t *schema, const json_t *root, uint32_t from,
                      uint32_t *to_out)
{
    const struct ash_tool_tags *tags = ash_tool_tags_get(builder->opts->format);
    unsigned types = ash_tool_types_in(schema, root);
    bool is_text = types == ASH_TOOL_TYPE_STRING, may_be_text = (types & ASH_TOOL_TYPE_STRING) != 0;
    uint32_t to = ash_pda_add_state(builder->draft), at, end;
    int rc;

    *to_out = to;
    if (may_be_text) {
        at = tags->kind_close != NULL ? ash_tool_draw_text(builder, from, " string=\"true\">") : from;
        ash_pda_add_empty(builder->draft, draw_text(builder, tags, is_text ? schema : NULL, at), to);
        if (is_text || tags->kind_close == NULL) return 0;
    }
    at = tags->kind_close != NULL ? ash_tool_draw_text(builder, from, " string=\"false\">") : from;
    end = ash_pda_add_state(builder->draft);
    rc = draw_json(builder, schema, root, at, end);
    ash_pda_add_empty(builder->draft, close_value(builder, tags, end), to);
    return rc;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The tags before a value; key NULL: any name. */
static uint32_t draw_key(struct ash_tool_builder *builder, const struct ash_tool_tags *tags, const char *key,
                         uint32_t from)
{
    uint32_t at = ash_tool_draw_mark(builder, from, tags->key_open), to;

    if (key != NULL) {
        at = ash_tool_draw_text(builder, at, key);
    } else {
        to = ash_pda_add_state(builder->draft);
        ash_pda_add_bytes(builder->draft, at, to, 'a', 'z');
        ash_pda_add_bytes(builder->draft, at, to, 'A', 'Z');
        ash_pda_add_bytes(builder->draft, to, to, 'a', 'z');
        ash_pda_add_bytes(builder->draft, to, to, 'A', 'Z');
        ash_pda_add_bytes(builder->draft, to, to, '0', '9');
        ash_pda_add_bytes(builder->draft, to, to, '_', '_');
        at = to;
    }
    at = ash_tool_draw_mark(builder, at, tags->key_close);
    if (tags->line_close != NULL) at = ash_tool_draw_text(builder, at, "\n");
    if (tags->value_open != NULL) at = ash_tool_draw_mark(builder, ash_tool_draw_line(builder, at), tags->value_open);
    return at;
}

/* What stands between parameters. */
static uint32_t draw_gap(struct ash_tool_builder *builder, const struct ash_tool_tags *tags, uint32_t from)
{
    return tags->value_open != NULL ? ash_tool_draw_line(builder, from) : ash_tool_draw_text(builder, from, "\n");
}

static int draw_parameter(struct ash_tool_builder *builder, const char *key, const json_t *schema, const json_t *root,
                          uint32_t from, uint32_t *to_out)
{
    const struct ash_tool_tags *tags = ash_tool_tags_get(builder->opts->format);
    uint32_t to = 0;
    int rc = draw_value(builder, schema, root, draw_key(builder, tags, key, from), &to);

    *to_out = draw_gap(builder, tags, to);
    return rc;
}

static bool is_required(const json_t *schema, const char *key)
{
    const json_t *list = json_object_get(schema, "required");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));

        if (name != NULL && strcmp(name, key) == 0) return true;
    }
    return false;
}

int ash_tool_draw_parameters(struct ash_tool_builder *builder, const json_t *schema, uint32_t rule)
{
    json_t *properties = json_object_get(schema, "properties"),
           *other = json_object_get(schema, "additionalProperties");
    uint32_t at = ash_tool_draw_text(builder, ash_pda_rule_start(builder->draft, rule), ""), to;
    const char *key;
    json_t *value;
    int rc = 0;

    json_object_foreach(properties, key, value) {
        uint32_t next = ash_pda_add_state(builder->draft);

        rc = draw_parameter(builder, key, value, schema, at, &to);
        if (rc < 0) return rc;
        ash_pda_add_empty(builder->draft, to, next);
        if (!is_required(schema, key)) ash_pda_add_empty(builder->draft, at, next);
        at = next;
    }
    if (json_is_true(other) || json_is_object(other) || (properties == NULL && !json_is_false(other))) {
        rc = draw_parameter(builder, NULL, other, schema, at, &to);
        ash_pda_add_empty(builder->draft, to, at);
    }
    ash_pda_add_empty(builder->draft, at, ash_pda_rule_end(builder->draft, rule));
    return rc;
}
