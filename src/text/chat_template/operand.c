/* Operands of an expression, and what follows one: .name, [index], (arguments), |filter, is test. */
#include "text/chat_template/jinja_priv.h"

#include <string.h>

struct ash_jinja_node *ash_jinja_node_binary(struct ash_jinja_parser *parser, enum ash_jinja_type type,
                                             enum ash_jinja_op op, struct ash_jinja_node *a, struct ash_jinja_node *b)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, type);

    if (node == NULL) return NULL;
    node->op = op;
    node->a = a;
    node->b = b;
    return node;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static struct ash_jinja_node *constant(struct ash_jinja_parser *parser, struct ash_jinja_value value)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_CONST);

    if (node != NULL) node->value = value;
    return node;
}

/* Strings side by side are one string. */
static struct ash_jinja_node *parse_string(struct ash_jinja_parser *parser)
{
    struct ash_jinja_text text = parser->at->text;

    for (parser->at++; parser->at->kind == ASH_JINJA_T_STRING; parser->at++) {
        struct ash_jinja_text more = parser->at->text;
        char *joined = ash_arena_alloc(parser->arena, text.size_bytes + more.size_bytes + 1);

        if (joined == NULL) return ash_jinja_parse_fail(parser, "out of memory for a string");
        memcpy(joined, text.data, text.size_bytes);
        memcpy(joined + text.size_bytes, more.data, more.size_bytes);
        text = (struct ash_jinja_text){joined, text.size_bytes + more.size_bytes};
    }
    return constant(parser, ash_jinja_string(text));
}

static struct ash_jinja_node *parse_name(struct ash_jinja_parser *parser)
{
    static const struct {
        const char *name;
        struct ash_jinja_value value;
    } words[] = {
        {"true", {ASH_JINJA_BOOL, {.flag = true}}},   {"True", {ASH_JINJA_BOOL, {.flag = true}}},
        {"false", {ASH_JINJA_BOOL, {.flag = false}}}, {"False", {ASH_JINJA_BOOL, {.flag = false}}},
        {"none", {ASH_JINJA_NONE, {.flag = false}}},  {"None", {ASH_JINJA_NONE, {.flag = false}}},
    };
    struct ash_jinja_text name = parser->at->text;
    struct ash_jinja_node *node;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!ash_jinja_text_is(name, words[i].name)) continue;
        parser->at++;
        return constant(parser, words[i].value);
    }
    node = ash_jinja_node_new(parser, ASH_JINJA_NAME);
    if (node != NULL) node->name = name;
    parser->at++;
    return node;
}

/* Items up to the closing bracket, chained by next; with pairs keys and values in turn. */
static struct ash_jinja_node *parse_items(struct ash_jinja_parser *parser, const char *close, bool pairs)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, pairs ? ASH_JINJA_PAIRS : ASH_JINJA_ITEMS);
    struct ash_jinja_node **link = node != NULL ? &node->first : NULL;

    while (parser->rc == 0 && !ash_jinja_accept_op(parser, close)) {
        struct ash_jinja_node *item = ash_jinja_parse_expression(parser, false);
        if (item == NULL) return NULL;
        *link = item;
        link = &item->next;
        if (pairs) {
            if (!ash_jinja_accept_op(parser, ":")) return ash_jinja_parse_fail(parser, "':' is missing");
            item = ash_jinja_parse_expression(parser, false);
            if (item == NULL) return NULL;
            *link = item;
            link = &item->next;
        }
        if (!ash_jinja_accept_op(parser, ",") && !ash_jinja_is_op(parser, close))
            return ash_jinja_parse_fail(parser, "'%s' is missing", close);
    }
    return parser->rc == 0 ? node : NULL;
}

/* (a) is a, (a, b) is a list, () an empty one. */
static struct ash_jinja_node *parse_bracket(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node;

    if (ash_jinja_is_op(parser, ")")) {
        node = parse_items(parser, ")", false);
        if (node != NULL) node->value = ash_jinja_bool(true);
        return node;
    }
    node = ash_jinja_parse_expression(parser, true);
    if (parser->rc == 0 && !ash_jinja_accept_op(parser, ")")) return ash_jinja_parse_fail(parser, "')' is missing");
    return node;
}

