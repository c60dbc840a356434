/* examples: gathering them, and writing their folder. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "storage/commit/commit.h"
#include "storage/safetensors/safetensors.h"
#include "train/data/examples_priv.h"
#include "train/data/tokenizer_files.h"

struct ash_examples_writer {
    enum ash_examples_kind kind;
    int32_t *ids;
    uint8_t *targets;
    size_t tokens, token_capacity;
    int64_t *starts; /* [count + 1] */
    float *margins;  /* [capacity / 2] */
    size_t count, capacity;
    bool has_margins;
};

int ash_examples_writer_open(enum ash_examples_kind kind, struct ash_examples_writer **writer_out, struct ash_err *err)
{
    struct ash_examples_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL) return ash_err_set(err, -ENOMEM, "out of memory for examples");
    writer->kind = kind;
    *writer_out = writer;
    return 0;
}

void ash_examples_writer_close(struct ash_examples_writer *writer)
{
    if (writer == NULL) return;
    free(writer->ids);
    free(writer->targets);
    free(writer->starts);
    free(writer->margins);
    free(writer);
}

static int grow(void **data, size_t count, size_t element_bytes)
{
    void *grown = realloc(*data, count * element_bytes);

    if (grown == NULL) return -ENOMEM;
    *data = grown;
    return 0;
}

static int reserve(struct ash_examples_writer *writer, size_t tokens)
{
    if (writer->tokens + tokens > writer->token_capacity) {
        size_t capacity = 2 * (writer->tokens + tokens) + 1024;

        if (grow((void **)&writer->ids, capacity, sizeof(*writer->ids)) < 0 ||
            grow((void **)&writer->targets, capacity, sizeof(*writer->targets)) < 0)
            return -ENOMEM;
        writer->token_capacity = capacity;
    }
    if (writer->count + 2 > writer->capacity) {
        size_t capacity = 2 * writer->capacity + 64;

        if (grow((void **)&writer->starts, capacity + 1, sizeof(*writer->starts)) < 0 ||
            grow((void **)&writer->margins, capacity / 2, sizeof(*writer->margins)) < 0)
            return -ENOMEM;
        writer->capacity = capacity;
    }
    return 0;
}

int ash_examples_writer_add(struct ash_examples_writer *writer, const struct ash_example *example, struct ash_err *err)
{
    ash_assert(example->count > 0);
    if (reserve(writer, example->count) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu examples", writer->count);
    memcpy(writer->ids + writer->tokens, example->ids, example->count * sizeof(*example->ids));
    memcpy(writer->targets + writer->tokens, example->targets, example->count);
    writer->starts[writer->count] = (int64_t)writer->tokens;
    writer->margins[writer->count / 2] = 0.0f;
    writer->tokens += example->count;
    writer->starts[++writer->count] = (int64_t)writer->tokens;
    return 0;
}

int ash_examples_writer_set_margin(struct ash_examples_writer *writer, float margin, struct ash_err *err)
{
    (void)err;
    ash_assert(writer->kind == ASH_EXAMPLES_PAIRS && writer->count >= 2 && writer->count % 2 == 0);
    writer->margins[writer->count / 2 - 1] = margin;
    writer->has_margins = true;
    return 0;
}

size_t ash_examples_writer_count(const struct ash_examples_writer *writer)
{
    return writer->count;
}

static int write_tensors(const struct ash_examples_writer *writer, const char *dir,
                         const struct ash_examples_tokenizer *tokenizer, struct ash_err *err)
{
    struct ash_tensor_spec specs[4] = {
        {.name = "starts", .dtype = ASH_I64, .dim_count = 1, .dims = {writer->count + 1}, .data = writer->starts},
        {.name = "ids", .dtype = ASH_I32, .dim_count = 1, .dims = {writer->tokens}, .data = writer->ids},
        {.name = "targets", .dtype = ASH_U8, .dim_count = 1, .dims = {writer->tokens}, .data = writer->targets},
        {.name = "margins", .dtype = ASH_F32, .dim_count = 1, .dims = {writer->count / 2}, .data = writer->margins}};
    char hash[20], vocab[24], path[PATH_MAX];
    struct ash_metadata metadata[] = {{"format", ASH_EXAMPLES_FORMAT},
                                      {"kind", writer->kind == ASH_EXAMPLES_PAIRS ? "pairs" : "single"},
                                      {"tokenizer_hash", hash},
                                      {"vocab_size", vocab}};

    snprintf(hash, sizeof(hash), "%016" PRIx64, tokenizer->hash);
    snprintf(vocab, sizeof(vocab), "%zu", tokenizer->vocab_size);
    if (ash_path_join(path, sizeof(path), dir, ASH_EXAMPLES_FILE) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    return ash_safetensors_write(path, specs, writer->has_margins ? 4 : 3, metadata, ASH_COUNT(metadata), NULL, NULL,
                                 err);
}

int ash_examples_writer_save(struct ash_examples_writer *writer, const char *dir,
                             const struct ash_examples_tokenizer *tokenizer, json_t *source, struct ash_err *err)
{
    struct ash_commit *commit = NULL;
    int rc;

    if (writer->count == 0) return ash_err_set(err, -EINVAL, "there is not one example to write");
    rc = ash_commit_begin(dir, &commit, err);
    if (rc < 0) return rc;
    rc = write_tensors(writer, ash_commit_dir(commit), tokenizer, err);
    if (rc == 0) rc = ash_tokenizer_files_copy(tokenizer->dir, ash_commit_dir(commit), NULL, err);
    if (rc < 0) {
        ash_commit_abort(commit);
        return rc;
    }
    return ash_commit_finish(commit, source, err);
}
