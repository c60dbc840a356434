/* Memory of an imitated device: one reserved range of addresses, closed except during ops. */
#include "compute/apart/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/apart/apart.h"

#define RESERVED_BYTES ((size_t)64 << 30) /* of addresses; memory is taken when it is touched */
#define PAGE_BYTES ((size_t)65536)        /* a multiple of any machine's pages */
#define BLOCKS_MAX 4096

struct block {
    size_t first, size_bytes; /* in the range; neighbours ascend */
};

static struct {
    pthread_mutex_t lock;
    unsigned char *base;
    struct block blocks[BLOCKS_MAX];
    size_t count;
    unsigned inside; /* who may touch it now */
} apart = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t used_bytes(void)
{
    const struct block *last = &apart.blocks[apart.count];

    return apart.count > 0 ? last[-1].first + last[-1].size_bytes : 0;
}

static void allow(int rights)
{
    int rc = used_bytes() > 0 ? mprotect(apart.base, used_bytes(), rights) : 0;

    ash_assert(rc == 0);
}

void ash_apart_enter(void)
{
    pthread_mutex_lock(&apart.lock);
    if (apart.inside++ == 0) allow(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&apart.lock);
}

void ash_apart_leave(void)
{
    pthread_mutex_lock(&apart.lock);
    ash_assert(apart.inside > 0);
    if (--apart.inside == 0) allow(PROT_NONE);
    pthread_mutex_unlock(&apart.lock);
}

static bool reserve(void)
{
    void *base;

    if (apart.base != NULL) return true;
    base = mmap(NULL, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    apart.base = base;
    return true;
}

/* The first gap of size_bytes: before block *index_out. */
static bool find_gap(size_t size_bytes, size_t *index_out, size_t *first_out)
{
    size_t at = 0, i = 0;

    for (; i < apart.count && apart.blocks[i].first - at < size_bytes; i++)
        at = apart.blocks[i].first + apart.blocks[i].size_bytes;
    *index_out = i;
    *first_out = at;
    return apart.count < BLOCKS_MAX && size_bytes <= RESERVED_BYTES - at;
}

static void *apart_alloc(size_t size_bytes)
{
    size_t index, first, bytes = ash_round_up(size_bytes, PAGE_BYTES);
    void *data = NULL;

    pthread_mutex_lock(&apart.lock);
    if (reserve() && find_gap(bytes, &index, &first)) {
        memmove(apart.blocks + index + 1, apart.blocks + index, (apart.count - index) * sizeof(*apart.blocks));
        apart.blocks[index] = (struct block){first, bytes};
        apart.count++;
        if (apart.inside > 0) allow(PROT_READ | PROT_WRITE); /* scratch that grows in the middle of an op */
        data = apart.base + first;
    }
    pthread_mutex_unlock(&apart.lock);
    return data;
}

/* Fresh zeros for the next owner of the addresses. */
static void apart_free(void *ptr, size_t size_bytes)
{
    size_t first = (size_t)((unsigned char *)ptr - apart.base), i = 0;
    void *fresh;

    pthread_mutex_lock(&apart.lock);
    while (i < apart.count && apart.blocks[i].first != first)
        i++;
    ash_assert(i < apart.count && apart.blocks[i].size_bytes == ash_round_up(size_bytes, PAGE_BYTES));
    fresh = mmap(ptr, apart.blocks[i].size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0);
    ash_assert(fresh == ptr);
    apart.count--;
    memmove(apart.blocks + i, apart.blocks + i + 1, (apart.count - i) * sizeof(*apart.blocks));
    if (apart.inside > 0) allow(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&apart.lock);
}

static int apart_copy(void *dst, const void *src, size_t size_bytes)
{
    ash_apart_enter();
    memmove(dst, src, size_bytes);
    ash_apart_leave();
    return 0;
}

static int apart_zero(void *dst, size_t size_bytes)
{
    ash_apart_enter();
    memset(dst, 0, size_bytes);
    ash_apart_leave();
    return 0;
}

static bool apart_holds(const void *data)
{
    uintptr_t base = (uintptr_t)apart.base, at = (uintptr_t)data;

    return base != 0 && at >= base && at - base < RESERVED_BYTES;
}

const struct ash_memory_ops ash_memory_apart = {.size = sizeof(ash_memory_apart),
                                                .name = "apart",
                                                .host_visible = false,
                                                .alloc = apart_alloc,
                                                .free = apart_free,
                                                .copy = apart_copy,
                                                .zero = apart_zero};

const struct ash_device_memory ash_device_apart = {
    .ops = &ash_memory_apart, .holds = apart_holds, .host_side = &ash_memory_host};
