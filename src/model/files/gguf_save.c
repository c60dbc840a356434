/* Writes a model as a GGUF file, in another precision or quantised, with its vocabulary and chat template:
 * all that llama.cpp needs. The rows of q and k are put into its order where the architecture has one, as its own
 * converter does (gguf_model.c says why). */
#include "model/files/gguf_model_priv.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/bf16.h"
#include "base/str.h"
#include "base/workers.h"
#include "compute/quant.h"
#include "model/files/save.h"
#include "text/chat_template/chat_template.h"
#include "model/files/folder_priv.h"
#include "model/files/quantise.h"
#include "model/rope_freq.h"
#include "model/weight.h"
#include "text/tokenizer/tokenizer.h"

#define NAME_BYTES 96
#define ARENA_BYTES ((size_t)64 << 10)
#define F16_MAX 65504.0f

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
    struct ash_tensor_spec *specs; /* one for each parameter, in their order, and perhaps the rotary factors */
    size_t count;                  /* of specs */
    char (*names)[NAME_BYTES];
    struct ash_workers *workers;
    size_t widest; /* columns of a parameter */
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

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Is this q or k, whose rows (or the values of its bias) the architecture reorders? */
static bool reordered(const struct writer *writer, size_t index)
{
    static const enum ash_role roles[] = {ASH_ROLE_Q, ASH_ROLE_K, ASH_ROLE_Q_BIAS, ASH_ROLE_K_BIAS};
    const struct ash_model *model = writer->model;
    const struct ash_param *param = &model->params[index];

    ash_assert(index < model->param_count);
    if (!writer->arch->interleaved || param->layer < 0) return false;
    for (size_t i = 0; i < ASH_COUNT(roles); i++)
        if (model->layers[param->layer].param[roles[i]] == (int32_t)index) return true;
    return false;
}

/* Row `row` of the file's tensor, as a row of the parameter: neighbours in the file are halves of a head here. */
static size_t source_row(const struct writer *writer, size_t row)
{
    size_t dim = writer->model->config.head_dim, in_head = row % dim;

    return row - in_head + in_head / 2 + in_head % 2 * (dim / 2);
}

static void fill_factors(const struct writer *writer, float *factors)
{
    size_t dims = writer->model->config.head_dim;

    for (size_t i = 0; i < dims / 2; i++)
        factors[i] = ash_rope_llama3_factor(&writer->model->config.rope, dims, i);
}

/* A vector in one piece, F32. */
static void fill_vector(const struct writer *writer, size_t index, float *out)
{
    const struct ash_param *param = &writer->model->params[index];
    bool moves = reordered(writer, index);

    ash_assert(index < writer->model->param_count);
    ash_weights_to_f32(param->data, param->dtype, 0, param->count, writer->rows);
    for (size_t i = 0; i < param->count; i++)
        out[i] = writer->rows[moves ? source_row(writer, i) : i];
}

/* Some rows of a file's tensor. */
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
    const struct ash_tensor_spec *spec = &writer->specs[filling->index];
    const struct ash_param *param = &writer->model->params[filling->index];
    size_t cols = spec->dims[1], row_bytes = ash_dtype_size(spec->dtype, cols);
    float *values = writer->rows + (size_t)worker * writer->widest;
    bool moves = reordered(writer, filling->index);

    for (size_t i = begin; i < end; i++) {
        size_t row = filling->first + i;

        ash_weights_to_f32(param->data, param->dtype, (moves ? source_row(writer, row) : row) * cols, cols, values);
        if (fits(values, cols, spec->dtype))
            store_row(values, cols, spec->dtype, filling->buf + i * row_bytes);
        else
            atomic_store_explicit(&filling->has_overflow, true, memory_order_relaxed);
    }
}

static int fill_rows(const struct writer *writer, size_t index, size_t first_byte, uint8_t *buf, size_t size_bytes)
{
    const struct ash_tensor_spec *spec = &writer->specs[index];
    size_t row_bytes = ash_dtype_size(spec->dtype, spec->dims[1]);
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
    const struct ash_tensor_spec *spec = &writer->specs[index];
    int rc = 0;

    if (spec->dim_count == 2)
        rc = fill_rows(writer, index, first_byte, buf, size_bytes);
    else if (index == writer->model->param_count)
        fill_factors(writer, buf);
    else
        fill_vector(writer, index, buf);
    if (index < writer->model->param_count) writer->saved += value_count(spec->dtype, size_bytes);
    if (writer->watch != NULL) writer->watch->saved(writer->watch->ctx, writer->saved, writer->total);
    return rc;
}

