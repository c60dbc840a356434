/* Expressions are evaluated by walking the tree. Semantics are Python's, as far as templates can see them. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>

static int eval_name(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value *out)
{
    const struct ash_jinja_function *function;

    for (const struct ash_jinja_scope *scope = run->scope; scope != NULL; scope = scope->parent) {
        const struct ash_jinja_value *value = ash_jinja_dict_get(&scope->names, name);
        if (value == NULL) continue;
        *out = *value;
        return 0;
    }
    function = ash_jinja_find_function(name);
    *out = function != NULL ? (struct ash_jinja_value){ASH_JINJA_FUNCTION, {.function = function}}
                            : ash_jinja_undefined(name);
    return 0;
}

static int eval_items(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value list;
    int rc = ash_jinja_list_new(run, &list);

    if (rc == 0) list.list->tuple = ash_jinja_truthy(node->value);
    for (const struct ash_jinja_node *item = node->first; rc == 0 && item != NULL; item = item->next) {
        struct ash_jinja_value value;
        rc = ash_jinja_eval(run, item, &value);
        if (rc == 0) rc = ash_jinja_list_add(run, list.list, value);
    }
    *out = list;
    return rc;
}

static int eval_pairs(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value dict;
    int rc = ash_jinja_dict_new(run, ASH_JINJA_DICT, &dict);

    for (const struct ash_jinja_node *item = node->first; rc == 0 && item != NULL; item = item->next->next) {
        struct ash_jinja_value key, value;
        struct ash_jinja_text text;
        rc = ash_jinja_eval(run, item, &key);
        if (rc == 0) rc = ash_jinja_eval(run, item->next, &value);
        if (rc == 0) rc = ash_jinja_key(run, key, &text);
        if (rc == 0) rc = ash_jinja_dict_set(run, dict.dict, text, value);
    }
    *out = dict;
    return rc;
}

/* The members of a list as arguments of their own. */
static int spread_args(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_args *args)
{
    struct ash_jinja_list *list = NULL;
    int rc = ash_jinja_to_list(run, value, &list);

    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        if (args->count == ASH_JINJA_ARGS_MAX) return ash_jinja_fail(run, -E2BIG, "a call has too many arguments");
        args->names[args->count] = (struct ash_jinja_text){"", 0};
        args->values[args->count++] = list->items[i];
    }
    return rc;
}

int ash_jinja_eval_args(struct ash_jinja_run *run, const struct ash_jinja_node *first, struct ash_jinja_args *args)
{
    args->count = 0;
    for (const struct ash_jinja_node *node = first; node != NULL; node = node->next) {
        bool named = node->type == ASH_JINJA_ARG, spread = named && ash_jinja_text_is(node->name, "*");
        struct ash_jinja_value value;
        int rc = ash_jinja_eval(run, named ? node->a : node, &value);
        if (rc == 0 && spread) rc = spread_args(run, value, args);
        if (rc < 0) return rc;
        if (spread) continue;
        if (args->count == ASH_JINJA_ARGS_MAX) return ash_jinja_fail(run, -E2BIG, "a call has too many arguments");
        args->names[args->count] = named ? node->name : (struct ash_jinja_text){"", 0};
        args->values[args->count++] = value;
    }
    return 0;
}

int ash_jinja_call(struct ash_jinja_run *run, struct ash_jinja_value callee, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    if (callee.kind == ASH_JINJA_FUNCTION) return callee.function->call(run, ash_jinja_none(), args, out);
    if (callee.kind == ASH_JINJA_MACRO) return ash_jinja_call_macro(run, callee.macro, args, out);
    if (callee.kind == ASH_JINJA_UNDEFINED)
        return ash_jinja_fail(run, -ENOTSUP, "there is no function '%.*s'",
                              callee.text.size_bytes < 64 ? (int)callee.text.size_bytes : 64,
                              callee.text.data != NULL ? callee.text.data : "");
    return ash_jinja_fail(run, -EINVAL, "%s cannot be called", ash_jinja_kind_name(callee));
}

/* value.method(…) is one thing: methods are not values. A namespace or dict may hold a macro, though. */
static int eval_call(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_args args;
    struct ash_jinja_value self, held;
    int rc = ash_jinja_eval_args(run, node->first, &args);

    if (rc < 0) return rc;
    if (node->a->type != ASH_JINJA_ATTR) {
        rc = ash_jinja_eval(run, node->a, &self);
        return rc < 0 ? rc : ash_jinja_call(run, self, &args, out);
    }
    rc = ash_jinja_eval(run, node->a->a, &self);
    if (rc < 0) return rc;
    if (self.kind == ASH_JINJA_DICT || self.kind == ASH_JINJA_NAMESPACE) {
        const struct ash_jinja_value *member = ash_jinja_dict_get(self.dict, node->a->name);
        held = member != NULL ? *member : ash_jinja_none();
        if (held.kind == ASH_JINJA_MACRO || held.kind == ASH_JINJA_FUNCTION)
            return ash_jinja_call(run, held, &args, out);
    }
    return ash_jinja_method(run, self, node->a->name, &args, out);
}

