/* Fuzz target: a quantization_config, NUL, and the safetensors file that it describes; all floats are decoded. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/math.h"
#include "model/quantised/quantised.h"
#include "storage/io/remote_file.h"
#include "storage/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a model asks for: a matrix, and the matrices of two experts. */
static void read_tensors(struct ash_quantised *quantised)
{
    static const size_t matrix[] = {16, 64}, experts[] = {2, 64, 8};
    struct ash_err err = {0};
    size_t index = 0;
    int matrices = ash_quantised_find(quantised, "m.weight", matrix, 2, &index, &err);

    if (matrices < 0) return;
    if (ash_quantised_find(quantised, "e", experts, 3, &index, &err) < 0) return;
    if (ash_quantised_count(quantised) == 0 || ash_quantised_map(quantised, &err) < 0) return;
    for (size_t i = 0; i < ash_quantised_count(quantised); i++) {
        const void *floats = ash_quantised_data(quantised, i);
        const struct ash_map *map = ash_quantised_holds(quantised, floats);
        struct ash_direct_range range = {map, floats,
                                         (size_t)16 * 64 * ash_dtype_bytes(ash_quantised_dtype(quantised))};

        ash_remote_file_bring(&range, 1, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    struct ash_safetensors *files = NULL;
    struct ash_quantised *quantised = NULL;
    struct ash_err err = {0};
    json_t *json = NULL;

    if (end == NULL || ash_json_parse((const char *)data, (size_t)(end - data), "fuzz", &json, &err) < 0) return 0;
    if (ash_safetensors_parse(end + 1, size - (size_t)(end + 1 - data), "fuzz", &files, &err) == 0 &&
        ash_quantised_open(json, files, &quantised, &err) == 0 && quantised != NULL)
        read_tensors(quantised);
    ash_quantised_close(quantised);
    ash_safetensors_close(files);
    json_decref(json);
    return 0;
}
