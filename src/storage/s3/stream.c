/* Reads an object from its first byte to its last and compares it with its ETag. Pieces are requested ahead and arrive
 * in any order, in a ring; a thread hashes them and passes them on in order, several at a time if they are parts. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/thread.h"
#include "storage/s3/etag_check_priv.h"
#include "storage/s3/s3_priv.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* A place of the ring: it is being read, or its bytes wait to be passed on. */
struct place {
    struct ash_s3_range_call reading;
    uint8_t *data;
    size_t size_bytes;
    bool is_ready; /* under the mutex */
};

struct ring {
    struct ash_s3 *s3;
    struct ash_s3_range whole; /* the object; its ranges borrow key and version */
    struct ash_etag_check *check;
    const struct ash_s3_sink *sink;
    size_t piece_bytes, piece_count, batch; /* batch: pieces that are passed on together */
    struct place *places;
    size_t place_count, asked, taken; /* taken: pieces that have been read */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of the members below, and is_ready */
    pthread_cond_t changed;
    size_t passed; /* pieces that the ring is free of */
    bool is_stopping;
    int rc; /* of passing on */
    struct ash_err err;
};

static struct place *place_of(struct ring *ring, size_t piece)
{
    return &ring->places[piece % ring->place_count];
}

/* Whole parts from `first` on, several at a time. */
static void sum_parts(struct ring *ring, size_t first)
{
    const uint8_t *parts[ASH_MD5_LANES];

    for (size_t i = 0; i < ASH_MD5_LANES; i++)
        parts[i] = place_of(ring, first + i)->data;
    ash_etag_check_add_parts(ring->check, parts);
}

/* Sum count pieces and hand them to the sink. The mutex is not held: no other thread touches ready slots. */
static int pass_on(struct ring *ring, size_t first, size_t count, struct ash_err *err)
{
    bool is_batch = count == ASH_MD5_LANES && place_of(ring, first + count - 1)->size_bytes == ring->piece_bytes;
    int rc = 0;

    if (is_batch) sum_parts(ring, first);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct place *place = place_of(ring, first + i);

        if (!is_batch) ash_etag_check_add(ring->check, place->data, place->size_bytes);
        rc = ring->sink->take(ring->sink->ctx, place->data, place->size_bytes, err);
    }
    return rc;
}

/* Are the next `count` pieces here? */
static bool are_ready(struct ring *ring, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!place_of(ring, ring->passed + i)->is_ready) return false;
    return true;
}

/* Pass on ready pieces and (waits) later ones, until all are done or it ends early. Called without the mutex. */
static void pass_all(struct ring *ring, bool waits)
{
    pthread_mutex_lock(&ring->mutex);
    while (ring->rc == 0 && !ring->is_stopping && ring->passed < ring->piece_count) {
        size_t first = ring->passed, count = ash_min(ring->batch, ring->piece_count - first);
        struct ash_err err = {0};
        int rc;

        if (!are_ready(ring, count)) {
            if (!waits) break;
            pthread_cond_wait(&ring->changed, &ring->mutex);
            continue;
        }
        pthread_mutex_unlock(&ring->mutex);
        rc = pass_on(ring, first, count, &err);
        pthread_mutex_lock(&ring->mutex);
        for (size_t i = 0; i < count; i++)
            place_of(ring, first + i)->is_ready = false;
        ash_assert(count > 0 && ring->passed == first); /* one thread passes on */
        ring->passed += count;
        ring->rc = rc;
        ring->err = err;
        pthread_cond_broadcast(&ring->changed);
    }
    pthread_mutex_unlock(&ring->mutex);
}

static void *pass_main(void *arg)
{
    pass_all(arg, true);
    return NULL;
}

