/* Host memory that a GPU can reach. */
#include <string.h>

#include "base/math.h"
#include "infra/device/cuda.h"
#include "infra/device/cuda_priv.h"

static void *pinned_alloc(size_t size_bytes)
{
    void *ptr = NULL;

    if (ash_cuda_memory_driver()->host_alloc(&ptr, ash_round_up(ash_max(size_bytes, 1), ASH_MEMORY_ALIGN),
                                             ASH_CUDA_HOST_PORTABLE) != 0)
        return NULL;
    return memset(ptr, 0, size_bytes);
}

static void pinned_free(void *ptr, size_t size_bytes)
{
    (void)size_bytes;
    ash_cuda_memory_driver()->host_free(ptr);
}

static int pinned_copy(void *dst, const void *src, size_t size_bytes)
{
    if (size_bytes > 0) memcpy(dst, src, size_bytes);
    return 0;
}

static int pinned_zero(void *dst, size_t size_bytes)
{
    if (size_bytes > 0) memset(dst, 0, size_bytes);
    return 0;
}

const struct ash_memory_ops ash_memory_pinned = {.size = sizeof(ash_memory_pinned),
                                                 .name = "pinned",
                                                 .host_visible = true,
                                                 .alloc = pinned_alloc,
                                                 .free = pinned_free,
                                                 .copy = pinned_copy,
                                                 .zero = pinned_zero};
