/* ranks_priv - the inside of ranks: their messages. */
#ifndef ASH_SERVE_ENGINE_RANKS_PRIV_H
#define ASH_SERVE_ENGINE_RANKS_PRIV_H

#include "collective/group.h"
#include "parallel/axis_link.h"
#include "serve/engine/ranks.h"

#define ASH_RANKS_HEAD_WORDS 256 /* of each message; a longer one's others follow */
#define ASH_RANKS_DOC_WORDS 4    /* of a document in a message: row, count, position, pages; then the pages */

enum ash_ranks_message {
    ASH_RANKS_END,
    ASH_RANKS_OPEN,
    ASH_RANKS_CLOSE,
    ASH_RANKS_PACK,
    ASH_RANKS_COPY,
    ASH_RANKS_SHARE_PAGES,
    ASH_RANKS_READ_PAGE,
    ASH_RANKS_WRITE_PAGE,
    ASH_RANKS_LAYERS,
    ASH_RANKS_LOGITS,
};

struct ash_ranks {
    struct ash_group *group;
    struct ash_axis_link link;
    struct ash_meter meter;
    int32_t *words; /* [capacity] the current message: kind, count of all words, then its own */
    size_t count, capacity;
    bool has_packed;
    bool *was_stopped;             /* [size], when ash_ranks_watch looked */
    struct ash_shared_floats page; /* a whole page, of which each rank has a part; NULL: none is shared */
    size_t page_bytes;
};

/* ranks_send.c: the current message, from the first rank to all: sent there, received here. Returns 0 or the group's
 * error. */
int ash_ranks_broadcast(struct ash_ranks *ranks, struct ash_err *err);
/* A message about one page. Returns 0 or the group's error. */
int ash_ranks_send_page(struct ash_ranks *ranks, enum ash_ranks_message kind, int32_t page, struct ash_err *err);
/* A message without words, if this is the first rank. The group may have ended: then it is dropped. NULL is a no-op. */
void ash_ranks_send_plain(struct ash_ranks *ranks, enum ash_ranks_message kind);

/* ranks_pages.c, on all ranks: memory for a page of this cache, whole. */
int ash_ranks_open_page(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err);
/* Close it. Without it, and of NULL, a no-op. */
void ash_ranks_close_page(struct ash_ranks *ranks);
/* Put this rank's part of a page there and wait for all. */
int ash_ranks_put_part(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, struct ash_err *err);
/* The same the other way. */
int ash_ranks_take_part(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, struct ash_err *err);

#endif
