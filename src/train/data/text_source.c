/* Reading text: raw bytes come into a buffer of their own, and leave it as they are or through an unpacker. */
#include "train/data/text_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "train/data/unpack.h"

#define RAW_BYTES ((size_t)256 << 10)
#define HEAD_BYTES ((size_t)8) /* enough for every magic number below */

struct ash_text_source {
    const char *name; /* borrowed */
    int fd;
    bool is_regular, raw_ended;
    uint8_t *raw;
    size_t raw_begin, raw_end; /* raw[begin..end) is read and not used */
    uint64_t file_bytes;
    const struct ash_unpack_ops *ops; /* NULL: plain */
    void *state;                      /* of ops; NULL: not open */
    bool unpacked_whole;              /* the compressed stream may end here */
};

/* What people hand in that is no text, and what to do with it. */
static const struct foreign {
    const char *magic;
    size_t magic_bytes;
    const char *what, *instead;
} foreign[] = {
    {"PAR1", 4, "a Parquet file", "name the file itself (a pipe will not do), with --format auto or parquet"},
    {"\xfd"
     "7zXZ\0",
     6, "an xz file", "use: xz -dc FILE | ashlar data tokenize ... -"},
    {"BZh", 3, "a bzip2 file", "use: bzip2 -dc FILE | ashlar data tokenize ... -"},
    {"PK\3\4", 4, "a zip archive", "unpack it and name its folder"},
    {"\xff\xfe", 2, "UTF-16 text", "convert it with: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", 2, "UTF-16 text", "convert it with: iconv -f UTF-16 -t UTF-8"},
    {"%PDF", 4, "a PDF file", "take its text out with: pdftotext"},
};

static int fill_raw(struct ash_text_source *source, struct ash_err *err)
{
    ssize_t n;

    ash_assert(source->raw_begin == source->raw_end || source->raw_begin == 0);
    if (source->raw_begin == source->raw_end) source->raw_begin = source->raw_end = 0;
    do {
        n = read(source->fd, source->raw + source->raw_end, RAW_BYTES - source->raw_end);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ash_err_set(err, -errno, "%s: cannot read: %s", source->name, strerror(errno));
    source->raw_end += (size_t)n;
    source->file_bytes += (uint64_t)n;
    source->raw_ended = n == 0;
    return 0;
}

/* Detect the format from the first bytes. */
static int look_at_head(struct ash_text_source *source, struct ash_err *err)
{
    size_t count = source->raw_end;
    int rc;

    for (size_t i = 0; i < ASH_COUNT(foreign); i++)
        if (count >= foreign[i].magic_bytes && memcmp(source->raw, foreign[i].magic, foreign[i].magic_bytes) == 0)
            return ash_err_set(err, -EINVAL, "%s: this is %s, not text; %s", source->name, foreign[i].what,
                               foreign[i].instead);
    source->ops = ash_unpack_find(source->raw, count);
    if (source->ops == NULL) return 0;
    rc = source->ops->open(&source->state);
    if (rc == -ENOTSUP)
        return ash_err_set(err, rc, "%s: this build cannot read %s; use: %s -dc FILE | ashlar data tokenize ... -",
                           source->name, source->ops->name, source->ops->name);
    return rc < 0 ? ash_err_set(err, rc, "%s: out of memory", source->name) : 0;
}

int ash_text_source_open(const char *path, struct ash_text_source **source_out, struct ash_err *err)
{
    struct ash_text_source *source = calloc(1, sizeof(*source));
    bool is_stdin = strcmp(path, "-") == 0;
    struct stat st;
    int rc = -ENOMEM;

    if (source == NULL) return ash_err_set(err, rc, "%s: out of memory", path);
    source->name = is_stdin ? "standard input" : path;
    source->fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 || fstat(source->fd, &st) < 0) {
        rc = ash_err_set(err, -errno, "%s: %s", source->name, strerror(errno));
        goto fail;
    }
    source->is_regular = S_ISREG(st.st_mode);
    source->raw = malloc(RAW_BYTES);
    if (source->raw == NULL) {
        ash_err_set(err, rc, "%s: out of memory", source->name);
        goto fail;
    }
    do
        rc = fill_raw(source, err);
    while (rc == 0 && !source->raw_ended && source->raw_end < HEAD_BYTES); /* a pipe may give a byte at a time */
    if (rc == 0) rc = look_at_head(source, err);
    if (rc < 0) goto fail;
    *source_out = source;
    return 0;

fail:
    ash_text_source_close(source);
    return rc;
}

