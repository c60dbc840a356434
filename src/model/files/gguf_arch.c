/* The architectures of GGUF files that Ashlar reads and writes, by llama.cpp's names. */
#include "model/files/gguf_arch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* Of one name, the last that fits a file is taken. */
/* clang-format off */
static const struct ash_gguf_arch archs[] = {
    {"llama", "llama", ASH_GGUF_PERMUTED, 0},
    {"llama", "mistral", ASH_GGUF_PERMUTED | ASH_GGUF_WINDOWED, 0},
    {"llama", "mixtral", ASH_GGUF_PERMUTED | ASH_GGUF_SPARSE | ASH_GGUF_NORMALIZES, 0},
    {"qwen2", "qwen2", 0, 0},
    {"qwen3", "qwen3", 0, 0},
    {"qwen3moe", "qwen3_moe", ASH_GGUF_NORMALIZES, 0},
    {"gemma2", "gemma2", ASH_GGUF_ALWAYS_TIED | ASH_GGUF_SCALE_BY_SIZE, 2},
    {"gemma3", "gemma3_text", ASH_GGUF_SCALE_BY_SIZE, 6},
    {"gpt-oss", "gpt_oss", ASH_GGUF_POST_NORM2 | ASH_GGUF_NORMALIZES | ASH_GGUF_UNTRUNCATED, 2},
    {"phi3", "phi3", 0, 0},
    {"phimoe", "phimoe", 0, 0},
    {"olmo2", "olmo2", 0, 0},
    {"olmo2", "olmo3", ASH_GGUF_WINDOWED, 4},
    {"olmoe", "olmoe", ASH_GGUF_KEEPS_WEIGHTS, 0},
    {"glm4", "glm4", 0, 0},
    {"glm4moe", "glm4_moe", ASH_GGUF_POST_NORM2, 0},
    {"granite", "granite", ASH_GGUF_PERMUTED | ASH_GGUF_LOGIT_DIVISOR, 0},
    {"granitemoe", "granitemoe", ASH_GGUF_PERMUTED | ASH_GGUF_LOGIT_DIVISOR | ASH_GGUF_NORMALIZES, 0},
    {"command-r", "cohere", ASH_GGUF_ALWAYS_TIED, 0},
    {"cohere2", "cohere2", ASH_GGUF_ALWAYS_TIED, 4},
    {"starcoder2", "starcoder2", 0, 0},
    {"gpt2", "gpt2", 0, 0},
    {"gptneox", "gpt_neox", 0, 0},
    {"seed_oss", "seed_oss", ASH_GGUF_POST_NORM2, 0},
    {"smollm3", "smollm3", ASH_GGUF_PERMUTED, 0},
    {"ernie4_5", "ernie4_5", 0, 0},
    {"ernie4_5-moe", "ernie4_5_moe", ASH_GGUF_NORMALIZES, 0},
    {"hunyuan-dense", "hunyuan_v1_dense", 0, 0},
    {"hunyuan-moe", "hunyuan_v1_moe", ASH_GGUF_NORMALIZES, 0},
    {"minimax-m2", "minimax_m2", ASH_GGUF_NORMALIZES, 0},
    {"mamba2", "mamba2", 0, 0},
    {"llama4", "llama4_text", ASH_GGUF_TWO_WIDTHS | ASH_GGUF_KEEPS_WEIGHTS, 4},
    {"deepseek2", "deepseek_v2", 0, 0},
    {"deepseek2", "deepseek_v3", ASH_GGUF_SIGMOID, 0},
};
/* clang-format on */

#define TENSOR(role, name) [role] = name ".weight", [role##_BIAS] = name ".bias"

