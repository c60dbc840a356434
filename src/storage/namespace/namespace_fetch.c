/* Whole objects brought here, as files under their own names: models, tokenizers, what programs open by path. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/math.h"
#include "storage/io/io_priv.h"
#include "storage/namespace/namespace_priv.h"
#include "storage/s3/url.h"

#define WINDOW_BYTES ((size_t)32 << 20)

/* A fetch of one or many objects that is under way. */
struct fetch {
    struct ash_namespace *space;
    const struct ash_namespace_watch *watch;
    const struct ash_namespace_filter *filter; /* may be NULL */
    struct ash_object *object;
    uint64_t at, done_bytes, total_bytes;
};

static int tell(struct fetch *fetch, size_t bytes, struct ash_err *err)
{
    fetch->done_bytes += bytes;
    if (ash_interrupt_requested()) return ash_err_set(err, -EINTR, "stopped");
    if (fetch->watch == NULL) return 0;
    return fetch->watch->progress(fetch->watch->ctx, fetch->object->key, fetch->done_bytes,
                                  ash_max(fetch->total_bytes, fetch->done_bytes), err);
}

static int take(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct fetch *fetch = ctx;
    struct ash_object *object = fetch->object;
    const char *from = data;

    for (size_t done = 0; done < size_bytes;) {
        ssize_t bytes = pwrite(object->fd, from + done, size_bytes - done, (off_t)(fetch->at + done));

        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) return ash_io_fail(err, bytes < 0 ? -errno : -EIO, fetch->space->folder, "write");
        done += (size_t)bytes;
    }
    if (ash_extents_add(object->extents, fetch->at, data, size_bytes) < 0)
        return ash_io_fail(err, -EIO, fetch->space->folder, "write");
    fetch->at += size_bytes;
    ash_namespace_count(fetch->space, size_bytes);
    return tell(fetch, size_bytes, err);
}

/* Nothing is here yet: from the first byte to the last, compared with the checksum of the place. */
static int stream(struct fetch *fetch, struct ash_err *err)
{
    const struct ash_s3_sink sink = {take, fetch};
    int rc = ash_namespace_tier(fetch->space, err);

    fetch->at = 0;
    if (rc == 0) rc = ash_tier_stream(fetch->space->tier, fetch->object->key, &sink, err);
    if (rc == -EBADMSG) ash_extents_drop(fetch->object->extents, 0, fetch->object->size_bytes);
    if (rc >= 0 && fetch->at != fetch->object->size_bytes)
        rc = ash_err_set(err, -ESTALE, "%.200s: the object has changed while it was read", fetch->object->key);
    return rc < 0 ? rc : 0;
}

/* Something is here: it is checked, and the rest is fetched. */
static int complete(struct fetch *fetch, struct ash_err *err)
{
    uint64_t size_bytes = fetch->object->size_bytes;
    char *window = malloc(WINDOW_BYTES);
    int rc = window != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    for (uint64_t at = 0; rc == 0 && at < size_bytes;) {
        struct ash_object_range range = {fetch->object, at, ash_min(WINDOW_BYTES, (size_t)(size_bytes - at)), window};

        rc = ash_namespace_read(fetch->space, &range, 1, err);
        if (rc == 0) rc = tell(fetch, range.size_bytes, err);
        at += range.size_bytes;
    }
    free(window);
    return rc;
}

/* Is the file unchanged since the object was complete? */
static bool is_whole(const struct ash_object *object)
{
    struct stat info;

    return object->extents == NULL || (ash_extents_whole(object->extents) != 0 && fstat(object->fd, &info) == 0 &&
                                       (uint64_t)info.st_size == object->size_bytes &&
                                       ash_namespace_stamp(&info) == ash_extents_whole(object->extents));
}

static int note_whole(struct ash_object *object)
{
    struct stat info;

    return fstat(object->fd, &info) == 0 ? ash_extents_set_whole(object->extents, ash_namespace_stamp(&info)) : 0;
}

