/* Objects written in parts: bytes come in order, full parts are sent several at a time, and the object appears when all
 * are there. What fits into one part is sent in one request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "storage/s3/doc_priv.h"
#include "storage/s3/digest_priv.h"
#include "storage/s3/list_priv.h"
#include "storage/s3/s3_priv.h"

#define MIB ((size_t)1 << 20)

/* A part that is being filled or sent. */
struct part_slot {
    struct ash_s3_call call;
    uint8_t *data;
    size_t size_bytes, number; /* number from 1 */
    char number_text[16];
};

struct ash_s3_upload {
    struct ash_s3 *s3;
    char *key, *id; /* id NULL: no upload in parts was begun */
    bool wants_resume, is_finished;
    size_t part_bytes, slot_count, part_count;
    size_t listed_count; /* parts that had been sent at the last listing */
    uint64_t total_bytes, resumed_bytes;
    struct part_slot *slots, *filling; /* filling: NULL, or the one that takes bytes */
    struct ash_s3_part *parts;         /* parts on the server, of ASH_S3_PARTS_MAX */
};

int ash_s3_upload_open(struct ash_s3 *s3, const char *key, uint64_t total_bytes, bool wants_resume,
                       struct ash_s3_upload **upload_out, struct ash_err *err)
{
    struct ash_s3_upload *upload;
    int rc = ash_s3_key_check(key, err);

    if (rc < 0) return rc;
    upload = calloc(1, sizeof(*upload));
    if (upload == NULL) goto fail;
    upload->s3 = s3;
    upload->wants_resume = wants_resume;
    upload->part_bytes =
        ash_max((size_t)s3->opts.part_bytes, ash_round_up(ash_div_up(total_bytes, ASH_S3_PARTS_MAX), MIB));
    upload->slot_count = (size_t)s3->opts.connections;
    upload->key = strdup(key);
    upload->slots = calloc(upload->slot_count, sizeof(*upload->slots));
    upload->parts = calloc(ASH_S3_PARTS_MAX, sizeof(*upload->parts));
    if (upload->key == NULL || upload->slots == NULL || upload->parts == NULL) goto fail;
    *upload_out = upload;
    return 0;
fail:
    ash_s3_upload_close(upload, false);
    return ash_err_set(err, -ENOMEM, "out of memory");
}

