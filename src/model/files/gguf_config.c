/* The metadata of a GGUF file as a config.json, which is read like any other. llama.cpp's converter reorders the rows
 * of q and k in some architectures, so that the two dims that rotate together are neighbours. They stay so: the
 * rotation takes interleaved pairs in and gives halves out, which is what the unchanged rows would give, so a folder
 * and its GGUF file of the same dtype have the same logits, to the bit. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/gguf_reader.h"

#define GEMMA2_LARGE_LAYERS 46 /* of the sizes whose heads' width does not give the scale of attention */
#define GEMMA3_LARGE_LAYERS 62
#define LLAMA4_BARE_EXPERTS 128 /* of the size without norms of queries and keys */
#define GATING_SIGMOID 2

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *key, *config_key;
    bool is_required, is_size; /* of a size 0 says that there is none */
} whole_numbers[] = {
    {"embedding_length", "hidden_size", true, false},
    {"feed_forward_length", "intermediate_size", false, true},
    {"attention.head_count", "num_attention_heads", true, true},
    {"attention.head_count_kv", "num_key_value_heads", false, true},
    {"attention.key_length", "head_dim", false, false},
    {"context_length", "max_position_embeddings", true, false},
    {"tokenizer.ggml.bos_token_id", "bos_token_id", false, false},
    {"expert_count", "num_experts", false, false},
    {"expert_used_count", "num_experts_per_tok", false, false},
    {"expert_feed_forward_length", "moe_intermediate_size", false, false},
    {"expert_shared_count", "n_shared_experts", false, false},
    {"expert_group_count", "n_group", false, false},
    {"expert_group_used_count", "topk_group", false, false},
    {"leading_dense_block_count", "first_k_dense_replace", false, false},
    {"interleave_moe_layer_step", "moe_layer_interval", false, false},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", false, false},
    {"attention.q_lora_rank", "q_lora_rank", false, false},
    {"attention.kv_lora_rank", "kv_lora_rank", false, false},
};

static int add_whole_numbers(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    json_t *ffn;

    for (size_t i = 0; i < ASH_COUNT(whole_numbers); i++) {
        int64_t value = 0;
        int rc = ash_gguf_get_int(reader, whole_numbers[i].key, &value, err);

        if (rc < 0) return rc;
        if (rc == 0 && whole_numbers[i].is_required)
            return ash_err_set(err, -EINVAL, "the metadata lack '%s'", ash_gguf_key_of(reader, whole_numbers[i].key));
        if (rc == 1 && (value > 0 || !whole_numbers[i].is_size))
            json_object_set_new(json, whole_numbers[i].config_key, json_integer(value));
    }
    if (reader->arch->traits & ASH_GGUF_TWO_WIDTHS)
        json_object_set(json, "intermediate_size_mlp", json_object_get(json, "intermediate_size"));
    ffn = json_object_get(json, "moe_intermediate_size");
    if (ffn != NULL && reader->family->form.expert.ffn_key == NULL) json_object_set(json, "intermediate_size", ffn);
    json_object_set_new(json, "num_hidden_layers", json_integer((json_int_t)reader->layers));
    return 0;
}

/* The tokens that end an answer: of a text, of a turn, of a message. */
static int add_ends(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
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

static const struct {
    const char *key, *config_key;
    double min, max;
} fractions[] = {
    {"rope.freq_base", "rope_theta", 1e-3, 1e15},
    {"rope.freq_base_swa", "rope_local_base_freq", 1e-3, 1e15},
    {"expert_weights_scale", "routed_scaling_factor", 0, 1e6},
    {"embedding_scale", "embedding_multiplier", 0, 1e9},
    {"residual_scale", "residual_multiplier", 0, 1e9},
    {"attention.scale", "attention_multiplier", 0, 1e9},
    {"logit_scale", "logit_scale", 0, 1e9},
    {"attn_logit_softcapping", "attn_logit_softcapping", 0, 1e9},
    {"final_logit_softcapping", "final_logit_softcapping", 0, 1e9},
};

/* 0 says that there is none, but of expert_weights_scale, whose 0 is llama.cpp's for 1. */
static int add_fractions(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_COUNT(fractions); i++) {
        const char *key = fractions[i].config_key;
        double value = 0;
        int rc = ash_gguf_double(reader->file, ash_gguf_key_of(reader, fractions[i].key), fractions[i].min,
                                 fractions[i].max, &value, err);

        if (rc < 0) return rc;
        if (rc == 0 || value == 0) continue;
        if (strcmp(key, "logit_scale") == 0 && (reader->arch->traits & ASH_GGUF_LOGIT_DIVISOR)) key = "logits_scaling";
        json_object_set_new(json, key, json_real(ash_gguf_widen(value)));
    }
    return 0;
}

