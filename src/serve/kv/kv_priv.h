/* kv_priv - the inside of the tiers. */
#ifndef ASH_SERVE_KV_KV_PRIV_H
#define ASH_SERVE_KV_KV_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "infra/memory.h"
#include "serve/kv/kv.h"
#include "serve/kv/peer.h"
#include "serve/kv/place.h"
#include "serve/kv/shelf.h"

#define ASH_KV_READERS 4
#define ASH_KV_BUFFERS 8 /* files that are read or wait to be taken */

/* Pages in host memory. The engine thread's. */
struct ash_kv_host {
    struct ash_kv_index index;
    struct ash_buffer region; /* [slots] pages */
    int32_t **tokens;         /* [slots]: the prefix of each, or NULL */
    uint64_t *salts, *fingerprints;
    size_t *counts;
    uint32_t *free; /* a stack */
    size_t slots, free_count, page_bytes;
    double page_s;
    struct ash_kv_tier_stats stats;
};

/* host.c: room for as many pages as fit into bytes. Returns 0 or -ENOMEM. */
int ash_kv_host_open(struct ash_kv_host *host, uint64_t bytes, size_t page_bytes, const struct ash_memory_ops *memory,
                     struct ash_err *err);
/* Free it; a zeroed struct is a no-op. */
void ash_kv_host_close(struct ash_kv_host *host);
/* Take a page of the pool, unless it is there. */
void ash_kv_host_put(struct ash_kv_host *host, const struct ash_kv_pool *pool, const struct ash_kv_prefix *prefix,
                     int32_t page);
/* The bytes of exactly this prefix's page, or NULL. Valid until the next put. */
const void *ash_kv_host_get(struct ash_kv_host *host, struct ash_kv_name name, const struct ash_kv_prefix *prefix);
/* Forget all pages. */
void ash_kv_host_clear(struct ash_kv_host *host);

enum ash_kv_piece_state { ASH_KV_PIECE_WAITS, ASH_KV_PIECE_READING, ASH_KV_PIECE_READY, ASH_KV_PIECE_FAILED };

/* A page of a load. */
struct ash_kv_piece {
    enum ash_kv_tier tier;
    enum ash_kv_piece_state state;
    void *buffer; /* while it is READING or READY */
};

struct ash_kv_load {
    struct ash_kv *kv;
    struct ash_kv_prefix prefix; /* up to the last page; its tokens are the load's own */
    int32_t *tokens;
    struct ash_kv_name *names;   /* [first + count] */
    struct ash_kv_piece *pieces; /* [count] */
    struct ash_kv_source source; /* without tokens: none */
    size_t first, count;         /* pages */
    size_t asked, taken;         /* of them */
    size_t reading;              /* readers that are at it */
    bool is_closed;
    uint64_t progress_ns;
    /* of a source that is still computing: */
    bool is_growing, is_looked_at;             /* the latter: a reader looks how far it is */
    size_t grown;                              /* pages of the prompt that are there */
    uint64_t beat, beat_ns, grown_ns, look_ns; /* its last beat, when it came, its last page; when to look next */
    struct ash_kv_load *next;                  /* of all that are open */
};

struct ash_kv {
    struct ash_kv_pool pool;
    size_t page_bytes, file_bytes; /* file_bytes: the largest */
    atomic_bool is_armed;
    _Atomic uint64_t fingerprint;
    struct ash_kv_opts opts;
    struct ash_kv_host host;                   /* without slots: there is none */
    struct ash_kv_place *places[ASH_KV_TIERS]; /* NULL: there is none */
    struct ash_kv_shelf *shelf;                /* NULL: there is none */
    uint64_t declined[ASH_KV_TIERS];
    unsigned declines; /* since a load was tried all the same */
    /* readers: */
    struct ash_kv_reader {
        struct ash_kv *kv;
        pthread_t thread;
        bool has_thread;
        struct ash_kv_store *stores[ASH_KV_TIERS];
        struct ash_kv_peer *peer; /* opened with the first page that it reads */
    } readers[ASH_KV_READERS];
    bool has_lock;
    pthread_mutex_t lock; /* guards what follows, and the pieces of loads */
    pthread_cond_t work, ready;
    struct ash_kv_load *loads;
    struct ash_buffer buffers[ASH_KV_BUFFERS];
    void *free_buffers[ASH_KV_BUFFERS];
    size_t buffer_count, free_count;
    uint64_t ready_serial, seen_serial; /* pieces that ended; those that the engine knew of */
    bool is_stopping;
    bool has_watch; /* one reader wakes when a load is to be looked at, the others by a signal alone */
    struct ash_kv_tier_stats peer_stats;
    double peer_page_s; /* what a page takes; 0: not measured */
};

/* load.c: no sequence takes its pages any more: buffers back, and out of the list. Under the lock, without a reader in
 * it. */
void ash_kv_load_remove(struct ash_kv_load *load);

/* readers.c: start the readers. Returns 0 or a negative errno. */
int ash_kv_start_readers(struct ash_kv *kv, const struct ash_memory_ops *memory, struct ash_err *err);
/* Stop them, and free their buffers. */
void ash_kv_stop_readers(struct ash_kv *kv);
#endif
