/* kv - tiers below the pool of pages: host memory, a folder on a disk, a bucket, other servers. Whole pages of prefixes
 * go there when they are full or leave the pool, and come back if that is faster than computing them. A page that is
 * missing, is damaged or is of other weights is computed: a tier never changes an answer and never fails one. The
 * engine's thread calls all of this but ash_kv_open, ash_kv_arm and ash_kv_describe. */
#ifndef ASH_SERVE_KV_KV_H
#define ASH_SERVE_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "ashlar/transfer.h"
#include "infra/memory.h"
#include "model/pass/cache.h"
#include "storage/s3/s3.h"
#include "serve/kv/index.h"

struct ash_kv;
struct ash_kv_load;

/* Zeroes are none. All borrowed until ash_kv_close. */
struct ash_kv_opts {
    uint64_t host_bytes;
    const char *dir;
    uint64_t dir_bytes; /* of all files in it */
    const char *remote; /* s3://bucket/prefix */
    const struct ash_s3_opts *s3;
    uint64_t shelf_bytes; /* of pages that other processes read: a prefill server's */
    bool reads_peers;     /* pages of other processes' shelves: a decode server's */
    bool reads_always;    /* also where computing is faster: for tests */
};

enum ash_kv_tier { ASH_KV_HOST, ASH_KV_DIR, ASH_KV_REMOTE, ASH_KV_SHELF, ASH_KV_PEER, ASH_KV_TIERS };

/* What a prefill server computes of a prompt: its first tokens, and where their pages are. */
struct ash_kv_source {
    size_t tokens;
    uint64_t fingerprint;
    uint64_t job; /* it is being computed, and pages come (ash_kv_open_job); 0: all are there */
    struct ash_port_description shelf;
};

/* Of one tier, since it was opened, but for pages and bytes: those that it has now. */
struct ash_kv_tier_stats {
    uint64_t pages, bytes;
    uint64_t pages_read, bytes_read;        /* found, whole and handed over */
    uint64_t stored, bytes_written;         /* pages that it took */
    uint64_t evictions, damaged;            /* damaged: torn, changed, or of other weights */
    uint64_t write_failures, read_failures; /* a full disk, a bucket that is away */
    uint64_t skipped;                       /* not taken: too many were on their way, or writes failed */
    uint64_t declined;                      /* times that computing was faster */
};

struct ash_kv_stats {
    struct ash_kv_tier_stats tiers[ASH_KV_TIERS];
};

/* The name of a tier in metrics. */
const char *ash_kv_tier_name(enum ash_kv_tier tier);

/* The pool: whole pages, also those that ranks share. Both return 0 or a negative errno. */
struct ash_kv_pool {
    size_t page_bytes;
    int (*read)(void *ctx, int32_t page, void *data);
    int (*write)(void *ctx, int32_t page, const void *data);
    void *ctx;
};

/* Tiers below a pool, whose ctx is borrowed; max_tokens of a sequence. buffers: the memory that the device copies
 * fastest. Returns 0 or a negative errno with a sentence. The caller owns *kv_out. */
int ash_kv_open(const struct ash_kv_opts *opts, const struct ash_kv_pool *pool, const struct ash_memory_ops *buffers,
                size_t max_tokens, struct ash_kv **kv_out, struct ash_err *err);
/* Loads must be closed. Pages on their way are written. NULL is a no-op. */
void ash_kv_close(struct ash_kv *kv);
/* Weights and arithmetic have this fingerprint: until it is known no page goes or comes. Any thread. */
void ash_kv_arm(struct ash_kv *kv, uint64_t fingerprint);

/* Where others read pages of these tiers. Returns false if there are none, or the fingerprint is not known yet. Any
 * thread. */
bool ash_kv_describe(const struct ash_kv *kv, struct ash_kv_source *source_out);

/* A prompt is to be computed for other processes, which read its pages as they come. Returns its number. There is a
 * shelf. Any thread. */
uint64_t ash_kv_open_job(const struct ash_kv *kv);
/* That many of its first pages are there; over: no more will come. */
void ash_kv_tell_job(struct ash_kv *kv, uint64_t job, size_t pages, bool is_over);

/* A page of the pool, for the tiers: tokens [count] under salt, of which `page` is the last page. */
struct ash_kv_page {
    uint64_t salt;
    const int32_t *tokens;
    size_t count; /* a multiple of ASH_CACHE_PAGE_TOKENS, not 0 */
    int32_t page;
    const struct ash_kv_source *source; /* of a load: a prefill server that may have it; NULL: none */
};

/* A page is full: those tiers take it that outlive the process. */
void ash_kv_keep(struct ash_kv *kv, const struct ash_kv_page *page);
/* The same of all whole pages of tokens [count], in `pages`: those that no tier had room for. */
void ash_kv_keep_all(struct ash_kv *kv, const struct ash_kv_page *text, const int32_t *pages);
/* A page leaves the pool: all tiers take it that lack it. */
void ash_kv_evict(struct ash_kv *kv, const struct ash_kv_page *page);
/* The pool is of other weights now: nothing goes or comes until ash_kv_arm. No load is open. */
void ash_kv_disarm(struct ash_kv *kv);
/* Forget what host memory has, and what others read. */
void ash_kv_forget(struct ash_kv *kv);

/* Begin to read the pages of tokens [count] under salt from page number `first` on, as far as tiers have them. row_s:
 * what computing a token takes, 0 if that is not known. NULL: none is there, or computing is faster. */
struct ash_kv_load *ash_kv_load_open(struct ash_kv *kv, const struct ash_kv_page *text, size_t first, double row_s);
/* Its next page, in order, into a page of the pool. Returns 1: it is there. 0: not yet. Negative: it will not
 * come, and nothing after it. */
int ash_kv_load_take(struct ash_kv_load *load, int32_t page);
/* Is the next page there, or will it not come? */
bool ash_kv_load_is_ready(struct ash_kv_load *load);
/* Give up the pages that were not taken. NULL is a no-op. */
void ash_kv_load_close(struct ash_kv_load *load);
/* Wait until any page of any load is there, timeout_s at most. */
void ash_kv_wait(struct ash_kv *kv, double timeout_s);
/* Figures of all tiers. */
void ash_kv_get_stats(struct ash_kv *kv, struct ash_kv_stats *stats_out);

#endif
