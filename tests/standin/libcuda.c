/* A stand-in for the CUDA driver: one GPU whose memory is the host's and whose kernels do nothing. STANDIN_FAIL_AT=N
 * makes its N-th call fail; STANDIN_CALLS=FILE gets the number of calls and of what was not released. With it the paths
 * that only a broken machine takes run anywhere. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };

static long calls, held;

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("STANDIN_CALLS");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;

    if (file == NULL) return;
    fprintf(file, "%ld %ld\n", calls, held);
    fclose(file);
}

/* Counts a call; is it the one that fails? */
static int fails(void)
{
    const char *at = getenv("STANDIN_FAIL_AT");

    return ++calls == (at != NULL ? atol(at) : -1) ? OUT_OF_MEMORY : SUCCESS;
}

static int take(void **out, size_t size_bytes)
{
    int rc = fails();

    if (rc != SUCCESS) return rc;
    *out = calloc(1, size_bytes > 0 ? size_bytes : 1);
    held++;
    return *out != NULL ? SUCCESS : OUT_OF_MEMORY;
}

/* Releasing never fails: that could not be told from a leak. */
static int release(void *ptr)
{
    if (ptr != NULL) held--;
    free(ptr);
    return SUCCESS;
}

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, ...)                                                                                                \
    int name(__VA_ARGS__);                                                                                             \
    EXPORT int name(__VA_ARGS__)

CALL(cuInit, unsigned flags)
{
    (void)flags;
    return fails();
}
CALL(cuDriverGetVersion, int *version)
{
    *version = 13000;
    return fails();
}
CALL(cuDeviceGetCount, int *count)
{
    *count = 1;
    return fails();
}
CALL(cuDeviceGet, int *device, int index)
{
    *device = index;
    return fails();
}
CALL(cuDeviceGetName, char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "stand-in GPU");
    return fails();
}
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 97 ? 232448 : 9;
    return fails();
}
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return fails();
}
CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    (void)device;
    return take(context, 1);
}
CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    held--;
    return SUCCESS;
}
CALL(cuCtxSetCurrent, void *context)
{
    (void)context;
    return fails();
}
CALL(cuMemAlloc_v2, uint64_t *ptr, size_t bytes)
{
    void *memory = NULL;
    int rc = take(&memory, bytes);

    *ptr = (uint64_t)(uintptr_t)memory;
    return rc;
}
CALL(cuMemFree_v2, uint64_t ptr)
{
    return release((void *)(uintptr_t)ptr);
}
CALL(cuMemHostAlloc, void **ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    return take(ptr, bytes);
}
CALL(cuMemFreeHost, void *ptr)
{
    return release(ptr);
}
CALL(cuMemcpyAsync, uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    (void)stream;
    memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
    return fails();
}
CALL(cuMemsetD8Async, uint64_t dst, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    memset((void *)(uintptr_t)dst, value, bytes);
    return fails();
}
CALL(cuStreamCreate, void **stream, unsigned flags)
{
    (void)flags;
    return take(stream, 1);
}
CALL(cuStreamSynchronize, void *stream)
{
    (void)stream;
    return fails();
}
CALL(cuStreamDestroy_v2, void *stream)
{
    return release(stream);
}
CALL(cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    return take(event, 1);
}
CALL(cuEventRecord, void *event, void *stream)
{
    (void)event;
    (void)stream;
    return fails();
}
CALL(cuEventSynchronize, void *event)
{
    (void)event;
    return fails();
}
CALL(cuEventElapsedTime, float *ms, void *start, void *end)
{
    (void)start;
    (void)end;
    *ms = 1.0f;
    return fails();
}
CALL(cuEventDestroy_v2, void *event)
{
    return release(event);
}
CALL(cuModuleLoadData, void **module, const void *image)
{
    (void)image;
    return take(module, 1);
}
CALL(cuModuleUnload, void *module)
{
    return release(module);
}
CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    (void)name;
    *function = module;
    return fails();
}
CALL(cuFuncGetAttribute, int *value, int attribute, void *function)
{
    (void)attribute;
    (void)function;
    *value = 1024;
    return fails();
}
CALL(cuFuncSetAttribute, void *function, int attribute, int value)
{
    (void)function;
    return attribute == 8 && value > 232448 - 1024 ? 1
                                                   : fails(); /* as the driver: static and dynamic share the limit */
}
CALL(cuLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared_bytes, void *stream, void **args, void **extra)
{
    (void)function;
    (void)stream;
    (void)args;
    (void)extra;
    return gx * gy * gz == 0 || bx * by * bz == 0 || shared_bytes > 232448 ? 1 : fails();
}
CALL(cuGetErrorName, int result, const char **name)
{
    *name = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
CALL(cuGetErrorString, int result, const char **text)
{
    *text = result == OUT_OF_MEMORY ? "out of memory" : "invalid argument";
    return SUCCESS;
}
