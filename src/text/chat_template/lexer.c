/* Templates to tokens. White space around tags follows Jinja's own rules, with trim_blocks and lstrip_blocks on: a
 * block tag takes the newline after it and the blanks before it on its line; - takes all white space on its side, +
 * takes none. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define NUMBER_BYTES_MAX 64

struct lexer {
    struct ash_arena *arena;
    struct ash_jinja_tokens *tokens;
    struct ash_err *err;
    const char *begin, *at, *end;
    bool line_starting; /* nothing of the present line has been seen */
    int nesting;        /* brackets open inside the present tag */
    int line;           /* at counted */
    const char *counted;
};

/* ---- messages and tokens ----------------------------------------------------------------------------------------- */

static int line_of(const struct lexer *lexer, const char *place)
{
    int line = 1;

    for (const char *at = lexer->begin; at < place; at++)
        line += *at == '\n';
    return line;
}

static int fail(const struct lexer *lexer, const char *place, const char *what)
{
    return ash_err_set(lexer->err, -EINVAL, "line %d: %s", line_of(lexer, place), what);
}

static int out_of_memory(const struct lexer *lexer)
{
    return ash_err_set(lexer->err, -ENOMEM, "out of memory for a template");
}

static int add(struct lexer *lexer, struct ash_jinja_token token)
{
    struct ash_jinja_tokens *tokens = lexer->tokens;

    ash_assert(tokens->count <= tokens->capacity);
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity > 0 ? tokens->capacity * 2 : 256;
        struct ash_jinja_token *grown = ash_arena_alloc(lexer->arena, capacity * sizeof(*grown));
        if (grown == NULL) return out_of_memory(lexer);
        if (tokens->count > 0) memcpy(grown, tokens->items, tokens->count * sizeof(*grown));
        tokens->items = grown;
        tokens->capacity = capacity;
    }
    tokens->items[tokens->count++] = token;
    return 0;
}

