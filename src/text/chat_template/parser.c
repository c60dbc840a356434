/* Statements of a template: tokens to a tree. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

/* ---- shared with expressions ------------------------------------------------------------------------------------- */

struct ash_jinja_node *ash_jinja_parse_fail(struct ash_jinja_parser *parser, const char *fmt, ...)
{
    char message[200];
    va_list args;

    if (parser->rc < 0) return NULL;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    parser->rc = ash_err_set(parser->err, -EINVAL, "line %d: %s", parser->at->line, message);
    return NULL;
}

struct ash_jinja_node *ash_jinja_node_new(struct ash_jinja_parser *parser, enum ash_jinja_type type)
{
    struct ash_jinja_node *node;

    if (parser->rc < 0) return NULL;
    node = ash_arena_calloc(parser->arena, 1, sizeof(*node));
    if (node == NULL) {
        parser->rc = ash_err_set(parser->err, -ENOMEM, "out of memory for a template");
        return NULL;
    }
    node->type = type;
    node->line = parser->at->line;
    return node;
}

bool ash_jinja_is_op(const struct ash_jinja_parser *parser, const char *op)
{
    return parser->at->kind == ASH_JINJA_T_OP && ash_jinja_text_is(parser->at->text, op);
}

bool ash_jinja_is_name(const struct ash_jinja_parser *parser, const char *name)
{
    return parser->at->kind == ASH_JINJA_T_NAME && ash_jinja_text_is(parser->at->text, name);
}

bool ash_jinja_accept_op(struct ash_jinja_parser *parser, const char *op)
{
    if (!ash_jinja_is_op(parser, op)) return false;
    parser->at++;
    return true;
}

bool ash_jinja_accept_name(struct ash_jinja_parser *parser, const char *name)
{
    if (!ash_jinja_is_name(parser, name)) return false;
    parser->at++;
    return true;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static struct ash_jinja_node *parse_statements(struct ash_jinja_parser *parser, const char *const *ends);

static bool expect_block_end(struct ash_jinja_parser *parser)
{
    if (parser->rc < 0) return false;
    if (parser->at->kind != ASH_JINJA_T_BLOCK_END) {
        ash_jinja_parse_fail(parser, "the tag should end here");
        return false;
    }
    parser->at++;
    return true;
}

/* Statements up to a tag that opens with one of ends; that tag's word is consumed and returned by
 * its place in ends. */
static int parse_body(struct ash_jinja_parser *parser, const char *const *ends, struct ash_jinja_node **body_out)
{
    if (!expect_block_end(parser)) return -1;
    if (parser->depth == ASH_JINJA_DEPTH_MAX) {
        ash_jinja_parse_fail(parser, "blocks are nested too deep");
        return -1;
    }
    parser->depth++;
    *body_out = parse_statements(parser, ends);
    parser->depth--;
    if (parser->rc < 0) return -1;
    for (int i = 0; ends[i] != NULL; i++) {
        if (parser->at->kind != ASH_JINJA_T_BLOCK_BEGIN || parser->at[1].kind != ASH_JINJA_T_NAME) break;
        if (!ash_jinja_text_is(parser->at[1].text, ends[i])) continue;
        parser->at += 2;
        return i;
    }
    ash_jinja_parse_fail(parser, "{%% %s %%} is missing", ends[0]);
    return -1;
}

static struct ash_jinja_node *parse_if(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL}, *const last[] = {"endif", NULL};
    struct ash_jinja_node *root = ash_jinja_node_new(parser, ASH_JINJA_IF), *node = root;

    while (parser->rc == 0) {
        int end;
        node->a = ash_jinja_parse_expression(parser, true);
        end = parse_body(parser, ends, &node->body);
        if (end == 2) end = parse_body(parser, last, &node->other);
        if (end <= 0) break;
        node->other = ash_jinja_node_new(parser, ASH_JINJA_IF);
        node = node->other;
    }
    return expect_block_end(parser) ? root : NULL;
}

/* Names that values go to: a, b or (a, b); with attributes also namespace.name. Returns the first. */
static struct ash_jinja_node *parse_targets(struct ash_jinja_parser *parser, bool attributes)
{
    struct ash_jinja_node *first = NULL, **link = &first;
    bool bracket = ash_jinja_accept_op(parser, "(");

