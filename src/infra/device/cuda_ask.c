/* Questions to the driver that need no open GPU: how many there are, and whose memory a pointer is to. */
#include "infra/device/cuda.h"
#include "infra/device/cuda_priv.h"

int ash_cuda_count(void)
{
    const struct ash_cuda_driver *driver = ash_cuda_driver_get(NULL);
    int count = 0;

    return driver != NULL && driver->device_count(&count) == 0 ? count : 0;
}

/* The driver calls a pointer to the host's own memory invalid. After any other error the host stays away from data. */
static bool holds(const void *data)
{
    unsigned kind = 0;
    ash_cuda_result result =
        ash_cuda_driver_get(NULL)->pointer_get(&kind, ASH_CUDA_POINTER_MEMORY, (ash_cuda_ptr)(uintptr_t)data);

    return result == 0 ? kind == ASH_CUDA_MEMORY_DEVICE : result != ASH_CUDA_INVALID_VALUE;
}

const struct ash_device_memory ash_device_cuda = {
    .ops = &ash_memory_cuda, .holds = holds, .host_side = &ash_memory_pinned};
