/* Makes GGUF files for tests, good ones and bad: values and tensors in the order of the calls, then maker_finish. */
#ifndef TEST_GGUF_MAKER_H
#define TEST_GGUF_MAKER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "storage/gguf/gguf.h"

#define MAKER_BYTES_MAX 65536

struct gguf_maker {
    uint32_t version;
    uint64_t value_count, tensor_count;
    uint8_t values[MAKER_BYTES_MAX], infos[MAKER_BYTES_MAX];
    size_t values_bytes, infos_bytes;
    uint8_t *data;              /* of the tensors, each from a multiple of 32 on */
    size_t data_bytes, padding; /* after the last one */
    uint8_t *file;
    size_t file_bytes;
};

static inline uint8_t maker_byte(size_t index)
{
    return (uint8_t)(index * 7 + 3);
}

static inline void maker_init(struct gguf_maker *maker, uint32_t version)
{
    memset(maker, 0, sizeof(*maker));
    maker->version = version;
}

static inline void maker_fini(struct gguf_maker *maker)
{
    free(maker->file);
    free(maker->data);
}

static inline void put_number(uint8_t *to, size_t *at, uint64_t value, size_t bytes)
{
    assert_true(*at + bytes <= MAKER_BYTES_MAX);
    for (size_t i = 0; i < bytes; i++)
        to[(*at)++] = (uint8_t)(value >> 8 * i);
}

static inline void put_string(uint8_t *to, size_t *at, const char *text)
{
    put_number(to, at, strlen(text), 8);
    for (; *text != '\0'; text++)
        put_number(to, at, (uint8_t)*text, 1);
}

/* The parts of a value: its key and type, then what the type wants. */
static inline void maker_number(struct gguf_maker *maker, uint64_t value, size_t bytes)
{
    put_number(maker->values, &maker->values_bytes, value, bytes);
}

static inline void maker_string(struct gguf_maker *maker, const char *text)
{
    put_string(maker->values, &maker->values_bytes, text);
}

static inline void maker_key(struct gguf_maker *maker, const char *key, uint32_t type)
{
    maker->value_count++;
    maker_string(maker, key);
    maker_number(maker, type, 4);
}

static inline void maker_int(struct gguf_maker *maker, const char *key, uint32_t value)
{
    maker_key(maker, key, ASH_GGUF_U32);
    maker_number(maker, value, 4);
}

static inline void maker_float(struct gguf_maker *maker, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    maker_key(maker, key, ASH_GGUF_F32);
    maker_number(maker, bits, 4);
}

static inline void maker_text(struct gguf_maker *maker, const char *key, const char *text)
{
    maker_key(maker, key, ASH_GGUF_STRING);
    maker_string(maker, text);
}

/* A tensor with dims as the file has them (fastest first). Returns its bytes, to be filled; until then they are
 * maker_byte's. */
static inline uint8_t *maker_tensor(struct gguf_maker *maker, const char *name, uint32_t type, uint32_t dim_count,
                                    const uint64_t *dims, size_t bytes)
{
    size_t room = (bytes + 31) / 32 * 32, first = maker->data_bytes;

    maker->tensor_count++;
    put_string(maker->infos, &maker->infos_bytes, name);
    put_number(maker->infos, &maker->infos_bytes, dim_count, 4);
    for (uint32_t i = 0; i < dim_count; i++)
        put_number(maker->infos, &maker->infos_bytes, dims[i], 8);
    put_number(maker->infos, &maker->infos_bytes, type, 4);
    put_number(maker->infos, &maker->infos_bytes, first, 8);
    maker->data = realloc(maker->data, first + room);
    assert_non_null(maker->data);
    maker->data_bytes = first + room;
    maker->padding = room - bytes;
    for (size_t i = 0; i < room; i++)
        maker->data[first + i] = maker_byte(i);
    return maker->data + first;
}

/* Put the file together. The last tensor's padding is left out: a reader must not need it. */
static inline void maker_finish(struct gguf_maker *maker)
{
    size_t head = 24 + maker->values_bytes + maker->infos_bytes, begin = (head + 31) / 32 * 32, at = 0;

    maker->file_bytes = maker->tensor_count == 0 ? head : begin + maker->data_bytes - maker->padding;
    maker->file = calloc(begin + maker->data_bytes, 1);
    assert_non_null(maker->file);
    put_number(maker->file, &at, 0x46554747, 4);
    put_number(maker->file, &at, maker->version, 4);
    put_number(maker->file, &at, maker->tensor_count, 8);
    put_number(maker->file, &at, maker->value_count, 8);
    memcpy(maker->file + at, maker->values, maker->values_bytes);
    memcpy(maker->file + at + maker->values_bytes, maker->infos, maker->infos_bytes);
    if (maker->data_bytes > 0 && maker->data != NULL) memcpy(maker->file + begin, maker->data, maker->data_bytes);
}

#endif