int ash_object_confirm(struct ash_object *object, struct ash_err *err)
{
    struct ash_err why = {0};
    int rc;

    if (object->extents == NULL || ash_extents_whole(object->extents) != 0) return 0;
    ash_extents_refresh(object->extents);
    if (ash_extents_whole(object->extents) != 0 || !ash_extents_cover(object->extents)) return 0;
    rc = ash_namespace_tier(object->space, &why);
    if (rc == 0) rc = ash_tier_compare(object->space->tier, object->key, object->version, object->fd, &why);
    if (rc >= 0) return note_whole(object);
    ash_extents_refresh(object->extents);
    if (rc != -EBADMSG || !ash_extents_cover(object->extents)) return 0; /* released while it was summed: no proof */
    ash_extents_drop(object->extents, 0, object->size_bytes);
    return ash_err_set(err, rc, "%s. Its fetched part was dropped: start again, or put the object there again",
                       why.text);
}

/* The same, compared with the checksum of the place; all of it is fetched again if the local bytes are wrong. */
static int complete_right(struct fetch *fetch, struct ash_err *err)
{
    int rc = complete(fetch, err);

    if (rc == 0) rc = ash_object_confirm(fetch->object, err);
    return rc == -EBADMSG ? stream(fetch, err) : rc;
}

static int fetch_object(struct fetch *fetch, struct ash_object *object, struct ash_err *err)
{
    int rc;

    fetch->object = object;
    if (is_whole(object)) return 0;
    if (ftruncate(object->fd, (off_t)object->size_bytes) < 0) return ash_io_fail(err, -errno, object->key, "write");
    rc = ash_extents_bytes(object->extents) == 0 ? stream(fetch, err) : complete_right(fetch, err);
    if (rc == 0 && !ash_extents_cover(object->extents))
        rc = ash_err_set(err, -ENOSPC, "%.200s: there is no room for it in %.200s", object->key, fetch->space->folder);
    return rc < 0 ? rc : note_whole(object);
}

static int add_path(const struct ash_object *object, struct ash_str *path, struct ash_err *err)
{
    struct ash_namespace *space = object->space;
    struct ash_journal_entry entry;
    char buf[PATH_MAX], file[64];
    int rc;

    if (path == NULL) return 0;
    if (object->extents != NULL)
        rc = ash_namespace_file_path(space, object->key, ash_extents_get_head(object->extents)->is_odd, buf, err);
    else if (ash_namespace_waits(space, object->key, &entry, file))
        rc = ash_namespace_put_path(space, file, buf, err);
    else
        rc = ash_err_set(err, -EAGAIN, "%.200s: it was exported just now; try again", object->key);
    return rc < 0 ? rc : ash_str_adds(path, buf);
}

/* Wait until no other process fetches this place. Returns a descriptor that holds the lock until it is closed, or a
 * negative errno. File systems without locks do without. */
static int lock_place(const struct ash_namespace *space, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), space->folder, "lock"), fd = -1;

    if (rc == 0) fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (rc == 0 && fd < 0) rc = -errno;
    while (rc == 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
        if (ash_interrupt_requested()) rc = -EINTR;
    if (rc == 0) return fd;
    if (fd >= 0) close(fd);
    return ash_err_set(err, rc, "cannot lock %.300s: %s", space->folder, strerror(-rc));
}

static bool stays(const struct fetch *fetch, const struct ash_object *object)
{
    return fetch->filter != NULL && object->extents != NULL && fetch->filter->stays(object->key, object->size_bytes);
}

