/* A few threads that read files of open loads, oldest load and first page first, into buffers. While a prefill server
 * is at a prompt, they look every few milliseconds how far it is, and read what has come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/thread.h"
#include "serve/kv/kv_priv.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define COST_KEEP 0.8 /* of what a page takes on average, at each page */
#define BUFFER_BYTES ((size_t)256 << 20)
#define LOOK_NS 2000000u             /* between two looks at how far a source is */
#define BEAT_PATIENCE_NS 3000000000u /* a source without a beat is lost */

static bool wants_reader(const struct ash_kv_load *load)
{
    return !load->is_closed && load->asked < load->count;
}

/* Does the next piece have to be computed elsewhere first? */
static bool is_early(const struct ash_kv_load *load)
{
    return load->is_growing && load->pieces[load->asked].tier == ASH_KV_PEER &&
           load->first + load->asked >= load->grown;
}

/* The load whose next piece can be read, or NULL. Under the lock. */
static struct ash_kv_load *find_work(struct ash_kv *kv)
{
    struct ash_kv_load *found = NULL;

    if (kv->free_count == 0) return NULL;
    for (struct ash_kv_load *load = kv->loads; load != NULL; load = load->next) {
        while (wants_reader(load) && load->pieces[load->asked].tier == ASH_KV_HOST)
            load->asked++;
        if (wants_reader(load) && !is_early(load)) found = load; /* the list has the newest first */
    }
    return found;
}

/* The load whose source is to be looked at now, or NULL and the time of the next one. Under the lock. */
static struct ash_kv_load *find_look(struct ash_kv *kv, uint64_t now_ns, uint64_t *due_ns_out)
{
    struct ash_kv_load *found = NULL;

    *due_ns_out = UINT64_MAX;
    for (struct ash_kv_load *load = kv->loads; load != NULL; load = load->next) {
        if (load->is_looked_at || !wants_reader(load) || !is_early(load)) continue;
        if (load->look_ns <= now_ns) found = load;
        *due_ns_out = ash_min(*due_ns_out, load->look_ns);
    }
    return found;
}

/* A page of another process was read (rc 0), or not. */
static void note_peer(struct ash_kv *kv, double seconds, int rc)
{
    struct ash_kv_tier_stats *stats = &kv->peer_stats;

    pthread_mutex_lock(&kv->lock);
    if (rc == 0) {
        kv->peer_page_s = kv->peer_page_s <= 0 ? seconds : COST_KEEP * kv->peer_page_s + (1 - COST_KEEP) * seconds;
        stats->pages_read++;
        stats->bytes_read += kv->page_bytes;
    } else if (rc == -EBADMSG || rc == -ESTALE) {
        stats->damaged++;
    } else {
        stats->read_failures++;
    }
    pthread_mutex_unlock(&kv->lock);
}

/* What the reader reads other processes with. */
static int open_peer(struct ash_kv_reader *reader)
{
    const struct ash_kv *kv = reader->kv;
    void *buffers[ASH_KV_BUFFERS];

    for (size_t i = 0; i < kv->buffer_count; i++)
        buffers[i] = kv->buffers[i].data;
    if (reader->peer != NULL) return 0;
    return ash_kv_peer_open(buffers, kv->buffer_count, kv->file_bytes, &reader->peer, NULL);
}

/* Read a page of the process that the load says. Without the lock. */
static int read_peer(struct ash_kv_reader *reader, const struct ash_kv_load *load, struct ash_kv_name name,
                     const struct ash_kv_prefix *prefix, void *buffer)
{
    struct ash_kv *kv = reader->kv;
    uint64_t begin_ns = ash_clock_ns();
    int rc = open_peer(reader);

    if (rc == 0) rc = ash_kv_peer_read(reader->peer, &load->source.shelf, name, prefix, kv->page_bytes, buffer);
    note_peer(kv, 1e-9 * (double)(ash_clock_ns() - begin_ns) / ASH_KV_READERS, rc);
    return rc;
}

