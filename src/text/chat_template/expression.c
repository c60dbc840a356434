/* Expressions of a template, by Jinja's own ladder of precedence: if-else, or, and, not, comparisons, + -, ~, * / // %,
 * **, signs. Their operands: operand.c. */
#include "text/chat_template/jinja_priv.h"

#include <string.h>

static struct ash_jinja_node *parse_unary(struct ash_jinja_parser *parser, bool with_filter);

static struct ash_jinja_node *parse_sign(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node;

    if (ash_jinja_accept_op(parser, "-")) {
        node = parse_unary(parser, false);
        return ash_jinja_node_binary(parser, ASH_JINJA_UNARY, ASH_JINJA_SUB, node, NULL);
    }
    if (ash_jinja_accept_op(parser, "+")) {
        node = parse_unary(parser, false);
        return ash_jinja_node_binary(parser, ASH_JINJA_UNARY, ASH_JINJA_ADD, node, NULL);
    }
    return ash_jinja_parse_primary(parser);
}

/* Every level of an expression's nesting passes here, so the depth is counted here. */
static struct ash_jinja_node *parse_unary(struct ash_jinja_parser *parser, bool with_filter)
{
    struct ash_jinja_node *node;

    if (parser->depth >= ASH_JINJA_DEPTH_MAX) return ash_jinja_parse_fail(parser, "an expression is nested too deep");
    parser->depth++;
    node = ash_jinja_parse_postfix(parser, parse_sign(parser));
    if (with_filter) node = ash_jinja_parse_filters(parser, node);
    parser->depth--;
    return parser->rc == 0 ? node : NULL;
}

struct level {
    const char *token;
    enum ash_jinja_op op;
};

/* Operators from the loosest to the tightest. */
static const struct level sums[] = {{"+", ASH_JINJA_ADD}, {"-", ASH_JINJA_SUB}, {NULL, ASH_JINJA_ADD}};
static const struct level concats[] = {{"~", ASH_JINJA_CONCAT}, {NULL, ASH_JINJA_ADD}};
static const struct level products[] = {{"*", ASH_JINJA_MUL},
                                        {"/", ASH_JINJA_DIV},
                                        {"//", ASH_JINJA_FLOORDIV},
                                        {"%", ASH_JINJA_MOD},
                                        {NULL, ASH_JINJA_ADD}};
static const struct level powers[] = {{"**", ASH_JINJA_POW}, {NULL, ASH_JINJA_ADD}};
static const struct level *const ladder[] = {sums, concats, products, powers};

static struct ash_jinja_node *parse_ladder(struct ash_jinja_parser *parser, size_t rung)
{
    struct ash_jinja_node *node;

    if (rung == sizeof(ladder) / sizeof(ladder[0])) return parse_unary(parser, true);
    node = parse_ladder(parser, rung + 1);
    while (parser->rc == 0) {
        const struct level *level = ladder[rung];
        while (level->token != NULL && !ash_jinja_is_op(parser, level->token))
            level++;
        if (level->token == NULL) break;
        parser->at++;
        node = ash_jinja_node_binary(parser, ASH_JINJA_BINARY, level->op, node, parse_ladder(parser, rung + 1));
    }
    return node;
}

/* The comparison at the present token, which is consumed. */
static bool accept_comparison(struct ash_jinja_parser *parser, enum ash_jinja_op *op_out)
{
    static const struct level comparisons[] = {{"==", ASH_JINJA_EQ}, {"!=", ASH_JINJA_NE}, {"<", ASH_JINJA_LT},
                                               {"<=", ASH_JINJA_LE}, {">", ASH_JINJA_GT},  {">=", ASH_JINJA_GE}};

    for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
        if (!ash_jinja_accept_op(parser, comparisons[i].token)) continue;
        *op_out = comparisons[i].op;
        return true;
    }
    if (ash_jinja_accept_name(parser, "in")) {
        *op_out = ASH_JINJA_IN;
        return true;
    }
    if (ash_jinja_is_name(parser, "not") && parser->at[1].kind == ASH_JINJA_T_NAME &&
        ash_jinja_text_is(parser->at[1].text, "in")) {
        parser->at += 2;
        *op_out = ASH_JINJA_NOT_IN;
        return true;
    }
    return false;
}

