/* Writes GGUF files (version 3): the head in one piece, then the tensors, made piece by piece. */
#include "storage/gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/math.h"
#include "storage/gguf/gguf_priv.h"
#include "storage/io/io_priv.h"

#define CHUNK_BYTES ((size_t)1 << 20)

/* ---- the values -------------------------------------------------------------------------------------------------- */

static struct ash_gguf_entry *add(struct ash_gguf_entries *entries, const char *key, enum ash_gguf_type type)
{
    struct ash_gguf_entry *entry = &entries->list[entries->count];

    ash_assert(entries->count < ASH_GGUF_ENTRIES_MAX);
    entries->count++;
    *entry = (struct ash_gguf_entry){.key = key, .type = type};
    return entry;
}

void ash_gguf_add_text(struct ash_gguf_entries *entries, const char *key, const char *text)
{
    add(entries, key, ASH_GGUF_STRING)->text = text;
}

void ash_gguf_add_number(struct ash_gguf_entries *entries, const char *key, uint32_t number)
{
    add(entries, key, ASH_GGUF_U32)->number = number;
}

void ash_gguf_add_bool(struct ash_gguf_entries *entries, const char *key, bool value)
{
    add(entries, key, ASH_GGUF_BOOL)->number = value;
}

void ash_gguf_add_real(struct ash_gguf_entries *entries, const char *key, float real)
{
    add(entries, key, ASH_GGUF_F32)->real = real;
}

void ash_gguf_add_array(struct ash_gguf_entries *entries, const char *key, enum ash_gguf_type element,
                        const void *elements, size_t count)
{
    struct ash_gguf_entry *entry = add(entries, key, ASH_GGUF_ARRAY);

    ash_assert(element == ASH_GGUF_STRING || element == ASH_GGUF_F32 || element == ASH_GGUF_I32);
    entry->element = element;
    entry->elements = elements;
    entry->count = count;
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* The header as it grows; has_failed once memory was out. */
struct head {
    uint8_t *data;
    size_t used, capacity;
    bool has_failed;
};

static void put_bytes(struct head *head, const void *data, size_t bytes)
{
    if (head->has_failed || ash_array_reserve(&head->data, &head->capacity, head->used + bytes, 1) < 0) {
        head->has_failed = true;
        return;
    }
    ash_assert(head->used + bytes <= head->capacity);
    memcpy(head->data + head->used, data, bytes);
    head->used += bytes;
}

static void put_number(struct head *head, uint64_t value, size_t bytes)
{
    uint8_t little[8];

    ash_assert(bytes <= sizeof(little));
    for (size_t i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    put_bytes(head, little, bytes);
}

static void put_text(struct head *head, const char *text)
{
    put_number(head, strlen(text), 8);
    put_bytes(head, text, strlen(text));
}

static void put_float(struct head *head, float value)
{
    put_number(head, ash_f32_bits(value), 4);
}

static void put_array(struct head *head, const struct ash_gguf_entry *entry)
{
    const char *const *texts = entry->elements;
    const float *reals = entry->elements;
    const int32_t *numbers = entry->elements;

    put_number(head, entry->element, 4);
    put_number(head, entry->count, 8);
    for (size_t i = 0; i < entry->count; i++) {
        if (entry->element == ASH_GGUF_STRING)
            put_text(head, texts[i]);
        else if (entry->element == ASH_GGUF_F32)
            put_float(head, reals[i]);
        else
            put_number(head, (uint32_t)numbers[i], 4);
    }
}

static void put_entry(struct head *head, const struct ash_gguf_entry *entry)
{
    put_text(head, entry->key);
    put_number(head, entry->type, 4);
    if (entry->type == ASH_GGUF_STRING)
        put_text(head, entry->text);
    else if (entry->type == ASH_GGUF_F32)
        put_float(head, entry->real);
    else if (entry->type == ASH_GGUF_ARRAY)
        put_array(head, entry);
    else
        put_number(head, entry->number, entry->type == ASH_GGUF_BOOL ? 1 : 4);
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
    return ash_round_up(bytes, ASH_GGUF_ALIGNMENT);
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

static int make_head(struct head *head, const struct ash_gguf_entries *entries, const struct ash_tensor_spec *specs,
                     size_t count)
{
    static const uint8_t zeros[ASH_GGUF_ALIGNMENT];
    size_t offset = 0;

    put_bytes(head, "GGUF", 4);
    put_number(head, 3, 4);
    put_number(head, count, 8);
    put_number(head, entries->count, 8);
    for (size_t i = 0; i < entries->count; i++)
        put_entry(head, &entries->list[i]);
    for (size_t i = 0; i < count; i++) {
        put_tensor(head, &specs[i], offset);
        offset += padded(ash_dtype_size(specs[i].dtype, count_of(&specs[i])));
    }
    put_bytes(head, zeros, padded(head->used) - head->used);
    return head->has_failed ? -ENOMEM : 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* One tensor in pieces of whole rows, and what fills it up to the alignment. */
static int write_tensor(int fd, const struct ash_tensor_spec *spec, size_t index, ash_tensor_fill_fn fill, void *ctx)
{
    size_t row_bytes = ash_dtype_size(spec->dtype, spec->dims[spec->dim_count - 1]);
    size_t total = ash_dtype_size(spec->dtype, count_of(spec));
    size_t piece = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes * row_bytes : row_bytes;
    uint8_t *buf = calloc(1, piece + ASH_GGUF_ALIGNMENT);
    int rc = buf == NULL ? -ENOMEM : 0;

    for (size_t done = 0; rc == 0 && done < total; done += piece) {
        size_t part = ash_min(total - done, piece);

        rc = fill(ctx, index, done, buf, part);
        if (rc == 0) rc = ash_io_write(fd, buf, part);
    }
    if (rc == 0) memset(buf, 0, ASH_GGUF_ALIGNMENT);
    if (rc == 0) rc = ash_io_write(fd, buf, padded(total) - total);
    free(buf);
    return rc;
}

int ash_gguf_write(const char *path, const struct ash_gguf_entries *entries, const struct ash_tensor_spec *specs,
                   size_t count, ash_tensor_fill_fn fill, void *ctx, struct ash_err *err)
{
    struct head head = {0};
    int fd, rc = make_head(&head, entries, specs, count), end;

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
