/* The kinds of software that published runs used. Which one a framework belongs to is read off its name. */
#include "plan/train/stack.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const captured_names[] = {"captured", NULL};
static const char *const deepseek_names[] = {"deepseek", "HAI-LLM", NULL};
static const char *const fused_names[] = {"fused",     "Megatron",           "NeMo", "Primus",
                                          "MegaScale", "Transformer Engine", NULL};
static const char *const eager_names[] = {
    "eager",        "Composer",    "FSDP",    "torchtitan", "Meta internal", "DeepSpeed", "Accelerate",
    "Transformers", "nanotron",    "OLMo",    "Lightning",  "Colossal",      "PyTorch",   "torchtune",
    "LitGPT",       "llm-foundry", "Axolotl", "TRL",        "Unsloth",       "llm.c",     NULL};
static const char *const compiled_names[] = {"compiled", "MaxText", "Pax", "JAX", "XLA", "T5X", "Levanter", NULL};
static const char *const llama3_names[] = {"llama3", "Llama 3", NULL};
static const char *const early_names[] = {"early", "Megatron-LM v2", "Megatron-DeepSpeed", "metaseq", "GPT-NeoX", NULL};

/* From which release on a framework of the fused kind records its launches. */
static const struct {
    const char *name;
    double release;
} captured_since[] = {{"Megatron-Bridge ", 26.06}, {"NeMo ", 26.06}};

/* In the order in which names are matched. */
enum { EARLY, CAPTURED, DEEPSEEK, FUSED, COMPILED, LLAMA3, EAGER };

static const struct ash_stack stacks[] = {
    [EARLY] = {.name = "early",
               .meaning =
                   "before flash attention: scores go through memory, gradients are reduced after the backward pass",
               .like = early_names,
               .fused = true},
    [CAPTURED] =
        {.name = "captured",
         .meaning =
             "as fused, and launches recorded as graphs, dispatch fused with permutation (Megatron-Bridge from 26.06)",
         .like = captured_names,
         .flash = true,
         .new_attention = true,
         .overlap_dp = true,
         .overlap_tp = true,
         .sequence_parallel = true,
         .overlap_dispatch = true,
         .fused_routing = true,
         .fused_experts = true,
         .graphs = true,
         .fused = true},
    [DEEPSEEK] = {.name = "deepseek",
                  .meaning = "as fused, and tokens travel to their experts in fp8 (HAI-LLM, arXiv 2412.19437)",
                  .like = deepseek_names,
                  .flash = true,
                  .new_attention = true,
                  .overlap_dp = true,
                  .overlap_tp = true,
                  .sequence_parallel = true,
                  .fp8_dispatch = true,
                  .fused = true},
    [FUSED] = {.name = "fused",
               .meaning = "Megatron and its like: fused kernels, cuDNN attention, every collective overlapped",
               .like = fused_names,
               .flash = true,
               .new_attention = true,
               .overlap_dp = true,
               .overlap_tp = true,
               .sequence_parallel = true,
               .fused = true},
    [COMPILED] = {.name = "compiled",
                  .meaning = "XLA: fused element-wise ops, cuDNN attention, collectives scheduled by the compiler",
                  .like = compiled_names,
                  .flash = true,
                  .new_attention = true,
                  .overlap_dp = true,
                  .sequence_parallel = true,
                  .fused = true},
    [EAGER] = {.name = "eager",
               .meaning = "PyTorch FSDP: flash attention 2, one kernel per op, collectives that overlap with compute",
               .like = eager_names,
               .flash = true,
               .overlap_dp = true},
    [LLAMA3] = {.name = "llama3",
                .meaning =
                    "PyTorch of early 2024 with tp and pp (Llama 3, arXiv 2407.21783): before asynchronous tensor "
                    "parallelism and FlashAttention 3, gradients are summed in float32",
                .like = llama3_names,
                .flash = true,
                .overlap_dp = true,
                .sequence_parallel = true,
                .wide_gradients = true,
                .fused = true},
};

static bool records_launches(const char *text)
{
    for (size_t i = 0; i < sizeof(captured_since) / sizeof(captured_since[0]); i++) {
        const char *at = strcasestr(text, captured_since[i].name);

        if (at != NULL && strtod(at + strlen(captured_since[i].name), NULL) >= captured_since[i].release) return true;
    }
    return false;
}

static const struct ash_stack *find_named(const char *text)
{
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++)
        for (size_t n = 0; stacks[i].like[n] != NULL; n++)
            if (strcasestr(text, stacks[i].like[n]) != NULL) return &stacks[i];
    return &stacks[FUSED];
}

const struct ash_stack *ash_stack_find(const char *text)
{
    if (text == NULL) return &stacks[FUSED];
    return records_launches(text) ? &stacks[CAPTURED] : find_named(text);
}

const struct ash_stack *ash_stack_find_on(const char *text, const struct ash_gpu *gpu, enum ash_gpu_precision precision)
{
    bool blocks = gpu->generation >= ASH_GENERATION_BLACKWELL && precision != ASH_GPU_BF16;

    return blocks ? ash_stack_find(text) : find_named(text);
}
