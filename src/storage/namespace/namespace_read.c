/* Reading objects: local bytes are verified by their hash, missing ones are fetched at once and cached. A range that
 * another process is fetching is waited for, not fetched twice. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "record/metrics.h"
#include "storage/io/io_priv.h"
#include "storage/namespace/namespace_priv.h"

ASH_COUNTER(hit_metric, "ashlar_namespace_hit_bytes_total", "bytes of remote objects that were read from this machine");
ASH_COUNTER(miss_metric, "ashlar_namespace_miss_bytes_total", "bytes of remote objects that had to be fetched");
ASH_COUNTER(damaged_metric, "ashlar_namespace_damaged_total", "cached ranges that had other bytes than were written");

/* ---- open -------------------------------------------------------------------------------------------------------- */

/* Attach the object to its file and log, of the version that remote describes. */
static int attach(struct ash_object *object, const struct ash_tier_object *remote, struct ash_err *err)
{
    struct ash_namespace *space = object->space;
    struct ash_extents_head head = {.size_bytes = remote->size_bytes};
    char path[PATH_MAX];
    int rc = ash_namespace_log_path(space, object->key, path, err);

    if (rc < 0) return rc;
    memcpy(head.key, object->key, sizeof(head.key));
    memcpy(head.version, remote->version, sizeof(head.version));
    object->size_bytes = remote->size_bytes;
    memcpy(object->version, remote->version, sizeof(object->version));
    object->fd = ash_namespace_open_file(space, remote, object->key, &head.is_odd, err);
    if (object->fd < 0) return object->fd;
    return ash_extents_open(path, &head, &object->extents, err);
}

/* The object's facts from the log, without a request. */
static bool recall(struct ash_object *object, struct ash_tier_object *remote_out)
{
    struct ash_extents *extents = NULL;
    const struct ash_extents_head *head;
    char path[PATH_MAX];
    bool is_known;

    if (ash_namespace_log_path(object->space, object->key, path, NULL) < 0) return false;
    if (ash_extents_open(path, NULL, &extents, NULL) < 0) return false;
    head = ash_extents_get_head(extents);
    is_known = strcmp(head->key, object->key) == 0;
    *remote_out = (struct ash_tier_object){.size_bytes = head->size_bytes};
    memcpy(remote_out->version, head->version, sizeof(remote_out->version));
    ash_extents_close(extents);
    return is_known;
}

static int open_waiting(struct ash_object *object, const struct ash_journal_entry *entry, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_namespace_put_path(object->space, entry->file, path, err);

    if (rc < 0) return rc;
    object->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (object->fd < 0) return ash_io_fail(err, -errno, path, "read");
    object->size_bytes = entry->size_bytes;
    return 0;
}

/* It was used now, and is in use until its log is closed: others then release parts of it at most. */
static void mark_used(const struct ash_extents *extents)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    futimens(ash_extents_fd(extents), NULL);
    fcntl(ash_extents_fd(extents), F_OFD_SETLK, &lock);
}

