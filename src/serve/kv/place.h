/* place - a tier of page files: its index, pages on their way to it, and a thread that writes them, makes room and
 * lists again what others wrote. Any thread may ask; one thread, the engine's, gives it pages. */
#ifndef ASH_SERVE_KV_PLACE_H
#define ASH_SERVE_KV_PLACE_H

#include "serve/kv/kv.h"
#include "serve/kv/store.h"

struct ash_kv_place;

/* Opens a handle for a thread. */
typedef int (*ash_kv_store_open_fn)(const void *ctx, struct ash_kv_store **store_out, struct ash_err *err);

struct ash_kv_place_opts {
    ash_kv_store_open_fn open;
    const void *ctx;      /* of open; borrowed */
    uint64_t limit_bytes; /* 0: no limit */
    size_t file_bytes;    /* the largest file */
    bool lists_at_open;   /* or once the fingerprint is known */
};

/* Open a place, list it, and start its thread. The caller owns *place_out. */
int ash_kv_place_open(const struct ash_kv_place_opts *opts, struct ash_kv_place **place_out, struct ash_err *err);
/* Pages on their way are written first. NULL is a no-op. */
void ash_kv_place_close(struct ash_kv_place *place);
/* Names are of this fingerprint from now on. */
void ash_kv_place_arm(struct ash_kv_place *place, uint64_t fingerprint);

/* Does it have this page? Any thread. */
bool ash_kv_place_has(struct ash_kv_place *place, struct ash_kv_name name);
/* Room for a file that it does not have and can take now, or NULL. Fill it in, then submit. */
void *ash_kv_place_reserve(struct ash_kv_place *place, struct ash_kv_name name, size_t bytes);
/* Write the file of the last reserve, or (is_whole false) forget it. */
void ash_kv_place_submit(struct ash_kv_place *place, bool is_whole);
/* Read the file of a prefix through a handle of the caller's, and check it. A damaged one is removed, and counted.
 * Returns 0 or a negative errno. Any thread. */
int ash_kv_place_read(struct ash_kv_place *place, struct ash_kv_store *store, struct ash_kv_name name,
                      const struct ash_kv_prefix *prefix, size_t page_bytes, void *file);
/* Pages of a name list [count] were used: the first one goes last. */
void ash_kv_place_touch(struct ash_kv_place *place, struct ash_kv_store *store, const struct ash_kv_name *names,
                        size_t count);
/* Seconds that a page takes, with as many readers as there are; 0: not measured. */
double ash_kv_place_page_seconds(struct ash_kv_place *place);
/* Its figures. */
void ash_kv_place_stats(struct ash_kv_place *place, struct ash_kv_tier_stats *stats_out);

#endif
