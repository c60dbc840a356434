/* Barriers: named ones, those in shared memory, and the cluster's. One in shared memory is the word that the kernel
 * sees there: bits 0 to 19 arrivals that are pending, 20 to 39 how many there are in a phase, 40 to 60 bytes that are
 * announced and not here (offset by 2^20), 61 the phase's parity, 62 set. So what overwrites it is noticed. */
#include <stdio.h>
#include <string.h>
#include "emulate/emulator.h"

#define COUNT_BITS 20
#define COUNT_MAX ((1u << COUNT_BITS) - 1)
#define BYTES_ZERO (1 << 20)

/* ---- named ------------------------------------------------------------------------------------------------------- */

static void release_named(struct emu_named *named)
{
    std::vector<struct emu_thread *> waiting;

    waiting.swap(named->waiting);
    named->arrived = named->expected = 0;
    for (struct emu_thread *thread : waiting)
        if (thread != emu_now) emu_wake(thread);
}

void emu_named_barrier(const char *name, int barrier, unsigned threads, bool waits)
{
    struct emu_named *named;

    if (barrier < 0 || barrier >= EMU_NAMED) emu_fail("%s: there is no barrier %d", name, barrier);
    if (threads % EMU_WARP != 0) emu_fail("%s: %u threads are no whole warps", name, threads);
    named = &emu_now->block->named[barrier];
    if (named->arrived > 0 && named->expected != threads)
        emu_fail("%s %d for %u threads, and others came for %u", name, barrier, threads, named->expected);
    named->expected = threads;
    if (++named->arrived == threads) {
        release_named(named);
        emu_maybe_yield();
        return;
    }
    if (!waits) {
        emu_maybe_yield();
        return;
    }
    named->waiting.push_back(emu_now);
    emu_sleep(EMU_NAMED_BARRIER, name, (unsigned)barrier, 0);
}

/* __syncthreads is barrier 0 of all threads that have not ended. */
int emu_block_sync(const char *name, int value)
{
    struct emu_block *block = emu_now->block;
    struct emu_named *named = &block->named[0];

    if (named->arrived > 0 && named->waiting.empty()) emu_fail("%s: barrier 0 is in use as a named one", name);
    if (named->arrived == 0) named->any = 0;
    named->any |= value;
    named->expected = block->live;
    if (++named->arrived >= block->live) {
        for (struct emu_thread *thread : named->waiting)
            thread->result = named->any;
        emu_now->result = named->any;
        release_named(named);
        emu_maybe_yield();
    } else {
        named->waiting.push_back(emu_now);
        emu_sleep(EMU_NAMED_BARRIER, name, 0, 0);
    }
    return emu_now->result;
}

void emu_thread_ended(struct emu_block *block)
{
    struct emu_named *named = &block->named[0];
    unsigned live = 0;

    if (block->live > 0 && !named->waiting.empty() && named->waiting[0]->wait_name[0] == '_' &&
        named->arrived >= block->live) {
        for (struct emu_thread *thread : named->waiting)
            thread->result = named->any;
        release_named(named);
    }
    for (struct emu_block *other : block->cluster->blocks)
        live += other->live;
    emu_cluster_check(block->cluster, live);
}

/* ---- in shared memory -------------------------------------------------------------------------------------------- */

struct mbarrier {
    unsigned pending, count, parity;
    int64_t bytes;
};

static struct mbarrier read_barrier(struct emu_block *block, unsigned at)
{
    uint64_t word;

    if (at % 8 != 0) emu_fail("a barrier at 0x%x, which is no multiple of 8", at);
    memcpy(&word, emu_shared_at(block, at, 8), sizeof(word));
    if (word >> 62 != 1) emu_fail("there is no barrier at 0x%x: it was not initialised, or overwritten", at);
    return {(unsigned)word & COUNT_MAX, (unsigned)(word >> COUNT_BITS) & COUNT_MAX, (unsigned)(word >> 61) & 1,
            (int64_t)(word >> 40 & 0x1fffff) - BYTES_ZERO};
}

static void write_barrier(struct emu_block *block, unsigned at, struct mbarrier b)
{
    uint64_t word = (uint64_t)b.pending | (uint64_t)b.count << COUNT_BITS | (uint64_t)(b.bytes + BYTES_ZERO) << 40 |
                    (uint64_t)b.parity << 61 | (uint64_t)1 << 62;

    if (b.bytes <= -BYTES_ZERO || b.bytes >= BYTES_ZERO)
        emu_fail("the barrier at 0x%x counts %lld bytes", at, (long long)b.bytes);
    memcpy(emu_shared_at(block, at, 8), &word, sizeof(word));
}

