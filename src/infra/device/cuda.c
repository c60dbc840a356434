/* One GPU through the CUDA driver. Uploads go through a ring of pinned memory with a mirror of the same size
 * on the GPU: a place is reused only after the queue has been waited for, so no copy is overwritten
 * before it is read. */
#include "infra/device/cuda.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "infra/device/cuda_priv.h"

#define UPLOAD_ALIGN 256
#define WORK_BYTES 192

/* A thread takes the GPU when it first uses it. Memory has no owner to ask: it is that of the thread's GPU, or of the
 * one that was opened last. Contexts go by number, since a later one may have the address of one that is closed. */
static _Thread_local uint64_t taken;
static _Atomic(struct ash_cuda *) opened;
static _Atomic uint64_t contexts;

static ash_cuda_ptr address(const void *ptr)
{
    return (ash_cuda_ptr)(uintptr_t)ptr;
}

/* Keep the first failure: later ones are its consequences. */
void ash_cuda_check(struct ash_cuda *cuda, ash_cuda_result result, const char *what)
{
    char text[128];

    if (result == 0 || cuda->has_failed) return;
    cuda->has_failed = true;
    ash_err_set(&cuda->failed, -EIO, "GPU %d (%s): %s failed: %s", cuda->facts.index, cuda->facts.name, what,
                ash_cuda_describe(cuda->driver, result, text, sizeof(text)));
}

/* Make the context this thread's current one. */
static ash_cuda_result take_context(const struct ash_cuda_driver *driver, void *context, uint64_t number)
{
    ash_cuda_result result = number == taken ? 0 : driver->context_use(context);

    if (result == 0) taken = number;
    return result;
}

ash_cuda_result ash_cuda_take(const struct ash_cuda *cuda)
{
    return take_context(cuda->driver, cuda->context, cuda->number);
}

/* Before the queue is used. */
const struct ash_cuda_driver *ash_cuda_driver_of(struct ash_cuda *cuda)
{
    ash_cuda_check(cuda, take_context(cuda->driver, cuda->context, cuda->number), "taking the GPU for this thread");
    return cuda->driver;
}

/* What a wait waits for, into buf. A kernel's failure comes out at some wait after it: where there were several, the
 * driver can be told to say which. */
