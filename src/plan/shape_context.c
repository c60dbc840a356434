/* How long sequences of well-known models may be: max_position_embeddings of their public config.json files, of the
 * longest variant. */
#include <string.h>

#include "base/assert.h"
#include "plan/shape.h"

/* The longest prefix of a name decides. */
static const struct {
    const char *prefix;
    double tokens;
} contexts[] = {
    {"gpt2-", 1024},           {"gpt3-", 2048},
    {"bloom-", 2048},          {"opt-", 2048},
    {"gpt-neox-", 2048},       {"gpt-j-", 2048},
    {"llama-", 2048},          {"llama-2-", 4096},
    {"llama-3-", 8192},        {"llama-3-405b", 131072},
    {"llama-3.1-", 131072},    {"llama-3.2-", 131072},
    {"llama-3.3-", 131072},    {"llama-4-scout", 10485760},
    {"llama-4-", 1048576},     {"codellama-", 16384},
    {"mistral-7b", 32768},     {"mistral-large-", 131072},
    {"mistral-nemo-", 131072}, {"mistral-small-", 32768},
    {"mixtral-8x7b", 32768},   {"mixtral-8x22b", 65536},
    {"gemma-2-", 8192},        {"gemma-3-", 131072},
    {"qwen2-", 131072},        {"qwen2.5-", 131072},
    {"qwen3-", 40960},         {"qwen3-30b", 262144},
    {"qwen3-235b", 262144},    {"qwen3-coder-", 262144},
    {"nemotron-4-", 4096},     {"grok-1-", 8192},
    {"gpt-oss-", 131072},      {"deepseek-v2", 163840},
    {"deepseek-v3", 163840},   {"deepseek-r1", 163840},
    {"kimi-k2", 262144},       {"glm-4.5", 131072},
    {"minimax-m2", 196608},    {"dbrx", 32768},
    {"falcon-", 2048},         {"command-r-plus", 131072},
    {"phi-3-", 131072},        {"phi-4-", 16384},
    {"yi-34b", 204800},
};

double ash_shape_context(const char *name)
{
    size_t longest = 0;
    double tokens = 0;

    ash_assert(name != NULL);
    for (size_t i = 0; i < ASH_COUNT(contexts); i++) {
        size_t length = strlen(contexts[i].prefix);

        if (length <= longest || strncmp(name, contexts[i].prefix, length) != 0) continue;
        longest = length;
        tokens = contexts[i].tokens;
    }
    return tokens;
}
