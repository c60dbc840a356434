/* job: a config.json from a job's model section, in the form that the transformers library writes and reads. */
#include "train/job/job.h"

#include <errno.h>
#include <string.h>

static const char *const architectures[] = {"LlamaForCausalLM",   "MistralForCausalLM", "Qwen2ForCausalLM",
                                            "Qwen3ForCausalLM",   "GPT2LMHeadModel",    "MixtralForCausalLM",
                                            "Qwen3MoeForCausalLM"};

static bool is_type(const struct ash_job_model *model, const char *type)
{
    return strcmp(ash_job_model_types[model->type], type) == 0;
}

static json_t *token_or_null(int32_t token)
{
    return token >= 0 ? json_integer(token) : json_null();
}

static json_t *make_gpt2(const struct ash_job_model *model)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f}", "n_embd", (json_int_t)model->hidden,
                     "n_layer", (json_int_t)model->layers, "n_head", (json_int_t)model->heads, "n_inner",
                     (json_int_t)model->ffn, "n_positions", (json_int_t)model->max_positions, "activation_function",
                     "gelu_new", "layer_norm_epsilon", model->norm_eps, "attn_pdrop", 0.0, "embd_pdrop", 0.0,
                     "resid_pdrop", 0.0);
}

static json_t *make_llama_like(const struct ash_job_model *model)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:b, s:n}", "hidden_size",
                     (json_int_t)model->hidden, "num_hidden_layers", (json_int_t)model->layers, "num_attention_heads",
                     (json_int_t)model->heads, "num_key_value_heads", (json_int_t)model->kv_heads, "head_dim",
                     (json_int_t)model->head_dim, "intermediate_size", (json_int_t)model->ffn,
                     "max_position_embeddings", (json_int_t)model->max_positions, "hidden_act", "silu", "rms_norm_eps",
                     model->norm_eps, "rope_theta", model->rope_theta, "attention_bias", 0, "sliding_window");
}

/* The keys that sparse families add. Returns 0 or -ENOMEM. */
static int add_experts(const struct ash_job_model *model, json_t *json)
{
    bool mixtral = is_type(model, "mixtral");
    int bad = 0;

    bad |= json_object_set_new(json, mixtral ? "num_local_experts" : "num_experts", json_integer(model->experts));
    bad |= json_object_set_new(json, "num_experts_per_tok", json_integer(model->experts_per_token));
    bad |= json_object_set_new(json, mixtral ? "intermediate_size" : "moe_intermediate_size",
                               json_integer(model->expert_ffn));
    if (!mixtral) {
        bad |= json_object_set_new(json, "decoder_sparse_step", json_integer(1));
        bad |= json_object_set_new(json, "mlp_only_layers", json_array());
        bad |= json_object_set_new(json, "norm_topk_prob", json_true());
    }
    return bad != 0 ? -ENOMEM : 0;
}

static int add_common(const struct ash_job_model *model, size_t vocab, int32_t eos, json_t *json)
{
    int bad = 0;

    bad |= json_object_set_new(json, "architectures", json_pack("[s]", architectures[model->type]));
    bad |= json_object_set_new(json, "model_type", json_string(ash_job_model_types[model->type]));
    bad |= json_object_set_new(json, "vocab_size", json_integer((json_int_t)vocab));
    bad |= json_object_set_new(json, "initializer_range", json_real(model->init_std));
    bad |= json_object_set_new(json, "tie_word_embeddings", json_boolean(model->tied));
    bad |= json_object_set_new(json, "bos_token_id", json_null());
    bad |= json_object_set_new(json, "eos_token_id", token_or_null(eos));
    bad |= json_object_set_new(json, "torch_dtype", json_string("float32"));
    return bad != 0 ? -ENOMEM : 0;
}

int ash_job_config(const struct ash_job_model *model, size_t vocab, int32_t eos, json_t **json_out, struct ash_err *err)
{
    json_t *json = is_type(model, "gpt2") ? make_gpt2(model) : make_llama_like(model);
    bool sparse = is_type(model, "mixtral") || is_type(model, "qwen3_moe");

    if (json == NULL || add_common(model, vocab, eos, json) < 0 || (sparse && add_experts(model, json) < 0)) {
        json_decref(json);
        return ash_err_set(err, -ENOMEM, "out of memory while describing the model");
    }
    *json_out = json;
    return 0;
}
