/* Attached folders. A namespace belongs to one thread at a time, so each folder has several, one per request that is
 * under way; what one of them has fetched, the others find in the local folder. */
#include "storage/namespace/attach.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/thread.h"
#include "storage/io/remote_file.h"
#include "storage/namespace/namespace_priv.h"
#include "storage/namespace/settings.h"

#define LANES 8
#define LEAST_BYTES ((uint64_t)1 << 20) /* smaller files are brought whole */

struct attached;

struct attached_file {
    struct attached_file *next;
    struct attached *home;
    struct ash_tier_object remote; /* as it was when it was attached */
    struct ash_object *objects[LANES];
    _Atomic uint64_t read_bytes;
    char key[];
};

/* Lives until the process ends: its files may still be mapped. */
struct attached {
    struct attached *next;
    struct ash_namespace_settings settings;
    char *url;
    struct attached_file *files;
    struct ash_object **held; /* [held_count] objects that are here, and must stay while programs open them */
    size_t held_count;
    pthread_mutex_t lock; /* of is_busy */
    pthread_cond_t is_free;
    struct ash_namespace *lanes[LANES];
    bool is_busy[LANES];
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attached *list;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static size_t take_lane(struct attached *attached)
{
    size_t lane = 0;

    pthread_mutex_lock(&attached->lock);
    while (attached->is_busy[lane]) {
        lane = (lane + 1) % LANES;
        if (lane == 0 && attached->is_busy[lane]) pthread_cond_wait(&attached->is_free, &attached->lock);
    }
    attached->is_busy[lane] = true;
    pthread_mutex_unlock(&attached->lock);
    return lane;
}

static void give_lane(struct attached *attached, size_t lane)
{
    ash_assert(lane < LANES && attached->is_busy[lane]);
    pthread_mutex_lock(&attached->lock);
    attached->is_busy[lane] = false;
    pthread_cond_signal(&attached->is_free);
    pthread_mutex_unlock(&attached->lock);
}

static int open_lane(struct attached_file *file, size_t lane, struct ash_err *err)
{
    struct attached *attached = file->home;
    int rc = 0;

    if (attached->lanes[lane] == NULL)
        rc = ash_namespace_open(attached->url, &attached->settings.cache, &attached->settings.s3,
                                &attached->lanes[lane], err);
    if (rc == 0 && file->objects[lane] == NULL)
        rc = ash_object_open_as(attached->lanes[lane], file->key, &file->remote, &file->objects[lane], err);
    return rc;
}

static int read_bytes(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err)
{
    struct attached_file *file = ctx;
    size_t lane = take_lane(file->home);
    int rc = open_lane(file, lane, err);
    struct ash_object_range range = {file->objects[lane], offset, size_bytes, data};

    if (rc == 0) rc = ash_namespace_read(file->home->lanes[lane], &range, 1, err);
    if (rc == 0 && atomic_fetch_add(&file->read_bytes, size_bytes) + size_bytes >= file->remote.size_bytes)
        rc = ash_object_confirm(file->objects[lane], err);
    give_lane(file->home, lane);
    return rc;
}

static const struct ash_remote_file_ops attached_ops = {.size = sizeof(attached_ops), .read = read_bytes};

/* ---- attaching --------------------------------------------------------------------------------------------------- */

static bool is_attached(const char *key, uint64_t size_bytes)
{
    static const char *const endings[] = {".safetensors", ".gguf"};
    size_t length = strlen(key);

    for (size_t i = 0; i < ASH_COUNT(endings); i++) {
        size_t end = strlen(endings[i]);

        if (size_bytes > LEAST_BYTES && length > end && strcmp(key + length - end, endings[i]) == 0) return true;
    }
    return false;
}

/* An object becomes a remote file. */
static int attach_object(void *ctx, const struct ash_object *object, bool is_whole, struct ash_err *err)
{
    struct attached *attached = ctx;
    struct attached_file *file;
    struct ash_remote_file entry = {.ops = &attached_ops, .size_bytes = object->size_bytes, .is_here = is_whole};
    char path[PATH_MAX];
    int rc =
        ash_namespace_file_path(object->space, object->key, ash_extents_get_head(object->extents)->is_odd, path, err);

    if (rc < 0) return rc;
    file = calloc(1, sizeof(*file) + strlen(object->key) + 1);
    if (file == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    file->home = attached;
    file->remote.size_bytes = object->size_bytes;
    memcpy(file->remote.version, object->version, sizeof(file->remote.version));
    memcpy(file->key, object->key, strlen(object->key) + 1);
    file->next = attached->files;
    attached->files = file;
    entry.ctx = file;
    entry.identity = ash_hash_str(object->version);
    rc = ash_remote_file_add(path, &entry);
    return rc < 0 ? ash_err_set(err, rc, "out of memory") : 0;
}

static void hold_object(void *ctx, struct ash_object *object)
{
    struct attached *attached = ctx;
    struct ash_object **held = reallocarray(attached->held, attached->held_count + 1, sizeof(*held));

    if (held == NULL) { /* then it may be released too soon, and its reader reports that */
        ash_object_close(object);
        return;
    }
    attached->held = held;
    attached->held[attached->held_count++] = object;
}

static struct attached *new_attached(const char *url, struct ash_err *err)
{
    struct attached *attached = calloc(1, sizeof(*attached));

    if (attached != NULL) attached->url = strdup(url);
    if (attached == NULL || attached->url == NULL) {
        free(attached);
        ash_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&attached->lock, NULL);
    ash_cond_init(&attached->is_free);
    pthread_mutex_lock(&list_lock);
    attached->next = list;
    list = attached;
    pthread_mutex_unlock(&list_lock);
    return attached;
}

int ash_attach_url(const char *url, const struct ash_namespace_watch *watch, struct ash_str *path, struct ash_err *err)
{
    struct attached *attached = new_attached(url, err);
    const struct ash_namespace_filter filter = {is_attached, attach_object, hold_object, attached};
    int rc = attached != NULL ? ash_namespace_settings_init(&attached->settings, err) : -ENOMEM;

    if (rc < 0) return rc;
    return ash_namespace_bring_url(url, &attached->settings, watch, &filter, path, err);
}