struct ash_jinja_node *ash_jinja_parse_primary(struct ash_jinja_parser *parser)
{
    switch (parser->at->kind) {
    case ASH_JINJA_T_STRING:
        return parse_string(parser);
    case ASH_JINJA_T_NAME:
        return parse_name(parser);
    case ASH_JINJA_T_INT:
        return constant(parser, ash_jinja_int(parser->at++->integer));
    case ASH_JINJA_T_FLOAT:
        return constant(parser, ash_jinja_float(parser->at++->real));
    default:
        break;
    }
    if (ash_jinja_accept_op(parser, "(")) return parse_bracket(parser);
    if (ash_jinja_accept_op(parser, "[")) return parse_items(parser, "]", false);
    if (ash_jinja_accept_op(parser, "{")) return parse_items(parser, "}", true);
    return ash_jinja_parse_fail(parser, "a value is missing");
}

/* ---- what follows an operand ------------------------------------------------------------------------------------- */

struct ash_jinja_node *ash_jinja_parse_args(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *first = NULL, **link = &first;
    int count = 0;

    while (parser->rc == 0 && !ash_jinja_accept_op(parser, ")")) {
        struct ash_jinja_node *arg = NULL;
        if (count++ == ASH_JINJA_ARGS_MAX) return ash_jinja_parse_fail(parser, "a call has too many arguments");
        if (parser->at->kind == ASH_JINJA_T_NAME && parser->at[1].kind == ASH_JINJA_T_OP &&
            ash_jinja_text_is(parser->at[1].text, "=")) {
            arg = ash_jinja_node_new(parser, ASH_JINJA_ARG);
            if (arg == NULL) return NULL;
            arg->name = parser->at->text;
            parser->at += 2;
            arg->a = ash_jinja_parse_expression(parser, false);
        } else if (ash_jinja_is_op(parser, "*")) {
            arg = ash_jinja_node_new(parser, ASH_JINJA_ARG);
            if (arg == NULL) return NULL;
            arg->name = parser->at++->text;
            arg->a = ash_jinja_parse_expression(parser, false);
        } else {
            arg = ash_jinja_parse_expression(parser, false);
        }
        if (arg == NULL || parser->rc < 0) return NULL;
        *link = arg;
        link = &arg->next;
        if (!ash_jinja_accept_op(parser, ",") && !ash_jinja_is_op(parser, ")"))
            return ash_jinja_parse_fail(parser, "')' is missing");
    }
    return first;
}

/* After '[': an index, or up to three bounds with ':' between them. */
static struct ash_jinja_node *parse_subscript(struct ash_jinja_parser *parser, struct ash_jinja_node *value)
{
    struct ash_jinja_node *bounds[3] = {NULL, NULL, NULL}, *node;
    int count = 0;

    for (; count < 3; count++) {
        if (!ash_jinja_is_op(parser, ":") && !ash_jinja_is_op(parser, "]"))
            bounds[count] = ash_jinja_parse_expression(parser, false);
        if (parser->rc < 0 || !ash_jinja_accept_op(parser, ":")) break;
    }
    if (parser->rc == 0 && !ash_jinja_accept_op(parser, "]")) return ash_jinja_parse_fail(parser, "']' is missing");
    if (parser->rc == 0 && count == 0 && bounds[0] == NULL) return ash_jinja_parse_fail(parser, "an index is missing");
    node = ash_jinja_node_new(parser, count == 0 ? ASH_JINJA_INDEX : ASH_JINJA_SLICE);
    if (node == NULL) return NULL;
    node->a = value;
    node->b = bounds[0];
    node->c = bounds[1];
    node->d = bounds[2];
    return node;
}

static struct ash_jinja_node *parse_attribute(struct ash_jinja_parser *parser, struct ash_jinja_node *value)
{
    struct ash_jinja_node *node;

