/* namespace (private) - what its files share. The local folder has: data/ (files under their keys), odd/ (files whose
 * key cannot be a path), extents/ (a log per object), put/ (objects that wait for their export), journal. */
#ifndef ASH_STORAGE_NAMESPACE_NAMESPACE_PRIV_H
#define ASH_STORAGE_NAMESPACE_NAMESPACE_PRIV_H

#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include "storage/namespace/extents_priv.h"
#include "storage/namespace/journal_priv.h"
#include "storage/namespace/settings.h"

struct ash_namespace {
    char *url;    /* of the bucket, or the path of the folder: one namespace for all prefixes */
    char *prefix; /* of the caller's keys, "" or with a slash at its end; inside, keys are full */
    char *folder, *files;
    struct ash_cache_opts cache;
    struct ash_s3_opts s3;
    struct ash_tier *tier;                   /* the remote place; opened when it is needed */
    struct ash_tier *local;                  /* data/, whose keys are full */
    uint64_t fetched_bytes;                  /* in all */
    uint64_t since_bytes;                    /* fetched since room was looked at */
    bool has_warned;                         /* that the local folder takes no more */
    const struct ash_namespace_guard *guard; /* may be NULL */
    double keep_since_s;                     /* objects used since then are not released; 0: no such time */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct ash_journal *journal;
    pthread_t exporter;
    bool is_exporting, is_stopping;
    int export_rc;
    struct ash_err export_err;
    uint64_t exported_bytes; /* of the object that is under way */
};

struct ash_object {
    struct ash_namespace *space;
    struct ash_extents *extents; /* NULL: local, all in fd */
    uint64_t id, size_bytes;
    int fd;
    char key[ASH_TIER_KEY_BYTES], version[ASH_TIER_VERSION_BYTES];
};

/* The full key of a caller's one into full. Returns 0 or -EINVAL if it is empty or too long. */
int ash_namespace_full_key(const struct ash_namespace *space, const char *key, char full[ASH_TIER_KEY_BYTES],
                           struct ash_err *err);
/* Every object that is known here, with its full key. */
int ash_namespace_each_full(struct ash_namespace *space, ash_object_each_fn each, void *ctx, struct ash_err *err);
/* The remote place, opened on first use. */
int ash_namespace_tier(struct ash_namespace *space, struct ash_err *err);
/* The path of the log of key. */
int ash_namespace_log_path(const struct ash_namespace *space, const char *key, char path[PATH_MAX],
                           struct ash_err *err);
/* The path of the file of key. */
int ash_namespace_file_path(const struct ash_namespace *space, const char *key, bool is_odd, char path[PATH_MAX],
                            struct ash_err *err);
/* The path of a file that waits. */
int ash_namespace_put_path(const struct ash_namespace *space, const char *file, char path[PATH_MAX],
                           struct ash_err *err);
/* Open or make the file of key, as long as the object; *is_odd_out: it has a hashed name instead of the key's. Returns
 * the descriptor or a negative errno. */
int ash_namespace_open_file(const struct ash_namespace *space, const struct ash_tier_object *remote, const char *key,
                            bool *is_odd_out, struct ash_err *err);
/* Open an object, by its full key, that the server just described. */
int ash_object_open_as(struct ash_namespace *space, const char *key, const struct ash_tier_object *remote,
                       struct ash_object **object_out, struct ash_err *err);
/* Which objects (by their full keys) are not fetched; those are left to leave, which may end it all. The others go to
 * take when they are here, open, which owns them: an open object that is whole is not released. */
struct ash_namespace_filter {
    bool (*stays)(const char *key, uint64_t size_bytes);
    int (*leave)(void *ctx, const struct ash_object *object, bool is_whole, struct ash_err *err);
    void (*take)(void *ctx, struct ash_object *object);
    void *ctx;
};
/* ash_namespace_fetch_url for objects that pass a filter (may be NULL); take gets those of a prefix. */
int ash_namespace_bring_url(const char *url, const struct ash_namespace_settings *settings,
                            const struct ash_namespace_watch *watch, const struct ash_namespace_filter *filter,
                            struct ash_str *path, struct ash_err *err);
/* If every byte of an object has been fetched by ranges, compare them with the checksum of the place; the file is whole
 * from now on. -EBADMSG if they are wrong: then all local bytes are dropped. If the place is unreachable, retry next
 * time. */
int ash_object_confirm(struct ash_object *object, struct ash_err *err);
/* A number that changes when a file does. */
uint64_t ash_namespace_stamp(const struct stat *info);
/* What waits of key, copied; strings go to buffers of the sizes of a key and 64. Returns false where nothing waits. */
bool ash_namespace_waits(struct ash_namespace *space, const char *key, struct ash_journal_entry *entry_out,
                         char file_out[64]);
/* Remove the file of an object, and its extents from the log. */
int ash_namespace_drop(struct ash_namespace *space, struct ash_extents *extents, struct ash_err *err);
/* Bytes came from the remote place: look at room once in a while. */
void ash_namespace_count(struct ash_namespace *space, uint64_t bytes);

#endif
