/* Stored pages in the order of their storing, blocks of prompts in a table, and a ring of what changed. */
#include "serve/engine/page_events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "serve/engine/page_events_priv.h"

#define NONE ASH_PAGE_NONE
#define READ_RECORDS 1024 /* in one batch: the engine's thread waits while it is written */
#define READ_PAGES 512
#define SPARE_BLOCKS 256

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void free_all_blocks(struct ash_page_events *events)
{
    for (size_t i = 0; i < events->block_count; i++)
        events->blocks[i].next = i + 1 < events->block_count ? (int32_t)i + 1 : NONE;
    events->free_block = 0;
    memset(events->buckets, 0xff, (events->mask + 1) * sizeof(*events->buckets));
}

int ash_page_events_open(const struct ash_page_events_opts *opts, struct ash_page_events **events_out,
                         struct ash_err *err)
{
    struct ash_page_events *events = calloc(1, sizeof(*events));
    size_t buckets = 16;

    ash_assert(opts->pages > 0 && opts->page_tokens > 0 && opts->records_max > 0);
    if (events == NULL) return ash_err_set(err, -ENOMEM, "no memory for events of the cache");
    pthread_mutex_init(&events->lock, NULL);
    events->opts = *opts;
    events->block_count = 2 * opts->pages + SPARE_BLOCKS;
    while (buckets < events->block_count)
        buckets *= 2;
    events->mask = buckets - 1;
    events->oldest = events->newest = NONE;
    events->entries = calloc(opts->pages, sizeof(*events->entries));
    events->tokens = calloc(opts->pages * opts->page_tokens, sizeof(*events->tokens));
    events->blocks = calloc(events->block_count, sizeof(*events->blocks));
    events->buckets = calloc(buckets, sizeof(*events->buckets));
    events->records = calloc(opts->records_max, sizeof(*events->records));
    if (events->entries == NULL || events->tokens == NULL || events->blocks == NULL || events->buckets == NULL ||
        events->records == NULL) {
        ash_page_events_close(events);
        return ash_err_set(err, -ENOMEM, "no memory for events of a cache of %zu pages", opts->pages);
    }
    free_all_blocks(events);
    *events_out = events;
    return 0;
}

void ash_page_events_close(struct ash_page_events *events)
{
    if (events == NULL) return;
    ash_assert(events->readers == NULL);
    free(events->entries);
    free(events->tokens);
    free(events->blocks);
    free(events->buckets);
    free(events->records);
    pthread_mutex_destroy(&events->lock);
    free(events);
}

/* ---- blocks of prompts ------------------------------------------------------------------------------------------- */

static int32_t *bucket_of(struct ash_page_events *events, uint64_t hash)
{
    return &events->buckets[ash_hash_mix(hash) & events->mask];
}

static bool has_block(struct ash_page_events *events, uint64_t hash)
{
    int32_t at = *bucket_of(events, hash);

    while (at != NONE && events->blocks[at].hash != hash)
        at = events->blocks[at].chain;
    return at != NONE;
}

static void drop_block(struct ash_page_events *events, int32_t block)
{
    int32_t *link = bucket_of(events, events->blocks[block].hash);

    while (*link != block)
        link = &events->blocks[*link].chain;
    *link = events->blocks[block].chain;
    events->blocks[block].next = events->free_block;
    events->free_block = block;
}

/* ---- what the engine notes --------------------------------------------------------------------------------------- */

static void record(struct ash_page_events *events, enum ash_page_record_kind kind, int32_t page, uint64_t hash)
{
    events->records[events->end++ % events->opts.records_max] = (struct ash_page_record){
        .kind = kind, .page = page, .name = page != NONE ? events->entries[page].name : 0, .hash = hash};
}

void ash_page_events_store(struct ash_page_events *events, const struct ash_page_stored *stored)
{
    struct ash_page_entry *entry;

    if (events == NULL) return;
    ash_assert(stored->page >= 0 && (size_t)stored->page < events->opts.pages);
    entry = &events->entries[stored->page];
    pthread_mutex_lock(&events->lock);
    ash_assert(entry->serial == 0);
    *entry = (struct ash_page_entry){
        .name = stored->name, .serial = ++events->serial, .older = events->newest, .newer = NONE, .blocks = NONE};
    if (stored->parent != NONE) {
        ash_assert(events->entries[stored->parent].serial != 0);
        entry->has_parent = true;
        entry->parent_name = events->entries[stored->parent].name;
    }
    *(events->newest != NONE ? &events->entries[events->newest].newer : &events->oldest) = stored->page;
    events->newest = stored->page;
    events->count++;
    memcpy(&events->tokens[(size_t)stored->page * events->opts.page_tokens], stored->tokens,
           events->opts.page_tokens * sizeof(*stored->tokens));
    record(events, ASH_PAGE_STORED, stored->page, 0);
    pthread_mutex_unlock(&events->lock);
}

/* Its blocks are of no page any more, which is recorded unless all is gone. */
static void drop_blocks(struct ash_page_events *events, int32_t page, bool is_recorded)
{
    int32_t block = events->entries[page].blocks;

    while (block != NONE) {
        int32_t next = events->blocks[block].next;

        if (is_recorded) record(events, ASH_PAGE_BLOCK_GONE, page, events->blocks[block].hash);
        drop_block(events, block);
        block = next;
    }
}

