/* The tiny models of tests/golden, one per family and option: what tests of passes walk over. */
#ifndef ASH_TESTS_GOLDEN_MODELS_H
#define ASH_TESTS_GOLDEN_MODELS_H

#include <stdio.h>

#include "model/files/open.h"
#include "model/model.h"
#include "unit/sanitized.h"

#define GOLDEN_PATH_BYTES 512

/* The path of tests/golden/NAME, in buf, which it returns. */
static inline const char *golden_path(const char *name, char buf[GOLDEN_PATH_BYTES])
{
    snprintf(buf, GOLDEN_PATH_BYTES, "%s/golden/%s", TEST_DATA, name);
    return buf;
}

/* That model, as it lies there. */
static inline struct ash_model *golden_open(const char *name)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    char path[GOLDEN_PATH_BYTES];

    if (ash_model_open(golden_path(name, path), &model, &err) < 0) fail_msg("%s", err.text);
    return model;
}

/* For an ash_save_watch: what saving told. It tells of more each time, and ends with all. */
struct golden_saved {
    size_t count, total, calls;
};

static inline void golden_hear(void *ctx, size_t count, size_t total)
{
    struct golden_saved *saved = ctx;

    if (count < saved->count || count > total) fail_msg("saving tells of %zu after %zu", count, saved->count);
    *saved = (struct golden_saved){count, total, saved->calls + 1};
}

static const char *const golden_models[] = {
    "llama-gqa",      "llama-bias-tied", "llama3-rope",        "llama-linear-rope-bf16", "llama-yarn-rope",
    "mistral-window", "qwen2-window",    "qwen3-tied-sharded", "gpt2-default",           "gpt2-scaled",
    "mixtral-window", "qwen3_moe-mixed", "deepseek_v3-groups", "qwen3_moe-step",         "deepseek_v3-plain-q-yarn",
};

/* A model for each form of a layer that the ones above do not have. */
static const char *const family_models[] = {
    "families/gemma2",
    "families/gemma3",
    "families/cohere2",
    "families/glm4",
    "families/olmo3",
    "families/granite",
    "families/gpt_oss",
    "families/hunyuan_moe",
    "families/granitemoe",
    "families/smollm3",
    "families/gpt_neox",
    "families/llama4",
    "families/phimoe",
    "families/mamba2",
    "families/granitemoehybrid-experts",
    "families/falcon_h1-factors",
    "families/qwen3_next",
};
#define FAMILY_MODEL_COUNT (sizeof(family_models) / sizeof(family_models[0]))

#define GOLDEN_MODEL_COUNT (sizeof(golden_models) / sizeof(golden_models[0]))
#if defined(__SANITIZE_THREAD__)
#define GOLDEN_MODEL_STEP 8 /* what threads share is the same in all */
#else
#define GOLDEN_MODEL_STEP (SANITIZED ? 3 : 1) /* under a sanitizer every third one */
#endif

#endif
