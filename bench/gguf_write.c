/* gguf_write DIR OUT f16|q8_0|q4_0: a Llama's Hugging Face folder as a GGUF file, every matrix in one type, so that
 * llama.cpp can be given the weights that we run. The vocabulary is the made-up one of random_llama. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "model/model.h"

#define ALIGN 32u
#define BLOCK 32u /* values that share a scale in q8_0 and q4_0 */
#define BYTES_FIRST 3
#define WORDS_FIRST 259

/* The format's own numbers. */
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_STRING = 8, VALUE_ARRAY = 9 };
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_BYTE = 6 };

static const struct type {
    const char *name;
    uint32_t tensor, file; /* the format's numbers for a tensor and for a file of it */
    size_t block_values, block_bytes;
} types[] = {{"f32", 0, 0, 1, 4}, {"f16", 1, 1, 1, 2}, {"q8_0", 8, 7, BLOCK, 34}, {"q4_0", 2, 2, BLOCK, 18}};

static const struct type *const f32 = &types[0];

/* ---- header ------------------------------------------------------------------------------------------------------ */

static void put_u32(FILE *out, uint32_t value)
{
    fwrite(&value, sizeof(value), 1, out);
}

static void put_u64(FILE *out, uint64_t value)
{
    fwrite(&value, sizeof(value), 1, out);
}

static void put_text(FILE *out, const char *text)
{
    put_u64(out, strlen(text));
    fwrite(text, 1, strlen(text), out);
}

static void put_string(FILE *out, const char *key, const char *value)
{
    put_text(out, key);
    put_u32(out, VALUE_STRING);
    put_text(out, value);
}

static void put_int(FILE *out, const char *key, size_t value)
{
    put_text(out, key);
    put_u32(out, VALUE_U32);
    put_u32(out, (uint32_t)value);
}

static void put_float(FILE *out, const char *key, double value)
{
    float narrow = (float)value;

    put_text(out, key);
    put_u32(out, VALUE_F32);
    fwrite(&narrow, sizeof(narrow), 1, out);
}

static void put_array(FILE *out, const char *key, uint32_t element, size_t count)
{
    put_text(out, key);
    put_u32(out, VALUE_ARRAY);
    put_u32(out, element);
    put_u64(out, count);
}

static void put_vocabulary(FILE *out, size_t vocab)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    char name[32];

    put_array(out, "tokenizer.ggml.tokens", VALUE_STRING, vocab);
    for (size_t id = 0; id < vocab; id++) {
        if (id < BYTES_FIRST)
            snprintf(name, sizeof(name), "%s", special[id]);
        else if (id < WORDS_FIRST)
            snprintf(name, sizeof(name), "<0x%02X>", (unsigned)(id - BYTES_FIRST));
        else
            snprintf(name, sizeof(name), "\xe2\x96\x81w%zu", id - WORDS_FIRST);
        put_text(out, name);
    }
    put_array(out, "tokenizer.ggml.scores", VALUE_F32, vocab);
    for (size_t id = 0; id < vocab; id++) {
        float score = -(float)id;
        fwrite(&score, sizeof(score), 1, out);
    }
    put_array(out, "tokenizer.ggml.token_type", VALUE_I32, vocab);
    for (size_t id = 0; id < vocab; id++)
        put_u32(out, id == 0            ? TOKEN_UNKNOWN
                     : id < BYTES_FIRST ? TOKEN_CONTROL
                     : id < WORDS_FIRST ? TOKEN_BYTE
                                        : TOKEN_NORMAL);
}

