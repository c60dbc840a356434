/* Events of pages as JSON, in vLLM's form. Pages that continue each other are one event, with a hash each; blocks of
 * prompts, which are ours, are a list for each of its pages. */
#include <stdio.h>

#include "base/clock.h"
#include "base/json_put.h"
#include "serve/engine/page_events_priv.h"

#define NAME_BYTES 17 /* 16 hex digits: a string, as readers of JSON lose digits of large numbers */

/* The event that is being written. */
struct event {
    struct ash_page_reader *reader;
    struct ash_str *out;
    enum ash_page_record_kind kind; /* STORED or REMOVED; CLEARED: none is open */
    uint64_t parent, last;          /* names */
    bool has_parent;
};

static const char *print_name(uint64_t name, char text_out[NAME_BYTES])
{
    snprintf(text_out, NAME_BYTES, "%016llx", (unsigned long long)name);
    return text_out;
}

static void put_name(struct ash_str *out, const char *key, uint64_t name)
{
    char text[NAME_BYTES];

    ash_json_put_text(out, key, print_name(name, text));
}

/* Append a list that is written already. */
static void put_list(struct ash_str *out, const char *key, struct ash_str *list)
{
    ash_json_put_end(list, ']');
    ash_json_put_key(out, key);
    (void)ash_str_fail(out, list->rc);
    (void)ash_str_add(out, list->data != NULL ? list->data : "", list->size_bytes);
}

static void end_event(struct event *event)
{
    struct ash_page_reader *reader = event->reader;
    const struct ash_page_events_opts *opts = &reader->events->opts;
    struct ash_str *out = event->out;
    bool is_stored = event->kind == ASH_PAGE_STORED;

    if (event->kind == ASH_PAGE_CLEARED) return;
    ash_json_put_end(&reader->ends, ']');
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_text(out, "type", is_stored ? "BlockStored" : "BlockRemoved");
    put_list(out, "block_hashes", &reader->hashes);
    if (is_stored) {
        if (event->has_parent)
            put_name(out, "parent_block_hash", event->parent);
        else
            ash_json_put_null(out, "parent_block_hash");
        put_list(out, "token_ids", &reader->ids);
        ash_json_put_int(out, "block_size", (int64_t)opts->page_tokens);
        ash_json_put_null(out, "lora_id");
    }
    ash_json_put_text(out, "medium", opts->medium);
    put_list(out, "prompt_blocks", &reader->ends);
    ash_json_put_end(out, '}');
    event->kind = ASH_PAGE_CLEARED;
}

static void begin_event(struct event *event, enum ash_page_record_kind kind)
{
    struct ash_str *const lists[] = {&event->reader->hashes, &event->reader->ids, &event->reader->ends};

    end_event(event);
    event->kind = kind;
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
        ash_str_clear(lists[i]);
        ash_json_put_begin(lists[i], NULL, '[');
    }
}

static void add_name(struct event *event, uint64_t name)
{
    struct ash_str *ends = &event->reader->ends;

    put_name(&event->reader->hashes, NULL, name);
    if (ends->size_bytes > 1) ash_json_put_end(ends, ']'); /* of the page before */
    ash_json_put_begin(ends, NULL, '[');
    event->last = name;
}

/* A page that is stored now. */
static void add_stored(struct event *event, int32_t page)
{
    const struct ash_page_events *events = event->reader->events;
    const struct ash_page_entry *entry = &events->entries[page];
    const int32_t *tokens = &events->tokens[(size_t)page * events->opts.page_tokens];

    if (event->kind != ASH_PAGE_STORED || !entry->has_parent || entry->parent_name != event->last) {
        begin_event(event, ASH_PAGE_STORED);
        event->parent = entry->parent_name;
        event->has_parent = entry->has_parent;
    }
    add_name(event, entry->name);
    for (size_t i = 0; event->reader->wants_tokens && i < events->opts.page_tokens; i++)
        ash_json_put_int(&event->reader->ids, NULL, tokens[i]);
}

/* A page that was dropped, by the name that it had. */
static void add_removed(struct event *event, uint64_t name)
{
    if (event->kind != ASH_PAGE_REMOVED) begin_event(event, ASH_PAGE_REMOVED);
    add_name(event, name);
}

static void add_cleared(struct event *event)
{
    end_event(event);
    ash_json_put_begin(event->out, NULL, '{');
    ash_json_put_text(event->out, "type", "AllBlocksCleared");
    ash_json_put_end(event->out, '}');
}

static void add_record(struct event *event, const struct ash_page_record *record)
{
    const struct ash_page_events *events = event->reader->events;
    bool is_there = record->page != ASH_PAGE_NONE && events->entries[record->page].serial != 0 &&
                    events->entries[record->page].name == record->name;

    switch (record->kind) {
    case ASH_PAGE_CLEARED:
        add_cleared(event);
        break;
    case ASH_PAGE_STORED:
        if (is_there) add_stored(event, record->page); /* else a later record says that it is gone */
        break;
    case ASH_PAGE_BLOCK:
        if (is_there && (event->kind != ASH_PAGE_STORED || event->last != record->name))
            add_stored(event, record->page);
        if (is_there) put_name(&event->reader->ends, NULL, record->hash);
        break;
    case ASH_PAGE_REMOVED:
        add_removed(event, record->name);
        break;
    case ASH_PAGE_BLOCK_GONE:
        if (event->kind != ASH_PAGE_REMOVED || event->last != record->name) add_removed(event, record->name);
        put_name(&event->reader->ends, NULL, record->hash);
        break;
    }
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void begin_batch(struct ash_str *out)
{
    (void)ash_str_adds(out, "data: {");
    ash_json_put_number(out, "ts", ash_clock_wall_s(), 17);
    ash_json_put_begin(out, "events", '[');
}

static int end_batch(struct event *event)
{
    end_event(event);
    ash_json_put_end(event->out, ']');
    ash_json_put_end(event->out, '}');
    return ash_str_adds(event->out, "\n\n");
}

int ash_page_events_write(struct ash_page_reader *reader, uint64_t from, uint64_t to, struct ash_str *out)
{
    const struct ash_page_events *events = reader->events;
    struct event event = {.reader = reader, .out = out, .kind = ASH_PAGE_CLEARED};

    begin_batch(out);
    for (; from < to; from++)
        add_record(&event, &events->records[from % events->opts.records_max]);
    return end_batch(&event);
}

int ash_page_events_write_list(struct ash_page_reader *reader, size_t most, bool is_first, struct ash_str *out)
{
    const struct ash_page_events *events = reader->events;
    struct event event = {.reader = reader, .out = out, .kind = ASH_PAGE_CLEARED};

    begin_batch(out);
    if (is_first) add_cleared(&event);
    for (; most > 0 && reader->listed != ASH_PAGE_NONE; most--) {
        const struct ash_page_entry *entry = &events->entries[reader->listed];

        if (entry->serial > reader->list_end) break;
        add_stored(&event, reader->listed);
        for (int32_t block = entry->blocks; block != ASH_PAGE_NONE; block = events->blocks[block].next)
            put_name(&reader->ends, NULL, events->blocks[block].hash);
        reader->listed = entry->newer;
    }
    return end_batch(&event);
}
