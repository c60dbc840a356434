/* Reads an object from its first byte to its last and compares it with its ETag: the MD5 of the bytes, or the MD5 of
 * the MD5s of its parts. Where nobody says how large the parts were, the sizes that clients use are tried together, in
 * one pass. */
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

/* A window that was read: summed and passed on in a thread, while the next one is read. */
struct passing {
    struct check *check;
    const struct ash_s3_sink *sink;
    const uint8_t *data;
    size_t size_bytes;
    int rc;
    struct ash_err err;
    pthread_t thread;
    bool is_running;
};

static void *pass_on(void *arg)
{
    struct passing *passing = arg;

    for (size_t i = 0; i < passing->check->guess_count; i++)
        feed(&passing->check->guesses[i], passing->data, passing->size_bytes);
    passing->rc = passing->sink->take(passing->sink->ctx, passing->data, passing->size_bytes, &passing->err);
    return NULL;
}

/* Wait for the window before. Returns what became of it. */
static int await_passing(struct passing *passing, struct ash_err *err)
{
    if (passing->is_running) pthread_join(passing->thread, NULL);
    passing->is_running = false;
    return passing->rc < 0 ? ash_err_set(err, passing->rc, "%s", passing->err.text) : 0;
}

static void start_passing(struct passing *passing, const uint8_t *data, size_t size_bytes, bool is_last)
{
    passing->data = data;
    passing->size_bytes = size_bytes;
    passing->is_running = !is_last && ash_thread_start(&passing->thread, pass_on, passing) == 0;
    if (!passing->is_running) pass_on(passing);
}

/* Read the whole object, window by window, into the check and to take. */
static int read_windows(struct ash_s3 *s3, const char *key, const struct ash_s3_object *object, struct check *check,
                        const struct ash_s3_sink *sink, struct ash_err *err)
{
    size_t window_bytes = ash_min((size_t)(s3->opts.part_bytes * s3->opts.connections), ash_max(object->size_bytes, 1));
    struct passing passing = {.check = check, .sink = sink};
    uint8_t *windows[2] = {malloc(window_bytes), object->size_bytes > window_bytes ? malloc(window_bytes) : NULL};
    size_t turn = 0;
    int rc = 0, last;

    if (windows[0] == NULL || (object->size_bytes > window_bytes && windows[1] == NULL))
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    for (uint64_t at = 0; rc == 0 && at < object->size_bytes; turn ^= 1) {
        size_t bytes = ash_min(window_bytes, (size_t)(object->size_bytes - at));

        rc = ash_s3_read(s3, &(struct ash_s3_range){key, object->etag, at, bytes}, windows[turn], err);
        if (rc == 0) rc = await_passing(&passing, err);
        at += bytes;
        if (rc == 0) start_passing(&passing, windows[turn], bytes, at == object->size_bytes);
    }
    last = await_passing(&passing, rc == 0 ? err : NULL);
    free(windows[0]);
    free(windows[1]);
    return rc < 0 ? rc : last;
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
        rc = read_windows(s3, key, &object, &check, sink, err);
    if (rc == 0) rc = verdict(&check, s3, key, &object, err);
    for (size_t i = 0; i < check.guess_count; i++) {
        ash_md5_close(check.guesses[i].part);
        ash_md5_close(check.guesses[i].parts);
    }
    return rc;
}
