/* Lists of objects and of unfinished uploads, page by page. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "storage/s3/doc_priv.h"
#include "storage/s3/s3_priv.h"
#include "storage/s3/list_priv.h"

#define PAGES_MAX 1000000 /* limit for a server that always reports more */

/* Send call and read its document. */
static int ask(struct ash_s3 *s3, struct ash_s3_call *call, const char *root, struct ash_s3_doc *doc_out,
               struct ash_err *err)
{
    int rc = ash_s3_perform(s3, call, err);

    if (rc == 0) rc = ash_s3_doc_parse(call->text.data, call->text.size_bytes, root, doc_out, err);
    if (rc == -EBADMSG) rc = ash_err_prefix(err, rc, "s3://%s", s3->bucket);
    ash_s3_call_fini(s3, call);
    return rc;
}

static int list_page(struct ash_s3 *s3, const char *prefix, bool is_flat, const char *token, struct ash_s3_doc *doc_out,
                     struct ash_err *err)
{
    struct ash_s3_call call = {.method = "GET"};

    ash_s3_call_ask(&call, "list-type", "2");
    ash_s3_call_ask(&call, "encoding-type", "url");
    ash_s3_call_ask(&call, "prefix", prefix);
    if (!is_flat) ash_s3_call_ask(&call, "delimiter", "/");
    if (token[0] != '\0') ash_s3_call_ask(&call, "continuation-token", token);
    return ask(s3, &call, "ListBucketResult", doc_out, err);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct ash_s3_item *)a)->key, ((const struct ash_s3_item *)b)->key);
}

/* Objects and common prefixes come apart; pages are in order. */
static int tell_page(struct ash_s3_doc *doc, ash_s3_list_fn each, void *ctx)
{
    int rc = 0;

    if (doc->item_count > 1) qsort(doc->items, doc->item_count, sizeof(*doc->items), by_key);
    for (size_t i = 0; rc >= 0 && i < doc->item_count; i++) {
        const struct ash_s3_item *item = &doc->items[i];
        struct ash_s3_object object = {.size_bytes = item->size_bytes, .modified_s = item->modified_s};

        memcpy(object.etag, item->etag, sizeof(object.etag));
        rc = each(ctx, item->key, item->is_prefix ? NULL : &object);
    }
    return rc < 0 ? rc : 0;
}

int ash_s3_list(struct ash_s3 *s3, const char *prefix, bool is_flat, ash_s3_list_fn each, void *ctx,
                struct ash_err *err)
{
    char token[ASH_S3_MARK_BYTES] = "";

    for (size_t page = 0; page < PAGES_MAX; page++) {
        struct ash_s3_doc doc = {0};
        bool has_more;
        int rc = list_page(s3, prefix, is_flat, token, &doc, err);

        if (rc < 0) return rc;
        has_more = doc.is_truncated;
        if (has_more && strcmp(doc.next, token) == 0)
            rc = ash_err_set(err, -EPROTO, "s3://%s: the server sends the same page of a list again", s3->bucket);
        if (rc == 0) rc = tell_page(&doc, each, ctx);
        memcpy(token, doc.next, sizeof(token));
        ash_s3_doc_fini(&doc);
        if (rc < 0 || !has_more) return rc;
    }
    return ash_err_set(err, -EPROTO, "s3://%s: the list does not end", s3->bucket);
}

int ash_s3_list_parts(struct ash_s3 *s3, const char *key, const char *upload_id, struct ash_s3_part *parts,
                      struct ash_err *err)
{
    char marker[ASH_S3_MARK_BYTES] = "";

