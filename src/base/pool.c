/* Pools: one block of memory and a stack of free places, so that get and put are a few instructions and never
 * malloc. */
#include "base/pool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"

#define ALIGN_BYTES ((size_t)64)

struct ash_pool {
    const char *what;
    size_t stride_bytes, limit;
    char *objects;     /* limit * stride_bytes */
    size_t *free_list; /* indexes of free objects; the last put is the next got, while its lines are in the cache */
    size_t free_count;
    bool *out; /* per object: catches a second put */
};

int ash_pool_open(const char *what, size_t object_bytes, size_t limit, struct ash_pool **pool_out, struct ash_err *err)
{
    struct ash_pool *pool = NULL;
    size_t total;

    if (object_bytes == 0 || limit == 0 || object_bytes > SIZE_MAX / 2)
        return ash_err_set(err, -EINVAL, "a pool of %zu %s of %zu bytes cannot be made", limit, what, object_bytes);
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) goto fail;
    pool->what = what;
    pool->limit = limit;
    pool->stride_bytes = ash_round_up(object_bytes, ALIGN_BYTES);
    if (__builtin_mul_overflow(pool->stride_bytes, limit, &total) || total > SIZE_MAX / 2) goto fail;
    pool->objects = aligned_alloc(ALIGN_BYTES, total);
    pool->free_list = calloc(limit, sizeof(*pool->free_list));
    pool->out = calloc(limit, sizeof(*pool->out));
    if (pool->objects == NULL || pool->free_list == NULL || pool->out == NULL) goto fail;
    for (size_t i = 0; i < limit; i++)
        pool->free_list[i] = limit - 1 - i;
    pool->free_count = limit;
    *pool_out = pool;
    return 0;

fail:
    ash_pool_close(pool);
    return ash_err_set(err, -ENOMEM, "out of memory for %zu %s of %zu bytes", limit, what, object_bytes);
}

void ash_pool_close(struct ash_pool *pool)
{
    if (pool == NULL) return;
    free(pool->objects);
    free(pool->free_list);
    free(pool->out);
    free(pool);
}

void *ash_pool_get(struct ash_pool *pool, struct ash_err *err)
{
    size_t index;

    if (pool->free_count == 0) {
        ash_err_set(err, -EAGAIN, "all %zu %s are in use", pool->limit, pool->what);
        return NULL;
    }
    index = pool->free_list[--pool->free_count];
    pool->out[index] = true;
    return pool->objects + index * pool->stride_bytes;
}

void ash_pool_put(struct ash_pool *pool, void *object)
{
    size_t offset, index;

    if (object == NULL) return;
    offset = (size_t)((uintptr_t)object - (uintptr_t)pool->objects);
    index = offset / pool->stride_bytes;
    ash_assert(index < pool->limit && offset % pool->stride_bytes == 0);
    ash_assert(pool->out[index]);
    pool->out[index] = false;
    pool->free_list[pool->free_count++] = index;
}

size_t ash_pool_used_count(const struct ash_pool *pool)
{
    return pool->limit - pool->free_count;
}
