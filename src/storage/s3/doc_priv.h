/* doc - the XML documents that an S3 server answers with: lists of objects, parts and uploads, and errors. */
#ifndef ASH_STORAGE_S3_DOC_PRIV_H
#define ASH_STORAGE_S3_DOC_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "storage/s3/s3.h"

#define ASH_S3_DOC_ITEMS_MAX 10000 /* servers send 1,000 at most */
#define ASH_S3_WORD_BYTES 128
#define ASH_S3_MARK_BYTES 2048 /* upload ids and tokens */

/* An object, a part, an upload or a common prefix. Fields that a kind lacks are empty. */
struct ash_s3_item {
    char *key; /* owned */
    char etag[ASH_S3_ETAG_BYTES];
    char *upload_id; /* owned; of an upload */
    uint64_t size_bytes;
    int64_t part_number;
    double modified_s; /* or initiated */
    bool is_prefix, has_size, has_key;
};

struct ash_s3_doc {
    char root[ASH_S3_WORD_BYTES]; /* the name of the outermost element */
    struct ash_s3_item *items;
    size_t item_count, item_capacity;
    bool is_truncated, is_encoded; /* keys are percent-encoded; parse has decoded them */
    char upload_id[ASH_S3_MARK_BYTES];
    char next[ASH_S3_MARK_BYTES], next_upload[ASH_S3_MARK_BYTES]; /* where the next page begins */
    char code[ASH_S3_WORD_BYTES], message[256], region[ASH_S3_WORD_BYTES];
};

/* Read a document. root is the element it must have, NULL: any. name is for messages. Everything is bounded, document
 * types are refused, numbers are whole. Returns 0, -ENOMEM or -EBADMSG with a sentence. The caller ends *doc_out. */
int ash_s3_doc_parse(const char *text, size_t size_bytes, const char *root, struct ash_s3_doc *doc_out,
                     struct ash_err *err);
/* Free the members; a zeroed one is a no-op. */
void ash_s3_doc_fini(struct ash_s3_doc *doc);
/* Seconds since 1970 of "2009-10-12T17:50:30.000Z", or 0 if it is not such a time. */
double ash_s3_time_parse(const char *text);

#endif
