/* The metadata of GGUF files: typed values under names. Arrays are checked to the last element and left where they
 * are. */
#include "storage/gguf/gguf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/utf8.h"
#include "storage/io/remote_file.h"

#define KEY_BYTES_MAX 65535
#define NESTING_MAX 4                 /* arrays in arrays */
#define BRING_BYTES ((size_t)1 << 20) /* of a remote file, at once: short vocabularies are in it */

/* Bytes of a value of a fixed-size type. */
static const size_t type_bytes[ASH_GGUF_TYPE_COUNT] = {
    [ASH_GGUF_U8] = 1,  [ASH_GGUF_I8] = 1,  [ASH_GGUF_U16] = 2, [ASH_GGUF_I16] = 2,
    [ASH_GGUF_U32] = 4, [ASH_GGUF_I32] = 4, [ASH_GGUF_F32] = 4, [ASH_GGUF_BOOL] = 1,
    [ASH_GGUF_U64] = 8, [ASH_GGUF_I64] = 8, [ASH_GGUF_F64] = 8,
};

/* ---- the cursor -------------------------------------------------------------------------------------------------- */

static size_t left(const struct ash_gguf_cursor *cursor)
{
    return cursor->size_bytes - cursor->at;
}

/* The length of the metadata is not stored: of a remote file more is fetched until they end. */
static int bring(struct ash_gguf_cursor *cursor, size_t bytes)
{
    size_t first = cursor->brought_bytes, wanted = ash_max(cursor->at + bytes, ash_max(2 * first, (size_t)BRING_BYTES)),
           end = ash_min(wanted, cursor->size_bytes);
    struct ash_direct_range range = {cursor->map, cursor->base + first, end - first};

    cursor->rc = ash_remote_file_bring(&range, 1, &cursor->why);
    if (cursor->rc == 0) cursor->brought_bytes = end;
    return cursor->rc;
}

/* The next bytes can be read. */
static int need(struct ash_gguf_cursor *cursor, size_t bytes)
{
    if (cursor->rc < 0) return cursor->rc;
    if (left(cursor) < bytes) return -EINVAL;
    if (cursor->map == NULL || cursor->map->remote == NULL || cursor->at + bytes <= cursor->brought_bytes) return 0;
    return bring(cursor, bytes);
}

int ash_gguf_take(struct ash_gguf_cursor *cursor, size_t bytes, uint64_t *value_out)
{
    uint64_t value = 0;

    ash_assert(bytes <= sizeof(value) && cursor->at <= cursor->size_bytes);
    if (need(cursor, bytes) < 0) return -EINVAL;
    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | cursor->base[cursor->at + i - 1];
    cursor->at += bytes;
    *value_out = value;
    return 0;
}

int ash_gguf_take_text(struct ash_gguf_cursor *cursor, const uint8_t **text_out, size_t *bytes_out)
{
    uint64_t length = 0;

    if (ash_gguf_take(cursor, 8, &length) < 0 || length > left(cursor)) return -EINVAL;
    if (need(cursor, (size_t)length) < 0) return -EINVAL;
    *text_out = cursor->base + cursor->at;
    *bytes_out = (size_t)length;
    cursor->at += (size_t)length;
    return 0;
}

