/* Reading token shards. Bounds are few and are checked at open; ids are many and are checked when they are copied out,
 * which costs nothing next to the copy, so that opening terabytes takes no time. */
#include "train/data/shard.h"
#include "train/data/shard_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "storage/safetensors/safetensors.h"

#define READ_IDS 4096 /* ids per piece of a verifying pass */

struct ash_shard {
    struct ash_safetensors *set;
    char *name;
    struct ash_shard_source source; /* read NULL: everything is at tokens */
    void *outline;                  /* of a source: address space for all of it, filled with header and bounds alone */
    uint64_t tokens_at;             /* the byte of the file where ids begin */
    const void *tokens;             /* [info.tokens] uint16_t or uint32_t */
    bool wide;
    const int64_t *ends; /* [info.documents] */
    struct ash_shard_info info;
};

static int parse_number(const char *text, int base, uint64_t max, uint64_t *value_out)
{
    char *end = NULL;
    unsigned long long value;

    if (text == NULL || text[0] == '\0' || text[0] == '-' || text[0] == '+' || text[0] == ' ') return -EINVAL;
    errno = 0;
    value = strtoull(text, &end, base);
    if (errno != 0 || *end != '\0' || value > max) return -EINVAL;
    *value_out = value;
    return 0;
}

static int read_metadata(struct ash_shard *shard, struct ash_err *err)
{
    const char *format = ash_safetensors_metadata(shard->set, "format");
    uint64_t vocab_size = 0;

    if (format == NULL || strcmp(format, ASH_SHARD_FORMAT) != 0)
        return ash_err_set(err, -EBADMSG, "%s: not a token shard: its metadata has no format \"%s\"", shard->name,
                           ASH_SHARD_FORMAT);
    if (parse_number(ash_safetensors_metadata(shard->set, "vocab_size"), 10, ASH_SHARD_VOCAB_MAX, &vocab_size) < 0 ||
        vocab_size == 0)
        return ash_err_set(err, -EBADMSG, "%s: the metadata's vocab_size is missing or no number from 1 to %zu",
                           shard->name, ASH_SHARD_VOCAB_MAX);
    shard->info.vocab_size = (size_t)vocab_size;
    if (parse_number(ash_safetensors_metadata(shard->set, "tokenizer_hash"), 16, UINT64_MAX,
                     &shard->info.tokenizer_hash) < 0)
        return ash_err_set(err, -EBADMSG, "%s: the metadata's tokenizer_hash is missing or not hexadecimal",
                           shard->name);
    if (parse_number(ash_safetensors_metadata(shard->set, "hash"), 16, UINT64_MAX, &shard->info.hash) < 0)
        return ash_err_set(err, -EBADMSG, "%s: the metadata's hash is missing or not hexadecimal", shard->name);
    return 0;
}

static int find_tensors(struct ash_shard *shard, struct ash_err *err)
{
    const struct ash_tensor_view *tokens = ash_safetensors_find(shard->set, "tokens");
    const struct ash_tensor_view *ends = ash_safetensors_find(shard->set, "doc_ends");

    if (tokens == NULL || ends == NULL)
        return ash_err_set(err, -EBADMSG, "%s: a token shard needs the tensors 'tokens' and 'doc_ends'", shard->name);
    if (tokens->dim_count != 1 || (tokens->dtype != ASH_U16 && tokens->dtype != ASH_U32))
        return ash_err_set(err, -EBADMSG, "%s: 'tokens' must be one-dimensional U16 or U32", shard->name);
    if (ends->dim_count != 1 || ends->dtype != ASH_I64)
        return ash_err_set(err, -EBADMSG, "%s: 'doc_ends' must be one-dimensional I64", shard->name);
    shard->tokens = tokens->data;
    shard->wide = tokens->dtype == ASH_U32;
    shard->info.tokens = tokens->dims[0];
    shard->ends = ends->data;
    shard->info.documents = ends->dims[0];
    return 0;
}

