/* Models in GGUF files: the metadata becomes a config.json, which is read like any other, and each parameter gets the
 * tensor of its role. llama.cpp's converter reorders the rows of q and k in the llama architecture, so that the two
 * dims that rotate together are neighbours. They stay so: the rotation takes interleaved pairs in and gives halves out,
 * which is what the unchanged rows would give, so a folder and its GGUF file of the same dtype have the same logits, to
 * the bit. */
#include "model/files/gguf_model_priv.h"
#include "model/rope_freq.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "storage/io/remote_file.h"

#define KEY_BYTES 96
#define LLAMA3_POSITIONS 8192 /* what Llama 3 was trained on before its frequencies were scaled */

static const struct ash_gguf_arch archs[] = {
    {"llama", "llama", true}, {"qwen2", "qwen2", false}, {"qwen3", "qwen3", false}};

static const char *const tensor_names[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "token_embd.weight",   [ASH_ROLE_FINAL_NORM] = "output_norm.weight",
    [ASH_ROLE_HEAD] = "output.weight",        [ASH_ROLE_NORM1] = "attn_norm.weight",
    [ASH_ROLE_Q] = "attn_q.weight",           [ASH_ROLE_Q_BIAS] = "attn_q.bias",
    [ASH_ROLE_K] = "attn_k.weight",           [ASH_ROLE_K_BIAS] = "attn_k.bias",
    [ASH_ROLE_V] = "attn_v.weight",           [ASH_ROLE_V_BIAS] = "attn_v.bias",
    [ASH_ROLE_Q_NORM] = "attn_q_norm.weight", [ASH_ROLE_K_NORM] = "attn_k_norm.weight",
    [ASH_ROLE_OUT] = "attn_output.weight",    [ASH_ROLE_OUT_BIAS] = "attn_output.bias",
    [ASH_ROLE_NORM2] = "ffn_norm.weight",     [ASH_ROLE_GATE] = "ffn_gate.weight",
    [ASH_ROLE_GATE_BIAS] = "ffn_gate.bias",   [ASH_ROLE_UP] = "ffn_up.weight",
    [ASH_ROLE_UP_BIAS] = "ffn_up.bias",       [ASH_ROLE_DOWN] = "ffn_down.weight",
    [ASH_ROLE_DOWN_BIAS] = "ffn_down.bias",
};

const struct ash_gguf_arch *ash_gguf_arch_of(const struct ash_model_config *config)
{
    const char *type = config->family->type;

    if (strcmp(type, "mistral") == 0) type = "llama"; /* as llama.cpp's converter does */
    for (size_t i = 0; i < ASH_COUNT(archs); i++)
        if (strcmp(archs[i].family, type) == 0) return &archs[i];
    return NULL;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

struct reader {
    struct ash_gguf *file;
    const struct ash_gguf_arch *arch;
    char key[KEY_BYTES]; /* the last one asked for */
};

/* "llama.block_count" of "block_count"; what begins with "tokenizer." stays. */
static const char *key_of(struct reader *reader, const char *name)
{
    if (strncmp(name, "tokenizer.", strlen("tokenizer.")) == 0) return name;
    snprintf(reader->key, sizeof(reader->key), "%s.%s", reader->arch->name, name);
    return reader->key;
}

static const struct {
    const char *key, *config_key;
    bool is_required;
} whole_numbers[] = {
    {"embedding_length", "hidden_size", true},
    {"block_count", "num_hidden_layers", true},
    {"feed_forward_length", "intermediate_size", true},
    {"attention.head_count", "num_attention_heads", true},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"context_length", "max_position_embeddings", true},
    {"tokenizer.ggml.bos_token_id", "bos_token_id", false},
};

static int add_whole_numbers(struct reader *reader, json_t *json, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_COUNT(whole_numbers); i++) {
        const char *key = key_of(reader, whole_numbers[i].key);
        int64_t value = 0;
        int rc = ash_gguf_int(reader->file, key, 0, INT32_MAX, &value, err);

        if (rc < 0) return rc;
        if (rc == 0 && whole_numbers[i].is_required) return ash_err_set(err, -EINVAL, "the metadata lack '%s'", key);
        if (rc == 1) json_object_set_new(json, whole_numbers[i].config_key, json_integer(value));
    }
    return 0;
}