/* key is full. known (may be NULL): the server's newest answer. */
static int open_object(struct ash_namespace *space, const char *key, bool wants_fresh,
                       const struct ash_tier_object *known, struct ash_object **object_out, struct ash_err *err)
{
    struct ash_object *object = calloc(1, sizeof(*object));
    struct ash_tier_object remote = {0};
    struct ash_journal_entry entry;
    char file[64];
    int rc = 0;

    if (object == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    if (known != NULL) remote = *known;
    object->space = space;
    object->fd = -1;
    object->id = ash_hash_str(key);
    snprintf(object->key, sizeof(object->key), "%s", key);
    if (ash_namespace_waits(space, key, &entry, file)) {
        rc = open_waiting(object, &entry, err);
    } else {
        if (known == NULL && (wants_fresh || !recall(object, &remote))) {
            rc = ash_namespace_tier(space, err);
            if (rc == 0) rc = ash_tier_stat(space->tier, key, &remote, err);
        }
        if (rc == 0) rc = attach(object, &remote, err);
    }
    if (rc < 0) goto fail;
    if (object->extents != NULL) mark_used(object->extents);
    *object_out = object;
    return 0;

fail:
    ash_object_close(object);
    return rc;
}

int ash_object_open(struct ash_namespace *space, const char *key, bool wants_fresh, struct ash_object **object_out,
                    struct ash_err *err)
{
    char full[ASH_TIER_KEY_BYTES];
    int rc = ash_namespace_full_key(space, key, full, err);

    return rc < 0 ? rc : open_object(space, full, wants_fresh, NULL, object_out, err);
}

int ash_object_open_as(struct ash_namespace *space, const char *key, const struct ash_tier_object *remote,
                       struct ash_object **object_out, struct ash_err *err)
{
    return open_object(space, key, true, remote, object_out, err);
}

void ash_object_close(struct ash_object *object)
{
    if (object == NULL) return;
    ash_extents_close(object->extents);
    if (object->fd >= 0) close(object->fd);
    free(object);
}

const char *ash_object_key(const struct ash_object *object)
{
    return object->key;
}

uint64_t ash_object_size(const struct ash_object *object)
{
    return object->size_bytes;
}

/* ---- from here --------------------------------------------------------------------------------------------------- */

/* Bytes [offset, offset + size_bytes) lie in extent: read and check it, through scratch if it is larger. */
static bool copy_extent(const struct ash_object *object, const struct ash_extent *extent, uint64_t offset,
                        size_t size_bytes, void *data)
{
    bool is_whole = extent->offset == offset && extent->size_bytes == size_bytes, is_right;
    char *bytes = is_whole ? data : malloc(extent->size_bytes);

    ash_assert(offset >= extent->offset && offset + size_bytes <= extent->offset + extent->size_bytes);
    if (bytes == NULL) return false;
    is_right = ash_io_read_at(object->fd, extent->offset, bytes, extent->size_bytes) == 0 &&
               ash_hash_bytes(bytes, extent->size_bytes, 0) == extent->hash;
    if (is_right && !is_whole) memcpy(data, bytes + (offset - extent->offset), size_bytes);
    if (!is_whole) free(bytes);
    return is_right;
}

/* Ranges that are not here. */
struct misses {
    struct ash_object_range *ranges;
    size_t count, capacity;
};

static int add_miss(struct misses *misses, const struct ash_object_range *range)
{
    if (ash_array_reserve(&misses->ranges, &misses->capacity, misses->count + 1, sizeof(*misses->ranges)) < 0)
        return -ENOMEM;
    misses->ranges[misses->count++] = *range;
    return 0;
}

/* Fill range with local bytes and list the misses. */
static int read_here(const struct ash_object_range *range, struct misses *misses)
{
    struct ash_object *object = range->object;
    uint64_t at = range->offset, end = range->offset + range->size_bytes;
    int rc = 0;

    ash_extents_refresh(object->extents);
    while (rc == 0 && at < end) {
        const struct ash_extent *found = ash_extents_find(object->extents, at);
        struct ash_extent extent = found != NULL ? *found : (struct ash_extent){0};
        struct ash_object_range part = {object, at, 0, (char *)range->data + (at - range->offset)};
        uint64_t stop = found != NULL ? extent.offset + extent.size_bytes : ash_extents_next(object->extents, at, end);

        part.size_bytes = (size_t)((stop < end ? stop : end) - at);
        at += part.size_bytes;
        if (found != NULL && copy_extent(object, &extent, part.offset, part.size_bytes, part.data)) {
            ash_metric_add(&hit_metric, (double)part.size_bytes);
            continue;
        }
        if (found != NULL) {
            ash_metric_add(&damaged_metric, 1);
            ash_extents_drop(object->extents, extent.offset, extent.size_bytes);
        }
        rc = add_miss(misses, &part);
    }
    return rc;
}

/* ---- from there -------------------------------------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
    const struct ash_object_range *x = a, *y = b;

    if (x->object->id != y->object->id) return x->object->id < y->object->id ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Lock or unlock the bytes of a range in its file against concurrent fetches. All processes lock in the order of
 * compare_ranges, so there is no deadlock. Without locks in the file system nothing is locked. */
static void lock_range(const struct ash_object_range *range, bool is_locked)
{
    struct flock lock = {.l_type = is_locked ? F_WRLCK : F_UNLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)range->offset,
                         .l_len = (off_t)range->size_bytes};

    while (fcntl(range->object->fd, F_OFD_SETLKW, &lock) < 0 && errno == EINTR) {
    }
}

