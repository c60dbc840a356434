/* A tier of page files. Index, figures and the ring of pages on their way are behind one lock; files are read and
 * written without it. After a failed write (a full disk, a bucket that is away) nothing is taken for a while. */
#include "serve/kv/place.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "base/thread.h"

#define RING 8                         /* pages on their way */
#define RING_BYTES ((size_t)256 << 20) /* of memory for them, unless one takes more */
#define LIST_NS 60000000000u           /* between two listings */
#define PAUSE_FIRST_NS 1000000000u     /* after a failed write */
#define PAUSE_MOST_NS 60000000000u
#define COST_KEEP 0.8 /* of the average, at each page */

struct job {
    struct ash_kv_name name;
    size_t bytes;
    void *file;
};

struct ash_kv_place {
    struct ash_kv_place_opts opts;
    struct ash_kv_store *store; /* the thread's */
    pthread_t thread;
    bool has_lock, has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    struct ash_kv_index index;
    struct job ring[RING];
    size_t ring_size, first, count;
    bool is_stopping, is_armed, has_listed;
    uint64_t fingerprint, listed_ns, paused_ns, pause_ns;
    unsigned reading;
    double page_s;
    struct ash_kv_tier_stats stats;
};

/* ---- listings ---------------------------------------------------------------------------------------------------- */

struct listing {
    struct ash_kv_listed *files;
    size_t count, capacity;
};

static int take_file(void *ctx, const struct ash_kv_listed *file)
{
    struct listing *listing = ctx;

    if (listing->count == listing->capacity) {
        size_t capacity = ash_max(64, 2 * listing->capacity);
        struct ash_kv_listed *files = realloc(listing->files, capacity * sizeof(*files));

        if (files == NULL) return -ENOMEM;
        listing->files = files;
        listing->capacity = capacity;
    }
    listing->files[listing->count++] = *file;
    return 0;
}

static int compare_files(const void *a, const void *b)
{
    const struct ash_kv_listed *one = a, *other = b;

    return (one->modified_s > other->modified_s) - (one->modified_s < other->modified_s);
}

/* The index becomes the listing; pages on their way stay. Under the lock. */
static void merge(struct ash_kv_place *place, const struct listing *listing)
{
    struct ash_kv_entry *entry, *newer;

    for (size_t i = 0; i < listing->count; i++) {
        const struct ash_kv_listed *file = &listing->files[i];

        entry = ash_kv_index_find(&place->index, file->name);
        if (entry == NULL) entry = ash_kv_index_add(&place->index, file->name, file->bytes);
        if (entry != NULL) entry->is_seen = true;
    }
    for (entry = place->index.oldest; entry != NULL; entry = newer) {
        newer = entry->newer;
        if (!entry->is_seen && !entry->is_coming)
            ash_kv_index_remove(&place->index, entry);
        else
            entry->is_seen = false;
    }
}