uint64_t ash_s3_upload_resumed_bytes(const struct ash_s3_upload *upload)
{
    return upload->resumed_bytes;
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

struct newest {
    const char *key;
    char *id;
    double initiated_s;
};

static int note_newest(void *ctx, const char *key, const char *upload_id, double initiated_s)
{
    struct newest *newest = ctx;
    char *id;

    if (strcmp(key, newest->key) != 0 || (newest->id != NULL && initiated_s < newest->initiated_s)) return 0;
    id = strdup(upload_id);
    if (id == NULL) return -ENOMEM;
    free(newest->id);
    newest->id = id;
    newest->initiated_s = initiated_s;
    return 0;
}

/* Find the newest unfinished upload of this key and its parts. None is fine. */
static int find_unfinished(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct newest newest = {.key = upload->key};
    int rc = ash_s3_list_uploads(upload->s3, upload->key, note_newest, &newest, err);

    if (rc == 0 && newest.id != NULL) {
        rc = ash_s3_list_parts(upload->s3, upload->key, newest.id, upload->parts, err);
        if (rc == 0) upload->id = newest.id;
        if (rc == 0) newest.id = NULL;
        if (rc == -ENOENT) rc = 0;
    }
    free(newest.id);
    return rc;
}

static int begin(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "POST", .key = upload->key};
    struct ash_s3_doc doc = {0};
    char part_bytes[24];
    int rc = upload->wants_resume ? find_unfinished(upload, err) : 0;

    if (rc == -EACCES) rc = 0; /* without permission to list, send everything */
    if (rc < 0 || upload->id != NULL) return rc;
    snprintf(part_bytes, sizeof(part_bytes), "%zu", upload->part_bytes);
    ash_s3_call_ask(&call, "uploads", "");
    ash_s3_call_tell(&call, ASH_S3_PART_HEADER, part_bytes);
    rc = ash_s3_perform(upload->s3, &call, err);
    if (rc == 0)
        rc = ash_s3_doc_parse(call.text.data, call.text.size_bytes, "InitiateMultipartUploadResult", &doc, err);
    if (rc == 0 && doc.upload_id[0] == '\0') rc = ash_err_set(err, -EPROTO, "the server names no upload");
    if (rc == 0) upload->id = strdup(doc.upload_id);
    if (rc == 0 && upload->id == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory");
    ash_s3_doc_fini(&doc);
    ash_s3_call_fini(upload->s3, &call);
    return rc;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Take the answer of a part that is done; the slot is free afterwards. */
static int end_part(struct ash_s3_upload *upload, struct part_slot *slot, struct ash_err *err)
{
    struct ash_s3_part *part = &upload->parts[slot->number - 1];
    int rc = slot->call.rc < 0 ? ash_err_set(err, slot->call.rc, "%s", slot->call.err.text) : 0;

    ash_assert(slot->number > 0 && slot->number <= ASH_S3_PARTS_MAX);
    if (rc == 0 && slot->call.answer.etag[0] == '\0')
        rc = ash_err_set(err, -EPROTO, "the server names no ETag for part %zu of %.200s", slot->number, upload->key);
    part->size_bytes = slot->size_bytes;
    memcpy(part->etag, slot->call.answer.etag, sizeof(part->etag));
    ash_s3_call_fini(upload->s3, &slot->call);
    slot->size_bytes = 0;
    return rc;
}

/* Others may send parts, too: list them periodically. Unknown ones are sent. */
static void look_again(struct ash_s3_upload *upload, size_t number)
{
    ash_assert(number > 0 && number <= ASH_S3_PARTS_MAX);
    if (!upload->wants_resume || upload->parts[number - 1].size_bytes > 0) return;
    if (number < upload->listed_count + upload->slot_count) return;
    upload->listed_count = number;
    (void)ash_s3_list_parts(upload->s3, upload->key, upload->id, upload->parts, NULL);
}

/* Does the server have these bytes as this part already? */
static bool has_part(const struct ash_s3_upload *upload, const struct part_slot *slot)
{
    const struct ash_s3_part *part = &upload->parts[slot->number - 1];
    uint8_t sum[ASH_MD5_BYTES];

    return part->size_bytes == slot->size_bytes && ash_s3_etag_is_md5(part->etag) &&
           ash_md5_of(slot->data, slot->size_bytes, sum) == 0 && ash_s3_etag_matches(part->etag, sum, 0);
}

/* Send the part that was filled, or leave it where the server has it. */
static int send_part(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct part_slot *slot = upload->filling;
    int rc = upload->id == NULL ? begin(upload, err) : 0;

    if (rc < 0) return rc;
    upload->filling = NULL;
    if (upload->part_count == ASH_S3_PARTS_MAX)
        return ash_err_set(err, -EFBIG, "%.200s has more than %d parts of %zu bytes: set s3.part_bytes", upload->key,
                           ASH_S3_PARTS_MAX, upload->part_bytes);
    slot->number = ++upload->part_count;
    look_again(upload, slot->number);
    if (has_part(upload, slot)) {
        upload->resumed_bytes += slot->size_bytes;
        slot->size_bytes = 0;
        return 0;
    }
    snprintf(slot->number_text, sizeof(slot->number_text), "%zu", slot->number);
    slot->call =
        (struct ash_s3_call){.method = "PUT", .key = upload->key, .body = slot->data, .body_bytes = slot->size_bytes};
    ash_s3_call_ask(&slot->call, "partNumber", slot->number_text);
    ash_s3_call_ask(&slot->call, "uploadId", upload->id);
    ash_s3_submit(upload->s3, &slot->call);
    return ash_s3_drive_now(upload->s3, err);
}

/* End the parts that are done. *free_out: a slot without a part, or NULL. Returns how many are under way, or an
 * error. */
static int reap(struct ash_s3_upload *upload, struct part_slot **free_out, struct ash_err *err)
{
    int busy = 0, rc = 0;

    *free_out = NULL;
    for (size_t i = 0; rc == 0 && i < upload->slot_count; i++) {
        struct part_slot *slot = &upload->slots[i];

        if (slot->call.state == ASH_S3_CALL_DONE) rc = end_part(upload, slot, err);
        if (slot->call.state != ASH_S3_CALL_NEW)
            busy++;
        else if (*free_out == NULL || slot->data != NULL)
            *free_out = slot;
    }
    return rc < 0 ? rc : busy;
}

/* A slot to fill, when one is free. */
static int take_slot(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct part_slot *slot = NULL;
    int rc = reap(upload, &slot, err);

    while (rc >= 0 && slot == NULL) {
        rc = ash_s3_drive(upload->s3, err);
        if (rc == 0) rc = reap(upload, &slot, err);
    }
    if (rc < 0) return rc;
    if (slot->data == NULL) slot->data = malloc(upload->part_bytes);
    if (slot->data == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    slot->size_bytes = 0;
    upload->filling = slot;
    return 0;
}

int ash_s3_upload_add(struct ash_s3_upload *upload, const void *data, size_t size_bytes, struct ash_err *err)
{
    const uint8_t *from = data;
    int rc = 0;

    while (rc == 0 && size_bytes > 0) {
        size_t bytes;

        /* A full part is sent when there is more, so that an object of one part needs one request. */
        if (upload->filling != NULL && upload->filling->size_bytes == upload->part_bytes) rc = send_part(upload, err);
        if (rc == 0 && upload->filling == NULL) rc = take_slot(upload, err);
        if (rc < 0) break;
        bytes = ash_min(size_bytes, upload->part_bytes - upload->filling->size_bytes);
        ash_assert(upload->filling->size_bytes + bytes <= upload->part_bytes);
        memcpy(upload->filling->data + upload->filling->size_bytes, from, bytes);
        upload->filling->size_bytes += bytes;
        upload->total_bytes += bytes;
        from += bytes;
        size_bytes -= bytes;
    }
    return rc;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int add_etag(struct ash_str *text, const char *etag)
{
    int rc = 0;

    for (; rc == 0 && *etag != '\0'; etag++) {
        switch (*etag) {
        case '"':
            rc = ash_str_adds(text, "&quot;");
            break;
        case '&':
            rc = ash_str_adds(text, "&amp;");
            break;
        case '<':
            rc = ash_str_adds(text, "&lt;");
            break;
        default:
            rc = ash_str_add(text, etag, 1);
        }
    }
    return rc;
}

static int add_parts(const struct ash_s3_upload *upload, struct ash_str *text)
{
    int rc = ash_str_adds(text, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");

    for (size_t i = 0; rc == 0 && i < upload->part_count; i++) {
        rc = ash_str_addf(text, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        if (rc == 0) rc = add_etag(text, upload->parts[i].etag);
        if (rc == 0) rc = ash_str_adds(text, "</ETag></Part>");
    }
    return rc == 0 ? ash_str_adds(text, "</CompleteMultipartUpload>") : rc;
}

/* Is the object there, with the size and the number of parts that were sent? */
static int check_whole(const struct ash_s3_upload *upload, struct ash_err *err)
{
    struct ash_s3_object object = {0};
    const char *dash;
    int rc = ash_s3_stat(upload->s3, upload->key, &object, err);

    if (rc < 0) return rc;
    dash = strrchr(object.etag, '-');
    if (object.size_bytes != upload->total_bytes ||
        (dash != NULL && strtoull(dash + 1, NULL, 10) != upload->part_count))
        return ash_err_set(err, -EIO, "s3://%s/%.200s differs from the upload: another process writes it too",
                           upload->s3->bucket, upload->key);
    return 0;
}

static int complete(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "POST", .key = upload->key};
    struct ash_str text = {0};
    int rc = add_parts(upload, &text);

    if (rc < 0) return ash_err_set(err, rc, "out of memory");
    call.body = text.data;
    call.body_bytes = text.size_bytes;
    ash_s3_call_ask(&call, "uploadId", upload->id);
    rc = ash_s3_perform(upload->s3, &call, err);
    if (rc == -ENOENT && call.attempts > 1) rc = 0; /* done by an attempt whose answer was lost: look */
    ash_s3_call_fini(upload->s3, &call);
    ash_str_fini(&text);
    return rc == 0 ? check_whole(upload, err) : rc;
}

int ash_s3_upload_finish(struct ash_s3_upload *upload, struct ash_err *err)
{
    struct part_slot *slot = upload->filling;
    int rc = 0;

    if (upload->id == NULL && upload->part_count == 0) {
        rc = ash_s3_write(upload->s3, upload->key, slot != NULL ? slot->data : NULL,
                          slot != NULL ? slot->size_bytes : 0, NULL, err);
    } else {
        if (slot != NULL && slot->size_bytes > 0) rc = send_part(upload, err);
        while (rc == 0 && (rc = reap(upload, &slot, err)) > 0)
            rc = ash_s3_drive(upload->s3, err);
        if (rc == 0) rc = complete(upload, err);
    }
    if (rc == 0) upload->is_finished = true;
    return rc;
}

void ash_s3_upload_close(struct ash_s3_upload *upload, bool keeps_parts)
{
    if (upload == NULL) return;
    for (size_t i = 0; upload->slots != NULL && i < upload->slot_count; i++) {
        ash_s3_call_fini(upload->s3, &upload->slots[i].call);
        free(upload->slots[i].data);
    }
    if (upload->id != NULL && !upload->is_finished && !keeps_parts)
        (void)ash_s3_abort_upload(upload->s3, upload->key, upload->id, NULL);
    free(upload->slots);
    free(upload->parts);
    free(upload->key);
    free(upload->id);
    free(upload);
}

/* ---- a share of another process's upload ----------------------------------------------------------------------- */

/* Part `index` (from 0), read and sent. */
static int help_part(struct ash_s3_upload *upload, size_t index, uint64_t total_bytes, const struct ash_s3_share *share,
                     struct ash_err *err)
{
    uint64_t offset = (uint64_t)index * upload->part_bytes;
    size_t bytes = ash_min(upload->part_bytes, (size_t)(total_bytes - offset));
    int rc = take_slot(upload, err);

    if (rc == 0) rc = share->read(share->ctx, offset, upload->filling->data, bytes, err);
    if (rc < 0) return rc;
    upload->filling->size_bytes = bytes;
    upload->part_count = index;
    return send_part(upload, err);
}

int ash_s3_upload_help(struct ash_s3 *s3, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                       struct ash_err *err)
{
    struct ash_s3_upload *upload = NULL;
    struct part_slot *slot = NULL;
    size_t parts, end;
    int rc = ash_s3_upload_open(s3, key, total_bytes, true, &upload, err);

    if (rc < 0) return rc;
    rc = find_unfinished(upload, err);
    if (rc == 0 && upload->id == NULL)
        rc = ash_err_set(err, -ENOENT, "no unfinished upload of s3://%s/%.200s", s3->bucket, key);
    ash_assert(share->index < share->count);
    parts = (size_t)ash_div_up(total_bytes, upload->part_bytes);
    end = parts * (share->index + 1) / share->count;
    for (size_t i = parts * share->index / share->count; rc == 0 && i < end; i++)
        rc = help_part(upload, i, total_bytes, share, err);
    while (rc == 0 && (rc = reap(upload, &slot, err)) > 0)
        rc = ash_s3_drive(s3, err);
    ash_s3_upload_close(upload, true);
    return rc;
}
