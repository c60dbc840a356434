/* Parsing regular expressions: ECMAScript's syntax, as far as it has automata. */
#include "serve/grammar/lang_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "serve/grammar/pda_priv.h"

#define REPEAT_MAX 100000

struct parser {
    struct ash_regex *regex;
    struct ash_regex_cursor cursor;
    size_t depth_left;
    struct ash_err *err;
};

static int parse_either(struct parser *parser, uint32_t *node_out);

static bool has(const struct parser *parser, char c)
{
    return parser->cursor.at < parser->cursor.size_bytes && parser->cursor.text[parser->cursor.at] == c;
}

static bool starts(const struct parser *parser, const char *text)
{
    size_t size = strlen(text), left = parser->cursor.size_bytes - parser->cursor.at;

    return left >= size && memcmp(parser->cursor.text + parser->cursor.at, text, size) == 0;
}

static int no_memory(struct parser *parser)
{
    return ash_err_set(parser->err, -ENOMEM, "out of memory for an expression");
}

static int add_node(struct parser *parser, struct ash_regex_node node, uint32_t *node_out)
{
    struct ash_regex *regex = parser->regex;

    if (ash_array_reserve(&regex->nodes, &regex->capacity, regex->count + 1, sizeof(node)) < 0)
        return no_memory(parser);
    regex->nodes[regex->count] = node;
    *node_out = (uint32_t)regex->count++;
    return 0;
}

/* A node for a set, which the regex owns from now on. */
static int add_set(struct parser *parser, struct ash_lang_set set, uint32_t *node_out)
{
    struct ash_regex *regex = parser->regex;

    if (ash_array_reserve(&regex->sets, &regex->set_capacity, regex->set_count + 1, sizeof(set)) < 0) {
        free(set.ranges);
        return no_memory(parser);
    }
    regex->sets[regex->set_count++] = set;
    return add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_SET, .set = (uint32_t)regex->set_count - 1},
                    node_out);
}

/* What stands in parentheses; the cursor is after the opening one. */
static int parse_group(struct parser *parser, uint32_t *node_out)
{
    struct ash_regex_cursor *cursor = &parser->cursor;
    size_t start = cursor->at - 1;
    int rc;

    if (starts(parser, "?=") || starts(parser, "?!") || starts(parser, "?<=") || starts(parser, "?<!"))
        return ash_err_set(parser->err, -ENOTSUP, "the lookaround at byte %zu of the expression is not supported",
                           start);
    if (starts(parser, "?:")) {
        cursor->at += 2;
    } else if (starts(parser, "?<") || starts(parser, "?P<")) {
        const char *close = memchr(cursor->text + cursor->at, '>', cursor->size_bytes - cursor->at);
        if (close == NULL) return ash_err_set(parser->err, -EINVAL, "the name at byte %zu has no end", start);
        cursor->at = (size_t)(close - cursor->text) + 1;
    } else if (has(parser, '?')) {
        return ash_err_set(parser->err, -ENOTSUP,
                           "the group at byte %zu of the expression is of a kind that is not "
                           "supported",
                           start);
    }
    if (parser->depth_left == 0)
        return ash_err_set(parser->err, -E2BIG, "the expression has too many groups in groups");
    parser->depth_left--;
    rc = parse_either(parser, node_out);
    parser->depth_left++;
    if (rc < 0) return rc;
    if (!has(parser, ')')) return ash_err_set(parser->err, -EINVAL, "the group at byte %zu has no ')'", start);
    cursor->at++;
    return 0;
}

/* '.', an escape, a class or a plain character. */
static int parse_set(struct parser *parser, uint32_t point, uint32_t *node_out)
{
    struct ash_lang_set set = {0};
    uint32_t single;
    int rc = 0;

    if (point == '.') {
        static const uint32_t breaks[][2] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
        for (size_t i = 0; i < 3 && rc == 0; i++)
            rc = ash_lang_set_add(&set, breaks[i][0], breaks[i][1]);
        if (rc == 0) rc = ash_lang_set_settle(&set, true);
        if (rc < 0) no_memory(parser);
    } else if (point == '[') {
        rc = ash_regex_class(&parser->cursor, &set, parser->err);
    } else if (point == '\\') {
        rc = ash_regex_escape(&parser->cursor, false, &set, &single, parser->err);
        if (rc == 0 && ash_lang_set_settle(&set, false) < 0) rc = no_memory(parser);
    } else if (ash_lang_set_add(&set, point, point) < 0) {
        rc = no_memory(parser);
    }
    if (rc == 0) return add_set(parser, set, node_out);
    free(set.ranges);
    return rc;
}

static int parse_atom(struct parser *parser, uint32_t *node_out)
{
    size_t start = parser->cursor.at;
    uint32_t point = 0;
    int rc = ash_regex_point(&parser->cursor, &point, parser->err);

    if (rc < 0) return rc;
    switch (point) {
    case '(':
        return parse_group(parser, node_out);
    case '^':
        return add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_BEGIN}, node_out);
    case '$':
        return add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_END}, node_out);
    case '*':
    case '+':
    case '?':
        return ash_err_set(parser->err, -EINVAL, "nothing to repeat at byte %zu of the expression", start);
    default:
        return parse_set(parser, point, node_out);
    }
}