static const char *const role_names[ASH_ROLE_COUNT] = {
    [ASH_ROLE_EMBED] = "token_embd.weight",
    [ASH_ROLE_POSITION] = "position_embd.weight",
    TENSOR(ASH_ROLE_FINAL_NORM, "output_norm"),
    TENSOR(ASH_ROLE_HEAD, "output"),
    TENSOR(ASH_ROLE_NORM1, "attn_norm"),
    TENSOR(ASH_ROLE_QKV, "attn_qkv"),
    TENSOR(ASH_ROLE_Q, "attn_q"),
    TENSOR(ASH_ROLE_K, "attn_k"),
    TENSOR(ASH_ROLE_V, "attn_v"),
    [ASH_ROLE_Q_NORM] = "attn_q_norm.weight",
    [ASH_ROLE_K_NORM] = "attn_k_norm.weight",
    [ASH_ROLE_Q_DOWN] = "attn_q_a.weight",
    [ASH_ROLE_Q_DOWN_NORM] = "attn_q_a_norm.weight",
    [ASH_ROLE_Q_UP] = "attn_q_b.weight",
    [ASH_ROLE_KV_DOWN] = "attn_kv_a_mqa.weight",
    [ASH_ROLE_KV_DOWN_NORM] = "attn_kv_a_norm.weight",
    [ASH_ROLE_KV_UP] = "attn_kv_b.weight", /* of older files: ASH_GGUF_K_UP and ASH_GGUF_V_UP */
    [ASH_ROLE_STATE_IN] = "ssm_in.weight",
    TENSOR(ASH_ROLE_STATE_CONV, "ssm_conv1d"),
    [ASH_ROLE_STATE_STEP_BIAS] = "ssm_dt.bias",
    [ASH_ROLE_STATE_DECAY] = "ssm_a",
    [ASH_ROLE_STATE_SKIP] = "ssm_d",
    [ASH_ROLE_STATE_NORM] = "ssm_norm.weight",
    [ASH_ROLE_STATE_OUT] = "ssm_out.weight",
    [ASH_ROLE_SINKS] = "attn_sinks.weight",
    TENSOR(ASH_ROLE_OUT, "attn_output"),
    TENSOR(ASH_ROLE_NORM2, "ffn_norm"),
    [ASH_ROLE_POST1] = "post_attention_norm.weight",
    [ASH_ROLE_POST2] = "post_ffw_norm.weight",
    [ASH_ROLE_GATE_UP] = "ffn_up.weight", /* twice as wide */
    TENSOR(ASH_ROLE_GATE, "ffn_gate"),
    TENSOR(ASH_ROLE_UP, "ffn_up"),
    TENSOR(ASH_ROLE_DOWN, "ffn_down"),
    [ASH_ROLE_ROUTER] = "ffn_gate_inp.weight",
    [ASH_ROLE_ROUTER_BIAS] = "exp_probs_b.bias",
    [ASH_ROLE_ROUTER_ADD] = "ffn_gate_inp.bias",
    [ASH_ROLE_SHARED_GATE] = "ffn_gate_shexp.weight",
    [ASH_ROLE_SHARED_UP] = "ffn_up_shexp.weight",
    [ASH_ROLE_SHARED_DOWN] = "ffn_down_shexp.weight",
    TENSOR(ASH_ROLE_EXPERT_GATE, "ffn_gate_exps"),
    TENSOR(ASH_ROLE_EXPERT_UP, "ffn_up_exps"),
    TENSOR(ASH_ROLE_EXPERT_DOWN, "ffn_down_exps"),
};

const struct ash_gguf_arch *ash_gguf_arch_of(const struct ash_family *family)
{
    for (size_t i = 0; i < ASH_COUNT(archs); i++)
        if (strcmp(archs[i].family, family->type) == 0) return &archs[i];
    return NULL;
}

const struct ash_gguf_arch *ash_gguf_arch_find(const char *name, unsigned has)
{
    const unsigned wanted = ASH_GGUF_WINDOWED | ASH_GGUF_SPARSE | ASH_GGUF_SIGMOID;
    const struct ash_gguf_arch *found = NULL;

    for (size_t i = 0; i < ASH_COUNT(archs); i++)
        if (strcmp(archs[i].name, name) == 0 && (archs[i].traits & wanted & ~has) == 0) found = &archs[i];
    return found;
}

const char *ash_gguf_role_name(const struct ash_gguf_arch *arch, enum ash_role role)
{
    if (role == ASH_ROLE_NORM2 && (arch->traits & ASH_GGUF_POST_NORM2)) return role_names[ASH_ROLE_POST1];
    return role_names[role];
}

/* ---- families with their experts' matrices apart, and a list of all ---------------------------------------------- */

static struct apart {
    struct ash_family family;
    const char *names[ASH_ROLE_COUNT];
} aparts[ASH_COUNT(archs)];
static size_t apart_count;
static char type_list[512];

static void add_apart(const struct ash_family *family)
{
    struct apart *apart = &aparts[apart_count++];

    apart->family = *family;
    memcpy(apart->names, family->names, sizeof(apart->names));
    apart->names[ASH_ROLE_EXPERT_GATE_UP] = NULL;
    apart->names[ASH_ROLE_EXPERT_GATE] = "mlp.experts.%zu.gate_proj.weight";
    apart->names[ASH_ROLE_EXPERT_UP] = "mlp.experts.%zu.up_proj.weight";
    apart->names[ASH_ROLE_EXPERT_DOWN] = "mlp.experts.%zu.down_proj.weight";
    if (family->names[ASH_ROLE_EXPERT_GATE_UP_BIAS] != NULL) {
        apart->names[ASH_ROLE_EXPERT_GATE_UP_BIAS] = NULL;
        apart->names[ASH_ROLE_EXPERT_GATE_BIAS] = "mlp.experts.%zu.gate_proj.bias";
        apart->names[ASH_ROLE_EXPERT_UP_BIAS] = "mlp.experts.%zu.up_proj.bias";
        apart->names[ASH_ROLE_EXPERT_DOWN_BIAS] = "mlp.experts.%zu.down_proj.bias";
    }
    apart->family.names = apart->names;
}

static void list_all(void)
{
    size_t used = 0;

    for (size_t i = 0; i < ASH_COUNT(archs); i++) {
        const struct ash_family *family = ash_family_find(archs[i].family);

        ash_assert(family != NULL);
        if (family->names[ASH_ROLE_EXPERT_GATE_UP] != NULL) add_apart(family);
        used +=
            (size_t)snprintf(type_list + used, sizeof(type_list) - used, "%s%s", i > 0 ? ", " : "", archs[i].family);
        ash_assert(used < sizeof(type_list));
    }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *ash_gguf_families(void)
{
    pthread_once(&once, list_all);
    return type_list;
}

const struct ash_family *ash_gguf_family_apart(const struct ash_family *family)
{
    pthread_once(&once, list_all);
    for (size_t i = 0; i < apart_count; i++)
        if (strcmp(aparts[i].family.type, family->type) == 0) return &aparts[i].family;
    return family;
}
