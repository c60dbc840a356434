/* Quantised tensors as floats that are not there until a reader brings them: a mapping as that of a remote file, whose
 * bytes are decoded instead of fetched. So all that reads weights lazily, by ranges or while it packs them, does so
 * here too, on as many threads. */
#include "model/quantised/quantised.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "model/quantised/quantised_priv.h"

#define ALIGN_BYTES ((size_t)64) /* of tensors among the floats */
#define DECODE_COUNT 1024        /* weights at a time */

struct ash_quantised {
    struct ash_quant_scheme scheme;
    const struct ash_safetensors *files;
    enum ash_dtype dtype;
    struct ash_quant_tensor *tensors;
    size_t count, capacity, float_bytes, stored_bytes;
    struct ash_remote_file source; /* what map.remote is */
    struct ash_map map;
    pthread_mutex_t lock; /* of what makes tensors ready */
};

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Have the parts in memory, and their values checked. */
static int prepare(struct ash_quantised *quantised, struct ash_quant_tensor *tensor, struct ash_err *err)
{
    struct ash_direct_range ranges[ASH_PART_COUNT];
    size_t count = 0;
    int rc = 0;

    if (atomic_load_explicit(&tensor->is_ready, memory_order_acquire)) return 0;
    pthread_mutex_lock(&quantised->lock);
    if (!atomic_load(&tensor->is_ready)) {
        for (size_t i = 0; i < ASH_PART_COUNT; i++) {
            const struct ash_tensor_view *view = tensor->parts[i];

            if (view == NULL) continue;
            ranges[count++] = (struct ash_direct_range){ash_safetensors_map(quantised->files, view->data), view->data,
                                                        view->size_bytes};
        }
        rc = ash_remote_file_bring(ranges, count, err);
        if (rc == 0 && tensor->layout->check != NULL) rc = tensor->layout->check(tensor, err);
        /* Release: pairs with the acquire above, for what check() wrote. */
        if (rc == 0) atomic_store_explicit(&tensor->is_ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&quantised->lock);
    return rc;
}

static void put_floats(const float *values, size_t count, enum ash_dtype dtype, void *out)
{
    uint16_t *half = out;

    if (dtype == ASH_F32) memcpy(out, values, count * sizeof(float));
    for (size_t i = 0; dtype == ASH_BF16 && i < count; i++)
        half[i] = ash_f32_to_bf16(values[i]);
    for (size_t i = 0; dtype == ASH_F16 && i < count; i++)
        half[i] = ash_f32_to_f16(values[i]);
}

/* Weights [first, first + count) of a tensor, row by row. */
static void decode_run(const struct ash_quant_tensor *tensor, size_t first, size_t count, enum ash_dtype dtype,
                       char *out)
{
    float values[DECODE_COUNT];
    size_t part;

    ash_assert(first + count <= tensor->rows * tensor->cols);
    for (size_t done = 0; done < count; done += part) {
        size_t row = (first + done) / tensor->cols, col = (first + done) % tensor->cols;

        part = ash_min(ash_min(count - done, DECODE_COUNT), tensor->cols - col);
        tensor->layout->decode(tensor, row, col, part, values);
        put_floats(values, part, dtype, out + ash_dtype_size(dtype, done));
    }
}

/* The first tensor that ends after a byte. */
static size_t find_tensor(const struct ash_quantised *quantised, size_t offset)
{
    size_t low = 0, high = quantised->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct ash_quant_tensor *tensor = &quantised->tensors[middle];

        if (tensor->begin + tensor->size_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes of the floats of all tensors. What lies between two tensors stays as it is. */
static int read_floats(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_quantised *quantised = ctx;
    size_t width = ash_dtype_bytes(quantised->dtype), end = (size_t)offset + size_bytes;

    ash_assert(offset % width == 0 && end <= quantised->float_bytes);
    for (size_t i = find_tensor(quantised, (size_t)offset); i < quantised->count; i++) {
        struct ash_quant_tensor *tensor = &quantised->tensors[i];
        size_t from = ash_max(tensor->begin, (size_t)offset), to = ash_min(tensor->begin + tensor->size_bytes, end);
        int rc;

        if (from >= to) break;
        rc = prepare(quantised, tensor, err);
        if (rc < 0) return rc;
        decode_run(tensor, (from - tensor->begin) / width, (to - from) / width, quantised->dtype,
                   (char *)data + (from - (size_t)offset));
    }
    return 0;
}

static const struct ash_remote_file_ops read_ops = {.size = sizeof(read_ops), .read = read_floats};

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* A matrix, or matrices one after the other as one with all their rows; a vector is one row. Whatever does not fit
 * into memory was refused with config.json. */
static void set_sizes(struct ash_quant_tensor *tensor, const size_t *dims, int dim_count)
{
    tensor->rows = 1;
    tensor->cols = dims[dim_count - 1];
    for (int i = 0; i < dim_count - 1; i++)
        tensor->rows *= dims[i];
    tensor->outer = dim_count == 3 ? dims[0] : 1;
}

static int add_tensor(struct ash_quantised *quantised, const struct ash_quant_tensor *found, struct ash_err *err)
{
    struct ash_quant_tensor *tensor;

    if (quantised->count == quantised->capacity) {
        size_t capacity = quantised->capacity * 2 + 64;
        struct ash_quant_tensor *tensors = realloc(quantised->tensors, capacity * sizeof(*tensors));

        if (tensors == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of quantised tensors");
        quantised->tensors = tensors;
        quantised->capacity = capacity;
    }
    tensor = &quantised->tensors[quantised->count];
    *tensor = *found;
    tensor->begin = ash_round_up(quantised->float_bytes, ALIGN_BYTES);
    tensor->size_bytes = ash_dtype_size(quantised->dtype, tensor->rows * tensor->cols);
    quantised->float_bytes = tensor->begin + tensor->size_bytes;
    for (size_t i = 0; i < ASH_PART_COUNT; i++)
        quantised->stored_bytes += tensor->parts[i] != NULL ? tensor->parts[i]->size_bytes : 0;
    quantised->count++;
    return 0;
}

int ash_quantised_find(struct ash_quantised *quantised, const char *name, const size_t *dims, int dim_count,
                       size_t *index_out, struct ash_err *err)
{
    struct ash_quant_tensor tensor = {0};

    ash_assert(quantised->map.base == NULL);
    ash_assert(dim_count >= 1 && dim_count <= 3);
    snprintf(tensor.name, sizeof(tensor.name), "%s", name);
    set_sizes(&tensor, dims, dim_count);
    for (size_t i = 0; ash_stored_layouts[i] != NULL; i++) {
        int rc;

        tensor.layout = ash_stored_layouts[i];
        if ((tensor.layout->methods & (unsigned)quantised->scheme.method) == 0) continue;
        rc = tensor.layout->bind(&quantised->scheme, quantised->files, &tensor, err);
        if (rc < 0) return rc;
        if (rc == 0) continue;
        rc = add_tensor(quantised, &tensor, err);
        *index_out = quantised->count - 1;
        return rc < 0 ? rc : 1;
    }
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* config.json's own precision: what the folder says its weights are when they are not quantised. */
static enum ash_dtype float_dtype(const json_t *config)
{
    const char *name = json_string_value(json_object_get(config, "dtype"));

    if (name == NULL) name = json_string_value(json_object_get(config, "torch_dtype"));
    if (name != NULL && strcmp(name, "float32") == 0) return ASH_F32;
    return name != NULL && strcmp(name, "float16") == 0 ? ASH_F16 : ASH_BF16;
}

int ash_quantised_open(const json_t *config, const struct ash_safetensors *files, struct ash_quantised **quantised_out,
                       struct ash_err *err)
{
    const json_t *settings = json_object_get(config, "quantization_config");
    struct ash_quantised *quantised;
    struct ash_quant_scheme scheme;
    int rc;

    *quantised_out = NULL;
    if (settings == NULL || json_is_null(settings)) return 0;
    rc = ash_quant_scheme_read(settings, &scheme, err);
    if (rc < 0) return rc;
    quantised = calloc(1, sizeof(*quantised));
    if (quantised == NULL) return ash_err_set(err, -ENOMEM, "out of memory for quantised weights");
    quantised->scheme = scheme;
    quantised->files = files;
    quantised->dtype = float_dtype(config);
    pthread_mutex_init(&quantised->lock, NULL);
    *quantised_out = quantised;
    return 0;
}

int ash_quantised_map(struct ash_quantised *quantised, struct ash_err *err)
{
    void *base;

    ash_assert(quantised->map.base == NULL);
    if (quantised->float_bytes == 0) return 0;
    base =
        mmap(NULL, quantised->float_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return ash_err_set(err, -ENOMEM, "no address space for %zu bytes of weights", quantised->float_bytes);
    quantised->source = (struct ash_remote_file){&read_ops, quantised, quantised->float_bytes, 0, false};
    quantised->map =
        (struct ash_map){.base = base, .size_bytes = quantised->float_bytes, .fd = -1, .remote = &quantised->source};
    return 0;
}

void ash_quantised_close(struct ash_quantised *quantised)
{
    if (quantised == NULL) return;
    ash_map_close(&quantised->map);
    pthread_mutex_destroy(&quantised->lock);
    free(quantised->tensors);
    free(quantised);
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

const void *ash_quantised_data(const struct ash_quantised *quantised, size_t index)
{
    ash_assert(index < quantised->count);
    return quantised->map.base + quantised->tensors[index].begin;
}

enum ash_dtype ash_quantised_dtype(const struct ash_quantised *quantised)
{
    return quantised->dtype;
}

const struct ash_map *ash_quantised_holds(const struct ash_quantised *quantised, const void *data)
{
    return ash_map_holds(&quantised->map, data) ? &quantised->map : NULL;
}

const char *ash_quantised_method(const struct ash_quantised *quantised)
{
    return quantised->scheme.name;
}

size_t ash_quantised_count(const struct ash_quantised *quantised)
{
    return quantised->count;
}

size_t ash_quantised_stored_bytes(const struct ash_quantised *quantised)
{
    return quantised->stored_bytes;
}

size_t ash_quantised_float_bytes(const struct ash_quantised *quantised)
{
    return quantised->float_bytes;
}
