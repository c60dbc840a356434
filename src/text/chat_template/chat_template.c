/* Chat templates of model folders: found, parsed once, rendered often. */
#include "text/chat_template/chat_template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/chat_template/jinja_priv.h"

#define ARENA_BYTES ((size_t)64 << 10)

struct ash_chat_template {
    struct ash_arena *arena; /* the tree and all that it borrows */
    struct ash_jinja_node *root;
    const char *name;
    const char *tokens[ASH_JINJA_TOKENS]; /* NULL: undefined */
    bool adds_bos;                        /* texts that do not begin with tokens[0] get it */
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int parse(const char *source, size_t size_bytes, const char *name, const char *const tokens[ASH_JINJA_TOKENS],
                 struct ash_chat_template **template_out, struct ash_err *err)
{
    struct ash_chat_template *template = calloc(1, sizeof(*template));
    struct ash_jinja_tokens lexed = {0};
    int rc = -ENOMEM;

    if (template != NULL) template->arena = ash_arena_open(ARENA_BYTES);
    if (template == NULL || template->arena == NULL) goto fail;
    template->name = ash_arena_strdup(template->arena, name);
    if (template->name == NULL) goto fail;
    for (size_t i = 0; i < ASH_JINJA_TOKENS; i++) {
        template->tokens[i] = tokens[i] != NULL ? ash_arena_strdup(template->arena, tokens[i]) : NULL;
        if (tokens[i] != NULL && template->tokens[i] == NULL) goto fail;
    }
    rc = ash_jinja_lex(template->arena, (struct ash_jinja_text){source, size_bytes}, &lexed, err);
    if (rc < 0) goto fail;
    rc = ash_jinja_parse(template->arena, &lexed, &template->root, err);
    if (rc < 0) goto fail;
    *template_out = template;
    return 0;

fail:
    ash_chat_template_close(template);
    return rc == -ENOMEM ? ash_err_set(err, rc, "%s: out of memory", name) : ash_err_prefix(err, rc, "%s", name);
}

static int check_source(const char *source, size_t size_bytes, const char *name, struct ash_err *err)
{
    size_t valid;

    if (size_bytes > ASH_JINJA_SOURCE_BYTES_MAX)
        return ash_err_set(err, -EFBIG, "%s: a template of %zu bytes is too long", name, size_bytes);
    valid = ash_utf8_valid_prefix(source, size_bytes);
    if (valid < size_bytes) return ash_err_set(err, -EILSEQ, "%s: byte %zu is not UTF-8", name, valid);
    return 0;
}

int ash_chat_template_parse(const char *source, size_t size_bytes, const char *name, const char *bos_token,
                            const char *eos_token, struct ash_chat_template **template_out, struct ash_err *err)
{
    const char *const tokens[ASH_JINJA_TOKENS] = {bos_token, eos_token};
    int rc = check_source(source, size_bytes, name, err);

    return rc < 0 ? rc : parse(source, size_bytes, name, tokens, template_out, err);
}

static int open_source(const struct ash_jinja_source *source, struct ash_chat_template **template_out,
                       struct ash_err *err)
{
    const char *tokens[ASH_JINJA_TOKENS];
    int rc = check_source(source->text, source->size_bytes, source->name, err);

    for (size_t i = 0; i < ASH_JINJA_TOKENS; i++)
        tokens[i] = source->tokens[i];
    if (rc == 0) rc = parse(source->text, source->size_bytes, source->name, tokens, template_out, err);
    if (rc == 0) (*template_out)->adds_bos = source->adds_bos;
    return rc;
}

int ash_chat_template_open(const char *dir, struct ash_chat_template **template_out, struct ash_err *err)
{
    struct ash_jinja_source source = {0};
    int rc = ash_jinja_source_find(&source, dir, err);

    if (rc == 0) rc = open_source(&source, template_out, err);
    ash_jinja_source_fini(&source);
    return rc;
}

int ash_chat_template_read(const char *file, const char *dir, struct ash_chat_template **template_out,
                           struct ash_err *err)
{
    struct ash_jinja_source source = {0};
    int rc = ash_jinja_source_read(&source, file, dir, err);

