/* Input files as documents. Files are read, not mapped: one that shrinks under our hands gives an error, not a signal.
 * The buffer doubles while a document does not fit, so looking for its end again costs twice its length at most. */
#include "train/data/tokenize_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "storage/parquet/parquet.h"
#include "train/data/text_source.h"

#define READ_BYTES ((size_t)1 << 20)

struct ash_input {
    struct ash_input_files files;
    struct ash_input_opts opts;
    struct ash_text_source *source; /* of file pos.file, or NULL when it is not open yet */
    struct ash_parquet *table;      /* of a Parquet file, in place of source */
    bool end;                       /* the file gives no more bytes */
    char *buf;
    size_t begin, filled, capacity; /* buf[begin..filled) lies ahead of pos */
    struct ash_input_pos pos;
};

void ash_input_batch_fini(struct ash_input_batch *batch)
{
    ash_str_fini(&batch->text);
    free(batch->docs);
    *batch = (struct ash_input_batch){0};
}

static bool cut_line(const char *text, size_t size_bytes, bool end, struct ash_input_cut *cut)
{
    const char *newline = memchr(text, '\n', size_bytes);

    if (newline == NULL && !end) return false;
    cut->start = 0;
    cut->size_bytes = newline != NULL ? (size_t)(newline - text) : size_bytes;
    cut->used_bytes = newline != NULL ? cut->size_bytes + 1 : size_bytes;
    if (cut->size_bytes > 0 && text[cut->size_bytes - 1] == '\r') cut->size_bytes--;
    return true;
}

