/* Writes a llama model as a GGUF file, quantised on the way. The rows of q and k are put into llama.cpp's order, as its
 * own converter does (gguf_model.c says why); the vocabulary stays in tokenizer.json, so programs that
 * look for one in the file (llama.cpp's) do not take it. */
#include "model/gguf_model_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/quant.h"
#include "model/folder_priv.h"

#define ENTRIES_MAX 24
#define NAME_BYTES 96
#define LLAMA_CPP_Q8_0 7 /* general.file_type */
#define LLAMA_CPP_Q4_0 2

struct writer {
    const struct ash_model *model;
    struct ash_tensor_spec *specs; /* one for each parameter, in their order */
    char (*names)[NAME_BYTES];
    float *row; /* as wide as the widest parameter */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void put_scale(uint8_t *block, float d)
{
    uint16_t half = ash_f32_to_f16(d);

    memcpy(block, &half, sizeof(half));
}

/* The number that is largest in size becomes -8, so that all 16 values are used. */
static void block_q4(const float *x, uint8_t *block)
{
    float top = 0, d, inverse;

    for (int i = 0; i < ASH_QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    d = top / -8;
    inverse = 1 / d;
    if (!isfinite(inverse)) d = inverse = 0; /* zeros, or all but zeros */
    put_scale(block, d);
    for (int i = 0; i < ASH_QUANT_BLOCK / 2; i++) {
        int low = (int)(x[i] * inverse + 8.5f), high = (int)(x[i + ASH_QUANT_BLOCK / 2] * inverse + 8.5f);

        block[2 + i] = (uint8_t)((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
    }
}

static void store_row(const float *x, size_t count, enum ash_dtype dtype, uint8_t *out)
{
    if (dtype == ASH_F32) memcpy(out, x, count * sizeof(*x));
    for (size_t i = 0; dtype != ASH_F32 && i < count; i += ASH_QUANT_BLOCK, out += ash_dtype_bytes(dtype)) {
        if (dtype == ASH_Q4_0)
            block_q4(x + i, out);
        else
            put_scale(out, ash_quant_block(x + i, (int8_t *)out + sizeof(uint16_t)));
    }
}

/* What a block cannot hold: numbers that are not finite, or beyond what its scale can be. */
static bool fits(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(x[i]) <= 65504.0f)) return false;
    return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Row `row` of the file's tensor, as a row of the parameter: neighbours in the file are halves of a head here. */
static size_t source_row(const struct ash_model *model, size_t index, size_t row)
{
    const struct ash_param *param = &model->params[index];
    const int32_t *roles = param->layer >= 0 ? model->layers[param->layer].param : model->top.param;
    size_t dim = model->config.head_dim, in_head = row % dim;

    if ((int32_t)index != roles[ASH_ROLE_Q] && (int32_t)index != roles[ASH_ROLE_K]) return row;
    return row - in_head + in_head / 2 + in_head % 2 * (dim / 2);
}

static int fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    const struct writer *writer = ctx;
    const struct ash_tensor_spec *spec = &writer->specs[index];
    const struct ash_param *param = &writer->model->params[index];
    size_t cols = spec->dims[spec->dim_count - 1], row_bytes = ash_dtype_size(spec->dtype, cols);

    for (size_t done = 0; done < size_bytes; done += row_bytes) {
        size_t row = source_row(writer->model, index, (first_byte + done) / row_bytes);

        ash_weights_to_f32(param->data, param->dtype, row * cols, cols, writer->row);
        if (spec->dtype != ASH_F32 && !fits(writer->row, cols)) return -ERANGE;
        store_row(writer->row, cols, spec->dtype, (uint8_t *)buf + done);
    }
    return 0;
}

static int plan_tensors(struct writer *writer, enum ash_dtype dtype, struct ash_err *err)
{
    const struct ash_model *model = writer->model;
    size_t widest = 0;

    writer->specs = calloc(model->param_count, sizeof(*writer->specs));
    writer->names = calloc(model->param_count, sizeof(*writer->names));
    if (writer->specs == NULL || writer->names == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        size_t cols = param->dims[param->dim_count - 1];
        int rc = ash_gguf_model_name(model, i, writer->names[i], NAME_BYTES, err);

        if (rc < 0) return rc;
        writer->specs[i] = (struct ash_tensor_spec){.name = writer->names[i], .dim_count = param->dim_count};
        memcpy(writer->specs[i].dims, param->dims, sizeof(param->dims));
        writer->specs[i].dtype = param->matrix && cols % ash_dtype_block(dtype) == 0 ? dtype : ASH_F32;
        if (cols > widest) widest = cols;
    }
    writer->row = malloc(widest * sizeof(*writer->row));
    return writer->row != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static size_t list_entries(const struct ash_model_config *c, enum ash_dtype dtype, struct ash_gguf_entry *e)
{
    size_t n = 0;

    e[n++] = (struct ash_gguf_entry){"general.architecture", ASH_GGUF_STRING, .text = "llama"};
    if (dtype != ASH_F32)
        e[n++] = (struct ash_gguf_entry){"general.file_type", ASH_GGUF_U32,
                                         .number = dtype == ASH_Q8_0 ? LLAMA_CPP_Q8_0 : LLAMA_CPP_Q4_0};
    e[n++] = (struct ash_gguf_entry){"llama.vocab_size", ASH_GGUF_U32, .number = (uint32_t)c->vocab};
    e[n++] = (struct ash_gguf_entry){"llama.context_length", ASH_GGUF_U32, .number = (uint32_t)c->max_positions};
    e[n++] = (struct ash_gguf_entry){"llama.embedding_length", ASH_GGUF_U32, .number = (uint32_t)c->hidden};
    e[n++] = (struct ash_gguf_entry){"llama.block_count", ASH_GGUF_U32, .number = (uint32_t)c->layers};
    e[n++] = (struct ash_gguf_entry){"llama.feed_forward_length", ASH_GGUF_U32, .number = (uint32_t)c->ffn};
    e[n++] = (struct ash_gguf_entry){"llama.attention.head_count", ASH_GGUF_U32, .number = (uint32_t)c->heads};
    e[n++] = (struct ash_gguf_entry){"llama.attention.head_count_kv", ASH_GGUF_U32, .number = (uint32_t)c->kv_heads};
    e[n++] = (struct ash_gguf_entry){"llama.attention.key_length", ASH_GGUF_U32, .number = (uint32_t)c->head_dim};
    e[n++] = (struct ash_gguf_entry){"llama.attention.value_length", ASH_GGUF_U32, .number = (uint32_t)c->head_dim};
    e[n++] =
        (struct ash_gguf_entry){"llama.attention.layer_norm_rms_epsilon", ASH_GGUF_F32, .real = (float)c->norm_eps};
    e[n++] = (struct ash_gguf_entry){"llama.rope.dimension_count", ASH_GGUF_U32, .number = (uint32_t)c->head_dim};
    e[n++] = (struct ash_gguf_entry){"llama.rope.freq_base", ASH_GGUF_F32, .real = (float)c->rope.theta};
    if (c->rope.kind == ASH_ROPE_LINEAR) {
        e[n++] = (struct ash_gguf_entry){"llama.rope.scaling.type", ASH_GGUF_STRING, .text = "linear"};
        e[n++] = (struct ash_gguf_entry){"llama.rope.scaling.factor", ASH_GGUF_F32, .real = (float)c->rope.factor};
    }
    e[n++] = (struct ash_gguf_entry){"tokenizer.ggml.model", ASH_GGUF_STRING, .text = "no_vocab"};
    if (c->bos >= 0)
        e[n++] = (struct ash_gguf_entry){"tokenizer.ggml.bos_token_id", ASH_GGUF_U32, .number = (uint32_t)c->bos};
    if (c->eos_count > 0)
        e[n++] = (struct ash_gguf_entry){"tokenizer.ggml.eos_token_id", ASH_GGUF_U32, .number = (uint32_t)c->eos[0]};
    return n;
}

static int check(const struct ash_model *model, struct ash_err *err)
{
    const struct ash_model_config *c = &model->config;

    if (model->gguf != NULL) return ash_err_set(err, -ENOTSUP, "this model is a GGUF file already");
    if (strcmp(c->family->type, "llama") != 0)
        return ash_err_set(err, -ENOTSUP, "a %s model cannot be written as a GGUF file (llama can)", c->family->type);
    if (c->rope.kind != ASH_ROPE_DEFAULT && c->rope.kind != ASH_ROPE_LINEAR)
        return ash_err_set(err, -ENOTSUP, "this model's scaled rotary positions cannot be written into a GGUF file");
    return 0;
}

int ash_model_save_gguf(const struct ash_model *model, const char *path, enum ash_dtype dtype, struct ash_err *err)
{
    struct writer writer = {.model = model};
    struct ash_gguf_entry entries[ENTRIES_MAX];
    int rc = check(model, err);

    if (rc == 0) rc = plan_tensors(&writer, dtype, err);
    if (rc == 0)
        rc = ash_gguf_write(path, entries, list_entries(&model->config, dtype, entries), writer.specs,
                            model->param_count, fill, &writer, err);
    if (rc == -ERANGE) ash_err_set(err, rc, "%s: a weight is not finite, or too large to be quantised", path);
    free(writer.row);
    free(writer.names);
    free(writer.specs);
    return rc;
}
