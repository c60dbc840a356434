/* Models in GGUF files (llama architecture): the metadata becomes a config.json, which is read like any other, and each
 * parameter gets the tensor of its role.
 * llama.cpp's converter reorders the rows of q and k in this architecture, so that the two dims that rotate together
 * are neighbours. They stay so: the rotation takes interleaved pairs in and gives halves out, which is what the
 * unchanged rows would give, so a folder and its GGUF file of the same dtype have the same logits, to the bit. */
#include "model/gguf_model_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ARCHITECTURE "llama"

static const char *const tensor_names[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "token_embd.weight", [ASH_ROLE_FINAL_NORM] = "output_norm.weight",
    [ASH_ROLE_HEAD] = "output.weight",      [ASH_ROLE_NORM1] = "attn_norm.weight",
    [ASH_ROLE_Q] = "attn_q.weight",         [ASH_ROLE_K] = "attn_k.weight",
    [ASH_ROLE_V] = "attn_v.weight",         [ASH_ROLE_OUT] = "attn_output.weight",
    [ASH_ROLE_NORM2] = "ffn_norm.weight",   [ASH_ROLE_GATE] = "ffn_gate.weight",
    [ASH_ROLE_UP] = "ffn_up.weight",        [ASH_ROLE_DOWN] = "ffn_down.weight",
};

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *key, *config_key;
    bool required;
} whole_numbers[] = {
    {ARCHITECTURE ".embedding_length", "hidden_size", true},
    {ARCHITECTURE ".block_count", "num_hidden_layers", true},
    {ARCHITECTURE ".feed_forward_length", "intermediate_size", true},
    {ARCHITECTURE ".attention.head_count", "num_attention_heads", true},
    {ARCHITECTURE ".attention.head_count_kv", "num_key_value_heads", false},
    {ARCHITECTURE ".attention.key_length", "head_dim", false},
    {ARCHITECTURE ".context_length", "max_position_embeddings", true},
    {"tokenizer.ggml.bos_token_id", "bos_token_id", false},
    {"tokenizer.ggml.eos_token_id", "eos_token_id", false},
};

static int add_whole_numbers(const struct ash_gguf *file, json_t *json, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_COUNT(whole_numbers); i++) {
        int64_t value = 0;
        int rc = ash_gguf_int(file, whole_numbers[i].key, 0, INT32_MAX, &value, err);

        if (rc < 0) return rc;
        if (rc == 0 && whole_numbers[i].required)
            return ash_err_set(err, -EINVAL, "the metadata lack '%s'", whole_numbers[i].key);
        if (rc == 1) json_object_set_new(json, whole_numbers[i].config_key, json_integer(value));
    }
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

static int add_fractions(const struct ash_gguf *file, json_t *json, struct ash_err *err)
{
    double eps = 1e-5, theta = 10000;
    int rc = ash_gguf_double(file, ARCHITECTURE ".attention.layer_norm_rms_epsilon", 1e-12, 1, &eps, err);

    if (rc < 0) return rc;
    if (rc == 0)
        return ash_err_set(err, -EINVAL, "the metadata lack '" ARCHITECTURE ".attention.layer_norm_rms_epsilon'");
    if ((rc = ash_gguf_double(file, ARCHITECTURE ".rope.freq_base", 1e-3, 1e15, &theta, err)) < 0) return rc;
    json_object_set_new(json, "rms_norm_eps", json_real(widen(eps)));
    json_object_set_new(json, "rope_theta", json_real(widen(theta)));
    return 0;
}

/* Scaled positions: none, or linear. */
static int add_rope_scaling(struct ash_gguf *file, json_t *json, struct ash_err *err)
{
    const char *type = "none";
    double factor = 1;
    int rc = ash_gguf_string(file, ARCHITECTURE ".rope.scaling.type", &type, err);

    if (rc < 0) return rc;
    if ((rc = ash_gguf_double(file, ARCHITECTURE ".rope.scaling.factor", 1e-3, 1e6, &factor, err)) < 0) return rc;
    if (strcmp(type, "none") == 0 && ash_gguf_find(file, "rope_freqs.weight") == NULL) return 0;
    if (strcmp(type, "linear") == 0) {
        json_object_set_new(json, "rope_scaling", json_pack("{s:s, s:f}", "type", "linear", "factor", widen(factor)));
        return 0;
    }
    return ash_err_set(
        err, -ENOTSUP,
        "rotary positions scaled by '%.40s' cannot be read from a GGUF file (none and linear can): use the "
        "model's Hugging Face folder",
        strcmp(type, "none") == 0 ? "rope_freqs.weight" : type);
}

/* What this architecture may also have, and Ashlar does not compute from a GGUF file. */
static int check_options(const struct ash_gguf *file, struct ash_err *err)
{
    int64_t experts = 0, parts = 1;
    int rc = ash_gguf_int(file, ARCHITECTURE ".expert_count", 0, INT32_MAX, &experts, err);

    if (rc < 0) return rc;
    if (experts > 0) return ash_err_set(err, -ENOTSUP, "experts cannot be read from a GGUF file");
    if ((rc = ash_gguf_int(file, "split.count", 0, INT32_MAX, &parts, err)) < 0) return rc;
    if (parts > 1) return ash_err_set(err, -ENOTSUP, "it is one of %d parts: merge them into one file", (int)parts);
    return 0;
}

