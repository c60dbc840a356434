/* Calls in tags, as Qwen3-Coder, DeepSeek V3.2 and GLM write them: a name, then parameters one by one, whose values are
 * texts as they are or JSON. The arguments become the JSON object that they mean: texts that the schema (or the tag)
 * calls strings go out as they come, all others when they are whole. */
#include "serve/tools/tagged.h"

#include <errno.h>
#include <string.h>

#include "serve/tools/tools_priv.h"

#define NAME_BYTES_MAX 256
#define LOAD_FLAGS (JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL) /* integers of any size */

enum { SECTION, NAME, PARAMETERS, KEY, KIND, BEFORE_VALUE, VALUE };

static const struct ash_tool_tags qwen = {.open = ASH_HERMES_OPEN,
                                          .call_open = "<function=",
                                          .name_close = ">",
                                          .key_open = "<parameter=",
                                          .key_close = ">",
                                          .value_close = "</parameter>",
                                          .call_close = "</function>",
                                          .close = ASH_HERMES_CLOSE,
                                          .line_close = "\n</parameter>"},
                                  deepseek_v32 = {.open = ASH_DSML_CALLS,
                                                  .call_open = "<｜DSML｜invoke name=\"",
                                                  .name_close = "\">",
                                                  .key_open = "<｜DSML｜parameter name=\"",
                                                  .key_close = "\"",
                                                  .kind_close = "\">",
                                                  .value_close = "</｜DSML｜parameter>",
                                                  .call_close = "</｜DSML｜invoke>",
                                                  .close = "</｜DSML｜function_calls>"},
                                  deepseek_v4 = {.open = ASH_DSML4_CALLS,
                                                 .call_open = "<｜DSML｜invoke name=\"",
                                                 .name_close = "\">",
                                                 .key_open = "<｜DSML｜parameter name=\"",
                                                 .key_close = "\"",
                                                 .kind_close = "\">",
                                                 .value_close = "</｜DSML｜parameter>",
                                                 .call_close = "</｜DSML｜invoke>",
                                                 .close = "</｜DSML｜tool_calls>"},
                                  glm = {.open = ASH_HERMES_OPEN,
                                         .key_open = "<arg_key>",
                                         .key_close = "</arg_key>",
                                         .value_open = "<arg_value>",
                                         .value_close = "</arg_value>",
                                         .call_close = ASH_HERMES_CLOSE};

const struct ash_tool_tags *ash_tool_tags_get(enum ash_tool_format format)
{
    switch (format) {
    case ASH_TOOLS_QWEN3_CODER:
        return &qwen;
    case ASH_TOOLS_DEEPSEEK_V32:
        return &deepseek_v32;
    case ASH_TOOLS_DEEPSEEK_V4:
        return &deepseek_v4;
    case ASH_TOOLS_GLM:
        return &glm;
    default:
        return NULL;
    }
}

/* ---- the object that the parameters mean ------------------------------------------------------------------------- */

static enum ash_tool_step checked(struct ash_tool_parser *parser, int rc)
{
    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc < 0 ? ASH_TOOL_ERROR : ASH_TOOL_MORE;
}

