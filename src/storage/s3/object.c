/* Objects: stat, reads by ranges, writes in one request, removal. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "storage/s3/digest_priv.h"
#include "storage/s3/s3_priv.h"

/* ---- stat -------------------------------------------------------------------------------------------------------- */

/* HEAD has no body with the reason of a failure: GET a byte of the object, whose refusal has one. Returns the cause, or
 * 0 if that works: the keys may have been renewed meanwhile. */
static int learn_why(struct ash_s3 *s3, const char *key, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "GET", .key = key};
    struct ash_err why = {0};
    int rc;

    ash_s3_call_tell(&call, "range", "bytes=0-0");
    rc = ash_s3_perform(s3, &call, &why);
    if (rc == -ERANGE) rc = 0; /* an empty object */
    if (rc < 0 && err != NULL) *err = why;
    ash_s3_call_fini(s3, &call);
    return rc;
}

int ash_s3_stat(struct ash_s3 *s3, const char *key, struct ash_s3_object *object_out, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "HEAD", .key = key};
    int rc = ash_s3_key_check(key, err);

    if (rc < 0) return rc;
    rc = ash_s3_perform(s3, &call, err);
    if (rc < 0 && rc != -EINTR && call.answer.status > 0 && call.answer.status < 500) {
        rc = learn_why(s3, key, err);
        ash_s3_call_fini(s3, &call);
        if (rc == 0) rc = ash_s3_perform(s3, &call, err);
    }
    if (rc == 0 && !call.answer.has_length)
        rc = ash_err_set(err, -EPROTO, "s3://%s/%.200s: the server does not tell the size", s3->bucket, key);
    if (rc == 0) {
        *object_out = (struct ash_s3_object){.size_bytes = call.answer.content_length,
                                             .modified_s = call.answer.modified_s,
                                             .part_bytes = call.answer.part_bytes,
                                             .is_etag_opaque = call.answer.is_encrypted};
        memcpy(object_out->etag, call.answer.etag, sizeof(object_out->etag));
    }
    ash_s3_call_fini(s3, &call);
    return rc;
}

/* ---- read -------------------------------------------------------------------------------------------------------- */

/* One range that is being read. */
struct range_slot {
    struct ash_s3_range_call reading;
    const struct ash_s3_piece *piece;
};

struct read_job {
    struct ash_s3 *s3;
    const struct ash_s3_piece *pieces;
    size_t piece_count, piece; /* piece: the first that is not fully requested */
    size_t next;               /* the first byte of it that was not requested yet */
};

void ash_s3_submit_range(struct ash_s3 *s3, struct ash_s3_range_call *call, const struct ash_s3_range *range,
                         void *data)
{
    uint64_t first = range->offset, last = range->offset + range->size_bytes - 1;

    ash_assert(range->size_bytes > 0);
    call->call = (struct ash_s3_call){
        .method = "GET", .key = range->key, .into = data, .into_bytes = range->size_bytes, .range = call->answer};
    snprintf(call->range, sizeof(call->range), "bytes=%" PRIu64 "-%" PRIu64, first, last);
    snprintf(call->answer, sizeof(call->answer), "bytes %" PRIu64 "-%" PRIu64 "/", first, last);
    ash_s3_call_tell(&call->call, "range", call->range);
    if (range->etag != NULL) ash_s3_call_tell(&call->call, "if-match", range->etag);
    ash_s3_submit(s3, &call->call);
}

static void start_range(struct read_job *job, struct range_slot *slot)
{
    const struct ash_s3_piece *piece = &job->pieces[job->piece];
    size_t bytes = ash_min((size_t)job->s3->opts.part_bytes, piece->range.size_bytes - job->next);
    const struct ash_s3_range range = {piece->range.key, piece->range.etag, piece->range.offset + job->next, bytes};

    ash_assert(job->piece < job->piece_count && bytes > 0);
    slot->piece = piece;
    ash_s3_submit_range(job->s3, &slot->reading, &range, (char *)piece->data + job->next);
    job->next += bytes;
    if (job->next == piece->range.size_bytes) {
        job->piece++;
        job->next = 0;
    }
}

/* Where one answer was the whole object and its ETag is an MD5, the bytes must have it. */
static int check_sum(const struct read_job *job, const struct range_slot *slot, struct ash_err *err)
{
    const struct ash_s3_answer *answer = &slot->reading.call.answer;
    const struct ash_s3_piece *piece = slot->piece;
    const char *total = strchr(answer->content_range, '/');
    size_t size_bytes = piece->range.size_bytes;
    uint8_t sum[ASH_MD5_BYTES];

    if (piece->range.offset != 0 || total == NULL || strtoull(total + 1, NULL, 10) != size_bytes) return 0;
    if (slot->reading.call.into_bytes != size_bytes || answer->is_encrypted || !ash_s3_etag_is_md5(answer->etag))
        return 0;
    if (ash_md5_of(piece->data, size_bytes, sum) < 0 || ash_s3_etag_matches(answer->etag, sum, 0)) return 0;
    return ash_err_set(err, -EBADMSG, "s3://%s/%.200s: the bytes do not have the MD5 that the server names",
                       job->s3->bucket, piece->range.key);
}

/* Take a slot's result, and start its next range. Returns 1 if it is busy, 0 if not, or an error. */
static int turn_slot(struct read_job *job, struct range_slot *slot, struct ash_err *err)
{
    int rc = 0;

    if (slot->reading.call.state == ASH_S3_CALL_DONE) {
        rc = slot->reading.call.rc < 0 ? ash_err_set(err, slot->reading.call.rc, "%s", slot->reading.call.err.text) : 0;
        if (rc == 0) rc = check_sum(job, slot, err);
        ash_s3_call_fini(job->s3, &slot->reading.call);
    }
    if (rc < 0) return rc;
    if (slot->reading.call.state == ASH_S3_CALL_NEW && job->piece < job->piece_count) start_range(job, slot);
    return slot->reading.call.state != ASH_S3_CALL_NEW;
}