/* a < b < c is a < b and b < c: each node holds one comparison, and in c the next, whose a is this one's b. */
static struct ash_jinja_node *parse_compare(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *left = parse_ladder(parser, 0), *root = NULL, **link = &root;
    enum ash_jinja_op op;

    while (parser->rc == 0 && accept_comparison(parser, &op)) {
        struct ash_jinja_node *right = parse_ladder(parser, 0);
        *link = ash_jinja_node_binary(parser, ASH_JINJA_COMPARE, op, left, right);
        if (*link == NULL) return NULL;
        link = &(*link)->c;
        left = right;
    }
    return root != NULL ? root : left;
}

static struct ash_jinja_node *parse_not(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node;

    if (!ash_jinja_accept_name(parser, "not")) return parse_compare(parser);
    if (parser->depth >= ASH_JINJA_DEPTH_MAX) return ash_jinja_parse_fail(parser, "an expression is nested too deep");
    parser->depth++;
    node = parse_not(parser);
    parser->depth--;
    return ash_jinja_node_binary(parser, ASH_JINJA_UNARY, ASH_JINJA_NOT, node, NULL);
}

static struct ash_jinja_node *parse_and(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node = parse_not(parser);

    while (parser->rc == 0 && ash_jinja_accept_name(parser, "and"))
        node = ash_jinja_node_binary(parser, ASH_JINJA_BINARY, ASH_JINJA_AND, node, parse_not(parser));
    return node;
}

static struct ash_jinja_node *parse_or(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node = parse_and(parser);

    while (parser->rc == 0 && ash_jinja_accept_name(parser, "or"))
        node = ash_jinja_node_binary(parser, ASH_JINJA_BINARY, ASH_JINJA_OR, node, parse_and(parser));
    return node;
}

/* a if b else c; without an else the value is undefined. */
static struct ash_jinja_node *parse_condition(struct ash_jinja_parser *parser)
{
    struct ash_jinja_node *node = parse_or(parser);

    while (parser->rc == 0 && ash_jinja_accept_name(parser, "if")) {
        struct ash_jinja_node *condition =
            ash_jinja_node_binary(parser, ASH_JINJA_COND, ASH_JINJA_ADD, node, parse_or(parser));
        if (condition == NULL) return NULL;
        if (ash_jinja_accept_name(parser, "else")) {
            if (parser->depth >= ASH_JINJA_DEPTH_MAX)
                return ash_jinja_parse_fail(parser, "an expression is nested too deep");
            parser->depth++;
            condition->c = parse_condition(parser);
            parser->depth--;
        }
        node = condition;
    }
    return node;
}

/* The expression's end, which a comma may precede. */
static bool ends_tuple(const struct ash_jinja_parser *parser)
{
    return parser->at->kind == ASH_JINJA_T_BLOCK_END || parser->at->kind == ASH_JINJA_T_OUTPUT_END ||
           ash_jinja_is_op(parser, ")");
}

/* One expression, or several with commas between them as a list. */
static struct ash_jinja_node *parse_tuple(struct ash_jinja_parser *parser,
                                          struct ash_jinja_node *(*parse)(struct ash_jinja_parser *))
{
    struct ash_jinja_node *item = parse(parser), *list, **link;

    if (parser->rc < 0 || !ash_jinja_is_op(parser, ",")) return item;
    list = ash_jinja_node_new(parser, ASH_JINJA_ITEMS);
    if (list == NULL) return NULL;
    list->value = ash_jinja_bool(true);
    list->first = item;
    link = &item->next;
    while (parser->rc == 0 && ash_jinja_accept_op(parser, ",") && !ends_tuple(parser)) {
        item = parse(parser);
        if (item == NULL) return NULL;
        *link = item;
        link = &item->next;
    }
    return list;
}

struct ash_jinja_node *ash_jinja_parse_expression(struct ash_jinja_parser *parser, bool tuple)
{
    return tuple ? parse_tuple(parser, parse_condition) : parse_condition(parser);
}

struct ash_jinja_node *ash_jinja_parse_iterable(struct ash_jinja_parser *parser)
{
    return parse_tuple(parser, parse_or);
}
