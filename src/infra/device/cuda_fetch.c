/* What the host reads while later work runs: a copy to pinned memory, and an event after it. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "infra/device/cuda_priv.h"

#define ROOM_BYTES_MIN ((size_t)4096)

/* Pinned memory for a fetch. The old memory may still be written to, so growing waits. */
static bool make_room(struct ash_cuda *cuda, struct ash_cuda_fetch_place *fetch, size_t size_bytes)
{
    const struct ash_cuda_driver *driver = ash_cuda_driver_of(cuda);
    size_t room_bytes = ash_max(size_bytes, ROOM_BYTES_MIN);

    if (fetch->event == NULL)
        ash_cuda_check(cuda, driver->event_create(&fetch->event, ASH_CUDA_EVENT_WITHOUT_TIME), "making an event");
    if (fetch->room_bytes >= size_bytes || cuda->has_failed) return !cuda->has_failed;
    if (ash_cuda_wait(cuda, NULL) < 0) return false;
    if (fetch->host != NULL) driver->host_free(fetch->host);
    *fetch = (struct ash_cuda_fetch_place){.event = fetch->event};
    ash_cuda_check(cuda, driver->host_alloc(&fetch->host, room_bytes, ASH_CUDA_HOST_PORTABLE), "pinning memory");
    if (!cuda->has_failed) fetch->room_bytes = room_bytes;
    return !cuda->has_failed;
}

void ash_cuda_fetch(struct ash_cuda *cuda, unsigned index, const void *src, size_t size_bytes)
{
    struct ash_cuda_fetch_place *fetch = &cuda->fetches[index];

    ash_assert(index < ASH_CUDA_FETCHES);
    cuda->last_is_early = false;
    if (!make_room(cuda, fetch, size_bytes)) return;
    ash_cuda_check(cuda, cuda->driver->copy((ash_cuda_ptr)fetch->host, (ash_cuda_ptr)src, size_bytes, cuda->stream),
                   "fetching");
    if (!cuda->has_failed) ash_cuda_check(cuda, cuda->driver->event_record(fetch->event, cuda->stream), "an event");
}

int ash_cuda_fetched(struct ash_cuda *cuda, unsigned index, void *dst, size_t size_bytes, struct ash_err *err)
{
    const struct ash_cuda_fetch_place *fetch = &cuda->fetches[index];

    ash_assert(index < ASH_CUDA_FETCHES);
    if (!cuda->has_failed)
        ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->event_wait(fetch->event), "waiting for fetched data");
    if (!cuda->has_failed) {
        ash_assert(size_bytes <= fetch->room_bytes);
        memcpy(dst, fetch->host, size_bytes);
    }
    return ash_cuda_failure(cuda, err);
}

void ash_cuda_fetches_close(struct ash_cuda *cuda)
{
    for (size_t i = 0; i < ASH_CUDA_FETCHES; i++) {
        if (cuda->fetches[i].host != NULL) cuda->driver->host_free(cuda->fetches[i].host);
        if (cuda->fetches[i].event != NULL) cuda->driver->event_destroy(cuda->fetches[i].event);
    }
}

void ash_cuda_copy(struct ash_cuda *cuda, void *dst, const void *src, size_t size_bytes)
{
    const struct ash_cuda_driver *driver;

    if (size_bytes == 0 || cuda->has_failed) return;
    cuda->last_is_early = false;
    driver = ash_cuda_driver_of(cuda);
    ash_cuda_check(cuda,
                   driver->copy((ash_cuda_ptr)(uintptr_t)dst, (ash_cuda_ptr)(uintptr_t)src, size_bytes, cuda->stream),
                   "copying");
}
