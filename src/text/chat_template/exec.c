/* Statements are run by walking the tree. A loop's body sees its own names, fresh each time round; `if` has none
 * . */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

static int assign(struct ash_jinja_run *run, const struct ash_jinja_node *target, struct ash_jinja_value value)
{
    struct ash_jinja_value object;
    int rc;

    run->line = target->line;
    if (target->type == ASH_JINJA_NAME) return ash_jinja_dict_set(run, &run->scope->names, target->name, value);
    rc = ash_jinja_eval(run, target->a, &object);
    if (rc < 0) return rc;
    if (object.kind != ASH_JINJA_NAMESPACE)
        return ash_jinja_fail(run, -EINVAL, "only a namespace can be changed, and this is %s",
                              ash_jinja_kind_name(object));
    return ash_jinja_dict_set(run, object.dict, target->name, value);
}

/* One target takes the value, several take its members. */
static int assign_all(struct ash_jinja_run *run, const struct ash_jinja_node *first, struct ash_jinja_value value)
{
    struct ash_jinja_list *list = NULL;
    size_t count = 0;
    int rc;

    if (first->next == NULL) return assign(run, first, value);
    rc = ash_jinja_to_list(run, value, &list);
    for (const struct ash_jinja_node *target = first; rc == 0 && target != NULL; target = target->next) {
        if (count == list->count) return ash_jinja_fail(run, -EINVAL, "there are fewer values than names");
        rc = assign(run, target, list->items[count++]);
    }
    if (rc == 0 && count < list->count) return ash_jinja_fail(run, -EINVAL, "there are more values than names");
    return rc;
}

/* ---- text of a body ---------------------------------------------------------------------------------------------- */

int ash_jinja_capture(struct ash_jinja_run *run, const struct ash_jinja_node *body, struct ash_jinja_value *out)
{
    struct ash_str text = {0}, *before = run->out;
    int rc;

    run->out = &text;
    rc = ash_jinja_exec(run, body);
    run->out = before;
    if (rc >= 0 && ash_jinja_copy(run, text.data, text.size_bytes, out) < 0) rc = -ENOMEM;
    ash_str_fini(&text);
    return rc < 0 ? rc : 0;
}

