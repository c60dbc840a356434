/* The kinds of software that published runs used. Which one a framework belongs to is read off its name. */
#include "plan/stack.h"

#include <stddef.h>
#include <string.h>

static const char *const captured_names[] = {"captured", "Megatron-Bridge 26.04", "Megatron-Bridge 26.06",
                                             "Megatron-Bridge 26.08", NULL};
static const char *const fused_names[] = {"fused", "NeMo", "Megatron-Bridge", "Megatron-Core", "HAI-LLM", NULL};
static const char *const eager_names[] = {
    "eager",        "Composer", "FSDP", "torchtitan", "Meta internal", "DeepSpeed", "Accelerate",
    "Transformers", "nanotron", "OLMo", "Lightning",  "Colossal",      NULL};
static const char *const compiled_names[] = {"compiled", "MaxText", "Pax", "JAX", NULL};
static const char *const early_names[] = {"early", "Megatron-LM v2", "Megatron-DeepSpeed", "metaseq", "GPT-NeoX", NULL};

static const struct ash_stack stacks[] = {
    {.name = "early",
     .meaning = "before flash attention: scores go through memory, gradients are reduced after the backward pass",
     .like = early_names,
     .fused = true},
    {.name = "eager",
     .meaning = "PyTorch FSDP: flash attention 2, one kernel per op, collectives beside compute",
     .like = eager_names,
     .flash = true,
     .overlap_dp = true},
    {.name = "compiled",
     .meaning = "XLA: fused element-wise ops, cuDNN attention, collectives scheduled by the compiler",
     .like = compiled_names,
     .flash = true,
     .new_attention = true,
     .overlap_dp = true,
     .sequence_parallel = true,
     .fused = true},
    {.name = "captured",
     .meaning =
         "as fused, and launches recorded as graphs, dispatch fused with permutation (Megatron-Bridge from 26.04)",
     .like = captured_names,
     .flash = true,
     .new_attention = true,
     .overlap_dp = true,
     .overlap_tp = true,
     .sequence_parallel = true,
     .overlap_dispatch = true,
     .graphs = true,
     .fused = true},
    {.name = "fused",
     .meaning = "Megatron and its like: fused kernels, cuDNN attention, every collective overlapped",
     .like = fused_names,
     .flash = true,
     .new_attention = true,
     .overlap_dp = true,
     .overlap_tp = true,
     .sequence_parallel = true,
     .fused = true},
};

const struct ash_stack *ash_stack_find(const char *text)
{
    const size_t count = sizeof(stacks) / sizeof(stacks[0]);

    for (size_t i = 0; text != NULL && i < count; i++)
        for (size_t n = 0; stacks[i].like[n] != NULL; n++)
            if (strstr(text, stacks[i].like[n]) != NULL) return &stacks[i];
    return &stacks[count - 1];
}
