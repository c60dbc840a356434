/* chat_template - a conversation as the text that a model was trained on, by the model's own Jinja template, with
 * exactly the text of the transformers library. The part of Jinja that such templates use is supported; other syntax
 * is refused with its line and name. Immutable after open: any number of threads may render at once. */
#ifndef ASH_TEXT_CHAT_TEMPLATE_CHAT_TEMPLATE_H
#define ASH_TEXT_CHAT_TEMPLATE_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "base/str.h"

struct ash_chat_template;

/* One turn; both strings are borrowed UTF-8. */
struct ash_chat_message {
    const char *role, *content;
};

/* From a model folder: chat_template.jinja, else "chat_template" of tokenizer_config.json (a string, or of a list of
 * named ones the "default" one), with the special tokens that tokenizer_config.json names. Or from a GGUF file: the
 * same next to it, or else its own. -ENOENT when the model has no template. */
int ash_chat_template_open(const char *dir, struct ash_chat_template **template_out, struct ash_err *err);
/* The template in a file instead, with the special tokens of the model in dir. */
int ash_chat_template_read(const char *file, const char *dir, struct ash_chat_template **template_out,
                           struct ash_err *err);
/* The text of the model's own template, appended to text. */
int ash_chat_template_source(const char *dir, struct ash_str *text, struct ash_err *err);
/* From the text of a template. bos_token and eos_token may be NULL: the template then sees them undefined. */
int ash_chat_template_parse(const char *source, size_t size_bytes, const char *name, const char *bos_token,
                            const char *eos_token, struct ash_chat_template **template_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_chat_template_close(struct ash_chat_template *template);

/* Append the text of a conversation. add_generation_prompt: end with what comes before an answer. What the template
 * itself refuses (raise_exception) is -EINVAL with its sentence; text that is not UTF-8 is -EILSEQ. On error text is as
 * it was. */
int ash_chat_template_render(const struct ash_chat_template *template, const struct ash_chat_message *messages,
                             size_t count, bool add_generation_prompt, struct ash_str *text, struct ash_err *err);
/* The same with all variables from a JSON object ("messages", "add_generation_prompt", "tools", "enable_thinking", and
 * so on), for messages that have more to them than a role and a content. */
int ash_chat_template_render_json(const struct ash_chat_template *template, const json_t *variables,
                                  struct ash_str *text, struct ash_err *err);

/* Bytes [start, end) of a rendered text. */
struct ash_chat_span {
    size_t start, end;
};
/* Spans in ascending order; zero-initialise, free with ash_chat_spans_fini. */
struct ash_chat_spans {
    struct ash_chat_span *items;
    size_t count, capacity;
};
/* Append one. Returns 0 or -ENOMEM. */
int ash_chat_spans_add(struct ash_chat_spans *spans, size_t start, size_t end);
/* Free them and leave none. */
void ash_chat_spans_fini(struct ash_chat_spans *spans);
/* ash_chat_template_render_json that also says where the texts of {% generation %} blocks are: spans (may be NULL)
 * gets them, counted from the first byte that this call appends. Blocks inside of macros are not among them. */
int ash_chat_template_render_spans(const struct ash_chat_template *template, const json_t *variables,
                                   struct ash_str *text, struct ash_chat_spans *spans, struct ash_err *err);

#endif
