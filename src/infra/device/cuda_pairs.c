/* Copies between GPUs on the first one's queue. Every pair has a pattern of its own, so that nothing that an earlier
 * copy left can pass for it. */
#include "infra/device/cuda_pairs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "infra/device/cuda.h"
#include "infra/device/cuda_driver.h"

#define COPIES 4 /* timed, after one that is not */
#define ACCESS_ENABLED_ALREADY 704

struct gpu {
    int device;
    char name[ASH_CUDA_NAME_BYTES];
    void *context, *stream, *start, *end;
    ash_cuda_ptr memory;
};

struct ash_cuda_pairs {
    const struct ash_cuda_driver *driver;
    struct gpu *gpus;
    size_t count, size_bytes;
    uint64_t *words; /* of the host */
};

static int failed(const struct ash_cuda_pairs *pairs, size_t gpu, const char *what, ash_cuda_result result,
                  struct ash_err *err)
{
    char text[128];

    ash_assert(gpu < pairs->count);
    return ash_err_set(err, -EIO, "GPU %zu (%s): %s failed: %s", gpu, pairs->gpus[gpu].name, what,
                       ash_cuda_describe(pairs->driver, result, text, sizeof(text)));
}

static int take_gpu(struct ash_cuda_pairs *pairs, size_t index, struct ash_err *err)
{
    const struct ash_cuda_driver *driver = pairs->driver;
    struct gpu *gpu = &pairs->gpus[index];
    ash_cuda_result result = driver->device_get(&gpu->device, (int)index);

    ash_assert(index < pairs->count);
    if (result == 0) result = driver->device_name(gpu->name, sizeof(gpu->name), gpu->device);
    if (result == 0) result = driver->context_retain(&gpu->context, gpu->device);
    if (result == 0) result = driver->context_use(gpu->context);
    if (result == 0) result = driver->stream_create(&gpu->stream, ASH_CUDA_STREAM_DEFAULT);
    if (result == 0) result = driver->event_create(&gpu->start, 0);
    if (result == 0) result = driver->event_create(&gpu->end, 0);
    if (result == 0) result = driver->alloc(&gpu->memory, pairs->size_bytes);
    return result == 0 ? 0 : failed(pairs, index, "taking it", result, err);
}

int ash_cuda_pairs_open(size_t size_bytes, size_t most, struct ash_cuda_pairs **pairs_out, struct ash_err *err)
{
    const struct ash_cuda_driver *driver = ash_cuda_driver_get(err);
    struct ash_cuda_pairs *pairs;
    size_t all_bytes = 0;
    int count = 0, rc = 0;

    if (driver == NULL) return -ENODEV;
    if (driver->device_count(&count) != 0 || count < 1) return ash_err_set(err, -ENODEV, "the driver sees no GPU");
    if (driver->device_bytes(&all_bytes, 0) == 0 && size_bytes > all_bytes / 64)
        size_bytes = all_bytes / 64 & ~(size_t)7;
    pairs = calloc(1, sizeof(*pairs));
    if (pairs == NULL) return ash_err_set(err, -ENOMEM, "no memory for a check");
    pairs->driver = driver;
    pairs->size_bytes = size_bytes;
    pairs->count = (size_t)count < most ? (size_t)count : most;
    pairs->gpus = calloc(pairs->count, sizeof(*pairs->gpus));
    pairs->words = malloc(size_bytes);
    if (pairs->gpus == NULL || pairs->words == NULL) rc = ash_err_set(err, -ENOMEM, "no memory for a check");
    for (size_t i = 0; i < pairs->count && rc == 0; i++)
        rc = take_gpu(pairs, i, err);
    if (rc < 0) {
        ash_cuda_pairs_close(pairs);
        return rc;
    }
    *pairs_out = pairs;
    return 0;
}

void ash_cuda_pairs_close(struct ash_cuda_pairs *pairs)
{
    if (pairs == NULL) return;
    for (size_t i = 0; i < pairs->count && pairs->gpus != NULL; i++) {
        struct gpu *gpu = &pairs->gpus[i];

        if (gpu->context == NULL) continue;
        pairs->driver->context_use(gpu->context);
        if (gpu->memory != 0) pairs->driver->free(gpu->memory);
        if (gpu->start != NULL) pairs->driver->event_destroy(gpu->start);
        if (gpu->end != NULL) pairs->driver->event_destroy(gpu->end);
        if (gpu->stream != NULL) pairs->driver->stream_destroy(gpu->stream);
        pairs->driver->context_release(gpu->device);
    }
    free(pairs->gpus);
    free(pairs->words);
    free(pairs);
}

