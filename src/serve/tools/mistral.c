/* [TOOL_CALLS], then an array of objects, or in newer models a name, [ARGS] perhaps, and the arguments; the parser
 * takes both. */
#include "serve/tools/tools_priv.h"

#include <errno.h>
#include <string.h>

enum { FIRST, OBJECTS, OBJECT, NAME, ARGUMENTS, AFTER };

static void start(struct ash_tool_parser *parser)
{
    ash_tool_object_reset(&parser->object, false);
}

static enum ash_tool_step fail(struct ash_tool_parser *parser)
{
    if (parser->rc == 0) parser->rc = -ENOMEM;
    return ASH_TOOL_ERROR;
}

/* The name is known: its arguments begin. */
static enum ash_tool_step begin(struct ash_tool_parser *parser)
{
    parser->state = ARGUMENTS;
    parser->value = (struct ash_tool_value){0};
    if (parser->word.size_bytes == 0) return ASH_TOOL_NOT_ONE;
    return ash_tool_begin(parser, parser->word.data) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

/* Does word end in mark? Then it is taken off. */
static bool cut_mark(struct ash_str *word, const char *mark)
{
    char *found = word->size_bytes > 0 ? strstr(word->data, mark) : NULL;

    if (found == NULL) return false;
    *found = '\0';
    word->size_bytes = (size_t)(found - word->data);
    return true;
}

/* name, name[ARGS], name[CALL_ID]id[ARGS]. */
static enum ash_tool_step take_name(struct ash_tool_parser *parser, char c)
{
    if (c == '{' && (parser->word.size_bytes == 0 || strchr(parser->word.data, '[') == NULL)) {
        enum ash_tool_step step = begin(parser);
        return step != ASH_TOOL_MORE ? step : parser->ops->take(parser, c);
    }
    if (parser->word.size_bytes > 256 || c == '\0' || c == '\n') return ASH_TOOL_NOT_ONE;
    if (ash_str_add(&parser->word, &c, 1) < 0) return fail(parser);
    if (c != ']' || !cut_mark(&parser->word, ASH_MISTRAL_ARGS)) return ASH_TOOL_MORE;
    cut_mark(&parser->word, ASH_MISTRAL_CALL_ID);
    return begin(parser);
}

static enum ash_tool_step take_arguments(struct ash_tool_parser *parser, char c)
{
    enum ash_tool_step step = ash_tool_value_take(&parser->value, c);

    if (step == ASH_TOOL_NOT_ONE || step == ASH_TOOL_AGAIN) return step;
    if (parser->value.has_begun && ash_tool_argue(parser, &c, 1) < 0) return ASH_TOOL_ERROR;
    if (step == ASH_TOOL_MORE) return step;
    parser->state = AFTER;
    ash_str_clear(&parser->word);
    return ash_tool_end(parser) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

/* After the arguments: another call, with its mark again. */
static enum ash_tool_step take_after(struct ash_tool_parser *parser, char c)
{
    static const char *const marks[] = {ASH_MISTRAL_CALLS, NULL};
    int found;

    if (parser->word.size_bytes == 0 && ash_tool_is_space(c)) return ASH_TOOL_MORE;
    if (ash_str_add(&parser->word, &c, 1) < 0) return fail(parser);
    found = ash_tool_match(&parser->word, marks);
    if (found == -2) return ASH_TOOL_NOT_ONE;
    if (found < 0) return ASH_TOOL_MORE;
    ash_str_clear(&parser->word);
    parser->state = FIRST;
    return ASH_TOOL_MORE;
}

static enum ash_tool_step take_objects(struct ash_tool_parser *parser, char c)
{
    enum ash_tool_step step;

    if (parser->state == OBJECTS) {
        if (c == ']') return ASH_TOOL_DONE;
        if (c != '{') return c == ',' || ash_tool_is_space(c) ? ASH_TOOL_MORE : ASH_TOOL_NOT_ONE;
        ash_tool_object_reset(&parser->object, false);
        parser->state = OBJECT;
    }
    step = ash_tool_object_take(parser, &parser->object, c);
    if (step == ASH_TOOL_DONE) parser->state = OBJECTS;
    return step == ASH_TOOL_DONE ? ASH_TOOL_MORE : step;
}

static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    switch (parser->state) {
    case FIRST:
        if (ash_tool_is_space(c)) return ASH_TOOL_MORE;
        parser->state = c == '[' ? OBJECTS : NAME;
        return c == '[' ? ASH_TOOL_MORE : take_name(parser, c);
    case NAME:
        return take_name(parser, c);
    case ARGUMENTS:
        return take_arguments(parser, c);
    case AFTER:
        return take_after(parser, c);
    default:
        return take_objects(parser, c);
    }
}

const struct ash_tool_format_ops ash_tool_mistral_ops = {
    .mark = ASH_MISTRAL_CALLS, .start = start, .take = take, .id_bytes = 9};
