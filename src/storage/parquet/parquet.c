/* Reading a column of a Parquet file: page after page of one row group after the other. A page is read and unpacked
 * whole; its values are decoded one at a time. */
#include "storage/parquet/parquet_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/assert.h"
#include "base/math.h"

#define MAGIC "PAR1"
#define MAGIC_ENCRYPTED "PARE"
#define MAGIC_BYTES ((size_t)4)
#define TAIL_BYTES ((size_t)8)               /* the footer's length and the magic again */
#define FOOTER_BYTES_MAX ((size_t)512 << 20) /* some 10 MB are a large one */
#define PAGE_BYTES_MAX ((size_t)1 << 30)     /* a page of 1 MB is usual; one document may be long */
#define HEADER_BYTES ((size_t)4 << 10)       /* of a page: without statistics some 30 bytes */
#define HEADER_BYTES_MAX ((size_t)64 << 20)  /* with statistics of long texts */
#define LEVEL_LENGTH_BYTES 4                 /* before the levels of a page of version 1 */

struct buffer {
    uint8_t *data;
    size_t capacity;
};

struct ash_parquet {
    char *path, *column;
    int fd;
    struct ash_parquet_footer footer;
    size_t chunk;        /* the present one; those before it are done */
    uint64_t chunk_left; /* rows of it on pages not begun */
    uint64_t at;         /* of the next page in the file */
    uint64_t page_left;  /* rows of the present page */
    uint64_t skip;       /* rows to leave out before the next one */
    uint64_t row;        /* the next one */
    struct buffer packed, plain, packed_dictionary, plain_dictionary;
    bool has_dictionary;
    struct ash_parquet_dictionary dictionary;
    struct ash_parquet_runs levels;
    struct ash_parquet_values values;
};

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int reserve(struct ash_parquet *file, struct buffer *buffer, size_t size_bytes, struct ash_err *err)
{
    uint8_t *data;

    if (size_bytes <= buffer->capacity && buffer->data != NULL) return 0;
    data = realloc(buffer->data, ash_max(size_bytes, 1));
    if (data == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for a page of %zu bytes", file->path, size_bytes);
    buffer->data = data;
    buffer->capacity = ash_max(size_bytes, 1);
    return 0;
}

static int read_at(const struct ash_parquet *file, uint64_t offset, uint8_t *data, size_t size_bytes,
                   struct ash_err *err)
{
    while (size_bytes > 0) {
        ssize_t n = pread(file->fd, data, size_bytes, (off_t)offset);

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ash_err_set(err, -errno, "%s: cannot read: %s", file->path, strerror(errno));
        if (n == 0)
            return ash_err_set(err, -ESTALE, "%s: it became shorter while it was being read; run again", file->path);
        data += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return 0;
}

static int refuse_page(const struct ash_parquet *file, const char *what, struct ash_err *err)
{
    return ash_err_set(err, -EBADMSG,
                       "%s: column '%s', row group %zu: %s (near row %" PRIu64 "): the file is damaged; copy it again",
                       file->path, file->column, file->chunk, what, file->row + file->skip);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int ash_parquet_detect(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char magic[MAGIC_BYTES];
    bool is_parquet;

    if (fd < 0) return 0;
    is_parquet = pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
                 (memcmp(magic, MAGIC, MAGIC_BYTES) == 0 || memcmp(magic, MAGIC_ENCRYPTED, MAGIC_BYTES) == 0);
    close(fd);
    return is_parquet;
}

static int check_magics(const struct ash_parquet *file, const uint8_t *head, const uint8_t *tail, struct ash_err *err)
{
    if (memcmp(head, MAGIC_ENCRYPTED, MAGIC_BYTES) == 0)
        return ash_err_set(err, -ENOTSUP, "%s: this Parquet file is encrypted, which is not read", file->path);
    if (memcmp(head, MAGIC, MAGIC_BYTES) != 0)
        return ash_err_set(err, -EINVAL, "%s: this is not a Parquet file", file->path);
    if (memcmp(tail + MAGIC_BYTES, MAGIC, MAGIC_BYTES) != 0)
        return ash_err_set(err, -EBADMSG, "%s: a Parquet file without an end: it was not copied whole; copy it again",
                           file->path);
    return 0;
}

static int read_footer(struct ash_parquet *file, uint64_t size_bytes, struct ash_err *err)
{
    uint8_t head[MAGIC_BYTES], tail[TAIL_BYTES], *footer;
    uint64_t footer_bytes;
    int rc;

    if (size_bytes < MAGIC_BYTES + TAIL_BYTES)
        return ash_err_set(err, -EINVAL, "%s: %" PRIu64 " bytes are no Parquet file", file->path, size_bytes);
    rc = read_at(file, 0, head, sizeof(head), err);
    if (rc == 0) rc = read_at(file, size_bytes - TAIL_BYTES, tail, sizeof(tail), err);
    if (rc == 0) rc = check_magics(file, head, tail, err);
    if (rc < 0) return rc;
    footer_bytes = (uint64_t)tail[0] | (uint64_t)tail[1] << 8 | (uint64_t)tail[2] << 16 | (uint64_t)tail[3] << 24;
    if (footer_bytes > size_bytes - MAGIC_BYTES - TAIL_BYTES || footer_bytes > FOOTER_BYTES_MAX)
        return ash_err_set(err, -EBADMSG, "%s: a footer of %" PRIu64 " bytes cannot be: the file is damaged",
                           file->path, footer_bytes);
    footer = malloc(footer_bytes + 1);
    if (footer == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for its footer", file->path);
    rc = read_at(file, size_bytes - TAIL_BYTES - footer_bytes, footer, (size_t)footer_bytes, err);
    if (rc == 0) {
        rc = ash_parquet_footer_parse(footer, (size_t)footer_bytes, size_bytes - TAIL_BYTES - footer_bytes,
                                      file->column, &file->footer, err);
        if (rc < 0) rc = ash_err_prefix(err, rc, "%s", file->path);
    }
    free(footer);
    return rc;
}

static void start_chunk(struct ash_parquet *file, size_t chunk)
{
    ash_assert(chunk <= file->footer.chunk_count); /* one behind the last: the end */
    file->chunk = chunk;
    file->chunk_left = 0;
    file->page_left = 0;
    file->has_dictionary = false;
    if (chunk == file->footer.chunk_count) return;
    file->chunk_left = file->footer.chunks[chunk].rows;
    file->at = file->footer.chunks[chunk].begin;
}

int ash_parquet_open(const char *path, const char *column, struct ash_parquet **file_out, struct ash_err *err)
{
    struct ash_parquet *file = calloc(1, sizeof(*file));
    struct stat st;
    int rc = -ENOMEM;

    if (file == NULL) return ash_err_set(err, rc, "%s: out of memory", path);
    file->fd = -1;
    file->path = strdup(path);
    file->column = strdup(column);
    if (file->path == NULL || file->column == NULL) {
        ash_err_set(err, rc, "%s: out of memory", path);
        goto fail;
    }
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &st) < 0) {
        rc = ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
        goto fail;
    }
    rc = read_footer(file, (uint64_t)st.st_size, err);
    if (rc < 0) goto fail;
    start_chunk(file, 0);
    *file_out = file;
    return 0;

fail:
    ash_parquet_close(file);
    return rc;
}

void ash_parquet_close(struct ash_parquet *file)
{
    if (file == NULL) return;
    if (file->fd >= 0) close(file->fd);
    ash_parquet_footer_fini(&file->footer);
    ash_parquet_values_fini(&file->values);
    free(file->dictionary.texts);
    free(file->packed.data);
    free(file->plain.data);
    free(file->packed_dictionary.data);
    free(file->plain_dictionary.data);
    free(file->path);
    free(file->column);
    free(file);
}

uint64_t ash_parquet_rows(const struct ash_parquet *file)
{
    return file->footer.rows;
}

int ash_parquet_seek(struct ash_parquet *file, uint64_t row, struct ash_err *err)
{
    uint64_t skip = row;
    size_t chunk = 0;

    if (row > file->footer.rows)
        return ash_err_set(err, -EINVAL, "%s: there is no row %" PRIu64 " of %" PRIu64, file->path, row,
                           file->footer.rows);
    while (chunk < file->footer.chunk_count && skip >= file->footer.chunks[chunk].rows)
        skip -= file->footer.chunks[chunk++].rows;
    start_chunk(file, chunk);
    file->skip = skip;
    file->row = row - skip;
    return 0;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Read the header at the present place; at moves to the page's body. */
static int read_header(struct ash_parquet *file, struct ash_parquet_page_header *header, struct ash_err *err)
{
    uint64_t left = file->footer.chunks[file->chunk].end - file->at;
    size_t want = HEADER_BYTES;
    int rc;

    if (left == 0 || file->at > file->footer.chunks[file->chunk].end)
        return refuse_page(file, "it ends before its last row", err);
    for (;; want *= 4) {
        want = ash_min(want, ash_min((size_t)left, HEADER_BYTES_MAX));
        rc = reserve(file, &file->packed, want, err);
        if (rc == 0) rc = read_at(file, file->at, file->packed.data, want, err);
        if (rc < 0) return rc;
        rc = ash_parquet_page_header_parse(file->packed.data, want, header);
        if (rc != -EAGAIN || want == left || want == HEADER_BYTES_MAX) break;
    }
    if (rc < 0) return refuse_page(file, "the header of a page cannot be read", err);
    file->at += header->header_bytes;
    if ((uint64_t)header->packed_bytes > file->footer.chunks[file->chunk].end - file->at)
        return refuse_page(file, "a page ends beyond the row group", err);
    return 0;
}

/* Read the packed bytes of a page and compare them with their checksum. at moves on. */
static int read_packed(struct ash_parquet *file, const struct ash_parquet_page_header *header, struct buffer *packed,
                       struct ash_err *err)
{
    size_t packed_bytes = (size_t)header->packed_bytes;
    int rc = reserve(file, packed, packed_bytes, err);

    if (rc == 0) rc = read_at(file, file->at, packed->data, packed_bytes, err);
    if (rc < 0) return rc;
    if (header->has_crc && crc32(0, packed->data, (uInt)packed_bytes) != header->crc)
        return refuse_page(file, "a page does not match its checksum", err);
    file->at += packed_bytes;
    return 0;
}

/* Unpack a block, whose bytes go to plain; values_out is where they are. */
static int unpack(struct ash_parquet *file, int codec, struct ash_parquet_block block, struct buffer *plain,
                  struct ash_parquet_bytes *values_out, struct ash_err *err)
{
    int rc;

    *values_out = (struct ash_parquet_bytes){block.in, block.in + block.in_bytes};
    if (codec == ASH_PARQUET_UNCOMPRESSED)
        return block.in_bytes == block.out_bytes ? 0 : refuse_page(file, "the sizes of a page cannot be", err);
    rc = reserve(file, plain, block.out_bytes, err);
    if (rc < 0) return rc;
    block.out = plain->data;
    if (block.out_bytes > 0) rc = ash_parquet_codec_run(codec, &block);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "%s: no memory to unpack a page", file->path);
    if (rc < 0) return refuse_page(file, "a page cannot be unpacked", err);
    *values_out = (struct ash_parquet_bytes){plain->data, plain->data + block.out_bytes};
    return 0;
}

/* Read a page's body and unpack it after its first head_bytes (levels of version 2). Advances at. */
static int read_body(struct ash_parquet *file, const struct ash_parquet_page_header *header, struct buffer *packed,
                     struct buffer *plain, struct ash_parquet_bytes *values_out, struct ash_err *err)
{
    size_t head_bytes = (size_t)(header->definition_bytes + header->repetition_bytes);
    size_t packed_bytes = (size_t)header->packed_bytes, plain_bytes = (size_t)header->plain_bytes;
    int codec = file->footer.chunks[file->chunk].codec, rc;

    ash_assert(head_bytes <= packed_bytes && head_bytes <= plain_bytes); /* is_possible() */
    if (header->type == ASH_PARQUET_DATA_PAGE_V2 && !header->is_compressed) codec = ASH_PARQUET_UNCOMPRESSED;
    if (packed_bytes > PAGE_BYTES_MAX || plain_bytes > PAGE_BYTES_MAX ||
        plain_bytes - head_bytes > ash_parquet_codec_bound(codec, packed_bytes - head_bytes))
        return refuse_page(file, "the sizes of a page cannot be", err);
    rc = read_packed(file, header, packed, err);
    if (rc < 0) return rc;
    return unpack(file, codec,
                  (struct ash_parquet_block){.in = packed->data + head_bytes,
                                             .in_bytes = packed_bytes - head_bytes,
                                             .out_bytes = plain_bytes - head_bytes},
                  plain, values_out, err);
}

static int refuse_encoding(const struct ash_parquet *file, int64_t encoding, struct ash_err *err)
{
    return ash_err_set(err, -ENOTSUP,
                       "%s: column '%s' has the encoding %s (%" PRId64
                       "), which is not read for texts; write the file again with PLAIN",
                       file->path, file->column, ash_parquet_encoding_name((int)encoding), encoding);
}

static int load_dictionary(struct ash_parquet *file, const struct ash_parquet_page_header *header, struct ash_err *err)
{
    struct ash_parquet_bytes bytes;
    int rc;

    if (header->encoding != ASH_PARQUET_PLAIN && header->encoding != ASH_PARQUET_PLAIN_DICTIONARY)
        return refuse_encoding(file, header->encoding, err);
    rc = read_body(file, header, &file->packed_dictionary, &file->plain_dictionary, &bytes, err);
    if (rc < 0) return rc;
    rc = ash_parquet_dictionary_fill(&file->dictionary, bytes, (uint64_t)header->values);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "%s: no memory for a dictionary", file->path);
    if (rc < 0) return refuse_page(file, "the dictionary cannot be read", err);
    file->has_dictionary = true;
    return 0;
}

/* Definition levels of version 1 lie before the values, after their length. */
static int split_levels(struct ash_parquet *file, const struct ash_parquet_page_header *header,
                        struct ash_parquet_bytes *bytes, struct ash_err *err)
{
    struct ash_parquet_bytes levels;
    size_t left = (size_t)(bytes->end - bytes->at), size_bytes;

    if (!file->footer.is_optional) return 0;
    if (header->type == ASH_PARQUET_DATA_PAGE_V2) {
        levels.at = file->packed.data + header->repetition_bytes;
        levels.end = levels.at + header->definition_bytes;
        ash_parquet_runs_init(&file->levels, levels, 1);
        return 0;
    }
    if (header->level_encoding != ASH_PARQUET_RLE) return refuse_encoding(file, header->level_encoding, err);
    if (left < LEVEL_LENGTH_BYTES) return refuse_page(file, "a page ends inside its levels", err);
    size_bytes =
        (size_t)bytes->at[0] | (size_t)bytes->at[1] << 8 | (size_t)bytes->at[2] << 16 | (size_t)bytes->at[3] << 24;
    if (size_bytes > left - LEVEL_LENGTH_BYTES) return refuse_page(file, "a page ends inside its levels", err);
    levels.at = bytes->at + LEVEL_LENGTH_BYTES;
    levels.end = bytes->at = levels.at + size_bytes;
    ash_parquet_runs_init(&file->levels, levels, 1);
    return 0;
}

static int load_data(struct ash_parquet *file, const struct ash_parquet_page_header *header, struct ash_err *err)
{
    static const struct ash_parquet_dictionary no_dictionary;
    struct ash_parquet_bytes bytes;
    int rc = read_body(file, header, &file->packed, &file->plain, &bytes, err);

    if (rc < 0) return rc;
    rc = split_levels(file, header, &bytes, err);
    if (rc < 0) return rc;
    rc = ash_parquet_values_start(&file->values, (int)header->encoding, bytes,
                                  file->has_dictionary ? &file->dictionary : &no_dictionary);
    if (rc == -ENOTSUP) return refuse_encoding(file, header->encoding, err);
    if (rc < 0) return refuse_page(file, "the values of a page cannot be read", err);
    file->page_left = (uint64_t)header->values;
    file->chunk_left -= file->page_left;
    return 0;
}

/* Take the next page of the present chunk. Data pages before the row that is wanted are left out. */
static int next_page(struct ash_parquet *file, struct ash_err *err)
{
    struct ash_parquet_page_header header;
    int rc = read_header(file, &header, err);

    if (rc < 0) return rc;
    if (header.type == ASH_PARQUET_DICTIONARY_PAGE) return load_dictionary(file, &header, err);
    if (header.type != ASH_PARQUET_DATA_PAGE && header.type != ASH_PARQUET_DATA_PAGE_V2) {
        file->at += (uint64_t)header.packed_bytes; /* an index, or an unknown future kind */
        return 0;
    }
    if ((uint64_t)header.values > file->chunk_left) return refuse_page(file, "its pages have too many rows", err);
    if ((uint64_t)header.values > file->skip) return load_data(file, &header, err);
    file->at += (uint64_t)header.packed_bytes;
    file->chunk_left -= (uint64_t)header.values;
    file->skip -= (uint64_t)header.values;
    file->row += (uint64_t)header.values;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int take_row(struct ash_parquet *file, struct ash_parquet_value *value, struct ash_err *err)
{
    struct ash_parquet_text text = {(const uint8_t *)"", 0};
    uint32_t level = 1;
    int rc = 0;

    ash_assert(file->page_left > 0);
    if (file->footer.is_optional) rc = ash_parquet_runs_next(&file->levels, &level);
    if (rc == 0 && level == 1) rc = ash_parquet_values_next(&file->values, &text);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "%s: no memory for row %" PRIu64, file->path, file->row);
    if (rc < 0 || level > 1) return refuse_page(file, "a value cannot be read", err);
    file->page_left--;
    file->row++;
    *value = (struct ash_parquet_value){(const char *)text.data, text.size_bytes, level == 0};
    return 0;
}

int ash_parquet_next(struct ash_parquet *file, struct ash_parquet_value *value_out, struct ash_err *err)
{
    struct ash_parquet_value value;
    int rc = 0;

    do {
        while (file->page_left == 0) {
            if (file->chunk == file->footer.chunk_count) return 0;
            if (file->chunk_left == 0)
                start_chunk(file, file->chunk + 1);
            else
                rc = next_page(file, err);
            if (rc < 0) return rc;
        }
        rc = take_row(file, &value, err);
        if (rc < 0) return rc;
        if (file->skip == 0) {
            *value_out = value;
            return 1;
        }
        file->skip--;
    } while (true);
}