static int read_all(struct read_job *job, struct range_slot *slots, size_t slot_count, struct ash_err *err)
{
    bool is_busy = true;
    int rc = 0;

    while (rc >= 0 && is_busy) {
        is_busy = false;
        for (size_t i = 0; rc >= 0 && i < slot_count; i++) {
            rc = turn_slot(job, &slots[i], err);
            is_busy = is_busy || rc == 1;
        }
        if (rc >= 0 && is_busy) rc = ash_s3_drive(job->s3, err);
    }
    for (size_t i = 0; i < slot_count; i++)
        ash_s3_call_fini(job->s3, &slots[i].reading.call);
    return rc < 0 ? rc : 0;
}

int ash_s3_read_pieces(struct ash_s3 *s3, const struct ash_s3_piece *pieces, size_t count, struct ash_err *err)
{
    struct read_job job = {.s3 = s3, .pieces = pieces, .piece_count = count};
    size_t ranges = 0, slot_count;
    struct range_slot *slots;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        ash_assert(pieces[i].range.size_bytes > 0);
        rc = ash_s3_key_check(pieces[i].range.key, err);
        ranges += ash_div_up(pieces[i].range.size_bytes, (size_t)s3->opts.part_bytes);
    }
    if (rc < 0) return rc;
    slot_count = ash_min(ranges, (size_t)s3->opts.connections);
    slots = calloc(slot_count + 1, sizeof(*slots));
    if (slots == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = read_all(&job, slots, slot_count, err);
    free(slots);
    return rc;
}

int ash_s3_read(struct ash_s3 *s3, const struct ash_s3_range *range, void *data, struct ash_err *err)
{
    struct ash_s3_piece piece = {*range, data};
    struct ash_s3_object object = {0};
    int rc = ash_s3_key_check(range->key, err);

    if (rc < 0 || range->size_bytes == 0) return rc;
    if (range->etag == NULL && range->size_bytes > (size_t)s3->opts.part_bytes) { /* all ranges of one version */
        rc = ash_s3_stat(s3, range->key, &object, err);
        if (rc < 0) return rc;
        piece.range.etag = object.etag;
    }
    return ash_s3_read_pieces(s3, &piece, 1, err);
}

/* ---- write and remove -------------------------------------------------------------------------------------------- */

/* A condition may fail because of this very request: its first answer was lost. Then the object is ours. */
static bool is_written(struct ash_s3 *s3, const char *key, const void *data, size_t size_bytes)
{
    struct ash_s3_object object = {0};
    uint8_t sum[ASH_MD5_BYTES];

    return ash_s3_stat(s3, key, &object, NULL) == 0 && object.size_bytes == size_bytes && !object.is_etag_opaque &&
           ash_md5_of(data, size_bytes, sum) == 0 && ash_s3_etag_matches(object.etag, sum, 0);
}

static int write_once(struct ash_s3 *s3, struct ash_s3_call *call, const char *etag, struct ash_err *err)
{
    int rc;

    if (etag != NULL) ash_s3_call_tell(call, "if-match", etag);
    rc = ash_s3_perform(s3, call, err);
    if ((rc == -EEXIST || rc == -ESTALE) && call->attempts > 1 &&
        is_written(s3, call->key, call->body, call->body_bytes))
        rc = 0;
    ash_s3_call_fini(s3, call);
    return rc;
}

/* Ceph compares the ETag without its quotes, and so refuses the right one with them. Then `bare` gets it without. */
static bool wants_bare(struct ash_s3 *s3, const char *key, const char *etag, char bare[ASH_S3_ETAG_BYTES])
{
    struct ash_s3_object object = {0};
    size_t length = strlen(etag);

    if (length < 3 || length >= ASH_S3_ETAG_BYTES || etag[0] != '"') return false;
    if (ash_s3_stat(s3, key, &object, NULL) < 0 || strcmp(object.etag, etag) != 0) return false;
    snprintf(bare, ASH_S3_ETAG_BYTES, "%.*s", (int)length - 2, etag + 1);
    return true;
}

int ash_s3_write(struct ash_s3 *s3, const char *key, const void *data, size_t size_bytes,
                 const struct ash_s3_condition *condition, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "PUT", .key = key, .body = data, .body_bytes = size_bytes}, again = call;
    const char *etag = condition != NULL ? condition->etag : NULL;
    char bare[ASH_S3_ETAG_BYTES];
    int rc = ash_s3_key_check(key, err);

    if (rc < 0) return rc;
    if (condition != NULL && condition->wants_absent) ash_s3_call_tell(&call, "if-none-match", "*");
    rc = write_once(s3, &call, etag, err);
    if (rc == -ESTALE && etag != NULL && wants_bare(s3, key, etag, bare)) rc = write_once(s3, &again, bare, err);
    return rc;
}

int ash_s3_remove(struct ash_s3 *s3, const char *key, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "DELETE", .key = key};
    int rc = ash_s3_key_check(key, err);

    if (rc < 0) return rc;
    rc = ash_s3_perform(s3, &call, err);
    /* One that is not there is gone; a bucket that is not there is a mistake. */
    if (rc == -ENOENT && strstr(call.err.text, "no bucket") == NULL) rc = 0;
    ash_s3_call_fini(s3, &call);
    return rc;
}