    do {
        struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_NAME);
        if (node == NULL || parser->at->kind != ASH_JINJA_T_NAME)
            return ash_jinja_parse_fail(parser, "a name is missing");
        node->name = parser->at++->text;
        if (attributes && ash_jinja_accept_op(parser, ".")) {
            struct ash_jinja_node *attr = ash_jinja_node_new(parser, ASH_JINJA_ATTR);
            if (attr == NULL || parser->at->kind != ASH_JINJA_T_NAME)
                return ash_jinja_parse_fail(parser, "a name is missing after '.'");
            attr->a = node;
            attr->name = parser->at++->text;
            node = attr;
        }
        *link = node;
        link = &node->next;
    } while (ash_jinja_accept_op(parser, ","));
    if (bracket && !ash_jinja_accept_op(parser, ")")) return ash_jinja_parse_fail(parser, "')' is missing");
    return first;
}

static struct ash_jinja_node *parse_for(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_FOR);
    int end;

    if (node == NULL) return NULL;
    node->first = parse_targets(parser, false);
    if (parser->rc == 0 && !ash_jinja_accept_name(parser, "in")) return ash_jinja_parse_fail(parser, "'in' is missing");
    node->a = ash_jinja_parse_iterable(parser);
    if (ash_jinja_accept_name(parser, "if")) node->b = ash_jinja_parse_expression(parser, true);
    if (ash_jinja_is_name(parser, "recursive"))
        return ash_jinja_parse_fail(parser, "recursive loops are not supported");
    parser->loops++;
    end = parse_body(parser, ends, &node->body);
    parser->loops--;
    if (end == 1) parse_body(parser, last, &node->other);
    return expect_block_end(parser) ? node : NULL;
}

/* The text of a body up to ends, through the filters that come first: one must, or each has its bar. */
static struct ash_jinja_node *parse_captured(struct ash_jinja_parser *parser, const char *const *ends,
                                             bool needs_filter)
{
    struct ash_jinja_node *capture = ash_jinja_node_new(parser, ASH_JINJA_CAPTURE), *value = capture;

    if (capture == NULL) return NULL;
    if (needs_filter) value = ash_jinja_parse_filter(parser, value);
    value = ash_jinja_parse_filters(parser, value);
    if (parser->rc == 0) parse_body(parser, ends, &capture->body);
    return value;
}

static struct ash_jinja_node *parse_set(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endset", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_SET);

    if (node == NULL) return NULL;
    node->first = parse_targets(parser, true);
    if (ash_jinja_accept_op(parser, "="))
        node->a = ash_jinja_parse_expression(parser, true);
    else
        node->a = parse_captured(parser, ends, false);
    return expect_block_end(parser) ? node : NULL;
}

/* {% filter a|b %}: what the body writes goes through filters. */
static struct ash_jinja_node *parse_filter_block(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_OUTPUT);

    if (node == NULL) return NULL;
    node->a = parse_captured(parser, ends, true);
    return expect_block_end(parser) ? node : NULL;
}

/* (a, b=1): names, each with its default in b. */
static struct ash_jinja_node *parse_parameters(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *first = NULL, **link = &first;
    int count = 0;

    if (!ash_jinja_accept_op(parser, "(")) return ash_jinja_parse_fail(parser, "'(' is missing");
    while (parser->rc == 0 && !ash_jinja_accept_op(parser, ")")) {
        struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_NAME);
        if (count++ == ASH_JINJA_ARGS_MAX) return ash_jinja_parse_fail(parser, "a macro has too many parameters");
        if (node == NULL || parser->at->kind != ASH_JINJA_T_NAME)
            return ash_jinja_parse_fail(parser, "a parameter's name is missing");
        node->name = parser->at++->text;
        if (ash_jinja_accept_op(parser, "=")) node->b = ash_jinja_parse_expression(parser, false);
        if (!ash_jinja_accept_op(parser, ",") && !ash_jinja_is_op(parser, ")"))
            return ash_jinja_parse_fail(parser, "')' is missing");
        *link = node;
        link = &node->next;
    }
    return first;
}

static struct ash_jinja_node *parse_macro(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_DEFINE);
    int loops = parser->loops;

    if (node == NULL) return NULL;
    if (parser->at->kind != ASH_JINJA_T_NAME) return ash_jinja_parse_fail(parser, "a macro's name is missing");
    node->name = parser->at++->text;
    node->first = parse_parameters(parser);
    parser->loops = 0; /* break does not reach out of a macro */
    parse_body(parser, ends, &node->body);
    parser->loops = loops;
    if (parser->at->kind == ASH_JINJA_T_NAME) parser->at++; /* {% endmacro name %} */
    return expect_block_end(parser) ? node : NULL;
}