void ash_text_source_close(struct ash_text_source *source)
{
    if (source == NULL) return;
    if (source->state != NULL) source->ops->close(source->state);
    if (source->fd >= 0) close(source->fd);
    free(source->raw);
    free(source);
}

static int read_plain(struct ash_text_source *source, char *buf, size_t capacity, size_t *count_out,
                      struct ash_err *err)
{
    size_t count;
    int rc = 0;

    if (source->raw_begin == source->raw_end && !source->raw_ended) rc = fill_raw(source, err);
    if (rc < 0) return rc;
    count = ash_min(capacity, source->raw_end - source->raw_begin);
    ash_assert(source->raw_begin <= source->raw_end);
    memcpy(buf, source->raw + source->raw_begin, count);
    source->raw_begin += count;
    *count_out = count;
    return 0;
}

static int read_packed(struct ash_text_source *source, char *buf, size_t capacity, size_t *count_out,
                       struct ash_err *err)
{
    struct ash_unpack_io io = {.out = (uint8_t *)buf, .out_bytes = capacity};
    int rc = 0;

    while (io.out_bytes == capacity) {
        if (source->raw_begin == source->raw_end && !source->raw_ended) rc = fill_raw(source, err);
        if (rc < 0) return rc;
        io.in = source->raw + source->raw_begin;
        io.in_bytes = source->raw_end - source->raw_begin;
        rc = source->ops->step(source->state, &io, &source->unpacked_whole);
        if (rc < 0)
            return ash_err_set(err, rc, "%s: the %s data is damaged at byte %llu of the file", source->name,
                               source->ops->name, (unsigned long long)(source->file_bytes - io.in_bytes));
        source->raw_begin = source->raw_end - io.in_bytes;
        if (source->raw_ended && source->raw_begin == source->raw_end && io.out_bytes == capacity) break;
    }
    *count_out = capacity - io.out_bytes;
    if (*count_out == 0 && !source->unpacked_whole)
        return ash_err_set(err, -EBADMSG, "%s: the %s data ends in the middle: the file is not complete", source->name,
                           source->ops->name);
    return 0;
}

int ash_text_source_read(struct ash_text_source *source, char *buf, size_t capacity, size_t *count_out,
                         struct ash_err *err)
{
    ash_assert(capacity > 0);
    return source->ops == NULL ? read_plain(source, buf, capacity, count_out, err)
                               : read_packed(source, buf, capacity, count_out, err);
}

int ash_text_source_skip(struct ash_text_source *source, uint64_t offset, struct ash_err *err)
{
    char chunk[16384];

    if (offset > 0 && source->ops == NULL && source->is_regular) {
        if (lseek(source->fd, (off_t)offset, SEEK_SET) < 0)
            return ash_err_set(err, -errno, "%s: cannot seek: %s", source->name, strerror(errno));
        source->raw_begin = source->raw_end = 0;
        source->raw_ended = false;
        source->file_bytes = offset;
        return 0;
    }
    while (offset > 0) {
        size_t count = 0;
        int rc = ash_text_source_read(source, chunk, ash_min(sizeof(chunk), offset), &count, err);

        if (rc < 0) return rc;
        if (count == 0)
            return ash_err_set(err, -ESTALE, "%s: it is shorter than it was when the run began", source->name);
        offset -= count;
    }
    return 0;
}

bool ash_text_source_is_packed(const struct ash_text_source *source)
{
    return source->ops != NULL;
}

uint64_t ash_text_source_file_bytes(const struct ash_text_source *source)
{
    return source->file_bytes;
}