/* Lines are counted once, token after token: places only ever grow. */
static int add_at(struct lexer *lexer, enum ash_jinja_token_kind kind, const char *from, size_t size_bytes)
{
    for (; lexer->counted < from; lexer->counted++)
        lexer->line += *lexer->counted == '\n';
    return add(lexer, (struct ash_jinja_token){.kind = kind, .text = {from, size_bytes}, .line = lexer->line});
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool looking_at(const struct lexer *lexer, const char *text)
{
    size_t size = strlen(text);

    return (size_t)(lexer->end - lexer->at) >= size && memcmp(lexer->at, text, size) == 0;
}

/* ---- strings and numbers ----------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xNN, \uNNNN or \UNNNNNNNN at at (the letter): the character, and its end; NULL when it is none. */
static const char *read_hex(const char *at, const char *end, uint32_t *point_out)
{
    int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : 8;
    uint32_t point = 0;

    if (end - at <= digits) return NULL;
    for (int i = 1; i <= digits; i++) {
        int value = hex_digit(at[i]);
        if (value < 0) return NULL;
        point = point << 4 | (uint32_t)value;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return NULL;
    *point_out = point;
    return at + digits + 1;
}

/* Resolve one escape at *at (after the backslash) into to. */
static size_t unescape(const char **at, const char *end, char *to)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *name = strchr(names, **at), *next;
    uint32_t point;

    if (**at == '\n') { /* a backslash before a newline joins lines */
        (*at)++;
        return 0;
    }
    if (**at != '\0' && name != NULL) {
        (*at)++;
        to[0] = values[name - names];
        return 1;
    }
    if (strchr("xuU", **at) != NULL && **at != '\0') {
        next = read_hex(*at, end, &point);
        if (next != NULL) {
            *at = next;
            return (size_t)ash_utf8_encode(point, to);
        }
    }
    to[0] = '\\'; /* any other stays as it is */
    return 1;
}

static int lex_string(struct lexer *lexer)
{
    const char *start = lexer->at, *at = start + 1;
    char quote = *start;
    char *to;
    size_t size = 0;

    while (at < lexer->end && *at != quote)
        at += *at == '\\' && at + 1 < lexer->end ? 2 : 1;
    if (at >= lexer->end) return fail(lexer, start, "a string has no end");
    to = ash_arena_alloc(lexer->arena, (size_t)(at - start) + 4);
    if (to == NULL) return out_of_memory(lexer);
    for (const char *from = start + 1; from < at;) {
        if (*from == '\\' && from + 1 < at) {
            from++;
            size += unescape(&from, at, to + size);
        } else {
            to[size++] = *from++;
        }
    }
    lexer->at = at + 1;
    if (add_at(lexer, ASH_JINJA_T_STRING, start, 0) < 0) return -ENOMEM;
    lexer->tokens->items[lexer->tokens->count - 1].text = (struct ash_jinja_text){to, size};
    return 0;
}

/* The characters of a number without its underscores. */
struct digits {
    char text[NUMBER_BYTES_MAX];
    size_t size;
};

/* Take the next character. False: there is no room for it. */
static bool take_character(struct lexer *lexer, struct digits *digits)
{
    if (digits->size + 1 >= sizeof(digits->text)) return false;
    digits->text[digits->size++] = *lexer->at++;
    return true;
}

/* Take digits, and pass over underscores between them. */
static bool take_digits(struct lexer *lexer, struct digits *digits)
{
    while (lexer->at < lexer->end && (is_digit(*lexer->at) || *lexer->at == '_')) {
        if (*lexer->at == '_')
            lexer->at++;
        else if (!take_character(lexer, digits))
            return false;
    }
    return true;
}

static bool is_digit_at(const struct lexer *lexer, size_t offset)
{
    return (size_t)(lexer->end - lexer->at) > offset && is_digit(lexer->at[offset]);
}

/* Characters before the digits of an exponent here: 0 if there is none. */
static size_t exponent_mark(const struct lexer *lexer)
{
    bool is_signed =
        looking_at(lexer, "e-") || looking_at(lexer, "e+") || looking_at(lexer, "E-") || looking_at(lexer, "E+");

    if (is_signed) return is_digit_at(lexer, 2) ? 2 : 0;
    return (looking_at(lexer, "e") || looking_at(lexer, "E")) && is_digit_at(lexer, 1) ? 1 : 0;
}

/* Digits, perhaps a fraction, perhaps an exponent. False: too long. */
static bool take_number(struct lexer *lexer, struct digits *digits, bool *is_real_out)
{
    bool has_fraction, is_good = take_digits(lexer, digits);
    size_t mark;

    has_fraction = looking_at(lexer, ".") && is_digit_at(lexer, 1);
    if (is_good && has_fraction) is_good = take_character(lexer, digits) && take_digits(lexer, digits);
    mark = exponent_mark(lexer);
    *is_real_out = has_fraction || mark > 0;
    for (size_t i = 0; is_good && i < mark; i++)
        is_good = take_character(lexer, digits);
    return is_good && (mark == 0 || take_digits(lexer, digits));
}

static int lex_number(struct lexer *lexer)
{
    const char *start = lexer->at;
    struct digits digits = {0};
    struct ash_jinja_token *token;
    bool is_real = false;

    if (!take_number(lexer, &digits, &is_real)) return fail(lexer, start, "a number is too long");
    if (add_at(lexer, is_real ? ASH_JINJA_T_FLOAT : ASH_JINJA_T_INT, start, (size_t)(lexer->at - start)) < 0)
        return -ENOMEM;
    token = &lexer->tokens->items[lexer->tokens->count - 1];
    errno = 0;
    if (is_real)
        token->real = strtod(digits.text, NULL);
    else
        token->integer = strtoll(digits.text, NULL, 10);
    return errno == ERANGE ? fail(lexer, start, "a number is too large") : 0;
}

/* ---- inside a tag ------------------------------------------------------------------------------------------------ */

static int lex_operator(struct lexer *lexer)
{
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};

    for (size_t i = 0; i < ASH_COUNT(operators); i++) {
        const char *op = operators[i];
        if (!looking_at(lexer, op)) continue;
        lexer->nesting += strchr("[({", op[0]) != NULL ? 1 : strchr("])}", op[0]) != NULL ? -1 : 0;
        if (lexer->nesting < 0) return fail(lexer, lexer->at, "a bracket is closed that was not opened");
        lexer->at += strlen(op);
        return add_at(lexer, ASH_JINJA_T_OP, lexer->at - strlen(op), strlen(op));
    }
    return fail(lexer, lexer->at, "a character that means nothing in a tag");
}

