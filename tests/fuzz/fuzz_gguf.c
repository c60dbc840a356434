/* Fuzzing the GGUF reader: whatever is accepted must lie inside the input, aligned, and be found again by its name;
 * quantised blocks of any bytes have values; a vocabulary that is accepted must encode and decode. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "compute/quant_open.h"
#include "text/tokenizer/tokenizer.h"
#include "storage/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Read bytes, so that a sanitizer sees those that lie outside. */
static void touch(const void *data, size_t size_bytes)
{
    const uint8_t *bytes = data;
    volatile unsigned sum = 0;

    for (size_t i = 0; i < size_bytes; i++)
        sum = sum + bytes[i];
}

/* The values of all blocks: a group is whole wherever it is read. */
static void read_blocks(const struct ash_tensor_view *view)
{
    size_t count = ash_dtype_block(view->dtype), bytes = ash_dtype_bytes(view->dtype);

    for (size_t at = 0; count > 1 && at < view->size_bytes; at += bytes) {
        float values[ASH_QUANT_GROUP];

        ash_quant_to_f32((const uint8_t *)view->data + at, view->dtype, count, values);
        touch(values, count * sizeof(*values));
    }
}

static void check_tensors(const struct ash_gguf *file, size_t input_bytes)
{
    for (size_t i = 0; i < ash_gguf_size(file); i++) {
        const struct ash_tensor_view *view = ash_gguf_at(file, i);

        ash_assert(view->size_bytes > 0 && view->size_bytes <= input_bytes);
        ash_assert(view->size_bytes == ash_dtype_size(view->dtype, ash_tensor_count(view)));
        ash_assert((uintptr_t)view->data % 8 == 0);
        ash_assert(ash_gguf_find(file, view->name) == view);
        touch(view->data, view->size_bytes);
        read_blocks(view);
    }
}

static void check_values(struct ash_gguf *file)
{
    static const char *const keys[] = {"general.architecture",
                                       "general.alignment",
                                       "llama.block_count",
                                       "a.u8",
                                       "a.f32",
                                       "a.numbers",
                                       "a.nested",
                                       "a.text"};

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        const struct ash_gguf_value *value = ash_gguf_get_value(file, keys[i]);
        const char *text = NULL;
        int64_t number = 3;
        double real = 0.5;

        if (value == NULL) continue;
        ash_assert(strcmp(value->key, keys[i]) == 0);
        touch(value->data, value->size_bytes);
        if (ash_gguf_int(file, keys[i], 0, 9, &number, NULL) == 1) ash_assert(number >= 0 && number <= 9);
        if (ash_gguf_double(file, keys[i], 0, 1, &real, NULL) == 1) ash_assert(real >= 0 && real <= 1);
        if (ash_gguf_string(file, keys[i], &text, NULL) == 1) ash_assert(strlen(text) == value->size_bytes);
    }
}

static void check_arrays(const struct ash_gguf *file)
{
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "a.texts"};

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        const struct ash_gguf_value *array = NULL;
        const char *text = NULL;
        size_t at = 0, bytes = 0, count = 0;

        if (ash_gguf_array(file, keys[i], ASH_GGUF_STRING, &array, NULL) != 1) continue;
        for (; ash_gguf_next_text(array, &at, &text, &bytes); count++)
            touch(text, bytes);
        ash_assert(count == array->count && at == array->size_bytes);
    }
}

static void check_tokenizer(struct ash_gguf *file)
{
    static const char text[] = "ab a<x><|x|> A12'll\n \xc3\xa9";
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_str back = {0};
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    if (ash_tokenizer_from_gguf(file, "input", &tokenizer, &err) < 0) {
        ash_assert(tokenizer == NULL && err.code < 0 && err.text[0] != '\0');
        return;
    }
    if (ash_tokenizer_encode(tokenizer, text, sizeof(text) - 1, true, &ids, &err) == 0)
        ash_assert(ash_tokenizer_decode(tokenizer, ids.data, ids.count, false, &back, &err) == 0);
    ash_ids_fini(&ids);
    ash_str_fini(&back);
    ash_tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_gguf *file = NULL;
    struct ash_err err = {0};

    if (ash_gguf_parse(data, size_bytes, "input", &file, &err) < 0) {
        ash_assert(file == NULL && err.code < 0 && err.text[0] != '\0');
        return 0;
    }
    check_tensors(file, size_bytes);
    check_values(file);
    check_arrays(file);
    check_tokenizer(file);
    ash_gguf_close(file);
    return 0;
}
