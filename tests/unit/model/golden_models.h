/* The tiny models of tests/golden, one per family and option: what tests of passes walk over. */
#ifndef ASH_TESTS_GOLDEN_MODELS_H
#define ASH_TESTS_GOLDEN_MODELS_H

#include "unit/sanitized.h"

static const char *const golden_models[] = {
    "llama-gqa",      "llama-bias-tied", "llama3-rope",        "llama-linear-rope-bf16", "llama-yarn-rope",
    "mistral-window", "qwen2-window",    "qwen3-tied-sharded", "gpt2-default",           "gpt2-scaled",
    "mixtral-window", "qwen3_moe-mixed", "qwen3_moe-step",     "deepseek_v3-groups",     "deepseek_v3-plain-q-yarn",
};

#define GOLDEN_MODEL_COUNT (sizeof(golden_models) / sizeof(golden_models[0]))
#if defined(__SANITIZE_THREAD__)
#define GOLDEN_MODEL_STEP 8 /* what threads share is the same in all */
#else
#define GOLDEN_MODEL_STEP (SANITIZED ? 2 : 1) /* under a sanitizer every second one */
#endif

#endif
