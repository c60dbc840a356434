/* counted: a device that is not there. Its memory is addresses that cannot be accessed, and a sum; its ops do nothing.
 * */
#include "compute/backends/backends.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/math.h"

static _Atomic size_t counted_bytes, most_bytes;

static void *counted_alloc(size_t size_bytes)
{
    size_t mapped = ash_max(size_bytes, ASH_MEMORY_ALIGN), now, most;
    void *ptr = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (ptr == MAP_FAILED) return NULL;
    now = atomic_fetch_add(&counted_bytes, size_bytes) + size_bytes;
    most = atomic_load(&most_bytes);
    while (most < now && !atomic_compare_exchange_weak(&most_bytes, &most, now))
        ;
    return ptr;
}

static void counted_free(void *ptr, size_t size_bytes)
{
    munmap(ptr, ash_max(size_bytes, ASH_MEMORY_ALIGN));
    atomic_fetch_sub(&counted_bytes, size_bytes);
}

static int counted_copy(void *dst, const void *src, size_t size_bytes)
{
    (void)dst;
    (void)src;
    (void)size_bytes;
    return 0;
}

static int counted_zero(void *dst, size_t size_bytes)
{
    (void)dst;
    (void)size_bytes;
    return 0;
}

static const struct ash_memory_ops counted_memory = {.size = sizeof(counted_memory),
                                                     .name = "counted",
                                                     .host_visible = false,
                                                     .alloc = counted_alloc,
                                                     .free = counted_free,
                                                     .copy = counted_copy,
                                                     .zero = counted_zero};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define OP(family, op, parameters, arguments)                                                                          \
    static void family##_##op parameters                                                                               \
    {                                                                                                                  \
    }
#include "compute/ops_list.h"
#undef OP
#pragma GCC diagnostic pop
#include "compute/ops_tables.h"

static const struct ash_ops counted_ops = {.name = "counted", .reference = &ash_ops_ref, ASH_WRAPPED_TABLES};
static const struct ash_ops counted_bf16_ops = {
    .name = "counted", .reference = &ash_ops_ref, .takes_bf16 = true, ASH_WRAPPED_TABLES};

struct ash_exec ash_exec_counted(const struct ash_exec *like)
{
    atomic_store(&most_bytes, atomic_load(&counted_bytes));
    return (struct ash_exec){.ops = like->ops->takes_bf16 ? &counted_bf16_ops : &counted_ops,
                             .memory = &counted_memory,
                             .workers = like->workers};
}

size_t ash_exec_counted_bytes(void)
{
    return atomic_load(&most_bytes);
}
