/* Models that are wide enough to be cut in bf16 too: golden ones are not. */
#ifndef ASH_TESTS_WIDE_MODELS_H
#define ASH_TESTS_WIDE_MODELS_H

/* Sizes at which sums in bf16 may be cut, most of them not multiples of anything. */
static const char *const wide_models[] = {
    "{\"model_type\": \"llama\", \"hidden_size\": 40, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
    "\"head_dim\": 32, "
    "\"intermediate_size\": 170, \"num_hidden_layers\": 2, \"vocab_size\": 171, \"mlp_bias\": true, "
    "\"attention_bias\": true}",
    "{\"model_type\": \"qwen3\", \"hidden_size\": 40, \"num_attention_heads\": 6, \"num_key_value_heads\": 3, "
    "\"head_dim\": 32, "
    "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"vocab_size\": 140, \"tie_word_embeddings\": true}",
    "{\"model_type\": \"gpt2\", \"n_embd\": 128, \"n_head\": 4, \"n_inner\": 130, \"n_layer\": 2, \"n_positions\": 96, "
    "\"vocab_size\": 150}",
    "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 40, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"qk_nope_head_dim\": 32, \"qk_rope_head_dim\": 32, \"v_head_dim\": 32, \"q_lora_rank\": 20, \"kv_lora_rank\": "
    "12, "
    "\"intermediate_size\": 130, \"moe_intermediate_size\": 64, \"n_shared_experts\": 2, \"n_routed_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 1, "
    "\"num_hidden_layers\": 2, "
    "\"vocab_size\": 150}",
};

#define WIDE_MODEL_COUNT (sizeof(wide_models) / sizeof(wide_models[0]))

#endif