/* Bytes of a JSON string. */
static int argue_escaped(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    static const char hex[] = "0123456789abcdef";
    int rc = 0;

    for (size_t i = 0; i < size_bytes && rc == 0; i++) {
        uint8_t c = (uint8_t)text[i];
        char unit[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

        if (c == '"' || c == '\\')
            rc = ash_tool_argue(parser, (const char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            rc = ash_tool_argue(parser, "\\n", 2);
        else if (c < 0x20)
            rc = ash_tool_argue(parser, unit, sizeof(unit));
        else
            rc = ash_tool_argue(parser, &text[i], 1);
    }
    return rc;
}

static int argue_string(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    int rc = ash_tool_argue(parser, "\"", 1);

    if (rc == 0) rc = argue_escaped(parser, text, size_bytes);
    return rc == 0 ? ash_tool_argue(parser, "\"", 1) : rc;
}

/* The JSON of Python's words: templates in Jinja write them, and models learn them. */
static const char *json_word(const char *text, size_t size_bytes)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};

    for (size_t i = 0; i < 3; i++)
        if (strlen(words[i][0]) == size_bytes && memcmp(words[i][0], text, size_bytes) == 0) return words[i][1];
    return NULL;
}

/* A whole value that the schema does not call a string alone. */
static int argue_value(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    unsigned types = parser->param.types;
    const char *word = json_word(text, size_bytes);
    json_t *json = word != NULL ? json_loads(word, LOAD_FLAGS, NULL) : json_loadb(text, size_bytes, LOAD_FLAGS, NULL);
    bool is_json = json != NULL && ((types & ash_tool_type_of(json)) != 0 || (types & ASH_TOOL_TYPE_STRING) == 0);

    if (json_is_string(json) && (types & ASH_TOOL_TYPE_STRING) != 0) is_json = parser->param.is_json;
    if (word != NULL && types == ASH_TOOL_TYPES_ALL) is_json = false;
    json_decref(json);
    if (!is_json) return argue_string(parser, text, size_bytes);
    return word != NULL ? ash_tool_argue(parser, word, strlen(word)) : ash_tool_argue(parser, text, size_bytes);
}

/* The word without its last `cut` bytes and the space around it. */
static void trim_word(struct ash_str *word, size_t cut)
{
    size_t begin = 0;

    word->size_bytes -= cut;
    while (word->size_bytes > 0 && ash_tool_is_space(word->data[word->size_bytes - 1]))
        word->size_bytes--;
    while (begin < word->size_bytes && ash_tool_is_space(word->data[begin]))
        begin++;
    word->size_bytes -= begin;
    memmove(word->data, word->data + begin, word->size_bytes);
    word->data[word->size_bytes] = '\0';
}

/* ---- names and keys ---------------------------------------------------------------------------------------------- */

/* The word is a name, if it looks like one. */
static enum ash_tool_step begin_call(struct ash_tool_parser *parser, size_t cut)
{
    struct ash_str *word = &parser->word;

    if (word->size_bytes > 0) trim_word(word, cut);
    if (word->size_bytes == 0 || strcspn(word->data, " \n\r\t\"{}<>") != word->size_bytes) return ASH_TOOL_NOT_ONE;
    parser->param = (struct ash_tool_param){.tool = ash_tool_find(parser, word->data)};
    parser->state = PARAMETERS;
    if (ash_tool_begin(parser, word->data) < 0) return ASH_TOOL_ERROR;
    ash_str_clear(word);
    return ASH_TOOL_MORE;
}

static bool word_ends_in(const struct ash_str *word, const char *mark)
{
    size_t size = strlen(mark);

    return word->size_bytes >= size && memcmp(word->data + word->size_bytes - size, mark, size) == 0;
}

static enum ash_tool_step take_parameters(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c);

/* Without a mark of its end, a name is a line, or ends before the next tag. */
static enum ash_tool_step take_name(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    enum ash_tool_step step;

    if (tags->name_close == NULL && (c == '<' || (c == '\n' && parser->word.size_bytes > 0))) {
        step = begin_call(parser, 0);
        return step == ASH_TOOL_MORE ? take_parameters(parser, tags, c) : step;
    }
    if (parser->word.size_bytes == 0 && ash_tool_is_space(c)) return ASH_TOOL_MORE;
    if (ash_str_add(&parser->word, &c, 1) < 0) return checked(parser, -ENOMEM);
    if (tags->name_close != NULL && word_ends_in(&parser->word, tags->name_close))
        return begin_call(parser, strlen(tags->name_close));
    return parser->word.size_bytes > NAME_BYTES_MAX ? ASH_TOOL_NOT_ONE : ASH_TOOL_MORE;
}

/* A key is known: its value comes next. */
static enum ash_tool_step begin_value(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, unsigned types,
                                      bool is_json)
{
    int rc = 0;

    parser->param.types = types;
    parser->param.is_json = is_json;
    parser->param.is_first = true;
    parser->state = tags->value_open != NULL ? BEFORE_VALUE : VALUE;
    ash_str_clear(&parser->word);
    ash_str_clear(&parser->object.held);
    if (types == ASH_TOOL_TYPE_STRING) rc = ash_tool_argue(parser, "\"", 1);
    return checked(parser, rc);
}

static enum ash_tool_step take_key(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    struct ash_str *word = &parser->word;
    int rc = ash_str_add(word, &c, 1);

    if (rc < 0 || !word_ends_in(word, tags->key_close)) return checked(parser, rc);
    trim_word(word, strlen(tags->key_close));
    rc = parser->param.count == 0 ? ash_tool_argue(parser, "{", 1) : ash_tool_argue(parser, ", ", 2);
    parser->param.count++;
    if (rc == 0) rc = argue_string(parser, word->data, word->size_bytes);
    if (rc == 0) rc = ash_tool_argue(parser, ": ", 2);
    if (rc < 0) return checked(parser, rc);
    parser->param.types = ash_tool_types_of(parser->param.tool, word->data);
    if (tags->kind_close == NULL) return begin_value(parser, tags, parser->param.types, false);
    ash_str_clear(word);
    parser->state = KIND;
    return ASH_TOOL_MORE;
}

/* string="true" or string="false", if the tag says so. */
static enum ash_tool_step take_kind(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    struct ash_str *word = &parser->word;

    if (ash_str_add(word, &c, 1) < 0) return checked(parser, -ENOMEM);
    if (c != '>') return ASH_TOOL_MORE;
    if (strstr(word->data, "=\"true\"") != NULL) return begin_value(parser, tags, ASH_TOOL_TYPE_STRING, false);
    if (strstr(word->data, "=\"false\"") != NULL) return begin_value(parser, tags, ASH_TOOL_TYPES_ALL, true);
    return begin_value(parser, tags, parser->param.types, false);
}

/* ---- tags -------------------------------------------------------------------------------------------------------- */

/* Space, then one of two marks (either may be NULL, the first is never). Its index, -1: not yet, -2: neither. */
static int take_mark(struct ash_tool_parser *parser, const char *first, const char *second, char c)
{
    const char *marks[] = {first, second, NULL};
    int found;

    if (parser->word.size_bytes == 0 && ash_tool_is_space(c)) return -1;
    if (ash_str_add(&parser->word, &c, 1) < 0) {
        parser->rc = -ENOMEM;
        return -1;
    }
    found = ash_tool_match(&parser->word, marks);
    if (found != -1) ash_str_clear(&parser->word);
    return found;
}

static enum ash_tool_step take_section(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    int found = take_mark(parser, tags->call_open, tags->close, c);

    if (parser->rc < 0) return ASH_TOOL_ERROR;
    if (found == -2) return ASH_TOOL_NOT_ONE;
    if (found == 1) return ASH_TOOL_DONE;
    if (found == 0) parser->state = NAME;
    return ASH_TOOL_MORE;
}

/* Text between parameters means nothing: a model that writes it is forgiven. */
static enum ash_tool_step take_parameters(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    int found = take_mark(parser, tags->key_open, tags->call_close, c);

    if (parser->rc < 0) return ASH_TOOL_ERROR;
    if (found == -2 && c == '<') return checked(parser, ash_str_add(&parser->word, &c, 1));
    if (found == 0) parser->state = KEY;
    if (found != 1) return ASH_TOOL_MORE;
    if (parser->param.count > 0 && ash_tool_argue(parser, "}", 1) < 0) return ASH_TOOL_ERROR;
    if (ash_tool_end(parser) < 0) return ASH_TOOL_ERROR;
    parser->state = SECTION;
    return tags->close != NULL ? ASH_TOOL_MORE : ASH_TOOL_DONE;
}

static enum ash_tool_step take_before_value(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    int found = take_mark(parser, tags->value_open, NULL, c);

    if (parser->rc < 0) return ASH_TOOL_ERROR;
    if (found == -2 && c == '<') return checked(parser, ash_str_add(&parser->word, &c, 1));
    if (found == 0) parser->state = VALUE;
    return ASH_TOOL_MORE;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int put_value(struct ash_tool_parser *parser, char c)
{
    if (parser->param.types == ASH_TOOL_TYPE_STRING) return argue_escaped(parser, &c, 1);
    return ash_str_add(&parser->object.held, &c, 1);
}

static int end_value(struct ash_tool_parser *parser)
{
    struct ash_str *held = &parser->object.held;

    ash_str_clear(&parser->word);
    parser->state = PARAMETERS;
    if (parser->param.types == ASH_TOOL_TYPE_STRING) return ash_tool_argue(parser, "\"", 1);
    return argue_value(parser, held->data != NULL ? held->data : "", held->size_bytes);
}

/* The word is held back while the closing tag may begin in it, with the newline before it if values have lines. */
static enum ash_tool_step take_value(struct ash_tool_parser *parser, const struct ash_tool_tags *tags, char c)
{
    const char *marks[] = {tags->value_close, tags->line_close, NULL};
    struct ash_str *word = &parser->word;
    bool was_first = parser->param.is_first;
    int rc, found;

    parser->param.is_first = false;
    if (was_first && tags->line_close != NULL && c == '\n') return ASH_TOOL_MORE;
    rc = ash_str_add(word, &c, 1);
    while (rc == 0 && word->size_bytes > 0 && (found = ash_tool_match(word, marks)) != -1) {
        if (found >= 0) {
            rc = end_value(parser);
            break;
        }
        rc = put_value(parser, word->data[0]);
        word->size_bytes--;
        memmove(word->data, word->data + 1, word->size_bytes + 1);
    }
    return checked(parser, rc);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void start(struct ash_tool_parser *parser)
{
    parser->state = ash_tool_tags_get(parser->opts.format)->call_open != NULL ? SECTION : NAME;
}

static enum ash_tool_step take(struct ash_tool_parser *parser, char c)
{
    static enum ash_tool_step (*const states[])(struct ash_tool_parser * parser, const struct ash_tool_tags *tags,
                                                char c) = {take_section, take_name,         take_parameters, take_key,
                                                           take_kind,    take_before_value, take_value};

    return states[parser->state](parser, ash_tool_tags_get(parser->opts.format), c);
}

const struct ash_tool_format_ops ash_tool_qwen_ops = {.mark = ASH_HERMES_OPEN, .start = start, .take = take};
const struct ash_tool_format_ops ash_tool_dsml_ops = {.mark = ASH_DSML_CALLS, .start = start, .take = take};
const struct ash_tool_format_ops ash_tool_dsml4_ops = {.mark = ASH_DSML4_CALLS, .start = start, .take = take};
const struct ash_tool_format_ops ash_tool_glm_ops = {.mark = ASH_HERMES_OPEN, .start = start, .take = take};