static struct ash_jinja_node *parse_call_block(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endcall", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_CALLBLOCK);

    if (node == NULL) return NULL;
    if (ash_jinja_is_op(parser, "(")) return ash_jinja_parse_fail(parser, "a caller with parameters is not supported");
    node->a = ash_jinja_parse_expression(parser, false);
    if (parser->rc == 0 && node->a->type != ASH_JINJA_CALL) return ash_jinja_parse_fail(parser, "a call is missing");
    parse_body(parser, ends, &node->body);
    return expect_block_end(parser) ? node : NULL;
}

static struct ash_jinja_node *parse_jump(struct ash_jinja_parser *parser, enum ash_jinja_type type)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, type);

    if (parser->loops == 0) return ash_jinja_parse_fail(parser, "break and continue belong into a loop");
    return expect_block_end(parser) ? node : NULL;
}

/* What a model learns to write. */
static struct ash_jinja_node *parse_generation(struct ash_jinja_parser *parser)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_GENERATION);

    if (node == NULL) return NULL;
    parse_body(parser, ends, &node->body);
    return expect_block_end(parser) ? node : NULL;
}

static struct ash_jinja_node *parse_break(struct ash_jinja_parser *parser)
{
    return parse_jump(parser, ASH_JINJA_BREAK);
}

static struct ash_jinja_node *parse_continue(struct ash_jinja_parser *parser)
{
    return parse_jump(parser, ASH_JINJA_CONTINUE);
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static struct ash_jinja_node *parse_tag(struct ash_jinja_parser *parser)
{
    static const struct {
        const char *name;
        struct ash_jinja_node *(*parse)(struct ash_jinja_parser *parser);
    } tags[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"break", parse_break},
        {"continue", parse_continue},
        {"generation", parse_generation},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
    };
    const struct ash_jinja_token *word = parser->at + 1;

    if (word->kind != ASH_JINJA_T_NAME) return ash_jinja_parse_fail(parser, "a tag without a word");
    for (size_t i = 0; i < ASH_COUNT(tags); i++) {
        if (!ash_jinja_text_is(word->text, tags[i].name)) continue;
        parser->at += 2;
        return tags[i].parse(parser);
    }
    return ash_jinja_parse_fail(parser, "the tag '%.*s' is not supported here",
                                word->text.size_bytes < 64 ? (int)word->text.size_bytes : 64, word->text.data);
}

static struct ash_jinja_node *parse_output(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_OUTPUT);

    if (node == NULL) return NULL;
    parser->at++;
    node->a = ash_jinja_parse_expression(parser, true);
    if (parser->rc == 0 && parser->at->kind != ASH_JINJA_T_OUTPUT_END)
        return ash_jinja_parse_fail(parser, "the expression should end here");
    parser->at++;
    return parser->rc == 0 ? node : NULL;
}

static bool is_end(const struct ash_jinja_parser *parser, const char *const *ends)
{
    if (parser->at->kind == ASH_JINJA_T_END) return true;
    if (parser->at->kind != ASH_JINJA_T_BLOCK_BEGIN || parser->at[1].kind != ASH_JINJA_T_NAME) return false;
    for (; ends != NULL && *ends != NULL; ends++)
        if (ash_jinja_text_is(parser->at[1].text, *ends)) return true;
    return false;
}

static struct ash_jinja_node *parse_statements(struct ash_jinja_parser *parser, const char *const *ends)
{
    struct ash_jinja_node *first = NULL, **link = &first;

    while (parser->rc == 0 && !is_end(parser, ends)) {
        struct ash_jinja_node *node;
        if (parser->at->kind == ASH_JINJA_T_TEXT) {
            node = ash_jinja_node_new(parser, ASH_JINJA_TEXT);
            if (node != NULL) node->name = parser->at++->text;
        } else {
            node = parser->at->kind == ASH_JINJA_T_OUTPUT_BEGIN ? parse_output(parser) : parse_tag(parser);
        }
        if (node == NULL) return NULL;
        *link = node;
        link = &node->next;
    }
    return first;
}

int ash_jinja_parse(struct ash_arena *arena, const struct ash_jinja_tokens *tokens, struct ash_jinja_node **root_out,
                    struct ash_err *err)
{
    struct ash_jinja_parser parser = {.arena = arena, .at = tokens->items, .err = err};
    struct ash_jinja_node *root = parse_statements(&parser, NULL);

    if (parser.rc < 0) return parser.rc;
    *root_out = root;
    return 0;
}
