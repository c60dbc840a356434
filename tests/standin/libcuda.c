/* A stand-in for the CUDA driver: GPUs whose memory is the host's and whose kernels do nothing; one of them. With it
 * the paths that only a broken machine takes run anywhere. Linked with tests/emulate its kernels compute (kernels.h).
 *
 *     STANDIN_FAIL_AT=N      the N-th call fails
 *     STANDIN_TRAP_AT=N      the N-th launch traps: from the next wait on every call fails, as after a bad access
 *     STANDIN_MEMORY=BYTES   how much memory the GPU has; 1 GiB without
 *     STANDIN_MINOR=N        its compute capability is 9.N
 *     STANDIN_MAJOR=N        or N.0; a GPU that is not 9.0 has 99 KB of shared memory for a thread block
 *     STANDIN_GPUS=N         that there are N of them, with 400 GB/s between any two
 *     STANDIN_SLOW_PAIR=XY   copies from GPU X to GPU Y have a tenth of that
 *     STANDIN_WRONG_PAIR=XY  they get a wrong bit
 *     STANDIN_APART=1        no GPU reads another's memory: 20 GB/s, through the host
 *     STANDIN_NO_SHARING=1   memory cannot be given to other processes
 *     STANDIN_NO_VALUES=1    queues cannot wait for values in memory
 *     STANDIN_CALLS=FILE     gets the number of calls, of what was not released, the most bytes allocated at once,
 *                            and the numbers of launches and of replayed graphs
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "infra/device/cuda_driver.h"
#include "kernels.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    NOT_READY = 600,
    FAILED = 719,
    NOT_SUPPORTED = 801,
    RECORDING = 906
};

static long calls, held, launches, replays;
static size_t used_bytes, most_bytes;
static int has_trapped;
static _Atomic int recording;       /* a queue that waits for the driver's own one, which must not be used then */
static double copied_ms;            /* that copies between GPUs have taken */
static _Thread_local void *current; /* a thread that has not taken the GPU cannot use it */

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atol(text) : otherwise;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("STANDIN_CALLS");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;

    if (file == NULL) return;
    fprintf(file, "%ld %ld %zu %ld %ld\n", calls, held, most_bytes, launches, replays);
    fclose(file);
}

/* Do kernels compute? */
static bool emulates(void)
{
    return &standin_kernels != NULL;
}

/* Counts a call; is it the one that fails? */
static int fails(void)
{
    if (has_trapped) return emulates() && standin_kernels.failure() != NULL ? FAILED : ILLEGAL_ADDRESS;
    return ++calls == number_of("STANDIN_FAIL_AT", -1) ? OUT_OF_MEMORY : SUCCESS;
}

/* The same for calls that need a context. */
static int fails_here(void)
{
    return current == NULL ? INVALID_CONTEXT : fails();
}

/* The same for work on a queue: NULL is the driver's own. */
static int fails_on(const void *stream)
{
    return recording && stream == NULL ? RECORDING : fails_here();
}

/* Work is done when it is waited for. */
static int finish(void)
{
    if (launches >= number_of("STANDIN_TRAP_AT", 1L << 40)) has_trapped = 1;
    return fails_here();
}

/* Work that kernels.h did. */
static int worked(int rc)
{
    if (rc != 0) has_trapped = 1;
    return rc != 0 ? FAILED : SUCCESS;
}

static int take(void **out, size_t size_bytes)
{
    int rc = fails();

    if (rc != SUCCESS) return rc;
    *out = calloc(1, size_bytes > 0 ? size_bytes : 1);
    held++;
    return *out != NULL ? SUCCESS : OUT_OF_MEMORY;
}

/* The same of memory that kernels work in. */
static int take_memory(void **out, size_t size_bytes)
{
    int rc = emulates() ? fails() : take(out, size_bytes);

    if (rc != SUCCESS || !emulates()) return rc;
    *out = standin_kernels.alloc(size_bytes);
    held++;
    return *out != NULL ? SUCCESS : OUT_OF_MEMORY;
}

static size_t memory_bytes(void *memory)
{
    return emulates() ? standin_kernels.alloc_bytes(memory) : malloc_usable_size(memory);
}

