/* Writing token shards. A safetensors header comes first and holds the sizes, so ids and bounds wait in
 * two nameless files next to the target until the shard is complete: memory stays flat, and a killed
 * process leaves nothing behind. */
#include "train/data/shard.h"
#include "train/data/shard_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "storage/safetensors/safetensors.h"

#define SPILL_BYTES ((size_t)256 << 10)
#define METADATA_MAX 5

/* Bytes on their way to a file without a name. */
struct spill {
    int fd; /* -1: not open */
    char *buf;
    size_t used_bytes;
};

enum { TENSOR_ENDS, TENSOR_TOKENS, TENSOR_COUNT };

struct ash_shard_writer {
    char *path, *description;
    bool wide, failed;
    struct spill spills[TENSOR_COUNT];
    struct ash_shard_info info;
};

/* mkstemp and unlink rather than O_TMPFILE: network file systems support the former. */
static int spill_open(struct spill *spill, const char *path, struct ash_err *err)
{
    char *name = NULL;
    int rc = 0;

    spill->buf = malloc(SPILL_BYTES);
    if (spill->buf == NULL || asprintf(&name, "%s.spill.XXXXXX", path) < 0)
        return ash_err_set(err, -ENOMEM, "%s: out of memory", path);
    spill->fd = mkostemp(name, O_CLOEXEC);
    if (spill->fd < 0)
        rc = ash_err_set(err, -errno, "%s: cannot make a temporary file next to it: %s", path, strerror(errno));
    else
        unlink(name);
    free(name);
    return rc;
}

static void spill_close(struct spill *spill)
{
    if (spill->fd >= 0) close(spill->fd);
    free(spill->buf);
}

static int spill_flush(struct spill *spill)
{
    size_t done = 0;

    while (done < spill->used_bytes) {
        ssize_t n = write(spill->fd, spill->buf + done, spill->used_bytes - done);

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        done += (size_t)n;
    }
    spill->used_bytes = 0;
    return 0;
}

static int spill_add(struct spill *spill, const void *data, size_t size_bytes)
{
    const char *bytes = data;

    while (size_bytes > 0) {
        size_t room = SPILL_BYTES - spill->used_bytes;
        size_t part = size_bytes < room ? size_bytes : room;

        ash_assert(part > 0); /* a full buffer was flushed */
        memcpy(spill->buf + spill->used_bytes, bytes, part);
        spill->used_bytes += part;
        bytes += part;
        size_bytes -= part;
        if (spill->used_bytes == SPILL_BYTES) {
            int rc = spill_flush(spill);

            if (rc < 0) return rc;
        }
    }
    return 0;
}

/* ash_tensor_fill_fn over the spills. */
static int spill_fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    const struct ash_shard_writer *writer = ctx;
    size_t done = 0;

    ash_assert(index < ASH_COUNT(writer->spills));
    while (done < size_bytes) {
        ssize_t n = pread(writer->spills[index].fd, (char *)buf + done, size_bytes - done, (off_t)(first_byte + done));

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) return -EIO;
        done += (size_t)n;
    }
    return 0;
}

int ash_shard_writer_open(const char *path, size_t vocab_size, uint64_t tokenizer_hash, const char *description,
                          struct ash_shard_writer **writer_out, struct ash_err *err)
{
    struct ash_shard_writer *writer = NULL;
    int rc = 0;

