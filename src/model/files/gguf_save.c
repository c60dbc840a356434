/* Writes a model as a GGUF file, in another precision or quantised, with its vocabulary and chat template: all that
 * llama.cpp needs. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/bf16.h"
#include "base/str.h"
#include "base/workers.h"
#include "compute/quant.h"
#include "model/files/folder_priv.h"
#include "model/files/gguf_keys.h"
#include "model/files/gguf_source.h"
#include "model/files/quantise.h"
#include "model/files/save.h"
#include "model/rope_freq.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

#define ARENA_BYTES ((size_t)64 << 10)
#define F16_MAX 65504.0f
#define FACTOR_TENSORS 2

enum {
    LLAMA_CPP_F32 = 0,
    LLAMA_CPP_F16 = 1,
    LLAMA_CPP_Q4_0 = 2,
    LLAMA_CPP_Q8_0 = 7,
    LLAMA_CPP_BF16 = 32
}; /* file_type */

struct writer {
    const struct ash_model *model;
    const struct ash_gguf_arch *arch;
    struct ash_gguf_source *sources;
    struct ash_tensor_spec *specs;  /* one for each source, and perhaps rotary factors */
    size_t source_count, count;     /* of specs */
    float *factors[FACTOR_TENSORS]; /* in the arena */
    struct ash_workers *workers;
    size_t widest; /* columns of a tensor */
    float *rows;   /* one so wide for each thread */
    struct ash_gguf_entries entries;
    const struct ash_save_watch *watch;
    size_t saved, total;     /* weights */
    struct ash_arena *arena; /* keys, and what the vocabulary is written from */
    struct ash_tokenizer *tokenizer;
    struct ash_str chat;
};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void store_row(const float *x, size_t count, enum ash_dtype dtype, uint8_t *out)
{
    uint16_t *half = (uint16_t *)(void *)out; /* rows of whole values in a buffer from malloc */

    if (ash_dtype_block(dtype) > 1)
        ash_quantise_row(x, count, dtype, out);
    else if (dtype == ASH_F32)
        memcpy(out, x, count * sizeof(*x));
    else
        for (size_t i = 0; i < count; i++)
            half[i] = dtype == ASH_BF16 ? ash_f32_to_bf16(x[i]) : ash_f32_to_f16(x[i]);
}

/* What f16, and the scale of a block, cannot hold: values that are not finite, or out of its range. */
static bool fits(const float *x, size_t count, enum ash_dtype dtype)
{
    bool fits = true;

    for (size_t i = 0; dtype != ASH_F32 && dtype != ASH_BF16 && i < count; i++)
        fits &= fabsf(x[i]) <= F16_MAX;
    return fits;
}

/* Some rows of a file's tensor; a row of a vector is an element. */
struct filling {
    const struct writer *writer;
    size_t index, first; /* the tensor, and its row that is the first one here */
    uint8_t *buf;
    atomic_bool has_overflow; /* a weight does not fit */
};

static void fill_row_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct filling *filling = ctx;
    const struct writer *writer = filling->writer;
    const struct ash_gguf_source *source = &writer->sources[filling->index];
    enum ash_dtype dtype = writer->specs[filling->index].dtype;
    size_t cols = source->cols, row_bytes = ash_dtype_size(dtype, cols);
    float *values = writer->rows + (size_t)worker * writer->widest;

    for (size_t i = begin; i < end; i++) {
        ash_gguf_source_row(writer->model, source, filling->first + i, values);
        if (fits(values, cols, dtype))
            store_row(values, cols, dtype, filling->buf + i * row_bytes);
        else
            atomic_store_explicit(&filling->has_overflow, true, memory_order_relaxed);
    }
}

static int fill_rows(const struct writer *writer, size_t index, size_t first_byte, uint8_t *buf, size_t size_bytes)
{
    size_t row_bytes = ash_dtype_size(writer->specs[index].dtype, writer->sources[index].cols);
    struct filling filling = {.writer = writer, .index = index, .first = first_byte / row_bytes, .buf = buf};

    ash_workers_run(writer->workers, size_bytes / row_bytes, 1, fill_row_units, &filling);
    return filling.has_overflow ? -ERANGE : 0;
}

static size_t value_count(enum ash_dtype dtype, size_t size_bytes)
{
    size_t block = ash_dtype_block(dtype);

    return size_bytes / ash_dtype_size(dtype, block) * block;
}

static int fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    struct writer *writer = ctx;
    int rc = 0;

    if (index < writer->source_count) {
        rc = fill_rows(writer, index, first_byte, buf, size_bytes);
        writer->saved += value_count(writer->specs[index].dtype, size_bytes);
    } else {
        memcpy(buf, (char *)writer->factors[index - writer->source_count] + first_byte, size_bytes);
    }
    if (writer->watch != NULL) writer->watch->saved(writer->watch->ctx, writer->saved, writer->total);
    return rc;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* A vector of rotary factors: one for each pair of rotated dims. */
