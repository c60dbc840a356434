/* namespace - the objects of a remote place (a bucket, or any tier) as if they were local, like Lustre's HSM and FSx.
 * An object is local (not in the remote place yet), exported (in both), released (known here, its bytes there) or
 * remote. Local facts need no request; the first read fetches the ranges that it needs; finished objects are exported
 * in the background through a journal; if space runs low, the least recently read ones are released, except for pinned
 * ones, and fetched again when they are read. Several processes may share the local folder. A namespace belongs to one
 * thread at a time; the exporting thread is its own. Calls return 0 or a negative errno with a sentence in err. */
#ifndef ASH_STORAGE_NAMESPACE_NAMESPACE_H
#define ASH_STORAGE_NAMESPACE_NAMESPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/opts.h"
#include "base/str.h"
#include "storage/tier/tier.h"

/* Settings of section "cache". */
struct ash_cache_opts {
    const char *dir; /* NULL: ash_cache_dir's */
    int64_t bytes;   /* of cached objects of one bucket; 0: as long as a tenth of the disk is free */
};

extern const struct ash_opt_table ash_cache_table;

enum ash_object_state { ASH_OBJECT_LOCAL, ASH_OBJECT_EXPORTED, ASH_OBJECT_RELEASED, ASH_OBJECT_REMOTE };

/* "local", "exported", "released", "remote". */
const char *ash_object_state_name(enum ash_object_state state);

struct ash_namespace;
struct ash_object; /* an object that is open for reading */

/* Facts of an object. */
struct ash_object_info {
    enum ash_object_state state;
    bool is_pinned;
    uint64_t size_bytes, here_bytes; /* here_bytes: of them in the local folder */
    double waits_s;                  /* local: since when it waits for its export, in seconds since 1970 */
    char version[ASH_TIER_VERSION_BYTES];
};

/* Progress of transfers: key, bytes done, bytes in all. A negative result ends it. */
struct ash_namespace_watch {
    int (*progress)(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes, struct ash_err *err);
    void *ctx;
};

/* Open the namespace of a bucket or folder, for keys below url: s3://bucket, s3://bucket/prefix, or a path. cache and
 * s3 are copied; their pointers are borrowed until close. No request to the server. The caller owns *space_out. */
int ash_namespace_open(const char *url, const struct ash_cache_opts *cache, const struct ash_s3_opts *s3,
                       struct ash_namespace **space_out, struct ash_err *err);
/* Stop exporting (the journal has the rest), and free. NULL is a no-op. */
void ash_namespace_close(struct ash_namespace *space);
/* Its local folder. Borrowed. */
const char *ash_namespace_folder(const struct ash_namespace *space);
/* Bytes that it fetched from the remote place since it was opened. */
uint64_t ash_namespace_fetched_bytes(const struct ash_namespace *space);
/* Where the files of its keys are on this machine under their own names, once they were fetched. Borrowed. */
const char *ash_namespace_files(const struct ash_namespace *space);

/* Facts of an object; a request to the server only if nothing is known here. -ENOENT: no such object. */
int ash_namespace_stat(struct ash_namespace *space, const char *name, struct ash_object_info *info_out,
                       struct ash_err *err);

/* The same without ever asking the server. False where nothing is known of it here. */
bool ash_namespace_recall(struct ash_namespace *space, const char *name, struct ash_object_info *info_out);

/* Receives an object that is known here. A negative result ends the list and is returned. */
typedef int (*ash_object_each_fn)(void *ctx, const char *key, const struct ash_object_info *info);
/* Every object below the namespace's prefix that is known here, in no order; no request to the server. */
int ash_namespace_each(struct ash_namespace *space, ash_object_each_fn each, void *ctx, struct ash_err *err);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Open an object. wants_fresh: check with the server; if the object has changed there the new version is used from now
 * on. */
int ash_object_open(struct ash_namespace *space, const char *key, bool wants_fresh, struct ash_object **object_out,
                    struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_object_close(struct ash_object *object);
/* Its size in bytes. */
uint64_t ash_object_size(const struct ash_object *object);

/* Bytes of an open object, and where they go. */
struct ash_object_range {
    struct ash_object *object;
    uint64_t offset;
    size_t size_bytes;
    void *data;
};

/* Read ranges of objects of one namespace: local bytes verified; the rest from the remote place, several ranges at a
 * time, and cached. -ESTALE: the object has changed since it was opened; -ERANGE: it is not that long. */
int ash_namespace_read(struct ash_namespace *space, const struct ash_object_range *ranges, size_t count,
                       struct ash_err *err);
/* Fetch a whole object, compared with the checksum of the place if it has one, and append the path of its file
 * to path (may be NULL). The file stays until the object is released. watch may be NULL. */
int ash_namespace_fetch(struct ash_namespace *space, const char *key, const struct ash_namespace_watch *watch,
                        struct ash_str *path, struct ash_err *err);
/* Bring url, an object or all below a prefix, here and append the path of the file or folder to path. */
int ash_namespace_fetch_url(const char *url, const struct ash_cache_opts *cache, const struct ash_s3_opts *s3,
                            const struct ash_namespace_watch *watch, struct ash_str *path, struct ash_err *err);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The file at path becomes the object of this name: it is on this machine's disk when this returns 0, and waits for
 * its export. wants_move: the file itself is taken (it must be on the same file system), else a copy. */
int ash_namespace_put(struct ash_namespace *space, const char *name, const char *path, bool wants_move,
                      struct ash_err *err);
/* Export everything that waits. watch may be NULL. */
int ash_namespace_export(struct ash_namespace *space, const struct ash_namespace_watch *watch, struct ash_err *err);
/* Export in a thread from now on, until close. */
int ash_namespace_export_start(struct ash_namespace *space, struct ash_err *err);
/* Wait until the thread has exported everything. Returns its error if it gave up. */
int ash_namespace_export_wait(struct ash_namespace *space, const struct ash_namespace_watch *watch,
                              struct ash_err *err);

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* Drop the local bytes of an object; its facts stay. -EBUSY for one that is not exported, or pinned. */
int ash_namespace_release(struct ash_namespace *space, const char *key, struct ash_err *err);
/* Keep the bytes of an object here (fetch it too for that), or no longer. */
int ash_namespace_pin(struct ash_namespace *space, const char *key, bool is_pinned, struct ash_err *err);
/* Will bytes of an object (by its full key) be read soon? Called from the thread that reads. */
struct ash_namespace_guard {
    bool (*needs)(void *ctx, const char *key, uint64_t offset, size_t size_bytes);
    void *ctx;
};
/* Ranges that guard needs are not released to make room. Borrowed until close; NULL: none. */
void ash_namespace_set_guard(struct ash_namespace *space, const struct ash_namespace_guard *guard);
/* The full key of an open object. Borrowed. */
const char *ash_object_key(const struct ash_object *object);
/* Release the least recently read bytes until there is space for more_bytes. Success also if that is not possible. */
int ash_namespace_make_room(struct ash_namespace *space, uint64_t more_bytes, struct ash_err *err);

#endif
