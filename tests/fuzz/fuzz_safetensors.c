/* Fuzzing the safetensors reader: whatever is accepted must lie inside the input, aligned, and add up. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "storage/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Read the bytes of a view, so that a sanitizer sees one that points outside. */
static unsigned sum_bytes(const struct ash_tensor_view *view)
{
    const uint8_t *bytes = view->data;
    unsigned sum = 0;

    for (size_t i = 0; i < view->size_bytes; i++)
        sum += bytes[i];
    return sum;
}

static void check_set(const struct ash_safetensors *set, size_t input_bytes)
{
    size_t total = 0;

    for (size_t i = 0; i < ash_safetensors_size(set); i++) {
        const struct ash_tensor_view *view = ash_safetensors_at(set, i);
        volatile unsigned sum = sum_bytes(view);

        (void)sum;
        ash_assert(view->size_bytes == 0 || (uintptr_t)view->data % ash_dtype_bytes(view->dtype) == 0);
        ash_assert(view->size_bytes == ash_tensor_count(view) * ash_dtype_bytes(view->dtype));
        ash_assert(i == 0 || strcmp(ash_safetensors_at(set, i - 1)->name, view->name) < 0);
        ash_assert(ash_safetensors_find(set, view->name) == view);
        total += view->size_bytes;
    }
    ash_assert(total < input_bytes);
    ash_safetensors_metadata(set, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_safetensors *set = NULL;
    struct ash_err err = {0};

    if (ash_safetensors_parse(data, size_bytes, "input", &set, &err) < 0) {
        ash_assert(set == NULL && err.code < 0 && err.text[0] != '\0');
        return 0;
    }
    check_set(set, size_bytes);
    ash_safetensors_close(set);
    return 0;
}
