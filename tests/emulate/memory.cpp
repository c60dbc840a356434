/* Global memory: allocations end before a page that nobody may touch, and asynchronous copies are held to them. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <map>
#include <mutex>
#include "emulate/emulator.h"

#define PAGE_BYTES ((size_t)4096)
#define ALIGN ((size_t)256) /* as the driver promises */

static std::map<uintptr_t, size_t> blocks;
static std::mutex mutex;

void emu_memory_add(const void *base, size_t size_bytes)
{
    std::lock_guard<std::mutex> lock(mutex);

    blocks[(uintptr_t)base] = size_bytes;
}

void emu_memory_remove(const void *base)
{
    std::lock_guard<std::mutex> lock(mutex);

    blocks.erase((uintptr_t)base);
}

bool emu_memory_holds(uintptr_t address)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto after = blocks.upper_bound(address);

    return after != blocks.begin() && address - std::prev(after)->first <= std::prev(after)->second;
}

static size_t pages_of(size_t size_bytes)
{
    return (size_bytes + ALIGN - 1 + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
}

void *emu_alloc(size_t size_bytes)
{
    size_t all = pages_of(size_bytes), taken = (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
    char *base = (char *)mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED) return NULL;
    mprotect(base + all - PAGE_BYTES, PAGE_BYTES, PROT_NONE);
    base += all - PAGE_BYTES - taken;
    memset(base, EMU_POISON, size_bytes);
    emu_memory_add(base, size_bytes);
    return base;
}

size_t emu_alloc_bytes(void *ptr)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto found = blocks.find((uintptr_t)ptr);

    return found != blocks.end() ? found->second : 0;
}

void emu_free(void *ptr)
{
    size_t size_bytes = emu_alloc_bytes(ptr), all = pages_of(size_bytes);

    if (ptr == NULL) return;
    emu_memory_remove(ptr);
    munmap((char *)ptr + (size_bytes + ALIGN - 1) / ALIGN * ALIGN + PAGE_BYTES - all, all);
}

void emu_check_memory(const void *at, size_t size_bytes, const char *name)
{
    static uintptr_t last, last_end; /* of the block that was found last */
    uintptr_t first = (uintptr_t)at;

    if (size_bytes == 0 || (first >= last && first + size_bytes <= last_end)) return;
    {
        std::lock_guard<std::mutex> lock(mutex);
        auto after = blocks.upper_bound(first);

        last = last_end = 0;
        if (after != blocks.begin()) {
            auto found = std::prev(after);

            last = found->first;
            last_end = found->first + found->second;
        }
    }
    if (first >= last && first + size_bytes <= last_end) return;
    if (first >= last && first < last_end + PAGE_BYTES)
        emu_fail("%s of %zu bytes at %p: the allocation at %p has %zu", name, size_bytes, at, (void *)last,
                 (size_t)(last_end - last));
    emu_fail("%s of %zu bytes at %p: that is not memory of the GPU", name, size_bytes, at);
}