/* A terminated copy of text that has no NUL and is UTF-8; NULL if it is not, or without memory. */
static const char *copy_text(struct ash_gguf *file, const uint8_t *text, size_t bytes)
{
    char *copy;

    if (memchr(text, '\0', bytes) != NULL || ash_utf8_valid_prefix((const char *)text, bytes) != bytes) return NULL;
    copy = ash_arena_alloc(file->arena, bytes + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

int ash_gguf_take_name(struct ash_gguf *file, struct ash_gguf_cursor *cursor, size_t max_bytes, const char *what,
                       const char **name_out, struct ash_err *err)
{
    const uint8_t *text = NULL;
    size_t bytes = 0;
    const char *name;

    if (ash_gguf_take_text(cursor, &text, &bytes) < 0)
        return ash_err_set(err, -EINVAL, "%s: the file ends inside the name of a %s: it is truncated or damaged",
                           file->name, what);
    if (bytes == 0 || bytes > max_bytes)
        return ash_err_set(err, -EINVAL, "%s: the name of a %s has %zu bytes (1 to %zu are allowed)", file->name, what,
                           bytes, max_bytes);
    name = copy_text(file, text, bytes);
    if (name == NULL) return ash_err_set(err, -EINVAL, "%s: the name of a %s is not text", file->name, what);
    *name_out = name;
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int take_type(struct ash_gguf_cursor *cursor, enum ash_gguf_type *type_out)
{
    uint64_t type = 0;

    if (ash_gguf_take(cursor, 4, &type) < 0 || type >= ASH_GGUF_TYPE_COUNT) return -EINVAL;
    *type_out = (enum ash_gguf_type)type;
    return 0;
}

static int skip_array(struct ash_gguf_cursor *cursor, int depth, enum ash_gguf_type *element_out, size_t *count_out);

/* Step over one value inside an array, checking it. */
static int skip_element(struct ash_gguf_cursor *cursor, enum ash_gguf_type type, int depth)
{
    const uint8_t *text;
    enum ash_gguf_type element;
    size_t count;

    if (type == ASH_GGUF_STRING) return ash_gguf_take_text(cursor, &text, &count);
    return skip_array(cursor, depth + 1, &element, &count);
}

/* Step over an array: its head, then its elements. Those of a fixed size are one step. */
static int skip_array(struct ash_gguf_cursor *cursor, int depth, enum ash_gguf_type *element_out, size_t *count_out)
{
    enum ash_gguf_type element = ASH_GGUF_U8;
    uint64_t count = 0;
    int rc = depth >= NESTING_MAX ? -EINVAL : take_type(cursor, &element);

    if (rc < 0) return rc;
    rc = ash_gguf_take(cursor, 8, &count);
    if (rc < 0) return rc;
    size_t width = type_bytes[element];

    if (count > left(cursor) / (width > 0 ? width : 8))
        return -EINVAL; /* a string and an array have a length of 8 bytes */
    if (need(cursor, width * (size_t)count) < 0) return -EINVAL;
    cursor->at += width * (size_t)count;
    for (uint64_t i = 0; width == 0 && i < count; i++)
        if (skip_element(cursor, element, depth) < 0) return -EINVAL;
    *element_out = element;
    *count_out = (size_t)count;
    return 0;
}

static int take_array(struct ash_gguf_cursor *cursor, struct ash_gguf_value *value)
{
    size_t head = cursor->at;
    int rc = skip_array(cursor, 0, &value->element, &value->count);

    if (rc < 0) return rc;
    value->data = cursor->base + head + 12; /* after type and count */
    value->size_bytes = cursor->at - head - 12;
    return 0;
}

/* A number of a type, from its bits. */
static int set_number(struct ash_gguf_value *value, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float single;

    switch (value->type) {
    case ASH_GGUF_I8:
        value->integer = (int8_t)bits;
        return 0;
    case ASH_GGUF_I16:
        value->integer = (int16_t)bits;
        return 0;
    case ASH_GGUF_I32:
        value->integer = (int32_t)low;
        return 0;
    case ASH_GGUF_BOOL:
        value->integer = (int64_t)bits;
        return bits <= 1 ? 0 : -EINVAL;
    case ASH_GGUF_F32:
        memcpy(&single, &low, sizeof(single));
        value->real = (double)single;
        return 0;
    case ASH_GGUF_F64:
        memcpy(&value->real, &bits, sizeof(value->real));
        return 0;
    default:
        value->is_too_large = value->type == ASH_GGUF_U64 && bits > INT64_MAX;
        value->integer = value->is_too_large ? INT64_MAX : (int64_t)bits;
        return 0;
    }
}

static int take_value(struct ash_gguf_cursor *cursor, struct ash_gguf_value *value)
{
    uint64_t bits = 0;
    int rc = take_type(cursor, &value->type);

    if (rc < 0) return rc;
    if (value->type == ASH_GGUF_STRING) return ash_gguf_take_text(cursor, &value->data, &value->size_bytes);
    if (value->type == ASH_GGUF_ARRAY) return take_array(cursor, value);
    rc = ash_gguf_take(cursor, type_bytes[value->type], &bits);
    return rc < 0 ? rc : set_number(value, bits);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct ash_gguf_value *)a)->key, ((const struct ash_gguf_value *)b)->key);
}