static int check_bounds(const struct ash_shard *shard, struct ash_err *err)
{
    int64_t last = 0;

    if (shard->info.tokens == 0 || shard->info.documents == 0)
        return ash_err_set(err, -EBADMSG, "%s: the shard holds no document", shard->name);
    for (size_t d = 0; d < shard->info.documents; d++) {
        if (shard->ends[d] <= last)
            return ash_err_set(err, -EBADMSG, "%s: doc_ends[%zu] is %" PRId64 ", not above %" PRId64 " before it",
                               shard->name, d, shard->ends[d], last);
        last = shard->ends[d];
    }
    if ((uint64_t)last != shard->info.tokens)
        return ash_err_set(err, -EBADMSG, "%s: the last document ends at %" PRId64 ", but there are %zu tokens",
                           shard->name, last, shard->info.tokens);
    return 0;
}

/* Takes over set, also on failure. */
static int open_set(struct ash_safetensors *set, const char *name, struct ash_shard **shard_out, struct ash_err *err)
{
    struct ash_shard *shard = calloc(1, sizeof(*shard));
    int rc;

    if (shard == NULL) {
        ash_safetensors_close(set);
        return ash_err_set(err, -ENOMEM, "%s: out of memory", name);
    }
    shard->set = set;
    shard->name = strdup(name);
    if (shard->name == NULL) {
        rc = ash_err_set(err, -ENOMEM, "%s: out of memory", name);
        goto fail;
    }
    rc = read_metadata(shard, err);
    if (rc < 0) goto fail;
    rc = find_tensors(shard, err);
    if (rc < 0) goto fail;
    rc = check_bounds(shard, err);
    if (rc < 0) goto fail;
    *shard_out = shard;
    return 0;

fail:
    ash_shard_close(shard);
    return rc;
}

/* Does the file begin as text does: UTF-8 without control characters? */
static bool is_text_file(const char *path)
{
    char head[512];
    FILE *file = fopen(path, "rbe");
    size_t count = file != NULL ? fread(head, 1, sizeof(head), file) : 0;

    if (file != NULL) fclose(file);
    if (count == 0 || ash_utf8_valid_prefix(head, count) + ash_utf8_incomplete_tail(head, count) < count) return false;
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)head[i] < ' ' && strchr("\t\n\f\r", head[i]) == NULL) return false;
    return memchr(head, '\0', count) == NULL;
}

int ash_shard_open(const char *path, struct ash_shard **shard_out, struct ash_err *err)
{
    struct ash_safetensors *set = NULL;
    int rc = ash_safetensors_open(path, &set, err);

    if (rc < 0 && is_text_file(path))
        return ash_err_set(err, -EINVAL,
                           "%s: this is text, not token shards: `ashlar data tokenize` makes shards of it", path);
    if (rc < 0) return rc;
    return open_set(set, path, shard_out, err);
}

int ash_shard_parse(const void *data, size_t size_bytes, const char *name, struct ash_shard **shard_out,
                    struct ash_err *err)
{
    struct ash_safetensors *set = NULL;
    int rc = ash_safetensors_parse(data, size_bytes, name, &set, err);

    if (rc < 0) return rc;
    return open_set(set, name, shard_out, err);
}

/* ---- files that are not here ------------------------------------------------------------------------------------- */

#define LENGTH_BYTES 8                 /* of the header, which opens a file */
#define FIRST_BYTES ((size_t)64 << 10) /* header and, of small shards, bounds in one request */

/* Read a part of a source to its place in the outline. */
static int fill(const struct ash_shard_source *source, uint8_t *base, uint64_t offset, size_t size_bytes,
                struct ash_err *err)
{
    return size_bytes == 0 ? 0 : source->read(source->ctx, offset, size_bytes, base + offset, err);
}

