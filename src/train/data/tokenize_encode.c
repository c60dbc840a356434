/* Documents to ids on all threads. A batch is cut into chunks of whole documents; a chunk has its own ids, so which
 * thread works on it leaves no trace in the result. */
#include "train/data/tokenize_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"
#include "base/workers.h"
#include "text/tokenizer/tokenizer.h"

#define CHUNK_BYTES ((size_t)64 << 10)

struct result {
    enum ash_encoded_state state;
    size_t chunk, first, count; /* ids of the chunk */
};

struct chunk {
    size_t begin, end; /* documents */
    struct ash_ids ids;
    int worker;
    int rc;
    struct ash_err err; /* of the first document that failed */
};

struct ash_encoder {
    struct ash_encoder_opts opts;
    struct chunk *chunks;
    size_t chunk_count, chunk_capacity;
    struct result *results;
    size_t result_capacity;
    const struct ash_input *input;       /* of the run */
    const struct ash_input_batch *batch; /* of the run */
};

int ash_encoder_open(const struct ash_encoder_opts *opts, struct ash_encoder **encoder_out, struct ash_err *err)
{
    struct ash_encoder *encoder = calloc(1, sizeof(*encoder));

    if (encoder == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    encoder->opts = *opts;
    *encoder_out = encoder;
    return 0;
}

void ash_encoder_close(struct ash_encoder *encoder)
{
    if (encoder == NULL) return;
    for (size_t c = 0; c < encoder->chunk_capacity; c++)
        ash_ids_fini(&encoder->chunks[c].ids);
    free(encoder->chunks);
    free(encoder->results);
    free(encoder);
}

static int encode_text(const struct ash_encoder *encoder, const char *text, size_t size_bytes, struct chunk *chunk,
                       struct ash_err *err)
{
    struct ash_ids *ids = &chunk->ids;
    size_t first = ids->count;
    int rc;

    if (encoder->opts.text != NULL)
        return encoder->opts.text(encoder->opts.text_ctx, chunk->worker, text, size_bytes, err);
    rc = ash_tokenizer_encode(encoder->opts.tokenizer, text, size_bytes, encoder->opts.add_special, ids, err);

    if (rc == 0 && ids->count > first && encoder->opts.eos_id >= 0) rc = ash_ids_add(ids, encoder->opts.eos_id);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "out of memory for the tokens of %zu bytes of text", size_bytes);
    return rc;
}

static int encode_plain(const struct ash_encoder *encoder, const struct ash_input_doc *doc, const char *text,
                        struct chunk *chunk, struct ash_err *err)
{
    size_t valid = ash_utf8_valid_prefix(text, doc->size_bytes);
    const char *path = ash_input_file_at(encoder->input, doc->begin.file)->path;
    uint64_t line = doc->begin.line;

    if (doc->is_null) return 0;
    if (valid == doc->size_bytes) return encode_text(encoder, text, doc->size_bytes, chunk, err);
    if (ash_input_file_at(encoder->input, doc->begin.file)->is_parquet)
        return ash_err_set(err, -EILSEQ, "%s: row %" PRIu64 ": byte %zu of its '%s' is not UTF-8%s", path, line, valid,
                           encoder->opts.field, encoder->opts.skip ? "" : "; leave such rows out with --on-error skip");
    for (size_t i = 0; i < valid; i++)
        line += text[i] == '\n';
    return ash_err_set(err, -EILSEQ, "%s:%" PRIu64 ": byte %" PRIu64 " of the file is not UTF-8%s", path, line,
                       doc->begin.offset + valid,
                       encoder->opts.skip ? "" : "; convert it, or leave such documents out with --on-error skip");
}

static int encode_json(const struct ash_encoder *encoder, const struct ash_input_doc *doc, const char *text,
                       struct chunk *chunk, struct ash_err *err)
{
    const char *path = ash_input_file_at(encoder->input, doc->begin.file)->path;
    json_t *json = NULL, *value;
    struct ash_err cause = {0};
    int rc = ash_json_parse_line(text, doc->size_bytes, path, doc->begin.line, &json, &cause);

    if (rc < 0)
        return ash_err_set(err, rc, "%s%s", cause.text,
                           encoder->opts.skip ? "" : "; --on-error skip leaves such lines out");
    value = json_object_get(json, encoder->opts.field);
    if (json_is_string(value))
        rc = encode_text(encoder, json_string_value(value), json_string_length(value), chunk, err);
    else
        rc = ash_err_set(err, -EINVAL, "%s:%" PRIu64 ": the line has no string '%s'; name another with --field%s", path,
                         doc->begin.line, encoder->opts.field,
                         encoder->opts.skip ? "" : ", or leave such lines out with --on-error skip");
    json_decref(json);
    return rc;
}

