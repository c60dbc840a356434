/* Models of each family as GGUF files: written and read again, they give the bits that the folder gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/files/open.h"
#include "model/family.h"
#include "model/files/save.h"
#include "unit/model/golden_models.h"
#include "unit/model/infer_rows.h"
#include "unit/storage/scratch.h"

#define ROWS 40 /* more than a window */

static const char *const models[] = {
    "mixtral-window",       "llama-yarn-rope",     "gpt2-default",          "families/gemma2",
    "families/gemma3",      "families/gpt_oss",    "families/phi3",         "families/phi3-longrope",
    "families/phimoe",      "families/olmo2",      "families/olmo3",        "families/olmoe",
    "families/glm4",        "families/glm4_moe",   "families/granite",      "families/granitemoe",
    "families/cohere",      "families/cohere2",    "families/starcoder2",   "families/seed_oss",
    "families/smollm3",     "families/ernie4_5",   "families/ernie4_5_moe", "families/hunyuan_dense",
    "families/hunyuan_moe", "families/minimax_m2", "families/mamba2",       "families/llama4",
    "families/deepseek_v2", "deepseek_v3-groups",
};

static float *infer(struct ash_model *model, size_t piece)
{
    struct ash_exec exec;
    struct ash_err err = {0};
    int32_t ids[ROWS];
    float *logits;

    for (size_t i = 0; i < ROWS; i++)
        ids[i] = (int32_t)ash_rng_below(3, 1, i, ash_model_get_config(model)->vocab);
    if (ash_exec_init(&exec, NULL, 2, &err) < 0) fail_msg("%s", err.text);
    logits = infer_rows(model, &exec, ids, ROWS, piece);
    ash_exec_fini(&exec);
    return logits;
}

static struct ash_model *save_and_open(const struct ash_model *folder, enum ash_dtype dtype)
{
    const char *path = scratch_path("family.gguf"), *type = ash_model_get_config(folder)->family->type;
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    unlink(path);
    if (ash_model_save_gguf(folder, NULL, path, dtype, NULL, NULL, &err) < 0) fail_msg("%s: %s", type, err.text);
    if (ash_model_open(path, &model, &err) < 0) fail_msg("%s: %s", type, err.text);
    return model;
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i += GOLDEN_MODEL_STEP) {
        struct ash_model *folder = golden_open(models[i]), *model = save_and_open(folder, ASH_F32);
        size_t bytes = ROWS * ash_model_get_config(folder)->vocab * sizeof(float);
        float *want = infer(folder, ROWS), *got = infer(model, ROWS), *pieces = infer(model, 7);

        if (memcmp(want, got, bytes) != 0) fail_msg("%s: other logits", models[i]);
        if (memcmp(want, pieces, bytes) != 0) fail_msg("%s: other logits piece by piece", models[i]);
        free(want);
        free(got);
        free(pieces);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

/* A model whose layers all have experts. */
static void test_drawn_experts(void **state)
{
    static const char text[] =
        "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 70, \"hidden_size\": 48, \"intermediate_size\": 96,"
        " \"moe_intermediate_size\": 32, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16,"
        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": false}";
    json_t *json = json_loads(text, 0, NULL);
    struct ash_model_config config;
    struct ash_model *folder = NULL, *model;
    struct ash_err err = {0};
    float *want, *got;

    (void)state;
    if (ash_model_config_parse(json, &config, &err) < 0) fail_msg("%s", err.text);
    if (ash_model_create(&config, 5, &folder, &err) < 0) fail_msg("%s", err.text);
    json_decref(json);
    model = save_and_open(folder, ASH_F32);
    want = infer(folder, ROWS);
    got = infer(model, ROWS);
    assert_memory_equal(want, got, ROWS * ash_model_get_config(folder)->vocab * sizeof(float));
    free(want);
    free(got);
    ash_model_close(model);
    ash_model_close(folder);
}

/* Rows of 96 are whole blocks: the matrices that read them are quantised, those of experts among them. */
static void test_quantised_experts(void **state)
{
    static const char *const experts[] = {"mixtral-window", "families/gpt_oss", "families/granitemoe"};

    (void)state;
    for (size_t i = 0; i < sizeof(experts) / sizeof(experts[0]); i++) {
        struct ash_model *folder = golden_open(experts[i]), *model = save_and_open(folder, ASH_Q8_0);
        size_t count = ROWS * ash_model_get_config(folder)->vocab, quantised = 0;
        float *want = infer(folder, ROWS), *got = infer(model, ROWS);
        double apart = 0, sum = 0;

        for (size_t p = 0; p < ash_model_param_count(model); p++)
            quantised += ash_model_param(model, p)->is_expert && ash_model_param(model, p)->dtype == ASH_Q8_0;
        assert_true(quantised > 0);
        for (size_t e = 0; e < count; e++) {
            apart += fabs((double)want[e] - got[e]);
            sum += fabs((double)want[e]);
        }
        if (!(apart < 0.03 * sum)) fail_msg("%s: the error is %g", experts[i], apart / sum);
        free(want);
        free(got);
        ash_model_close(model);
        ash_model_close(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_drawn_experts),
        cmocka_unit_test(test_quantised_experts),
    };

    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