static int add_factors(struct writer *writer, const char *name, float **factors_out, struct ash_err *err)
{
    size_t count = writer->model->config.rotary_dims / 2;
    float *factors = ash_arena_calloc(writer->arena, count, sizeof(*factors));

    if (factors == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    writer->factors[writer->count - writer->source_count] = *factors_out = factors;
    writer->specs[writer->count++] =
        (struct ash_tensor_spec){.name = name, .dtype = ASH_F32, .dim_count = 1, .dims = {count}};
    return 0;
}

static int add_llama3(struct writer *writer, struct ash_err *err)
{
    const struct ash_model_config *c = &writer->model->config;
    float *factors = NULL;
    int rc = add_factors(writer, ASH_GGUF_ROPE_FREQS, &factors, err);

    for (size_t i = 0; rc == 0 && i < c->rotary_dims / 2; i++)
        factors[i] = ash_rope_llama3_factor(&c->rope, c->rotary_dims, i);
    return rc;
}

static int add_longrope(struct writer *writer, const char *name, const char *key, struct ash_err *err)
{
    const struct ash_model_config *c = &writer->model->config;
    const json_t *scaling = json_object_get(c->source, "rope_parameters");
    float *factors = NULL;
    int rc = add_factors(writer, name, &factors, err);

    if (!json_is_object(scaling)) scaling = json_object_get(c->source, "rope_scaling");
    for (size_t i = 0; rc == 0 && i < c->rotary_dims / 2; i++) {
        factors[i] = (float)json_number_value(json_array_get(json_object_get(scaling, key), i));
        if (!(factors[i] > 0)) rc = ash_err_set(err, -EINVAL, "factor %zu of rope's %s is not above 0", i, key);
    }
    return rc;
}

static int plan_tensors(struct writer *writer, enum ash_dtype dtype, struct ash_err *err)
{
    enum ash_rope_kind kind = writer->model->config.rope.kind;
    int rc = ash_gguf_sources(writer->model, writer->arch, &writer->sources, &writer->source_count, err);

    if (rc < 0) return rc;
    writer->specs = calloc(writer->source_count + FACTOR_TENSORS, sizeof(*writer->specs));
    if (writer->specs == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    writer->count = writer->source_count;
    for (size_t i = 0; i < writer->source_count; i++) {
        ash_gguf_source_spec(&writer->sources[i], dtype, &writer->specs[i]);
        if (writer->sources[i].cols > writer->widest) writer->widest = writer->sources[i].cols;
    }
    writer->rows = malloc((size_t)ash_workers_count(writer->workers) * writer->widest * sizeof(*writer->rows));
    if (writer->rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    if (kind == ASH_ROPE_LLAMA3) return add_llama3(writer, err);
    if (kind != ASH_ROPE_LONG) return 0;
    rc = add_longrope(writer, ASH_GGUF_ROPE_LONG, "long_factor", err);
    return rc < 0 ? rc : add_longrope(writer, ASH_GGUF_ROPE_SHORT, "short_factor", err);
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static uint32_t file_type(enum ash_dtype dtype)
{
    switch (dtype) {
    case ASH_F16:
        return LLAMA_CPP_F16;
    case ASH_BF16:
        return LLAMA_CPP_BF16;
    case ASH_Q8_0:
    case ASH_Q8_W:
        return LLAMA_CPP_Q8_0;
    case ASH_Q4_0:
        return LLAMA_CPP_Q4_0;
    default:
        return LLAMA_CPP_F32;
    }
}

/* A token id of the model, or of a list of them the one at index; -1 if there is none. */
static int32_t token_id(const struct ash_model *model, const char *key, size_t index)
{
    const json_t *value = json_object_get(model->generation, key);

    if (value == NULL || json_is_null(value)) value = json_object_get(model->config.source, key);
    if (json_is_array(value))
        value = json_array_get(value, index);
    else if (index > 0)
        value = NULL;
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < INT32_MAX
               ? (int32_t)json_integer_value(value)
               : -1;
}

static void add_token_id(struct writer *writer, const char *key, int32_t id)
{
    if (id >= 0 && (size_t)id < writer->model->config.vocab) ash_gguf_add_number(&writer->entries, key, (uint32_t)id);
}

/* Vocabulary and chat template of the folder home; without a tokenizer the file says that it has none. */
static int add_text(struct writer *writer, const char *home, struct ash_str *notes, struct ash_err *err)
{
    const struct ash_model *model = writer->model;
    int32_t bos = token_id(model, "bos_token_id", 0);
    int rc = home != NULL ? ash_tokenizer_open(home, &writer->tokenizer, err) : -ENOENT;

    if (rc < 0 && rc != -ENOENT) return rc;
    if (rc == 0)
        rc = ash_tokenizer_to_gguf(writer->tokenizer, model->config.vocab, bos, writer->arena, &writer->entries, notes,
                                   err);
    else {
        ash_gguf_add_text(&writer->entries, "tokenizer.ggml.model", "no_vocab");
        add_token_id(writer, "tokenizer.ggml.bos_token_id", bos);
        rc = notes == NULL
                 ? 0
                 : ash_str_adds(notes, "there is no tokenizer.json: llama.cpp needs a vocabulary in the file");
    }
    if (rc < 0) return rc;
    add_token_id(writer, "tokenizer.ggml.eos_token_id", token_id(model, "eos_token_id", 0));
    add_token_id(writer, "tokenizer.ggml.eot_token_id", token_id(model, "eos_token_id", 1));
    add_token_id(writer, "tokenizer.ggml.eom_token_id", token_id(model, "eos_token_id", 2));
    add_token_id(writer, "tokenizer.ggml.padding_token_id", token_id(model, "pad_token_id", 0));
    rc = home != NULL ? ash_chat_template_source(home, &writer->chat, err) : -ENOENT;
    if (rc == 0) ash_gguf_add_text(&writer->entries, "tokenizer.chat_template", writer->chat.data);
    return rc == -ENOENT ? 0 : rc;
}

static int add_metadata(struct writer *writer, const char *home, enum ash_dtype dtype, struct ash_str *notes,
                        struct ash_err *err)
{
    int rc;

    ash_gguf_add_text(&writer->entries, "general.architecture", writer->arch->name);
    ash_gguf_add_number(&writer->entries, "general.file_type", file_type(dtype));
    if (dtype == ASH_Q8_W) ash_gguf_add_number(&writer->entries, ASH_GGUF_SCALE_GROUP, ASH_QUANT_GROUP);
    rc = ash_gguf_add_config(&writer->entries, writer->arena, writer->arch, &writer->model->config, err);
    return rc < 0 ? rc : add_text(writer, home, notes, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* What llama.cpp computes otherwise. */
static int add_notes(const struct writer *writer, struct ash_str *notes, struct ash_err *err)
{
    const struct ash_model_config *c = &writer->model->config;
    bool has_window = false;
    int rc = 0;

    if (notes == NULL) return 0;
    for (size_t i = 0; i < c->layers; i++)
        has_window |= c->window[i] > 0;
    if (c->form.chunked && has_window && c->window[0] != c->form.window)
        rc = ash_str_adds(notes, "llama.cpp has chunks of 8,192 tokens in this family: longer texts differ there\n");
    else if (has_window && writer->arch->full_every == 0)
        rc = ash_str_adds(notes, "llama.cpp does not apply this model's attention window: longer texts differ there\n");
    if (rc == 0 && c->rope.kind == ASH_ROPE_YARN && !c->rope.truncate)
        rc = ash_str_adds(notes, "llama.cpp rounds the range of this model's scaled positions: logits differ there\n");
    if (rc == 0 && c->expert.tolerance > 0)
        rc = ash_str_adds(notes, "llama.cpp has other norms and another router for phimoe: logits differ there\n");
    return rc < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int check(struct writer *writer, struct ash_str *notes, struct ash_err *err)
{
    const struct ash_model *model = writer->model;

    if (model->gguf != NULL) return ash_err_set(err, -ENOTSUP, "this model is a GGUF file already");
    writer->arch = ash_gguf_arch_of(model->config.family);
    if (writer->arch == NULL)
        return ash_err_set(err, -ENOTSUP, "a %s model cannot be written as a GGUF file; these can: %s",
                           model->config.family->type, ash_gguf_families());
    return add_notes(writer, notes, err);
}

/* A file that says something else of the model than its config.json is no file of it. */
static int check_file(const struct writer *writer, const char *path, struct ash_err *err)
{
    struct ash_gguf *file = NULL;
    int rc = ash_gguf_open(path, &file, err);

    if (rc == 0) rc = ash_gguf_check_config(file, &writer->model->config, err);
    ash_gguf_close(file);
    if (rc < 0) unlink(path);
    return rc;
}

static void writer_fini(struct writer *writer)
{
    ash_arena_close(writer->arena);
    ash_tokenizer_close(writer->tokenizer);
    ash_str_fini(&writer->chat);
    free(writer->rows);
    ash_workers_close(writer->workers);
    free(writer->sources);
    free(writer->specs);
}

int ash_model_save_gguf(const struct ash_model *model, const char *home, const char *path, enum ash_dtype dtype,
                        struct ash_str *notes, const struct ash_save_watch *watch, struct ash_err *err)
{
    struct writer writer = {
        .model = model, .watch = watch, .total = ash_model_weight_count(model), .arena = ash_arena_open(ARENA_BYTES)};
    int rc = writer.arena == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : check(&writer, notes, err);

    if (rc == 0) rc = ash_workers_open(0, &writer.workers, err);
    if (rc == 0) rc = plan_tensors(&writer, dtype, err);
    if (rc == 0) rc = add_metadata(&writer, home, dtype, notes, err);
    if (rc == 0) rc = ash_gguf_write(path, &writer.entries, writer.specs, writer.count, fill, &writer, err);
    if (rc == -ERANGE) ash_err_set(err, rc, "%s: a weight is not finite, or too large for this type", path);
    if (rc == 0) rc = check_file(&writer, path, err);
    writer_fini(&writer);
    return rc;
}