/* Take a page out of the list; readers that were to list it next go on behind it. */
static void unlink_page(struct ash_page_events *events, int32_t page)
{
    struct ash_page_entry *entry = &events->entries[page];

    *(entry->older != NONE ? &events->entries[entry->older].newer : &events->oldest) = entry->newer;
    *(entry->newer != NONE ? &events->entries[entry->newer].older : &events->newest) = entry->older;
    for (struct ash_page_reader *reader = events->readers; reader != NULL; reader = reader->next)
        if (reader->listed == page) reader->listed = entry->newer;
    events->count--;
}

void ash_page_events_remove(struct ash_page_events *events, int32_t page)
{
    bool is_last;

    if (events == NULL) return;
    ash_assert(page >= 0 && (size_t)page < events->opts.pages);
    pthread_mutex_lock(&events->lock);
    ash_assert(events->entries[page].serial != 0);
    unlink_page(events, page);
    is_last = events->count == 0;
    record(events, is_last ? ASH_PAGE_CLEARED : ASH_PAGE_REMOVED, is_last ? NONE : page, 0);
    drop_blocks(events, page, !is_last);
    events->entries[page].serial = 0;
    pthread_mutex_unlock(&events->lock);
}

void ash_page_events_add_block(struct ash_page_events *events, int32_t page, uint64_t block)
{
    struct ash_page_entry *entry;

    if (events == NULL) return;
    ash_assert(page >= 0 && (size_t)page < events->opts.pages);
    entry = &events->entries[page];
    pthread_mutex_lock(&events->lock);
    ash_assert(entry->serial != 0);
    if (events->free_block != NONE && entry->block_count < ASH_PAGE_EVENTS_PAGE_BLOCKS && !has_block(events, block)) {
        int32_t at = events->free_block, *bucket = bucket_of(events, block);

        events->free_block = events->blocks[at].next;
        events->blocks[at] = (struct ash_page_block){.hash = block, .next = entry->blocks, .chain = *bucket};
        *bucket = entry->blocks = at;
        entry->block_count++;
        record(events, ASH_PAGE_BLOCK, page, block);
    }
    pthread_mutex_unlock(&events->lock);
}

static void wake_all(struct ash_page_events *events)
{
    for (const struct ash_page_reader *reader = events->readers; reader != NULL; reader = reader->next)
        reader->wake(reader->ctx);
}

void ash_page_events_publish(struct ash_page_events *events)
{
    if (events == NULL) return;
    pthread_mutex_lock(&events->lock);
    if (events->woken < events->end) wake_all(events);
    events->woken = events->end;
    pthread_mutex_unlock(&events->lock);
}

void ash_page_events_end(struct ash_page_events *events)
{
    if (events == NULL) return;
    pthread_mutex_lock(&events->lock);
    events->has_ended = true;
    wake_all(events);
    pthread_mutex_unlock(&events->lock);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

int ash_page_reader_open(struct ash_page_events *events, bool wants_tokens, void (*wake)(void *ctx), void *ctx,
                         struct ash_page_reader **reader_out)
{
    struct ash_page_reader *reader = calloc(1, sizeof(*reader));

    if (reader == NULL) return -ENOMEM;
    *reader = (struct ash_page_reader){
        .events = events, .wants_tokens = wants_tokens, .wake = wake, .ctx = ctx, .is_new = true, .listed = NONE};
    pthread_mutex_lock(&events->lock);
    reader->next = events->readers;
    events->readers = reader;
    pthread_mutex_unlock(&events->lock);
    *reader_out = reader;
    return 0;
}

void ash_page_reader_close(struct ash_page_reader *reader)
{
    struct ash_page_reader **link;

    if (reader == NULL) return;
    link = &reader->events->readers;
    pthread_mutex_lock(&reader->events->lock);
    while (*link != reader)
        link = &(*link)->next;
    *link = reader->next;
    pthread_mutex_unlock(&reader->events->lock);
    ash_str_fini(&reader->hashes);
    ash_str_fini(&reader->ids);
    ash_str_fini(&reader->ends);
    free(reader);
}

/* It is new, or records that it has not read are gone: it gets all that is stored now, and what changes from now on. */
static void begin_list(struct ash_page_reader *reader)
{
    const struct ash_page_events *events = reader->events;

    reader->is_new = false;
    reader->is_listing = true;
    reader->listed = events->oldest;
    reader->list_end = events->serial;
    reader->at = events->end;
}

/* Write the next part: nothing, if nothing is new. */
static void read_some(struct ash_page_reader *reader, struct ash_str *out)
{
    const struct ash_page_events *events = reader->events;
    bool is_first = reader->is_new || events->end - reader->at > events->opts.records_max;
    uint64_t to;

    if (is_first) begin_list(reader);
    if (reader->is_listing) {
        (void)ash_page_events_write_list(reader, READ_PAGES, is_first, out);
        reader->is_listing = reader->listed != NONE && events->entries[reader->listed].serial <= reader->list_end;
        if (!reader->is_listing) reader->listed = NONE;
        return;
    }
    to = events->end - reader->at > READ_RECORDS ? reader->at + READ_RECORDS : events->end;
    if (to > reader->at) (void)ash_page_events_write(reader, reader->at, to, out);
    reader->at = to;
}

int ash_page_reader_read(struct ash_page_reader *reader, struct ash_str *out)
{
    struct ash_page_events *events = reader->events;
    bool has_ended;

    pthread_mutex_lock(&events->lock);
    has_ended = events->has_ended;
    if (!has_ended) read_some(reader, out);
    pthread_mutex_unlock(&events->lock);
    if (out->rc < 0) return out->rc;
    return has_ended ? 0 : 1;
}
