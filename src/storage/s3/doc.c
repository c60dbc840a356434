/* Reads answers of S3 with expat. One small table maps elements to fields; all other elements are skipped, as servers
 * may add some. Used values are checked: sizes are integers, items have keys. */
#include "storage/s3/doc_priv.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/str.h"

#define DEPTH_MAX 16
#define TEXT_MAX_BYTES 8192
#define NAME_BYTES 64

struct reader {
    XML_Parser parser;
    struct ash_s3_doc *doc;
    char names[DEPTH_MAX][NAME_BYTES];
    size_t depth;
    struct ash_str text; /* of the innermost element */
    bool is_in_item;
    int rc;
    char why[160];
};

static void refuse(struct reader *reader, int rc, const char *why)
{
    if (reader->rc == 0) {
        reader->rc = rc;
        snprintf(reader->why, sizeof(reader->why), "%s", why);
    }
    XML_StopParser(reader->parser, XML_FALSE);
}

static bool is_item_name(const char *name)
{
    return strcmp(name, "Contents") == 0 || strcmp(name, "Part") == 0 || strcmp(name, "Upload") == 0 ||
           strcmp(name, "CommonPrefixes") == 0;
}

static void begin_item(struct reader *reader, const char *name)
{
    struct ash_s3_doc *doc = reader->doc;

    if (doc->item_count == ASH_S3_DOC_ITEMS_MAX) {
        refuse(reader, -EBADMSG, "it lists too many things");
        return;
    }
    if (ash_array_reserve(&doc->items, &doc->item_capacity, doc->item_count + 1, sizeof(*doc->items)) < 0) {
        refuse(reader, -ENOMEM, "out of memory");
        return;
    }
    doc->items[doc->item_count] = (struct ash_s3_item){.is_prefix = strcmp(name, "CommonPrefixes") == 0};
    doc->item_count++;
    reader->is_in_item = true;
}

static void XMLCALL on_begin(void *ctx, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *reader = ctx;

    (void)attributes;
    if (reader->rc < 0) return;
    if (reader->depth == DEPTH_MAX || strlen(name) >= NAME_BYTES) {
        refuse(reader, -EBADMSG, "its elements are too deep or too long");
        return;
    }
    if (reader->depth == 0) snprintf(reader->doc->root, sizeof(reader->doc->root), "%s", name);
    snprintf(reader->names[reader->depth++], NAME_BYTES, "%s", name);
    ash_str_clear(&reader->text);
    if (reader->depth == 2 && is_item_name(name)) begin_item(reader, name);
}

static void XMLCALL on_text(void *ctx, const XML_Char *text, int size_bytes)
{
    struct reader *reader = ctx;

    if (reader->rc < 0) return;
    if (reader->text.size_bytes + (size_t)size_bytes > TEXT_MAX_BYTES)
        refuse(reader, -EBADMSG, "an element is too long");
    else if (ash_str_add(&reader->text, text, (size_t)size_bytes) < 0)
        refuse(reader, -ENOMEM, "out of memory");
}

static void XMLCALL on_doctype(void *ctx, const XML_Char *name, const XML_Char *system, const XML_Char *public,
                               int has_subset)
{
    (void)name;
    (void)system;
    (void)public;
    (void)has_subset;
    refuse(ctx, -EBADMSG, "it has a document type");
}

/* Copy a short text; a longer one is refused, as half a token is worse than none. */
static void take(struct reader *reader, const char *text, char *field, size_t field_bytes)
{
    if (strlen(text) >= field_bytes)
        refuse(reader, -EBADMSG, "an element is too long");
    else
        memcpy(field, text, strlen(text) + 1);
}

static void take_number(struct reader *reader, const char *text, uint64_t max, uint64_t *value_out)
{
    uint64_t value = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9' && c - text < 19; c++)
        value = 10 * value + (uint64_t)(*c - '0');
    if (c == text || *c != '\0' || value > max)
        refuse(reader, -EBADMSG, "a number is not one");
    else
        *value_out = value;
}

static void take_bool(struct reader *reader, const char *text, bool *value_out)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        refuse(reader, -EBADMSG, "IsTruncated is neither true nor false");
    else
        *value_out = text[0] == 't';
}

double ash_s3_time_parse(const char *text)
{
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);

    return end != NULL && (*end == 'Z' || *end == '.') ? (double)timegm(&utc) : 0;
}

static void take_copy(struct reader *reader, const char *text, char **field)
{
    char *copy = strdup(text);

    if (copy == NULL) {
        refuse(reader, -ENOMEM, "out of memory");
        return;
    }
    free(*field);
    *field = copy;
}

/* An element directly inside an item. */
static void end_item_field(struct reader *reader, const char *name, const char *text)
{
    struct ash_s3_item *item = &reader->doc->items[reader->doc->item_count - 1];
    uint64_t number = 0;

    if (strcmp(name, "Key") == 0 || (item->is_prefix && strcmp(name, "Prefix") == 0)) {
        take_copy(reader, text, &item->key);
        item->has_key = true;
    } else if (strcmp(name, "Size") == 0) {
        take_number(reader, text, INT64_MAX, &item->size_bytes);
        item->has_size = true;
    } else if (strcmp(name, "ETag") == 0) {
        take(reader, text, item->etag, sizeof(item->etag));
    } else if (strcmp(name, "PartNumber") == 0) {
        take_number(reader, text, ASH_S3_DOC_ITEMS_MAX, &number);
        item->part_number = (int64_t)number;
    } else if (strcmp(name, "UploadId") == 0) {
        take_copy(reader, text, &item->upload_id);
    } else if (strcmp(name, "LastModified") == 0 || strcmp(name, "Initiated") == 0) {
        item->modified_s = ash_s3_time_parse(text);
    }
}

