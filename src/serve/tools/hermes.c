/* <tool_call>{"name": ..., "arguments": ...}</tool_call>, as Hermes and Qwen write calls; one after the other. */
#include "serve/tools/tools_priv.h"

#include <errno.h>

enum { OBJECT, BEFORE_CLOSE };

static void start(struct ash_tool_parser *parser)
{
    ash_tool_object_reset(&parser->object, false);
}

/* What stands between the object and the closing mark is dropped; models forget braces. */
static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    static const char *const marks[] = {ASH_HERMES_CLOSE, NULL};
    enum ash_tool_step step;
    int found;

    if (parser->state == OBJECT) {
        step = ash_tool_object_take(parser, &parser->object, c);
        if (step == ASH_TOOL_NOT_ONE && parser->is_in_call) step = ASH_TOOL_DONE;
        if (step != ASH_TOOL_DONE) return step;
        if (ash_tool_end(parser) < 0) return ASH_TOOL_ERROR;
        parser->state = BEFORE_CLOSE;
        if (c == '}') return ASH_TOOL_MORE;
    }
    if (ash_str_add(&parser->word, &c, 1) < 0) {
        parser->rc = -ENOMEM;
        return ASH_TOOL_ERROR;
    }
    found = ash_tool_match(&parser->word, marks);
    if (found >= 0) return ASH_TOOL_DONE;
    if (found == -2) {
        ash_str_clear(&parser->word);
        if (c == ASH_HERMES_CLOSE[0] && ash_str_add(&parser->word, &c, 1) < 0) {
            parser->rc = -ENOMEM;
            return ASH_TOOL_ERROR;
        }
    }
    return ASH_TOOL_MORE;
}

const struct ash_tool_format_ops ash_tool_hermes_ops = {.mark = ASH_HERMES_OPEN, .start = start, .take = take};
