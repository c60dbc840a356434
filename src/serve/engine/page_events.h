/* page_events - which pages of prefixes the cache stores and drops, for those who route requests to it: the events that
 * vLLM publishes (BlockStored, BlockRemoved, AllBlocksCleared). The engine's thread notes them; a reader first gets all
 * that is stored, then what changes. A reader that falls too far behind gets all again. */
#ifndef ASH_SERVE_ENGINE_PAGE_EVENTS_H
#define ASH_SERVE_ENGINE_PAGE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"

#define ASH_PAGE_EVENTS_PAGE_BLOCKS 64 /* of prompts that may end in one page: several texts have the same tokens */

struct ash_page_events;
struct ash_page_reader;

struct ash_page_events_opts {
    size_t pages, page_tokens; /* of the cache */
    const char *medium;        /* where they lie, as vLLM calls it: "GPU" or "CPU" */
    size_t records_max;        /* that a reader may be behind */
};

/* Memory for all pages is taken here. The caller owns *events_out. */
int ash_page_events_open(const struct ash_page_events_opts *opts, struct ash_page_events **events_out,
                         struct ash_err *err);
/* There must be no reader. NULL is a no-op. */
void ash_page_events_close(struct ash_page_events *events);

/* ---- the engine's thread; events may be NULL: nothing is published ----------------------------------------------- */

/* A page that became part of the tree of prefixes. */
struct ash_page_stored {
    int32_t page, parent;  /* parent -1: it is the first of its prefix */
    uint64_t name;         /* of the prefix that it ends: a hash of salt and tokens */
    const int32_t *tokens; /* [page_tokens] */
};

/* A page is stored. Its parent is stored too. */
void ash_page_events_store(struct ash_page_events *events, const struct ash_page_stored *stored);
/* A stored page is dropped. */
void ash_page_events_remove(struct ash_page_events *events, int32_t page);
/* A block of a prompt (prompt_blocks.h) ends in a stored page. No-op for one that is noted already. */
void ash_page_events_add_block(struct ash_page_events *events, int32_t page, uint64_t block);
/* Wake readers, if there is something new. */
void ash_page_events_publish(struct ash_page_events *events);

/* ---- readers; any thread ----------------------------------------------------------------------------------------- */

/* Begin to read. wake is called if there is something to read; it must not block or call back. */
int ash_page_reader_open(struct ash_page_events *events, bool wants_tokens, void (*wake)(void *ctx), void *ctx,
                         struct ash_page_reader **reader_out);
/* Append the next server-sent event, which is a batch in JSON with up to so many pages; nothing, if nothing is new.
 * Returns 1 if more may come, 0 at the end, or -ENOMEM. */
int ash_page_reader_read(struct ash_page_reader *reader, struct ash_str *out);
/* NULL is a no-op. */
void ash_page_reader_close(struct ash_page_reader *reader);
/* The server ends: every reader is at its end. */
void ash_page_events_end(struct ash_page_events *events);

#endif
