/* Who runs next: warps and blocks take turns as drawn from the seed, until all have ended or none can run. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "emulate/emulator.h"
#include "emulate/fiber.h"

#define SPIN_ROUNDS_MAX 10000 /* in which all that run look for something that does not come */
#define BLOCKS_MAX 132        /* that run at the same time */

struct emu_thread *emu_now;
struct emu_run emu_run;

struct failed_launch {
};

unsigned emu_draw(unsigned bound)
{
    uint64_t x = emu_run.random += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (unsigned)((x ^ x >> 31) >> 32) % bound;
}

void emu_fail(const char *format, ...)
{
    char text[1024], place[128] = "";
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (emu_now != NULL)
        snprintf(place, sizeof(place), "block (%u, %u, %u), thread %u: ", emu_now->block->index.x,
                 emu_now->block->index.y, emu_now->block->index.z, emu_now->number);
    if (!emu_run.has_failed) emu_run.failure = std::string(place) + text;
    emu_run.has_failed = true;
    if (emu_now == NULL) throw failed_launch();
    fiber_switch(&emu_now->stack_pointer, emu_run.scheduler);
    abort(); /* a thread that has failed is never run again */
}

/* ---- what threads ask for ---------------------------------------------------------------------------------------- */

static void leave(void)
{
    fiber_switch(&emu_now->stack_pointer, emu_run.scheduler);
}

void emu_yield(void)
{
    emu_run.spins = 0;
    leave();
}

void emu_maybe_yield(void)
{
    if (emu_now != NULL && emu_draw(256) < emu_run.habits.yields) emu_yield();
}

static void put_to_sleep(struct emu_thread *thread)
{
    struct emu_warp *warp = thread->warp;

    warp->runnable &= ~(1u << thread->lane);
    if (warp->runnable == 0) thread->block->runnable &= ~(1u << warp->number);
}

void emu_wake(struct emu_thread *thread)
{
    thread->wait = EMU_RUNS;
    thread->warp->runnable |= 1u << thread->lane;
    thread->block->runnable |= 1u << thread->warp->number;
}

void emu_sleep(enum emu_wait why, const char *name, unsigned at, unsigned parity)
{
    emu_now->wait = why;
    emu_now->wait_name = name;
    emu_now->wait_at = at;
    emu_now->wait_parity = parity;
    if (why != EMU_SPINS) emu_run.spins = 0;
    put_to_sleep(emu_now);
    leave();
}

void emu_spin(const char *name)
{
    emu_sleep(EMU_SPINS, name, 0, 0);
}

/* ---- lanes that meet --------------------------------------------------------------------------------------------- */

static bool all_came(const struct emu_meeting &meeting)
{
    return (meeting.mask & ~meeting.warp->ended & ~meeting.arrived) == 0;
}

/* Everybody has come: compute, wake, forget. */
static void finish_meeting(struct emu_warp *warp, size_t i)
{
    struct emu_meeting meeting = warp->meetings[i];

    warp->meetings.erase(warp->meetings.begin() + (long)i);
    meeting.finish(&meeting);
    for (unsigned lane = 0; lane < warp->size; lane++)
        if (meeting.arrived >> lane & 1) {
            struct emu_thread *thread = &warp->block->threads[warp->number * EMU_WARP + lane];

            if (thread != emu_now) emu_wake(thread);
        }
}

static size_t find_meeting(struct emu_warp *warp, uint32_t mask, const char *name,
                           void (*finish)(struct emu_meeting *meeting))
{
    struct emu_meeting fresh = {mask, 0, name, {}, finish, warp};

    for (size_t i = 0; i < warp->meetings.size(); i++) {
        struct emu_meeting &open = warp->meetings[i];

        if (open.mask != mask) continue;
        if (strcmp(open.name, name) != 0)
            emu_fail("lanes of warp %u meet at different instructions: %s and %s", warp->number, open.name, name);
        return i;
    }
    warp->meetings.push_back(fresh);
    return warp->meetings.size() - 1;
}

