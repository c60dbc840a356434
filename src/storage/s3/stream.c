/* Reads an object from its first byte to its last and compares it with its ETag: the MD5 of the bytes, or the MD5 of
 * the MD5s of its parts. Where nobody says how large the parts were, the sizes that clients use are tried together, in
 * one pass. Pieces are asked for ahead and arrive in any order, in a ring; a thread sums them and passes them on in
 * theirs, several at a time where they are parts. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/thread.h"
#include "storage/s3/s3_priv.h"

#define MIB ((uint64_t)1 << 20)
#define GUESSES_MAX 6
#define LANE_BYTES_MAX (16 * MIB) /* of parts that are summed together; as many as lanes are in memory twice */

/* One size of parts. part_bytes 0: the object was not written in parts. */
struct guess {
    uint64_t part_bytes, at; /* at: bytes of the present part so far */
    struct ash_md5 *part, *parts;
};

struct check {
    struct guess guesses[GUESSES_MAX];
    size_t guess_count, part_count;
};

static int add_guess(struct check *check, uint64_t part_bytes)
{
    struct guess *guess = &check->guesses[check->guess_count];

    if (check->guess_count == GUESSES_MAX) return 0;
    *guess = (struct guess){.part_bytes = part_bytes, .part = ash_md5_open(), .parts = ash_md5_open()};
    check->guess_count++;
    return guess->part != NULL && guess->parts != NULL ? 0 : -ENOTSUP;
}

/* What the ETag may be. None: it says nothing about the bytes. */
static int add_guesses(struct check *check, const struct ash_s3_object *object)
{
    static const uint64_t usual_mib[] = {8, 5, 16, 10, 15, 32, 64, 100, 128, 256, 512, 25, 50};
    const char *dash = strrchr(object->etag, '-');
    int rc = 0;

    if (object->is_etag_opaque) return 0;
    if (ash_s3_etag_is_md5(object->etag)) return add_guess(check, 0);
    check->part_count = dash != NULL ? strtoull(dash + 1, NULL, 10) : 0;
    if (check->part_count == 0) return 0;
    if (object->part_bytes > 0 && ash_div_up(object->size_bytes, object->part_bytes) == check->part_count)
        return add_guess(check, object->part_bytes);
    for (size_t i = 0; rc == 0 && i < ASH_COUNT(usual_mib); i++)
        if (ash_div_up(object->size_bytes, usual_mib[i] * MIB) == check->part_count)
            rc = add_guess(check, usual_mib[i] * MIB);
    return rc;
}

static void end_part(struct guess *guess)
{
    uint8_t sum[ASH_MD5_BYTES];

    ash_md5_take(guess->part, sum);
    ash_md5_add(guess->parts, sum, sizeof(sum));
    guess->at = 0;
}

static void feed(struct guess *guess, const uint8_t *data, size_t size_bytes)
{
    while (size_bytes > 0) {
        size_t bytes =
            guess->part_bytes == 0 ? size_bytes : ash_min(size_bytes, (size_t)(guess->part_bytes - guess->at));

        ash_md5_add(guess->part, data, bytes);
        guess->at += bytes;
        data += bytes;
        size_bytes -= bytes;
        if (guess->at == guess->part_bytes) end_part(guess);
    }
}

static bool is_right(struct check *check, struct guess *guess, const char *etag)
{
    uint8_t sum[ASH_MD5_BYTES];

    if (guess->part_bytes > 0 && guess->at > 0) end_part(guess);
    ash_md5_take(guess->part_bytes > 0 ? guess->parts : guess->part, sum);
    return ash_s3_etag_matches(etag, sum, guess->part_bytes > 0 ? check->part_count : 0);
}

static int verdict(struct check *check, const struct ash_s3 *s3, const char *key, const struct ash_s3_object *object,
                   struct ash_err *err)
{
    for (size_t i = 0; i < check->guess_count; i++)
        if (is_right(check, &check->guesses[i], object->etag)) return 1;
    /* Guessed sizes that do not fit prove nothing; a size that was written down does. */
    if (check->guess_count == 0 || (check->part_count > 0 && object->part_bytes == 0)) return 0;
    return ash_err_set(err, -EBADMSG, "s3://%s/%.200s is damaged: its bytes are not those of its ETag %.80s",
                       s3->bucket, key, object->etag);
}

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
    struct check *check;
    const struct ash_s3_sink *sink;
    size_t piece_bytes, piece_count, batch; /* batch: pieces that are passed on together */
    struct place *places;
    size_t place_count, asked, taken; /* taken: pieces that have been read */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* over what follows, and is_ready */
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
    struct guess *guess = &ring->check->guesses[0];
    uint8_t sums[ASH_MD5_LANES][ASH_MD5_BYTES];
    const uint8_t *texts[ASH_MD5_LANES];

    for (size_t i = 0; i < ASH_MD5_LANES; i++)
        texts[i] = place_of(ring, first + i)->data;
    ash_md5_lanes(texts, ring->piece_bytes, sums);
    for (size_t i = 0; i < ASH_MD5_LANES; i++)
        ash_md5_add(guess->parts, sums[i], ASH_MD5_BYTES);
}

/* Sum count pieces and hand them to the sink. The mutex is not held: nobody else touches ready places. */
static int pass_on(struct ring *ring, size_t first, size_t count, struct ash_err *err)
{
    bool is_batch = count == ASH_MD5_LANES && place_of(ring, first + count - 1)->size_bytes == ring->piece_bytes;
    int rc = 0;

    if (is_batch) sum_parts(ring, first);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct place *place = place_of(ring, first + i);

        for (size_t g = 0; !is_batch && g < ring->check->guess_count; g++)
            feed(&ring->check->guesses[g], place->data, place->size_bytes);
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

/* Pass on what is there and (waits) what comes, until all has or it ends early. Called without the mutex. */
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

/* Ask for pieces while places and connections are free. */
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

/* What has been read is ready. */
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
    const struct guess *guess = &ring->check->guesses[0];
    size_t connections = (size_t)ring->s3->opts.connections;

    ring->piece_bytes = (size_t)ring->s3->opts.part_bytes;
    ring->batch = 1;
    if (ring->check->guess_count == 1 && guess->part_bytes > 0 && guess->part_bytes <= LANE_BYTES_MAX &&
        guess->part_bytes % ASH_MD5_BLOCK_BYTES == 0) {
        ring->piece_bytes = (size_t)guess->part_bytes;
        ring->batch = ASH_MD5_LANES;
    }
    ring->piece_count = ash_div_up(ring->whole.size_bytes, ring->piece_bytes);
    ring->place_count = ash_min(ring->piece_count, 2 * ash_max(connections, ring->batch));
}

/* Read the whole object, into the check and to the sink. */
static int read_pieces(struct ash_s3 *s3, const char *key, const struct ash_s3_object *object, struct check *check,
                       const struct ash_s3_sink *sink, struct ash_err *err)
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
    struct check check = {0};
    int rc = ash_s3_stat(s3, key, &object, err);

    if (rc < 0) return rc;
    rc = add_guesses(&check, &object);
    if (rc < 0)
        rc = ash_err_set(err, rc, "cannot compute MD5 sums here: %s", strerror(-rc));
    else
        rc = read_pieces(s3, key, &object, &check, sink, err);
    if (rc == 0) rc = verdict(&check, s3, key, &object, err);
    for (size_t i = 0; i < check.guess_count; i++) {
        ash_md5_close(check.guesses[i].part);
        ash_md5_close(check.guesses[i].parts);
    }
    return rc;
}