static int lex_word(struct lexer *lexer)
{
    const char *start = lexer->at;

    while (lexer->at < lexer->end && is_word(*lexer->at))
        lexer->at++;
    return add_at(lexer, ASH_JINJA_T_NAME, start, (size_t)(lexer->at - start));
}

/* Does the tag end here? Passes over its end and the white space that goes with it. */
static bool pass_end(struct lexer *lexer, const char *mark, bool trims)
{
    char sign = *lexer->at == '-' || *lexer->at == '+' ? *lexer->at : '\0';
    const char *at = lexer->at + (sign != '\0');

    if ((size_t)(lexer->end - at) < 2 || memcmp(at, mark, 2) != 0) return false;
    at += 2;
    if (sign == '-') {
        while (at < lexer->end && is_blank(*at))
            at++;
    } else if (sign == '\0' && trims && at < lexer->end && *at == '\n') {
        at++;
    }
    lexer->line_starting = at[-1] == '\n';
    lexer->at = at;
    return true;
}

static const char *pass_blanks(const struct lexer *lexer, const char *at)
{
    while (at < lexer->end && is_blank(*at))
        at++;
    return at;
}

/* Pass over the sign that a tag may have at either end. */
static const char *pass_sign(const struct lexer *lexer, const char *at)
{
    return at < lexer->end && (*at == '-' || *at == '+') ? at + 1 : at;
}

/* One token inside a tag. */
static int lex_inside(struct lexer *lexer)
{
    char c = *lexer->at;

    ash_assert(lexer->at < lexer->end);
    if (c == '\'' || c == '"') return lex_string(lexer);
    if (is_digit(c)) return lex_number(lexer);
    return is_word(c) ? lex_word(lexer) : lex_operator(lexer);
}

static int lex_tag(struct lexer *lexer, bool is_block)
{
    const char *start = lexer->at - 2;
    int rc = add_at(lexer, is_block ? ASH_JINJA_T_BLOCK_BEGIN : ASH_JINJA_T_OUTPUT_BEGIN, start, 0);

    lexer->at = pass_sign(lexer, lexer->at);
    lexer->nesting = 0;
    while (rc == 0) {
        const char *here = pass_blanks(lexer, lexer->at);

        lexer->at = here;
        if (here == lexer->end) return fail(lexer, start, "a tag has no end");
        if (lexer->nesting == 0 && pass_end(lexer, is_block ? "%}" : "}}", is_block))
            return add_at(lexer, is_block ? ASH_JINJA_T_BLOCK_END : ASH_JINJA_T_OUTPUT_END, here, 0);
        rc = lex_inside(lexer);
    }
    return rc;
}

/* ---- between tags ------------------------------------------------------------------------------------------------ */

/* Add the text from start to the tag at tag, less what the tag takes of it. sign: what follows the tag's beginning. */
static int lex_text(struct lexer *lexer, const char *start, const char *tag, char sign, bool strips_line)
{
    const char *end = tag, *line = tag;

    if (sign == '-') {
        while (end > start && is_blank(end[-1]))
            end--;
    } else if (strips_line && sign != '+') {
        while (line > start && line[-1] != '\n' && is_blank(line[-1]))
            line--;
        if (line > start ? line[-1] == '\n' : lexer->line_starting) end = line;
    }
    return end > start ? add_at(lexer, ASH_JINJA_T_TEXT, start, (size_t)(end - start)) : 0;
}

