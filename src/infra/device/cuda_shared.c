/* A GPU's memory that other processes can open: an allocation with a descriptor, mapped at an address here. */
#include <errno.h>

#include "base/math.h"
#include "infra/device/cuda_priv.h"
#include "infra/device/shared_memory_priv.h"

/* On the GPU, with a POSIX descriptor. */
static struct ash_cuda_alloc_props props_of(const struct ash_cuda *cuda)
{
    return (struct ash_cuda_alloc_props){.type = ASH_CUDA_ALLOC_PINNED,
                                         .handle_types = ASH_CUDA_HANDLE_POSIX_FD,
                                         .place = {ASH_CUDA_PLACE_DEVICE, cuda->device}};
}

static int refuse(const struct ash_cuda *cuda, ash_cuda_result result, const char *what, struct ash_err *err)
{
    char text[128];
    int rc = result == ASH_CUDA_OUT_OF_MEMORY ? -ENOMEM : result == ASH_CUDA_NOT_SUPPORTED ? -ENOTSUP : -EINVAL;

    return ash_err_set(err, rc, "GPU %d (%s): %s failed: %s", cuda->facts.index, cuda->facts.name, what,
                       ash_cuda_describe(cuda->driver, result, text, sizeof(text)));
}

static int find_mapped_bytes(struct ash_shared_memory *memory, struct ash_err *err)
{
    struct ash_cuda *cuda = memory->cuda;
    struct ash_cuda_alloc_props props = props_of(cuda);
    size_t step = 0;
    ash_cuda_result result = ash_cuda_take(cuda);

    if (result == 0) result = cuda->driver->granularity(&step, &props, 0);
    if (result != 0 || step == 0) return refuse(cuda, result, "asking how memory can be shared", err);
    if (memory->size_bytes > SIZE_MAX - step) return ash_err_set(err, -ENOMEM, "too much shared memory");
    memory->mapped_bytes = ash_round_up(memory->size_bytes, step);
    return 0;
}

/* Give the allocation an address that this GPU may read and write. */
static int map_cuda(struct ash_shared_memory *memory, uint64_t handle, struct ash_err *err)
{
    struct ash_cuda *cuda = memory->cuda;
    const struct ash_cuda_driver *driver = cuda->driver;
    struct ash_cuda_access access = {.place = props_of(cuda).place, .flags = ASH_CUDA_ACCESS_READ_WRITE};
    ash_cuda_ptr at = 0;
    ash_cuda_result result = driver->address_reserve(&at, memory->mapped_bytes, 0, 0, 0);

    if (result != 0) return refuse(cuda, result, "finding an address for shared memory", err);
    result = driver->map(at, memory->mapped_bytes, 0, handle, 0);
    if (result != 0) {
        driver->address_free(at, memory->mapped_bytes);
        return refuse(cuda, result, "mapping shared memory", err);
    }
    memory->data = (void *)(uintptr_t)at;
    result = driver->set_access(at, memory->mapped_bytes, &access, 1);
    return result == 0 ? 0 : refuse(cuda, result, "opening shared memory to the GPU", err);
}

static int fill_zeros(struct ash_shared_memory *memory, struct ash_err *err)
{
    struct ash_cuda *cuda = memory->cuda;

    ash_cuda_zero(cuda, memory->data, memory->size_bytes);
    return ash_cuda_wait(cuda, err);
}

static int create_cuda(struct ash_shared_memory *memory, struct ash_err *err)
{
    struct ash_cuda *cuda = memory->cuda;
    struct ash_cuda_alloc_props props = props_of(cuda);
    uint64_t handle = 0;
    ash_cuda_result result;
    int rc = find_mapped_bytes(memory, err);

    if (rc < 0) return rc;
    result = cuda->driver->create(&handle, memory->mapped_bytes, &props, 0);
    if (result != 0) return refuse(cuda, result, "allocating memory to share", err);
    result = cuda->driver->export_handle(&memory->fd, handle, ASH_CUDA_HANDLE_POSIX_FD, 0);
    if (result != 0)
        rc = refuse(cuda, result, "making a descriptor of memory", err);
    else
        rc = map_cuda(memory, handle, err);
    cuda->driver->release(handle); /* the mapping and the descriptor keep it */
    return rc < 0 || memory->is_unset ? rc : fill_zeros(memory, err);
}

static int open_cuda(struct ash_shared_memory *memory, struct ash_err *err)
{
    struct ash_cuda *cuda = memory->cuda;
    uint64_t handle = 0;
    ash_cuda_result result;
    int rc = find_mapped_bytes(memory, err);

    if (rc < 0) return rc;
    result = cuda->driver->import_handle(&handle, (void *)(uintptr_t)memory->fd, ASH_CUDA_HANDLE_POSIX_FD);
    if (result != 0) return refuse(cuda, result, "opening the memory of another process", err);
    rc = map_cuda(memory, handle, err);
    cuda->driver->release(handle);
    return rc;
}

static void close_cuda(struct ash_shared_memory *memory)
{
    struct ash_cuda *cuda = memory->cuda;
    ash_cuda_ptr at = (ash_cuda_ptr)(uintptr_t)memory->data;

    if (at == 0) return;
    if (memory->skips_wait)
        ash_cuda_take(cuda);
    else
        ash_cuda_wait(cuda, NULL); /* a kernel may still use it */
    cuda->driver->unmap(at, memory->mapped_bytes);
    cuda->driver->address_free(at, memory->mapped_bytes);
}

const struct ash_shared_memory_ops ash_shared_memory_cuda = {
    .name = "a GPU", .create = create_cuda, .open = open_cuda, .close = close_cuda};