/* Without the lock; only the thread that writes lists, so no file appears or goes meanwhile that the index knows. */
static int list(struct ash_kv_place *place, uint64_t fingerprint, struct ash_err *err)
{
    struct listing listing = {0};
    int rc = place->store->ops->list(place->store, fingerprint, take_file, &listing, err);

    if (rc == 0 && listing.count > 0) qsort(listing.files, listing.count, sizeof(*listing.files), compare_files);
    pthread_mutex_lock(&place->lock);
    if (rc == 0) merge(place, &listing);
    place->listed_ns = ash_clock_ns();
    pthread_mutex_unlock(&place->lock);
    free(listing.files);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Remove pages used longest ago until all fits. */
static void make_room(struct ash_kv_place *place)
{
    uint64_t fingerprint;

    pthread_mutex_lock(&place->lock);
    fingerprint = place->fingerprint;
    while (place->opts.limit_bytes > 0 && place->index.bytes > place->opts.limit_bytes) {
        struct ash_kv_entry *victim = ash_kv_index_victim(&place->index);
        struct ash_kv_name name;

        if (victim == NULL) break;
        name = victim->name;
        ash_kv_index_remove(&place->index, victim);
        place->stats.evictions++;
        pthread_mutex_unlock(&place->lock);
        (void)place->store->ops->remove(place->store, fingerprint, name);
        pthread_mutex_lock(&place->lock);
    }
    pthread_mutex_unlock(&place->lock);
}

/* A write ended. Under the lock. */
static void end_write(struct ash_kv_place *place, const struct job *job, int rc)
{
    struct ash_kv_entry *entry = ash_kv_index_find(&place->index, job->name);

    if (rc == 0) {
        place->stats.stored++;
        place->stats.bytes_written += job->bytes;
        place->pause_ns = 0;
        if (entry != NULL) entry->is_coming = false;
        return;
    }
    if (place->pause_ns == 0) {
        struct ash_err err = {0};

        ash_err_set(&err, rc, "a page was not written to the %s tier, and is computed again when it is needed: %s",
                    place->store->ops->name, strerror(-rc));
        ash_log(ASH_LOG_WARN, "%s", err.text);
    }
    place->stats.write_failures++;
    place->pause_ns = place->pause_ns == 0 ? PAUSE_FIRST_NS : ash_min(2 * place->pause_ns, PAUSE_MOST_NS);
    place->paused_ns = ash_clock_ns() + place->pause_ns;
    if (entry != NULL) ash_kv_index_remove(&place->index, entry);
}

/* Write the first page of the ring. Under the lock, which is released meanwhile. */
static void write_first(struct ash_kv_place *place)
{
    struct job job = place->ring[place->first];
    uint64_t fingerprint = place->fingerprint;
    int rc;

    pthread_mutex_unlock(&place->lock);
    make_room(place);
    rc = place->store->ops->write(place->store, fingerprint, job.name, job.file, job.bytes);
    pthread_mutex_lock(&place->lock);
    end_write(place, &job, rc);
    place->first = (place->first + 1) % place->ring_size;
    place->count--;
}

static void *run(void *arg)
{
    struct ash_kv_place *place = arg;
    struct ash_err err = {0};

    pthread_mutex_lock(&place->lock);
    while (place->count > 0 || !place->is_stopping) {
        bool is_due = place->is_armed && (!place->has_listed || ash_clock_ns() >= place->listed_ns + LIST_NS);

        if (place->count > 0) {
            write_first(place);
        } else if (is_due) {
            uint64_t fingerprint = place->fingerprint;

            place->has_listed = true;
            pthread_mutex_unlock(&place->lock);
            if (list(place, fingerprint, &err) < 0)
                ash_log(ASH_LOG_WARN, "%s tier: %s", place->store->ops->name, err.text);
            pthread_mutex_lock(&place->lock);
        } else {
            struct timespec deadline = ash_cond_deadline(LIST_NS);

            pthread_cond_timedwait(&place->work, &place->lock, &deadline);
        }
    }
    pthread_mutex_unlock(&place->lock);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int start(struct ash_kv_place *place, struct ash_err *err)
{
    int rc;

    place->ring_size = ash_min(ash_max(RING_BYTES / place->opts.file_bytes, 1), RING);
    for (size_t i = 0; i < place->ring_size; i++) {
        place->ring[i].file = malloc(place->opts.file_bytes);
        if (place->ring[i].file == NULL) return ash_err_set(err, -ENOMEM, "no memory for pages on their way");
    }
    rc = ash_cond_init(&place->work);
    if (rc < 0) return ash_err_set(err, rc, "no condition variable");
    pthread_mutex_init(&place->lock, NULL);
    place->has_lock = true;
    rc = place->opts.open(place->opts.ctx, &place->store, err);
    if (rc == 0 && place->opts.lists_at_open) {
        rc = list(place, 0, err);
        place->has_listed = true;
        if (rc == 0) make_room(place);
    }
    if (rc == 0) rc = ash_thread_start(&place->thread, run, place);
    place->has_thread = rc == 0;
    return rc;
}

int ash_kv_place_open(const struct ash_kv_place_opts *opts, struct ash_kv_place **place_out, struct ash_err *err)
{
    struct ash_kv_place *place = calloc(1, sizeof(*place));
    int rc;

    ash_assert(opts->file_bytes > 0);
    if (place == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    place->opts = *opts;
    rc = start(place, err);
    if (rc < 0) {
        ash_kv_place_close(place);
        return rc;
    }
    *place_out = place;
    return 0;
}

void ash_kv_place_close(struct ash_kv_place *place)
{
    if (place == NULL) return;
    if (place->has_thread) {
        pthread_mutex_lock(&place->lock);
        place->is_stopping = true;
        pthread_cond_signal(&place->work);
        pthread_mutex_unlock(&place->lock);
        pthread_join(place->thread, NULL);
    }
    if (place->has_lock) {
        pthread_mutex_destroy(&place->lock);
        pthread_cond_destroy(&place->work);
    }
    ash_kv_index_fini(&place->index);
    for (size_t i = 0; i < RING; i++)
        free(place->ring[i].file);
    ash_kv_store_close(place->store);
    free(place);
}

void ash_kv_place_arm(struct ash_kv_place *place, uint64_t fingerprint)
{
    pthread_mutex_lock(&place->lock);
    if (!place->opts.lists_at_open && (!place->is_armed || place->fingerprint != fingerprint))
        place->has_listed = false;
    place->fingerprint = fingerprint;
    place->is_armed = true;
    pthread_cond_signal(&place->work);
    pthread_mutex_unlock(&place->lock);
}

/* ---- asking and giving ------------------------------------------------------------------------------------------- */

bool ash_kv_place_has(struct ash_kv_place *place, struct ash_kv_name name)
{
    const struct ash_kv_entry *entry;
    bool has;

    pthread_mutex_lock(&place->lock);
    entry = ash_kv_index_find(&place->index, name);
    has = entry != NULL && !entry->is_coming;
    pthread_mutex_unlock(&place->lock);
    return has;
}

void *ash_kv_place_reserve(struct ash_kv_place *place, struct ash_kv_name name, size_t bytes)
{
    struct ash_kv_entry *entry = NULL;
    struct job *job = NULL;

    ash_assert(bytes <= place->opts.file_bytes);
    pthread_mutex_lock(&place->lock);
    if (!place->is_armed || ash_kv_index_find(&place->index, name) != NULL) goto out;
    if (place->count == place->ring_size || place->is_stopping || ash_clock_ns() < place->paused_ns) {
        place->stats.skipped++;
        goto out;
    }
    entry = ash_kv_index_add(&place->index, name, bytes);
    if (entry == NULL) goto out;
    entry->is_coming = true;
    job = &place->ring[(place->first + place->count) % place->ring_size];
    job->name = name;
    job->bytes = bytes;
out:
    pthread_mutex_unlock(&place->lock);
    return job != NULL ? job->file : NULL;
}

void ash_kv_place_submit(struct ash_kv_place *place, bool is_whole)
{
    pthread_mutex_lock(&place->lock);
    if (is_whole) {
        place->count++;
        pthread_cond_signal(&place->work);
    } else {
        const struct job *job = &place->ring[(place->first + place->count) % place->ring_size];
        struct ash_kv_entry *entry = ash_kv_index_find(&place->index, job->name);

        if (entry != NULL) ash_kv_index_remove(&place->index, entry);
    }
    pthread_mutex_unlock(&place->lock);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_damage(int rc)
{
    return rc == -EBADMSG || rc == -ESTALE;
}

/* A file was read (rc 0), or not. Under the lock. */
static void end_read(struct ash_kv_place *place, struct ash_kv_name name, size_t bytes, double seconds, int rc)
{
    struct ash_kv_entry *entry = ash_kv_index_find(&place->index, name);

    if (rc == 0) {
        place->page_s = place->page_s <= 0 ? seconds : COST_KEEP * place->page_s + (1 - COST_KEEP) * seconds;
        place->stats.pages_read++;
        place->stats.bytes_read += bytes;
        return;
    }
    if (is_damage(rc))
        place->stats.damaged++;
    else
        place->stats.read_failures++;
    if (entry != NULL && !entry->is_coming) ash_kv_index_remove(&place->index, entry);
}

int ash_kv_place_read(struct ash_kv_place *place, struct ash_kv_store *store, struct ash_kv_name name,
                      const struct ash_kv_prefix *prefix, size_t page_bytes, void *file)
{
    size_t bytes = ash_kv_page_file_bytes(prefix->count, page_bytes);
    uint64_t begin_ns = ash_clock_ns();
    const struct ash_kv_entry *entry;
    unsigned reading;
    int rc;

    pthread_mutex_lock(&place->lock);
    entry = ash_kv_index_find(&place->index, name);
    rc = entry == NULL ? -ENOENT : entry->bytes != bytes ? -EBADMSG : 0;
    reading = ++place->reading;
    pthread_mutex_unlock(&place->lock);
    if (rc == 0) rc = store->ops->read(store, prefix->fingerprint, name, file, bytes);
    if (rc == 0) rc = ash_kv_page_file_check(file, bytes, prefix, page_bytes);
    if (is_damage(rc)) (void)store->ops->remove(store, prefix->fingerprint, name);
    pthread_mutex_lock(&place->lock);
    place->reading--;
    end_read(place, name, bytes, 1e-9 * (double)(ash_clock_ns() - begin_ns) / reading, rc);
    pthread_mutex_unlock(&place->lock);
    return rc;
}

void ash_kv_place_touch(struct ash_kv_place *place, struct ash_kv_store *store, const struct ash_kv_name *names,
                        size_t count)
{
    while (count-- > 0) {
        struct ash_kv_entry *entry;

        pthread_mutex_lock(&place->lock);
        entry = ash_kv_index_find(&place->index, names[count]);
        if (entry != NULL) ash_kv_index_touch(&place->index, entry, true);
        pthread_mutex_unlock(&place->lock);
        if (entry != NULL) store->ops->touch(store, names[count]);
    }
}

double ash_kv_place_page_seconds(struct ash_kv_place *place)
{
    double seconds;

    pthread_mutex_lock(&place->lock);
    seconds = place->page_s;
    pthread_mutex_unlock(&place->lock);
    return seconds;
}

void ash_kv_place_stats(struct ash_kv_place *place, struct ash_kv_tier_stats *stats_out)
{
    pthread_mutex_lock(&place->lock);
    *stats_out = place->stats;
    stats_out->pages = place->index.count;
    stats_out->bytes = place->index.bytes;
    pthread_mutex_unlock(&place->lock);
}