static int exec_set(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    struct ash_jinja_value value;
    int rc = ash_jinja_eval(run, node->a, &value);

    return rc < 0 ? rc : assign_all(run, node->first, value);
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

/* The parameter's argument: by position, by name, or its default. */
static int bind(struct ash_jinja_run *run, const struct ash_jinja_node *parameter, size_t position,
                const struct ash_jinja_args *args, struct ash_jinja_scope *scope)
{
    struct ash_jinja_value value = ash_jinja_undefined(parameter->name);
    bool given = position < args->count && args->names[position].size_bytes == 0;

    if (given) value = args->values[position];
    for (size_t i = 0; !given && i < args->count; i++) {
        if (args->names[i].size_bytes == 0 || !ash_jinja_text_equal(args->names[i], parameter->name)) continue;
        value = args->values[i];
        given = true;
    }
    if (!given && parameter->b != NULL) {
        int rc = ash_jinja_eval(run, parameter->b, &value);
        if (rc < 0) return rc;
    }
    return ash_jinja_dict_set(run, &scope->names, parameter->name, value);
}

int ash_jinja_call_macro(struct ash_jinja_run *run, const struct ash_jinja_node *macro,
                         const struct ash_jinja_args *args, struct ash_jinja_value *out)
{
    struct ash_jinja_scope scope = {.parent = run->globals}, *before = run->scope;
    size_t position = 0;
    const struct ash_jinja_node *caller = run->caller;
    int rc = ash_jinja_enter(run);

    if (rc < 0) return rc;
    run->caller = NULL;
    if (macro->type == ASH_JINJA_CONST) { /* caller() */
        ash_jinja_leave(run);
        *out = macro->value;
        return 0;
    }
    run->scope = &scope;
    for (const struct ash_jinja_node *parameter = macro->first; rc == 0 && parameter != NULL;
         parameter = parameter->next)
        rc = bind(run, parameter, position++, args, &scope);
    if (rc == 0 && caller != NULL)
        rc = ash_jinja_dict_set(run, &scope.names, ash_jinja_text_of("caller"),
                                (struct ash_jinja_value){ASH_JINJA_MACRO, {.macro = caller}});
    if (rc == 0 && args->count > position)
        rc = ash_jinja_fail(run, -EINVAL, "a macro gets more arguments than it takes");
    if (rc == 0) rc = ash_jinja_capture(run, macro->body, out);
    run->scope = before;
    ash_jinja_leave(run);
    return rc;
}

/* Run the body, and remember which part of the text it is. */
static int exec_generation(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    size_t start = run->out->size_bytes;
    int rc = ash_jinja_exec(run, node->body);

    if (rc < 0 || run->spans == NULL || run->out != run->text || run->out->size_bytes == start) return rc;
    if (ash_chat_spans_add(run->spans, start, run->out->size_bytes) < 0)
        return ash_jinja_fail(run, -ENOMEM, "out of memory for the spans of generation blocks");
    return rc;
}

/* The body is written first; caller() returns its text. */
static int exec_call_block(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    struct ash_jinja_node *caller = ash_jinja_alloc(run, sizeof(*caller));
    struct ash_jinja_value callee, value;
    struct ash_jinja_args args;
    int rc = caller == NULL ? -ENOMEM : 0;

    if (rc < 0) return rc;
    *caller = (struct ash_jinja_node){.type = ASH_JINJA_CONST};
    rc = ash_jinja_capture(run, node->body, &caller->value);
    if (rc < 0) return rc;
    rc = ash_jinja_eval(run, node->a->a, &callee);
    if (rc < 0) return rc;
    rc = ash_jinja_eval_args(run, node->a->first, &args);
    if (rc < 0) return rc;
    run->caller = caller;
    rc = ash_jinja_call(run, callee, &args, &value);
    run->caller = NULL;
    return rc < 0 ? rc : ash_jinja_print(run, run->out, value);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* A running loop. Its scope and the variable `loop` are reset in each iteration. */
struct loop {
    const struct ash_jinja_node *node;
    const struct ash_jinja_list *list;
    struct ash_jinja_scope scope;
    struct ash_jinja_value variable;
};

/* The variable `loop` for the item at this place. */
static int set_loop(struct ash_jinja_run *run, struct loop *loop, size_t at)
{
    const struct ash_jinja_list *list = loop->list;
    int64_t index = (int64_t)at, count = (int64_t)list->count;
    const struct {
        const char *name;
        struct ash_jinja_value value;
    } members[] = {
        {"index", ash_jinja_int(index + 1)},
        {"index0", ash_jinja_int(index)},
        {"revindex", ash_jinja_int(count - index)},
        {"revindex0", ash_jinja_int(count - index - 1)},
        {"first", ash_jinja_bool(at == 0)},
        {"last", ash_jinja_bool(at + 1 == list->count)},
        {"length", ash_jinja_int(count)},
        {"previtem", at > 0 ? list->items[at - 1] : ash_jinja_undefined(ash_jinja_text_of("previtem"))},
        {"nextitem", at + 1 < list->count ? list->items[at + 1] : ash_jinja_undefined(ash_jinja_text_of("nextitem"))},
    };
    int rc = loop->variable.kind == ASH_JINJA_DICT ? 0 : ash_jinja_dict_new(run, ASH_JINJA_DICT, &loop->variable);

    for (size_t i = 0; rc == 0 && i < sizeof(members) / sizeof(members[0]); i++)
        rc = ash_jinja_dict_set(run, loop->variable.dict, ash_jinja_text_of(members[i].name), members[i].value);
    return rc < 0 ? rc : ash_jinja_dict_set(run, &loop->scope.names, ash_jinja_text_of("loop"), loop->variable);
}

/* One time round, or with test only the question whether the loop's condition takes this item. */
static int run_round(struct ash_jinja_run *run, struct loop *loop, size_t at, bool test, bool *taken_out)
{
    const struct ash_jinja_node *node = loop->node;
    struct ash_jinja_value condition = ash_jinja_bool(true);
    int rc = ash_jinja_step(run);

    if (rc < 0) return rc;
    loop->scope.parent = run->scope;
    loop->scope.names.count = 0;
    run->scope = &loop->scope;
    if (!test) rc = set_loop(run, loop, at);
    if (rc == 0) rc = assign_all(run, node->first, loop->list->items[at]);
    if (rc == 0 && test) rc = ash_jinja_eval(run, node->b, &condition);
    if (rc == 0 && !test) rc = ash_jinja_exec(run, node->body);
    run->scope = loop->scope.parent;
    *taken_out = ash_jinja_truthy(condition);
    return rc;
}

/* The items that the loop's condition takes: `loop` counts only those. */
static int filter_items(struct ash_jinja_run *run, struct loop *loop)
{
    struct ash_jinja_value taken;
    int rc = ash_jinja_list_new(run, &taken);

    for (size_t i = 0; rc == 0 && i < loop->list->count; i++) {
        bool take = false;
        rc = run_round(run, loop, i, true, &take);
        if (rc == 0 && take) rc = ash_jinja_list_add(run, taken.list, loop->list->items[i]);
    }
    loop->list = taken.list;
    return rc;
}

static int exec_for(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    struct loop loop = {.node = node};
    struct ash_jinja_value value;
    struct ash_jinja_list *list = NULL;
    bool taken;
    int rc = ash_jinja_eval(run, node->a, &value);

    if (rc == 0) rc = ash_jinja_to_list(run, value, &list);
    loop.list = list;
    if (rc == 0 && node->b != NULL) rc = filter_items(run, &loop);
    if (rc < 0) return rc;
    if (loop.list->count == 0) return ash_jinja_exec(run, node->other);
    for (size_t i = 0; i < loop.list->count; i++) {
        rc = run_round(run, &loop, i, false, &taken);
        if (rc < 0) return rc;
        if (rc == JUMP_BREAK) break;
    }
    return 0;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static int exec_if(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    for (;;) {
        struct ash_jinja_value condition;
        int rc = ash_jinja_eval(run, node->a, &condition);
        if (rc < 0) return rc;
        if (ash_jinja_truthy(condition)) return ash_jinja_exec(run, node->body);
        /* an elif is an if alone in the other branch: no need to go deeper */
        if (node->other == NULL || node->other->type != ASH_JINJA_IF || node->other->next != NULL)
            return ash_jinja_exec(run, node->other);
        node = node->other;
    }
}

static int exec_output(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    struct ash_jinja_value value;
    int rc = ash_jinja_eval(run, node->a, &value);

    return rc < 0 ? rc : ash_jinja_print(run, run->out, value);
}

static int exec_one(struct ash_jinja_run *run, const struct ash_jinja_node *node)
{
    switch (node->type) {
    case ASH_JINJA_TEXT:
        return ash_jinja_print(run, run->out, ash_jinja_string(node->name));
    case ASH_JINJA_OUTPUT:
        return exec_output(run, node);
    case ASH_JINJA_IF:
        return exec_if(run, node);
    case ASH_JINJA_FOR:
        return exec_for(run, node);
    case ASH_JINJA_SET:
        return exec_set(run, node);
    case ASH_JINJA_DEFINE:
        return ash_jinja_dict_set(run, &run->scope->names, node->name,
                                  (struct ash_jinja_value){ASH_JINJA_MACRO, {.macro = node}});
    case ASH_JINJA_CALLBLOCK:
        return exec_call_block(run, node);
    case ASH_JINJA_GENERATION:
        return exec_generation(run, node);
    case ASH_JINJA_BREAK:
        return JUMP_BREAK;
    case ASH_JINJA_CONTINUE:
        return JUMP_CONTINUE;
    default:
        return ash_jinja_fail(run, -EINVAL, "a value where a statement should be");
    }
}

int ash_jinja_exec(struct ash_jinja_run *run, const struct ash_jinja_node *statements)
{
    int rc = ash_jinja_enter(run);

    if (rc < 0) return rc;
    for (const struct ash_jinja_node *node = statements; rc == 0 && node != NULL; node = node->next) {
        run->line = node->line;
        rc = ash_jinja_step(run);
        if (rc == 0) rc = exec_one(run, node);
    }
    ash_jinja_leave(run);
    return rc;
}
