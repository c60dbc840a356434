/* marks: tokens of a text that lie in spans of it. If the bytes of the tokens are the text, they give each token's
 * start. If a normalizer changed the text, tokenizing it up to a bound gives the number of tokens before it. */
#include "post/chat/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void ash_chat_row_fini(struct ash_chat_row *row)
{
    ash_ids_fini(&row->ids);
    free(row->marks);
    *row = (struct ash_chat_row){0};
}

static int reserve_marks(struct ash_chat_row *row)
{
    uint8_t *marks;

    if (row->mark_capacity >= row->ids.count) return 0;
    marks = realloc(row->marks, row->ids.capacity);
    if (marks == NULL) return -ENOMEM;
    row->marks = marks;
    row->mark_capacity = row->ids.capacity;
    return 0;
}

/* Where token i of ids begins in the text, into starts [count + 1]. Returns 1, 0 where the bytes of the tokens are not
 * the text, or -ENOMEM. */
static int find_starts(const struct ash_chat_text *text, const struct ash_ids *ids, size_t *starts)
{
    struct ash_str bytes = {0};
    size_t at = 0;
    int rc = 1;

    for (size_t i = 0; rc == 1 && i < ids->count; i++) {
        ash_str_clear(&bytes);
        starts[i] = at;
        if (ash_tokenizer_add_bytes(text->tokenizer, ids->data[i], &bytes) < 0)
            rc = -ENOMEM;
        else if (bytes.size_bytes > text->size_bytes - at || memcmp(bytes.data, text->data + at, bytes.size_bytes) != 0)
            rc = 0;
        else
            at += bytes.size_bytes;
    }
    ash_assert(at <= text->size_bytes);
    starts[ids->count] = at;
    ash_str_fini(&bytes);
    return rc == 1 && at != text->size_bytes ? 0 : rc;
}

/* Tokens that begin the tokens of both the text and of its first size_bytes bytes; *whole_out: those are all of the
 * latter. */
static int count_before(const struct ash_chat_text *text, const struct ash_chat_row *row, size_t size_bytes,
                        size_t *count_out, bool *whole_out, struct ash_err *err)
{
    struct ash_ids part = {0};
    size_t count = 0;
    int rc = ash_tokenizer_encode(text->tokenizer, text->data, size_bytes, text->add_special, &part, err);

    while (rc == 0 && count < part.count && count < row->ids.count && part.data[count] == row->ids.data[count])
        count++;
    *count_out = count;
    *whole_out = count == part.count;
    ash_ids_fini(&part);
    return rc;
}

static void mark_range(struct ash_chat_row *row, size_t first, size_t end)
{
    ash_assert(row->mark_capacity >= row->ids.count);
    for (size_t i = first; i < end && i < row->ids.count; i++)
        row->marks[i] = 1;
}

/* Marks by the bytes of the tokens: a token is marked if it has a byte of the span. */
static void mark_by_starts(struct ash_chat_row *row, const size_t *starts, const struct ash_chat_span *span)
{
    for (size_t i = 0; i < row->ids.count; i++)
        if (starts[i + 1] > span->start && starts[i] < span->end) row->marks[i] = 1;
}

static int mark_by_prefix(const struct ash_chat_text *text, struct ash_chat_row *row, const struct ash_chat_span *span,
                          struct ash_err *err)
{
    size_t first = 0, end = 0;
    bool is_whole = false;
    int rc = count_before(text, row, span->start, &first, &is_whole, err);

    if (rc == 0) rc = count_before(text, row, span->end, &end, &is_whole, err);
    if (rc == 0) mark_range(row, first, is_whole ? end : end + 1);
    return rc;
}

int ash_chat_mark(const struct ash_chat_text *text, const struct ash_chat_spans *spans, struct ash_chat_row *row,
                  struct ash_err *err)
{
    size_t *starts;
    int rc;

    row->ids.count = 0;
    rc = ash_tokenizer_encode(text->tokenizer, text->data, text->size_bytes, text->add_special, &row->ids, err);
    if (rc < 0) return rc;
    starts = calloc(row->ids.count + 1, sizeof(*starts));
    if (starts == NULL || reserve_marks(row) < 0) {
        free(starts);
        return ash_err_set(err, -ENOMEM, "out of memory for the marks of %zu tokens", row->ids.count);
    }
    if (row->ids.count > 0) memset(row->marks, 0, row->ids.count);
    rc = find_starts(text, &row->ids, starts);
    if (rc < 0) ash_err_set(err, rc, "out of memory for the bytes of tokens");
    for (size_t i = 0; rc >= 0 && i < spans->count; i++) {
        int failed = 0;

        if (rc == 1)
            mark_by_starts(row, starts, &spans->items[i]);
        else
            failed = mark_by_prefix(text, row, &spans->items[i], err);
        if (failed < 0) rc = failed;
    }
    free(starts);
    return rc < 0 ? rc : 0;
}
