/* JSON byte by byte: where a value ends, and objects with a name and arguments in them. */
#include "serve/tools/tools_priv.h"

#include <errno.h>
#include <string.h>

static bool opens(char c)
{
    return c == '{' || c == '[' || c == '"';
}

/* Does c end a number or a word? */
static bool ends_scalar(char c)
{
    return c == '\0' || strchr(",:}]", c) != NULL || ash_tool_is_space(c);
}

static enum ash_tool_step take_in_string(struct ash_tool_value *value, char c)
{
    if (value->is_escaped)
        value->is_escaped = false;
    else if (c == '\\')
        value->is_escaped = true;
    else if (c == '"')
        value->in_string = false;
    return !value->in_string && value->depth == 0 ? ASH_TOOL_DONE : ASH_TOOL_MORE;
}

/* The first byte of a value. */
static enum ash_tool_step take_start(struct ash_tool_value *value, char c)
{
    if (ash_tool_is_space(c)) return ASH_TOOL_MORE;
    if (ends_scalar(c)) return ASH_TOOL_NOT_ONE;
    value->has_begun = true;
    value->is_scalar = !opens(c);
    value->in_string = c == '"';
    value->depth = c == '{' || c == '[';
    return ASH_TOOL_MORE;
}

enum ash_tool_step ash_tool_value_take(struct ash_tool_value *value, char c)
{
    if (value->in_string) return take_in_string(value, c);
    if (!value->has_begun) return take_start(value, c);
    if (value->is_scalar) return ends_scalar(c) ? ASH_TOOL_AGAIN : opens(c) ? ASH_TOOL_NOT_ONE : ASH_TOOL_MORE;
    if (c == '"') value->in_string = true;
    if (c == '{' || c == '[') value->depth++;
    if (c == '}' || c == ']') value->depth--;
    return value->depth == 0 ? ASH_TOOL_DONE : ASH_TOOL_MORE;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

enum { BEFORE_OBJECT, BEFORE_KEY, KEY, BEFORE_COLON, VALUE, AFTER_VALUE };
enum { OTHER, NAME, ARGUMENTS };

void ash_tool_object_reset(struct ash_tool_object *object, bool wants_known)
{
    struct ash_str key = object->key, name = object->name, held = object->held;

    ash_str_clear(&key);
    ash_str_clear(&name);
    ash_str_clear(&held);
    *object = (struct ash_tool_object){.key = key, .name = name, .held = held, .wants_known = wants_known};
}

static enum ash_tool_step fail(struct ash_tool_parser *parser, int rc)
{
    if (parser->rc == 0) parser->rc = rc;
    return ASH_TOOL_ERROR;
}

/* The call begins once enough of it is known. */
static enum ash_tool_step begin(struct ash_tool_parser *parser, struct ash_tool_object *object)
{
    json_t *name = NULL;
    int rc;

