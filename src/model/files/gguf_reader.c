/* Numbers of a GGUF file's metadata, for its architecture. */
#include "model/files/gguf_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ash_gguf_key_of(struct ash_gguf_reader *reader, const char *name)
{
    if (strncmp(name, "tokenizer.", strlen("tokenizer.")) == 0) return name;
    snprintf(reader->key, sizeof(reader->key), "%s.%s", reader->name, name);
    return reader->key;
}

int ash_gguf_get_int(struct ash_gguf_reader *reader, const char *name, int64_t *value_out, struct ash_err *err)
{
    const char *key = ash_gguf_key_of(reader, name);
    const struct ash_gguf_value *value = ash_gguf_get_value(reader->file, key);

    if (value == NULL || value->type != ASH_GGUF_ARRAY)
        return ash_gguf_int(reader->file, key, 0, INT32_MAX, value_out, err);
    if ((value->element != ASH_GGUF_I32 && value->element != ASH_GGUF_U32) || value->count == 0)
        return ash_err_set(err, -EINVAL, "'%s' is an array, but not of numbers", key);
    *value_out = ash_gguf_int_at(value, 0);
    for (size_t i = 0; i < value->count; i++)
        if (ash_gguf_int_at(value, i) != *value_out || *value_out < 0)
            return ash_err_set(err, -ENOTSUP, "'%s' is not the same in all layers", key);
    return 1;
}

double ash_gguf_widen(double value)
{
    char text[32];
    double wide;

    snprintf(text, sizeof(text), "%.7g", value);
    wide = strtod(text, NULL);
    return (float)wide == (float)value ? wide : value;
}