/* One object: fetched, or left in the remote place. */
static int fetch_named(struct fetch *fetch, const char *key, struct ash_str *path, struct ash_err *err)
{
    struct ash_object *object = NULL;
    int lock, rc = ash_object_open(fetch->space, key, true, &object, err);

    if (rc < 0) return rc;
    rc = lock = lock_place(fetch->space, err);
    fetch->total_bytes = object->size_bytes;
    if (rc >= 0)
        rc = stays(fetch, object) ? fetch->filter->leave(fetch->filter->ctx, object, is_whole(object), err)
                                  : fetch_object(fetch, object, err);
    if (rc == 0) rc = add_path(object, path, err);
    if (lock >= 0) close(lock);
    ash_object_close(object);
    return rc;
}

int ash_namespace_fetch(struct ash_namespace *space, const char *key, const struct ash_namespace_watch *watch,
                        struct ash_str *path, struct ash_err *err)
{
    return fetch_named(&(struct fetch){.space = space, .watch = watch}, key, path, err);
}

/* ---- a whole place ----------------------------------------------------------------------------------------------- */

static int note_object(void *ctx, const char *key, const struct ash_tier_object *object)
{
    json_t *wanted = ctx;
    size_t length = strlen(key);
    json_t *facts;

    if (length == 0 || key[length - 1] == '/') return 0; /* stands for a folder */
    facts = json_pack("[s, I]", object->version, (json_int_t)object->size_bytes);
    return facts == NULL || json_object_set_new(wanted, key, facts) < 0 ? -ENOMEM : 0;
}

struct gone {
    struct ash_namespace *space;
    const json_t *wanted;
    json_t *keys;
};

static int note_gone(void *ctx, const char *key, const struct ash_object_info *info)
{
    const struct gone *gone = ctx;

    if (strncmp(key, gone->space->prefix, strlen(gone->space->prefix)) != 0) return 0;
    if (info->state == ASH_OBJECT_LOCAL || json_object_get(gone->wanted, key) != NULL) return 0;
    return json_array_append_new(gone->keys, json_string(key)) < 0 ? -ENOMEM : 0;
}

/* Forget objects that the place has no more. */
static int remove_gone(struct ash_namespace *space, const json_t *wanted, struct ash_err *err)
{
    struct gone gone = {space, wanted, json_array()};
    char path[PATH_MAX];
    int rc = gone.keys == NULL ? -ENOMEM : ash_namespace_each_full(space, note_gone, &gone, err);

    for (size_t i = 0; rc == 0 && i < json_array_size(gone.keys); i++) {
        struct ash_extents *extents = NULL;

        rc = ash_namespace_log_path(space, json_string_value(json_array_get(gone.keys, i)), path, err);
        if (rc == 0 && ash_extents_open(path, NULL, &extents, NULL) == 0) {
            rc = ash_namespace_drop(space, extents, err);
            unlink(path);
        }
        ash_extents_close(extents);
    }
    json_decref(gone.keys);
    return rc;
}

/* One of a list: fetched, or left in the remote place. */
static int fetch_one(struct fetch *fetch, const char *key, const json_t *facts, struct ash_err *err)
{
    struct ash_tier_object remote = {.size_bytes = (uint64_t)json_integer_value(json_array_get(facts, 1))};
    struct ash_object *object = NULL;
    int rc;

    snprintf(remote.version, sizeof(remote.version), "%s", json_string_value(json_array_get(facts, 0)));
    rc = ash_object_open_as(fetch->space, key, &remote, &object, err);
    if (rc < 0) return rc;
    if (stays(fetch, object)) {
        rc = fetch->filter->leave(fetch->filter->ctx, object, is_whole(object), err);
    } else {
        if (is_whole(object)) fetch->total_bytes -= ash_min(object->size_bytes, fetch->total_bytes);
        rc = fetch_object(fetch, object, err);
        if (rc == 0 && fetch->filter != NULL) {
            fetch->filter->take(fetch->filter->ctx, object);
            object = NULL;
        }
    }
    ash_object_close(object);
    return rc;
}