    if (object->is_begun || !object->has_name || (object->wants_known && !object->has_arguments)) return ASH_TOOL_MORE;
    name = json_loadb(object->name.data, object->name.size_bytes, JSON_DECODE_ANY, NULL);
    if (!json_is_string(name) || json_string_length(name) == 0 ||
        (object->wants_known && parser->opts.tool_count > 0 &&
         ash_tool_find(parser, json_string_value(name)) == NULL)) {
        json_decref(name);
        return ASH_TOOL_NOT_ONE;
    }
    rc = ash_tool_begin(parser, json_string_value(name));
    json_decref(name);
    if (rc == 0 && object->held.size_bytes > 0) rc = ash_tool_argue(parser, object->held.data, object->held.size_bytes);
    object->is_begun = true;
    return rc < 0 ? fail(parser, rc) : ASH_TOOL_MORE;
}

static int find_kind(const struct ash_tool_object *object)
{
    static const struct {
        const char *key;
        int kind;
    } kinds[] = {{"\"name\"", NAME}, {"\"arguments\"", ARGUMENTS}, {"\"parameters\"", ARGUMENTS}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (object->key.size_bytes == strlen(kinds[i].key) &&
            memcmp(object->key.data, kinds[i].key, object->key.size_bytes) == 0)
            return (kinds[i].kind == NAME ? object->has_name : object->has_arguments) ? OTHER : kinds[i].kind;
    return OTHER;
}

/* Keep or pass on one byte of the value at work. */
static enum ash_tool_step keep(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    int rc = 0;

    if (object->kind == NAME) rc = ash_str_add(&object->name, &c, 1);
    if (object->kind == ARGUMENTS)
        rc = object->is_begun ? ash_tool_argue(parser, &c, 1) : ash_str_add(&object->held, &c, 1);
    return rc < 0 ? fail(parser, rc) : ASH_TOOL_MORE;
}

/* The first byte of the value: of arguments, it may begin the call. */
static enum ash_tool_step start_value(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    if (object->kind == NAME) return c == '"' ? ASH_TOOL_MORE : ASH_TOOL_NOT_ONE;
    if (object->kind != ARGUMENTS) return ASH_TOOL_MORE;
    object->has_arguments = true;
    return begin(parser, object);
}

/* The value is over: of a name, it may begin the call. */
static enum ash_tool_step end_value(struct ash_tool_parser *parser, struct ash_tool_object *object)
{
    object->state = AFTER_VALUE;
    if (object->kind != NAME) return ASH_TOOL_MORE;
    object->has_name = true;
    return begin(parser, object);
}

static enum ash_tool_step take_value(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    bool was_begun = object->value.has_begun;
    enum ash_tool_step step = ash_tool_value_take(&object->value, c), kept = ASH_TOOL_MORE;

    if (step == ASH_TOOL_NOT_ONE || !object->value.has_begun) return step;
    if (!was_begun) kept = start_value(parser, object, c);
    if (kept == ASH_TOOL_MORE && step != ASH_TOOL_AGAIN) kept = keep(parser, object, c);
    if (kept != ASH_TOOL_MORE || step == ASH_TOOL_MORE) return kept;
    kept = end_value(parser, object);
    return kept == ASH_TOOL_MORE && step == ASH_TOOL_AGAIN ? ash_tool_object_take(parser, object, c) : kept;
}

static enum ash_tool_step take_key(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    if (object->state == BEFORE_KEY) {
        if (c != '"') return ASH_TOOL_NOT_ONE;
        ash_str_clear(&object->key);
        object->state = KEY;
    } else if (object->is_escaped) {
        object->is_escaped = false;
    } else if (c == '\\') {
        object->is_escaped = true;
    } else if (c == '"') {
        object->state = BEFORE_COLON;
    }
    return ash_str_add(&object->key, &c, 1) < 0 ? fail(parser, -ENOMEM) : ASH_TOOL_MORE;
}

static enum ash_tool_step take_after(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    if (c == ',') {
        object->state = BEFORE_KEY;
        return ASH_TOOL_MORE;
    }
    if (c != '}') return ASH_TOOL_NOT_ONE;
    if (!object->is_begun && (!object->has_name || object->wants_known)) return ASH_TOOL_NOT_ONE;
    return ash_tool_end(parser) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_DONE;
}

enum ash_tool_step ash_tool_object_take(struct ash_tool_parser *parser, struct ash_tool_object *object, char c)
{
    if (object->state == VALUE) return take_value(parser, object, c);
    if (object->state != KEY && ash_tool_is_space(c)) return ASH_TOOL_MORE;
    switch (object->state) {
    case BEFORE_OBJECT:
        object->state = BEFORE_KEY;
        return c == '{' ? ASH_TOOL_MORE : ASH_TOOL_NOT_ONE;
    case BEFORE_COLON:
        object->state = VALUE;
        object->value = (struct ash_tool_value){0};
        object->kind = find_kind(object);
        return c == ':' ? ASH_TOOL_MORE : ASH_TOOL_NOT_ONE;
    case AFTER_VALUE:
        return take_after(parser, object, c);
    default:
        return take_key(parser, object, c);
    }
}