size_t ash_cuda_pairs_count(const struct ash_cuda_pairs *pairs)
{
    return pairs->count;
}

const char *ash_cuda_pairs_name(const struct ash_cuda_pairs *pairs, size_t index)
{
    ash_assert(index < pairs->count);
    return pairs->gpus[index].name;
}

static uint64_t word_of(size_t from, size_t to, size_t word)
{
    return ash_hash_mix((uint64_t)from << 56 ^ (uint64_t)to << 48 ^ word);
}

/* Between this machine's memory and a GPU's, and wait. */
static ash_cuda_result copy_host(struct ash_cuda_pairs *pairs, struct gpu *gpu, bool is_to_gpu)
{
    const struct ash_cuda_driver *driver = pairs->driver;
    ash_cuda_ptr host = (ash_cuda_ptr)(uintptr_t)pairs->words;
    ash_cuda_result result = driver->context_use(gpu->context);

    if (result == 0)
        result = driver->copy(is_to_gpu ? gpu->memory : host, is_to_gpu ? host : gpu->memory, pairs->size_bytes,
                              gpu->stream);
    return result == 0 ? driver->stream_wait(gpu->stream) : result;
}

/* The pattern into the first, nothing into the second. */
static ash_cuda_result prepare(struct ash_cuda_pairs *pairs, size_t from, size_t to)
{
    struct gpu *other = &pairs->gpus[to];
    ash_cuda_result result = pairs->driver->context_use(other->context);

    ash_assert(from < pairs->count);
    ash_assert(to < pairs->count);
    for (size_t i = 0; i < pairs->size_bytes / sizeof(uint64_t); i++)
        pairs->words[i] = word_of(from, to, i);
    if (result == 0) result = pairs->driver->set8(other->memory, 0, pairs->size_bytes, other->stream);
    if (result == 0) result = pairs->driver->stream_wait(other->stream);
    return result == 0 ? copy_host(pairs, &pairs->gpus[from], true) : result;
}

/* Copies on the first one's queue; ms_out: the fastest of those after the first. */
static ash_cuda_result copy_across(struct ash_cuda_pairs *pairs, struct gpu *from, struct gpu *to, float *ms_out)
{
    const struct ash_cuda_driver *driver = pairs->driver;
    ash_cuda_result result = 0;

    *ms_out = INFINITY;
    for (int i = 0; i <= COPIES && result == 0; i++) {
        float ms = 0;

        result = driver->event_record(from->start, from->stream);
        if (result == 0)
            result = driver->copy_peer(to->memory, to->context, from->memory, from->context, pairs->size_bytes,
                                       from->stream);
        if (result == 0) result = driver->event_record(from->end, from->stream);
        if (result == 0) result = driver->event_wait(from->end);
        if (result == 0) result = driver->event_ms(&ms, from->start, from->end);
        if (i > 0) *ms_out = fminf(*ms_out, ms);
    }
    return result;
}

static void compare(const struct ash_cuda_pairs *pairs, size_t from, size_t to, struct ash_cuda_pair *pair)
{
    for (size_t i = 0; i < pairs->size_bytes / sizeof(uint64_t); i++) {
        uint64_t wrong = pairs->words[i] ^ word_of(from, to, i);

        pair->wrong_words += wrong != 0;
        pair->wrong_bits |= wrong;
    }
}

int ash_cuda_pairs_copy(struct ash_cuda_pairs *pairs, size_t from, size_t to, struct ash_cuda_pair *pair_out,
                        struct ash_err *err)
{
    struct gpu *first = &pairs->gpus[from], *second = &pairs->gpus[to];
    ash_cuda_result result = prepare(pairs, from, to);
    struct ash_cuda_pair pair = {0};
    float ms = 0;
    int can = 0;

    ash_assert(from < pairs->count);
    ash_assert(to < pairs->count);
    if (result == 0) result = pairs->driver->can_access(&can, first->device, second->device);
    if (result == 0) result = pairs->driver->context_use(first->context);
    if (result == 0 && can != 0) {
        result = pairs->driver->enable_access(second->context, 0);
        if (result == ACCESS_ENABLED_ALREADY) result = 0;
    }
    if (result == 0) result = copy_across(pairs, first, second, &ms);
    if (result == 0) result = copy_host(pairs, second, false);
    if (result != 0) return failed(pairs, from, "a copy to another GPU", result, err);
    pair.is_direct = can != 0;
    pair.rate = ms > 0 ? (double)pairs->size_bytes / ((double)ms * 1e-3) : 0;
    compare(pairs, from, to, &pair);
    *pair_out = pair;
    return 0;
}