static int eval_filter(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_args args;
    struct ash_jinja_value value;
    int rc = ash_jinja_eval(run, node->a, &value);

    if (rc < 0) return rc;
    rc = ash_jinja_eval_args(run, node->first, &args);
    return rc < 0 ? rc : ash_jinja_filter(run, node->name, value, &args, out);
}

static int eval_test(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_args args;
    struct ash_jinja_value value;
    bool result = false;
    int rc = ash_jinja_eval(run, node->a, &value);

    if (rc < 0) return rc;
    rc = ash_jinja_eval_args(run, node->first, &args);
    if (rc < 0) return rc;
    rc = ash_jinja_test(run, node->name, value, &args, &result);
    *out = ash_jinja_bool(result);
    return rc;
}

static int eval_unary(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value value;
    int rc = ash_jinja_eval(run, node->a, &value);

    if (rc < 0) return rc;
    if (node->op == ASH_JINJA_NOT) {
        *out = ash_jinja_bool(!ash_jinja_truthy(value));
        return 0;
    }
    return ash_jinja_binary(run, node->op, ash_jinja_int(0), value, out);
}

/* `and` and `or` give one of their operands, and look at the second only when they must. */
static int eval_binary(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value left, right;
    int rc = ash_jinja_eval(run, node->a, &left);

    if (rc < 0) return rc;
    if (node->op == ASH_JINJA_AND || node->op == ASH_JINJA_OR) {
        if (ash_jinja_truthy(left) == (node->op == ASH_JINJA_AND)) return ash_jinja_eval(run, node->b, out);
        *out = left;
        return 0;
    }
    rc = ash_jinja_eval(run, node->b, &right);
    if (rc < 0) return rc;
    run->line = node->line;
    return ash_jinja_binary(run, node->op, left, right, out);
}

static int eval_compare(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value left, right;
    bool result = true;
    int rc = ash_jinja_eval(run, node->a, &left);

    for (; rc == 0 && result && node != NULL; node = node->c) {
        rc = ash_jinja_eval(run, node->b, &right);
        if (rc == 0) rc = ash_jinja_compare(run, node->op, left, right, &result);
        left = right;
    }
    *out = ash_jinja_bool(result);
    return rc;
}

static int eval_condition(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    struct ash_jinja_value condition;
    int rc = ash_jinja_eval(run, node->b, &condition);

    if (rc < 0) return rc;
    if (ash_jinja_truthy(condition)) return ash_jinja_eval(run, node->a, out);
    if (node->c != NULL) return ash_jinja_eval(run, node->c, out);
    *out = ash_jinja_undefined(ash_jinja_text_of("if without else"));
    return 0;
}

static int eval_access(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    const struct ash_jinja_node *parts[3] = {node->b, node->c, node->d};
    struct ash_jinja_value value, bounds[3];
    int rc = ash_jinja_eval(run, node->a, &value);

    if (rc < 0) return rc;
    run->line = node->line;
    if (node->type == ASH_JINJA_ATTR) return ash_jinja_attr(run, value, node->name, out);
    for (int i = 0; i < 3; i++) {
        bounds[i] = ash_jinja_none();
        if (parts[i] != NULL) rc = ash_jinja_eval(run, parts[i], &bounds[i]);
        if (rc < 0) return rc;
    }
    return node->type == ASH_JINJA_INDEX ? ash_jinja_index(run, value, bounds[0], out)
                                         : ash_jinja_slice(run, value, bounds, out);
}

static int eval_node(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    switch (node->type) {
    case ASH_JINJA_CONST:
        *out = node->value;
        return 0;
    case ASH_JINJA_NAME:
        return eval_name(run, node->name, out);
    case ASH_JINJA_ITEMS:
        return eval_items(run, node, out);
    case ASH_JINJA_PAIRS:
        return eval_pairs(run, node, out);
    case ASH_JINJA_ATTR:
    case ASH_JINJA_INDEX:
    case ASH_JINJA_SLICE:
        return eval_access(run, node, out);
    case ASH_JINJA_CALL:
        return eval_call(run, node, out);
    case ASH_JINJA_FILTER:
        return eval_filter(run, node, out);
    case ASH_JINJA_TEST:
        return eval_test(run, node, out);
    case ASH_JINJA_UNARY:
        return eval_unary(run, node, out);
    case ASH_JINJA_BINARY:
        return eval_binary(run, node, out);
    case ASH_JINJA_COMPARE:
        return eval_compare(run, node, out);
    case ASH_JINJA_COND:
        return eval_condition(run, node, out);
    case ASH_JINJA_CAPTURE:
        return ash_jinja_capture(run, node->body, out);
    default:
        return ash_jinja_fail(run, -EINVAL, "a statement where a value should be");
    }
}

int ash_jinja_eval(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out)
{
    int rc = ash_jinja_enter(run);

    if (rc < 0) return rc;
    run->line = node->line;
    rc = ash_jinja_step(run);
    if (rc == 0) rc = eval_node(run, node, out);
    ash_jinja_leave(run);
    return rc;
}
