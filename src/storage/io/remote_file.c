/* Remote files: the list of them, and memory that is filled from them. The list is per process, as mounts are per
 * machine: code that opens weights by path is independent of the attachment. */
#include "storage/io/remote_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/thread.h"

#define THREADS 8
#define CHUNK_BYTES ((size_t)4 << 20) /* of one request */
#define GAP_BYTES ((size_t)16 << 10)  /* is read along: cheaper than one more request */

struct entry {
    struct entry *next;
    struct ash_remote_file file;
    char path[];
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *list; /* the newest first */

int ash_remote_file_add(const char *path, const struct ash_remote_file *file)
{
    struct entry *entry = malloc(sizeof(*entry) + strlen(path) + 1);

    if (entry == NULL) return -ENOMEM;
    entry->file = *file;
    memcpy(entry->path, path, strlen(path) + 1);
    pthread_mutex_lock(&list_lock);
    entry->next = list;
    list = entry;
    pthread_mutex_unlock(&list_lock);
    return 0;
}

const struct ash_remote_file *ash_remote_file_find(const char *path)
{
    const struct entry *entry;

    pthread_mutex_lock(&list_lock);
    for (entry = list; entry != NULL && strcmp(entry->path, path) != 0;)
        entry = entry->next;
    pthread_mutex_unlock(&list_lock);
    return entry != NULL ? &entry->file : NULL;
}

int ash_remote_file_hash(const char *path, uint64_t *hash, struct ash_err *err)
{
    const struct ash_remote_file *file = ash_remote_file_find(path);

    if (file == NULL) return ash_file_hash(path, hash, err);
    *hash = ash_hash_bytes(&file->identity, sizeof(file->identity), *hash);
    return 0;
}

int ash_remote_file_map(const char *path, struct ash_map *map_out, struct ash_err *err)
{
    const struct ash_remote_file *file = ash_remote_file_find(path);
    void *base;

    if (file == NULL || file->is_here || file->size_bytes == 0) return ash_map_open(path, map_out, err);
    base = mmap(NULL, (size_t)file->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (base == MAP_FAILED) return ash_err_set(err, -errno, "cannot map '%s': %s", path, strerror(errno));
    *map_out = (struct ash_map){.base = base, .size_bytes = (size_t)file->size_bytes, .fd = -1, .remote = file};
    return 0;
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

/* Ranges that are brought. */
struct bringing {
    const struct ash_direct_range *ranges;
    size_t count;
    pthread_mutex_t lock; /* of all below */
    size_t index, at;     /* the next chunk: of this range, from this byte */
    int rc;
    struct ash_err err;
};

/* The next chunk. False at the end, or where something went wrong. */
static bool take_chunk(struct bringing *bringing, struct ash_direct_range *chunk_out)
{
    bool is_any;

    pthread_mutex_lock(&bringing->lock);
    is_any = bringing->rc == 0 && bringing->index < bringing->count;
    if (is_any) {
        const struct ash_direct_range *range = &bringing->ranges[bringing->index];

        *chunk_out = (struct ash_direct_range){range->map, (const char *)range->data + bringing->at,
                                               ash_min(range->size_bytes - bringing->at, CHUNK_BYTES)};
        ash_assert(chunk_out->size_bytes > 0); /* join_ranges() leaves no empty range */
        bringing->at += chunk_out->size_bytes;
        if (bringing->at == range->size_bytes) {
            bringing->index++;
            bringing->at = 0;
        }
    }
    pthread_mutex_unlock(&bringing->lock);
    return is_any;
}

static void *bring_main(void *arg)
{
    struct bringing *bringing = arg;
    struct ash_direct_range chunk;

    while (take_chunk(bringing, &chunk)) {
        const struct ash_remote_file *file = chunk.map->remote;
        size_t offset = (size_t)((const uint8_t *)chunk.data - chunk.map->base);
        struct ash_err err = {0};
        int rc = file->ops->read(file->ctx, offset, (void *)(uintptr_t)chunk.data, chunk.size_bytes, &err);

        if (rc == 0) continue;
        pthread_mutex_lock(&bringing->lock);
        if (bringing->rc == 0) bringing->err = err;
        if (bringing->rc == 0) bringing->rc = rc;
        pthread_mutex_unlock(&bringing->lock);
    }
    return NULL;
}

static int compare_ranges(const void *left, const void *right)
{
    const struct ash_direct_range *a = left, *b = right;

    return ((uintptr_t)a->data > (uintptr_t)b->data) - ((uintptr_t)a->data < (uintptr_t)b->data);
}

/* Only those of remote mappings, sorted, near ones as one. Returns how many are left. */
static size_t join_ranges(struct ash_direct_range *ranges, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (ranges[i].map != NULL && ranges[i].map->remote != NULL && ranges[i].size_bytes > 0)
            ranges[kept++] = ranges[i];
    count = kept;
    if (count > 0) qsort(ranges, count, sizeof(*ranges), compare_ranges);
    kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct ash_direct_range *last = kept > 0 ? &ranges[kept - 1] : NULL;
        const char *end = last != NULL ? (const char *)last->data + last->size_bytes : NULL;

        if (last == NULL || last->map != ranges[i].map || (const char *)ranges[i].data > end + GAP_BYTES) {
            ranges[kept++] = ranges[i];
            continue;
        }
        last->size_bytes = ash_max(last->size_bytes, (size_t)((const char *)ranges[i].data - (const char *)last->data) +
                                                         ranges[i].size_bytes);
    }
    return kept;
}

int ash_remote_file_bring(struct ash_direct_range *ranges, size_t count, struct ash_err *err)
{
    struct bringing bringing = {.ranges = ranges, .count = join_ranges(ranges, count)};
    pthread_t threads[THREADS];
    size_t started = 0;

    if (bringing.count == 0) return 0;
    pthread_mutex_init(&bringing.lock, NULL);
    while (started < THREADS - 1 && (started < bringing.count || ranges[0].size_bytes > CHUNK_BYTES) &&
           ash_thread_start(&threads[started], bring_main, &bringing) == 0)
        started++;
    bring_main(&bringing);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&bringing.lock);
    return bringing.rc < 0 ? ash_err_set(err, bringing.rc, "%s", bringing.err.text) : 0;
}