static int add_eps(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    double eps = 1e-5;
    int rc =
        ash_gguf_double(reader->file, ash_gguf_key_of(reader, "attention.layer_norm_epsilon"), 1e-12, 1, &eps, err);

    if (rc == 0)
        rc = ash_gguf_double(reader->file, ash_gguf_key_of(reader, "attention.layer_norm_rms_epsilon"), 1e-12, 1, &eps,
                             err);
    if (rc < 0) return rc;
    if (rc == 0) return ash_err_set(err, -EINVAL, "the metadata lack '%s'", reader->key);
    json_object_set_new(json, "rms_norm_eps", json_real(ash_gguf_widen(eps)));
    return 0;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Is layer under the window, by an array of the file or by the period of layers that are not? */
static bool is_under_window(const struct ash_gguf_value *array, int64_t every, int64_t layer)
{
    if (array != NULL) return array->data[layer] != 0;
    return every == 0 || (layer + 1) % every != 0;
}

static int add_layer_types(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    const char *key = ash_gguf_key_of(reader, "attention.sliding_window_pattern");
    const struct ash_gguf_value *array = ash_gguf_get_value(reader->file, key);
    int64_t every = reader->arch->full_every;
    const char *kind = reader->family->form.chunked ? "chunked_attention" : "sliding_attention";
    json_t *types = json_array();
    int rc = 0;

    if (array != NULL && array->type != ASH_GGUF_ARRAY) {
        rc = ash_gguf_int(reader->file, key, 0, ASH_MODEL_LAYERS_MAX, &every, err);
        array = NULL;
    } else if (array != NULL && (array->element != ASH_GGUF_BOOL || (int64_t)array->count < reader->layers)) {
        rc = ash_err_set(err, -EINVAL, "'%s' does not say of each layer whether it has a window", key);
    }
    for (int64_t i = 0; rc >= 0 && i < reader->layers; i++)
        json_array_append_new(types, json_string(is_under_window(array, every, i) ? kind : "full_attention"));
    json_object_set_new(json, "layer_types", types);
    return rc < 0 ? rc : 0;
}

static int add_window(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    json_object_set_new(json, "sliding_window", reader->window > 0 ? json_integer(reader->window) : json_null());
    json_object_set(json, "attention_chunk_size", json_object_get(json, "sliding_window"));
    return reader->arch->full_every > 0 ? add_layer_types(reader, json, err) : 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Has any layer this tensor? */
static bool has_layer_tensor(const struct ash_gguf_reader *reader, enum ash_role role)
{
    char name[ASH_GGUF_KEY_BYTES];

    for (int64_t i = 0; i < reader->layers; i++) {
        snprintf(name, sizeof(name), "blk.%d.%s", (int)i, ash_gguf_role_name(reader->arch, role));
        if (ash_gguf_find(reader->file, name) != NULL) return true;
    }
    return false;
}

static bool has_any(const struct ash_gguf_reader *reader, enum ash_role a, enum ash_role b)
{
    return has_layer_tensor(reader, a) || has_layer_tensor(reader, b);
}

/* The model's type and features, from the tensors in the file. */
static int add_type(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    const struct ash_family *family = reader->family;
    const char *head = ash_gguf_role_name(reader->arch, ASH_ROLE_HEAD);
    const struct ash_tensor_view *embed = ash_gguf_find(reader->file, ash_gguf_role_name(reader->arch, ASH_ROLE_EMBED));
    bool has_bias = has_any(reader, ASH_ROLE_Q_BIAS, ASH_ROLE_QKV_BIAS);

    if (embed == NULL || embed->dim_count != 2)
        return ash_err_set(err, -EINVAL, "it lacks the matrix '%s'", ash_gguf_role_name(reader->arch, ASH_ROLE_EMBED));
    json_object_set_new(json, "model_type", json_string(family->type));
    json_object_set_new(json, "architectures", json_pack("[s]", family->architecture));
    json_object_set_new(json, "vocab_size", json_integer((json_int_t)embed->dims[0]));
    json_object_set_new(json, "tie_word_embeddings", json_boolean(ash_gguf_find(reader->file, head) == NULL));
    json_object_set_new(json, "attention_bias", json_boolean(has_bias));
    json_object_set_new(json, "attention_out_bias", json_boolean(has_layer_tensor(reader, ASH_ROLE_OUT_BIAS)));
    json_object_set_new(json, "mlp_bias", json_boolean(has_any(reader, ASH_ROLE_GATE_BIAS, ASH_ROLE_UP_BIAS)));
    json_object_set_new(json, "use_qk_norm",
                        json_boolean(reader->family->form.qk_norm == ASH_QK_NORM_BARE
                                         ? reader->experts != LLAMA4_BARE_EXPERTS
                                         : has_layer_tensor(reader, ASH_ROLE_Q_NORM)));
    json_object_set_new(json, "use_conv_bias", json_boolean(has_layer_tensor(reader, ASH_ROLE_STATE_CONV_BIAS)));
    json_object_set_new(json, "lm_head_bias", json_boolean(ash_gguf_find(reader->file, "output.bias") != NULL));
    return 0;
}

/* By name, and by what the file has. */
static int find_arch(struct ash_gguf_reader *reader, struct ash_err *err)
{
    bool has_window;
    unsigned has = 0;
    int rc;

    reader->name = "(none)";
    rc = ash_gguf_string(reader->file, "general.architecture", &reader->name, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "expert_count", &reader->experts, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "expert_gating_func", &reader->scores, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.sliding_window", &reader->window, err);
    if (rc < 0) return rc;
    has_window = rc == 1;
    if (reader->window > 0) has |= ASH_GGUF_WINDOWED;
    if (reader->experts > 0) has |= ASH_GGUF_SPARSE;
    if (reader->scores == GATING_SIGMOID) has |= ASH_GGUF_SIGMOID;
    reader->arch = ash_gguf_arch_find(reader->name, has);
    if (reader->arch == NULL)
        return ash_err_set(err, -ENOTSUP,
                           "architecture '%.40s' cannot be read from a GGUF file; files of these families can: %s",
                           reader->name, ash_gguf_families());
    reader->family = ash_family_find(reader->arch->family);
    if (!has_window && reader->family->form.chunked) reader->window = reader->family->form.window;
    return 0;
}

static int find_sizes(struct ash_gguf_reader *reader, struct ash_err *err)
{
    int64_t parts = 1, skipped = 0;
    int rc = ash_gguf_int(reader->file, "split.count", 0, INT32_MAX, &parts, err);

    if (rc < 0) return rc;
    if (parts > 1) return ash_err_set(err, -ENOTSUP, "it is one of %d parts: merge them into one file", (int)parts);
    rc = ash_gguf_get_int(reader, "block_count", &reader->layers, err);
    if (rc == 0) return ash_err_set(err, -EINVAL, "the metadata lack '%s'", reader->key);
    if (rc > 0) rc = ash_gguf_get_int(reader, "nextn_predict_layers", &skipped, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "embedding_length", &reader->hidden, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.head_count", &reader->heads, err);
    if (rc < 0) return rc;
    reader->layers -= skipped; /* layers that guess a second token come last */
    if (reader->layers >= 1 && reader->layers <= ASH_MODEL_LAYERS_MAX) return 0;
    return ash_err_set(err, -EINVAL, "%d layers are not supported (1 to %d are)", (int)reader->layers,
                       ASH_MODEL_LAYERS_MAX);
}

/* What experts' weights sum to, and how they are scored. */
static int check_experts(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    const struct ash_expert_form *form = &reader->family->form.expert;
    int64_t norm = (reader->arch->traits & ASH_GGUF_NORMALIZES) != 0;
    int rc = ash_gguf_int(reader->file, ash_gguf_key_of(reader, "expert_weights_norm"), 0, 1, &norm, err);

    if (rc < 0) return rc;
    if (reader->experts > 0 && form->experts == 0)
        return ash_err_set(err, -ENOTSUP, "experts of %s models cannot be read from a GGUF file", reader->name);
    if (reader->experts > 0 && reader->scores > 0 && form->sigmoid != (reader->scores == GATING_SIGMOID))
        return ash_err_set(err, -ENOTSUP, "experts scored by llama.cpp's rule %d are not those of %s models",
                           (int)reader->scores, reader->family->type);
    json_object_set_new(json, "norm_topk_prob", json_boolean(norm != 0));
    return 0;
}

/* gemma's files do not say what scores are divided by: the head's width, but in the largest models. */
static void add_attention_scale(const struct ash_gguf_reader *reader, json_t *json)
{
    int64_t large = reader->arch->full_every == 2 ? GEMMA2_LARGE_LAYERS : GEMMA3_LARGE_LAYERS;

    if (!(reader->arch->traits & ASH_GGUF_SCALE_BY_SIZE) || reader->heads == 0) return;
    if (reader->layers == large)
        json_object_set_new(json, "query_pre_attn_scalar", json_integer(reader->hidden / reader->heads));
    else
        json_object_set(json, "query_pre_attn_scalar", json_object_get(json, "head_dim"));
}

static int fill_config(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    int rc = find_arch(reader, err);

    if (rc == 0) rc = find_sizes(reader, err);
    if (rc == 0) rc = add_type(reader, json, err);
    if (rc == 0) rc = check_experts(reader, json, err);
    if (rc == 0) rc = add_whole_numbers(reader, json, err);
    if (rc == 0) rc = add_ends(reader, json, err);
    if (rc == 0) rc = add_fractions(reader, json, err);
    if (rc == 0) rc = add_eps(reader, json, err);
    if (rc == 0) rc = add_window(reader, json, err);
    if (rc == 0 && reader->family->names[ASH_ROLE_OUT] == NULL) return ash_gguf_add_states(reader, json, err);
    if (rc == 0 && ash_gguf_is_latent(reader)) rc = ash_gguf_add_latent(reader, json, err);
    if (rc == 0) rc = ash_gguf_add_rotary_share(reader, json, err);
    if (rc < 0) return rc;
    add_attention_scale(reader, json);
    return ash_gguf_add_rope_scaling(reader, json, err);
}

/* Is the window there, which some families do not have? */
static int check_window(const struct ash_gguf_reader *reader, const struct ash_model_config *config,
                        struct ash_err *err)
{
    for (size_t i = 0; i < config->layers; i++)
        if (config->window[i] > 0) return 0;
    if (reader->window == 0 || reader->arch->full_every > 0) return 0;
    return ash_err_set(err, -ENOTSUP, "attention windows of %s models cannot be read from a GGUF file", reader->name);
}

/* Keys are as long as values. */
static int check_heads(struct ash_gguf_reader *reader, const struct ash_model_config *config, struct ash_err *err)
{
    int64_t dims = (int64_t)config->head_dim;
    int rc = config->attn == ASH_ATTN_LATENT ? 0 : ash_gguf_get_int(reader, "attention.value_length", &dims, err);

    if (rc < 0) return rc;
    if (dims == (int64_t)config->head_dim) return 0;
    return ash_err_set(err, -ENOTSUP, "'%s' is %d but a head has %zu dims: that is not supported", reader->key,
                       (int)dims, config->head_dim);
}

/* What the tensors of such a file are not: fused, stored the other way round, or less 1. */
static void set_apart(const struct ash_gguf_arch *arch, struct ash_model_config *config)
{
    config->family = ash_gguf_family_apart(config->family);
    config->form.unit_norm = config->form.transposed = config->form.qkv_by_head = false;
    config->form.expert.is_transposed = config->form.expert.alternates = false;
    if (!(arch->traits & ASH_GGUF_PERMUTED)) return;
    config->rope.interleaved = true;
    for (size_t i = 0; i < config->layers; i++) { /* by no angle: that puts rows back into their order */
        if (config->rope_at[i] != ASH_ROPE_AT_NONE) continue;
        config->rope_at[i] = ASH_ROPE_AT_LOCAL;
        config->local_rope.kind = ASH_ROPE_LINEAR;
        config->local_rope.factor = INFINITY;
    }
}

int ash_gguf_folder_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_model_config config = {0};
    struct ash_gguf_reader reader = {.file = file};
    json_t *json = json_object();
    int rc = json == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : fill_config(&reader, json, err);

    if (rc == 0) rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return rc;
    rc = check_heads(&reader, &config, err);
    if (rc == 0) rc = check_window(&reader, &config, err);
    if (rc == 0) rc = ash_gguf_read_factors(&reader, &config, err);
    if (rc < 0) {
        ash_model_config_fini(&config);
        return rc;
    }
    *config_out = config;
    return 0;
}

int ash_gguf_model_config(struct ash_gguf *file, struct ash_model_config *config_out, struct ash_err *err)
{
    int rc = ash_gguf_folder_config(file, config_out, err);

    if (rc == 0) set_apart(ash_gguf_arch_of(config_out->family), config_out);
    return rc;
}
