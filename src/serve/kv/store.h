/* store - where page files lie: a folder or a bucket, behind one table. A store is a handle of one thread; several may
 * be open on one place. Files appear whole or not at all. Calls return 0 or a negative errno. */
#ifndef ASH_SERVE_KV_STORE_H
#define ASH_SERVE_KV_STORE_H

#include "ashlar/err.h"
#include "storage/s3/s3.h"
#include "serve/kv/page_file.h"

struct ash_kv_store;

/* A file of a listing. */
struct ash_kv_listed {
    struct ash_kv_name name;
    uint64_t bytes;
    double modified_s; /* since 1970 */
};

typedef int (*ash_kv_listed_fn)(void *ctx, const struct ash_kv_listed *file);

struct ash_kv_store_ops {
    size_t size;      /* of this table */
    const char *name; /* of the tier, for metrics */
    int (*list)(struct ash_kv_store *store, uint64_t fingerprint, ash_kv_listed_fn each, void *ctx,
                struct ash_err *err);
    int (*read)(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, void *data, size_t bytes);
    int (*write)(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name, const void *data,
                 size_t bytes);
    int (*remove)(struct ash_kv_store *store, uint64_t fingerprint, struct ash_kv_name name);
    void (*touch)(struct ash_kv_store *store, struct ash_kv_name name);
    void (*close)(struct ash_kv_store *store);
};

/* Every store begins with this. */
struct ash_kv_store {
    const struct ash_kv_store_ops *ops;
};

/* A folder, which is made if it is not there (mode 0700, files 0600); one without the right to write is refused. Pages
 * of all weights lie side by side. The caller owns *store_out. */
int ash_kv_store_open_dir(const char *path, struct ash_kv_store **store_out, struct ash_err *err);
/* A bucket: s3://bucket/prefix; pages of each fingerprint below a folder of their own. s3 as for ash_tier_open. */
int ash_kv_store_open_remote(const char *url, const struct ash_s3_opts *s3, struct ash_kv_store **store_out,
                             struct ash_err *err);
/* NULL is a no-op. */
void ash_kv_store_close(struct ash_kv_store *store);

#endif