static const char *describe_work(const struct ash_cuda *cuda, char buf[WORK_BYTES])
{
    if (cuda->kernel_count < 2)
        snprintf(buf, WORK_BYTES, "%s", cuda->last_kernel != NULL ? cuda->last_kernel : "work on the GPU");
    else
        snprintf(buf, WORK_BYTES,
                 "one of %zu kernels (the last is %s; CUDA_LAUNCH_BLOCKING=1 in the environment finds out which)",
                 cuda->kernel_count, cuda->last_kernel);
    return buf;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int attribute(struct ash_cuda *cuda, int attribute_id)
{
    int value = 0;

    ash_cuda_check(cuda, cuda->driver->device_attribute(&value, attribute_id, cuda->device),
                   "asking the GPU for its properties");
    return value;
}

static void find_facts(struct ash_cuda *cuda)
{
    const struct ash_cuda_driver *driver = cuda->driver;
    struct ash_cuda_facts *facts = &cuda->facts;

    ash_cuda_check(cuda, driver->device_name(facts->name, sizeof(facts->name), cuda->device),
                   "asking for the GPU's name");
    ash_cuda_check(cuda, driver->device_uuid(facts->uuid, cuda->device), "asking which GPU it is");
    ash_cuda_check(cuda, driver->device_bytes(&facts->memory_bytes, cuda->device), "asking for the GPU's memory");
    ash_cuda_check(cuda, driver->driver_version(&facts->driver_version), "asking for the driver's version");
    facts->sm_count = attribute(cuda, ASH_CUDA_ATTR_SM_COUNT);
    facts->major = attribute(cuda, ASH_CUDA_ATTR_CC_MAJOR);
    facts->minor = attribute(cuda, ASH_CUDA_ATTR_CC_MINOR);
    facts->shared_bytes = (size_t)attribute(cuda, ASH_CUDA_ATTR_SHARED_OPTIN);
}

static void open_queue(struct ash_cuda *cuda)
{
    const struct ash_cuda_driver *driver = cuda->driver;

    ash_cuda_check(cuda, driver->context_retain(&cuda->context, cuda->device), "opening the GPU");
    if (cuda->has_failed) return;
    cuda->number = atomic_fetch_add(&contexts, 1) + 1;
    ash_cuda_check(cuda, take_context(driver, cuda->context, cuda->number), "taking the GPU for this thread");
    atomic_store(&opened, cuda);
    /* copies of ash_memory_cuda go through the driver's own queue, which this kind waits for, and which waits for it */
    ash_cuda_check(cuda, driver->stream_create(&cuda->stream, ASH_CUDA_STREAM_DEFAULT), "making a queue");
    ash_cuda_check(cuda, driver->host_alloc((void **)&cuda->upload_host, ASH_CUDA_UPLOAD_BYTES, ASH_CUDA_HOST_PORTABLE),
                   "pinning memory");
    ash_cuda_check(cuda, driver->alloc(&cuda->upload_device, ASH_CUDA_UPLOAD_BYTES), "allocating memory");
}

/* Find the device and its properties. */
static int find_device(struct ash_cuda *cuda, int index, struct ash_err *err)
{
    int count = 0;

    cuda->driver = ash_cuda_driver_get(err);
    if (cuda->driver == NULL) return -ENODEV;
    snprintf(cuda->facts.name, sizeof(cuda->facts.name), "%s", "unknown"); /* until it says its own */
    cuda->facts.index = index;
    ash_cuda_check(cuda, cuda->driver->device_count(&count), "counting GPUs");
    if (!cuda->has_failed && (index < 0 || index >= count))
        return ash_err_set(err, -ENODEV, "there is no GPU %d: this machine has %d, numbered from 0", index, count);
    if (!cuda->has_failed) ash_cuda_check(cuda, cuda->driver->device_get(&cuda->device, index), "finding the GPU");
    if (!cuda->has_failed) find_facts(cuda);
    if (!cuda->has_failed) return 0;
    if (err != NULL) *err = cuda->failed;
    return -ENODEV;
}

int ash_cuda_look(int index, struct ash_cuda_facts *facts_out, struct ash_err *err)
{
    struct ash_cuda look = {0};
    int rc = find_device(&look, index, err);

    if (rc == 0) *facts_out = look.facts;
    return rc;
}

int ash_cuda_open(int index, struct ash_cuda **cuda_out, struct ash_err *err)
{
    struct ash_cuda *cuda = calloc(1, sizeof(*cuda));
    int rc;

    if (cuda == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a GPU's queue");
    rc = find_device(cuda, index, err);
    if (rc == 0) open_queue(cuda);
    if (rc == 0 && cuda->has_failed) {
        if (err != NULL) *err = cuda->failed;
        rc = -ENODEV;
    }
    if (rc < 0) {
        ash_cuda_close(cuda);
        return rc;
    }
    *cuda_out = cuda;
    return 0;
}

void ash_cuda_close(struct ash_cuda *cuda)
{
    if (cuda == NULL) return;
    if (cuda->context != NULL) ash_cuda_driver_of(cuda);
    if (cuda->stream != NULL) cuda->driver->stream_wait(cuda->stream);
    for (size_t i = 0; i < cuda->module_count; i++)
        cuda->driver->module_unload(cuda->modules[i]);
    for (size_t i = 0; cuda->marks != NULL && i < ASH_CUDA_MARKS_MAX; i++)
        if (cuda->marks[i] != NULL) cuda->driver->event_destroy(cuda->marks[i]);
    free(cuda->marks);
    ash_cuda_fetches_close(cuda);
    if (cuda->upload_host != NULL) cuda->driver->host_free(cuda->upload_host);
    if (cuda->upload_device != 0) cuda->driver->free(cuda->upload_device);
    if (cuda->stream != NULL) cuda->driver->stream_destroy(cuda->stream);
    if (cuda->context != NULL) cuda->driver->context_release(cuda->device);
    if (taken == cuda->number) taken = 0;
    if (atomic_load(&opened) == cuda) atomic_store(&opened, NULL);
    free(cuda);
}

const struct ash_cuda_facts *ash_cuda_get_facts(const struct ash_cuda *cuda)
{
    return &cuda->facts;
}

size_t ash_cuda_free_bytes(struct ash_cuda *cuda)
{
    size_t free_bytes = 0, all_bytes = 0;

    ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->memory_info(&free_bytes, &all_bytes), "asking for free memory");
    return free_bytes;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

const struct ash_cuda_driver *ash_cuda_memory_driver(void)
{
    const struct ash_cuda_driver *driver = ash_cuda_driver_get(NULL);
    struct ash_cuda *cuda = atomic_load(&opened);

    ash_assert(driver != NULL);                                                        /* a GPU was opened before */
    if (taken == 0 && cuda != NULL) take_context(driver, cuda->context, cuda->number); /* else what follows fails */
    return driver;
}

/* Has the GPU failed? Then it does not do this either. */
static bool has_failed(void)
{
    const struct ash_cuda *cuda = atomic_load(&opened);

    return cuda != NULL && cuda->has_failed;
}

/* Wait for the driver's own stream, and unlock it; a failure there is the GPU's. */
static int finish(const struct ash_cuda_driver *driver, ash_cuda_result result)
{
    struct ash_cuda *cuda = atomic_load(&opened);
    char work[WORK_BYTES];

    if (result == 0) result = driver->stream_wait(NULL);
    ash_cuda_memory_unlock();
    if (cuda != NULL && result != 0) ash_cuda_check(cuda, result, describe_work(cuda, work));
    return result == 0 ? 0 : -EIO;
}

static int cuda_zero(void *dst, size_t size_bytes)
{
    const struct ash_cuda_driver *driver = ash_cuda_memory_driver();

    if (has_failed()) return -EIO;
    if (size_bytes == 0) return 0;
    ash_cuda_memory_lock();
    return finish(driver, driver->set8(address(dst), 0, size_bytes, NULL));
}

static void *cuda_alloc(size_t size_bytes)
{
    const struct ash_cuda_driver *driver = ash_cuda_memory_driver();
    ash_cuda_ptr ptr = 0;
    ash_cuda_result result = driver->alloc(&ptr, ash_round_up(ash_max(size_bytes, 1), ASH_MEMORY_ALIGN));

    if (result != 0 && result != ASH_CUDA_OUT_OF_MEMORY) { /* then it is not the memory */
        ash_cuda_memory_lock();
        finish(driver, result);
    }
    if (result != 0) return NULL;
    if (cuda_zero((void *)(uintptr_t)ptr, size_bytes) == 0) return (void *)(uintptr_t)ptr;
    driver->free(ptr);
    return NULL;
}

static void cuda_free(void *ptr, size_t size_bytes)
{
    (void)size_bytes;
    ash_cuda_memory_driver()->free(address(ptr));
}

static int cuda_copy(void *dst, const void *src, size_t size_bytes)
{
    const struct ash_cuda_driver *driver = ash_cuda_memory_driver();

    if (has_failed()) return -EIO;
    if (size_bytes == 0) return 0;
    ash_cuda_memory_lock();
    return finish(driver, driver->copy(address(dst), address(src), size_bytes, NULL));
}

const struct ash_memory_ops ash_memory_cuda = {.size = sizeof(ash_memory_cuda),
                                               .name = "GPU",
                                               .host_visible = false,
                                               .alloc = cuda_alloc,
                                               .free = cuda_free,
                                               .copy = cuda_copy,
                                               .zero = cuda_zero};

/* ---- the queue --------------------------------------------------------------------------------------------------- */

int ash_cuda_load(struct ash_cuda *cuda, const void *image, void **module_out, struct ash_err *err)
{
    char text[128];
    ash_cuda_result result;

    ash_assert(cuda->module_count < ASH_CUDA_MODULES_MAX);
    result = ash_cuda_driver_of(cuda)->module_load(module_out, image);
    if (result != 0)
        return ash_err_set(err, -EINVAL, "%s (compute capability %d.%d) cannot run this build's kernels: %s",
                           cuda->facts.name, cuda->facts.major, cuda->facts.minor,
                           ash_cuda_describe(cuda->driver, result, text, sizeof(text)));
    cuda->modules[cuda->module_count++] = *module_out;
    return 0;
}

int ash_cuda_kernel(struct ash_cuda *cuda, void *module, const char *name, void **kernel_out, struct ash_err *err)
{
    int own_bytes = 0;
    ash_cuda_result result;

    if (cuda->driver->module_function(kernel_out, module, name) != 0)
        return ash_err_set(err, -ENOENT, "this build has no kernel '%s'", name);
    result = cuda->driver->function_get(&own_bytes, ASH_CUDA_FUNC_STATIC_SHARED_BYTES, *kernel_out);
    if (result == 0)
        result = cuda->driver->function_set(*kernel_out, ASH_CUDA_FUNC_DYNAMIC_SHARED_BYTES,
                                            (int)cuda->facts.shared_bytes - own_bytes);
    return result == 0 ? 0 : ash_err_set(err, -EINVAL, "kernel '%s' cannot have the GPU's shared memory", name);
}

int ash_cuda_prefer_shared(struct ash_cuda *cuda, void *kernel, struct ash_err *err)
{
    if (ash_cuda_driver_of(cuda)->function_set(kernel, ASH_CUDA_FUNC_SHARED_CARVEOUT, 100) == 0) return 0;
    return ash_err_set(err, -EINVAL, "%s: a kernel cannot prefer shared memory", cuda->facts.name);
}

void ash_cuda_launch(struct ash_cuda *cuda, void *kernel, const char *name, struct ash_cuda_grid grid, const void *args)
{
    void *params[] = {(void *)(uintptr_t)args};
    struct ash_cuda_launch_attr early = {.id = ASH_CUDA_LAUNCH_EARLY, .value = 1};
    struct ash_cuda_launch_config config = {.grid_x = (unsigned)grid.x,
                                            .grid_y = (unsigned)grid.y,
                                            .grid_z = grid.z > 0 ? (unsigned)grid.z : 1,
                                            .block_x = (unsigned)grid.threads,
                                            .block_y = 1,
                                            .block_z = 1,
                                            .shared_bytes = (unsigned)grid.shared_bytes,
                                            .stream = cuda->stream,
                                            .attrs = &early,
                                            .attr_count = grid.is_early && cuda->last_is_early ? 1 : 0};

    ash_assert(grid.x <= INT_MAX && grid.y <= 65535 && grid.threads > 0 && grid.threads <= 1024);
    if (grid.x == 0 || grid.y == 0) return;
    if (cuda->wants_kernel) {
        cuda->wants_kernel = false;
        ash_err_prefix(&cuda->failed, -EIO, "%s", name);
    }
    if (cuda->has_failed) return;
    cuda->last_kernel = name;
    cuda->kernel_count++;
    ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->launch(&config, kernel, params, NULL), name);
    cuda->last_is_early = grid.is_early;
}

static void wait_queue(struct ash_cuda *cuda)
{
    char work[WORK_BYTES];

    cuda->last_is_early = false;
    ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->stream_wait(cuda->stream), describe_work(cuda, work));
    cuda->last_kernel = NULL;
    cuda->kernel_count = 0;
}