/* A number at *at; false if there is none. */
static bool read_number(const struct ash_regex_cursor *cursor, size_t *at, uint32_t *value_out)
{
    size_t start = *at;
    uint32_t value = 0;

    for (; *at < cursor->size_bytes && cursor->text[*at] >= '0' && cursor->text[*at] <= '9'; (*at)++)
        value = value > REPEAT_MAX ? value : value * 10 + (uint32_t)(cursor->text[*at] - '0');
    *value_out = value;
    return *at > start;
}

/* {n}, {n,} or {n,m} at the cursor; without moving it, whether it is one. */
static bool read_counts(const struct ash_regex_cursor *cursor, uint32_t *min_out, uint32_t *max_out, size_t *end_out)
{
    size_t at = cursor->at + 1;

    if (!read_number(cursor, &at, min_out)) return false;
    *max_out = *min_out;
    if (at < cursor->size_bytes && cursor->text[at] == ',') {
        at++;
        if (!read_number(cursor, &at, max_out)) *max_out = ASH_PDA_UNBOUNDED;
    }
    *end_out = at + 1;
    return at < cursor->size_bytes && cursor->text[at] == '}';
}

static bool at_mark(const struct parser *parser)
{
    return has(parser, '*') || has(parser, '+') || has(parser, '?');
}

/* How often, at the cursor, which moves past it. 1, 0 for nothing, or a negative errno. */
static int parse_counts(struct parser *parser, uint32_t *min, uint32_t *max)
{
    struct ash_regex_cursor *cursor = &parser->cursor;
    size_t end = cursor->at + 1;

    *min = has(parser, '+') ? 1 : 0;
    *max = has(parser, '?') ? 1 : ASH_PDA_UNBOUNDED;
    if (!at_mark(parser) && (!has(parser, '{') || !read_counts(cursor, min, max, &end))) return 0; /* a plain brace */
    if (*min > *max)
        return ash_err_set(parser->err, -EINVAL, "{%u,%u} at byte %zu of the expression is the wrong way round", *min,
                           *max, cursor->at);
    if (*min > REPEAT_MAX || (*max > REPEAT_MAX && *max != ASH_PDA_UNBOUNDED))
        return ash_err_set(parser->err, -E2BIG, "more than %d repetitions at byte %zu of the expression", REPEAT_MAX,
                           cursor->at);
    cursor->at = end;
    if (has(parser, '?')) cursor->at++; /* lazy: the same texts */
    return 1;
}

/* An atom and how often. */
static int parse_repeat(struct parser *parser, uint32_t *node_out)
{
    struct ash_regex_node node = {.kind = ASH_REGEX_REPEAT};
    int rc = parse_atom(parser, &node.left);

    *node_out = node.left;
    if (rc == 0) rc = parse_counts(parser, &node.min, &node.max);
    if (rc <= 0) return rc;
    if (at_mark(parser))
        return ash_err_set(parser->err, -EINVAL, "nothing to repeat at byte %zu of the expression", parser->cursor.at);
    return add_node(parser, node, node_out);
}

static int parse_concat(struct parser *parser, uint32_t *node_out)
{
    uint32_t right = 0;
    int rc = add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_EMPTY}, node_out);

    while (rc == 0 && parser->cursor.at < parser->cursor.size_bytes && !has(parser, '|') && !has(parser, ')')) {
        rc = parse_repeat(parser, &right);
        if (rc == 0)
            rc = add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_CONCAT, .left = *node_out, .right = right},
                          node_out);
    }
    return rc;
}

static int parse_either(struct parser *parser, uint32_t *node_out)
{
    uint32_t right = 0;
    int rc = parse_concat(parser, node_out);

    while (rc == 0 && has(parser, '|')) {
        parser->cursor.at++;
        rc = parse_concat(parser, &right);
        if (rc == 0)
            rc = add_node(parser, (struct ash_regex_node){.kind = ASH_REGEX_EITHER, .left = *node_out, .right = right},
                          node_out);
    }
    return rc;
}

int ash_regex_parse(struct ash_regex *regex, const char *pattern, size_t size_bytes, size_t depth, struct ash_err *err)
{
    struct parser parser = {.regex = regex, .cursor = {pattern, size_bytes, 0}, .depth_left = depth, .err = err};
    int rc = parse_either(&parser, &regex->root);

    if (rc == 0 && parser.cursor.at < size_bytes)
        rc = ash_err_set(err, -EINVAL, "')' without '(' at byte %zu of the expression", parser.cursor.at);
    return rc;
}

void ash_regex_fini(struct ash_regex *regex)
{
    for (size_t i = 0; i < regex->set_count; i++)
        free(regex->sets[i].ranges);
    free(regex->sets);
    free(regex->nodes);
    *regex = (struct ash_regex){0};
}