/* Releasing never fails: that could not be told from a leak. */
static int release(void *ptr)
{
    if (ptr != NULL) held--;
    free(ptr);
    return SUCCESS;
}

static int release_memory(void *ptr)
{
    if (!emulates()) return release(ptr);
    if (ptr != NULL) held--;
    standin_kernels.free(ptr);
    return SUCCESS;
}

/* ---- queues: work is done when it is enqueued, or, after a wait for a counter, when somebody looks --------------- */

struct event {
    double ms;
    _Atomic int pending; /* records that are not reached yet */
    struct stream *stream;
};

enum kind { WAIT, WRITE, COPY, SET, LAUNCH, RECORD, AFTER };

struct work {
    enum kind kind;
    uint64_t dst, src, value; /* dst: of a counter, too */
    size_t bytes;
    void *object; /* a launch that is held, or an event */
    struct work *next;
};

struct stream {
    struct work *head, **tail;
};

/* The emulator does one thing at a time. A thread that runs work may look at a queue again. */
static pthread_mutex_t worker = PTHREAD_MUTEX_INITIALIZER;
static struct stream *recorded_stream; /* the queue that is recorded */

static void lock_worker(void)
{
    pthread_mutex_lock(&worker);
}

static int unlock_worker(int rc)
{
    pthread_mutex_unlock(&worker);
    return rc;
}

static bool is_ready(const struct work *work)
{
    if (work->kind == AFTER) return atomic_load(&((struct event *)work->object)->pending) == 0;
    if (work->kind != WAIT) return recording == 0 || !emulates();
    return (int64_t)(atomic_load((_Atomic uint64_t *)(uintptr_t)work->dst) - work->value) >= 0;
}

static void do_work(const struct work *work)
{
    int rc = 0;

    if (work->kind == WRITE) atomic_store((_Atomic uint64_t *)(uintptr_t)work->dst, work->value);
    if (work->kind == RECORD) atomic_fetch_sub(&((struct event *)work->object)->pending, 1);
    if (has_trapped) return;
    if (work->kind == LAUNCH && emulates()) rc = standin_kernels.run_held(work->object);
    if (work->kind == COPY) memmove((void *)(uintptr_t)work->dst, (const void *)(uintptr_t)work->src, work->bytes);
    if (work->kind == SET) memset((void *)(uintptr_t)work->dst, (int)work->value, work->bytes);
    if (rc != 0) has_trapped = 1;
}

/* What can be done of a queue. Is it all? */
static bool progress(struct stream *stream)
{
    bool is_empty;

    if (stream == NULL) return true;
    lock_worker();
    while (stream->head != NULL && is_ready(stream->head)) {
        struct work *work = stream->head;

        do_work(work);
        stream->head = work->next;
        if (stream->head == NULL) stream->tail = &stream->head;
        free(work);
    }
    is_empty = stream->head == NULL;
    return unlock_worker(is_empty);
}

/* Must work on this queue wait: for work before it, or because another queue is recorded? */
static bool is_late(struct stream *stream)
{
    return stream != NULL && stream != recorded_stream && (!progress(stream) || (recording && emulates()));
}