/* A copy of data in the ring. Returns where it is in it. */
static size_t take_ring(struct ash_cuda *cuda, const void *data, size_t size_bytes)
{
    size_t need = ash_round_up(ash_max(size_bytes, 1), UPLOAD_ALIGN), at;

    ash_assert(need <= ASH_CUDA_UPLOAD_BYTES / 4);
    if (cuda->is_recording) { /* the recording is discarded then, and nothing may wait now */
        cuda->uploaded_bytes += need;
        return 0;
    }
    if (cuda->upload_at + need > ASH_CUDA_UPLOAD_BYTES) {
        wait_queue(cuda);
        cuda->upload_at = 0;
    }
    cuda->last_is_early = false;
    at = cuda->upload_at;
    memcpy(cuda->upload_host + at, data, size_bytes);
    cuda->upload_at += need;
    cuda->uploaded_bytes += need;
    return at;
}

void *ash_cuda_upload(struct ash_cuda *cuda, const void *data, size_t size_bytes)
{
    size_t at = take_ring(cuda, data, size_bytes);
    ash_cuda_ptr to = cuda->upload_device + at;

    if (!cuda->has_failed)
        ash_cuda_check(cuda,
                       ash_cuda_driver_of(cuda)->copy(to, address(cuda->upload_host + at), size_bytes, cuda->stream),
                       "an upload");
    return (void *)(uintptr_t)to;
}

