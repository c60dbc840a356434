/* rows - conversations and texts as token ids with a mark on trained tokens. TRL's columns: "text", "messages"
 * (with "tools"), "prompt" and "completion", and for pairs "chosen" and "rejected" (with or without "prompt"), each a
 * text or a list of messages. Rendering is the model's own template; marks come from its {% generation %} blocks, or,
 * if it has none, from the difference between renderings with and without an answer. */
#ifndef ASH_POST_CHAT_ROWS_H
#define ASH_POST_CHAT_ROWS_H

#include <jansson.h>
#include "ashlar/err.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "train/data/examples.h"

/* What rendering needs; borrowed. */
struct ash_chat_reader {
    const struct ash_tokenizer *tokenizer;
    const struct ash_chat_template *template; /* NULL: only texts can be read; template_why has the reason */
    const char *template_why;
    int32_t eos_id; /* ends a text, and a completion; -1: nothing does */
};

/* An example under construction. Zero-initialise, free with ash_chat_row_fini. */
struct ash_chat_row {
    struct ash_ids ids;
    uint8_t *marks; /* [ids.count] */
    size_t mark_capacity;
};
/* Free it and leave it empty. */
void ash_chat_row_fini(struct ash_chat_row *row);

/* Does the object hold a pair? */
bool ash_chat_is_pair(const json_t *object);
/* The example of one object, into row (emptied first). -EINVAL names the wrong column, turn or role, or reports that
 * nothing would be trained. */
int ash_chat_read(const struct ash_chat_reader *reader, const json_t *object, struct ash_chat_row *row,
                  struct ash_err *err);
/* The two examples of a pair. *margin_out gets its "margin", or NaN. */
int ash_chat_read_pair(const struct ash_chat_reader *reader, const json_t *object, struct ash_chat_row *chosen,
                       struct ash_chat_row *rejected, double *margin_out, struct ash_err *err);

/* Set "tools" of a template's variables to those of an object: a list, or (as datasets that must have one type hold it)
 * its JSON as a text. Nothing if it has none. Returns 0 or -EINVAL. */
int ash_chat_set_tools(const json_t *object, json_t *variables, struct ash_err *err);

/* A text and how it becomes tokens; borrowed. */
struct ash_chat_text {
    const struct ash_tokenizer *tokenizer;
    const char *data;
    size_t size_bytes;
    bool add_special; /* as in ash_tokenizer_encode */
};
/* Ids of text into row (emptied first), and marks on the tokens that spans touch: as transformers'
 * return_assistant_tokens_mask has them. Returns 0 or an error with a sentence. */
int ash_chat_mark(const struct ash_chat_text *text, const struct ash_chat_spans *spans, struct ash_chat_row *row,
                  struct ash_err *err);

#endif
