/* Disk space: LRU eviction. Files not in use are released as a whole; of files that are being read, the ranges that
 * were fetched longest ago. Pinned objects and those queued for export stay. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/math.h"
#include "record/metrics.h"
#include "storage/io/io_priv.h"
#include "storage/namespace/namespace_priv.h"

#define LOOK_SHARE 16                    /* room is looked at after this part of the limit has been fetched */
#define LOOK_BYTES ((uint64_t)256 << 20) /* without a limit */
#define FREE_SHARE 10                    /* without a limit, a tenth of the disk stays free */
#define OLDEST_MAX 65536                 /* extents that are dropped at a time */
#define BLOCK_BYTES ((uint64_t)4096)

ASH_COUNTER(released_metric, "ashlar_namespace_released_bytes_total", "cached bytes that were released to make room");

struct candidate {
    char *log_path, *key;
    double used_s;
    uint64_t disk_bytes;
};

struct candidates {
    struct candidate *items;
    size_t count, capacity;
    uint64_t disk_bytes;
};

static uint64_t disk_bytes_of(const struct ash_namespace *space, const struct ash_extents_head *head)
{
    char path[PATH_MAX];
    struct stat info;

    if (ash_namespace_file_path(space, head->key, head->is_odd, path, NULL) < 0 || stat(path, &info) < 0) return 0;
    return (uint64_t)info.st_blocks * 512;
}

static int add_candidate(struct ash_namespace *space, struct candidates *all, const char *path)
{
    struct ash_extents *extents = NULL;
    struct candidate item = {0};
    struct stat info;

    if (ash_extents_open(path, NULL, &extents, NULL) < 0 || stat(path, &info) < 0) {
        ash_extents_close(extents);
        return 0;
    }
    item.disk_bytes = disk_bytes_of(space, ash_extents_get_head(extents));
    item.used_s = (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec / 1e9;
    item.log_path = strdup(path);
    item.key = strdup(ash_extents_get_head(extents)->key);
    ash_extents_close(extents);
    if (item.log_path == NULL || item.key == NULL ||
        ash_array_reserve(&all->items, &all->capacity, all->count + 1, sizeof(item)) < 0) {
        free(item.log_path);
        free(item.key);
        return -ENOMEM;
    }
    all->items[all->count++] = item;
    all->disk_bytes += item.disk_bytes;
    return 0;
}

static int list_candidates(struct ash_namespace *space, struct candidates *all)
{
    char dir[PATH_MAX], path[PATH_MAX];
    int rc = ash_path_join(dir, sizeof(dir), space->folder, "extents");
    DIR *folder = rc == 0 ? opendir(dir) : NULL;

    if (folder == NULL) return -EIO;
    for (const struct dirent *entry = readdir(folder); rc == 0 && entry != NULL; entry = readdir(folder))
        if (entry->d_name[0] != '.' && ash_path_join(path, sizeof(path), dir, entry->d_name) == 0)
            rc = add_candidate(space, all, path);
    closedir(folder);
    return rc;
}

static int compare_used(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

int ash_namespace_drop(struct ash_namespace *space, struct ash_extents *extents, struct ash_err *err)
{
    const struct ash_extents_head *head = ash_extents_get_head(extents);
    char path[PATH_MAX];
    int rc = ash_extents_drop(extents, 0, head->size_bytes);

    if (rc < 0) return ash_io_fail(err, rc, space->folder, "write");
    rc = ash_namespace_file_path(space, head->key, head->is_odd, path, err);
    if (rc < 0) return rc;
    if (head->is_odd) return unlink(path) < 0 && errno != ENOENT ? ash_io_fail(err, -errno, path, "remove") : 0;
    return ash_tier_remove(space->local, head->key, err); /* with folders that are empty now */
}

static bool is_in_use(const struct ash_extents *extents)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(ash_extents_fd(extents), F_OFD_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES);
}

static int compare_offset(const void *a, const void *b)
{
    const struct ash_extent *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Does anything that stays lie in [first, end)? */
static bool holds_any(const struct ash_extents *extents, uint64_t first, uint64_t end)
{
    return first < end && (ash_extents_find(extents, first) != NULL || ash_extents_next(extents, first, end) < end);
}

/* Free the blocks of [first, end), which was dropped, but for blocks at its ends that ranges which stay share. */
static void punch(const struct ash_extents *extents, int fd, uint64_t first, uint64_t end)
{
    uint64_t below = first / BLOCK_BYTES * BLOCK_BYTES, above = ash_div_up(end, BLOCK_BYTES) * BLOCK_BYTES;

    first = holds_any(extents, below, first) ? below + BLOCK_BYTES : below;
    end = holds_any(extents, end, above) ? above - BLOCK_BYTES : above;
    if (end <= first) return;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)(end - first)) == 0)
        ash_metric_add(&released_metric, (double)(end - first));
}

