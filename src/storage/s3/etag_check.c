/* Checks bytes against ETags, as they come or from a file. */
#include "storage/s3/etag_check_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "storage/io/io_priv.h"
#include "storage/s3/s3_priv.h"

#define MIB ((uint64_t)1 << 20)
#define LANE_BYTES_MAX (16 * MIB) /* of parts that are summed together; as many as lanes are in memory twice */
#define WINDOW_BYTES ((size_t)32 << 20)

static int add_guess(struct ash_etag_check *check, uint64_t part_bytes)
{
    struct ash_etag_guess *guess = &check->guesses[check->guess_count];

    if (check->guess_count == ASH_ETAG_GUESSES_MAX) return 0;
    *guess = (struct ash_etag_guess){.part_bytes = part_bytes, .part = ash_md5_open(), .parts = ash_md5_open()};
    check->guess_count++;
    return guess->part != NULL && guess->parts != NULL ? 0 : -ENOTSUP;
}

/* Without a guess the ETag cannot verify the bytes. */
int ash_etag_check_init(struct ash_etag_check *check, const struct ash_s3_object *object)
{
    static const uint64_t usual_mib[] = {8, 5, 16, 10, 15, 32, 64, 100, 128, 256, 512, 25, 50};
    const char *dash = strrchr(object->etag, '-');
    int rc = 0;

    *check = (struct ash_etag_check){.object = object};
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

void ash_etag_check_fini(struct ash_etag_check *check)
{
    for (size_t i = 0; i < check->guess_count; i++) {
        ash_md5_close(check->guesses[i].part);
        ash_md5_close(check->guesses[i].parts);
    }
}

size_t ash_etag_check_lane_bytes(const struct ash_etag_check *check)
{
    uint64_t part_bytes = check->guesses[0].part_bytes;

    if (check->guess_count != 1 || part_bytes > LANE_BYTES_MAX || part_bytes % ASH_MD5_BLOCK_BYTES != 0) return 0;
    return (size_t)part_bytes;
}

static void end_part(struct ash_etag_guess *guess)
{
    uint8_t sum[ASH_MD5_BYTES];

    ash_md5_take(guess->part, sum);
    ash_md5_add(guess->parts, sum, sizeof(sum));
    guess->at = 0;
}

static void feed(struct ash_etag_guess *guess, const uint8_t *data, size_t size_bytes)
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

void ash_etag_check_add(struct ash_etag_check *check, const uint8_t *data, size_t size_bytes)
{
    for (size_t i = 0; i < check->guess_count; i++)
        feed(&check->guesses[i], data, size_bytes);
}

void ash_etag_check_add_parts(struct ash_etag_check *check, const uint8_t *const parts[ASH_MD5_LANES])
{
    uint8_t sums[ASH_MD5_LANES][ASH_MD5_BYTES];

    ash_assert(check->guess_count == 1); /* lanes need one certain part size */
    ash_md5_lanes(parts, ash_etag_check_lane_bytes(check), sums);
    for (size_t i = 0; i < ASH_MD5_LANES; i++)
        ash_md5_add(check->guesses[0].parts, sums[i], ASH_MD5_BYTES);
}

static bool is_right(const struct ash_etag_check *check, struct ash_etag_guess *guess)
{
    bool is_parted = guess->part_bytes > 0;
    uint8_t sum[ASH_MD5_BYTES];

    if (is_parted && guess->at > 0) end_part(guess);
    ash_md5_take(is_parted ? guess->parts : guess->part, sum);
    return ash_s3_etag_matches(check->object->etag, sum, is_parted ? check->part_count : 0);
}

int ash_etag_check_end(struct ash_etag_check *check)
{
    for (size_t i = 0; i < check->guess_count; i++)
        if (is_right(check, &check->guesses[i])) return 1;
    /* Guessed sizes that do not fit prove nothing; a size that was written down does. */
    if (check->guess_count == 0 || (check->part_count > 0 && check->object->part_bytes == 0)) return 0;
    return -EBADMSG;
}

int ash_s3_etag_verdict(const struct ash_s3 *s3, const char *key, struct ash_etag_check *check, struct ash_err *err)
{
    int rc = ash_etag_check_end(check);

    if (rc >= 0) return rc;
    return ash_err_set(err, rc, "s3://%s/%.200s is damaged: its bytes are not those of its ETag %.80s", s3->bucket, key,
                       check->object->etag);
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

/* The file from its first byte to its last, through a window of several parts where those are summed together. */
static int add_file(struct ash_etag_check *check, int fd)
{
    size_t lane_bytes = ash_etag_check_lane_bytes(check);
    size_t window_bytes = lane_bytes > 0 ? ASH_MD5_LANES * lane_bytes : WINDOW_BYTES;
    uint8_t *window = malloc(window_bytes);
    const uint8_t *parts[ASH_MD5_LANES];
    int rc = window != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; window != NULL && lane_bytes > 0 && i < ASH_MD5_LANES; i++)
        parts[i] = window + i * lane_bytes;
    for (uint64_t at = 0; rc == 0 && at < check->object->size_bytes;) {
        size_t bytes = ash_min(window_bytes, (size_t)(check->object->size_bytes - at));

        rc = ash_io_read_at(fd, at, window, bytes);
        if (rc == 0 && lane_bytes > 0 && bytes == window_bytes)
            ash_etag_check_add_parts(check, parts);
        else if (rc == 0)
            ash_etag_check_add(check, window, bytes);
        at += bytes;
    }
    free(window);
    return rc;
}

int ash_s3_compare_file(struct ash_s3 *s3, const char *key, const char *etag, int fd, struct ash_err *err)
{
    struct ash_s3_object object = {0};
    struct ash_etag_check check;
    int rc = ash_s3_stat(s3, key, &object, err);

    if (rc < 0) return rc;
    if (strcmp(object.etag, etag) != 0)
        return ash_err_set(err, -ESTALE, "s3://%s/%.200s has changed since it was opened", s3->bucket, key);
    rc = ash_etag_check_init(&check, &object);
    if (rc == 0 && check.guess_count > 0) rc = add_file(&check, fd);
    if (rc < 0)
        ash_err_set(err, rc, "cannot sum the local bytes of s3://%s/%.200s: %s", s3->bucket, key, strerror(-rc));
    if (rc == 0) rc = ash_s3_etag_verdict(s3, key, &check, err);
    ash_etag_check_fini(&check);
    return rc;
}