/* The tokens that end an answer: of a text, of a turn, of a message. */
static int add_ends(struct reader *reader, json_t *json, struct ash_err *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    json_t *ends = json_array();
    int64_t last = -1;

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        int64_t id = -1;
        int rc = ash_gguf_int(reader->file, keys[i], 0, INT32_MAX, &id, err);

        if (rc < 0) {
            json_decref(ends);
            return rc;
        }
        if (rc == 1 && id != last) json_array_append_new(ends, json_integer(id));
        last = id;
    }
    if (json_array_size(ends) > 0) json_object_set(json, "eos_token_id", ends);
    json_decref(ends);
    return 0;
}

/* Float32 in the file, float64 in a config.json: the shortest decimal that names the float is what the makers wrote. */
static double widen(double value)
{
    char text[32];
    double wide;

    snprintf(text, sizeof(text), "%.7g", value);
    wide = strtod(text, NULL);
    return (float)wide == (float)value ? wide : value;
}

static int add_fractions(struct reader *reader, json_t *json, struct ash_err *err)
{
    const char *key = key_of(reader, "attention.layer_norm_rms_epsilon");
    double eps = 1e-5, theta = 10000;
    int rc = ash_gguf_double(reader->file, key, 1e-12, 1, &eps, err);

    if (rc < 0) return rc;
    if (rc == 0) return ash_err_set(err, -EINVAL, "the metadata lack '%s'", key);
    rc = ash_gguf_double(reader->file, key_of(reader, "rope.freq_base"), 1e-3, 1e15, &theta, err);
    if (rc < 0) return rc;
    json_object_set_new(json, "rms_norm_eps", json_real(widen(eps)));
    json_object_set_new(json, "rope_theta", json_real(widen(theta)));
    return 0;
}

/* Scaled positions: none, or linear. A tensor of factors is looked at later. */
static int add_rope_scaling(struct reader *reader, json_t *json, struct ash_err *err)
{
    const char *type = "none";
    double factor = 1;
    int rc = ash_gguf_string(reader->file, key_of(reader, "rope.scaling.type"), &type, err);

    if (rc < 0) return rc;
    rc = ash_gguf_double(reader->file, key_of(reader, "rope.scaling.factor"), 1e-3, 1e6, &factor, err);
    if (rc < 0) return rc;
    if (strcmp(type, "none") == 0) return 0;
    if (strcmp(type, "linear") == 0) {
        json_object_set_new(json, "rope_scaling", json_pack("{s:s, s:f}", "type", "linear", "factor", widen(factor)));
        return 0;
    }
    return ash_err_set(
        err, -ENOTSUP,
        "rotary positions scaled by '%.40s' cannot be read from a GGUF file (none and linear can): use the "
        "model's Hugging Face folder",
        type);
}

/* What this architecture may also have, and Ashlar does not compute from a GGUF file. */
static int check_options(struct reader *reader, struct ash_err *err)
{
    int64_t experts = 0, parts = 1;
    int rc = ash_gguf_int(reader->file, key_of(reader, "expert_count"), 0, INT32_MAX, &experts, err);

    if (rc < 0) return rc;
    if (experts > 0) return ash_err_set(err, -ENOTSUP, "experts cannot be read from a GGUF file");
    rc = ash_gguf_int(reader->file, "split.count", 0, INT32_MAX, &parts, err);
    if (rc < 0) return rc;
    if (parts > 1) return ash_err_set(err, -ENOTSUP, "it is one of %d parts: merge them into one file", (int)parts);
    return 0;
}

static bool has_layer_tensor(const struct reader *reader, enum ash_role role)
{
    char name[KEY_BYTES];

    snprintf(name, sizeof(name), "blk.0.%s", tensor_names[role]);
    return ash_gguf_find(reader->file, name) != NULL;
}

