/* Filters of lists. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>

#include "base/assert.h"

static int do_list(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    struct ash_jinja_list *list = NULL;
    int rc = ash_jinja_to_list(run, self, &list);

    (void)args;
    *out = (struct ash_jinja_value){ASH_JINJA_LIST, {.list = list}};
    return rc;
}

static int pick(struct ash_jinja_run *run, struct ash_jinja_value self, bool last, struct ash_jinja_value *out)
{
    struct ash_jinja_list *list = NULL;
    int rc = ash_jinja_to_list(run, self, &list);

    if (rc < 0) return rc;
    *out = list->count > 0 ? list->items[last ? list->count - 1 : 0]
                           : ash_jinja_undefined(ash_jinja_text_of(last ? "last" : "first"));
    return 0;
}

static int do_first(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                    struct ash_jinja_value *out)
{
    (void)args;
    return pick(run, self, false, out);
}

static int do_last(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    (void)args;
    return pick(run, self, true, out);
}

static int do_reverse(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                      struct ash_jinja_value *out)
{
    const struct ash_jinja_value bounds[3] = {ash_jinja_none(), ash_jinja_none(), ash_jinja_int(-1)};

    (void)args;
    return ash_jinja_slice(run, self, bounds, out);
}

static int do_join(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out)
{
    const struct ash_jinja_value *mark = ash_jinja_arg(args, 0, "d"), *attribute = ash_jinja_arg(args, 1, "attribute");
    struct ash_jinja_args list = {.values = {self}, .names = {{"", 0}}, .count = 1};
    struct ash_jinja_value between = mark != NULL ? *mark : ash_jinja_string(ash_jinja_text_of(""));

    if (attribute != NULL) return ash_jinja_fail(run, -ENOTSUP, "join by attribute is not supported");
    if (between.kind != ASH_JINJA_STRING) return ash_jinja_fail(run, -EINVAL, "join needs a string");
    return ash_jinja_string_method(ash_jinja_text_of("join"))(run, between, &list, out);
}

/* The arguments from the first-th on. */
static struct ash_jinja_args args_from(const struct ash_jinja_args *args, size_t first)
{
    struct ash_jinja_args rest = {.count = 0};

    for (size_t i = first; i < args->count; i++) {
        rest.values[rest.count] = args->values[i];
        rest.names[rest.count++] = args->names[i];
    }
    return rest;
}

/* map(attribute='x') or map('filter'). */
static int do_map(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                  struct ash_jinja_value *out)
{
    const struct ash_jinja_value *name = ash_jinja_arg(args, 0, NULL),
                                 *attribute = ash_jinja_arg(args, SIZE_MAX, "attribute");
    struct ash_jinja_args rest = args_from(args, 1);
    struct ash_jinja_list *list = NULL;
    int rc = ash_jinja_to_list(run, self, &list);

    if (rc < 0) return rc;
    rc = ash_jinja_list_new(run, out);
    if (rc < 0) return rc;
    if (name == NULL && attribute == NULL) return ash_jinja_fail(run, -EINVAL, "map needs a filter or an attribute");
    if (name != NULL && name->kind != ASH_JINJA_STRING)
        return ash_jinja_fail(run, -EINVAL, "map needs a filter's name");
    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        struct ash_jinja_value value;

        rc = ash_jinja_step(run);
        if (rc < 0) break;
        rc = name == NULL ? ash_jinja_index(run, list->items[i], *attribute, &value)
                          : ash_jinja_filter(run, name->text, list->items[i], &rest, &value);
        if (rc == 0) rc = ash_jinja_list_add(run, out->list, value);
    }
    return rc;
}

/* What select and its kin ask of a member. */
struct question {
    const struct ash_jinja_value *attribute; /* of the member; NULL: the member itself */
    const struct ash_jinja_value *test;      /* NULL: is it true? */
    struct ash_jinja_args args;              /* of the test */
};

static int answer(struct ash_jinja_run *run, const struct question *question, struct ash_jinja_value value, bool *out)
{
    int rc = ash_jinja_step(run);

    if (rc == 0 && question->attribute != NULL) rc = ash_jinja_index(run, value, *question->attribute, &value);
    if (rc < 0) return rc;
    if (question->test != NULL) return ash_jinja_test(run, question->test->text, value, &question->args, out);
    *out = ash_jinja_truthy(value);
    return 0;
}

/* The members (or with by_attribute, those whose attribute) that a test takes; without a test those that are true. */
static int choose(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                  bool by_attribute, bool wanted, struct ash_jinja_value *out)
{
    const struct question question = {.attribute = by_attribute ? ash_jinja_arg(args, 0, NULL) : NULL,
                                      .test = ash_jinja_arg(args, by_attribute, NULL),
                                      .args = args_from(args, (size_t)by_attribute + 1)};
    struct ash_jinja_list *list = NULL;
    int rc;

    if (!ash_jinja_truthy(self)) return ash_jinja_list_new(run, out); /* none, too: Jinja looks into it only then */
    rc = ash_jinja_to_list(run, self, &list);
    if (rc < 0) return rc;
    rc = ash_jinja_list_new(run, out);
    if (rc < 0) return rc;
    if ((by_attribute && question.attribute == NULL) ||
        (question.test != NULL && question.test->kind != ASH_JINJA_STRING))
        return ash_jinja_fail(run, -EINVAL, "the name of an attribute or of a test is missing");
    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        bool is_taken = false;

        rc = answer(run, &question, list->items[i], &is_taken);
        if (rc == 0 && is_taken == wanted) rc = ash_jinja_list_add(run, out->list, list->items[i]);
    }
    return rc;
}

static int do_select(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    return choose(run, self, args, false, true, out);
}

static int do_reject(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out)
{
    return choose(run, self, args, false, false, out);
}

static int do_selectattr(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                         struct ash_jinja_value *out)
{
    return choose(run, self, args, true, true, out);
}

static int do_rejectattr(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                         struct ash_jinja_value *out)
{
    return choose(run, self, args, true, false, out);
}

ash_jinja_call_fn ash_jinja_list_filter(struct ash_jinja_text name)
{
    static const struct ash_jinja_function filters[] = {
        {"list", do_list},
        {"first", do_first},
        {"last", do_last},
        {"reverse", do_reverse},
        {"join", do_join},
        {"map", do_map},
        {"select", do_select},
        {"reject", do_reject},
        {"selectattr", do_selectattr},
        {"rejectattr", do_rejectattr},
    };

    for (size_t i = 0; i < ASH_COUNT(filters); i++)
        if (ash_jinja_text_is(name, filters[i].name)) return filters[i].call;
    return NULL;
}
