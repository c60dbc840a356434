/* Exec: binds a backend, its memory and its threads together, and picks the backend by name. */
#include "compute/ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "base/number.h"
#include "compute/apart/apart.h"
#include "compute/backends/backends.h"
#include "compute/cuda/backend.h"
#include "compute/cuda/replay.h"
#include "infra/device/cuda.h"

#define ZERO_BYTES ((size_t)256 << 10) /* of a unit of ash_exec_zero */
#define BACKEND_TEXT_BYTES 128
#define GPUS_MAX 256 /* that a name may count to */

static const char *names[ASH_BACKENDS_MAX + 1];
static char names_text[BACKEND_TEXT_BYTES]; /* "neon, ref": for messages */
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

static void find_names(void)
{
    size_t count = 0, used = 0;

    for (size_t i = 0; i < ash_backend_count; i++) {
        const char *name = ash_backends[i].ops->name;
        size_t bytes = strlen(name);

        if (ash_backends[i].available != NULL && !ash_backends[i].available()) continue;
        names[count++] = name;
        ash_assert(used + bytes + 3 <= sizeof(names_text));
        if (used > 0) {
            memcpy(names_text + used, ", ", 2);
            used += 2;
        }
        memcpy(names_text + used, name, bytes);
        used += bytes;
    }
}

const char *const *ash_exec_backends(void)
{
    pthread_once(&names_once, find_names);
    return names;
}

/* The table of a backend that this machine can run, or NULL. */
static const struct ash_ops *find_ops(const char *name)
{
    const char *const *usable = ash_exec_backends();

    if (name == NULL || strcmp(name, "cpu") == 0) name = usable[0];
    for (; *usable != NULL; usable++) {
        if (strcmp(*usable, name) != 0) continue;
        for (size_t i = 0; i < ash_backend_count; i++)
            if (strcmp(ash_backends[i].ops->name, name) == 0) return ash_backends[i].ops;
    }
    return NULL;
}

/* The number of the GPU that "cuda" or "cuda:1" names, or -1. */
static int gpu_of(const char *backend)
{
    size_t length = strlen(ash_ops_cuda.name);
    int64_t number = 0;

    if (backend == NULL || strncmp(backend, ash_ops_cuda.name, length) != 0) return -1;
    if (backend[length] == '\0') return 0;
    if (backend[length] != ':' || ash_number_parse_whole(backend + length + 1, &number) < 0) return -1;
    return number >= 0 && number < GPUS_MAX ? (int)number : -1;
}

/* A GPU. Its workers draw and convert weights on the host. */
static int init_cuda(struct ash_exec *exec, int number, int thread_count, struct ash_err *err)
{
    struct ash_exec made = {.ops = &ash_ops_cuda, .memory = &ash_memory_cuda};
    int rc = ash_cuda_backend_open(number, &made.cuda, err);

    if (rc < 0) return rc;
    made.ops = ash_cuda_backend_ops(made.cuda);
    rc = ash_workers_open(thread_count, &made.workers, err);
    if (rc < 0) {
        ash_exec_fini(&made);
        return rc;
    }
    *exec = made;
    return 0;
}

int ash_exec_wait(struct ash_exec *exec, struct ash_err *err)
{
    return exec->cuda != NULL ? ash_cuda_backend_wait(exec->cuda, err) : 0;
}

int ash_exec_init(struct ash_exec *exec, const char *backend, int thread_count, struct ash_err *err)
{
    struct ash_exec made = {.ops = find_ops(backend), .memory = &ash_memory_host};
    int rc;

    if (gpu_of(backend) >= 0) return init_cuda(exec, gpu_of(backend), thread_count, err);
    if (backend != NULL && strcmp(backend, ash_ops_apart.name) == 0)
        made = (struct ash_exec){.ops = &ash_ops_apart, .memory = &ash_memory_apart};
    if (made.ops == NULL)
        return ash_err_set(err, -EINVAL,
                           "compute: no backend '%s' here; this machine can run: cpu, %s; on a GPU: cuda, "
                           "cuda:1",
                           backend, names_text);
    rc = ash_workers_open(thread_count, &made.workers, err);
    if (rc < 0) return rc;
    made.scratch = calloc((size_t)ash_workers_count(made.workers), sizeof(*made.scratch));
    if (made.scratch == NULL) {
        ash_exec_fini(&made);
        return ash_err_set(err, -ENOMEM, "compute: out of memory");
    }
    *exec = made;
    return 0;
}