/* The oldest extents whose sizes add up to bytes, but for those that the guard needs. Returns how many. */
static size_t choose_oldest(const struct ash_namespace *space, const struct ash_extents *extents, uint64_t bytes,
                            struct ash_extent *oldest)
{
    size_t count = ash_extents_oldest(extents, UINT64_MAX, oldest, OLDEST_MAX), chosen = 0;
    const char *key = ash_extents_get_head(extents)->key;
    const struct ash_namespace_guard *guard = space->guard;
    uint64_t sum = 0;

    for (size_t i = 0; i < count && sum < bytes; i++) {
        if (guard != NULL && guard->needs(guard->ctx, key, oldest[i].offset, oldest[i].size_bytes)) continue;
        sum += oldest[i].size_bytes;
        oldest[chosen++] = oldest[i];
    }
    return chosen;
}

/* Drop the oldest extents of a file that is being read. Ranges that follow each other go as one. Returns how many. */
static size_t drop_oldest(const struct ash_namespace *space, struct ash_extents *extents, int fd, uint64_t bytes)
{
    struct ash_extent *oldest = calloc(OLDEST_MAX, sizeof(*oldest));
    size_t count = oldest != NULL ? choose_oldest(space, extents, bytes, oldest) : 0;

    if (count > 0) qsort(oldest, count, sizeof(*oldest), compare_offset);
    for (size_t i = 0, next; i < count; i = next) {
        uint64_t first = oldest[i].offset, end = first + oldest[i].size_bytes;

        for (next = i + 1; next < count && oldest[next].offset <= end; next++) {
            uint64_t more = oldest[next].offset + oldest[next].size_bytes;

            end = more > end ? more : end;
        }
        if (ash_extents_drop(extents, first, end - first) == 0) punch(extents, fd, first, end);
    }
    free(oldest);
    return count;
}

/* Release about `bytes` bytes of a file that is being read. */
static void shrink(const struct ash_namespace *space, struct ash_extents *extents, uint64_t bytes)
{
    const struct ash_extents_head *head = ash_extents_get_head(extents);
    uint64_t before = disk_bytes_of(space, head);
    char path[PATH_MAX];
    int fd;

    if (ash_extents_whole(extents) != 0) return; /* programs may have mapped it */
    if (ash_namespace_file_path(space, head->key, head->is_odd, path, NULL) < 0) return;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    /* Small ranges between others that stay free no block each: then more of them go. */
    for (uint64_t more = bytes; drop_oldest(space, extents, fd, more) > 0; more *= 2)
        if (disk_bytes_of(space, head) + bytes / 2 <= before) break;
    close(fd);
}

/* May it be released at all? */
static bool is_free(struct ash_namespace *space, const struct candidate *item)
{
    bool is_pinned;

    pthread_mutex_lock(&space->lock);
    is_pinned = ash_journal_is_pinned(space->journal, item->key);
    pthread_mutex_unlock(&space->lock);
    return !is_pinned && item->disk_bytes > 0 && (space->keep_since_s <= 0 || item->used_s < space->keep_since_s);
}

/* Release an object that is not in use, or (bytes > 0) a part of one that is being read. Returns the bytes freed; if
 * bytes is 0 and it is being read, 0, and *in_use_out is true. */
static uint64_t release_from(struct ash_namespace *space, const struct candidate *item, uint64_t bytes,
                             bool *in_use_out)
{
    struct ash_extents *extents = NULL;
    uint64_t left;

    *in_use_out = false;
    if (!is_free(space, item) || ash_extents_open(item->log_path, NULL, &extents, NULL) < 0) return 0;
    *in_use_out = is_in_use(extents);
    if (*in_use_out && bytes > 0)
        shrink(space, extents, bytes);
    else if (!*in_use_out && ash_namespace_drop(space, extents, NULL) == 0)
        ash_metric_add(&released_metric, (double)item->disk_bytes);
    left = disk_bytes_of(space, ash_extents_get_head(extents));
    ash_extents_close(extents);
    return item->disk_bytes - ash_min(left, item->disk_bytes);
}