static int enqueue(struct stream *stream, struct work what)
{
    struct work *work = malloc(sizeof(*work));

    if (work == NULL) return OUT_OF_MEMORY;
    *work = what;
    work->next = NULL;
    lock_worker();
    if (stream->head == NULL) stream->tail = &stream->head;
    *stream->tail = work;
    stream->tail = &work->next;
    unlock_worker(0);
    progress(stream);
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
    *count = (int)number_of("STANDIN_GPUS", 1);
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
CALL(cuDeviceGetUuid_v2, void *uuid, int device)
{
    memset(uuid, 1 + device, 16);
    return fails();
}
CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 97    ? (number_of("STANDIN_MAJOR", 9) == 9 ? 232448 : 101376)
             : attribute == 16  ? (int)number_of("STANDIN_SMS", 132)
             : attribute == 122 ? number_of("STANDIN_NO_VALUES", 0) == 0
             : attribute == 75  ? (int)number_of("STANDIN_MAJOR", 9)
             : attribute == 76  ? (int)number_of("STANDIN_MINOR", 0)
                                : 132;
    return fails();
}
CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)number_of("STANDIN_MEMORY", 1L << 30);
    return fails();
}
CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *all_bytes)
{
    *all_bytes = (size_t)number_of("STANDIN_MEMORY", 1L << 30);
    *free_bytes = *all_bytes - used_bytes;
    return fails_here();
}
CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    int rc = take(context, sizeof(int));

    if (rc == SUCCESS) *(int *)*context = device;
    return rc;
}
CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    held--;
    return SUCCESS;
}
CALL(cuCtxSetCurrent, void *context)
{
    int rc = fails();

    if (rc == SUCCESS) current = context;
    return rc;
}
/* Addresses of the GPU's memory, for cuPointerGetAttribute. */
#define PLACES_MAX 4096
static struct {
    uint64_t first;
    size_t bytes;
} places[PLACES_MAX];

static void set_place(uint64_t old, uint64_t first, size_t bytes)
{
    size_t i = 0;

    lock_worker();
    while (i + 1 < PLACES_MAX && places[i].first != old)
        i++;
    places[i].first = first;
    places[i].bytes = bytes;
    unlock_worker(0);
}

CALL(cuPointerGetAttribute, void *value, int attribute, uint64_t ptr)
{
    bool is_here = attribute == ASH_CUDA_POINTER_MEMORY && has_trapped; /* it does not say any more */

    for (size_t i = 0; i < PLACES_MAX && !is_here; i++)
        is_here = ptr - places[i].first < places[i].bytes;
    *(unsigned *)value = ASH_CUDA_MEMORY_DEVICE;
    return is_here ? fails() : INVALID_VALUE;
}
CALL(cuMemAlloc_v2, uint64_t *ptr, size_t bytes)
{
    void *memory = NULL;
    int rc;

    if (current == NULL) return INVALID_CONTEXT;
    rc = used_bytes + bytes > (size_t)number_of("STANDIN_MEMORY", 1L << 30) ? OUT_OF_MEMORY
                                                                            : take_memory(&memory, bytes);
    if (rc == SUCCESS) used_bytes += memory_bytes(memory);
    if (most_bytes < used_bytes) most_bytes = used_bytes;
    *ptr = (uint64_t)(uintptr_t)memory;
    if (rc == SUCCESS) set_place(0, *ptr, bytes);
    return rc;
}
CALL(cuMemFree_v2, uint64_t ptr)
{
    if (ptr != 0) set_place(ptr, 0, 0);
    used_bytes -= memory_bytes((void *)(uintptr_t)ptr);
    return release_memory((void *)(uintptr_t)ptr);
}
/* Memory that other processes can open is a memory file. A handle is a descriptor of it; a reserved address is one that
 * no other handle has. */