    if (parser->at->kind == ASH_JINJA_T_INT) { /* list.0 */
        node = ash_jinja_node_binary(parser, ASH_JINJA_INDEX, ASH_JINJA_ADD, value,
                                     constant(parser, ash_jinja_int(parser->at->integer)));
        parser->at++;
        return node;
    }
    if (parser->at->kind != ASH_JINJA_T_NAME) return ash_jinja_parse_fail(parser, "a name is missing after '.'");
    node = ash_jinja_node_new(parser, ASH_JINJA_ATTR);
    if (node == NULL) return NULL;
    node->a = value;
    node->name = parser->at++->text;
    return node;
}

static struct ash_jinja_node *parse_call(struct ash_jinja_parser *parser, struct ash_jinja_node *value)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_CALL);

    if (node == NULL) return NULL;
    node->a = value;
    node->first = ash_jinja_parse_args(parser);
    return node;
}

struct ash_jinja_node *ash_jinja_parse_postfix(struct ash_jinja_parser *parser, struct ash_jinja_node *node)
{
    while (parser->rc == 0) {
        if (ash_jinja_accept_op(parser, "."))
            node = parse_attribute(parser, node);
        else if (ash_jinja_accept_op(parser, "["))
            node = parse_subscript(parser, node);
        else if (ash_jinja_accept_op(parser, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

struct ash_jinja_node *ash_jinja_parse_filter(struct ash_jinja_parser *parser, struct ash_jinja_node *value)
{
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_FILTER);

    if (node == NULL) return NULL;
    if (parser->at->kind != ASH_JINJA_T_NAME) return ash_jinja_parse_fail(parser, "a filter's name is missing");
    node->a = value;
    node->name = parser->at++->text;
    if (ash_jinja_accept_op(parser, "(")) node->first = ash_jinja_parse_args(parser);
    return node;
}

/* Can the present token begin the bare argument of a test, as in `is divisibleby 3`? */
static bool begins_test_argument(const struct ash_jinja_parser *parser)
{
    static const char *const words[] = {"else", "or", "and", "if", "is", "in", "not", "recursive"};

    if (parser->at->kind == ASH_JINJA_T_STRING || parser->at->kind == ASH_JINJA_T_INT ||
        parser->at->kind == ASH_JINJA_T_FLOAT)
        return true;
    if (parser->at->kind != ASH_JINJA_T_NAME) return ash_jinja_is_op(parser, "[") || ash_jinja_is_op(parser, "{");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (ash_jinja_is_name(parser, words[i])) return false;
    return true;
}

static struct ash_jinja_node *parse_test(struct ash_jinja_parser *parser, struct ash_jinja_node *value)
{
    bool negated = ash_jinja_accept_name(parser, "not");
    struct ash_jinja_node *node = ash_jinja_node_new(parser, ASH_JINJA_TEST);

    if (node == NULL) return NULL;
    if (parser->at->kind != ASH_JINJA_T_NAME) return ash_jinja_parse_fail(parser, "a test's name is missing");
    node->a = value;
    node->name = parser->at++->text;
    if (ash_jinja_accept_op(parser, "("))
        node->first = ash_jinja_parse_args(parser);
    else if (begins_test_argument(parser))
        node->first = ash_jinja_parse_postfix(parser, ash_jinja_parse_primary(parser));
    return negated ? ash_jinja_node_binary(parser, ASH_JINJA_UNARY, ASH_JINJA_NOT, node, NULL) : node;
}

struct ash_jinja_node *ash_jinja_parse_filters(struct ash_jinja_parser *parser, struct ash_jinja_node *node)
{
    while (parser->rc == 0) {
        if (ash_jinja_accept_op(parser, "|"))
            node = ash_jinja_parse_filter(parser, node);
        else if (ash_jinja_accept_name(parser, "is"))
            node = parse_test(parser, node);
        else if (ash_jinja_accept_op(parser, "(")) /* a call of what a filter gave */
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}
