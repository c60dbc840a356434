/* Loads: pages that come back, in order, as a sequence takes them. Readers (readers.c) bring them into buffers; pages
 * of host memory are taken without one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/thread.h"
#include "serve/kv/kv_priv.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define PATIENCE_NS 10000000000u       /* without a page; then the rest is computed */
#define DECLINES_MOST 16               /* then a load is tried all the same: a disk that was slow may no longer be */
#define GROW_PATIENCE_NS 120000000000u /* the same without a page, if it lives */

static void free_load(struct ash_kv_load *load)
{
    free(load->tokens);
    free(load->names);
    free(load->pieces);
    free(load);
}

void ash_kv_load_remove(struct ash_kv_load *load)
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
    load->is_growing = load->source.job != 0;
    load->progress_ns = load->grown_ns = ash_clock_ns();
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
    uint64_t limit_ns;

    pthread_mutex_lock(&kv->lock);
    state = piece->state;
    kv->seen_serial = kv->ready_serial;
    limit_ns = ash_max(load->progress_ns, load->grown_ns) + (load->is_growing ? GROW_PATIENCE_NS : PATIENCE_NS);
    pthread_mutex_unlock(&kv->lock);
    if (state == ASH_KV_PIECE_READY) return 1;
    if (state == ASH_KV_PIECE_FAILED) return -ENOENT;
    return ash_clock_ns() > limit_ns ? -ETIMEDOUT : 0;
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
    if (load->reading == 0) ash_kv_load_remove(load);
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
