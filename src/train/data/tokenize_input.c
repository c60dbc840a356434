/* Input files as documents. Files are read, not mapped: one that shrinks under our hands gives an error, not a signal.
 * The buffer doubles while a document does not fit, so looking for its end again costs twice its length at most. */
#include "train/data/tokenize_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)

struct ash_input {
    struct ash_input_file *files;
    size_t file_count;
    enum ash_tokenize_split split;
    size_t document_bytes_max;
    int fd;   /* of files[pos.file], or -1 when it is not open yet */
    bool end; /* the file gives no more bytes */
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

bool ash_input_cut(enum ash_tokenize_split split, const char *text, size_t size_bytes, bool end,
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

static bool has_ending(const char *path, const char *ending)
{
    size_t length = strlen(path), ending_length = strlen(ending);

    return length > ending_length && strcmp(path + length - ending_length, ending) == 0;
}

static int look_at(const char *path, enum ash_tokenize_format format, struct ash_input_file *file, struct ash_err *err)
{
    struct stat st;

    if (stat(path, &st) < 0) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return ash_err_set(err, -EISDIR, "%s: it is a folder; name the files in it", path);
    if (!S_ISREG(st.st_mode))
        return ash_err_set(err, -EINVAL,
                           "%s: not a regular file: a run that may be resumed must be able to read it again", path);
    if (format == ASH_FORMAT_AUTO) format = has_ending(path, ".jsonl") ? ASH_FORMAT_JSONL : ASH_FORMAT_TEXT;
    *file = (struct ash_input_file){
        .path = path,
        .size_bytes = (uint64_t)st.st_size,
        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
        .jsonl = format == ASH_FORMAT_JSONL,
    };
    return 0;
}

int ash_input_open(const char *const *paths, size_t count, enum ash_tokenize_format format,
                   enum ash_tokenize_split split, size_t document_bytes_max, struct ash_input **input_out,
                   struct ash_err *err)
{
    struct ash_input *input = calloc(1, sizeof(*input));
    int rc = -ENOMEM;

    if (input == NULL) return ash_err_set(err, rc, "out of memory");
    input->fd = -1;
    input->split = split;
    input->document_bytes_max = document_bytes_max;
    input->pos.line = 1;
    input->files = calloc(count == 0 ? 1 : count, sizeof(*input->files));
    input->buf = malloc(READ_BYTES);
    if (input->files == NULL || input->buf == NULL) {
        ash_err_set(err, rc, "out of memory");
        goto fail;
    }
    input->capacity = READ_BYTES;
    for (; input->file_count < count; input->file_count++) {
        rc = look_at(paths[input->file_count], format, &input->files[input->file_count], err);
        if (rc < 0) goto fail;
    }
    *input_out = input;
    return 0;

fail:
    ash_input_close(input);
    return rc;
}

void ash_input_close(struct ash_input *input)
{
    if (input == NULL) return;
    if (input->fd >= 0) close(input->fd);
    free(input->files);
    free(input->buf);
    free(input);
}

const struct ash_input_file *ash_input_file(const struct ash_input *input, size_t index)
{
    return &input->files[index];
}

size_t ash_input_file_count(const struct ash_input *input)
{
    return input->file_count;
}

int ash_input_seek(struct ash_input *input, const struct ash_input_pos *pos, struct ash_err *err)
{
    bool inside = pos->file < input->file_count && pos->offset <= input->files[pos->file].size_bytes;

    if (!inside && !(pos->file == input->file_count && pos->offset == 0))
        return ash_err_set(err, -EINVAL, "there is no byte %" PRIu64 " in input %zu", pos->offset, pos->file);
    if (input->fd >= 0) close(input->fd);
    input->fd = -1;
    input->end = false;
    input->begin = input->filled = 0;
    input->pos = *pos;
    return 0;
}

static int open_file(struct ash_input *input, struct ash_err *err)
{
    const char *path = input->files[input->pos.file].path;

    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (input->pos.offset > 0 && lseek(input->fd, (off_t)input->pos.offset, SEEK_SET) < 0)
        return ash_err_set(err, -errno, "%s: cannot seek: %s", path, strerror(errno));
    posix_fadvise(input->fd, (off_t)input->pos.offset, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

static int refuse_size(const struct ash_input *input, struct ash_err *err)
{
    return ash_err_set(err, -EFBIG,
                       "%s:%" PRIu64
                       ": this document is larger than %zu bytes; cut the file with --split, or raise --max-document",
                       input->files[input->pos.file].path, input->pos.line, input->document_bytes_max);
}

/* Make room behind what is filled: move it to the front, or double the buffer. */
static int make_room(struct ash_input *input, struct ash_err *err)
{
    char *buf;

    if (input->begin > 0) {
        memmove(input->buf, input->buf + input->begin, input->filled - input->begin);
        input->filled -= input->begin;
        input->begin = 0;
    }
    if (input->capacity - input->filled >= READ_BYTES / 2) return 0;
    if (input->filled > input->document_bytes_max) return refuse_size(input, err);
    buf = realloc(input->buf, 2 * input->capacity);
    if (buf == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a document of %zu bytes", 2 * input->capacity);
    input->buf = buf;
    input->capacity *= 2;
    return 0;
}

static int fill(struct ash_input *input, struct ash_err *err)
{
    const struct ash_input_file *file = &input->files[input->pos.file];
    ssize_t n;
    int rc = make_room(input, err);

    if (rc < 0) return rc;
    do {
        n = read(input->fd, input->buf + input->filled, input->capacity - input->filled);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ash_err_set(err, -errno, "%s: cannot read: %s", file->path, strerror(errno));
    input->filled += (size_t)n;
    input->end = n == 0;
    if (input->end && input->pos.offset + (input->filled - input->begin) != file->size_bytes)
        return ash_err_set(err, -ESTALE, "%s: it changed while it was being read; run again when it is complete",
                           file->path);
    return 0;
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

static int add_doc(struct ash_input *input, const struct ash_input_cut *cut, struct ash_input_batch *batch,
                   struct ash_err *err)
{
    struct ash_input_doc doc = {.start = batch->text.size_bytes, .size_bytes = cut->size_bytes};

    if (cut->size_bytes > input->document_bytes_max) return refuse_size(input, err);
    if (batch->count == batch->capacity) {
        size_t capacity = batch->capacity == 0 ? 256 : 2 * batch->capacity;
        struct ash_input_doc *docs = realloc(batch->docs, capacity * sizeof(*docs));

        if (docs == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
        batch->docs = docs;
        batch->capacity = capacity;
    }
    if (ash_str_add(&batch->text, input->buf + input->begin + cut->start, cut->size_bytes) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    advance(input, cut->start);
    doc.begin = input->pos;
    advance(input, cut->used_bytes - cut->start);
    doc.next = input->pos;
    batch->docs[batch->count++] = doc;
    return 0;
}

static void next_file(struct ash_input *input)
{
    close(input->fd);
    input->fd = -1;
    input->end = false;
    input->begin = input->filled = 0;
    input->pos = (struct ash_input_pos){.file = input->pos.file + 1, .line = 1};
}

/* Take one document or separator out of the buffer, or one step towards it. */
static int take(struct ash_input *input, struct ash_input_batch *batch, struct ash_err *err)
{
    enum ash_tokenize_split split = input->files[input->pos.file].jsonl ? ASH_SPLIT_LINE : input->split;
    struct ash_input_cut cut;

    if (input->fd < 0) {
        int rc = open_file(input, err);

        if (rc == 0) rc = fill(input, err);
        skip_byte_order_mark(input);
        return rc;
    }
    if (input->begin == input->filled && input->end) {
        next_file(input);
        return 0;
    }
    if (input->begin == input->filled ||
        !ash_input_cut(split, input->buf + input->begin, input->filled - input->begin, input->end, &cut))
        return fill(input, err);
    if (cut.size_bytes > 0) return add_doc(input, &cut, batch, err);
    advance(input, cut.used_bytes);
    return 0;
}

int ash_input_next(struct ash_input *input, size_t want_bytes, struct ash_input_batch *batch, struct ash_err *err)
{
    ash_str_clear(&batch->text);
    batch->count = 0;
    while (input->pos.file < input->file_count && batch->text.size_bytes < want_bytes) {
        int rc = take(input, batch, err);

        if (rc < 0) return rc;
    }
    return batch->count > 0;
}
