/* rows: objects of JSON lines, by the columns that they have. */
#include "post/chat/rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function", NULL};

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int check_messages(const json_t *messages, const char *column, struct ash_err *err)
{
    size_t i;
    json_t *message;

    json_array_foreach(messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        bool is_known = false;

        for (size_t r = 0; role != NULL && roles[r] != NULL; r++)
            is_known |= strcmp(role, roles[r]) == 0;
        if (!is_known)
            return ash_err_set(err, -EINVAL,
                               "%s: turn %zu has the role '%.40s': system, user, assistant, tool, developer and "
                               "function are known",
                               column, i, role != NULL ? role : "(none)");
    }
    if (json_array_size(messages) > 0) return 0;
    return ash_err_set(err, -EINVAL, "%s: the conversation is empty", column);
}

static int check_learned(const struct ash_chat_row *row, struct ash_err *err)
{
    for (size_t i = 1; i < row->ids.count; i++)
        if (row->marks[i] != 0) return 0;
    return ash_err_set(err, -EINVAL,
                       "no token of it would be learned: it needs an answer (of the role assistant, or a completion)");
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static int add_marked(struct ash_chat_row *row, int32_t id, uint8_t mark, struct ash_err *err)
{
    uint8_t *marks;

    if (ash_ids_add(&row->ids, id) < 0) return ash_err_set(err, -ENOMEM, "out of memory for an example");
    marks = realloc(row->marks, row->ids.capacity);
    if (marks == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an example");
    row->marks = marks;
    row->mark_capacity = row->ids.capacity;
    row->marks[row->ids.count - 1] = mark;
    return 0;
}

/* A prompt that is not learned (NULL: none) and a text that is, with the end token. */
static int read_texts(const struct ash_chat_reader *reader, const char *prompt, const char *text,
                      struct ash_chat_row *row, struct ash_err *err)
{
    struct ash_str whole = {0};
    struct ash_chat_span span = {prompt != NULL ? strlen(prompt) : 0, 0};
    struct ash_chat_spans spans = {&span, 1, 1};
    int rc = prompt != NULL ? ash_str_adds(&whole, prompt) : 0;

    if (rc == 0) rc = ash_str_adds(&whole, text);
    if (rc < 0) rc = ash_err_set(err, rc, "out of memory for an example");
    span.end = whole.size_bytes;
    if (rc == 0)
        rc = ash_chat_mark(&(struct ash_chat_text){reader->tokenizer, whole.data, whole.size_bytes, true}, &spans, row,
                           err);
    ash_str_fini(&whole);
    if (rc < 0) return rc;
    if (reader->eos_id >= 0 && (row->ids.count == 0 || row->ids.data[row->ids.count - 1] != reader->eos_id))
        return add_marked(row, reader->eos_id, 1, err);
    return 0;
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

int ash_chat_set_tools(const json_t *object, json_t *variables, struct ash_err *err)
{
    json_t *tools = json_object_get(object, "tools"), *list;
    int rc = 0;

    if (json_is_string(tools)) {
        rc = ash_json_parse(json_string_value(tools), json_string_length(tools), "tools", &list, err);
        if (rc < 0) return rc;
    } else {
        list = json_incref(tools);
    }
    if (list != NULL && !json_is_array(list) && !json_is_null(list))
        rc = ash_err_set(err, -EINVAL, "tools must be a list of objects, or such a list as text");
    if (rc == 0 && list != NULL) json_object_set(variables, "tools", list);
    json_decref(list);
    return rc;
}

static json_t *variables_of(const json_t *object, const json_t *messages, size_t count, bool add_generation_prompt)
{
    json_t *variables = json_object(), *some = json_array(), *item;
    json_t *documents = json_object_get(object, "documents");
    const char *name;

    for (size_t i = 0; i < count; i++)
        json_array_append(some, json_array_get(messages, i));
    json_object_set_new(variables, "messages", some);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(add_generation_prompt));
    if (documents != NULL) json_object_set(variables, "documents", documents);
    json_object_foreach(json_object_get(object, "chat_template_kwargs"), name, item)
        json_object_set(variables, name, item);
    return variables;
}

/* A column of an object: a text, or messages. */
struct column {
    const struct ash_chat_reader *reader;
    const json_t *object;
    const char *name;
    const json_t *value;
};

/* The first count messages of a column as text. */
static int render(const struct column *column, size_t count, bool add_generation_prompt, struct ash_str *text,
                  struct ash_chat_spans *spans, struct ash_err *err)
{
    json_t *variables = variables_of(column->object, column->value, count, add_generation_prompt);
    int rc = ash_chat_set_tools(column->object, variables, err);

    ash_str_clear(text);
    if (rc == 0) rc = ash_chat_template_render_spans(column->reader->template, variables, text, spans, err);
    json_decref(variables);
    return rc;
}

static bool is_assistant(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));

    return role != NULL && strcmp(role, "assistant") == 0;
}

