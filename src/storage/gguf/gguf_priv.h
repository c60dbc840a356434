/* gguf_priv - a place in a GGUF file, moved only past checked bytes, and the metadata read with it. */
#ifndef ASH_STORAGE_GGUF_GGUF_PRIV_H
#define ASH_STORAGE_GGUF_GGUF_PRIV_H

#include "base/arena.h"
#include "base/file.h"
#include "storage/gguf/gguf.h"

struct ash_gguf {
    struct ash_map map;
    uint8_t *copy; /* ash_gguf_parse's bytes, instead of a mapping */
    struct ash_arena *arena;
    const char *name;              /* for messages */
    struct ash_gguf_value *values; /* sorted by key */
    size_t value_count;
    struct ash_tensor_view *views; /* sorted by name */
    size_t view_count;
};

struct ash_gguf_cursor {
    const uint8_t *base;
    size_t size_bytes, at;
    const struct ash_map *map; /* NULL, or a mapping whose bytes may have to be brought, in their order: */
    size_t brought_bytes;
    int rc; /* of what could not be brought, and why; then takes fail */
    struct ash_err why;
};

/* A little-endian number of `bytes` bytes (at most 8). -EINVAL when the file ends before. */
int ash_gguf_take(struct ash_gguf_cursor *cursor, size_t bytes, uint64_t *value_out);
/* A length and that many bytes. -EINVAL when the file ends before. */
int ash_gguf_take_text(struct ash_gguf_cursor *cursor, const uint8_t **text_out, size_t *bytes_out);
/* A name: a string of 1 to max_bytes bytes of UTF-8 without NUL, copied and terminated. */
int ash_gguf_take_name(struct ash_gguf *file, struct ash_gguf_cursor *cursor, size_t max_bytes, const char *what,
                       const char **name_out, struct ash_err *err);
/* count keys and values into file->values. */
int ash_gguf_read_values(struct ash_gguf *file, struct ash_gguf_cursor *cursor, size_t count, struct ash_err *err);

/* The format's number of a tensor's dtype (one that it can have), or -1. */
int ash_gguf_tensor_type(enum ash_dtype dtype);

#endif