/* The header of a source into base. Returns how many bytes of the file are there, or a negative errno. */
static int64_t fill_header(const struct ash_shard_source *source, uint8_t *base, struct ash_err *err)
{
    size_t first = (size_t)(source->size_bytes < FIRST_BYTES ? source->size_bytes : FIRST_BYTES);
    uint64_t length = 0;
    int rc = fill(source, base, 0, first, err);

    if (rc < 0) return rc;
    memcpy(&length, base, sizeof(length));
    if (length > ASH_SAFETENSORS_HEADER_MAX || length + LENGTH_BYTES > source->size_bytes)
        return (int64_t)first; /* the parser reports the error */
    if (length + LENGTH_BYTES <= first) return (int64_t)first;
    rc = fill(source, base, first, (size_t)length + LENGTH_BYTES - first, err);
    return rc < 0 ? rc : (int64_t)length + LENGTH_BYTES;
}

/* Header and bounds of a source into base, which is as long as the file. *set_out is the caller's. */
static int fill_outline(const struct ash_shard_source *source, uint8_t *base, const char *name,
                        struct ash_safetensors **set_out, struct ash_err *err)
{
    const struct ash_tensor_view *ends;
    int64_t first = fill_header(source, base, err);
    uint64_t at;
    int rc = first < 0 ? (int)first : ash_safetensors_parse(base, (size_t)source->size_bytes, name, set_out, err);

    if (rc < 0) return rc;
    ends = ash_safetensors_find(*set_out, "doc_ends");
    if (ends == NULL) return 0; /* found missing later */
    at = (uint64_t)((const uint8_t *)ends->data - base);
    if ((const uint8_t *)ends->data < base || at >= source->size_bytes || ends->size_bytes > source->size_bytes - at)
        return ash_err_set(err, -EBADMSG, "%s: its tensors are not aligned; tokenize the text again", name);
    if (at + ends->size_bytes <= (uint64_t)first) return 0;
    if (at < (uint64_t)first)
        return fill(source, base, (uint64_t)first, (size_t)(at + ends->size_bytes - (uint64_t)first), err);
    return fill(source, base, at, ends->size_bytes, err);
}

int ash_shard_open_source(const struct ash_shard_source *source, const char *name, struct ash_shard **shard_out,
                          struct ash_err *err)
{
    struct ash_safetensors *set = NULL;
    struct ash_shard *shard = NULL;
    void *base;
    int rc;

    if (source->size_bytes < LENGTH_BYTES || source->size_bytes > SIZE_MAX / 2)
        return ash_err_set(err, -EBADMSG, "%s: not a token shard: it has %llu bytes", name,
                           (unsigned long long)source->size_bytes);
    base = mmap(NULL, (size_t)source->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (base == MAP_FAILED) return ash_err_set(err, -ENOMEM, "%s: no room for its outline", name);
    rc = fill_outline(source, base, name, &set, err);
    if (rc == 0) {
        rc = open_set(set, name, &shard, err);
        set = NULL;
    }
    if (rc == 0) {
        shard->tokens_at = (uint64_t)((const uint8_t *)shard->tokens - (const uint8_t *)base);
        if ((const uint8_t *)shard->tokens < (const uint8_t *)base || shard->tokens_at >= source->size_bytes)
            rc = ash_err_set(err, -EBADMSG, "%s: its tensors are not aligned; tokenize the text again", name);
    }
    if (rc < 0) {
        ash_shard_close(shard);
        ash_safetensors_close(set);
        munmap(base, (size_t)source->size_bytes);
        return rc;
    }
    shard->source = *source;
    shard->outline = base;
    *shard_out = shard;
    return 0;
}

void ash_shard_close(struct ash_shard *shard)
{
    if (shard == NULL) return;
    ash_safetensors_close(shard->set);
    if (shard->outline != NULL) munmap(shard->outline, (size_t)shard->source.size_bytes);
    free(shard->name);
    free(shard);
}

const struct ash_shard_info *ash_shard_get_info(const struct ash_shard *shard)
{
    return &shard->info;
}

const char *ash_shard_description(const struct ash_shard *shard)
{
    return ash_safetensors_metadata(shard->set, "description");
}

size_t ash_shard_doc_at(const struct ash_shard *shard, size_t token)
{
    size_t low = 0, high = shard->info.documents - 1; /* the answer lies in [low, high] */

    ash_assert(token < shard->info.tokens);
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uint64_t)shard->ends[middle] > token)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