/* Spans of answers as differences of renderings: the addition of an answer to the conversation before it, which ends
 * with the generation prompt. whole is the rendering of all turns; each earlier one must be its beginning. */
static int find_differences(const struct column *column, const struct ash_str *whole, struct ash_chat_spans *spans,
                            struct ash_err *err)
{
    struct ash_str before = {0}, after = {0};
    size_t count = json_array_size(column->value);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (!is_assistant(column->value, i)) continue;
        rc = render(column, i, true, &before, NULL, err);
        if (rc == 0) rc = render(column, i + 1, false, &after, NULL, err);
        if (rc < 0) break;
        if (after.size_bytes > whole->size_bytes || memcmp(after.data, whole->data, after.size_bytes) != 0 ||
            before.size_bytes > after.size_bytes || memcmp(before.data, after.data, before.size_bytes) != 0)
            rc = ash_err_set(err, -EINVAL,
                             "the chat template writes turns up to turn %zu in another way when more follow, so its "
                             "tokens cannot be told: give it {%% generation %%} blocks, or cut the conversation there",
                             i);
        else if (ash_chat_spans_add(spans, before.size_bytes, after.size_bytes) < 0)
            rc = ash_err_set(err, -ENOMEM, "out of memory for a conversation");
    }
    ash_str_fini(&before);
    ash_str_fini(&after);
    return rc;
}