/* The model's type and features, from the tensors in the file. A window makes a llama a mistral. */
static int add_type(struct reader *reader, json_t *json, struct ash_err *err)
{
    const struct ash_tensor_view *embed = ash_gguf_find(reader->file, tensor_names[ASH_ROLE_EMBED]);
    int64_t window = 0;
    int rc = ash_gguf_int(reader->file, key_of(reader, "attention.sliding_window"), 0, INT32_MAX, &window, err);
    const char *type = window > 0 ? "mistral" : reader->arch->family;

    if (rc < 0) return rc;
    if (window > 0 && !reader->arch->interleaved)
        return ash_err_set(err, -ENOTSUP, "attention windows of %s models cannot be read from a GGUF file",
                           reader->arch->name);
    if (embed == NULL || embed->dim_count != 2)
        return ash_err_set(err, -EINVAL, "it lacks the matrix '%s'", tensor_names[ASH_ROLE_EMBED]);
    json_object_set_new(json, "model_type", json_string(type));
    json_object_set_new(json, "architectures", json_pack("[s]", ash_family_find(type)->architecture));
    json_object_set_new(json, "vocab_size", json_integer((json_int_t)embed->dims[0]));
    json_object_set_new(json, "tie_word_embeddings",
                        json_boolean(ash_gguf_find(reader->file, tensor_names[ASH_ROLE_HEAD]) == NULL));
    json_object_set_new(json, "attention_bias", json_boolean(has_layer_tensor(reader, ASH_ROLE_Q_BIAS)));
    json_object_set_new(json, "mlp_bias", json_boolean(has_layer_tensor(reader, ASH_ROLE_GATE_BIAS)));
    if (window > 0) json_object_set_new(json, "sliding_window", json_integer(window));
    return 0;
}

static int find_arch(struct reader *reader, struct ash_err *err)
{
    const char *name = "(none)";
    int rc = ash_gguf_string(reader->file, "general.architecture", &name, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < ASH_COUNT(archs); i++)
        if (strcmp(archs[i].name, name) == 0) reader->arch = &archs[i];
    if (reader->arch != NULL) return 0;
    return ash_err_set(err, -ENOTSUP,
                       "architecture '%.40s' cannot be read from a GGUF file (llama, qwen2 and qwen3 can)", name);
}

static int fill_config(struct reader *reader, json_t *json, struct ash_err *err)
{
    int rc = find_arch(reader, err);

    if (rc == 0) rc = add_type(reader, json, err);
    if (rc == 0) rc = check_options(reader, err);
    if (rc == 0) rc = add_whole_numbers(reader, json, err);
    if (rc == 0) rc = add_ends(reader, json, err);
    if (rc == 0) rc = add_fractions(reader, json, err);
    return rc < 0 ? rc : add_rope_scaling(reader, json, err);
}

/* Heads are turned whole, and keys are as long as values. */
static int check_heads(struct reader *reader, const struct ash_model_config *config, struct ash_err *err)
{
    static const char *const names[] = {"rope.dimension_count", "attention.value_length"};

    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        const char *key = key_of(reader, names[i]);
        int64_t dims = (int64_t)config->head_dim;
        int rc = ash_gguf_int(reader->file, key, 0, INT32_MAX, &dims, err);

        if (rc < 0) return rc;
        if (dims != (int64_t)config->head_dim)
            return ash_err_set(err, -ENOTSUP, "'%s' is %d but a head has %zu dims: that is not supported", key,
                               (int)dims, config->head_dim);
    }
    return 0;
}

/* Are these the factors of Llama 3's rule? Then the rule itself is used, as it is for a folder. */
static bool is_llama3(const struct ash_rope_config *rule, const float *factors, size_t dims)
{
    for (size_t i = 0; i < dims / 2; i++)
        if (fabsf(ash_rope_llama3_factor(rule, dims, i) / factors[i] - 1) > 1e-6f) return false;
    return true;
}