/* Request pieces while slots and connections are free. */
static int ask(struct ring *ring, size_t passed, struct ash_err *err)
{
    while (ring->asked < ring->piece_count && ring->asked < passed + ring->place_count &&
           ring->asked < ring->taken + (size_t)ring->s3->opts.connections) {
        struct place *place = place_of(ring, ring->asked);
        struct ash_s3_range range = ring->whole;

        range.offset = (uint64_t)ring->asked * ring->piece_bytes;
        range.size_bytes = ash_min(ring->piece_bytes, ring->whole.size_bytes - (size_t)range.offset);
        if (place->data == NULL) place->data = malloc(ring->piece_bytes);
        if (place->data == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
        place->size_bytes = range.size_bytes;
        ash_s3_submit_range(ring->s3, &place->reading, &range, place->data);
        ring->asked++;
    }
    return 0;
}

/* Mark finished reads as ready. */
static int take_read(struct ring *ring, struct ash_err *err)
{
    for (size_t i = 0; i < ring->place_count; i++) {
        struct ash_s3_call *call = &ring->places[i].reading.call;
        int rc;

        if (call->state != ASH_S3_CALL_DONE) continue;
        rc = call->rc < 0 ? ash_err_set(err, call->rc, "%s", call->err.text) : 0;
        ash_s3_call_fini(ring->s3, call);
        if (rc < 0) return rc;
        ring->taken++;
        pthread_mutex_lock(&ring->mutex);
        ash_assert(!ring->places[i].is_ready);
        ring->places[i].is_ready = true;
        pthread_cond_broadcast(&ring->changed);
        pthread_mutex_unlock(&ring->mutex);
    }
    return 0;
}

/* How many pieces have been passed on; waits for more of them where nothing else can be done. An error of passing on
 * is returned. */
static int look(struct ring *ring, size_t *passed_out, struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&ring->mutex);
    while (ring->has_thread && ring->rc == 0 && ring->taken == ring->asked && ring->passed < ring->piece_count &&
           (ring->asked == ring->piece_count || ring->asked == ring->passed + ring->place_count))
        pthread_cond_wait(&ring->changed, &ring->mutex);
    *passed_out = ring->passed;
    rc = ring->rc < 0 ? ash_err_set(err, ring->rc, "%s", ring->err.text) : 0;
    pthread_mutex_unlock(&ring->mutex);
    return rc;
}

/* Everything that this thread does. */
static int read_all(struct ring *ring, struct ash_err *err)
{
    size_t passed = 0;
    int rc = look(ring, &passed, err);

    while (rc == 0 && passed < ring->piece_count) {
        rc = ask(ring, passed, err);
        if (rc == 0 && ring->taken < ring->asked) rc = ash_s3_drive(ring->s3, err);
        if (rc == 0) rc = take_read(ring, err);
        if (rc == 0 && !ring->has_thread && ring->taken == ring->asked) pass_all(ring, false);
        if (rc == 0) rc = look(ring, &passed, err);
    }
    return rc;
}

static void ring_fini(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->is_stopping = true;
    pthread_cond_broadcast(&ring->changed);
    pthread_mutex_unlock(&ring->mutex);
    if (ring->has_thread) pthread_join(ring->thread, NULL);
    for (size_t i = 0; ring->places != NULL && i < ring->place_count; i++) {
        ash_s3_call_fini(ring->s3, &ring->places[i].reading.call);
        free(ring->places[i].data);
    }
    free(ring->places);
    pthread_cond_destroy(&ring->changed);
    pthread_mutex_destroy(&ring->mutex);
}

/* Pieces are the object's parts where those are summed together, else as large as the settings have them. */
static void choose_pieces(struct ring *ring)
{
    size_t connections = (size_t)ring->s3->opts.connections, lane_bytes = ash_etag_check_lane_bytes(ring->check);

    ring->piece_bytes = lane_bytes > 0 ? lane_bytes : (size_t)ring->s3->opts.part_bytes;
    ring->batch = lane_bytes > 0 ? ASH_MD5_LANES : 1;
    ring->piece_count = ash_div_up(ring->whole.size_bytes, ring->piece_bytes);
    ring->place_count = ash_min(ring->piece_count, 2 * ash_max(connections, ring->batch));
}

/* Read the whole object, into the check and to the sink. */
static int read_pieces(struct ash_s3 *s3, const char *key, const struct ash_s3_object *object,
                       struct ash_etag_check *check, const struct ash_s3_sink *sink, struct ash_err *err)
{
    struct ring ring = {.s3 = s3,
                        .whole = {key, object->etag, 0, (size_t)object->size_bytes},
                        .check = check,
                        .sink = sink,
                        .mutex = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER};
    int rc;

    if (object->size_bytes == 0) return 0;
    choose_pieces(&ring);
    ring.places = calloc(ring.place_count, sizeof(*ring.places));
    rc = ring.places != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");
    /* One piece needs no thread. Without one, the ring is read and passed on in turns. */
    if (rc == 0 && ring.piece_count > 1) ring.has_thread = ash_thread_start(&ring.thread, pass_main, &ring) == 0;
    if (rc == 0) rc = read_all(&ring, err);
    ring_fini(&ring);
    return rc;
}

int ash_s3_stream(struct ash_s3 *s3, const char *key, const struct ash_s3_sink *sink, struct ash_err *err)
{
    struct ash_s3_object object = {0};
    struct ash_etag_check check;
    int rc = ash_s3_stat(s3, key, &object, err);

    if (rc < 0) return rc;
    rc = ash_etag_check_init(&check, &object);
    if (rc < 0)
        rc = ash_err_set(err, rc, "cannot compute MD5 sums here: %s", strerror(-rc));
    else
        rc = read_pieces(s3, key, &object, &check, sink, err);
    if (rc == 0) rc = ash_s3_etag_verdict(s3, key, &check, err);
    ash_etag_check_fini(&check);
    return rc;
}
