/* DeepSeek's calls: a section of calls, each between its own marks, with the name and the arguments at either side of a
 * separator. V3 and R1 have "function" before it, and the name and a fenced block after it. */
#include "serve/tools/tools_priv.h"

#include <errno.h>
#include <string.h>

#define NAME_BYTES_MAX 256

enum { BETWEEN, HEAD, NAME, BEFORE_ARGUMENTS, ARGUMENTS, AFTER_ARGUMENTS };

static void start(struct ash_tool_parser *parser)
{
    (void)parser;
}

/* c onto the word; does it end in mark now? */
static bool ends_in(struct ash_tool_parser *parser, char c, const char *mark)
{
    struct ash_str *word = &parser->word;
    size_t size = strlen(mark);

    if (ash_str_add(word, &c, 1) < 0) {
        parser->rc = -ENOMEM;
        return false;
    }
    return word->size_bytes >= size && memcmp(word->data + word->size_bytes - size, mark, size) == 0;
}

static enum ash_tool_step after_word(const struct ash_tool_parser *parser)
{
    if (parser->rc < 0) return ASH_TOOL_ERROR;
    return parser->word.size_bytes > NAME_BYTES_MAX ? ASH_TOOL_NOT_ONE : ASH_TOOL_MORE;
}

/* The word without the last `cut` bytes is the name. */
static enum ash_tool_step begin(struct ash_tool_parser *parser, size_t cut)
{
    struct ash_str *word = &parser->word;

    word->size_bytes -= cut;
    while (word->size_bytes > 0 && ash_tool_is_space(word->data[word->size_bytes - 1]))
        word->size_bytes--;
    word->data[word->size_bytes] = '\0';
    if (strlen(word->data) != word->size_bytes || word->size_bytes == 0) return ASH_TOOL_NOT_ONE;
    parser->state = BEFORE_ARGUMENTS;
    parser->value = (struct ash_tool_value){0};
    return ash_tool_begin(parser, word->data) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

/* Between calls: the mark of the next one, or of the end. */
static enum ash_tool_step take_between(struct ash_tool_parser *parser, char c)
{
    static const char *const marks[] = {ASH_DEEPSEEK_CALL_BEGIN, ASH_DEEPSEEK_CALLS_END, NULL};
    int found;

    if (parser->word.size_bytes == 0 && ash_tool_is_space(c)) return ASH_TOOL_MORE;
    if (ash_str_add(&parser->word, &c, 1) < 0) {
        parser->rc = -ENOMEM;
        return ASH_TOOL_ERROR;
    }
    found = ash_tool_match(&parser->word, marks);
    if (found == -2) return ASH_TOOL_NOT_ONE;
    if (found == 1) return ASH_TOOL_DONE;
    if (found == 0) {
        ash_str_clear(&parser->word);
        parser->state = HEAD;
    }
    return ASH_TOOL_MORE;
}

/* Up to the separator: the name, or in older models the type of the tool. */
static enum ash_tool_step take_head(struct ash_tool_parser *parser, char c)
{
    size_t sep = strlen(ASH_DEEPSEEK_SEP);

    if (!ends_in(parser, c, ASH_DEEPSEEK_SEP)) return after_word(parser);
    if (parser->word.size_bytes == sep + 8 && memcmp(parser->word.data, "function", 8) == 0) {
        ash_str_clear(&parser->word);
        parser->state = NAME;
        return ASH_TOOL_MORE;
    }
    return begin(parser, sep);
}

static enum ash_tool_step take_name(struct ash_tool_parser *parser, char c)
{
    return ends_in(parser, c, "\n") ? begin(parser, 1) : after_word(parser);
}

static enum ash_tool_step take_arguments(struct ash_tool_parser *parser, char c)
{
    enum ash_tool_step step;

    if (parser->state == BEFORE_ARGUMENTS && c != '{') { /* a fence, or nothing */
        if (ends_in(parser, c, ASH_DEEPSEEK_CALL_END)) parser->state = BETWEEN;
        if (parser->rc < 0) return ASH_TOOL_ERROR;
        if (parser->state == BETWEEN) ash_str_clear(&parser->word);
        return parser->state == BETWEEN && ash_tool_end(parser) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
    }
    parser->state = ARGUMENTS;
    step = ash_tool_value_take(&parser->value, c);
    if (ash_tool_argue(parser, &c, 1) < 0) return ASH_TOOL_ERROR;
    if (step != ASH_TOOL_DONE) return ASH_TOOL_MORE;
    parser->state = AFTER_ARGUMENTS;
    ash_str_clear(&parser->word);
    return ash_tool_end(parser) < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    switch (parser->state) {
    case BETWEEN:
        return take_between(parser, c);
    case HEAD:
        return take_head(parser, c);
    case NAME:
        return take_name(parser, c);
    case AFTER_ARGUMENTS:
        if (!ends_in(parser, c, ASH_DEEPSEEK_CALL_END)) return parser->rc < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
        ash_str_clear(&parser->word);
        parser->state = BETWEEN;
        return ASH_TOOL_MORE;
    default:
        return take_arguments(parser, c);
    }
}

const struct ash_tool_format_ops ash_tool_deepseek_ops = {
    .mark = ASH_DEEPSEEK_CALLS_BEGIN, .start = start, .take = take};