static int read_factors(struct reader *reader, struct ash_model_config *config, struct ash_err *err)
{
    const struct ash_tensor_view *view = ash_gguf_find(reader->file, ASH_GGUF_ROPE_FREQS);
    size_t count = config->head_dim / 2;
    struct ash_rope_config rule = config->rope;
    int64_t positions = LLAMA3_POSITIONS;
    const char *key = key_of(reader, "rope.scaling.original_context_length");
    int rc = view == NULL ? 0 : ash_gguf_int(reader->file, key, 1, INT32_MAX, &positions, err);

    if (view == NULL || rc < 0) return rc;
    if (view->dtype != ASH_F32 || view->dim_count != 1 || view->dims[0] != count)
        return ash_err_set(err, -EINVAL, "tensor '" ASH_GGUF_ROPE_FREQS "' is not %zu float32 values", count);
    rc = ash_remote_file_bring(
        &(struct ash_direct_range){ash_gguf_map(reader->file, view->data), view->data, view->size_bytes}, 1, err);
    if (rc < 0) return rc;
    config->rope.factors = view->data;
    for (size_t i = 0; i < count; i++)
        if (!(config->rope.factors[i] > 0 && isfinite(config->rope.factors[i])))
            return ash_err_set(err, -EINVAL, "tensor '" ASH_GGUF_ROPE_FREQS "' has a value that is not above 0");
    if (config->rope.kind != ASH_ROPE_DEFAULT)
        return ash_err_set(err, -ENOTSUP, "rotary positions scaled twice are not supported");
    rule.kind = ASH_ROPE_LLAMA3;
    rule.factor = widen((double)config->rope.factors[count - 1]);
    rule.low_freq_factor = 1;
    rule.high_freq_factor = 4;
    rule.original_positions = (double)positions;
    if (is_llama3(&rule, config->rope.factors, config->head_dim))
        config->rope = rule;
    else
        config->rope.kind = ASH_ROPE_FACTORS;
    return 0;
}

int ash_gguf_model_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    struct reader reader = {.file = file};
    json_t *json = json_object();
    int rc = json == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : fill_config(&reader, json, err);

    if (rc == 0) rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return rc;
    rc = check_heads(&reader, &config, err);
    if (rc == 0) rc = read_factors(&reader, &config, err);
    if (rc < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    config.rope.interleaved = reader.arch->interleaved;
    *config_out = config;
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Is there one scale per group in a row of Q8_0? */
static bool has_wide_groups(const uint8_t *row, size_t cols)
{
    size_t bytes = ash_dtype_bytes(ASH_Q8_0), group = ASH_QUANT_GROUP / ASH_QUANT_BLOCK;

    for (size_t b = 0; b < cols / ASH_QUANT_BLOCK; b++)
        if (memcmp(row + b * bytes, row + b / group * group * bytes, sizeof(uint16_t)) != 0) return false;
    return true;
}

/* Metadata promise wide groups. The first row is looked at: a file that another program quantised again, keeping the
 * metadata, is told by it, and to look at all would read the file. */
static int widen_tensor(struct ash_param *param, const char *name, struct ash_err *err)
{
    if (param->dtype != ASH_Q8_0) return 0;
    if (!has_wide_groups(param->data, param->dims[param->dim_count - 1]))
        return ash_err_set(err, -EINVAL,
                           "tensor '%s' has several scales per %d elements, but '" ASH_GGUF_SCALE_GROUP
                           "' promises one: convert the model again",
                           name, ASH_QUANT_GROUP);
    param->dtype = ASH_Q8_W;
    return 0;
}

/* All first rows at once, or each waits for the disk or for the place that has them. */
static int want_first_rows(const struct ash_model *model, struct ash_err *err)
{
    struct ash_direct_range *rows = calloc(model->param_count + 1, sizeof(*rows));
    int rc;

    if (rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of what to read");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        rows[i] = (struct ash_direct_range){ash_gguf_map(model->gguf, param->data), param->data,
                                            ash_dtype_size(param->dtype, param->dims[param->dim_count - 1])};
        ash_map_want(rows[i].data, rows[i].size_bytes);
    }
    rc = ash_remote_file_bring(rows, model->param_count, err);
    free(rows);
    return rc;
}

