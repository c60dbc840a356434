/* index - which pages a tier has: by name, and in the order of their last use. Pages that were found more than once are
 * pinned: they are the beginnings that prompts share, and stay while others go, until they have been passed over a few
 * times. Not locked: its owner's. */
#ifndef ASH_SERVE_KV_INDEX_H
#define ASH_SERVE_KV_INDEX_H

#include "serve/kv/page_file.h"

struct ash_kv_entry {
    struct ash_kv_name name;
    size_t bytes;
    uint32_t slot;  /* of the owner */
    uint8_t uses;   /* times found, up to a few; halved when it is passed over */
    bool is_coming; /* it is being written: not to be read yet */
    bool is_seen;   /* of the owner: a listing named it */
    struct ash_kv_entry *older, *newer, *chain;
};

/* Zero-initialise. */
struct ash_kv_index {
    struct ash_kv_entry **buckets;
    size_t mask, count;
    uint64_t bytes;                       /* of all */
    struct ash_kv_entry *oldest, *newest; /* by last use */
};

/* Free all entries. A zeroed struct is a no-op. */
void ash_kv_index_fini(struct ash_kv_index *index);
/* The entry of this name, or NULL. */
struct ash_kv_entry *ash_kv_index_find(const struct ash_kv_index *index, struct ash_kv_name name);
/* A new entry of a name that it does not have, used last. NULL without memory. */
struct ash_kv_entry *ash_kv_index_add(struct ash_kv_index *index, struct ash_kv_name name, size_t bytes);
/* It was used now. is_found: a request found it, which may pin it. */
void ash_kv_index_touch(struct ash_kv_index *index, struct ash_kv_entry *entry, bool is_found);
/* Take it out and free it. */
void ash_kv_index_remove(struct ash_kv_index *index, struct ash_kv_entry *entry);
/* The entry that goes next: used longest ago, not pinned and not coming. NULL: there is none. */
struct ash_kv_entry *ash_kv_index_victim(struct ash_kv_index *index);

#endif