static bool is_bad_document(int rc)
{
    return rc == -EILSEQ || rc == -EINVAL;
}

static int encode_doc(const struct ash_encoder *encoder, size_t d, struct chunk *chunk)
{
    const struct ash_input_doc *doc = &encoder->batch->docs[d];
    const char *text = encoder->batch->text.data + doc->start;
    struct result *result = &encoder->results[d];
    bool jsonl = ash_input_file_at(encoder->input, doc->begin.file)->jsonl;
    struct ash_err err = {0};
    int rc;

    *result = (struct result){.chunk = (size_t)(chunk - encoder->chunks), .first = chunk->ids.count};
    rc = jsonl ? encode_json(encoder, doc, text, chunk, &err) : encode_plain(encoder, doc, text, chunk, &err);
    if (rc < 0) {
        chunk->ids.count = result->first;
        result->state = ASH_ENCODED_BAD;
        if (is_bad_document(rc) && encoder->opts.skip) rc = 0;
        if (rc < 0 || chunk->err.code == 0) chunk->err = err;
        return rc;
    }
    result->count = chunk->ids.count - result->first;
    result->state = result->count > 0 ? ASH_ENCODED : ASH_ENCODED_EMPTY;
    return 0;
}

/* ash_range_fn over chunks. */
static void encode_chunks(void *ctx, size_t begin, size_t end, int worker)
{
    struct ash_encoder *encoder = ctx;

    for (size_t c = begin; c < end; c++) {
        struct chunk *chunk = &encoder->chunks[c];

        chunk->worker = worker;
        ash_assert(chunk->begin < chunk->end && chunk->end <= encoder->batch->count);
        for (size_t d = chunk->begin; d < chunk->end && chunk->rc == 0; d++)
            chunk->rc = encode_doc(encoder, d, chunk);
    }
}

static struct chunk *new_chunk(struct ash_encoder *encoder)
{
    size_t old = encoder->chunk_capacity;
    struct chunk *chunk;

    if (ash_array_reserve(&encoder->chunks, &encoder->chunk_capacity, encoder->chunk_count + 1, sizeof(*chunk)) < 0)
        return NULL;
    if (encoder->chunk_capacity > old)
        memset(encoder->chunks + old, 0, (encoder->chunk_capacity - old) * sizeof(*chunk));
    chunk = &encoder->chunks[encoder->chunk_count++];
    *chunk = (struct chunk){.ids = chunk->ids};
    chunk->ids.count = 0;
    return chunk;
}

static int cut_chunks(struct ash_encoder *encoder, const struct ash_input_batch *batch)
{
    encoder->chunk_count = 0;
    for (size_t d = 0; d < batch->count;) {
        struct chunk *chunk = new_chunk(encoder);
        size_t bytes = 0;

        if (chunk == NULL) return -ENOMEM;
        chunk->begin = d;
        while (d < batch->count && bytes < CHUNK_BYTES)
            bytes += batch->docs[d++].size_bytes;
        chunk->end = d;
    }
    return 0;
}

/* The first failure, or else the first document that was skipped. */
static int collect_error(const struct ash_encoder *encoder, struct ash_err *err)
{
    const struct chunk *first = NULL;

    for (size_t c = 0; c < encoder->chunk_count; c++) {
        const struct chunk *chunk = &encoder->chunks[c];

        if (chunk->rc < 0) {
            first = chunk;
            break;
        }
        if (first == NULL && chunk->err.code != 0) first = chunk;
    }
    if (first == NULL) return 0;
    if (err != NULL) *err = first->err;
    return first->rc;
}

int ash_encoder_run(struct ash_encoder *encoder, const struct ash_input *input, const struct ash_input_batch *batch,
                    struct ash_err *err)
{
    int rc = cut_chunks(encoder, batch);

    if (rc == 0)
        rc = ash_array_reserve(&encoder->results, &encoder->result_capacity, batch->count, sizeof(*encoder->results));
    if (rc < 0) return ash_err_set(err, rc, "out of memory");
    encoder->input = input;
    encoder->batch = batch;
    ash_workers_run(encoder->opts.workers, encoder->chunk_count, 1, encode_chunks, encoder);
    return collect_error(encoder, err);
}

struct ash_encoded ash_encoder_doc(const struct ash_encoder *encoder, size_t index)
{
    const struct result *result = &encoder->results[index];

    ash_assert(index < encoder->batch->count && result->chunk < encoder->chunk_count);
    return (struct ash_encoded){
        .state = result->state,
        .ids = result->count > 0 ? encoder->chunks[result->chunk].ids.data + result->first : NULL,
        .count = result->count,
    };
}