static int widen_tensors(struct ash_model *model, struct ash_err *err)
{
    int rc = want_first_rows(model, err);

    for (size_t i = 0; i < model->param_count && rc == 0; i++) {
        char name[96];

        rc = ash_gguf_model_name(model, i, name, sizeof(name), err);
        if (rc == 0) rc = widen_tensor(&model->params[i], name, err);
    }
    return rc;
}

static int bind_tensor(struct ash_param *param, const struct ash_gguf *file, const char *name, struct ash_err *err)
{
    const struct ash_tensor_view *view = ash_gguf_find(file, name);

    if (view == NULL) return ash_err_set(err, -ENOENT, "it lacks tensor '%s'", name);
    if (view->dim_count != param->dim_count ||
        memcmp(view->dims, param->full, (size_t)param->dim_count * sizeof(size_t)) != 0)
        return ash_err_set(err, -EINVAL, "tensor '%s' does not have the shape that the metadata give it", name);
    if (!param->is_matrix && ash_dtype_block(view->dtype) > 1)
        return ash_err_set(err, -ENOTSUP, "tensor '%s' is quantised (%s); only matrices may be", name,
                           ash_dtype_name(view->dtype));
    param->data = view->data;
    param->dtype = view->dtype;
    return 0;
}

int ash_gguf_model_name(const struct ash_model *model, size_t index, char *buf, size_t buf_bytes, struct ash_err *err)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_layer *layer = param->layer >= 0 ? &model->layers[param->layer] : &model->top;

    ash_assert(index < model->param_count);
    for (int role = 0; role < ASH_ROLE_COUNT; role++) {
        if (layer->param[role] != (int32_t)index || tensor_names[role] == NULL) continue;
        if (param->layer < 0)
            snprintf(buf, buf_bytes, "%s",
                     tensor_names[role == ASH_ROLE_HEAD && model->config.tied ? ASH_ROLE_EMBED : role]);
        else
            snprintf(buf, buf_bytes, "blk.%u.%s", model->layer_ids[param->layer], tensor_names[role]);
        return 0;
    }
    return ash_err_set(err, -ENOTSUP, "'%s' has no place in a GGUF file", param->name);
}

/* The first tensor that is no parameter: leaving a bias out in silence would change what the model says. */
static int refuse_extra(const struct ash_model *model, const struct ash_gguf *file, struct ash_err *err)
{
    for (size_t i = 0; i < ash_gguf_size(file); i++) {
        const struct ash_tensor_view *view = ash_gguf_at(file, i);
        bool used = strcmp(view->name, ASH_GGUF_ROPE_FREQS) == 0;

        for (size_t p = 0; p < model->param_count && !used; p++)
            used = model->params[p].data == view->data;
        if (!used)
            return ash_err_set(err, -ENOTSUP, "tensor '%.64s' has no place in a %s model", view->name,
                               model->config.family->type);
    }
    return 0;
}

int ash_gguf_model_map(struct ash_model *model, struct ash_gguf *file, struct ash_err *err)
{
    int64_t group = 0;
    int wide = ash_gguf_int(file, ASH_GGUF_SCALE_GROUP, ASH_QUANT_GROUP, ASH_QUANT_GROUP, &group, err);

    model->gguf = file;
    if (wide < 0) return wide;
    for (size_t i = 0; i < model->param_count; i++) {
        char name[96];
        int rc = ash_gguf_model_name(model, i, name, sizeof(name), err);

        if (rc < 0) return rc;
        rc = bind_tensor(&model->params[i], file, name, err);
        if (rc < 0) return rc;
    }
    if (wide > 0 && (wide = widen_tensors(model, err)) < 0) return wide;
    if (ash_gguf_size(file) == model->param_count || model->config.layers < model->whole.layers) return 0;
    return refuse_extra(model, file, err);
}
