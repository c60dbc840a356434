/* Pages that come back: a few threads read files of open loads, oldest load and first page first, into buffers; the
 * engine's thread takes them in order. Pages of host memory are taken without a thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/thread.h"
#include "serve/kv/kv_priv.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define PATIENCE_NS 10000000000u /* without a page; then the rest is computed */
#define COST_KEEP 0.8            /* of what a page takes on average, at each page */
#define DECLINES_MOST 16         /* then a load is tried all the same: a disk that was slow may no longer be */
#define BUFFER_BYTES ((size_t)256 << 20)

/* ---- readers ----------------------------------------------------------------------------------------------------- */

static bool wants_reader(const struct ash_kv_load *load)
{
    return !load->is_closed && load->asked < load->count;
}

/* The next piece to read, or NULL. Under the lock. */
static struct ash_kv_load *find_work(struct ash_kv *kv)
{
    struct ash_kv_load *found = NULL;

    if (kv->free_count == 0) return NULL;
    for (struct ash_kv_load *load = kv->loads; load != NULL; load = load->next) {
        while (wants_reader(load) && load->pieces[load->asked].tier == ASH_KV_HOST)
            load->asked++;
        if (wants_reader(load)) found = load; /* the list has the newest first */
    }
    return found;
}

static void free_load(struct ash_kv_load *load)
{
    free(load->tokens);
    free(load->names);
    free(load->pieces);
    free(load);
}