size_t ash_shard_doc_end(const struct ash_shard *shard, size_t document)
{
    ash_assert(document < shard->info.documents);
    ash_assert(document < shard->info.documents);
    return (size_t)shard->ends[document];
}

/* Widen ids to ids_out, which may begin before them in the same memory. Returns the largest, read as unsigned: one
 * comparison at the end covers all. */
static uint32_t copy_ids(const void *from, bool is_wide, size_t count, int32_t *ids_out)
{
    uint32_t largest = 0;

    if (is_wide) {
        const uint32_t *ids = from;

        for (size_t i = 0; i < count; i++) {
            largest = ids[i] > largest ? ids[i] : largest;
            ids_out[i] = (int32_t)ids[i];
        }
    } else {
        const uint16_t *ids = from;

        for (size_t i = 0; i < count; i++) {
            uint16_t id = ids[i];

            largest = id > largest ? id : largest;
            ids_out[i] = id;
        }
    }
    return largest;
}

uint64_t ash_shard_bytes_of(const struct ash_shard *shard, size_t first, size_t count, size_t *size_out)
{
    size_t width = shard->wide ? sizeof(uint32_t) : sizeof(uint16_t);

    *size_out = count * width;
    return shard->tokens_at + first * width;
}

/* The place of ids in memory: where they are mapped, or read to the end of ids_out from a source. */
static int locate_ids(const struct ash_shard *shard, size_t first, size_t count, int32_t *ids_out, const void **ids,
                      struct ash_err *err)
{
    size_t width = shard->wide ? sizeof(uint32_t) : sizeof(uint16_t), bytes;
    uint64_t offset = ash_shard_bytes_of(shard, first, count, &bytes);
    char *end = (char *)(ids_out + count) - bytes;

    *ids = (const char *)shard->tokens + first * width;
    if (shard->source.read == NULL || count == 0) return 0;
    *ids = end;
    return shard->source.read(shard->source.ctx, offset, bytes, end, err);
}

int ash_shard_read(const struct ash_shard *shard, size_t first, size_t count, int32_t *ids_out, struct ash_err *err)
{
    const void *ids = NULL;
    size_t bad = 0;
    int rc;

    ash_assert(first <= shard->info.tokens && count <= shard->info.tokens - first);
    rc = locate_ids(shard, first, count, ids_out, &ids, err);
    if (rc < 0) return rc;
    if (copy_ids(ids, shard->wide, count, ids_out) < shard->info.vocab_size || count == 0) return 0;
    while ((uint32_t)ids_out[bad] < shard->info.vocab_size)
        bad++;
    return ash_err_set(err, -EBADMSG,
                       "%s: token %zu has the id %" PRIu32 ", outside the vocabulary of %zu: the file is damaged",
                       shard->name, first + bad, (uint32_t)ids_out[bad], shard->info.vocab_size);
}

int ash_shard_verify(const struct ash_shard *shard, struct ash_err *err)
{
    int32_t ids[READ_IDS];
    uint64_t hash = ash_shard_hash_ends(shard->ends, shard->info.documents, 0);

    for (size_t first = 0; first < shard->info.tokens; first += READ_IDS) {
        size_t left = shard->info.tokens - first;
        size_t count = left < READ_IDS ? left : READ_IDS;
        int rc = ash_shard_read(shard, first, count, ids, err);

        if (rc < 0) return rc;
        hash += ash_shard_hash_ids(ids, count, first);
    }
    if (hash != shard->info.hash)
        return ash_err_set(err, -EBADMSG,
                           "%s: the contents have the hash %016" PRIx64 ", the file says %016" PRIx64 ": it is damaged",
                           shard->name, hash, shard->info.hash);
    return 0;
}