void emu_meet(uint32_t mask, const char *name, void *mine, void (*finish)(struct emu_meeting *meeting), bool is_aligned)
{
    struct emu_warp *warp = emu_now->warp;
    uint32_t there = warp->size == EMU_WARP ? 0xffffffffu : (1u << warp->size) - 1;
    size_t i;

    if (is_aligned && (warp->ended != 0 || warp->size != EMU_WARP))
        emu_fail("%s wants all 32 lanes of warp %u, and some have ended", name, warp->number);
    if ((mask >> emu_now->lane & 1) == 0) emu_fail("%s: this lane is not in its own mask %08x", name, mask);
    i = find_meeting(warp, mask & there, name, finish);
    warp->meetings[i].arrived |= 1u << emu_now->lane;
    warp->meetings[i].of[emu_now->lane] = mine;
    if (!all_came(warp->meetings[i])) {
        emu_sleep(EMU_MEETS, name, mask, 0);
        return;
    }
    finish_meeting(warp, i);
    emu_maybe_yield();
}

/* ---- threads begin and end --------------------------------------------------------------------------------------- */

static void end_thread(void)
{
    struct emu_thread *thread = emu_now;
    struct emu_warp *warp = thread->warp;

    if (!warp->products.empty()) emu_fail("the thread ends before its warp's products are done (wgmma_wait)");
    emu_end_stores(thread);
    thread->has_ended = true;
    warp->ended |= 1u << thread->lane;
    thread->block->live--;
    emu_run.spins = 0;
    for (size_t i = 0; i < warp->meetings.size();)
        if (all_came(warp->meetings[i]))
            finish_meeting(warp, i);
        else
            i++;
    emu_thread_ended(thread->block);
    put_to_sleep(thread);
    leave();
}

static void thread_entry(void)
{
    emu_run.kernel->call(emu_run.args);
    end_thread();
}

static void begin_thread(struct emu_block *block, unsigned number)
{
    struct emu_thread *thread = &block->threads[number];

    *thread = emu_thread();
    thread->index = {number, 0, 0};
    thread->number = number;
    thread->lane = number % EMU_WARP;
    thread->block = block;
    thread->warp = &block->warps[number / EMU_WARP];
    thread->stack = fiber_stack_get();
    thread->stack_pointer = fiber_begin(thread->stack, thread_entry);
    emu_wake(thread);
}

/* ---- blocks begin and end ---------------------------------------------------------------------------------------- */

static struct emu_block *take_block(void)
{
    struct emu_block *block;

    if (!emu_run.free_blocks.empty()) {
        block = emu_run.free_blocks.back();
        emu_run.free_blocks.pop_back();
        return block;
    }
    block = new emu_block();
    block->arena = emu_arena_open();
    return block;
}

static void begin_block(unsigned number, unsigned rank, struct emu_cluster *cluster)
{
    struct emu_block *block = take_block();
    unsigned threads = emu_run.grid.threads, warps = (threads + EMU_WARP - 1) / EMU_WARP;
    struct uint3 grid = emu_run.grid.blocks;

    block->index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    block->rank = rank;
    block->cluster = cluster;
    block->runnable = 0;
    block->live = threads;
    for (struct emu_named &named : block->named)
        named = emu_named();
    block->warps.assign(warps, emu_warp());
    block->threads.resize(threads);
    for (unsigned w = 0; w < warps; w++) {
        block->warps[w].block = block;
        block->warps[w].number = w;
        block->warps[w].size = threads - w * EMU_WARP < EMU_WARP ? threads - w * EMU_WARP : EMU_WARP;
        block->warps[w].has_fence = false;
    }
    emu_arena_begin(block);
    for (unsigned t = 0; t < threads; t++)
        begin_thread(block, t);
    cluster->blocks.push_back(block);
    emu_run.blocks.push_back(block);
}

static void release_block(struct emu_block *block)
{
    for (struct emu_thread &thread : block->threads)
        fiber_stack_put(thread.stack);
    if (emu_run.resident == block) emu_run.resident = NULL;
    emu_run.free_blocks.push_back(block);
}