static void put_header(FILE *out, const struct ash_model *model, const struct type *type)
{
    const struct ash_model_config *config = ash_model_config(model);

    fwrite("GGUF", 1, 4, out);
    put_u32(out, 3);
    put_u64(out, ash_model_param_count(model));
    put_u64(out, 20);
    put_string(out, "general.architecture", "llama");
    put_string(out, "general.name", "random");
    put_int(out, "general.file_type", type->file);
    put_int(out, "llama.context_length", config->max_positions);
    put_int(out, "llama.embedding_length", config->hidden);
    put_int(out, "llama.block_count", config->layers);
    put_int(out, "llama.feed_forward_length", config->ffn);
    put_int(out, "llama.attention.head_count", config->heads);
    put_int(out, "llama.attention.head_count_kv", config->kv_heads);
    put_float(out, "llama.attention.layer_norm_rms_epsilon", config->norm_eps);
    put_float(out, "llama.rope.freq_base", config->rope.theta);
    put_int(out, "llama.rope.dimension_count", config->head_dim);
    put_int(out, "llama.vocab_size", config->vocab);
    put_string(out, "tokenizer.ggml.model", "llama");
    put_vocabulary(out, config->vocab);
    put_int(out, "tokenizer.ggml.bos_token_id", 1);
    put_int(out, "tokenizer.ggml.eos_token_id", 2);
    put_int(out, "tokenizer.ggml.unknown_token_id", 0);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What the format calls a parameter; false where it has no name for it. */
static bool gguf_name(const char *name, char *buf, size_t buf_bytes)
{
    static const char *const pairs[][2] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"},
        {"input_layernorm.weight", "attn_norm.weight"},
        {"self_attn.q_proj.weight", "attn_q.weight"},
        {"self_attn.k_proj.weight", "attn_k.weight"},
        {"self_attn.v_proj.weight", "attn_v.weight"},
        {"self_attn.o_proj.weight", "attn_output.weight"},
        {"post_attention_layernorm.weight", "ffn_norm.weight"},
        {"mlp.gate_proj.weight", "ffn_gate.weight"},
        {"mlp.up_proj.weight", "ffn_up.weight"},
        {"mlp.down_proj.weight", "ffn_down.weight"},
    };
    const char *rest = name;
    char prefix[32] = "";
    int layer, used = 0;

    if (sscanf(name, "model.layers.%d.%n", &layer, &used) == 1 && used > 0) {
        snprintf(prefix, sizeof(prefix), "blk.%d.", layer);
        rest = name + used;
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (strcmp(rest, pairs[i][0]) != 0) continue;
        snprintf(buf, buf_bytes, "%s%s", prefix, pairs[i][1]);
        return true;
    }
    return false;
}

static const struct type *type_of(const struct ash_param *param, const struct type *type)
{
    return param->matrix ? type : f32;
}

static size_t size_of(const struct ash_param *param, const struct type *type)
{
    return param->count / type_of(param, type)->block_values * type_of(param, type)->block_bytes;
}

static size_t aligned(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static int put_infos(FILE *out, const struct ash_model *model, const struct type *type)
{
    uint64_t offset = 0;
    char name[96];

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);
        if (!gguf_name(param->name, name, sizeof(name))) return -EINVAL;
        put_text(out, name);
        put_u32(out, (uint32_t)param->dim_count);
        for (int d = param->dim_count - 1; d >= 0; d--) /* the fastest dimension first */
            put_u64(out, param->dims[d]);
        put_u32(out, type_of(param, type)->tensor);
        put_u64(out, offset);
        offset += aligned(size_of(param, type));
    }
    return 0;
}

static float value_at(const struct ash_param *param, size_t index)
{
    if (param->dtype == ASH_F32) return ((const float *)param->data)[index];
    if (param->dtype == ASH_F16) return ash_f16_to_f32(((const uint16_t *)param->data)[index]);
    return ash_bf16_to_f32(((const uint16_t *)param->data)[index]);
}