/* No sequence takes its pages any more: buffers back, and out of the list. Under the lock, without a reader in it. */
static void remove_load(struct ash_kv_load *load)
{
    struct ash_kv *kv = load->kv;
    struct ash_kv_load **link = &kv->loads;

    for (size_t i = 0; i < load->count; i++)
        if (load->pieces[i].buffer != NULL) kv->free_buffers[kv->free_count++] = load->pieces[i].buffer;
    while (*link != load)
        link = &(*link)->next;
    *link = load->next;
    pthread_cond_broadcast(&kv->work);
    free_load(load);
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

/* Read a page of the process that the load says. Without the lock. */
static int read_peer(struct ash_kv_reader *reader, const struct ash_kv_load *load, struct ash_kv_name name,
                     const struct ash_kv_prefix *prefix, void *buffer)
{
    struct ash_kv *kv = reader->kv;
    uint64_t begin_ns = ash_clock_ns();
    void *buffers[ASH_KV_BUFFERS];
    int rc = 0;

    for (size_t i = 0; i < kv->buffer_count; i++)
        buffers[i] = kv->buffers[i].data;
    if (reader->peer == NULL) rc = ash_kv_peer_open(buffers, kv->buffer_count, kv->file_bytes, &reader->peer, NULL);
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
    if (load->is_closed && load->reading == 0) remove_load(load);
}

static void *run(void *arg)
{
    struct ash_kv_reader *reader = arg;
    struct ash_kv *kv = reader->kv;

    pthread_mutex_lock(&kv->lock);
    while (!kv->is_stopping) {
        struct ash_kv_load *load = find_work(kv);

        if (load != NULL)
            read_piece(reader, load);
        else
            pthread_cond_wait(&kv->work, &kv->lock);
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
        remove_load(kv->loads);
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

/* ---- a load ------------------------------------------------------------------------------------------------------ */

/* The fastest tier that has page number `page`, or ASH_KV_TIERS. */
static enum ash_kv_tier find_tier(struct ash_kv *kv, const struct ash_kv_load *load, size_t page,
                                  struct ash_kv_name name)
{
    if (ash_kv_index_find(&kv->host.index, name) != NULL) return ASH_KV_HOST;
    if (page < load->source.tokens / PAGE) return ASH_KV_PEER;
    for (size_t tier = ASH_KV_DIR; tier < ASH_KV_TIERS; tier++)
        if (kv->places[tier] != NULL && ash_kv_place_has(kv->places[tier], name)) return (enum ash_kv_tier)tier;
    return ASH_KV_TIERS;
}

static double page_seconds(struct ash_kv *kv, enum ash_kv_tier tier)
{
    double seconds;

    if (tier == ASH_KV_HOST) return kv->host.page_s;
    if (tier != ASH_KV_PEER) return ash_kv_place_page_seconds(kv->places[tier]);
    pthread_mutex_lock(&kv->lock);
    seconds = kv->peer_page_s;
    pthread_mutex_unlock(&kv->lock);
    return seconds;
}

/* Is computing faster than what reading has taken so far? Every now and then it is tried all the same. */
static bool is_declined(struct ash_kv *kv, const struct ash_kv_load *load, double row_s)
{
    double read_s = 0;

    for (size_t i = 0; i < load->count; i++) {
        enum ash_kv_tier tier = load->pieces[i].tier;

        read_s += page_seconds(kv, tier);
    }
    if (kv->opts.reads_always || row_s <= 0 || read_s <= row_s * (double)(load->count * PAGE) ||
        ++kv->declines > DECLINES_MOST) {
        kv->declines = 0;
        return false;
    }
    kv->declined[load->pieces[0].tier]++;
    return true;
}

/* Names of all pages, and how many in a row from `first` on are there. */
static void look_up(struct ash_kv *kv, struct ash_kv_load *load, size_t pages)
{
    struct ash_kv_name name = ash_kv_name_start(load->prefix.fingerprint, load->prefix.salt);

    for (size_t i = 0; i < pages; i++) {
        enum ash_kv_tier tier;

        load->names[i] = name = ash_kv_name_next(name, load->tokens + i * PAGE, PAGE);
        if (i < load->first) continue;
        tier = find_tier(kv, load, i, name);
        if (tier == ASH_KV_TIERS) return;
        load->pieces[load->count++].tier = tier;
    }
}

struct ash_kv_load *ash_kv_load_open(struct ash_kv *kv, const struct ash_kv_page *text, size_t first, double row_s)
{
    size_t pages = text->count / PAGE;
    struct ash_kv_load *load;

    if (first >= pages || !atomic_load(&kv->is_armed)) return NULL;
    load = calloc(1, sizeof(*load));
    if (load == NULL) return NULL;
    load->kv = kv;
    load->first = first;
    load->tokens = malloc(pages * PAGE * sizeof(*load->tokens));
    load->names = calloc(pages, sizeof(*load->names));
    load->pieces = calloc(pages - first, sizeof(*load->pieces));
    if (text->source != NULL && kv->opts.reads_peers && text->source->fingerprint == atomic_load(&kv->fingerprint))
        load->source = *text->source;
    if (load->tokens != NULL) memcpy(load->tokens, text->tokens, pages * PAGE * sizeof(*load->tokens));
    load->prefix = (struct ash_kv_prefix){atomic_load(&kv->fingerprint), text->salt, load->tokens, pages * PAGE};
    if (load->tokens != NULL && load->names != NULL && load->pieces != NULL) look_up(kv, load, pages);
    if (load->count == 0 || is_declined(kv, load, row_s)) {
        free_load(load);
        return NULL;
    }
    load->progress_ns = ash_clock_ns();
    pthread_mutex_lock(&kv->lock);
    load->next = kv->loads;
    kv->loads = load;
    pthread_cond_broadcast(&kv->work);
    pthread_mutex_unlock(&kv->lock);
    return load;
}

static int take_host(struct ash_kv_load *load, int32_t page)
{
    struct ash_kv *kv = load->kv;
    struct ash_kv_prefix prefix = load->prefix;
    uint64_t begin_ns = ash_clock_ns();
    const void *data;
    int rc;

    prefix.count = (load->first + load->taken + 1) * PAGE;
    data = ash_kv_host_get(&kv->host, load->names[load->first + load->taken], &prefix);
    if (data == NULL) return -ENOENT;
    rc = kv->pool.write(kv->pool.ctx, page, data);
    if (rc < 0) return rc;
    kv->host.page_s = 1e-9 * (double)(ash_clock_ns() - begin_ns);
    kv->host.stats.pages_read++;
    kv->host.stats.bytes_read += kv->page_bytes;
    return 1;
}

/* Has a reader ended with the next piece? 1, 0 or negative as ash_kv_load_take. */
static int look(struct ash_kv_load *load, const struct ash_kv_piece *piece)
{
    struct ash_kv *kv = load->kv;
    enum ash_kv_piece_state state;

    pthread_mutex_lock(&kv->lock);
    state = piece->state;
    kv->seen_serial = kv->ready_serial;
    pthread_mutex_unlock(&kv->lock);
    if (state == ASH_KV_PIECE_READY) return 1;
    if (state == ASH_KV_PIECE_FAILED) return -ENOENT;
    return ash_clock_ns() > load->progress_ns + PATIENCE_NS ? -ETIMEDOUT : 0;
}

bool ash_kv_load_is_ready(struct ash_kv_load *load)
{
    const struct ash_kv_piece *piece = &load->pieces[load->taken];

    return load->taken == load->count || piece->tier == ASH_KV_HOST || look(load, piece) != 0;
}

int ash_kv_load_take(struct ash_kv_load *load, int32_t page)
{
    struct ash_kv *kv = load->kv;
    struct ash_kv_piece *piece = &load->pieces[load->taken];
    int rc;

    if (load->taken == load->count) return -ENOENT;
    if (piece->tier == ASH_KV_HOST) {
        rc = take_host(load, page);
    } else {
        size_t offset = ash_kv_page_file_offset((load->first + load->taken + 1) * PAGE);

        rc = look(load, piece);
        if (rc == 1 && kv->pool.write(kv->pool.ctx, page, (char *)piece->buffer + offset) < 0) rc = -EIO;
        pthread_mutex_lock(&kv->lock);
        if (rc == 1) {
            kv->free_buffers[kv->free_count++] = piece->buffer;
            piece->buffer = NULL;
            pthread_cond_signal(&kv->work);
        }
        pthread_mutex_unlock(&kv->lock);
    }
    if (rc != 1) return rc;
    load->taken++;
    load->progress_ns = ash_clock_ns();
    return 1;
}

void ash_kv_load_close(struct ash_kv_load *load)
{
    struct ash_kv *kv = load != NULL ? load->kv : NULL;

    if (load == NULL) return;
    pthread_mutex_lock(&kv->lock);
    load->is_closed = true;
    if (load->reading == 0) remove_load(load);
    pthread_mutex_unlock(&kv->lock);
}

void ash_kv_wait(struct ash_kv *kv, double timeout_s)
{
    struct timespec deadline = ash_cond_deadline((uint64_t)(timeout_s * 1e9));
    int rc = 0;

    pthread_mutex_lock(&kv->lock);
    while (kv->ready_serial == kv->seen_serial && rc == 0)
        rc = pthread_cond_timedwait(&kv->ready, &kv->lock, &deadline);
    pthread_mutex_unlock(&kv->lock);
}