    if (vocab_size == 0 || vocab_size > ASH_SHARD_VOCAB_MAX)
        return ash_err_set(err, -EINVAL, "%s: a vocabulary of %zu ids is outside 1 to %zu", path, vocab_size,
                           ASH_SHARD_VOCAB_MAX);
    writer = calloc(1, sizeof(*writer));
    if (writer == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", path);
    for (int t = 0; t < TENSOR_COUNT; t++)
        writer->spills[t].fd = -1;
    writer->path = strdup(path);
    if (description != NULL) writer->description = strdup(description);
    if (writer->path == NULL || (description != NULL && writer->description == NULL)) {
        rc = ash_err_set(err, -ENOMEM, "%s: out of memory", path);
        goto fail;
    }
    for (int t = 0; t < TENSOR_COUNT; t++) {
        rc = spill_open(&writer->spills[t], path, err);
        if (rc < 0) goto fail;
    }
    writer->wide = vocab_size > (size_t)UINT16_MAX + 1;
    writer->info.vocab_size = vocab_size;
    writer->info.tokenizer_hash = tokenizer_hash;
    *writer_out = writer;
    return 0;

fail:
    ash_shard_writer_close(writer);
    return rc;
}

void ash_shard_writer_close(struct ash_shard_writer *writer)
{
    if (writer == NULL) return;
    for (int t = 0; t < TENSOR_COUNT; t++)
        spill_close(&writer->spills[t]);
    free(writer->path);
    free(writer->description);
    free(writer);
}

static int add_ids(struct ash_shard_writer *writer, const int32_t *ids, size_t count)
{
    uint16_t narrow[1024];

    if (writer->wide) return spill_add(&writer->spills[TENSOR_TOKENS], ids, count * sizeof(*ids));
    for (size_t first = 0; first < count; first += ASH_COUNT(narrow)) {
        size_t part = count - first < ASH_COUNT(narrow) ? count - first : ASH_COUNT(narrow);
        int rc;

        for (size_t i = 0; i < part; i++)
            narrow[i] = (uint16_t)ids[first + i];
        rc = spill_add(&writer->spills[TENSOR_TOKENS], narrow, part * sizeof(narrow[0]));
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_shard_writer_add(struct ash_shard_writer *writer, const int32_t *ids, size_t count, struct ash_err *err)
{
    struct ash_shard_info *info = &writer->info;
    int64_t end = (int64_t)(info->tokens + count);
    int rc;

    ash_assert(ids != NULL && count > 0);
    ash_assert(count > 0 && !writer->failed);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= info->vocab_size)
            return ash_err_set(err, -EINVAL, "%s: the id %" PRId32 " is outside the vocabulary of %zu", writer->path,
                               ids[i], info->vocab_size);
    rc = add_ids(writer, ids, count);
    if (rc == 0) rc = spill_add(&writer->spills[TENSOR_ENDS], &end, sizeof(end));
    if (rc < 0) {
        writer->failed = true;
        return ash_err_set(err, rc, "%s: cannot write to the temporary file next to it: %s", writer->path,
                           strerror(-rc));
    }
    info->hash += ash_shard_hash_ids(ids, count, info->tokens) + ash_shard_hash_ends(&end, 1, info->documents);
    info->tokens += count;
    info->documents++;
    return 0;
}

size_t ash_shard_writer_tokens(const struct ash_shard_writer *writer)
{
    return writer->info.tokens;
}

int ash_shard_writer_finish(struct ash_shard_writer *writer, struct ash_shard_info *info_out, struct ash_err *err)
{
    const struct ash_shard_info *info = &writer->info;
    char vocab_size[24], tokenizer_hash[24], hash[24];
    struct ash_metadata metadata[METADATA_MAX] = {
        {"format", ASH_SHARD_FORMAT},         {"vocab_size", vocab_size},
        {"tokenizer_hash", tokenizer_hash},   {"hash", hash},
        {"description", writer->description},
    };
    /* Bounds first: their eight-byte alignment must not depend on an odd number of two-byte ids. */
    struct ash_tensor_spec specs[TENSOR_COUNT] = {
        [TENSOR_ENDS] = {.name = "doc_ends", .dtype = ASH_I64, .dim_count = 1, .dims = {info->documents}},
        [TENSOR_TOKENS] = {.name = "tokens",
                           .dtype = writer->wide ? ASH_U32 : ASH_U16,
                           .dim_count = 1,
                           .dims = {info->tokens}},
    };
    int rc;

    ash_assert(!writer->failed);
    if (info->documents == 0) return ash_err_set(err, -EINVAL, "%s: a shard needs at least one document", writer->path);
    snprintf(vocab_size, sizeof(vocab_size), "%zu", info->vocab_size);
    snprintf(tokenizer_hash, sizeof(tokenizer_hash), "%016" PRIx64, info->tokenizer_hash);
    snprintf(hash, sizeof(hash), "%016" PRIx64, info->hash);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        rc = spill_flush(&writer->spills[t]);
        if (rc < 0)
            return ash_err_set(err, rc, "%s: cannot write to the temporary file next to it: %s", writer->path,
                               strerror(-rc));
    }
    rc = ash_safetensors_write(writer->path, specs, TENSOR_COUNT, metadata,
                               writer->description != NULL ? METADATA_MAX : METADATA_MAX - 1, spill_fill, writer, err);
    if (rc < 0) return rc;
    *info_out = *info;
    return 0;
}
