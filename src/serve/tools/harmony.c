/* Harmony, as gpt-oss writes: an answer is messages, each with a header that names its channel and, of calls, the
 * recipient. <|channel|>analysis<|message|> are thoughts, commentary to=functions.NAME is a call, all else is
 * content. */
#include "serve/tools/tools_priv.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES_MAX 512

enum { FIRST, HEADER, BODY, BETWEEN };

static enum ash_tool_step checked(struct ash_tool_parser *parser, int rc)
{
    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

static bool may_begin(char c)
{
    return c == '<' || c == ' ';
}

static void start(struct ash_tool_parser *parser)
{
    (void)parser;
}

/* The word after mark in text, up to a space or a tag; its size. */
static size_t word_after(const char *text, const char *mark, const char **word_out)
{
    const char *at = strstr(text, mark);

    if (at == NULL) return 0;
    *word_out = at + strlen(mark);
    return strcspn(*word_out, " <");
}

static int begin_message(struct ash_tool_parser *parser)
{
    static const char analysis[] = "analysis", functions[] = "functions.";
    const char *channel = NULL, *recipient = NULL;
    size_t channel_bytes = word_after(parser->word.data, ASH_HARMONY_CHANNEL, &channel);
    size_t recipient_bytes = word_after(parser->word.data, "to=", &recipient), skip = strlen(functions);
    bool is_thought = channel_bytes == strlen(analysis) && memcmp(channel, analysis, channel_bytes) == 0;
    char name[HEADER_BYTES_MAX + 32];
    int rc = 0;

    if (recipient_bytes <= skip || memcmp(recipient, functions, skip) != 0) skip = 0;
    parser->message_kind = is_thought ? ASH_TOOL_THOUGHT : ASH_TOOL_CONTENT;
    if (recipient_bytes > 0) {
        memcpy(name, recipient + skip, recipient_bytes - skip);
        name[recipient_bytes - skip] = '\0';
        rc = ash_tool_begin(parser, name);
    }
    ash_str_clear(&parser->word);
    parser->state = BODY;
    return rc;
}

/* Until something is sure to be a header, it may be an answer without any. */
static enum ash_tool_step take_header(struct ash_tool_parser *parser, char c)
{
    static const char *const first[] = {ASH_HARMONY_CHANNEL, ASH_HARMONY_START, " to=", NULL};
    struct ash_str *word = &parser->word;
    size_t size = strlen(ASH_HARMONY_MESSAGE);
    int found, rc = ash_str_add(word, &c, 1);

    if (rc < 0) return checked(parser, rc);
    if (parser->state == FIRST) {
        found = ash_tool_match(word, first);
        if (found == -2) return ASH_TOOL_NOT_ONE;
        if (found >= 0) parser->state = HEADER;
        return ASH_TOOL_MORE;
    }
    ash_str_clear(&parser->raw);
    if (word->size_bytes >= size && memcmp(word->data + word->size_bytes - size, ASH_HARMONY_MESSAGE, size) == 0)
        return checked(parser, begin_message(parser));
    if (word->size_bytes > HEADER_BYTES_MAX) parser->state = BETWEEN;
    return ASH_TOOL_MORE;
}

static int say(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    if (parser->is_in_call) return ash_tool_argue(parser, text, size_bytes);
    return ash_tool_say(parser, (enum ash_tool_event_kind)parser->message_kind, text, size_bytes);
}

static enum ash_tool_step take_body(struct ash_tool_parser *parser, char c)
{
    static const char *const ends[] = {ASH_HARMONY_END, ASH_HARMONY_CALL, "<|return|>", ASH_HARMONY_START, NULL};
    struct ash_str *word = &parser->word;
    int found = -1, rc = ash_str_add(word, &c, 1);

    ash_str_clear(&parser->raw);
    while (rc == 0 && word->size_bytes > 0 && (found = ash_tool_match(word, ends)) == -2) {
        rc = say(parser, word->data, 1);
        word->size_bytes--;
        memmove(word->data, word->data + 1, word->size_bytes + 1);
    }
    if (!parser->is_in_call && parser->message_kind == ASH_TOOL_THOUGHT) parser->thought_bytes = parser->taken_bytes;
    if (rc < 0 || word->size_bytes == 0 || found < 0) return checked(parser, rc);
    ash_str_clear(word);
    parser->state = found == 3 ? HEADER : BETWEEN;
    return checked(parser, ash_tool_end(parser));
}

/* Between messages there is nothing but the beginning of the next. */
static enum ash_tool_step take_between(struct ash_tool_parser *parser, char c)
{
    static const char *const marks[] = {ASH_HARMONY_START, NULL};
    int found, rc = ash_str_add(&parser->word, &c, 1);

    ash_str_clear(&parser->raw);
    found = ash_tool_match(&parser->word, marks);
    if (found != -1) ash_str_clear(&parser->word);
    if (found >= 0) parser->state = HEADER;
    if (found == -2 && c == '<' && rc == 0) rc = ash_str_add(&parser->word, &c, 1);
    return checked(parser, rc);
}

static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    if (parser->state == BODY) return take_body(parser, c);
    return parser->state == BETWEEN ? take_between(parser, c) : take_header(parser, c);
}

/* The beginning of a mark at the end of the answer is text. */
static int finish(struct ash_tool_parser *parser)
{
    if (parser->state != BODY || parser->word.size_bytes == 0) return 0;
    return say(parser, parser->word.data, parser->word.size_bytes);
}

const struct ash_tool_format_ops ash_tool_harmony_ops = {
    .may_begin = may_begin, .start = start, .take = take, .finish = finish};