void ash_exec_fini(struct ash_exec *exec)
{
    if (exec->cuda != NULL) ash_exec_wait(exec, NULL); /* nothing of it is freed under a running kernel */
    if (exec->scratch != NULL)
        for (int w = 0; w < ash_workers_count(exec->workers); w++)
            ash_buffer_fini(&exec->scratch[w]);
    free(exec->scratch);
    for (size_t i = 0; i < ASH_EXEC_FETCHES; i++)
        ash_buffer_fini(&exec->fetches[i]);
    ash_buffer_fini(&exec->shared);
    ash_buffer_fini(&exec->broadcast);
    ash_workers_close(exec->workers);
    ash_cuda_backend_close(exec->cuda);
    memset(exec, 0, sizeof(*exec));
}

int ash_exec_upload(struct ash_exec *exec, void *dst, const void *src, size_t size_bytes)
{
    if (exec->cuda == NULL) return exec->memory->copy(dst, src, size_bytes);
    ash_cuda_upload_to(ash_cuda_backend_device(exec->cuda), dst, src, size_bytes);
    return ash_cuda_failure(ash_cuda_backend_device(exec->cuda), NULL);
}

int ash_exec_fetch(struct ash_exec *exec, unsigned index, const void *src, size_t size_bytes)
{
    struct ash_buffer *place = &exec->fetches[index];
    int rc;

    ash_assert(index < ASH_EXEC_FETCHES);
    if (exec->cuda != NULL) {
        ash_cuda_fetch(ash_cuda_backend_device(exec->cuda), index, src, size_bytes);
        return ash_cuda_failure(ash_cuda_backend_device(exec->cuda), NULL);
    }
    if (place->size_bytes < size_bytes) {
        ash_buffer_fini(place);
        rc = ash_buffer_init(place, &ash_memory_host, size_bytes, "what the host reads", NULL);
        if (rc < 0) return rc;
    }
    return exec->memory->copy(place->data, src, size_bytes);
}

int ash_exec_fetched(struct ash_exec *exec, unsigned index, void *dst, size_t size_bytes, struct ash_err *err)
{
    ash_assert(index < ASH_EXEC_FETCHES);
    if (exec->cuda != NULL) return ash_cuda_fetched(ash_cuda_backend_device(exec->cuda), index, dst, size_bytes, err);
    memcpy(dst, exec->fetches[index].data, size_bytes);
    return 0;
}

enum ash_step_way ash_exec_step_begin(struct ash_exec *exec, const struct ash_exec_step *step)
{
    return exec->cuda != NULL ? ash_cuda_step_begin(exec, step) : ASH_STEP_RUN;
}

enum ash_step_way ash_exec_batch_begin(struct ash_exec *exec, const struct ash_exec_step *batch)
{
    return exec->cuda != NULL ? ash_cuda_batch_begin(exec, batch) : ASH_STEP_RUN;
}

bool ash_exec_step_end(struct ash_exec *exec, enum ash_step_way way)
{
    return exec->cuda == NULL || ash_cuda_step_end(exec, way);
}

struct zero {
    const struct ash_memory_ops *memory;
    unsigned char *data;
    size_t size_bytes;
};

static void zero_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct zero *op = ctx;
    size_t first = begin * ZERO_BYTES, last = ash_min(end * ZERO_BYTES, op->size_bytes);
    int rc = op->memory->zero(op->data + first, last - first);

    (void)worker;
    ash_assert(rc == 0);
}

void ash_exec_zero(struct ash_exec *exec, void *data, size_t size_bytes)
{
    struct zero op = {exec->memory, data, size_bytes};

    if (exec->cuda != NULL) {
        ash_cuda_zero(ash_cuda_backend_device(exec->cuda), data, size_bytes);
        return;
    }
    ash_workers_run(exec->workers, ash_div_up(size_bytes, ZERO_BYTES), 1, zero_units, &op);
}

void ash_backend_copy(const struct ash_exec *exec, void *dst, const void *src, size_t size_bytes)
{
    int rc = 0;

    if (exec->cuda != NULL)
        ash_cuda_copy(ash_cuda_backend_device(exec->cuda), dst, src, size_bytes);
    else
        rc = exec->memory->copy(dst, src, size_bytes);
    ash_assert(rc == 0);
}

const struct ash_device_memory *ash_backend_device_memory(const struct ash_exec *exec)
{
    if (exec->cuda != NULL) return ash_cuda_backend_memory(exec->cuda);
    return exec->memory == &ash_memory_apart ? &ash_device_apart : NULL;
}