/* All turns of a column's messages; those from turn `first` on are learned, of assistants. */
static int read_messages(const struct column *column, size_t first, struct ash_chat_row *row, struct ash_err *err)
{
    struct ash_str text = {0}, prompt = {0};
    struct ash_chat_spans spans = {0};
    int rc = check_messages(column->value, column->name, err);

    if (rc < 0) return rc;
    if (column->reader->template == NULL)
        return ash_err_set(err, -EINVAL, "%s: there is no chat template: %s", column->name,
                           column->reader->template_why);
    rc = render(column, json_array_size(column->value), false, &text, &spans, err);
    if (rc == 0 && spans.count == 0) rc = find_differences(column, &text, &spans, err);
    if (rc == 0 && first > 0) rc = render(column, first, false, &prompt, NULL, err);
    for (size_t i = 0; rc == 0 && i < spans.count && first > 0;)
        if (spans.items[i].start < prompt.size_bytes)
            memmove(&spans.items[i], &spans.items[i + 1], (--spans.count - i) * sizeof(*spans.items));
        else
            i++;
    if (rc == 0)
        rc = ash_chat_mark(&(struct ash_chat_text){column->reader->tokenizer, text.data, text.size_bytes, false},
                           &spans, row, err);
    ash_chat_spans_fini(&spans);
    ash_str_fini(&text);
    ash_str_fini(&prompt);
    return rc;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* A prompt (NULL: none) and the column that follows it, each a text or messages. */
static int read_both(const struct column *column, const json_t *prompt, struct ash_chat_row *row, struct ash_err *err)
{
    const json_t *completion = column->value;
    struct column both = *column;
    json_t *joined;
    int rc;

    if (json_is_string(completion) && (prompt == NULL || json_is_string(prompt)))
        return read_texts(column->reader, json_string_value(prompt), json_string_value(completion), row, err);
    if (!json_is_array(completion) || (prompt != NULL && !json_is_array(prompt)))
        return ash_err_set(err, -EINVAL, "%s must be a text or a list of messages, and prompt the same", column->name);
    joined = prompt != NULL ? json_copy((json_t *)(uintptr_t)prompt) : json_array();
    if (joined == NULL || json_array_extend(joined, (json_t *)(uintptr_t)completion) < 0) {
        json_decref(joined);
        return ash_err_set(err, -ENOMEM, "out of memory for a conversation");
    }
    both.value = joined;
    rc = read_messages(&both, json_array_size(prompt), row, err);
    json_decref(joined);
    return rc;
}

bool ash_chat_is_pair(const json_t *object)
{
    return json_object_get(object, "chosen") != NULL || json_object_get(object, "rejected") != NULL;
}

int ash_chat_read(const struct ash_chat_reader *reader, const json_t *object, struct ash_chat_row *row,
                  struct ash_err *err)
{
    const json_t *messages = json_object_get(object, "messages"), *text = json_object_get(object, "text");
    const json_t *completion = json_object_get(object, "completion");
    int rc;

    if (!json_is_object(object)) return ash_err_set(err, -EINVAL, "it is not a JSON object");
    if (json_is_array(messages))
        rc = read_messages(&(struct column){reader, object, "messages", messages}, 0, row, err);
    else if (completion != NULL)
        rc = read_both(&(struct column){reader, object, "completion", completion}, json_object_get(object, "prompt"),
                       row, err);
    else if (json_is_string(text))
        rc = read_texts(reader, NULL, json_string_value(text), row, err);
    else
        rc = ash_err_set(err, -EINVAL,
                         "it has none of the columns text, messages, prompt and completion, chosen and rejected");
    return rc < 0 ? rc : check_learned(row, err);
}

/* Conversations of a pair that share their first turns: those are the prompt. */
static size_t shared_turns(const json_t *chosen, const json_t *rejected)
{
    size_t shared = 0;

    while (shared < json_array_size(chosen) && shared < json_array_size(rejected) &&
           json_equal(json_array_get(chosen, shared), json_array_get(rejected, shared)))
        shared++;
    return shared;
}

static int read_side(const struct ash_chat_reader *reader, const json_t *object, const char *name, size_t shared,
                     struct ash_chat_row *row, struct ash_err *err)
{
    struct column side = {reader, object, name, json_object_get(object, name)};
    const json_t *prompt = json_object_get(object, "prompt");
    int rc;

    if (side.value == NULL) return ash_err_set(err, -EINVAL, "a pair needs both chosen and rejected");
    if (prompt == NULL && json_is_array(side.value))
        rc = read_messages(&side, shared, row, err);
    else
        rc = read_both(&side, prompt, row, err);
    if (rc == 0) rc = check_learned(row, err);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", name) : 0;
}

int ash_chat_read_pair(const struct ash_chat_reader *reader, const json_t *object, struct ash_chat_row *chosen,
                       struct ash_chat_row *rejected, double *margin_out, struct ash_err *err)
{
    const json_t *margin = json_object_get(object, "margin");
    size_t shared;
    int rc;

    if (!json_is_object(object)) return ash_err_set(err, -EINVAL, "it is not a JSON object");
    shared = shared_turns(json_object_get(object, "chosen"), json_object_get(object, "rejected"));
    if (margin != NULL && !json_is_number(margin)) return ash_err_set(err, -EINVAL, "margin must be a number");
    rc = read_side(reader, object, "chosen", shared, chosen, err);
    if (rc == 0) rc = read_side(reader, object, "rejected", shared, rejected, err);
    if (rc == 0) *margin_out = margin != NULL ? json_number_value(margin) : NAN;
    return rc;
}
