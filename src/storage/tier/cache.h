/* cache - objects of a remote place as files of this machine: what is missing or has changed is fetched, the rest
 * stays. The folder has a record of which version each file is, written after the file: a process that is killed leaves
 * files that are fetched again, never wrong ones. Of several processes that want the same place, one fetches. */
#ifndef ASH_STORAGE_TIER_CACHE_H
#define ASH_STORAGE_TIER_CACHE_H

#include "base/str.h"
#include "storage/tier/tier.h"

struct ash_tier_cache {
    const char *root;             /* the folder that holds all cached places; NULL: ash_tier_cache_root's */
    const struct ash_s3_opts *s3; /* how the server is reached */
    /* Told before each file and while it comes: its key and how much of everything that is fetched is there. A negative
     * result ends it. May be NULL. */
    int (*progress)(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes, struct ash_err *err);
    void *ctx;
};

/* $ASHLAR_CACHE_DIR, else $XDG_CACHE_HOME/ashlar, else $HOME/.cache/ashlar, appended to path. Returns 0, -ENOMEM, or
 * -ENOENT with a sentence where none is set. */
int ash_tier_cache_root(struct ash_str *path, struct ash_err *err);
/* Bring url (an object, or all below a prefix) into the cache, and append the path of the file or folder to path.
 * Files whose object is gone are removed. Returns 0 or a negative errno with a sentence; -ENOENT where there is
 * nothing. */
int ash_tier_cache_fetch(const struct ash_tier_cache *cache, const char *url, struct ash_str *path,
                         struct ash_err *err);

#endif
