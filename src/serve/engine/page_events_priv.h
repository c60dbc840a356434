/* page_events_priv - what the two files of page_events share. Under the lock, all of it. */
#ifndef ASH_SERVE_ENGINE_PAGE_EVENTS_PRIV_H
#define ASH_SERVE_ENGINE_PAGE_EVENTS_PRIV_H

#include <pthread.h>

#include "serve/engine/page_events.h"

#define ASH_PAGE_NONE (-1)

enum ash_page_record_kind {
    ASH_PAGE_STORED,
    ASH_PAGE_BLOCK, /* of the page in front of it, or of one that was stored before */
    ASH_PAGE_REMOVED,
    ASH_PAGE_BLOCK_GONE, /* of the removed page in front of it */
    ASH_PAGE_CLEARED,
};

struct ash_page_record {
    enum ash_page_record_kind kind;
    int32_t page;
    uint64_t name; /* of the page */
    uint64_t hash; /* of the block */
};

/* A page that is stored. */
struct ash_page_entry {
    uint64_t name, parent_name, serial; /* serial: in the order of storing; 0: the page is not stored */
    bool has_parent;
    int32_t older, newer; /* stored pages, by serial */
    int32_t blocks;       /* the first of its list, or NONE */
    size_t block_count;
};

/* A block of a prompt that ends in a page. */
struct ash_page_block {
    uint64_t hash;
    int32_t next;  /* of the page, or of the free ones */
    int32_t chain; /* of its bucket */
};

struct ash_page_reader {
    struct ash_page_events *events;
    struct ash_page_reader *next;
    bool wants_tokens;
    void (*wake)(void *ctx);
    void *ctx;
    uint64_t at;                      /* the next record */
    bool is_new, is_listing;          /* it gets all that is stored, */
    int32_t listed;                   /* from this page on, NONE: none is left, */
    uint64_t list_end;                /* up to this serial */
    struct ash_str hashes, ids, ends; /* of the event that is being written */
};

struct ash_page_events {
    struct ash_page_events_opts opts;
    pthread_mutex_t lock;           /* guards what follows */
    struct ash_page_entry *entries; /* [pages] */
    int32_t *tokens;                /* [pages, page_tokens] */
    int32_t oldest, newest;
    size_t count;
    uint64_t serial;
    struct ash_page_block *blocks; /* [block_count] */
    int32_t *buckets;              /* [mask + 1] */
    size_t block_count, mask;
    int32_t free_block;
    struct ash_page_record *records; /* [records_max], a ring */
    uint64_t end, woken;             /* records since the start; those that readers were woken for */
    struct ash_page_reader *readers;
    bool has_ended;
};

/* page_events_write.c: append records [from, to) as one batch. Returns out->rc. */
int ash_page_events_write(struct ash_page_reader *reader, uint64_t from, uint64_t to, struct ash_str *out);
/* Append up to `most` pages that are stored, from reader->listed on, as one batch; is_first: after AllBlocksCleared. */
int ash_page_events_write_list(struct ash_page_reader *reader, size_t most, bool is_first, struct ash_str *out);

#endif