static int plan_tensors(struct writer *writer, enum ash_dtype dtype, struct ash_err *err)
{
    const struct ash_model *model = writer->model;

    writer->specs = calloc(model->param_count + 1, sizeof(*writer->specs));
    writer->names = calloc(model->param_count, sizeof(*writer->names));
    if (writer->specs == NULL || writer->names == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        size_t cols = param->dims[param->dim_count - 1];
        int rc = ash_gguf_model_name(model, i, writer->names[i], NAME_BYTES, err);

        if (rc < 0) return rc;
        writer->specs[i] = (struct ash_tensor_spec){.name = writer->names[i], .dim_count = param->dim_count};
        memcpy(writer->specs[i].dims, param->dims, sizeof(param->dims));
        writer->specs[i].dtype = param->is_matrix && cols % ash_dtype_block(dtype) == 0 ? dtype : ASH_F32;
        if (cols > writer->widest) writer->widest = cols;
    }
    writer->count = model->param_count;
    if (model->config.rope.kind == ASH_ROPE_LLAMA3)
        writer->specs[writer->count++] = (struct ash_tensor_spec){
            .name = ASH_GGUF_ROPE_FREQS, .dtype = ASH_F32, .dim_count = 1, .dims = {model->config.head_dim / 2}};
    writer->rows = malloc((size_t)ash_workers_count(writer->workers) * writer->widest * sizeof(*writer->rows));
    return writer->rows != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

/* "llama.block_count" of "block_count", in the arena; NULL when out of memory. */
static const char *key_of(const struct writer *writer, const char *name)
{
    char key[NAME_BYTES];

    snprintf(key, sizeof(key), "%s.%s", writer->arch->name, name);
    return ash_arena_strdup(writer->arena, key);
}

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

static int add_shape(struct writer *writer, struct ash_err *err)
{
    const struct ash_model_config *c = &writer->model->config;
    const struct {
        const char *name;
        size_t value;
    } numbers[] = {
        {"vocab_size", c->vocab},
        {"context_length", c->max_positions},
        {"embedding_length", c->hidden},
        {"block_count", c->layers},
        {"feed_forward_length", c->ffn},
        {"attention.head_count", c->heads},
        {"attention.head_count_kv", c->kv_heads},
        {"attention.key_length", c->head_dim},
        {"attention.value_length", c->head_dim},
        {"rope.dimension_count", c->head_dim},
        {"attention.sliding_window", c->window[0]},
    };

    for (size_t i = 0; i < ASH_COUNT(numbers); i++) {
        const char *key = key_of(writer, numbers[i].name);

        if (key == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
        if (numbers[i].value > 0) ash_gguf_add_number(&writer->entries, key, (uint32_t)numbers[i].value);
    }
    return 0;
}

static int add_rope(struct writer *writer, struct ash_err *err)
{
    const struct ash_rope_config *rope = &writer->model->config.rope;
    const char *base = key_of(writer, "rope.freq_base"), *type = key_of(writer, "rope.scaling.type");
    const char *factor = key_of(writer, "rope.scaling.factor");
    const char *positions = key_of(writer, "rope.scaling.original_context_length");
    const char *eps = key_of(writer, "attention.layer_norm_rms_epsilon");

    if (base == NULL || type == NULL || factor == NULL || positions == NULL || eps == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory");
    ash_gguf_add_real(&writer->entries, eps, (float)writer->model->config.norm_eps);
    ash_gguf_add_real(&writer->entries, base, (float)rope->theta);
    if (rope->kind == ASH_ROPE_LINEAR) {
        ash_gguf_add_text(&writer->entries, type, "linear");
        ash_gguf_add_real(&writer->entries, factor, (float)rope->factor);
    }
    if (rope->kind == ASH_ROPE_LLAMA3)
        ash_gguf_add_number(&writer->entries, positions, (uint32_t)rope->original_positions);
    return 0;
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
    rc = add_shape(writer, err);
    if (rc == 0) rc = add_rope(writer, err);
    return rc < 0 ? rc : add_text(writer, home, notes, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int check(struct writer *writer, struct ash_str *notes, struct ash_err *err)
{
    const struct ash_model *model = writer->model;
    const struct ash_model_config *c = &model->config;

    if (model->gguf != NULL) return ash_err_set(err, -ENOTSUP, "this model is a GGUF file already");
    writer->arch = ash_gguf_arch_of(c);
    if (writer->arch == NULL)
        return ash_err_set(err, -ENOTSUP,
                           "a %s model cannot be written as a GGUF file (llama, mistral, qwen2 and qwen3 can)",
                           c->family->type);
    if (c->rope.kind == ASH_ROPE_YARN)
        return ash_err_set(err, -ENOTSUP, "this model's scaled rotary positions cannot be written into a GGUF file");
    for (size_t i = 0; i < c->layers; i++)
        if (c->window[i] != c->window[0] || (c->window[i] > 0 && !writer->arch->interleaved))
            return ash_err_set(err, -ENOTSUP, "attention windows of a %s model cannot be written into a GGUF file",
                               c->family->type);
    if (c->window[0] > 0 && notes != NULL &&
        ash_str_adds(notes, "llama.cpp does not apply this model's attention window: longer texts differ there\n") < 0)
        return ash_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static void writer_fini(struct writer *writer)
{
    ash_arena_close(writer->arena);
    ash_tokenizer_close(writer->tokenizer);
    ash_str_fini(&writer->chat);
    free(writer->rows);
    ash_workers_close(writer->workers);
    free(writer->names);
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
    writer_fini(&writer);
    return rc;
}