/* Read one piece. Under the lock, which is released meanwhile. */
static void read_piece(struct ash_kv_reader *reader, struct ash_kv_load *load)
{
    struct ash_kv *kv = reader->kv;
    size_t index = load->asked++, page = load->first + index;
    struct ash_kv_piece *piece = &load->pieces[index];
    struct ash_kv_prefix prefix = load->prefix;
    int rc;

    prefix.count = (page + 1) * PAGE;
    piece->buffer = kv->free_buffers[--kv->free_count];
    piece->state = ASH_KV_PIECE_READING;
    load->reading++;
    pthread_mutex_unlock(&kv->lock);
    if (piece->tier == ASH_KV_PEER)
        rc = read_peer(reader, load, load->names[page], &prefix, piece->buffer);
    else
        rc = ash_kv_place_read(kv->places[piece->tier], reader->stores[piece->tier], load->names[page], &prefix,
                               kv->page_bytes, piece->buffer);
    if (rc == 0 && index + 1 == load->count && piece->tier != ASH_KV_PEER)
        ash_kv_place_touch(kv->places[piece->tier], reader->stores[piece->tier], load->names, page + 1);
    pthread_mutex_lock(&kv->lock);
    piece->state = rc == 0 ? ASH_KV_PIECE_READY : ASH_KV_PIECE_FAILED;
    load->reading--;
    kv->ready_serial++;
    pthread_cond_broadcast(&kv->ready);
    if (load->is_closed && load->reading == 0) ash_kv_load_remove(load);
}

/* What a look at the source of a load found (rc 0), or that it cannot be read. Under the lock. */
static void note_look(struct ash_kv *kv, struct ash_kv_load *load, const struct ash_kv_job *job, int rc)
{
    uint64_t now_ns = ash_clock_ns();

    load->look_ns = now_ns + LOOK_NS;
    if (rc == 0 && (load->beat_ns == 0 || job->beat != load->beat)) {
        load->beat = job->beat;
        load->beat_ns = now_ns;
    }
    if (rc == 0 && job->pages > load->grown) {
        load->grown = job->pages;
        load->grown_ns = now_ns;
        pthread_cond_broadcast(&kv->work);
    }
    if (rc == 0 && !job->is_over && now_ns <= load->beat_ns + BEAT_PATIENCE_NS) return;
    load->is_growing = false; /* what else is there is read, and the rest computed */
    load->grown_ns = now_ns;
    pthread_cond_broadcast(&kv->work);
}

/* Look how far the source of a load is. Under the lock, which is released meanwhile. */
static void look_at_source(struct ash_kv_reader *reader, struct ash_kv_load *load)
{
    struct ash_kv *kv = reader->kv;
    struct ash_kv_job job = {0};
    int rc;

    load->is_looked_at = true;
    load->reading++;
    pthread_mutex_unlock(&kv->lock);
    rc = open_peer(reader);
    if (rc == 0) rc = ash_kv_peer_look(reader->peer, &load->source.shelf, load->source.job, &job);
    pthread_mutex_lock(&kv->lock);
    load->is_looked_at = false;
    load->reading--;
    note_look(kv, load, &job, rc);
    if (load->is_closed && load->reading == 0) ash_kv_load_remove(load);
}

/* Until there is work, or a load is to be looked at. Under the lock. */
static void wait_for_work(struct ash_kv *kv, uint64_t now_ns, uint64_t due_ns)
{
    struct timespec deadline;

    if (kv->has_watch || due_ns == UINT64_MAX) {
        pthread_cond_wait(&kv->work, &kv->lock);
        return;
    }
    deadline = ash_cond_deadline(due_ns > now_ns ? due_ns - now_ns : 0);
    kv->has_watch = true;
    (void)pthread_cond_timedwait(&kv->work, &kv->lock, &deadline);
    kv->has_watch = false;
}

