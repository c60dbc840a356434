/* Prompts of `ashlar generate --prompts` as ids: text, or JSON with a prompt or messages. A wrong line has its own
 * error, and the others are answered. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "cmd/cmd.h"

#define MESSAGES_MAX 1024

int ash_generate_encode(const struct ash_generate *generate, const char *text, int32_t **ids_out, size_t *count_out,
                        struct ash_err *err)
{
    struct ash_message messages[2] = {{"system", generate->system}, {"user", text}};
    size_t skip = generate->system == NULL ? 1 : 0;
    char *rendered = NULL;
    int rc;

    if (!generate->chat) return ash_engine_encode(generate->engine, text, !generate->raw, ids_out, count_out, err);
    rc = ash_engine_render_chat(generate->engine, messages + skip, 2 - skip, &rendered, err);
    if (rc < 0) return rc;
    rc = ash_engine_encode(generate->engine, rendered, false, ids_out, count_out, err);
    ash_free(rendered);
    return rc;
}

static struct ash_generate_line *add_line(struct ash_generate_lines *lines)
{
    if (ash_array_reserve(&lines->items, &lines->capacity, lines->count + 1, sizeof(*lines->items)) < 0) return NULL;
    lines->items[lines->count] = (struct ash_generate_line){0};
    return &lines->items[lines->count++];
}

static int encode_messages(const struct ash_generate *generate, const json_t *list, struct ash_generate_line *line,
                           struct ash_err *err)
{
    struct ash_message messages[MESSAGES_MAX];
    size_t count = json_array_size(list);
    char *rendered = NULL;
    int rc;

    if (count == 0 || count > MESSAGES_MAX)
        return ash_err_set(err, -EINVAL, "'messages' must have 1 to %d messages", MESSAGES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(list, i);

        messages[i] = (struct ash_message){json_string_value(json_object_get(message, "role")),
                                           json_string_value(json_object_get(message, "content"))};
        if (messages[i].role == NULL || messages[i].content == NULL)
            return ash_err_set(err, -EINVAL, "message %zu has no text 'role' or no text 'content'", i + 1);
    }
    rc = ash_engine_render_chat(generate->engine, messages, count, &rendered, err);
    if (rc < 0) return rc;
    rc = ash_engine_encode(generate->engine, rendered, false, &line->ids, &line->count, err);
    ash_free(rendered);
    return rc;
}

/* A line of JSON: an object with a prompt or with messages, perhaps with an id. */
static int encode_json(const struct ash_generate *generate, const char *text, size_t number,
                       struct ash_generate_line *line, struct ash_err *err)
{
    const json_t *messages, *prompt;
    json_t *json = NULL;
    int rc = ash_json_parse_line(text, strlen(text), generate->prompts, number, &json, err);

    if (rc < 0) return rc;
    messages = json_object_get(json, "messages");
    prompt = json_object_get(json, "prompt");
    line->id = json_incref(json_object_get(json, "id"));
    if (json_is_array(messages))
        rc = encode_messages(generate, messages, line, err);
    else if (json_is_string(prompt) && strlen(json_string_value(prompt)) == json_string_length(prompt))
        rc = ash_generate_encode(generate, json_string_value(prompt), &line->ids, &line->count, err);
    else
        rc = ash_err_set(err, -EINVAL, "the line has neither a text 'prompt' nor a list 'messages'");
    json_decref(json);
    return rc;
}

static int check_length(const struct ash_generate_line *line, size_t context_tokens, struct ash_err *err)
{
    if (line->count == 0) return ash_err_set(err, -EINVAL, "the prompt is empty: there is nothing to continue");
    if (line->count < context_tokens) return 0;
    return ash_err_set(err, -EOVERFLOW,
                       "the context is full: the prompt has %zu tokens, and prompt and answer together may have %zu",
                       line->count, context_tokens);
}

/* number: of the line where they are JSON; 0: they are text. */
static int read_line(struct ash_generate_lines *lines, const struct ash_generate *generate, const char *text,
                     size_t number, size_t context_tokens, struct ash_err *err)
{
    struct ash_generate_line *line = add_line(lines);
    int rc;

    if (line == NULL) return ash_err_set(err, -ENOMEM, "no memory for the prompts");
    rc = number > 0 ? encode_json(generate, text, number, line, &line->err)
                    : ash_generate_encode(generate, text, &line->ids, &line->count, &line->err);
    if (rc == 0) rc = check_length(line, context_tokens, &line->err);
    return rc == -ENOMEM ? ash_err_set(err, rc, "no memory for the prompts") : 0;
}

/* Prompts are the lines that are not blank; a first line that opens an object makes them JSON. */
static int read_file(struct ash_generate_lines *lines, const struct ash_generate *generate, size_t context_tokens,
                     struct ash_err *err)
{
    struct ash_str text = {0};
    size_t number = 0;
    bool is_json = false;
    int rc = ash_cmd_read_text(generate->prompts, "the prompts", &text, err);

    if (rc == 0 && strlen(text.data) != text.size_bytes)
        rc =
            ash_err_set(err, -EILSEQ, "the prompts have a NUL byte at offset %zu: this is not text", strlen(text.data));
    for (char *line = text.data, *next; rc == 0 && line != NULL && *line != '\0'; line = next) {
        size_t length = strcspn(line, "\n");

        next = line[length] == '\n' ? line + length + 1 : NULL;
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r') line[length - 1] = '\0';
        number++;
        if (line[strspn(line, " \t")] == '\0') continue;
        if (lines->count == 0) is_json = line[strspn(line, " \t")] == '{';
        rc = read_line(lines, generate, line, is_json ? number : 0, context_tokens, err);
    }
    ash_str_fini(&text);
    if (rc == 0 && lines->count == 0) rc = ash_err_set(err, -EINVAL, "'%s' has no prompt", generate->prompts);
    return rc;
}

int ash_generate_lines_read(struct ash_generate_lines *lines, const struct ash_generate *generate, const char *text,
                            size_t context_tokens, struct ash_err *err)
{
    int rc;

    if (text == NULL) return read_file(lines, generate, context_tokens, err);
    rc = read_line(lines, generate, text, 0, context_tokens, err);
    if (rc == 0 && lines->items[0].err.code != 0) { /* its error applies to all */
        *err = lines->items[0].err;
        rc = err->code;
    }
    return rc;
}

void ash_generate_lines_fini(struct ash_generate_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        json_decref(lines->items[i].id);
        ash_free(lines->items[i].ids);
    }
    free(lines->items);
    *lines = (struct ash_generate_lines){0};
}