/* All blocks of a cluster end together: others reach their shared memory until then. */
static void end_clusters(void)
{
    for (size_t i = 0; i < emu_run.blocks.size();) {
        struct emu_cluster *cluster = emu_run.blocks[i]->cluster;
        size_t count = cluster->blocks.size();
        bool is_live = false;

        for (struct emu_block *block : cluster->blocks)
            is_live = is_live || block->live > 0;
        if (is_live) {
            i += count; /* they were opened together */
            continue;
        }
        for (struct emu_block *block : cluster->blocks) {
            emu_block_ended(block);
            release_block(block);
        }
        emu_run.blocks.erase(emu_run.blocks.begin() + (long)i, emu_run.blocks.begin() + (long)(i + count));
        delete cluster;
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void run_thread(struct emu_thread *thread)
{
    emu_now = thread;
    fiber_switch(&emu_run.scheduler, thread->stack_pointer);
    emu_now = NULL;
    if (emu_run.has_failed) throw failed_launch();
}

static void run_warp(struct emu_warp *warp)
{
    unsigned first = emu_run.habits.lanes == 2 ? emu_draw(EMU_WARP) : 0, flip = emu_run.habits.lanes == 1 ? 31 : 0;

    for (unsigned i = 0; i < EMU_WARP; i++) {
        unsigned lane = ((i + first) % EMU_WARP) ^ flip;

        if (warp->runnable >> lane & 1) run_thread(&warp->block->threads[warp->number * EMU_WARP + lane]);
    }
}

static struct emu_warp *pick_warp(struct emu_block *block)
{
    uint32_t ready = block->runnable, without = ready & ~(1u << emu_run.habits.starved % 32);
    unsigned pick;

    if (emu_run.habits.warps == 1) return &block->warps[(unsigned)__builtin_ctz(ready)];
    if (emu_run.habits.warps == 2 && without != 0) ready = without;
    for (pick = emu_draw((unsigned)__builtin_popcount(ready)); pick > 0; pick--)
        ready &= ready - 1;
    return &block->warps[(unsigned)__builtin_ctz(ready)];
}

static void run_block(struct emu_block *block)
{
    unsigned turns = emu_run.blocks.size() == 1 ? 1000 : 1 + emu_draw(24);

    emu_make_resident(block);
    for (; turns > 0 && block->runnable != 0; turns--) {
        run_warp(pick_warp(block));
        if (emu_draw(256) < emu_run.habits.land_tick) emu_land_one(block);
    }
}

/* Threads that look for something another one stores, all of them: false if there are none. */
static bool wake_spinners(void)
{
    bool found = false;

    for (struct emu_block *block : emu_run.blocks)
        for (struct emu_thread &thread : block->threads)
            if (!thread.has_ended && thread.wait == EMU_SPINS) {
                emu_wake(&thread);
                found = true;
            }
    return found;
}

/* One line for all threads of a warp that wait for the same. */
static void tell_waiting(struct emu_warp *warp)
{
    for (unsigned lane = 0; lane < warp->size; lane++) {
        struct emu_block *block = warp->block;
        struct emu_thread *all = &block->threads[warp->number * EMU_WARP], *first = &all[lane];
        unsigned count = 0;
        bool is_told = false;
        char line[256];

        if (first->has_ended || first->wait == EMU_RUNS) continue;
        for (unsigned l = 0; l < warp->size; l++) {
            if (all[l].has_ended || all[l].wait != first->wait || all[l].wait_at != first->wait_at) continue;
            if (l < lane) is_told = true;
            count++;
        }
        if (is_told) continue;
        snprintf(line, sizeof(line), "\n  block (%u, %u, %u) warp %u: %u threads wait in %s", block->index.x,
                 block->index.y, block->index.z, warp->number, count, first->wait_name);
        emu_run.failure += line;
        if (first->wait == EMU_MBARRIER) {
            snprintf(line, sizeof(line), " for parity %u: ", first->wait_parity);
            emu_run.failure += line + emu_barrier_text(block, first->wait_at);
        } else if (first->wait == EMU_NAMED_BARRIER) {
            snprintf(line, sizeof(line), " %u: %u of %u threads have come", first->wait_at,
                     block->named[first->wait_at].arrived, block->named[first->wait_at].expected);
            emu_run.failure += line;
        } else if (first->wait == EMU_MEETS) {
            snprintf(line, sizeof(line), ", mask %08x", first->wait_at);
            emu_run.failure += line;
        }
    }
}

static void report_deadlock(const char *what)
{
    emu_run.failure = what;
    emu_run.has_failed = true;
    for (struct emu_block *block : emu_run.blocks)
        for (struct emu_warp &warp : block->warps)
            if (emu_run.failure.size() < 16384) tell_waiting(&warp);
    throw failed_launch();
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* The clusters of a grid: how many there are, and which comes next. */
struct clusters {
    unsigned next, count;
};

static void open_cluster(struct clusters *clusters)
{
    struct emu_cluster *cluster = new emu_cluster();
    unsigned size = emu_run.kernel->cluster;

    cluster->arrived = 0;
    cluster->phase = 0;
    for (unsigned rank = 0; rank < size; rank++)
        begin_block(clusters->next * size + rank, rank, cluster);
    clusters->next++;
}

static struct emu_block *pick_block(void)
{
    size_t count = emu_run.blocks.size(), first = count > 1 ? emu_draw((unsigned)count) : 0;

    for (size_t i = 0; i < count; i++)
        if (emu_run.blocks[(first + i) % count]->runnable != 0) return emu_run.blocks[(first + i) % count];
    return NULL;
}

/* Nobody can run: something in flight lands, or who polls looks again, beside blocks that had not begun. */
static void unblock(struct clusters *clusters)
{
    if (emu_land_one(NULL)) return;
    if (!wake_spinners()) report_deadlock("deadlock: no thread can run");
    if (clusters->next < clusters->count && emu_run.blocks.size() < BLOCKS_MAX) {
        open_cluster(clusters);
        return;
    }
    if (++emu_run.spins > SPIN_ROUNDS_MAX) {
        for (struct emu_block *block : emu_run.blocks)
            for (struct emu_thread &thread : block->threads)
                if (!thread.has_ended && thread.wait == EMU_RUNS) thread.wait = EMU_SPINS;
        report_deadlock("deadlock: threads poll for a store that does not come");
    }
}

static void run_grid(void)
{
    struct uint3 grid = emu_run.grid.blocks;
    struct clusters clusters = {0, grid.x * grid.y * grid.z / emu_run.kernel->cluster};
    size_t at_once = 1 + (emu_run.habits.warps == 0 ? emu_draw(3) : 0);

    while (clusters.next < clusters.count || !emu_run.blocks.empty()) {
        struct emu_block *block;

        while (clusters.next < clusters.count && emu_run.blocks.size() < at_once * emu_run.kernel->cluster)
            open_cluster(&clusters);
        block = pick_block();
        if (block != NULL)
            run_block(block);
        else
            unblock(&clusters);
        end_clusters();
    }
    while (emu_land_one(NULL))
        ;
}

static void draw_habits(void)
{
    static const unsigned now[] = {0, 0, 64, 256}, tick[] = {0, 4, 64}, yields[] = {0, 8, 64, 128};

    emu_run.habits.land_now = now[emu_draw(4)];
    emu_run.habits.land_tick = tick[emu_draw(3)];
    emu_run.habits.yields = yields[emu_draw(4)];
    emu_run.habits.lanes = (int)emu_draw(3);
    emu_run.habits.warps = (int)emu_draw(3);
    emu_run.habits.starved = emu_draw(32);
}

static void drop_all(void)
{
    for (struct emu_block *block : emu_run.blocks) {
        if (block->rank + 1 == block->cluster->blocks.size()) delete block->cluster;
        release_block(block);
    }
    emu_run.blocks.clear();
    emu_run.landings.clear();
    emu_now = NULL;
}

int emu_launch(const struct emu_image *image, const struct emu_kernel *kernel, struct emu_grid grid, const void *args)
{
    const char *seed = getenv("EMULATE_SEED");

    emu_run.kernel = kernel;
    emu_run.args = args;
    emu_run.grid = grid;
    emu_run.seed = seed != NULL ? strtoull(seed, NULL, 0) : 1;
    emu_run.random = emu_run.seed * 0x2545f4914f6cdd1dull + ++emu_run.number;
    emu_run.has_failed = false;
    emu_run.failure.clear();
    emu_run.spins = 0;
    emu_run.fetched = 0;
    draw_habits();
    if (getenv("EMULATE_TRACE") != NULL)
        fprintf(stderr, "emulator: launch %llu: %s, %u x %u x %u blocks of %u threads\n",
                (unsigned long long)emu_run.number, kernel->name, grid.blocks.x, grid.blocks.y, grid.blocks.z,
                grid.threads);
    try {
        if (grid.blocks.x % kernel->cluster != 0) emu_fail("%u blocks are no whole clusters", grid.blocks.x);
        emu_shared_begin(image);
        run_grid();
    } catch (const failed_launch &) {
        drop_all();
        fprintf(stderr, "emulator: %s, launch %llu of seed %llu: %s\n", kernel->name,
                (unsigned long long)emu_run.number, (unsigned long long)emu_run.seed, emu_run.failure.c_str());
        return -1;
    }
    if (emu_run.fetched > 0 && getenv("EMULATE_TRACE") != NULL)
        fprintf(stderr, "emulator: launch %llu asked for %llu bytes ahead\n", (unsigned long long)emu_run.number,
                (unsigned long long)emu_run.fetched);
    return 0;
}