/* An element directly inside the root. */
static void end_field(struct reader *reader, const char *name, const char *text)
{
    struct ash_s3_doc *doc = reader->doc;
    const struct {
        const char *name;
        char *field;
        size_t field_bytes;
    } fields[] = {
        {"UploadId", doc->upload_id, sizeof(doc->upload_id)},
        {"NextContinuationToken", doc->next, sizeof(doc->next)},
        {"NextPartNumberMarker", doc->next, sizeof(doc->next)},
        {"NextKeyMarker", doc->next, sizeof(doc->next)},
        {"NextUploadIdMarker", doc->next_upload, sizeof(doc->next_upload)},
        {"Code", doc->code, sizeof(doc->code)},
        {"Region", doc->region, sizeof(doc->region)},
    };

    for (size_t i = 0; i < ASH_COUNT(fields); i++)
        if (strcmp(name, fields[i].name) == 0) take(reader, text, fields[i].field, fields[i].field_bytes);
    if (strcmp(name, "Message") == 0) snprintf(doc->message, sizeof(doc->message), "%s", text);
    if (strcmp(name, "IsTruncated") == 0) take_bool(reader, text, &doc->is_truncated);
    if (strcmp(name, "EncodingType") == 0) doc->is_encoded = strcmp(text, "url") == 0;
}

static void XMLCALL on_end(void *ctx, const XML_Char *name)
{
    struct reader *reader = ctx;
    const char *text = reader->text.data != NULL ? reader->text.data : "";

    if (reader->rc < 0) return;
    ash_assert(reader->depth > 0);
    if (reader->depth == 3 && reader->is_in_item) end_item_field(reader, name, text);
    if (reader->depth == 2 && !is_item_name(name)) end_field(reader, name, text);
    if (reader->depth == 2) reader->is_in_item = false;
    reader->depth--;
    ash_str_clear(&reader->text);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decode %41 and + in place; false where a percent sign has no two digits or the result would have a NUL. */
static bool decode(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++) {
        int high, low;

        if (*text != '%') {
            *to++ = *text == '+' ? ' ' : *text;
            continue;
        }
        high = hex_value(text[1]);
        low = high < 0 ? -1 : hex_value(text[2]);
        if (low < 0 || high * 16 + low == 0) return false;
        *to++ = (char)(high * 16 + low);
        text += 2;
    }
    *to = '\0';
    return true;
}

/* What an item must have in a list of objects or of uploads, or NULL. */
static const char *check_item(const struct ash_s3_item *item, bool is_list, bool is_uploads)
{
    if ((is_list || is_uploads) && !item->has_key) return "an object has no key";
    if (is_list && !item->is_prefix && !item->has_size) return "an object has no size";
    if (is_uploads && !item->is_prefix && item->upload_id == NULL) return "an upload has no id";
    return NULL;
}

/* Checks across fields. */
static const char *check(struct ash_s3_doc *doc, const char *root)
{
    bool is_list = strcmp(doc->root, "ListBucketResult") == 0;
    bool is_uploads = strcmp(doc->root, "ListMultipartUploadsResult") == 0;
    const char *why = NULL;

    if (root != NULL && strcmp(doc->root, root) != 0) return "it is another document";
    if (doc->is_truncated && doc->next[0] == '\0') return "it continues, and does not say where";
    if (doc->is_encoded && is_uploads && !decode(doc->next)) return "a key is badly encoded";
    for (size_t i = 0; why == NULL && i < doc->item_count; i++) {
        why = check_item(&doc->items[i], is_list, is_uploads);
        if (why == NULL && doc->is_encoded && doc->items[i].key != NULL && !decode(doc->items[i].key))
            why = "a key is badly encoded";
    }
    return why;
}

static void run(struct reader *reader, const char *text, size_t size_bytes, const char *root)
{
    const char *why;

    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, on_begin, on_end);
    XML_SetCharacterDataHandler(reader->parser, on_text);
    XML_SetStartDoctypeDeclHandler(reader->parser, on_doctype);
    if (XML_Parse(reader->parser, text, (int)size_bytes, 1) == XML_STATUS_ERROR && reader->rc == 0) {
        reader->rc = -EBADMSG;
        snprintf(reader->why, sizeof(reader->why), "%s", XML_ErrorString(XML_GetErrorCode(reader->parser)));
    }
    why = reader->rc == 0 ? check(reader->doc, root) : NULL;
    if (why == NULL) return;
    reader->rc = -EBADMSG;
    snprintf(reader->why, sizeof(reader->why), "%s", why);
}

int ash_s3_doc_parse(const char *text, size_t size_bytes, const char *root, struct ash_s3_doc *doc_out,
                     struct ash_err *err)
{
    struct ash_s3_doc doc = {0};
    struct reader reader = {.doc = &doc};

    if (size_bytes > INT32_MAX) return ash_err_set(err, -EBADMSG, "the server's answer is too large");
    reader.parser = XML_ParserCreate(NULL);
    if (reader.parser == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    run(&reader, text != NULL ? text : "", size_bytes, root);
    XML_ParserFree(reader.parser);
    ash_str_fini(&reader.text);
    if (reader.rc < 0) {
        ash_s3_doc_fini(&doc);
        return ash_err_set(err, reader.rc, "the server's answer is not the XML of S3: %s", reader.why);
    }
    *doc_out = doc;
    return 0;
}

void ash_s3_doc_fini(struct ash_s3_doc *doc)
{
    for (size_t i = 0; i < doc->item_count; i++) {
        free(doc->items[i].key);
        free(doc->items[i].upload_id);
    }
    free(doc->items);
    *doc = (struct ash_s3_doc){0};
}