/* All have come: the next phase begins. */
static void end_phase(struct emu_block *block, unsigned at, struct mbarrier b)
{
    if (b.pending == 0 && b.bytes == 0) {
        b.pending = b.count;
        b.parity ^= 1;
    }
    write_barrier(block, at, b);
    for (struct emu_thread &thread : block->threads)
        if (!thread.has_ended && thread.wait == EMU_MBARRIER && thread.wait_at == at && thread.wait_parity != b.parity)
            emu_wake(&thread);
}

void emu_barrier_init(unsigned barrier, unsigned count)
{
    if (barrier % 8 != 0) emu_fail("a barrier at 0x%x, which is no multiple of 8", barrier);
    if (count == 0 || count > COUNT_MAX) emu_fail("a barrier for %u arrivals", count);
    write_barrier(emu_now->block, barrier, {count, count, 0, 0});
}

void emu_barrier_arrive(struct emu_block *block, unsigned barrier, unsigned count)
{
    struct mbarrier b = read_barrier(block, barrier);

    if (b.pending < count) emu_fail("more arrivals at the barrier at 0x%x than the %u of a phase", barrier, b.count);
    b.pending -= count;
    end_phase(block, barrier, b);
}

void emu_barrier_bytes(struct emu_block *block, unsigned barrier, int64_t bytes)
{
    struct mbarrier b = read_barrier(block, barrier);

    b.bytes += bytes;
    if (bytes > 0)
        write_barrier(block, barrier, b); /* the arrival that follows ends the phase */
    else
        end_phase(block, barrier, b);
}

bool emu_barrier_passed(unsigned barrier, unsigned parity)
{
    return read_barrier(emu_now->block, barrier).parity != (parity & 1);
}

void emu_barrier_wait(unsigned barrier, unsigned parity)
{
    if (parity > 1) emu_fail("a barrier's parity is 0 or 1, not %u", parity);
    if (emu_barrier_passed(barrier, parity)) {
        emu_maybe_yield();
        return;
    }
    emu_sleep(EMU_MBARRIER, "barrier_wait", barrier, parity);
    if (!emu_barrier_passed(barrier, parity))
        emu_fail("the barrier at 0x%x ended another phase before this thread saw that of parity %u", barrier, parity);
}

std::string emu_barrier_text(struct emu_block *block, unsigned barrier)
{
    struct mbarrier b = read_barrier(block, barrier);
    char text[160];

    snprintf(text, sizeof(text), "barrier at 0x%x, phase of parity %u, %u of %u arrivals and %lld bytes are missing",
             barrier, b.parity, b.pending, b.count, (long long)b.bytes);
    return text;
}

/* ---- the cluster's ----------------------------------------------------------------------------------------------- */

void emu_cluster_check(struct emu_cluster *cluster, unsigned live)
{
    std::vector<struct emu_thread *> waiting;

    if (cluster->arrived == 0 || cluster->arrived < live) return;
    cluster->arrived = 0;
    cluster->phase++;
    waiting.swap(cluster->waiting);
    for (struct emu_thread *thread : waiting)
        if (thread != emu_now) emu_wake(thread);
}

static unsigned live_threads(const struct emu_cluster *cluster)
{
    unsigned live = 0;

    for (const struct emu_block *block : cluster->blocks)
        live += block->live;
    return live;
}

void emu_cluster_arrive(void)
{
    struct emu_cluster *cluster = emu_now->block->cluster;

    emu_now->cluster_phase = cluster->phase;
    cluster->arrived++;
    emu_cluster_check(cluster, live_threads(cluster));
}

void emu_cluster_wait(void)
{
    struct emu_cluster *cluster = emu_now->block->cluster;

    if (emu_now->cluster_phase == cluster->phase) {
        cluster->waiting.push_back(emu_now);
        emu_sleep(EMU_CLUSTER, "cluster_sync", 0, 0);
    } else {
        emu_maybe_yield();
    }
}

struct emu_block *emu_cluster_block(unsigned rank)
{
    struct emu_cluster *cluster = emu_now->block->cluster;

    if (rank >= cluster->blocks.size()) emu_fail("the cluster has no block %u", rank);
    return cluster->blocks[rank];
}
