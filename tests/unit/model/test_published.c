/* Sizes of published models, as in their config.json: the parameters that Ashlar lists are as many as published. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/model.h"

static const struct {
    const char *name, *config;
    uint64_t parameters;
} published[] = {
    {"gemma-2-2b",
     "{'model_type':'gemma2','vocab_size':256000,'hidden_size':2304,'num_hidden_layers':26,'num_attention_heads':8,"
     "'num_key_value_heads':4,'head_dim':256,'intermediate_size':9216,'hidden_act':'gelu_pytorch_tanh'}",
     2614341888},
    {"gemma-3-1b",
     "{'model_type':'gemma3_text','vocab_size':262144,'hidden_size':1152,'num_hidden_layers':26,"
     "'num_attention_heads':4,'num_key_value_heads':1,'head_dim':256,'intermediate_size':6912,'sliding_window':512,"
     "'sliding_window_pattern':6,'rope_local_base_freq':10000,'rope_theta':1000000,'rope_scaling':null}",
     999885952},
    {"gpt-oss-20b",
     "{'model_type':'gpt_oss','vocab_size':201088,'hidden_size':2880,'num_hidden_layers':24,'num_attention_heads':64,"
     "'num_key_value_heads':8,'head_dim':64,'intermediate_size':2880,'num_local_experts':32,'num_experts_per_tok':4,"
     "'attention_bias':true,'hidden_act':'silu','sliding_window':128,'rope_theta':150000,'rope_scaling':{'rope_type':"
     "'yarn','factor':32.0,'beta_fast':32.0,'beta_slow':1.0,'truncate':false,"
     "'original_max_position_embeddings':4096}}",
     20914757184},
    {"Phi-3-mini-4k",
     "{'model_type':'phi3','vocab_size':32064,'hidden_size':3072,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':32,'intermediate_size':8192,'max_position_embeddings':4096,"
     "'original_max_position_embeddings':4096,'sliding_window':2047,'rope_scaling':null}",
     3821079552},
    {"pythia-1b",
     "{'model_type':'gpt_neox','vocab_size':50304,'hidden_size':2048,'num_hidden_layers':16,'num_attention_heads':8,"
     "'intermediate_size':8192,'hidden_act':'gelu','layer_norm_eps':1e-05,'max_position_embeddings':2048,"
     "'rotary_emb_base':10000,'rotary_pct':0.25,'use_parallel_residual':true,'tie_word_embeddings':false}",
     1011781632},
    {"Phi-3.5-MoE",
     "{'model_type':'phimoe','vocab_size':32064,'hidden_size':4096,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':8,'intermediate_size':6400,'num_local_experts':16,'num_experts_per_tok':2,"
     "'attention_bias':true,'lm_head_bias':true,'router_jitter_noise':0.01,'rms_norm_eps':1e-05}",
     41873153344},
    {"Llama-4-Scout (text)",
     "{'model_type':'llama4_text','vocab_size':202048,'hidden_size':5120,'num_hidden_layers':48,'num_attention_heads':40,"
     "'num_key_value_heads':8,'head_dim':128,'intermediate_size':8192,'intermediate_size_mlp':16384,"
     "'num_local_experts':16,'num_experts_per_tok':1,'interleave_moe_layer_step':1,'attn_temperature_tuning':4,"
     "'no_rope_layers':[],'rope_theta':500000,'rope_scaling':{'rope_type':'llama3','factor':8.0,'low_freq_factor':1.0,"
     "'high_freq_factor':4.0,'original_max_position_embeddings':8192}}",
     107769861120},
    {"mamba2-130m",
     "{'model_type':'mamba2','vocab_size':50288,'hidden_size':768,'num_hidden_layers':24,'num_heads':24,'head_dim':64,"
     "'state_size':128,'n_groups':1,'conv_kernel':4,'expand':2,'use_bias':false,'use_conv_bias':true,"
     "'tie_word_embeddings':true,'time_step_limit':[0.0,1e9],'layer_norm_epsilon':1e-05}",
     128989632},
    {"granite-4.0-h-tiny",
     "{'model_type':'granitemoehybrid','vocab_size':100352,'hidden_size':1536,'num_hidden_layers':40,"
     "'num_attention_heads':12,'num_key_value_heads':4,'intermediate_size':512,'shared_intermediate_size':1024,"
     "'num_local_experts':64,'num_experts_per_tok':6,'mamba_n_heads':48,'mamba_d_head':64,'mamba_d_state':128,"
     "'mamba_n_groups':1,'mamba_d_conv':4,'mamba_expand':2,'mamba_conv_bias':true,'mamba_proj_bias':false,"
     "'position_embedding_type':'nope','tie_word_embeddings':true,'layer_types':['mamba','mamba','mamba','mamba',"
     "'mamba','attention','mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','attention','mamba',"
     "'mamba','mamba','mamba','mamba','mamba','mamba','mamba','mamba','attention','mamba','mamba','mamba','mamba',"
     "'mamba','mamba','mamba','mamba','mamba','attention','mamba','mamba','mamba','mamba']}",
     6939037248},
    {"Qwen3-Next-80B-A3B",
     "{'model_type':'qwen3_next','vocab_size':151936,'hidden_size':2048,'num_hidden_layers':48,'num_attention_heads':16,"
     "'num_key_value_heads':2,'head_dim':256,'intermediate_size':5120,'moe_intermediate_size':512,'num_experts':512,"
     "'num_experts_per_tok':10,'shared_expert_intermediate_size':512,'full_attention_interval':4,"
     "'linear_conv_kernel_dim':4,'linear_key_head_dim':128,'linear_num_key_heads':16,'linear_num_value_heads':32,"
     "'linear_value_head_dim':128,'norm_topk_prob':true,'decoder_sparse_step':1,'mlp_only_layers':[],"
     "'partial_rotary_factor':0.25,'rope_theta':10000000,'tie_word_embeddings':false}",
     79674391296},
    {"Falcon-H1-0.5B",
     "{'model_type':'falcon_h1','vocab_size':32784,'hidden_size':1024,'num_hidden_layers':36,'num_attention_heads':8,"
     "'num_key_value_heads':2,'head_dim':64,'intermediate_size':2048,'mamba_d_ssm':1536,'mamba_n_heads':24,"
     "'mamba_d_head':64,'mamba_d_state':128,'mamba_n_groups':1,'mamba_d_conv':4,'mamba_expand':2,"
     "'mamba_rms_norm':false,'mamba_norm_before_gate':false,'tie_word_embeddings':false}",
     521411104},
    {"starcoder2-3b",
     "{'model_type':'starcoder2','vocab_size':49152,'hidden_size':3072,'num_hidden_layers':30,'num_attention_heads':24,"
     "'num_key_value_heads':2,'intermediate_size':12288,'use_bias':true,'hidden_act':'gelu_pytorch_tanh',"
     "'sliding_window':4096,'norm_epsilon':1e-05}",
     3030371328},
    {"SmolLM3-3B",
     "{'model_type':'smollm3','vocab_size':128256,'hidden_size':2048,'num_hidden_layers':36,'num_attention_heads':16,"
     "'num_key_value_heads':4,'intermediate_size':11008,'tie_word_embeddings':true,'no_rope_layer_interval':4}",
     3075098624},
    {"GLM-4-9B-0414",
     "{'model_type':'glm4','vocab_size':151552,'hidden_size':4096,'num_hidden_layers':40,'num_attention_heads':32,"
     "'num_key_value_heads':2,'head_dim':128,'intermediate_size':13696,'attention_bias':true,"
     "'partial_rotary_factor':0.5}",
     9400279040},
    {"OLMo-2-1124-7B",
     "{'model_type':'olmo2','vocab_size':100352,'hidden_size':4096,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':32,'intermediate_size':11008,'rope_theta':500000}",
     7298617344},
    {"OLMoE-1B-7B",
     "{'model_type':'olmoe','vocab_size':50304,'hidden_size':2048,'num_hidden_layers':16,'num_attention_heads':16,"
     "'num_key_value_heads':16,'intermediate_size':1024,'num_experts':64,'num_experts_per_tok':8}",
     6919161856},
    {"Seed-OSS-36B",
     "{'model_type':'seed_oss','vocab_size':155136,'hidden_size':5120,'num_hidden_layers':64,'num_attention_heads':80,"
     "'num_key_value_heads':8,'head_dim':128,'intermediate_size':27648,'attention_bias':true,"
     "'attention_out_bias':false,'mlp_bias':false}",
     36151104512},
    {"ERNIE-4.5-0.3B",
     "{'model_type':'ernie4_5','vocab_size':103424,'hidden_size':1024,'num_hidden_layers':18,'num_attention_heads':16,"
     "'num_key_value_heads':2,'head_dim':128,'intermediate_size':3072,'use_bias':false}",
     360748032},
    {"c4ai-command-r7b",
     "{'model_type':'cohere2','vocab_size':256000,'hidden_size':4096,'num_hidden_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':8,'head_dim':128,'intermediate_size':14336,'sliding_window':4096,"
     "'sliding_window_pattern':4,'logit_scale':0.25,'layer_norm_eps':1e-05}",
     8028033024},
    {"DeepSeek-V2-Lite",
     "{'model_type':'deepseek_v2','vocab_size':102400,'hidden_size':2048,'num_hidden_layers':27,"
     "'num_attention_heads':16,'intermediate_size':10944,'moe_intermediate_size':1408,'n_routed_experts':64,"
     "'n_shared_experts':2,'num_experts_per_tok':6,'first_k_dense_replace':1,'kv_lora_rank':512,'q_lora_rank':null,"
     "'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,'topk_method':'greedy','n_group':1,"
     "'topk_group':1}",
     15706484224},
    {"all-MiniLM-L6-v2", /* without the pooler, which sentence transformers do not run */
     "{'model_type':'bert','architectures':['BertModel'],'vocab_size':30522,'hidden_size':384,'num_hidden_layers':6,"
     "'num_attention_heads':12,'intermediate_size':1536,'hidden_act':'gelu','max_position_embeddings':512,"
     "'type_vocab_size':2,'layer_norm_eps':1e-12,'position_embedding_type':'absolute','pad_token_id':0}",
     22713216 - 384 * 385},
    {"bge-reranker-v2-m3",
     "{'model_type':'xlm-roberta','architectures':['XLMRobertaForSequenceClassification'],'vocab_size':250002,"
     "'hidden_size':1024,'num_hidden_layers':24,'num_attention_heads':16,'intermediate_size':4096,"
     "'hidden_act':'gelu','max_position_embeddings':8194,'type_vocab_size':1,'layer_norm_eps':1e-05,"
     "'id2label':{'0':'LABEL_0'},'pad_token_id':1,'bos_token_id':0,'eos_token_id':2}",
     567755777},
    {"ModernBERT-base",
     "{'model_type':'modernbert','architectures':['ModernBertModel'],'vocab_size':50368,'hidden_size':768,"
     "'num_hidden_layers':22,'num_attention_heads':12,'intermediate_size':1152,'hidden_activation':'gelu',"
     "'max_position_embeddings':8192,'global_attn_every_n_layers':3,'local_attention':128,'norm_bias':false,"
     "'global_rope_theta':160000.0,'local_rope_theta':10000.0,'norm_eps':1e-05,'attention_bias':false}",
     149014272},
};

static json_t *parse(const char *text)
{
    char json[1024];
    size_t length = strlen(text);

    assert_true(length < sizeof(json));
    for (size_t i = 0; i <= length; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    return json_loads(json, 0, NULL);
}

static void test_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
        static struct ash_model_config config; /* large: an entry per layer */
        struct ash_model *outline = NULL;
        struct ash_err err = {0};
        json_t *json = parse(published[i].config);

        if (json == NULL || ash_model_config_parse(json, &config, &err) < 0 ||
            ash_model_outline(&config, &outline, &err) < 0)
            fail_msg("%s: %s", published[i].name, err.text);
        if (ash_model_weight_count(outline) != published[i].parameters)
            fail_msg("%s has %llu parameters, published are %llu", published[i].name,
                     (unsigned long long)ash_model_weight_count(outline), (unsigned long long)published[i].parameters);
        ash_model_close(outline);
        ash_model_config_fini(&config);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