    if (rc == 0) rc = open_source(&source, template_out, err);
    ash_jinja_source_fini(&source);
    return rc;
}

int ash_chat_template_source(const char *dir, struct ash_str *text, struct ash_err *err)
{
    struct ash_jinja_source source = {0};
    int rc = ash_jinja_source_find(&source, dir, err);

    if (rc == 0) rc = check_source(source.text, source.size_bytes, source.name, err);
    if (rc == 0 && ash_str_add(text, source.text, source.size_bytes) < 0)
        rc = ash_err_set(err, -ENOMEM, "%s: out of memory", source.name);
    ash_jinja_source_fini(&source);
    return rc;
}

void ash_chat_template_close(struct ash_chat_template *template)
{
    if (template == NULL) return;
    ash_arena_close(template->arena);
    free(template);
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static int set_global(struct ash_jinja_run *run, const char *name, struct ash_jinja_value value)
{
    return ash_jinja_dict_set(run, &run->globals->names, ash_jinja_text_of(name), value);
}

/* What transformers gives every template. */
static int set_common(struct ash_jinja_run *run, const struct ash_chat_template *template)
{
    int rc = set_global(run, "tools", ash_jinja_none());

    if (rc < 0) return rc;
    rc = set_global(run, "documents", ash_jinja_none());
    for (size_t i = 0; rc == 0 && i < ASH_JINJA_TOKENS; i++)
        if (template->tokens[i] != NULL)
            rc = set_global(run, ash_jinja_token_names[i], ash_jinja_string(ash_jinja_text_of(template->tokens[i])));
    return rc;
}

struct request {
    const struct ash_chat_message *messages; /* with count and add_generation_prompt, or */
    size_t count;
    bool add_generation_prompt;
    const json_t *variables; /* all of them */
};

static int set_text(struct ash_jinja_run *run, struct ash_jinja_dict *dict, const char *key, const char *text)
{
    return ash_jinja_dict_set(run, dict, ash_jinja_text_of(key), ash_jinja_string(ash_jinja_text_of(text)));
}

/* Append a message as a dict of role and content. */
static int add_message(struct ash_jinja_run *run, struct ash_jinja_list *list, const struct ash_chat_message *message)
{
    struct ash_jinja_value dict;
    int rc = ash_jinja_dict_new(run, ASH_JINJA_DICT, &dict);

    if (rc < 0) return rc;
    rc = set_text(run, dict.dict, "role", message->role);
    if (rc < 0) return rc;
    rc = set_text(run, dict.dict, "content", message->content);
    return rc < 0 ? rc : ash_jinja_list_add(run, list, dict);
}

static int set_messages(struct ash_jinja_run *run, const struct request *request)
{
    struct ash_jinja_value list;
    int rc = ash_jinja_list_new(run, &list);

    for (size_t i = 0; rc == 0 && i < request->count; i++)
        rc = add_message(run, list.list, &request->messages[i]);
    if (rc < 0) return rc;
    rc = set_global(run, "messages", list);
    return rc < 0 ? rc : set_global(run, "add_generation_prompt", ash_jinja_bool(request->add_generation_prompt));
}

static int set_variables(struct ash_jinja_run *run, const json_t *variables)
{
    const char *name;
    json_t *item;
    int rc;

    json_object_foreach((json_t *)variables, name, item) {
        struct ash_jinja_value value;
        rc = ash_jinja_from_json(run, item, &value);
        if (rc < 0) return rc;
        rc = set_global(run, name, value);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Append what was rendered, after bos_token if it must begin so and does not: spans from `first` on are shifted. */
static int append(const struct ash_chat_template *template, const struct ash_str *out, struct ash_str *text,
                  struct ash_chat_spans *spans, size_t first)
{
    const char *bos = template->adds_bos && template->tokens[0] != NULL ? template->tokens[0] : "";
    size_t bytes = strlen(bos);
    struct ash_str whole = {0};
    int rc;

    if (out->size_bytes == 0 || (out->size_bytes >= bytes && memcmp(out->data, bos, bytes) == 0)) bytes = 0;
    for (size_t i = first; spans != NULL && i < spans->count; i++) {
        spans->items[i].start += bytes;
        spans->items[i].end += bytes;
    }
    rc = ash_str_add(&whole, bos, bytes);
    if (rc == 0) rc = ash_str_add(&whole, out->data, out->size_bytes);
    if (rc == 0) rc = ash_str_add(text, whole.data, whole.size_bytes);
    ash_str_fini(&whole);
    return rc;
}

static int render(const struct ash_chat_template *template, const struct request *request, struct ash_str *text,
                  struct ash_chat_spans *spans, struct ash_err *err)
{
    struct ash_jinja_scope globals = {0};
    struct ash_str out = {0};
    struct ash_jinja_run run = {
        .out = &out, .text = &out, .spans = spans, .err = err, .globals = &globals, .scope = &globals, .line = 1};
    size_t first = spans != NULL ? spans->count : 0;
    int rc;

    run.arena = ash_arena_open(ARENA_BYTES);
    if (run.arena == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", template->name);
    rc = set_common(&run, template);
    if (rc == 0)
        rc = request->variables != NULL ? set_variables(&run, request->variables) : set_messages(&run, request);
    if (rc == 0) rc = ash_jinja_exec(&run, template->root);
    if (rc == 0 && append(template, &out, text, spans, first) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory");
    ash_str_fini(&out);
    ash_arena_close(run.arena);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", template->name) : 0;
}

int ash_chat_template_render(const struct ash_chat_template *template, const struct ash_chat_message *messages,
                             size_t count, bool add_generation_prompt, struct ash_str *text, struct ash_err *err)
{
    struct request request = {.messages = messages, .count = count, .add_generation_prompt = add_generation_prompt};

    for (size_t i = 0; i < count; i++) {
        const char *parts[2] = {messages[i].role, messages[i].content};
        for (int k = 0; k < 2; k++)
            if (ash_utf8_valid_prefix(parts[k], strlen(parts[k])) < strlen(parts[k]))
                return ash_err_set(err, -EILSEQ, "the %s of message %zu is not UTF-8", k == 0 ? "role" : "content", i);
    }
    return render(template, &request, text, NULL, err);
}

int ash_chat_spans_add(struct ash_chat_spans *spans, size_t start, size_t end)
{
    if (ash_array_reserve(&spans->items, &spans->capacity, spans->count + 1, sizeof(*spans->items)) < 0) return -ENOMEM;
    spans->items[spans->count++] = (struct ash_chat_span){start, end};
    return 0;
}

void ash_chat_spans_fini(struct ash_chat_spans *spans)
{
    free(spans->items);
    *spans = (struct ash_chat_spans){0};
}

int ash_chat_template_render_json(const struct ash_chat_template *template, const json_t *variables,
                                  struct ash_str *text, struct ash_err *err)
{
    return ash_chat_template_render_spans(template, variables, text, NULL, err);
}

int ash_chat_template_render_spans(const struct ash_chat_template *template, const json_t *variables,
                                   struct ash_str *text, struct ash_chat_spans *spans, struct ash_err *err)
{
    struct request request = {.variables = variables};

    if (!json_is_object(variables))
        return ash_err_set(err, -EINVAL, "the variables of a chat template must be a JSON object");
    return render(template, &request, text, spans, err);
}
