/* {"name": ..., "parameters": ...} as the whole answer, as Llama 3 writes calls; several with "; " between them. An
 * answer that begins with a brace is held back until it has a known name and its parameters begin: it may be JSON that
 * the user asked for. <|python_tag|> may stand before it. */
#include "serve/tools/tools_priv.h"

#include <errno.h>

enum { TAG, OBJECT, BETWEEN };

static bool may_begin(char c)
{
    return c == '{' || c == ASH_LLAMA_TAG[0] || ash_tool_is_space(c);
}

static void start(struct ash_tool_parser *parser)
{
    ash_tool_object_reset(&parser->object, true);
}

static enum ash_tool_step take_tag(struct ash_tool_parser *parser, char c)
{
    static const char *const marks[] = {ASH_LLAMA_TAG, "<|python_start|>", NULL};
    int found;

    if (parser->word.size_bytes == 0 && ash_tool_is_space(c)) return ASH_TOOL_MORE;
    if (parser->word.size_bytes == 0 && c == '{') {
        parser->state = OBJECT;
        return ash_tool_object_take(parser, &parser->object, c);
    }
    if (ash_str_add(&parser->word, &c, 1) < 0) {
        parser->rc = -ENOMEM;
        return ASH_TOOL_ERROR;
    }
    found = ash_tool_match(&parser->word, marks);
    if (found >= 0) parser->state = OBJECT;
    return found == -2 ? ASH_TOOL_NOT_ONE : ASH_TOOL_MORE;
}

static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    enum ash_tool_step step;

    if (parser->state == TAG) return take_tag(parser, c);
    if (parser->state == BETWEEN) {
        if (c != '{') return c == ';' || c == ',' || ash_tool_is_space(c) ? ASH_TOOL_MORE : ASH_TOOL_NOT_ONE;
        ash_tool_object_reset(&parser->object, true);
        parser->state = OBJECT;
    }
    step = ash_tool_object_take(parser, &parser->object, c);
    if (step != ASH_TOOL_DONE) return step;
    parser->state = BETWEEN;
    return ASH_TOOL_MORE;
}

const struct ash_tool_format_ops ash_tool_llama3_ops = {.may_begin = may_begin, .start = start, .take = take};