/* Bytes that are too many by now. */
static uint64_t excess(const struct ash_namespace *space, uint64_t used_bytes, uint64_t more_bytes)
{
    uint64_t limit = (uint64_t)space->cache.bytes, wanted, free_bytes;
    struct statvfs disk;

    if (limit > 0) return used_bytes + more_bytes > limit ? used_bytes + more_bytes - limit : 0;
    if (statvfs(space->folder, &disk) < 0) return 0;
    free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    wanted = (uint64_t)disk.f_blocks * disk.f_frsize / FREE_SHARE + more_bytes;
    return wanted > free_bytes ? wanted - free_bytes : 0;
}

/* Objects not in use first, in LRU order. Then a share of each that is being read: the oldest of all their ranges is
 * unknown. */
static void release_some(struct ash_namespace *space, const struct candidates *all, uint64_t over)
{
    uint64_t in_use_bytes = 0;
    bool is_in_use;

    for (size_t i = 0; i < all->count && over > 0; i++) {
        over -= ash_min(over, release_from(space, &all->items[i], 0, &is_in_use));
        if (is_in_use) in_use_bytes += all->items[i].disk_bytes;
    }
    for (size_t i = 0; i < all->count && over > 0 && in_use_bytes > 0; i++) {
        double share = (double)all->items[i].disk_bytes / (double)in_use_bytes;

        release_from(space, &all->items[i], (uint64_t)((double)over * share) + 1, &is_in_use);
    }
}

void ash_namespace_set_guard(struct ash_namespace *space, const struct ash_namespace_guard *guard)
{
    space->guard = guard;
}

int ash_namespace_make_room(struct ash_namespace *space, uint64_t more_bytes, struct ash_err *err)
{
    struct candidates all = {0};
    int rc = 0;

    if (space->cache.bytes == 0 && excess(space, 0, more_bytes) == 0) return 0;
    rc = list_candidates(space, &all);
    if (all.count > 0) qsort(all.items, all.count, sizeof(*all.items), compare_used);
    release_some(space, &all, excess(space, all.disk_bytes, more_bytes));
    for (size_t i = 0; i < all.count; i++) {
        free(all.items[i].log_path);
        free(all.items[i].key);
    }
    free(all.items);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : 0;
}

void ash_namespace_count(struct ash_namespace *space, uint64_t bytes)
{
    uint64_t step = space->cache.bytes > 0 ? (uint64_t)space->cache.bytes / LOOK_SHARE : LOOK_BYTES;

    space->fetched_bytes += bytes;
    space->since_bytes += bytes;
    if (space->since_bytes <= step) return;
    space->since_bytes = 0;
    ash_namespace_make_room(space, step, NULL);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

int ash_namespace_release(struct ash_namespace *space, const char *key, struct ash_err *err)
{
    struct ash_object_info info = {0};
    struct ash_extents *extents = NULL;
    char path[PATH_MAX], full[ASH_TIER_KEY_BYTES];
    int rc = ash_namespace_stat(space, key, &info, err);

    if (rc < 0) return rc;
    if (info.state == ASH_OBJECT_LOCAL)
        return ash_err_set(err, -EBUSY, "%.200s is not exported yet: it would be lost", key);
    if (info.is_pinned) return ash_err_set(err, -EBUSY, "%.200s is pinned: unpin it first (store pin --off)", key);
    if (info.state == ASH_OBJECT_REMOTE) return 0;
    rc = ash_namespace_full_key(space, key, full, err);
    if (rc == 0) rc = ash_namespace_log_path(space, full, path, err);
    if (rc == 0) rc = ash_extents_open(path, NULL, &extents, err);
    if (rc == 0) rc = ash_namespace_drop(space, extents, err);
    ash_extents_close(extents);
    return rc;
}

int ash_namespace_pin(struct ash_namespace *space, const char *key, bool is_pinned, struct ash_err *err)
{
    char full[ASH_TIER_KEY_BYTES];
    int rc = ash_namespace_full_key(space, key, full, err);

    if (rc < 0) return rc;
    pthread_mutex_lock(&space->lock);
    rc = ash_journal_pin(space->journal, full, is_pinned, err);
    pthread_mutex_unlock(&space->lock);
    return rc;
}