int ash_gguf_read_values(struct ash_gguf *file, struct ash_gguf_cursor *cursor, size_t count, struct ash_err *err)
{
    file->values = calloc(count + 1, sizeof(*file->values)); /* never of size 0 */
    if (file->values == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for its metadata", file->name);
    for (size_t i = 0; i < count; i++) {
        struct ash_gguf_value *value = &file->values[i];
        int rc = ash_gguf_take_name(file, cursor, KEY_BYTES_MAX, "metadata value", &value->key, err);

        if (rc < 0) return rc;
        if (take_value(cursor, value) < 0)
            return ash_err_set(err, -EINVAL, "%s: metadata value '%.64s' is damaged, or the file is truncated",
                               file->name, value->key);
        file->value_count++;
    }
    qsort(file->values, count, sizeof(*file->values), compare_keys);
    for (size_t i = 1; i < count; i++)
        if (strcmp(file->values[i - 1].key, file->values[i].key) == 0)
            return ash_err_set(err, -EINVAL, "%s: metadata value '%.64s' is there twice", file->name,
                               file->values[i].key);
    return 0;
}

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

const struct ash_gguf_value *ash_gguf_get_value(const struct ash_gguf *file, const char *key)
{
    struct ash_gguf_value wanted = {.key = key};

    return bsearch(&wanted, file->values, file->value_count, sizeof(wanted), compare_keys);
}

int ash_gguf_int(const struct ash_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value_out,
                 struct ash_err *err)
{
    const struct ash_gguf_value *value = ash_gguf_get_value(file, key);

    if (value == NULL) return 0;
    if (value->type == ASH_GGUF_F32 || value->type == ASH_GGUF_F64 || type_bytes[value->type] == 0)
        return ash_err_set(err, -EINVAL, "%s: '%s' is not a whole number", file->name, key);
    if (value->is_too_large || value->integer < min || value->integer > max)
        return ash_err_set(err, -EINVAL, "%s: '%s' is %lld; %lld to %lld can be used", file->name, key,
                           (long long)value->integer, (long long)min, (long long)max);
    *value_out = value->integer;
    return 1;
}

int ash_gguf_double(const struct ash_gguf *file, const char *key, double min, double max, double *value_out,
                    struct ash_err *err)
{
    const struct ash_gguf_value *value = ash_gguf_get_value(file, key);

    if (value == NULL) return 0;
    if (value->type != ASH_GGUF_F32 && value->type != ASH_GGUF_F64)
        return ash_err_set(err, -EINVAL, "%s: '%s' is not a fraction (float32 or float64)", file->name, key);
    if (!(value->real >= min && value->real <= max))
        return ash_err_set(err, -EINVAL, "%s: '%s' is %g; %g to %g can be used", file->name, key, value->real, min,
                           max);
    *value_out = value->real;
    return 1;
}

int ash_gguf_string(struct ash_gguf *file, const char *key, const char **value_out, struct ash_err *err)
{
    const struct ash_gguf_value *value = ash_gguf_get_value(file, key);
    const char *copy;

    if (value == NULL) return 0;
    copy = value->type == ASH_GGUF_STRING ? copy_text(file, value->data, value->size_bytes) : NULL;
    if (copy == NULL) return ash_err_set(err, -EINVAL, "%s: '%s' is not text", file->name, key);
    *value_out = copy;
    return 1;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

int ash_gguf_array(const struct ash_gguf *file, const char *key, enum ash_gguf_type element,
                   const struct ash_gguf_value **array_out, struct ash_err *err)
{
    const struct ash_gguf_value *value = ash_gguf_get_value(file, key);

    if (value == NULL) return 0;
    if (value->type != ASH_GGUF_ARRAY || value->element != element)
        return ash_err_set(err, -EINVAL, "%s: '%s' is not a list of the expected type", file->name, key);
    *array_out = value;
    return 1;
}

bool ash_gguf_next_text(const struct ash_gguf_value *array, size_t *at, const char **text_out, size_t *bytes_out)
{
    struct ash_gguf_cursor cursor = {.base = array->data, .size_bytes = array->size_bytes, .at = *at};
    const uint8_t *text = NULL;

    ash_assert(array->element == ASH_GGUF_STRING && *at <= array->size_bytes);
    if (ash_gguf_take_text(&cursor, &text, bytes_out) < 0) return false;
    *text_out = (const char *)text;
    *at = cursor.at;
    return true;
}

float ash_gguf_float_at(const struct ash_gguf_value *array, size_t index)
{
    float value;

    ash_assert(array->element == ASH_GGUF_F32 && index < array->count);
    memcpy(&value, array->data + index * sizeof(value), sizeof(value));
    return value;
}

int32_t ash_gguf_int_at(const struct ash_gguf_value *array, size_t index)
{
    int32_t value;

    ash_assert((array->element == ASH_GGUF_I32 || array->element == ASH_GGUF_U32) && index < array->count);
    memcpy(&value, array->data + index * sizeof(value), sizeof(value));
    return value;
}