static bool is_blank(const char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

/* From the first line that is not blank to the last one before the next blank line. */
static bool cut_paragraph(const char *text, size_t size_bytes, bool end, struct ash_input_cut *cut)
{
    struct ash_input_cut line, found = {0};

    while (found.used_bytes < size_bytes) {
        size_t at = found.used_bytes;

        if (!cut_line(text + at, size_bytes - at, end, &line)) return false;
        found.used_bytes += line.used_bytes;
        if (!is_blank(text + at, line.size_bytes)) {
            if (found.size_bytes == 0) found.start = at;
            found.size_bytes = at + line.size_bytes - found.start;
        } else if (found.size_bytes > 0) {
            *cut = found;
            return true;
        }
    }
    if (!end) return false;
    *cut = found;
    return true;
}

bool ash_input_find_cut(enum ash_tokenize_split split, const char *text, size_t size_bytes, bool end,
                        struct ash_input_cut *cut_out)
{
    switch (split) {
    case ASH_SPLIT_LINE:
        if (!cut_line(text, size_bytes, end, cut_out)) return false;
        if (is_blank(text, cut_out->size_bytes)) cut_out->size_bytes = 0;
        return true;
    case ASH_SPLIT_BLANK_LINE:
        return cut_paragraph(text, size_bytes, end, cut_out);
    default:
        break;
    }
    if (!end) return false;
    *cut_out = (struct ash_input_cut){.size_bytes = size_bytes, .used_bytes = size_bytes};
    return true;
}

int ash_input_open(const char *const *paths, size_t count, const struct ash_input_opts *opts,
                   struct ash_input **input_out, struct ash_err *err)
{
    struct ash_input *input = calloc(1, sizeof(*input));
    size_t stdin_count = 0;
    int rc = -ENOMEM;

    if (input == NULL) return ash_err_set(err, rc, "out of memory");
    input->opts = *opts;
    input->pos.line = 1;
    input->buf = malloc(READ_BYTES);
    if (input->buf == NULL) {
        ash_err_set(err, rc, "out of memory");
        goto fail;
    }
    input->capacity = READ_BYTES;
    for (size_t i = 0; i < count; i++) {
        stdin_count += strcmp(paths[i], "-") == 0;
        rc = stdin_count > 1 ? ash_err_set(err, -EINVAL, "-: standard input can be read only once")
                             : ash_input_files_add(&input->files, paths[i], opts, err);
        if (rc < 0) goto fail;
    }
    *input_out = input;
    return 0;

fail:
    ash_input_close(input);
    return rc;
}

/* Whatever is open of the present file; its buffer is empty then. */
static void close_file(struct ash_input *input)
{
    ash_text_source_close(input->source);
    ash_parquet_close(input->table);
    input->source = NULL;
    input->table = NULL;
    input->end = false;
    input->begin = input->filled = 0;
}

void ash_input_close(struct ash_input *input)
{
    if (input == NULL) return;
    close_file(input);
    ash_input_files_fini(&input->files);
    free(input->buf);
    free(input);
}

const struct ash_input_file *ash_input_file_at(const struct ash_input *input, size_t index)
{
    ash_assert(index < input->files.count);
    return &input->files.items[index];
}

size_t ash_input_file_count(const struct ash_input *input)
{
    return input->files.count;
}

static const struct ash_input_file *current(const struct ash_input *input)
{
    return ash_input_file_at(input, input->pos.file);
}

/* Bytes of a file are counted on disk: the decompressed length is unknown. Rows of a Parquet
 * file count as if all were equally long. */
uint64_t ash_input_done_bytes(const struct ash_input *input, const struct ash_input_pos *pos)
{
    const struct ash_input_file *file;
    uint64_t done = 0;

    for (size_t i = 0; i < pos->file; i++)
        done += ash_input_file_at(input, i)->size_bytes;
    if (pos->file >= input->files.count) return done;
    file = ash_input_file_at(input, pos->file);
    if (file->is_stream) return done;
    if (file->is_parquet)
        return done + (uint64_t)((double)file->size_bytes * ((double)pos->offset / (double)(file->rows + 1)));
    if (!file->is_packed) return done + pos->offset;
    return done +
           (input->source != NULL && pos->file == input->pos.file ? ash_text_source_file_bytes(input->source) : 0);
}

static bool holds_pos(const struct ash_input *input, const struct ash_input_pos *pos)
{
    const struct ash_input_file *file;

    if (pos->file >= input->files.count) return pos->file == input->files.count && pos->offset == 0;
    file = ash_input_file_at(input, pos->file);
    return file->is_packed || pos->offset <= (file->is_parquet ? file->rows : file->size_bytes);
}

int ash_input_seek(struct ash_input *input, const struct ash_input_pos *pos, struct ash_err *err)
{
    if (!holds_pos(input, pos))
        return ash_err_set(err, -EINVAL, "there is no byte or row %" PRIu64 " in input %zu", pos->offset, pos->file);
    close_file(input);
    input->pos = *pos;
    return 0;
}

static int refuse_size(const struct ash_input *input, struct ash_err *err)
{
    if (current(input)->is_parquet)
        return ash_err_set(err, -EFBIG,
                           "%s: row %" PRIu64 ": this document is larger than %zu bytes; raise --max-document",
                           current(input)->path, input->pos.line, input->opts.document_bytes_max);
    return ash_err_set(err, -EFBIG,
                       "%s:%" PRIu64
                       ": this document is larger than %zu bytes; cut the file with --split, or raise --max-document",
                       current(input)->path, input->pos.line, input->opts.document_bytes_max);
}

/* Make room after the filled part: move it to the front, or double the buffer. */
static int make_room(struct ash_input *input, struct ash_err *err)
{
    char *buf;

    if (input->begin > 0) {
        memmove(input->buf, input->buf + input->begin, input->filled - input->begin);
        input->filled -= input->begin;
        input->begin = 0;
    }
    ash_assert(input->begin == 0 && input->filled <= input->capacity);
    if (input->capacity - input->filled >= READ_BYTES / 2) return 0;
    if (input->filled > input->opts.document_bytes_max) return refuse_size(input, err);
    buf = realloc(input->buf, 2 * input->capacity);
    if (buf == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a document of %zu bytes", 2 * input->capacity);
    input->buf = buf;
    input->capacity *= 2;
    return 0;
}

static int fill(struct ash_input *input, struct ash_err *err)
{
    const struct ash_input_file *file = current(input);
    size_t count = 0;
    int rc = make_room(input, err);

    if (rc < 0) return rc;
    rc = ash_text_source_read(input->source, input->buf + input->filled, input->capacity - input->filled, &count, err);
    if (rc < 0) return rc;
    input->filled += count;
    input->end = count == 0;
    if (input->end && !file->is_stream && !file->is_packed &&
        input->pos.offset + (input->filled - input->begin) != file->size_bytes)
        return ash_err_set(err, -ESTALE, "%s: it changed while it was being read; run again when it is complete",
                           file->path);
    return 0;
}

/* Open the current file at the position, with its first bytes in the buffer. */
static int open_file(struct ash_input *input, struct ash_err *err)
{
    struct ash_input_file *file = &input->files.items[input->pos.file];
    int rc = ash_text_source_open(file->path, &input->source, err);

    if (rc == 0) rc = ash_text_source_skip(input->source, input->pos.offset, err);
    if (rc == 0) rc = fill(input, err);
    while (rc == 0 && !file->is_settled && !input->end && memchr(input->buf, '\n', input->filled) == NULL)
        rc = fill(input, err); /* a pipe may give its first line in pieces */
    if (rc == 0 && !file->is_settled)
        rc = ash_input_file_settle(file, input->buf, input->filled, input->opts.field, err);
    return rc;
}

static uint64_t count_lines(const char *text, size_t size_bytes)
{
    const char *end = text + size_bytes;
    uint64_t lines = 0;

    while ((text = memchr(text, '\n', (size_t)(end - text))) != NULL) {
        lines++;
        text++;
    }
    return lines;
}

static void advance(struct ash_input *input, size_t size_bytes)
{
    input->pos.line += count_lines(input->buf + input->begin, size_bytes);
    input->pos.offset += size_bytes;
    input->begin += size_bytes;
}

static void skip_byte_order_mark(struct ash_input *input)
{
    if (input->pos.offset == 0 && input->filled - input->begin >= 3 &&
        memcmp(input->buf + input->begin, "\xef\xbb\xbf", 3) == 0)
        advance(input, 3);
}

/* A new document of the batch, with its text. */
static int append(const struct ash_input *input, const char *text, size_t size_bytes, struct ash_input_batch *batch,
                  struct ash_err *err)
{
    struct ash_input_doc doc = {.start = batch->text.size_bytes, .size_bytes = size_bytes};

    if (size_bytes > input->opts.document_bytes_max) return refuse_size(input, err);
    if (ash_array_reserve(&batch->docs, &batch->capacity, batch->count + 1, sizeof(*batch->docs)) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    if (ash_str_add(&batch->text, text, size_bytes) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    batch->docs[batch->count++] = doc;
    return 0;
}

static int add_doc(struct ash_input *input, const struct ash_input_cut *cut, struct ash_input_batch *batch,
                   struct ash_err *err)
{
    int rc = append(input, input->buf + input->begin + cut->start, cut->size_bytes, batch, err);

    if (rc < 0) return rc;
    ash_assert(cut->start + cut->size_bytes <= cut->used_bytes);
    advance(input, cut->start);
    batch->docs[batch->count - 1].begin = input->pos;
    advance(input, cut->used_bytes - cut->start);
    batch->docs[batch->count - 1].next = input->pos;
    return 0;
}

static void next_file(struct ash_input *input)
{
    close_file(input);
    input->pos = (struct ash_input_pos){.file = input->pos.file + 1, .line = 1};
}

/* Take one row of a Parquet file. */
static int take_row(struct ash_input *input, struct ash_input_batch *batch, struct ash_err *err)
{
    struct ash_parquet_value value;
    struct ash_input_doc *doc;
    int rc = 0;

    if (input->table == NULL) {
        rc = ash_parquet_open(current(input)->path, input->opts.field, &input->table, err);
        if (rc == 0) rc = ash_parquet_seek(input->table, input->pos.offset, err);
        return rc;
    }
    rc = ash_parquet_next(input->table, &value, err);
    if (rc < 0) return rc;
    if (rc == 0) {
        next_file(input);
        return 0;
    }
    rc = append(input, value.data, value.size_bytes, batch, err);
    if (rc < 0) return rc;
    doc = &batch->docs[batch->count - 1];
    doc->is_null = value.is_null;
    doc->begin = input->pos;
    input->pos.offset++;
    input->pos.line++;
    doc->next = input->pos;
    return 0;
}

/* Take one document or separator out of the buffer, or one step towards it. */
static int take(struct ash_input *input, struct ash_input_batch *batch, struct ash_err *err)
{
    enum ash_tokenize_split split = current(input)->jsonl ? ASH_SPLIT_LINE : input->opts.split;
    struct ash_input_cut cut;

    if (input->source == NULL) {
        int rc = open_file(input, err);

        skip_byte_order_mark(input);
        return rc;
    }
    if (input->begin == input->filled && input->end) {
        next_file(input);
        return 0;
    }
    if (input->begin == input->filled ||
        !ash_input_find_cut(split, input->buf + input->begin, input->filled - input->begin, input->end, &cut))
        return fill(input, err);
    if (input->opts.keeps_line_ends && split == ASH_SPLIT_LINE && !current(input)->jsonl)
        cut = (struct ash_input_cut){.size_bytes = cut.used_bytes, .used_bytes = cut.used_bytes};
    if (cut.size_bytes > 0) return add_doc(input, &cut, batch, err);
    advance(input, cut.used_bytes);
    return 0;
}

int ash_input_next(struct ash_input *input, size_t want_bytes, struct ash_input_batch *batch, struct ash_err *err)
{
    ash_str_clear(&batch->text);
    batch->count = 0;
    while (input->pos.file < input->files.count && batch->text.size_bytes < want_bytes &&
           batch->count * sizeof(*batch->docs) < want_bytes) {
        int rc = current(input)->is_parquet ? take_row(input, batch, err) : take(input, batch, err);

        if (rc < 0) return rc;
    }
    return batch->count > 0;
}
