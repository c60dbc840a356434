/* Copies that land late. A destination is poisoned when a copy is enqueued; the bytes come when somebody waits for
 * them, at a drawn moment, or when nothing else can happen. */
#include <string.h>
#include "emulate/emulator.h"

static bool lands_now(void)
{
    return emu_draw(256) < emu_run.habits.land_now;
}

/* ---- a thread's own (cp.async) ----------------------------------------------------------------------------------- */

static void land_copy(struct emu_thread *thread)
{
    struct emu_copy copy = thread->copies[thread->copy_first++];
    unsigned char *to;

    if (thread->copy_first == thread->copies.size()) {
        thread->copies.clear();
        thread->copy_first = 0;
    }
    if (copy.barrier != 0) {
        emu_barrier_arrive(thread->block, copy.barrier, 1);
        return;
    }
    to = emu_shared_at(thread->block, copy.to, copy.size);
    memcpy(to, copy.from, copy.bytes);
    memset(to + copy.bytes, 0, copy.size - copy.bytes);
}

static void enqueue_copy(struct emu_copy copy)
{
    emu_now->copies.push_back(copy);
    emu_now->copy_total++;
    if (lands_now())
        while (emu_now->copy_first < emu_now->copies.size())
            land_copy(emu_now);
}

void emu_copy_async(unsigned to, const void *from, unsigned size, unsigned bytes)
{
    if (to % size != 0 || (uintptr_t)from % size != 0)
        emu_fail("cp.async of %u bytes from %p to 0x%x: a multiple of %u is wanted", size, from, to, size);
    if (bytes > size) emu_fail("cp.async of %u bytes out of %u", size, bytes);
    emu_check_memory(from, bytes, "cp.async");
    memset(emu_shared_at(emu_now->block, to, size), EMU_POISON, size);
    enqueue_copy({to, (const unsigned char *)from, size, bytes, 0});
}

void emu_copy_arrive(unsigned barrier)
{
    enqueue_copy({0, NULL, 0, 0, barrier});
    emu_maybe_yield();
}

void emu_copy_commit(void)
{
    emu_now->copy_groups.push_back(emu_now->copy_total);
    emu_maybe_yield();
}

void emu_copy_wait(size_t left)
{
    size_t groups = emu_now->copy_groups.size(), until;

    if (groups > left) {
        until = emu_now->copy_groups[groups - left - 1];
        while (emu_now->copy_first < emu_now->copies.size() &&
               emu_now->copy_total - (emu_now->copies.size() - emu_now->copy_first) < until)
            land_copy(emu_now);
        emu_now->copy_groups.erase(emu_now->copy_groups.begin(), emu_now->copy_groups.begin() + (long)(groups - left));
    }
    emu_maybe_yield();
}

/* ---- bulk copies ------------------------------------------------------------------------------------------------- */

void emu_later(struct emu_block *block, std::function<void()> land)
{
    if (lands_now())
        land();
    else
        emu_run.landings.push_back({block, std::move(land)});
    emu_maybe_yield();
}

void emu_copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier, uint16_t blocks)
{
    if (to % 16 != 0 || (uintptr_t)from % 16 != 0 || bytes % 16 != 0 || bytes == 0)
        emu_fail("bulk copy of %u bytes from %p to 0x%x: multiples of 16 are wanted", bytes, from, to);
    emu_check_memory(from, bytes, "bulk copy");
    for (unsigned rank = 0; rank < 16; rank++) {
        struct emu_block *block;

        if ((blocks >> rank & 1) == 0) continue;
        block = emu_cluster_block(rank);
        memset(emu_shared_at(block, to, bytes), EMU_POISON, bytes);
        emu_later(block, [=]() {
            memcpy(emu_shared_at(block, to, bytes), from, bytes);
            emu_barrier_bytes(block, barrier, -(int64_t)bytes);
        });
    }
}

/* ---- bulk stores ------------------------------------------------------------------------------------------------- */

void emu_store_async(std::function<void()> read, std::function<void()> write)
{
    emu_now->stores.push_back({std::move(read), std::move(write), false});
    emu_now->store_total++;
    if (lands_now()) {
        emu_now->stores.back().read();
        emu_now->stores.back().is_read = true;
    }
    emu_maybe_yield();
}

void emu_store_commit(void)
{
    emu_now->store_groups.push_back(emu_now->store_total);
    emu_maybe_yield();
}

/* The first store that is not written: it is read, or if it was, written. */
static void land_store(struct emu_thread *thread)
{
    struct emu_store &store = thread->stores.front();

    if (!store.is_read) {
        store.read();
        store.is_read = true;
        return;
    }
    store.write();
    thread->stores.pop_front();
}

void emu_store_wait(size_t left, bool until_written)
{
    size_t groups = emu_now->store_groups.size(), until, first = emu_now->store_total - emu_now->stores.size();

    if (groups > left) {
        until = emu_now->store_groups[groups - left - 1];
        for (size_t i = first; i < until; i++) {
            struct emu_store &store = emu_now->stores[i - first];

            if (!store.is_read) store.read();
            store.is_read = true;
        }
        while (until_written && emu_now->store_total - emu_now->stores.size() < until)
            land_store(emu_now);
    }
    emu_maybe_yield();
}

void emu_end_stores(struct emu_thread *thread)
{
    for (struct emu_store &store : thread->stores)
        if (!store.is_read) emu_fail("the thread ends, and a store of its may still read shared memory (store_wait)");
    while (!thread->stores.empty())
        land_store(thread);
}

/* ---- what lands -------------------------------------------------------------------------------------------------- */

/* From a drawn place on, the first thread with something in flight. */
static bool land_of_block(struct emu_block *block)
{
    size_t count = block->threads.size(), first = emu_draw((unsigned)count);

    for (size_t i = 0; i < count; i++) {
        struct emu_thread *thread = &block->threads[(first + i) % count];

        if (thread->copy_first < thread->copies.size()) {
            land_copy(thread);
            return true;
        }
        if (!thread->stores.empty()) {
            land_store(thread);
            return true;
        }
    }
    return false;
}

bool emu_land_one(struct emu_block *block)
{
    size_t count = emu_run.landings.size(), warps = 0;
    unsigned first = emu_draw(4);

    if (count > 0 && (block == NULL || first != 0)) {
        size_t pick = emu_draw((unsigned)count);
        std::function<void()> land = std::move(emu_run.landings[pick].land);

        emu_run.landings[pick] = std::move(emu_run.landings.back());
        emu_run.landings.pop_back();
        land();
        return true;
    }
    if (block != NULL) {
        warps = block->warps.size();
        if (emu_land_product(&block->warps[emu_draw((unsigned)warps)])) return true;
        return land_of_block(block);
    }
    for (struct emu_block *each : emu_run.blocks) {
        if (land_of_block(each)) return true;
        for (struct emu_warp &warp : each->warps)
            if (emu_land_product(&warp)) return true;
    }
    return false;
}