static void *run(void *arg)
{
    struct ash_kv_reader *reader = arg;
    struct ash_kv *kv = reader->kv;

    pthread_mutex_lock(&kv->lock);
    while (!kv->is_stopping) {
        uint64_t now_ns = ash_clock_ns(), due_ns = UINT64_MAX;
        struct ash_kv_load *load = find_work(kv), *look = load == NULL ? find_look(kv, now_ns, &due_ns) : NULL;

        if (load != NULL || look != NULL) pthread_cond_signal(&kv->work); /* another one may have to watch */
        if (load != NULL)
            read_piece(reader, load);
        else if (look != NULL)
            look_at_source(reader, look);
        else
            wait_for_work(kv, now_ns, due_ns);
    }
    pthread_mutex_unlock(&kv->lock);
    return NULL;
}

static int open_store(const struct ash_kv *kv, enum ash_kv_tier tier, struct ash_kv_store **store_out,
                      struct ash_err *err)
{
    if (tier == ASH_KV_DIR) return ash_kv_store_open_dir(kv->opts.dir, store_out, err);
    return ash_kv_store_open_remote(kv->opts.remote, kv->opts.s3, store_out, err);
}

static int start_reader(struct ash_kv *kv, struct ash_kv_reader *reader, struct ash_err *err)
{
    int rc = 0;

    reader->kv = kv;
    for (size_t tier = 0; tier < ASH_KV_TIERS && rc == 0; tier++)
        if (kv->places[tier] != NULL) rc = open_store(kv, (enum ash_kv_tier)tier, &reader->stores[tier], err);
    if (rc < 0) return rc;
    rc = ash_thread_start(&reader->thread, run, reader);
    reader->has_thread = rc == 0;
    return rc < 0 ? ash_err_set(err, rc, "cannot start a thread that reads pages") : 0;
}

int ash_kv_start_readers(struct ash_kv *kv, const struct ash_memory_ops *memory, struct ash_err *err)
{
    size_t buffers = ash_min(ash_max(BUFFER_BYTES / kv->file_bytes, 2), ASH_KV_BUFFERS);
    int rc = ash_cond_init(&kv->work);

    if (rc == 0) rc = ash_cond_init(&kv->ready);
    if (rc < 0) return ash_err_set(err, rc, "no condition variable");
    pthread_mutex_init(&kv->lock, NULL);
    kv->has_lock = true;
    if (kv->places[ASH_KV_DIR] == NULL && kv->places[ASH_KV_REMOTE] == NULL && !kv->opts.reads_peers) return 0;
    for (; kv->buffer_count < buffers; kv->buffer_count++) {
        struct ash_buffer *buffer = &kv->buffers[kv->buffer_count];

        rc = ash_buffer_init(buffer, memory, kv->file_bytes, "pages that are read", err);
        if (rc < 0) return rc;
        kv->free_buffers[kv->free_count++] = buffer->data;
    }
    for (size_t i = 0; i < ASH_KV_READERS && rc == 0; i++)
        rc = start_reader(kv, &kv->readers[i], err);
    return rc;
}

void ash_kv_stop_readers(struct ash_kv *kv)
{
    if (!kv->has_lock) return;
    pthread_mutex_lock(&kv->lock);
    kv->is_stopping = true;
    pthread_cond_broadcast(&kv->work);
    pthread_mutex_unlock(&kv->lock);
    for (size_t i = 0; i < ASH_KV_READERS; i++)
        if (kv->readers[i].has_thread) pthread_join(kv->readers[i].thread, NULL);
    while (kv->loads != NULL) {
        ash_assert(kv->loads->is_closed);
        ash_kv_load_remove(kv->loads);
    }
    for (size_t i = 0; i < ASH_KV_READERS; i++)
        ash_kv_peer_close(kv->readers[i].peer);
    for (size_t i = 0; i < ASH_KV_READERS; i++)
        for (size_t tier = 0; tier < ASH_KV_TIERS; tier++)
            ash_kv_store_close(kv->readers[i].stores[tier]);
    for (size_t i = 0; i < kv->buffer_count; i++)
        ash_buffer_fini(&kv->buffers[i]);
    pthread_mutex_destroy(&kv->lock);
    pthread_cond_destroy(&kv->work);
    pthread_cond_destroy(&kv->ready);
}