void ash_cuda_upload_to(struct ash_cuda *cuda, void *dst, const void *data, size_t size_bytes)
{
    const unsigned char *from = data;

    for (size_t done = 0, some; done < size_bytes && !cuda->has_failed; done += some) {
        size_t at;

        some = ash_min(size_bytes - done, ASH_CUDA_UPLOAD_BYTES / 4);
        at = take_ring(cuda, from + done, some);
        ash_cuda_check(
            cuda,
            ash_cuda_driver_of(cuda)->copy(address(dst) + done, address(cuda->upload_host + at), some, cuda->stream),
            "an upload");
    }
}

void ash_cuda_fail(struct ash_cuda *cuda, const struct ash_err *why)
{
    if (cuda->has_failed) return;
    cuda->has_failed = cuda->wants_kernel = true;
    cuda->failed = *why;
    ash_err_prefix(&cuda->failed, -EIO, "GPU %d (%s)", cuda->facts.index, cuda->facts.name);
}

void ash_cuda_zero(struct ash_cuda *cuda, void *data, size_t size_bytes)
{
    if (size_bytes == 0 || cuda->has_failed) return;
    cuda->last_is_early = false;
    ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->set8(address(data), 0, size_bytes, cuda->stream), "writing zeros");
}

int ash_cuda_read(struct ash_cuda *cuda, void *dst, const void *src, size_t size_bytes, struct ash_err *err)
{
    if (size_bytes > 0 && !cuda->has_failed)
        ash_cuda_check(cuda, ash_cuda_driver_of(cuda)->copy(address(dst), address(src), size_bytes, cuda->stream),
                       "reading results");
    return ash_cuda_wait(cuda, err);
}

int ash_cuda_wait(struct ash_cuda *cuda, struct ash_err *err)
{
    wait_queue(cuda);
    return ash_cuda_failure(cuda, err);
}

int ash_cuda_failure(const struct ash_cuda *cuda, struct ash_err *err)
{
    if (!cuda->has_failed) return 0;
    if (err != NULL) *err = cuda->failed;
    return -EIO;
}

void *ash_cuda_stream(struct ash_cuda *cuda)
{
    cuda->last_is_early = false; /* other work is enqueued */
    return cuda->stream;
}