    for (size_t page = 0; page <= ASH_S3_PARTS_MAX; page++) {
        struct ash_s3_call call = {.method = "GET", .key = key};
        struct ash_s3_doc doc = {0};
        bool has_more;
        int rc;

        ash_s3_call_ask(&call, "uploadId", upload_id);
        if (marker[0] != '\0') ash_s3_call_ask(&call, "part-number-marker", marker);
        rc = ask(s3, &call, "ListPartsResult", &doc, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < doc.item_count; i++) {
            const struct ash_s3_item *item = &doc.items[i];

            if (item->part_number < 1 || item->part_number > ASH_S3_PARTS_MAX) continue;
            parts[item->part_number - 1].size_bytes = item->size_bytes;
            memcpy(parts[item->part_number - 1].etag, item->etag, ASH_S3_ETAG_BYTES);
        }
        has_more = doc.is_truncated && strcmp(doc.next, marker) != 0;
        memcpy(marker, doc.next, sizeof(marker));
        ash_s3_doc_fini(&doc);
        if (!has_more) return 0;
    }
    return 0;
}

int ash_s3_list_uploads(struct ash_s3 *s3, const char *prefix, ash_s3_upload_fn each, void *ctx, struct ash_err *err)
{
    char key[ASH_S3_MARK_BYTES] = "", id[ASH_S3_MARK_BYTES] = "";

    for (size_t page = 0; page < PAGES_MAX; page++) {
        struct ash_s3_call call = {.method = "GET"};
        struct ash_s3_doc doc = {0};
        bool has_more;
        int rc;

        ash_s3_call_ask(&call, "uploads", "");
        ash_s3_call_ask(&call, "encoding-type", "url");
        ash_s3_call_ask(&call, "prefix", prefix);
        if (key[0] != '\0') ash_s3_call_ask(&call, "key-marker", key);
        if (id[0] != '\0') ash_s3_call_ask(&call, "upload-id-marker", id);
        rc = ask(s3, &call, "ListMultipartUploadsResult", &doc, err);
        if (rc < 0) return rc;
        for (size_t i = 0; rc >= 0 && i < doc.item_count; i++)
            if (!doc.items[i].is_prefix)
                rc = each(ctx, doc.items[i].key, doc.items[i].upload_id, doc.items[i].modified_s);
        has_more = doc.is_truncated && (strcmp(doc.next, key) != 0 || strcmp(doc.next_upload, id) != 0);
        memcpy(key, doc.next, sizeof(key));
        memcpy(id, doc.next_upload, sizeof(id));
        ash_s3_doc_fini(&doc);
        if (rc < 0 || !has_more) return rc < 0 ? rc : 0;
    }
    return 0;
}

/* ---- sweeping ---------------------------------------------------------------------------------------------------- */

struct sweep {
    struct ash_s3 *s3;
    double before_s;
    size_t count;
    struct ash_err err;
};

static int sweep_one(void *ctx, const char *key, const char *upload_id, double initiated_s)
{
    struct sweep *sweep = ctx;
    int rc;

    if (initiated_s <= 0 || initiated_s > sweep->before_s) return 0;
    rc = ash_s3_abort_upload(sweep->s3, key, upload_id, &sweep->err);
    if (rc == 0) sweep->count++;
    return rc == -ENOENT ? 0 : rc;
}

int ash_s3_abort_upload(struct ash_s3 *s3, const char *key, const char *upload_id, struct ash_err *err)
{
    struct ash_s3_call call = {.method = "DELETE", .key = key};
    int rc;

    ash_s3_call_ask(&call, "uploadId", upload_id);
    rc = ash_s3_perform(s3, &call, err);
    ash_s3_call_fini(s3, &call);
    return rc;
}

int ash_s3_sweep(struct ash_s3 *s3, const char *prefix, double age_s, size_t *count_out, struct ash_err *err)
{
    struct sweep sweep = {.s3 = s3, .before_s = ash_clock_wall_s() + s3->skew_s - age_s};
    int rc = ash_s3_list_uploads(s3, prefix, sweep_one, &sweep, err);

    if (rc < 0 && sweep.err.code < 0 && err != NULL) *err = sweep.err;
    if (rc == 0) *count_out = sweep.count;
    return rc;
}
