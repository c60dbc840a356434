/* The shelf. An entry is made empty before its slot is written, and gets its name after that. */
#include "serve/kv/shelf.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/thread.h"
#include "serve/kv/index.h"

#define ALIGN ((size_t)64)

struct ash_kv_shelf {
    struct ash_port *port;
    struct ash_port_memory *memory;
    struct ash_port_description description;
    struct ash_kv_shelf_head *head;     /* in the memory, as are: */
    struct ash_kv_shelf_entry *entries; /* [slots] */
    char *slots_data;
    size_t slots, slot_bytes;
    struct ash_kv_index index;
    uint32_t *free; /* a stack */
    size_t free_count;
    struct ash_kv_tier_stats stats;
    _Atomic uint32_t jobs; /* opened so far */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* The port is this thread's from now on. */
static void *answer(void *arg)
{
    struct ash_kv_shelf *shelf = arg;
    struct ash_port_event events[8];

    for (uint64_t beat = 1; !atomic_load(&shelf->is_stopping); beat++) {
        __atomic_store_n(&shelf->head->beat, beat, __ATOMIC_RELAXED);
        (void)ash_port_wait(shelf->port, events, ASH_COUNT(events), ASH_KV_SHELF_BEAT_SECONDS);
    }
    return NULL;
}

static int lay_out(struct ash_kv_shelf *shelf, uint64_t bytes, struct ash_err *err)
{
    struct ash_kv_shelf_head head = {.magic = ASH_KV_SHELF_MAGIC, .slots = shelf->slots};
    char *data;
    int rc;

    head.slot_bytes = shelf->slot_bytes;
    head.first_slot = ash_round_up(sizeof(head) + shelf->slots * sizeof(*shelf->entries), ALIGN);
    rc = ash_port_register(shelf->port, NULL, head.first_slot + shelf->slots * shelf->slot_bytes, &shelf->memory, err);
    if (rc < 0) return ash_err_prefix(err, rc, "--prefill-memory: %llu bytes cannot be had", (unsigned long long)bytes);
    data = ash_port_memory_data(shelf->memory);
    memcpy(data, &head, sizeof(head));
    shelf->head = (struct ash_kv_shelf_head *)(void *)data;
    shelf->entries = (struct ash_kv_shelf_entry *)(void *)(data + sizeof(head));
    shelf->slots_data = data + head.first_slot;
    ash_port_describe(shelf->port, shelf->memory, &shelf->description);
    return 0;
}

int ash_kv_shelf_open(uint64_t bytes, size_t file_bytes, struct ash_kv_shelf **shelf_out, struct ash_err *err)
{
    struct ash_kv_shelf *shelf = calloc(1, sizeof(*shelf));
    int rc;

    if (shelf == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    shelf->slot_bytes = ash_round_up(file_bytes, ALIGN);
    shelf->slots = bytes / (shelf->slot_bytes + sizeof(*shelf->entries));
    rc = shelf->slots > 0 && shelf->slots < UINT32_MAX
             ? ash_port_open(NULL, &shelf->port, err)
             : ash_err_set(err, -EINVAL, "--prefill-memory: %llu bytes hold no page: one takes up to %zu",
                           (unsigned long long)bytes, shelf->slot_bytes);
    if (rc == 0) rc = lay_out(shelf, bytes, err);
    if (rc == 0) shelf->free = calloc(shelf->slots, sizeof(*shelf->free));
    if (rc == 0 && shelf->free == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    for (; rc == 0 && shelf->free_count < shelf->slots; shelf->free_count++)
        shelf->free[shelf->free_count] = (uint32_t)(shelf->slots - 1 - shelf->free_count);
    if (rc == 0) {
        rc = ash_thread_start(&shelf->thread, answer, shelf);
        if (rc < 0) ash_err_set(err, rc, "cannot start a thread for pages that others read");
        shelf->has_thread = rc == 0;
    }
    if (rc < 0) {
        ash_kv_shelf_close(shelf);
        return rc;
    }
    *shelf_out = shelf;
    return 0;
}

void ash_kv_shelf_close(struct ash_kv_shelf *shelf)
{
    if (shelf == NULL) return;
    atomic_store(&shelf->is_stopping, true);
    if (shelf->has_thread) pthread_join(shelf->thread, NULL);
    ash_kv_index_fini(&shelf->index);
    ash_port_memory_close(shelf->memory);
    ash_port_close(shelf->port);
    free(shelf->free);
    free(shelf);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Readers see this entry, whole or not: what they read by it is checked. What was written before is there before it. */
static void set_entry(struct ash_kv_shelf *shelf, uint32_t slot, struct ash_kv_shelf_entry entry)
{
    struct ash_kv_shelf_entry *to = &shelf->entries[slot];

    __atomic_store_n(&to->bytes, 0, __ATOMIC_RELEASE);
    to->name = entry.name;
    __atomic_store_n(&to->bytes, entry.bytes, __ATOMIC_RELEASE);
}

static void drop(struct ash_kv_shelf *shelf, struct ash_kv_entry *entry)
{
    set_entry(shelf, entry->slot, (struct ash_kv_shelf_entry){{0}, 0});
    shelf->free[shelf->free_count++] = entry->slot;
    ash_kv_index_remove(&shelf->index, entry);
}

/* An entry with a free slot, if need be that of the page used longest ago. NULL without memory. */
static struct ash_kv_entry *take_slot(struct ash_kv_shelf *shelf, struct ash_kv_name name, size_t bytes)
{
    struct ash_kv_entry *victim = shelf->free_count == 0 ? ash_kv_index_victim(&shelf->index) : NULL, *entry;

    if (victim != NULL) {
        drop(shelf, victim);
        shelf->stats.evictions++;
    }
    entry = shelf->free_count > 0 ? ash_kv_index_add(&shelf->index, name, bytes) : NULL;
    if (entry != NULL) entry->slot = shelf->free[--shelf->free_count];
    return entry;
}

void ash_kv_shelf_put(struct ash_kv_shelf *shelf, const struct ash_kv_pool *pool, struct ash_kv_name name,
                      const struct ash_kv_prefix *prefix, int32_t page)
{
    size_t bytes = ash_kv_page_file_bytes(prefix->count, pool->page_bytes);
    struct ash_kv_entry *entry = ash_kv_index_find(&shelf->index, name);
    char *file;

    if (entry != NULL) {
        ash_kv_index_touch(&shelf->index, entry, false);
        return;
    }
    ash_assert(bytes <= shelf->slot_bytes);
    entry = take_slot(shelf, name, bytes);
    if (entry == NULL) {
        shelf->stats.skipped++;
        return;
    }
    file = shelf->slots_data + entry->slot * shelf->slot_bytes;
    if (pool->read(pool->ctx, page, file + ash_kv_page_file_offset(prefix->count)) < 0) {
        shelf->stats.write_failures++;
        drop(shelf, entry);
        return;
    }
    ash_kv_page_file_seal(prefix, pool->page_bytes, file);
    set_entry(shelf, entry->slot, (struct ash_kv_shelf_entry){name, bytes});
    shelf->stats.stored++;
    shelf->stats.bytes_written += bytes;
}

void ash_kv_shelf_clear(struct ash_kv_shelf *shelf)
{
    while (shelf->index.oldest != NULL)
        drop(shelf, shelf->index.oldest);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static uint64_t *word_of(struct ash_kv_shelf *shelf, uint64_t job)
{
    return &shelf->head->jobs[job % ASH_KV_SHELF_JOBS];
}

uint64_t ash_kv_shelf_open_job(struct ash_kv_shelf *shelf)
{
    uint32_t job = atomic_fetch_add(&shelf->jobs, 1) + 1;

    if (job == 0) job = atomic_fetch_add(&shelf->jobs, 1) + 1;
    __atomic_store_n(word_of(shelf, job), (uint64_t)job << 32, __ATOMIC_RELEASE);
    return job;
}

void ash_kv_shelf_tell_job(struct ash_kv_shelf *shelf, uint64_t job, size_t pages, bool is_over)
{
    uint64_t *word = word_of(shelf, job), now = __atomic_load_n(word, __ATOMIC_RELAXED), next;

    ash_assert(job > 0 && job <= UINT32_MAX && pages < ASH_KV_SHELF_JOB_IS_OVER);
    do {
        uint64_t told = now & (ASH_KV_SHELF_JOB_IS_OVER - 1);

        if (now >> 32 != job) return; /* a newer one has its place */
        next = job << 32 | (now & ASH_KV_SHELF_JOB_IS_OVER) | (is_over ? ASH_KV_SHELF_JOB_IS_OVER : 0) |
               ash_max(told, (uint64_t)pages);
    } while (!__atomic_compare_exchange_n(word, &now, next, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

const struct ash_port_description *ash_kv_shelf_describe(const struct ash_kv_shelf *shelf)
{
    return &shelf->description;
}

void ash_kv_shelf_stats(const struct ash_kv_shelf *shelf, struct ash_kv_tier_stats *stats_out)
{
    *stats_out = shelf->stats;
    stats_out->pages = shelf->index.count;
    stats_out->bytes = shelf->index.bytes;
}