/* Fetch the listed objects. The limit is checked first: a part of a model is of no use. */
static int fetch_listed(struct fetch *fetch, json_t *wanted, struct ash_err *err)
{
    const struct ash_cache_opts *cache = &fetch->space->cache;
    const char *key;
    json_t *facts;
    int rc = 0;

    json_object_foreach(wanted, key, facts) {
        uint64_t bytes = (uint64_t)json_integer_value(json_array_get(facts, 1));

        fetch->total_bytes += fetch->filter != NULL && fetch->filter->stays(key, bytes) ? 0 : bytes;
    }
    if (cache->bytes > 0 && fetch->total_bytes > (uint64_t)cache->bytes)
        return ash_err_set(err, -ENOSPC, "%.200s has %llu bytes, but cache.bytes allows %lld: allow more",
                           fetch->space->url, (unsigned long long)fetch->total_bytes, (long long)cache->bytes);
    json_object_foreach(wanted, key, facts) {
        if (rc == 0) rc = fetch_one(fetch, key, facts, err);
    }
    return rc;
}

static int fetch_place(struct fetch *fetch, struct ash_err *err)
{
    struct ash_namespace *space = fetch->space;
    json_t *wanted = json_object();
    int lock, rc = lock_place(space, err);

    lock = rc;
    if (rc >= 0) rc = ash_namespace_tier(space, err);
    if (rc == 0) rc = ash_tier_list(space->tier, space->prefix, true, note_object, wanted, err);
    if (rc == -ENOMEM) ash_err_set(err, rc, "out of memory");
    if (rc == 0 && json_object_size(wanted) == 0)
        rc = ash_err_set(err, -ENOENT, "there is nothing at %.200s/%.200s", space->url, space->prefix);
    if (rc == 0) rc = remove_gone(space, wanted, err);
    space->keep_since_s = ash_clock_wall_s() - 1;
    if (rc == 0) rc = fetch_listed(fetch, wanted, err);
    space->keep_since_s = 0;
    if (lock >= 0) close(lock);
    json_decref(wanted);
    return rc;
}

/* The file of one object, whose name is the part after the last slash of url. */
static int fetch_file(struct fetch *fetch, const char *url, const struct ash_namespace_settings *settings,
                      struct ash_str *path, struct ash_err *err)
{
    const char *slash = strrchr(url, '/');
    char *place = strndup(url, (size_t)(slash - url));
    int rc = place != NULL ? ash_namespace_open(place, &settings->cache, &settings->s3, &fetch->space, err) : -ENOMEM;

    if (rc == 0) rc = fetch_named(fetch, slash + 1, path, err);
    ash_namespace_close(fetch->space);
    fetch->space = NULL;
    free(place);
    return rc;
}

int ash_namespace_bring_url(const char *url, const struct ash_namespace_settings *settings,
                            const struct ash_namespace_watch *watch, const struct ash_namespace_filter *filter,
                            struct ash_str *path, struct ash_err *err)
{
    struct fetch fetch = {.watch = watch, .filter = filter};
    struct ash_s3_url parsed;
    size_t length;
    int rc = ash_s3_url_parse(url, &parsed, err);

    if (rc < 0) return rc;
    length = strlen(parsed.key);
    if (length > 0 && parsed.key[length - 1] != '/') { /* an object of this name? */
        rc = fetch_file(&fetch, url, settings, path, err);
        if (rc != -ENOENT) return rc;
    }
    rc = ash_namespace_open(url, &settings->cache, &settings->s3, &fetch.space, err);
    if (rc == 0) rc = fetch_place(&fetch, err);
    if (rc == 0) rc = ash_str_adds(path, fetch.space->files);
    ash_namespace_close(fetch.space);
    return rc;
}

int ash_namespace_fetch_url(const char *url, const struct ash_cache_opts *cache, const struct ash_s3_opts *s3,
                            const struct ash_namespace_watch *watch, struct ash_str *path, struct ash_err *err)
{
    const struct ash_namespace_settings settings = {.cache = *cache, .s3 = *s3};

    return ash_namespace_bring_url(url, &settings, watch, NULL, path, err);
}
