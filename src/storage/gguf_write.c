/* Writes GGUF files (version 3): the head in one piece, then the tensors, made piece by piece. */
#include "storage/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/gguf_priv.h"
#include "storage/io_priv.h"

#define CHUNK_BYTES ((size_t)1 << 20)

/* The head as it grows; failed once memory was out. */
struct head {
    uint8_t *data;
    size_t used, capacity;
    bool failed;
};

static void put_bytes(struct head *head, const void *data, size_t bytes)
{
    if (head->used + bytes > head->capacity) {
        size_t capacity = 2 * (head->used + bytes);
        uint8_t *grown = head->failed ? NULL : realloc(head->data, capacity);

        if (grown == NULL) {
            head->failed = true;
            return;
        }
        head->data = grown;
        head->capacity = capacity;
    }
    memcpy(head->data + head->used, data, bytes);
    head->used += bytes;
}

static void put_number(struct head *head, uint64_t value, size_t bytes)
{
    uint8_t little[8];

    for (size_t i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    put_bytes(head, little, bytes);
}

static void put_text(struct head *head, const char *text)
{
    put_number(head, strlen(text), 8);
    put_bytes(head, text, strlen(text));
}

static void put_entry(struct head *head, const struct ash_gguf_entry *entry)
{
    uint32_t bits;

    put_text(head, entry->key);
    put_number(head, entry->type, 4);
    if (entry->type == ASH_GGUF_STRING) {
        put_text(head, entry->text);
    } else if (entry->type == ASH_GGUF_F32) {
        memcpy(&bits, &entry->real, sizeof(bits));
        put_number(head, bits, 4);
    } else {
        put_number(head, entry->number, 4);
    }
}

static size_t count_of(const struct ash_tensor_spec *spec)
{
    size_t count = 1;

    for (int i = 0; i < spec->dim_count; i++)
        count *= spec->dims[i];
    return count;
}

static size_t padded(size_t bytes)
{
    return (bytes + ASH_GGUF_ALIGNMENT - 1) / ASH_GGUF_ALIGNMENT * ASH_GGUF_ALIGNMENT;
}

static void put_tensor(struct head *head, const struct ash_tensor_spec *spec, size_t offset)
{
    put_text(head, spec->name);
    put_number(head, (uint64_t)spec->dim_count, 4);
    for (int i = spec->dim_count - 1; i >= 0; i--)
        put_number(head, spec->dims[i], 8);
    put_number(head, (uint64_t)ash_gguf_tensor_type(spec->dtype), 4);
    put_number(head, offset, 8);
}

static int make_head(struct head *head, const struct ash_gguf_entry *entries, size_t entry_count,
                     const struct ash_tensor_spec *specs, size_t count)
{
    static const uint8_t zeros[ASH_GGUF_ALIGNMENT];
    size_t offset = 0;

    put_bytes(head, "GGUF", 4);
    put_number(head, 3, 4);
    put_number(head, count, 8);
    put_number(head, entry_count, 8);
    for (size_t i = 0; i < entry_count; i++)
        put_entry(head, &entries[i]);
    for (size_t i = 0; i < count; i++) {
        put_tensor(head, &specs[i], offset);
        offset += padded(ash_dtype_size(specs[i].dtype, count_of(&specs[i])));
    }
    put_bytes(head, zeros, padded(head->used) - head->used);
    return head->failed ? -ENOMEM : 0;
}

/* One tensor in pieces of whole rows, and what fills it up to the alignment. */
static int write_tensor(int fd, const struct ash_tensor_spec *spec, size_t index, ash_tensor_fill_fn fill, void *ctx)
{
    size_t row_bytes = ash_dtype_size(spec->dtype, spec->dims[spec->dim_count - 1]);
    size_t total = ash_dtype_size(spec->dtype, count_of(spec));
    size_t piece = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes * row_bytes : row_bytes;
    uint8_t *buf = calloc(1, piece + ASH_GGUF_ALIGNMENT);
    int rc = buf == NULL ? -ENOMEM : 0;

    for (size_t done = 0; rc == 0 && done < total; done += piece) {
        size_t part = total - done < piece ? total - done : piece;

        rc = fill(ctx, index, done, buf, part);
        if (rc == 0) rc = ash_io_write(fd, buf, part);
    }
    if (rc == 0) memset(buf, 0, ASH_GGUF_ALIGNMENT);
    if (rc == 0) rc = ash_io_write(fd, buf, padded(total) - total);
    free(buf);
    return rc;
}

int ash_gguf_write(const char *path, const struct ash_gguf_entry *entries, size_t entry_count,
                   const struct ash_tensor_spec *specs, size_t count, ash_tensor_fill_fn fill, void *ctx,
                   struct ash_err *err)
{
    struct head head = {0};
    int fd, rc = make_head(&head, entries, entry_count, specs, count), end;

    if (rc < 0) {
        free(head.data);
        return ash_err_set(err, rc, "%s: no memory to write it", path);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = -errno;
        free(head.data);
        return ash_io_fail(err, rc, path, "create");
    }
    rc = ash_io_write(fd, head.data, head.used);
    free(head.data);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = write_tensor(fd, &specs[i], i, fill, ctx);
    end = ash_io_flush_close(fd);
    if (rc == 0) rc = end;
    if (rc == 0) return 0;
    unlink(path);
    return ash_io_fail(err, rc, path, "write");
}
