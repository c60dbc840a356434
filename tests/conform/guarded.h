/* guarded - memory whose blocks end at a page without access. What an op reads or writes after its scratch
 * memory faults at once, in assembly too, which no sanitizer sees. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/math.h"
#include "infra/memory.h"

static inline size_t guarded_pages_bytes(size_t size_bytes)
{
    return ash_round_up(size_bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static inline void *guarded_alloc(size_t size_bytes)
{
    size_t pages = guarded_pages_bytes(size_bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED) return NULL;
    mprotect(base + pages, page, PROT_NONE);
    return base + pages - ash_round_up(size_bytes, ASH_MEMORY_ALIGN);
}

static inline void guarded_free(void *ptr, size_t size_bytes)
{
    size_t pages = guarded_pages_bytes(size_bytes);
    char *base = (char *)ptr + ash_round_up(size_bytes, ASH_MEMORY_ALIGN) - pages;

    munmap(base, pages + (size_t)sysconf(_SC_PAGESIZE));
}

static inline int guarded_copy(void *dst, const void *src, size_t size_bytes)
{
    memcpy(dst, src, size_bytes);
    return 0;
}

static inline int guarded_zero(void *dst, size_t size_bytes)
{
    memset(dst, 0, size_bytes);
    return 0;
}

static const struct ash_memory_ops guarded_memory = {.size = sizeof(struct ash_memory_ops),
                                                     .name = "guarded",
                                                     .host_visible = true,
                                                     .alloc = guarded_alloc,
                                                     .free = guarded_free,
                                                     .copy = guarded_copy,
                                                     .zero = guarded_zero};

#endif
