/* cuda_priv - between the files of one GPU. */
#ifndef ASH_INFRA_DEVICE_CUDA_PRIV_H
#define ASH_INFRA_DEVICE_CUDA_PRIV_H

#include "infra/device/cuda.h"
#include "infra/device/cuda_driver.h"

#define ASH_CUDA_MODULES_MAX 48

/* A copy for the host: cuda_fetch.c. */
struct ash_cuda_fetch_place {
    void *host, *event;
    size_t room_bytes;
};

struct ash_cuda {
    const struct ash_cuda_driver *driver;
    struct ash_cuda_facts facts;
    int device;
    void *context, *stream;
    uint64_t number; /* of the context */
    void **marks;    /* [ASH_CUDA_MARKS_MAX], made when they are first used; NULL: none was */
    void *modules[ASH_CUDA_MODULES_MAX];
    size_t module_count;
    char *upload_host;
    ash_cuda_ptr upload_device;
    size_t upload_at;
    uint64_t uploaded_bytes, graph_bytes; /* graph_bytes: when a recording began */
    bool is_recording;
    bool last_is_early; /* the last thing on the queue: see ash_cuda_grid */
    struct ash_cuda_fetch_place fetches[ASH_CUDA_FETCHES];
    struct ash_err failed;         /* the first failure */
    bool has_failed, wants_kernel; /* wants_kernel: it is complete when the kernel is known that it kept from running */
    const char *last_kernel;       /* enqueued since the last wait */
    size_t kernel_count;
};

/* The driver, for memory of the GPU that this thread has taken, or else of the one that was opened last. */
const struct ash_cuda_driver *ash_cuda_memory_driver(void);
/* The driver, before the queue is used: this thread takes the GPU. */
const struct ash_cuda_driver *ash_cuda_driver_of(struct ash_cuda *cuda);
/* This thread takes the GPU; a failure is the caller's. */
ash_cuda_result ash_cuda_take(const struct ash_cuda *cuda);
/* Keep the first failure of `what`: later ones are its consequences. */
void ash_cuda_check(struct ash_cuda *cuda, ash_cuda_result result, const char *what);

/* Before and after the driver's own queue is used. It waits for ours, which must not be while that is recorded: so a
 * thread that saves waits until another one has recorded its work. */
void ash_cuda_memory_lock(void);
/* After it. */
void ash_cuda_memory_unlock(void);

/* Release what fetches hold; nothing runs any more. */
void ash_cuda_fetches_close(struct ash_cuda *cuda);

#endif