/* Cache fetched bytes. A full disk costs speed next time, and is reported once. */
static void keep(struct ash_namespace *space, const struct ash_object_range *range)
{
    const char *data = range->data;
    size_t left = range->size_bytes;
    uint64_t offset = range->offset;
    int rc = 0;

    while (rc == 0 && left > 0) {
        ssize_t bytes = pwrite(range->object->fd, data, left, (off_t)offset);

        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) rc = -errno;
        if (bytes <= 0) break;
        data += bytes;
        offset += (uint64_t)bytes;
        left -= (size_t)bytes;
    }
    if (rc == 0) rc = ash_extents_add(range->object->extents, range->offset, range->data, range->size_bytes);
    if (rc < 0 && !space->has_warned)
        ash_log(ASH_LOG_WARN, "the cache in %s takes no more: %s; fetched data is not cached", space->folder,
                strerror(-rc));
    space->has_warned = space->has_warned || rc < 0;
}

/* Fetch ranges, sorted and locked. */
static int fetch_locked(struct ash_namespace *space, const struct misses *misses, struct ash_err *err)
{
    struct ash_tier_piece *pieces = calloc(misses->count + 1, sizeof(*pieces));
    uint64_t bytes = 0;
    int rc = pieces != NULL ? ash_namespace_tier(space, err) : ash_err_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < misses->count; i++) {
        const struct ash_object_range *range = &misses->ranges[i];

        pieces[i] = (struct ash_tier_piece){
            {range->object->key, range->object->version, range->offset, range->size_bytes}, range->data};
        bytes += range->size_bytes;
    }
    if (rc == 0) rc = ash_tier_read_pieces(space->tier, pieces, misses->count, err);
    for (size_t i = 0; rc == 0 && i < misses->count; i++)
        keep(space, &misses->ranges[i]);
    if (rc == 0) {
        ash_metric_add(&miss_metric, (double)bytes);
        ash_namespace_count(space, bytes);
    }
    free(pieces);
    return rc;
}

static int fetch_misses(struct ash_namespace *space, struct misses *misses, struct ash_err *err)
{
    struct misses left = {0};
    int rc = 0;

    qsort(misses->ranges, misses->count, sizeof(*misses->ranges), compare_ranges);
    for (size_t i = 0; i < misses->count; i++)
        lock_range(&misses->ranges[i], true);
    for (size_t i = 0; rc == 0 && i < misses->count; i++) /* another process may have been faster */
        rc = read_here(&misses->ranges[i], &left);
    if (rc < 0) ash_err_set(err, rc, "out of memory");
    if (rc == 0 && left.count > 0) rc = fetch_locked(space, &left, err);
    for (size_t i = 0; i < misses->count; i++)
        lock_range(&misses->ranges[i], false);
    free(left.ranges);
    return rc;
}

int ash_namespace_read(struct ash_namespace *space, const struct ash_object_range *ranges, size_t count,
                       struct ash_err *err)
{
    struct misses misses = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct ash_object *object = ranges[i].object;

        if (ranges[i].offset > object->size_bytes || ranges[i].size_bytes > object->size_bytes - ranges[i].offset)
            rc = ash_err_set(err, -ERANGE, "%.200s: the range is not inside the object", object->key);
        else if (object->extents == NULL)
            rc = ash_io_read_at(object->fd, ranges[i].offset, ranges[i].data, ranges[i].size_bytes);
        else
            rc = read_here(&ranges[i], &misses);
        if (rc < 0 && rc != -ERANGE) ash_io_fail(err, rc, object->key, "read");
    }
    if (rc == 0 && misses.count > 0) rc = fetch_misses(space, &misses, err);
    free(misses.ranges);
    return rc;
}