static int lex_comment(struct lexer *lexer)
{
    const char *start = lexer->at;

    for (; lexer->end - lexer->at >= 2; lexer->at++)
        if (memcmp(lexer->at, "#}", 2) == 0) break;
    if (lexer->end - lexer->at < 2) return fail(lexer, start, "a comment has no end");
    if (lexer->at > start && (lexer->at[-1] == '-' || lexer->at[-1] == '+')) lexer->at--;
    pass_end(lexer, "#}", true);
    return 0;
}

/* A tag that holds just the word name, from its beginning on: its end, or NULL. */
static const char *match_word_tag(const struct lexer *lexer, const char *at, const char *name)
{
    size_t size = strlen(name);

    at = pass_blanks(lexer, pass_sign(lexer, at + 2));
    if ((size_t)(lexer->end - at) < size || memcmp(at, name, size) != 0) return NULL;
    at = pass_sign(lexer, pass_blanks(lexer, at + size));
    return lexer->end - at >= 2 && memcmp(at, "%}", 2) == 0 ? at : NULL;
}

/* After {% raw %}: everything up to {% endraw %} is text. raw_end: at the end mark of the raw tag. */
static int lex_raw(struct lexer *lexer, const char *raw_end)
{
    const char *start;

    lexer->at = raw_end[-1] == '-' ? raw_end - 1 : raw_end;
    pass_end(lexer, "%}", false);
    start = lexer->at;
    for (const char *tag = start; lexer->end - tag >= 2; tag++) {
        const char *end = memcmp(tag, "{%", 2) == 0 ? match_word_tag(lexer, tag, "endraw") : NULL;
        int rc;
        if (end == NULL) continue;
        rc = lex_text(lexer, start, tag, tag[2], true);
        lexer->at = end[-1] == '-' || end[-1] == '+' ? end - 1 : end;
        pass_end(lexer, "%}", true);
        return rc;
    }
    return fail(lexer, start, "{% raw %} has no {% endraw %}");
}

static int lex_all(struct lexer *lexer)
{
    const char *start = lexer->at;

    while (lexer->end - lexer->at >= 2) {
        char mark = lexer->at[0] == '{' ? lexer->at[1] : '\0';
        const char *raw = NULL;
        int rc;
        if (mark != '{' && mark != '%' && mark != '#') {
            lexer->at++;
            continue;
        }
        rc = lex_text(lexer, start, lexer->at, lexer->end - lexer->at > 2 ? lexer->at[2] : '\0', mark != '{');
        if (rc < 0) return rc;
        if (mark == '%') raw = match_word_tag(lexer, lexer->at, "raw");
        lexer->at += 2;
        rc = raw != NULL ? lex_raw(lexer, raw) : mark == '#' ? lex_comment(lexer) : lex_tag(lexer, mark == '%');
        if (rc < 0) return rc;
        start = lexer->at;
    }
    lexer->at = lexer->end;
    return start < lexer->end ? add_at(lexer, ASH_JINJA_T_TEXT, start, (size_t)(lexer->end - start)) : 0;
}

/* Every kind of newline becomes \n, and one at the very end goes. */
static size_t normalize_newlines(char *text, size_t size_bytes)
{
    size_t to = 0;

    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] == '\r' && i + 1 < size_bytes && text[i + 1] == '\n') continue;
        text[to++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    }
    if (to > 0 && text[to - 1] == '\n') to--;
    return to;
}

int ash_jinja_lex(struct ash_arena *arena, struct ash_jinja_text source, struct ash_jinja_tokens *tokens_out,
                  struct ash_err *err)
{
    struct lexer lexer = {.arena = arena, .tokens = tokens_out, .err = err, .line_starting = true};
    char *text = ash_arena_alloc(arena, source.size_bytes + 1);
    int rc;

    if (text == NULL) return out_of_memory(&lexer);
    memcpy(text, source.data, source.size_bytes);
    lexer.begin = lexer.at = lexer.counted = text;
    lexer.line = 1;
    lexer.end = text + normalize_newlines(text, source.size_bytes);
    rc = lex_all(&lexer);
    return rc < 0 ? rc : add_at(&lexer, ASH_JINJA_T_END, lexer.end, 0);
}
