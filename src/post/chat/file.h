/* file - a file of JSON lines as a folder of examples. */
#ifndef ASH_POST_CHAT_FILE_H
#define ASH_POST_CHAT_FILE_H

#include "post/chat/rows.h"

struct ash_chat_file_opts {
    const char *tokenizer_dir; /* tokenizer and chat template */
    const char *eos;           /* the end token of texts and completions; NULL: the tokenizer's own */
    bool skip_bad;             /* leave out lines that cannot be used, and count them; else the first ends it */
};

struct ash_chat_file_result {
    size_t examples, pairs, tokens, learned, skipped, same; /* same: pairs whose answers are equal */
    char first_skipped[512];                                /* why, of the first line that was left out */
};

/* Read paths [count] and write dir. All lines must be of one kind: examples, or pairs. Returns 0 or an error that names
 * file and line. */
int ash_chat_write(const char *const *paths, size_t count, const struct ash_chat_file_opts *opts, const char *dir,
                   struct ash_chat_file_result *result_out, struct ash_err *err);

/* Lines on their way into examples. The caller closes writer. */
struct ash_chat_lines {
    const struct ash_chat_reader *reader;
    struct ash_examples_writer *writer; /* NULL before the first line; of the kind of the first that is used */
    struct ash_chat_file_result result;
};
/* Add one line: size_bytes of text, line number `line` of file `name`. Returns 0 or an error that names both. For
 * ash_chat_write and its fuzz target. */
int ash_chat_add_line(struct ash_chat_lines *lines, const char *text, size_t size_bytes, const char *name,
                      uint64_t line, struct ash_err *err);

#endif
