/* item: a document as text, target and choices; contexts with examples before them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "post/eval/task.h"

#define STREAM_EXAMPLES 1
#define EXAMPLES_SEED 1234

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A column's value as Python's str() has it. */
static int add_value(const json_t *value, struct ash_str *text)
{
    if (json_is_string(value)) return ash_str_add(text, json_string_value(value), json_string_length(value));
    if (json_is_integer(value)) return ash_str_addf(text, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) return ash_str_addf(text, "%.17g", json_real_value(value));
    if (json_is_boolean(value)) return ash_str_adds(text, json_is_true(value) ? "True" : "False");
    return ash_str_adds(text, json_is_null(value) ? "None" : "");
}

/* The text of a field; *column_out: the value, where the field names a column. */
static int render(const struct ash_task_field *field, const json_t *doc, const char *key, struct ash_str *text,
                  const json_t **column_out, struct ash_err *err)
{
    const json_t *column = field->source != NULL ? json_object_get(doc, field->source) : NULL;
    int rc = ash_str_adds(text, "");

    *column_out = column;
    if (rc == 0 && column != NULL) rc = add_value(column, text);
    if (rc < 0) return ash_err_set(err, rc, "out of memory for a document");
    if (column != NULL || field->source == NULL) return 0;
    rc = ash_chat_template_render_json(field->template, doc, text, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", key);
    if (field->ends_line) rc = ash_str_adds(text, "\n");
    return rc < 0 ? ash_err_set(err, rc, "out of memory for a document") : 0;
}

/* ---- lists as Python writes them --------------------------------------------------------------------------------- */

/* A quoted string from *at on; NULL if it has no end. */
static json_t *read_quoted(const char **at)
{
    char quote = *(*at)++;
    struct ash_str text = {0};
    json_t *string = NULL;
    int rc = ash_str_adds(&text, "");

    for (; rc == 0 && **at != '\0' && **at != quote; (*at)++) {
        char c = **at;

        if (c == '\\' && (*at)[1] != '\0') {
            c = *++*at;
            c = (char)(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
        }
        rc = ash_str_add(&text, &c, 1);
    }
    if (rc == 0 && **at == quote) {
        (*at)++;
        string = json_stringn(text.data, text.size_bytes);
    }
    ash_str_fini(&text);
    return string;
}

/* ['a', "b", 3] as an array of strings; NULL: it is none. */
static json_t *read_list(const char *text)
{
    const char *at = text + strspn(text, " \n\t");
    json_t *list = json_array(), *item;

    if (*at++ != '[') goto fail;
    for (;;) {
        at += strspn(at, " \n\t,");
        if (*at == ']') break;
        if (*at == '\'' || *at == '"') {
            item = read_quoted(&at);
        } else {
            size_t size = strcspn(at, ",]");

            item = at[size] != '\0' && size > 0 ? json_stringn(at, size) : NULL;
            at += size;
        }
        if (item == NULL) goto fail;
        json_array_append_new(list, item);
    }
    at++;
    if (at[strspn(at, " \n\t")] == '\0') return list;
fail:
    json_decref(list);
    return NULL;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static json_t *strings_of(const json_t *list)
{
    json_t *strings = json_array(), *value;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, value) {
        struct ash_str text = {0};

        if (ash_str_adds(&text, "") == 0 && add_value(value, &text) == 0)
            json_array_append_new(strings, json_stringn(text.data, text.size_bytes));
        ash_str_fini(&text);
    }
    return strings;
}

static int find_choices(const struct ash_task *task, const json_t *doc, struct ash_task_item *item, struct ash_err *err)
{
    const struct ash_task_field *field = &task->choice;
    const json_t *column = NULL;
    struct ash_str text = {0};
    int rc = 0;

    if (field->list == NULL && field->source == NULL) return 0;
    if (field->list == NULL) rc = render(field, doc, "doc_to_choice", &text, &column, err);
    if (rc == 0) {
        item->choices = field->list != NULL     ? strings_of(field->list)
                        : json_is_array(column) ? strings_of(column)
                                                : read_list(text.data);
        if (json_array_size(item->choices) == 0)
            rc = ash_err_set(err, -EINVAL, "doc_to_choice gives no list: '%.80s'", text.data != NULL ? text.data : "");
    }
    ash_str_fini(&text);
    return rc;
}

static bool is_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Which choice is right: an index, or its text. */
static int find_gold(const struct ash_task *task, struct ash_task_item *item, struct ash_err *err)
{
    long count = (long)json_array_size(item->choices);

    item->gold = -1;
    if (item->choices == NULL) return 0;
    if (is_digits(item->target) && strlen(item->target) < 9) {
        item->gold = strtol(item->target, NULL, 10);
    } else {
        for (long i = 0; i < count && item->gold < 0; i++)
            if (strcmp(json_string_value(json_array_get(item->choices, (size_t)i)), item->target) == 0) item->gold = i;
    }
    if (task->output == ASH_TASK_MULTIPLE_CHOICE && (item->gold < 0 || item->gold >= count))
        return ash_err_set(err, -EINVAL, "doc_to_target gives '%.60s', which is none of the %ld choices", item->target,
                           count);
    if (item->gold >= count) item->gold = -1;
    return 0;
}

static int find_target(const struct ash_task *task, const json_t *doc, struct ash_task_item *item, struct ash_err *err)
{
    const json_t *column = NULL;
    struct ash_str text = {0};
    int rc = render(&task->target, doc, "doc_to_target", &text, &column, err);

    if (rc == 0 && json_is_array(column)) item->targets = strings_of(column);
    if (rc == 0 && item->targets == NULL && text.size_bytes > 1 && text.data[0] == '[' &&
        text.data[text.size_bytes - 1] == ']')
        item->targets = read_list(text.data);
    if (rc == 0) {
        const char *first = json_string_value(json_array_get(item->targets, 0));

        item->target = strdup(first != NULL ? first : text.data);
        if (item->target == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for a document");
    }
    ash_str_fini(&text);
    return rc;
}

int ash_task_item_init(const struct ash_task *task, const json_t *doc, struct ash_task_item *item, struct ash_err *err)
{
    const json_t *column = NULL;
    struct ash_str text = {0};
    int rc = json_is_object(doc) ? render(&task->text, doc, "doc_to_text", &text, &column, err)
                                 : ash_err_set(err, -EINVAL, "it is no object");

    if (rc == 0) {
        item->text = text.data;
        text.data = NULL;
        rc = find_target(task, doc, item, err);
    }
    ash_str_fini(&text);
    if (rc == 0) rc = find_choices(task, doc, item, err);
    if (rc == 0) rc = find_gold(task, item, err);
    if (rc < 0) ash_task_item_fini(item);
    return rc;
}

void ash_task_item_fini(struct ash_task_item *item)
{
    free(item->text);
    free(item->target);
    json_decref(item->targets);
    json_decref(item->choices);
    *item = (struct ash_task_item){0};
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static int add_example(const struct ash_task *task, const json_t *doc, struct ash_str *context, struct ash_err *err)
{
    struct ash_task_item item = {0};
    const char *answer;
    int rc = ash_task_item_init(task, doc, &item, err);

    if (rc < 0) return rc;
    answer = item.gold >= 0 ? json_string_value(json_array_get(item.choices, (size_t)item.gold)) : item.target;
    rc = ash_str_addf(context, "%s%s%s%s", item.text, task->target_delimiter, answer, task->fewshot_delimiter);
    ash_task_item_fini(&item);
    return rc < 0 ? ash_err_set(err, rc, "out of memory for examples") : 0;
}

int ash_task_context(const struct ash_task *task, const json_t *few, const json_t *docs, size_t index,
                     struct ash_str *context, struct ash_err *err)
{
    size_t count = json_array_size(few), added = 0;
    struct ash_task_item item = {0};
    int rc = ash_str_adds(context, task->description);

    for (size_t i = 0; rc == 0 && i < count && added < task->fewshot; i++) {
        size_t at =
            task->takes_first_examples ? i : (size_t)ash_rng_permute(EXAMPLES_SEED, STREAM_EXAMPLES + index, i, count);

        if (few == docs && at == index) continue; /* not its own answer */
        rc = add_example(task, json_array_get(few, at), context, err);
        added++;
    }
    if (rc == 0 && added < task->fewshot)
        rc = ash_err_set(err, -EINVAL, "num_fewshot is %zu, and there are %zu examples", task->fewshot, added);
    if (rc == 0) rc = ash_task_item_init(task, json_array_get(docs, index), &item, err);
    if (rc == 0 && ash_str_adds(context, item.text) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory for a context");
    ash_task_item_fini(&item);
    return rc;
}