static void encode_q8(const float *x, uint8_t *out)
{
    float most = 0;
    uint16_t scale;

    for (size_t i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    scale = ash_f32_to_f16(most / 127.0f);
    memcpy(out, &scale, sizeof(scale));
    for (size_t i = 0; i < BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)(most > 0 ? roundf(x[i] * 127.0f / most) : 0);
}

/* The value of largest size becomes -8, so that the scale may be negative. */
static void encode_q4(const float *x, uint8_t *out)
{
    float most = 0, step;
    uint16_t scale;

    for (size_t i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    step = most / -8.0f;
    scale = ash_f32_to_f16(step);
    memcpy(out, &scale, sizeof(scale));
    memset(out + 2, 0, BLOCK / 2);
    for (size_t i = 0; i < BLOCK; i++) {
        float q = step != 0 ? floorf(x[i] / step + 8.5f) : 8;
        unsigned code = q < 0 ? 0 : q > 15 ? 15 : (unsigned)q;
        out[2 + i % 16] |= (uint8_t)(code << (i < 16 ? 0 : 4));
    }
}

static void encode(const struct type *type, const float *x, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i += type->block_values, out += type->block_bytes) {
        uint16_t half;
        if (type->block_values == 1 && type->block_bytes == 4) {
            memcpy(out, &x[i], 4);
        } else if (type->block_values == 1) {
            half = ash_f32_to_f16(x[i]);
            memcpy(out, &half, sizeof(half));
        } else if (type->block_bytes == 34) {
            encode_q8(&x[i], out);
        } else {
            encode_q4(&x[i], out);
        }
    }
}

/* llama.cpp rotates neighbours where Hugging Face rotates halves: rows of q and k change places within a head. */
static size_t source_row(const struct ash_param *param, size_t row, size_t head_dim)
{
    size_t head = row / head_dim, at = row % head_dim;

    if (strstr(param->name, "q_proj") == NULL && strstr(param->name, "k_proj") == NULL) return row;
    return head * head_dim + at / 2 + (at % 2) * (head_dim / 2);
}

static int put_tensor(FILE *out, const struct ash_param *param, const struct type *type, size_t head_dim)
{
    static const uint8_t zeros[ALIGN];
    size_t cols = param->dims[param->dim_count - 1], rows = param->count / cols, size = size_of(param, type);
    size_t row_bytes = size / rows;
    float *values = malloc(cols * sizeof(*values));
    uint8_t *bytes = malloc(row_bytes);
    int rc = values != NULL && bytes != NULL ? 0 : -ENOMEM;

    for (size_t row = 0; row < rows && rc == 0; row++) {
        size_t from = source_row(param, row, head_dim) * cols;
        for (size_t c = 0; c < cols; c++)
            values[c] = value_at(param, from + c);
        encode(type_of(param, type), values, cols, bytes);
        if (fwrite(bytes, 1, row_bytes, out) != row_bytes) rc = -EIO;
    }
    fwrite(zeros, 1, aligned(size) - size, out);
    free(values);
    free(bytes);
    return rc;
}

static int write_file(FILE *out, const struct ash_model *model, const struct type *type)
{
    static const uint8_t zeros[ALIGN];
    int rc;
    long at;

    put_header(out, model, type);
    if ((rc = put_infos(out, model, type)) < 0) return rc;
    at = ftell(out);
    fwrite(zeros, 1, aligned((size_t)at) - (size_t)at, out);
    for (size_t i = 0; i < ash_model_param_count(model) && rc == 0; i++)
        rc = put_tensor(out, ash_model_param(model, i), type, ash_model_config(model)->head_dim);
    return rc == 0 && ferror(out) ? -EIO : rc;
}

int main(int argc, char **argv)
{
    const struct type *type = NULL;
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    FILE *out;
    int rc;

    for (size_t i = 0; argc == 4 && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, argv[3]) == 0) type = &types[i];
    if (type == NULL) {
        fprintf(stderr, "usage: gguf_write DIR OUT f16|q8_0|q4_0\n");
        return 2;
    }
    if (ash_model_open(argv[1], &model, &err) < 0) {
        fprintf(stderr, "gguf_write: %s\n", err.text);
        return 1;
    }
    out = fopen(argv[2], "wb");
    rc = out != NULL ? write_file(out, model, type) : -errno;
    if (out != NULL && fclose(out) != 0) rc = -EIO;
    if (rc < 0) fprintf(stderr, "gguf_write: cannot write '%s': %s\n", argv[2], strerror(-rc));
    ash_model_close(model);
    return rc < 0;
}
