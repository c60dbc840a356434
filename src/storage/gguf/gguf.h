/* gguf - llama.cpp's model file (versions 2 and 3, little endian): typed metadata and tensors, read by mapping.
 * A reader trusts nothing: every count, length, type, offset and alignment is checked before a pointer is returned. */
#ifndef ASH_STORAGE_GGUF_GGUF_H
#define ASH_STORAGE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/file.h"
#include "storage/safetensors/safetensors.h"

/* The format's own numbers. */
enum ash_gguf_type {
    ASH_GGUF_U8,
    ASH_GGUF_I8,
    ASH_GGUF_U16,
    ASH_GGUF_I16,
    ASH_GGUF_U32,
    ASH_GGUF_I32,
    ASH_GGUF_F32,
    ASH_GGUF_BOOL,
    ASH_GGUF_STRING,
    ASH_GGUF_ARRAY,
    ASH_GGUF_U64,
    ASH_GGUF_I64,
    ASH_GGUF_F64,
    ASH_GGUF_TYPE_COUNT
};

/* One metadata value; borrowed from the file. */
struct ash_gguf_value {
    const char *key;
    enum ash_gguf_type type;
    int64_t integer;   /* of whole numbers and BOOL */
    bool is_too_large; /* a U64 above INT64_MAX: refused on access */
    double real;       /* of F32 and F64 */
    /* STRING: its bytes, not terminated. ARRAY: its elements as the file has them (checked, unaligned). */
    const uint8_t *data;
    size_t size_bytes;          /* of data */
    enum ash_gguf_type element; /* ARRAY: of its elements */
    size_t count;               /* ARRAY: how many */
};

struct ash_gguf;

/* Map and check a file. Tensors of a type that Ashlar cannot use refuse it: anything but F32, F16, BF16, Q8_0, Q4_0,
 * Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4. */
int ash_gguf_open(const char *path, struct ash_gguf **file_out, struct ash_err *err);
/* The same over a copy of bytes in memory: for tests and fuzzing. */
int ash_gguf_parse(const void *data, size_t size_bytes, const char *name, struct ash_gguf **file_out,
                   struct ash_err *err);
/* NULL is a no-op. */
void ash_gguf_close(struct ash_gguf *file);
/* The mapping that holds a tensor's data (the file's), or NULL where they are a copy. */
const struct ash_map *ash_gguf_map(const struct ash_gguf *file, const void *data);

#define ASH_GGUF_PATH_BYTES 4096
#define ASH_GGUF_MODEL "model.gguf" /* the file that a folder of one GGUF file has */

/* Does the path name such a file (by its end, .gguf)? */
bool ash_gguf_named(const char *path);
/* The GGUF file that path means, into buf (ASH_GGUF_PATH_BYTES): path itself where ash_gguf_named, or the model.gguf of
 * a folder that has no config.json. False where path means something else, or is too long. */
bool ash_gguf_locate(const char *path, char *buf);
/* The folder of the GGUF file path, into buf. Returns 0 or -ENAMETOOLONG. */
int ash_gguf_home(const char *path, char *buf, size_t buf_bytes);

size_t ash_gguf_size(const struct ash_gguf *file); /* number of tensors */
/* By place in the order of names. dims are row-major, the reverse of the file's; data is aligned for its dtype. */
const struct ash_tensor_view *ash_gguf_at(const struct ash_gguf *file, size_t index);
/* By name, or NULL. */
const struct ash_tensor_view *ash_gguf_find(const struct ash_gguf *file, const char *name);

/* A metadata value by key, or NULL. */
const struct ash_gguf_value *ash_gguf_get_value(const struct ash_gguf *file, const char *key);
/* Each looks key up. Absent keeps *value_out and returns 0; present sets it and returns 1. A wrong type, a value
 * outside [min, max], or text with a NUL or bytes that are not UTF-8 is -EINVAL. First, an integer or BOOL in
 * [min, max]. */
int ash_gguf_int(const struct ash_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value_out,
                 struct ash_err *err);
/* F32 or F64 in [min, max]. */
int ash_gguf_double(const struct ash_gguf *file, const char *key, double min, double max, double *value_out,
                    struct ash_err *err);
/* Text: UTF-8 without NUL, terminated, borrowed from file. */
int ash_gguf_string(struct ash_gguf *file, const char *key, const char **value_out, struct ash_err *err);

/* The array at key with elements of a type. Absent keeps *array_out and returns 0; present sets it and returns 1. An
 * array of other elements, or no array, is -EINVAL. */
int ash_gguf_array(const struct ash_gguf *file, const char *key, enum ash_gguf_type element,
                   const struct ash_gguf_value **array_out, struct ash_err *err);
/* Step through an array of STRINGs: *at is 0 at first. False at the end. The bytes are borrowed, not terminated, any
 * bytes. */
bool ash_gguf_next_text(const struct ash_gguf_value *array, size_t *at, const char **text_out, size_t *bytes_out);
/* Element index (below count) of an array of F32. */
float ash_gguf_float_at(const struct ash_gguf_value *array, size_t index);
/* Element index (below count) of an array of I32 or U32. */
int32_t ash_gguf_int_at(const struct ash_gguf_value *array, size_t index);

#define ASH_GGUF_ALIGNMENT 32 /* of tensors, unless the file sets another */

/* A metadata value to write: STRING, F32, U32, BOOL, or an ARRAY of STRING, F32 or I32. All is borrowed. */
struct ash_gguf_entry {
    const char *key;
    enum ash_gguf_type type;
    const char *text;
    float real;
    uint32_t number;            /* of U32 and BOOL */
    enum ash_gguf_type element; /* ARRAY: of its elements */
    const void *elements;       /* ARRAY: const char *const *, const float * or const int32_t * */
    size_t count;               /* ARRAY: how many */
};

#define ASH_GGUF_ENTRIES_MAX 96

/* Values to write, as they gather. */
struct ash_gguf_entries {
    struct ash_gguf_entry list[ASH_GGUF_ENTRIES_MAX];
    size_t count;
};

/* Append a STRING. Of this and the next four: there must be room, and key, text and elements are borrowed until
 * the file is written. */
void ash_gguf_add_text(struct ash_gguf_entries *entries, const char *key, const char *text);
/* Append a U32. */
void ash_gguf_add_number(struct ash_gguf_entries *entries, const char *key, uint32_t number);
/* Append a BOOL. */
void ash_gguf_add_bool(struct ash_gguf_entries *entries, const char *key, bool value);
/* Append an F32. */
void ash_gguf_add_real(struct ash_gguf_entries *entries, const char *key, float real);
/* Append an array of count STRINGs, F32 or I32. */
void ash_gguf_add_array(struct ash_gguf_entries *entries, const char *key, enum ash_gguf_type element,
                        const void *elements, size_t count);

/* Write a new file. dims of specs are row-major; fill makes the bytes, in pieces of whole rows. On error nothing is
 * left, and err has the cause; a file of that name is -EEXIST and stays. */
int ash_gguf_write(const char *path, const struct ash_gguf_entries *entries, const struct ash_tensor_spec *specs,
                   size_t count, ash_tensor_fill_fn fill, void *ctx, struct ash_err *err);

#endif