#define STEP_BYTES ((size_t)2 << 20)
CALL(cuMemGetAllocationGranularity, size_t *bytes, const struct ash_cuda_alloc_props *props, int which)
{
    *bytes = props->place.type == 1 && which == 0 ? STEP_BYTES : 0;
    return fails();
}
CALL(cuMemCreate, uint64_t *handle, size_t bytes, const struct ash_cuda_alloc_props *props, unsigned long long flags)
{
    int rc = fails_here(), fd;

    if (rc != SUCCESS || bytes % STEP_BYTES != 0 || props->handle_types != 1 || flags != 0) return rc != 0 ? rc : 1;
    if (used_bytes + bytes > (size_t)number_of("STANDIN_MEMORY", 1L << 30)) return OUT_OF_MEMORY;
    fd = memfd_create("standin", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) return OUT_OF_MEMORY;
    *handle = (uint64_t)fd;
    held++;
    return SUCCESS;
}
CALL(cuMemRelease, uint64_t handle)
{
    held--;
    close((int)handle);
    return SUCCESS;
}
CALL(cuMemExportToShareableHandle, void *fd_out, uint64_t handle, int type, unsigned long long flags)
{
    int rc = number_of("STANDIN_NO_SHARING", 0) != 0 ? NOT_SUPPORTED : fails();

    if (rc == SUCCESS && type == 1 && flags == 0) *(int *)fd_out = fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
    return rc;
}
CALL(cuMemImportFromShareableHandle, uint64_t *handle, void *fd, int type)
{
    struct stat facts;
    int rc = fails_here();

    if (rc != SUCCESS) return rc;
    if (type != 1 || fstat((int)(uintptr_t)fd, &facts) < 0 || facts.st_size % (off_t)STEP_BYTES != 0) return 1;
    *handle = (uint64_t)fcntl((int)(uintptr_t)fd, F_DUPFD_CLOEXEC, 0);
    held++;
    return SUCCESS;
}
CALL(cuMemAddressReserve, uint64_t *ptr, size_t bytes, size_t align, uint64_t wanted, unsigned long long flags)
{
    void *at;
    int rc = fails_here();

    (void)align;
    if (rc != SUCCESS || wanted != 0 || flags != 0) return rc != 0 ? rc : 1;
    at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return OUT_OF_MEMORY;
    *ptr = (uint64_t)(uintptr_t)at;
    held++;
    return SUCCESS;
}
CALL(cuMemAddressFree, uint64_t ptr, size_t bytes)
{
    held--;
    munmap((void *)(uintptr_t)ptr, bytes);
    return SUCCESS;
}
CALL(cuMemMap, uint64_t ptr, size_t bytes, size_t first, uint64_t handle, unsigned long long flags)
{
    struct stat facts;
    int rc = fails_here();

    if (rc != SUCCESS || flags != 0) return rc != 0 ? rc : 1;
    if (fstat((int)handle, &facts) < 0 || (size_t)facts.st_size < first + bytes) return 1;
    held++;
    set_place(0, ptr, bytes);
    if (emulates()) standin_kernels.add_memory((void *)(uintptr_t)ptr, bytes);
    return mmap((void *)(uintptr_t)ptr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)first) ==
                   MAP_FAILED
               ? OUT_OF_MEMORY
               : SUCCESS;
}
CALL(cuMemUnmap, uint64_t ptr, size_t bytes)
{
    held--;
    set_place(ptr, 0, 0);
    if (emulates()) standin_kernels.remove_memory((void *)(uintptr_t)ptr);
    mprotect((void *)(uintptr_t)ptr, bytes, PROT_NONE);
    return SUCCESS;
}
CALL(cuMemSetAccess, uint64_t ptr, size_t bytes, const struct ash_cuda_access *access, size_t count)
{
    int rc = fails_here();

    if (rc != SUCCESS || count != 1 || access->flags != 3) return rc != 0 ? rc : 1;
    return mprotect((void *)(uintptr_t)ptr, bytes, PROT_READ | PROT_WRITE) == 0 ? SUCCESS : 1;
}
CALL(cuMemHostAlloc, void **ptr, size_t bytes, unsigned flags)
{
    (void)flags;
    return take_memory(ptr, bytes);
}
CALL(cuMemFreeHost, void *ptr)
{
    return release_memory(ptr);
}
CALL(cuMemcpyAsync, uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    if (is_late(stream)) return enqueue(stream, (struct work){.kind = COPY, .dst = dst, .src = src, .bytes = bytes});
    if (emulates() && !has_trapped) {
        lock_worker();
        return unlock_worker(worked(standin_kernels.copy(dst, src, bytes)));
    }
    if (!has_trapped) memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
    return fails_on(stream);
}
CALL(cuMemsetD8Async, uint64_t dst, unsigned char value, size_t bytes, void *stream)
{
    if (is_late(stream)) return enqueue(stream, (struct work){.kind = SET, .dst = dst, .value = value, .bytes = bytes});
    if (emulates() && !has_trapped) {
        lock_worker();
        return unlock_worker(worked(standin_kernels.set8(dst, value, bytes)));
    }
    if (!has_trapped) memset((void *)(uintptr_t)dst, value, bytes);
    return fails_on(stream);
}
CALL(cuStreamCreate, void **stream, unsigned flags)
{
    (void)flags;
    return take(stream, sizeof(struct stream));
}
CALL(cuStreamSynchronize, void *stream)
{
    while (!progress(stream))
        sched_yield();
    return recording && (stream == NULL || stream == recorded_stream) ? RECORDING : finish();
}
CALL(cuStreamWaitValue64_v2, void *stream, uint64_t at, uint64_t value, unsigned flags)
{
    int rc = flags != 0 || at % 8 != 0 ? INVALID_VALUE : fails_here();

    return rc != SUCCESS ? rc : enqueue(stream, (struct work){.kind = WAIT, .dst = at, .value = value});
}
CALL(cuStreamWriteValue64_v2, void *stream, uint64_t at, uint64_t value, unsigned flags)
{
    int rc = flags != 0 || at % 8 != 0 ? INVALID_VALUE : fails_here();

    return rc != SUCCESS ? rc : enqueue(stream, (struct work){.kind = WRITE, .dst = at, .value = value});
}
CALL(cuStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    int rc = flags != 0 ? INVALID_VALUE : fails_here();

    return rc != SUCCESS ? rc : enqueue(stream, (struct work){.kind = AFTER, .object = event});
}
CALL(cuMemHostRegister_v2, void *ptr, size_t bytes, unsigned flags)
{
    bool is_whole = (uintptr_t)ptr % 4096 == 0 && bytes % 4096 == 0 && bytes > 0;
    int rc = !is_whole || flags != 3 ? INVALID_VALUE : fails_here();

    if (rc == SUCCESS) held++;
    return rc;
}
CALL(cuMemHostUnregister, void *ptr)
{
    (void)ptr;
    held--;
    return SUCCESS;
}
CALL(cuMemHostGetDevicePointer_v2, uint64_t *at, void *ptr, unsigned flags)
{
    *at = (uint64_t)(uintptr_t)ptr;
    return flags != 0 ? INVALID_VALUE : fails_here();
}
CALL(cuStreamDestroy_v2, void *stream)
{
    return release(stream);
}
CALL(cuDeviceCanAccessPeer, int *can, int device, int peer)
{
    *can = device != peer && number_of("STANDIN_APART", 0) == 0;
    return fails();
}
CALL(cuCtxEnablePeerAccess, void *peer_context, unsigned flags)
{
    static void *enabled[64]; /* from each GPU to the last: a second time is an error, as the driver says */
    int device = current != NULL ? *(int *)current % 64 : 0;
    bool is_again = enabled[device] == peer_context;

    (void)flags;
    enabled[device] = peer_context;
    return is_again ? 704 : fails_here();
}
CALL(cuMemcpyPeerAsync, uint64_t dst, void *dst_context, uint64_t src, void *src_context, size_t bytes, void *stream)
{
    long pair = 10L * *(int *)src_context + *(int *)dst_context;
    double rate = number_of("STANDIN_APART", 0) != 0 ? 20e9 : 400e9;

    (void)stream;
    memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
    if (number_of("STANDIN_WRONG_PAIR", -1) == pair) *(uint8_t *)(uintptr_t)(dst + bytes / 2) ^= 4;
    copied_ms += (double)bytes / (number_of("STANDIN_SLOW_PAIR", -1) == pair ? rate / 10 : rate) * 1e3;
    return fails_here();
}
CALL(cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    return take(event, sizeof(struct event));
}
CALL(cuEventRecord, void *event, void *stream)
{
    struct event *of = event;
    int rc = fails();

    of->ms = copied_ms;
    of->stream = stream;
    if (rc != SUCCESS || !is_late(stream)) return rc;
    atomic_fetch_add(&of->pending, 1);
    return enqueue(stream, (struct work){.kind = RECORD, .object = event});
}
CALL(cuEventQuery, void *event)
{
    struct event *of = event;

    if (of->pending > 0) progress(of->stream);
    return of->pending > 0 ? NOT_READY : finish();
}
CALL(cuEventSynchronize, void *event)
{
    struct event *of = event;

    while (of->pending > 0 && !progress(of->stream))
        sched_yield();
    return finish();
}
CALL(cuEventElapsedTime, float *ms, void *start, void *end)
{
    double took_ms = *(double *)end - *(double *)start;

    *ms = took_ms > 0 ? (float)took_ms : 1.0f;
    return fails();
}
CALL(cuEventDestroy_v2, void *event)
{
    return release(event);
}
CALL(cuModuleLoadData, void **module, const void *image)
{
    int rc = take(module, sizeof(void *));

    if (rc != SUCCESS || !emulates()) return rc;
    *(void **)*module = standin_kernels.load(image);
    return *(void **)*module != NULL ? SUCCESS : NOT_FOUND;
}
CALL(cuModuleUnload, void *module)
{
    return release(module);
}
CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    *function = emulates() ? standin_kernels.find(*(void **)module, name) : module;
    return *function != NULL ? fails() : NOT_FOUND;
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
CALL(cuLaunchKernelEx, const struct ash_cuda_launch_config *config, void *function, void **args, void **extra)
{
    bool is_empty = config->grid_x * config->grid_y * config->grid_z == 0 || config->block_x * config->block_y == 0;

    int rc = is_empty || config->block_z == 0 || config->shared_bytes > 232448 ? 1 : fails_here();

    (void)extra;
    launches++;
    if (rc != SUCCESS || !emulates()) return rc;
    if (is_late(config->stream))
        return enqueue(config->stream,
                       (struct work){.kind = LAUNCH, .object = standin_kernels.hold(config, function, args)});
    lock_worker();
    return unlock_worker(worked(standin_kernels.launch(config, function, args)));
}
CALL(cuTensorMapEncodeTiled, void *out, int type, unsigned rank, void *data, const uint64_t *sizes,
     const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion,
     int fill)
{
    (void)steps;
    (void)interleave;
    (void)promotion;
    (void)fill;
    return emulates() && standin_kernels.map_encode(out, type, rank, data, sizes, strides, box, swizzle) != 0 ? 1
                                                                                                              : fails();
}
CALL(cuStreamBeginCapture_v2, void *stream, int mode)
{
    int rc = fails_here();

    (void)mode;
    if (rc != SUCCESS) return rc;
    lock_worker();
    recording = 1;
    recorded_stream = stream;
    if (emulates()) standin_kernels.begin();
    return unlock_worker(SUCCESS);
}
CALL(cuStreamEndCapture, void *stream, void **graph)
{
    int rc = take(graph, sizeof(void *));

    (void)stream;
    lock_worker();
    recording = 0;
    recorded_stream = NULL;
    if (rc == SUCCESS && emulates()) *(void **)*graph = standin_kernels.end();
    return unlock_worker(rc);
}
CALL(cuGraphInstantiateWithFlags, void **graph, void *recorded, unsigned long long flags)
{
    int rc = take(graph, sizeof(void *));

    (void)flags;
    if (rc == SUCCESS) *(void **)*graph = *(void **)recorded;
    return rc;
}
CALL(cuGraphLaunch, void *graph, void *stream)
{
    int rc = fails_here();

    (void)stream;
    replays++;
    if (rc != SUCCESS || !emulates()) return rc;
    lock_worker();
    return unlock_worker(worked(standin_kernels.run(*(void **)graph)));
}
CALL(cuGraphExecDestroy, void *graph)
{
    return release(graph);
}
CALL(cuGraphDestroy, void *recorded)
{
    return release(recorded);
}
CALL(cuGetErrorName, int result, const char **name)
{
    *name = result == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : result == RECORDING       ? "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
            : result == NOT_FOUND       ? "CUDA_ERROR_NOT_FOUND"
            : result == FAILED          ? "CUDA_ERROR_LAUNCH_FAILED"
            : result == NOT_SUPPORTED   ? "CUDA_ERROR_NOT_SUPPORTED"
                                        : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
CALL(cuGetErrorString, int result, const char **text)
{
    *text = result == OUT_OF_MEMORY     ? "out of memory"
            : result == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : result == INVALID_CONTEXT ? "invalid device context"
            : result == FAILED          ? standin_kernels.failure()
            : result == NOT_FOUND       ? "named symbol not found"
            : result == NOT_SUPPORTED   ? "operation not supported"
                                        : "invalid argument";
    return SUCCESS;
}