static int fill_config(struct ash_gguf *file, json_t *json, struct ash_err *err)
{
    const struct ash_tensor_view *embed = ash_gguf_find(file, tensor_names[ASH_ROLE_EMBED]);
    const char *architecture = NULL;
    int rc = ash_gguf_string(file, "general.architecture", &architecture, err);

    if (rc < 0) return rc;
    if (architecture == NULL || strcmp(architecture, ARCHITECTURE) != 0)
        return ash_err_set(err, -ENOTSUP, "architecture '%.40s' cannot be read from a GGUF file (" ARCHITECTURE " can)",
                           architecture == NULL ? "(none)" : architecture);
    if (embed == NULL || embed->dim_count != 2)
        return ash_err_set(err, -EINVAL, "it lacks the matrix '%s'", tensor_names[ASH_ROLE_EMBED]);
    json_object_set_new(json, "model_type", json_string("llama"));
    json_object_set_new(json, "architectures", json_pack("[s]", "LlamaForCausalLM"));
    json_object_set_new(json, "vocab_size", json_integer((json_int_t)embed->dims[0]));
    json_object_set_new(json, "tie_word_embeddings",
                        json_boolean(ash_gguf_find(file, tensor_names[ASH_ROLE_HEAD]) == NULL));
    if ((rc = check_options(file, err)) < 0) return rc;
    if ((rc = add_whole_numbers(file, json, err)) < 0) return rc;
    if ((rc = add_fractions(file, json, err)) < 0) return rc;
    return add_rope_scaling(file, json, err);
}

/* Heads are turned whole, and keys are as long as values. */
static int check_heads(const struct ash_gguf *file, const struct ash_model_config *config, struct ash_err *err)
{
    static const char *const keys[] = {ARCHITECTURE ".rope.dimension_count", ARCHITECTURE ".attention.value_length"};

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        int64_t dims = (int64_t)config->head_dim;
        int rc = ash_gguf_int(file, keys[i], 0, INT32_MAX, &dims, err);

        if (rc < 0) return rc;
        if (dims != (int64_t)config->head_dim)
            return ash_err_set(err, -ENOTSUP, "'%s' is %d but a head has %zu dims: that is not supported", keys[i],
                               (int)dims, config->head_dim);
    }
    return 0;
}

int ash_gguf_model_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    json_t *json = json_object();
    int rc = json == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : fill_config(file, json, err);

    if (rc == 0) rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return rc;
    if ((rc = check_heads(file, &config, err)) < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    config.rope.interleaved = true;
    *config_out = config;
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int bind_tensor(struct ash_param *param, const struct ash_gguf *file, const char *name, struct ash_err *err)
{
    const struct ash_tensor_view *view = ash_gguf_find(file, name);

    if (view == NULL) return ash_err_set(err, -ENOENT, "it lacks tensor '%s'", name);
    if (view->dim_count != param->dim_count ||
        memcmp(view->dims, param->dims, (size_t)param->dim_count * sizeof(size_t)) != 0)
        return ash_err_set(err, -EINVAL, "tensor '%s' does not have the shape that the metadata give it", name);
    if (!param->matrix && ash_dtype_block(view->dtype) > 1)
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

    for (int role = 0; role < ASH_ROLE_COUNT; role++) {
        if (layer->param[role] != (int32_t)index || tensor_names[role] == NULL) continue;
        if (param->layer < 0)
            snprintf(buf, buf_bytes, "%s", tensor_names[role]);
        else
            snprintf(buf, buf_bytes, "blk.%d.%s", param->layer, tensor_names[role]);
        return 0;
    }
    return ash_err_set(err, -ENOTSUP, "'%s' has no place in a GGUF file", param->name);
}

/* The first tensor that is no parameter: leaving a bias out in silence would change what the model says. */
static int refuse_extra(const struct ash_model *model, const struct ash_gguf *file, struct ash_err *err)
{
    for (size_t i = 0; i < ash_gguf_size(file); i++) {
        const struct ash_tensor_view *view = ash_gguf_at(file, i);
        bool used = false;

        for (size_t p = 0; p < model->param_count && !used; p++)
            used = model->params[p].data == view->data;
        if (!used) return ash_err_set(err, -ENOTSUP, "tensor '%.64s' has no place in a llama model", view->name);
    }
    return 0;
}

int ash_gguf_model_map(struct ash_model *model, struct ash_gguf *file, struct ash_err *err)
{
    model->gguf = file;
    for (size_t i = 0; i < model->param_count; i++) {
        char name[96];
        int rc = ash_gguf_model_name(model, i, name, sizeof(name), err);

        if (rc == 0) rc = bind_tensor(&model->params[i], file, name, err);
        if (rc < 0) return rc;
    }
    return ash_gguf_size(file) == model->param_count ? 0 : refuse_extra(model, file, err);
}
