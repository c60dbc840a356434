/* Host memory and the buffers over any memory. Large blocks sit on huge-page borders, which halves the cost of walking
 * weights. */
#include "infra/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/assert.h"
#include "base/math.h"

#define LINE_BYTES 64
#define ZERO_PAST_BYTES ((size_t)4 << 20)   /* a thread's share of what no cache would keep: gradients */
#define SMALL_PAGE_BYTES ((size_t)64 << 10) /* the largest that a machine has */

static _Atomic size_t used_bytes, peak_bytes;

/* Whole pages on a huge-page border. The system's own zeros serve, so that untouched pages cost nothing. */
static void *map_large(size_t size_bytes)
{
    char *base = mmap(NULL, size_bytes + ASH_MEMORY_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (base == MAP_FAILED) return NULL;
    before = (ASH_MEMORY_HUGE - (uintptr_t)base % ASH_MEMORY_HUGE) % ASH_MEMORY_HUGE;
    if (before > 0) munmap(base, before);
    munmap(base + before + size_bytes, ASH_MEMORY_HUGE - before);
    madvise(base + before, size_bytes / ASH_MEMORY_HUGE * ASH_MEMORY_HUGE, MADV_HUGEPAGE);
    return base + before;
}

static size_t large_bytes(size_t size_bytes)
{
    return ash_round_up(size_bytes, SMALL_PAGE_BYTES);
}

static void *host_alloc(size_t size_bytes)
{
    void *ptr = NULL;

    if (size_bytes > (size_t)PTRDIFF_MAX - 2 * ASH_MEMORY_HUGE) return NULL;
    if (size_bytes >= ASH_MEMORY_HUGE) return map_large(large_bytes(size_bytes));
    if (posix_memalign(&ptr, ASH_MEMORY_ALIGN, size_bytes) != 0) return NULL;
    return memset(ptr, 0, size_bytes);
}

static void host_free(void *ptr, size_t size_bytes)
{
    if (size_bytes >= ASH_MEMORY_HUGE)
        munmap(ptr, large_bytes(size_bytes));
    else
        free(ptr);
}

static int host_copy(void *dst, const void *src, size_t size_bytes)
{
    if (size_bytes > 0) memcpy(dst, src, size_bytes);
    return 0;
}

#if defined(__x86_64__)
/* Whole lines past the caches: storing to a line there would first read it from memory. */
static void zero_lines(char *dst, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(dst + i), _mm_setzero_si128());
    _mm_sfence();
}
#else
static void zero_lines(char *dst, size_t size_bytes)
{
    memset(dst, 0, size_bytes);
}
#endif

static int host_zero(void *dst, size_t size_bytes)
{
    size_t before = (LINE_BYTES - (uintptr_t)dst % LINE_BYTES) % LINE_BYTES, lines;

    if (size_bytes < ZERO_PAST_BYTES) {
        if (size_bytes > 0) memset(dst, 0, size_bytes);
        return 0;
    }
    lines = (size_bytes - before) / LINE_BYTES * LINE_BYTES;
    memset(dst, 0, before);
    zero_lines((char *)dst + before, lines);
    memset((char *)dst + before + lines, 0, size_bytes - before - lines);
    return 0;
}

const struct ash_memory_ops ash_memory_host = {
    .size = sizeof(struct ash_memory_ops),
    .name = "host",
    .host_visible = true,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .zero = host_zero,
};

void ash_buffer_drop(const struct ash_buffer *buffer, size_t first_byte, size_t size_bytes)
{
    char *begin = (char *)buffer->data + first_byte, *end = begin + size_bytes;
    uintptr_t page = SMALL_PAGE_BYTES;
    char *first = (char *)ash_round_up((uintptr_t)begin, page), *last = (char *)((uintptr_t)end / page * page);

    ash_assert(first_byte <= buffer->size_bytes && size_bytes <= buffer->size_bytes - first_byte);
    if (buffer->memory != &ash_memory_host || buffer->size_bytes < ASH_MEMORY_HUGE || first >= last ||
        madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0) {
        buffer->memory->zero(begin, size_bytes);
        return;
    }
    memset(begin, 0, (size_t)(first - begin));
    memset(last, 0, (size_t)(end - last));
}

void ash_buffer_sparse(const struct ash_buffer *buffer)
{
    if (buffer->memory == &ash_memory_host && buffer->size_bytes >= ASH_MEMORY_HUGE)
        madvise(buffer->data, large_bytes(buffer->size_bytes), MADV_NOHUGEPAGE); /* advice: without it, only larger */
}

static void count_up(size_t size_bytes)
{
    size_t now = atomic_fetch_add_explicit(&used_bytes, size_bytes, memory_order_relaxed) + size_bytes;
    size_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);

    while (peak < now &&
           !atomic_compare_exchange_weak_explicit(&peak_bytes, &peak, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

static int out_of_memory(const struct ash_memory_ops *memory, size_t size_bytes, const char *what, struct ash_err *err)
{
    bool large = size_bytes >= (size_t)1 << 30;

    return ash_err_set(err, -ENOMEM, "out of %s memory: cannot allocate %.1f %s for %s (%.1f MiB are in use)",
                       memory->name, (double)size_bytes / (large ? 0x1p30 : 0x1p20), large ? "GiB" : "MiB", what,
                       (double)ash_memory_used_bytes() / 0x1p20);
}

int ash_buffer_init(struct ash_buffer *buffer, const struct ash_memory_ops *memory, size_t size_bytes, const char *what,
                    struct ash_err *err)
{
    void *data = NULL;

    ash_assert(memory != NULL && what != NULL);
    if (size_bytes > 0) {
        data = memory->alloc(size_bytes);
        if (data == NULL) return out_of_memory(memory, size_bytes, what, err);
        count_up(size_bytes);
    }
    *buffer = (struct ash_buffer){.data = data, .size_bytes = size_bytes, .memory = memory};
    return 0;
}

void ash_buffer_fini(struct ash_buffer *buffer)
{
    if (buffer == NULL) return;
    if (buffer->data != NULL && buffer->memory != NULL) {
        buffer->memory->free(buffer->data, buffer->size_bytes);
        atomic_fetch_sub_explicit(&used_bytes, buffer->size_bytes, memory_order_relaxed);
    }
    *buffer = (struct ash_buffer){0};
}

size_t ash_memory_used_bytes(void)
{
    return atomic_load_explicit(&used_bytes, memory_order_relaxed);
}

size_t ash_memory_peak_bytes(void)
{
    return atomic_load_explicit(&peak_bytes, memory_order_relaxed);
}
