/* Models in folders: what is saved is what is read, in every dtype and split; broken folders are refused by name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/file.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/model.h"
#include "storage/safetensors/safetensors.h"
#include "unit/model/golden_models.h"

static char scratch[256];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof(scratch), "/tmp/ashlar-test-model-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    (void)state;
    return ash_dir_remove(scratch, NULL);
}

static float element(const struct ash_param *param, size_t i)
{
    if (param->dtype == ASH_F32) return ((const float *)param->data)[i];
    uint16_t half = ((const uint16_t *)param->data)[i];
    return param->dtype == ASH_BF16 ? ash_bf16_to_f32(half) : ash_f16_to_f32(half);
}

static float rounded(float value, enum ash_dtype dtype)
{
    if (dtype == ASH_BF16) return ash_bf16_round(value);
    return dtype == ASH_F16 ? ash_f16_to_f32(ash_f32_to_f16(value)) : value;
}

static void check_round_trip(const char *name, enum ash_dtype dtype, size_t shard_bytes)
{
    struct ash_model *model = golden_open(name), *copy = NULL;
    struct golden_saved saved = {0};
    struct ash_save_watch watch = {golden_hear, &saved};
    struct ash_err err = {0};
    char dir[512];

    snprintf(dir, sizeof(dir), "%s/%s-%s-%zu", scratch, strrchr(name, '/') != NULL ? strrchr(name, '/') + 1 : name,
             ash_dtype_name(dtype), shard_bytes);
    if (ash_model_save(model, dir, dtype, shard_bytes, &watch, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(saved.count, ash_model_weight_count(model));
    assert_true(saved.calls > 1 && saved.count == saved.total);
    if (ash_model_open(dir, &copy, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_model_param_count(copy), ash_model_param_count(model));
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *a = ash_model_param(model, i), *b = ash_model_param(copy, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(b->dtype, dtype);
        for (size_t j = 0; j < a->count; j++)
            assert_true(element(b, j) == rounded(element(a, j), dtype));
    }
    ash_model_close(copy);
    ash_model_close(model);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i++)
        check_round_trip(golden_models[i], ASH_F32, 0);
    for (size_t i = 0; i < FAMILY_MODEL_COUNT; i++)
        check_round_trip(family_models[i], ASH_F32, 0);
    check_round_trip("llama-gqa", ASH_BF16, 0);
    check_round_trip("llama-gqa", ASH_F16, 0);
    check_round_trip("mixtral-window", ASH_F32, 30000);
}

static void test_create_is_pure(void **state)
{
    struct ash_model *golden = golden_open("qwen3_moe-mixed"), *a = NULL, *b = NULL, *c = NULL;
    struct ash_model_config config = *ash_model_get_config(golden);
    struct ash_err err = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        json_incref(config.source);
    assert_int_equal(ash_model_create(&config, 5, &a, &err), 0);
    assert_int_equal(ash_model_create(&config, 5, &b, &err), 0);
    assert_int_equal(ash_model_create(&config, 6, &c, &err), 0);
    size_t bytes = ash_model_size(a) * sizeof(float);
    assert_memory_equal(ash_model_values(a), ash_model_values(b), bytes);
    assert_memory_not_equal(ash_model_values(a), ash_model_values(c), bytes);
    assert_true(ash_model_find(a, "model.norm.weight") != NULL);
    assert_true(((const float *)ash_model_find(a, "model.norm.weight")->data)[3] == 1.0f);
    ash_model_close(a);
    ash_model_close(b);
    ash_model_close(c);
    ash_model_close(golden);
}

/* A copy of a golden folder with one tensor left out or changed. */
static void write_damaged(const char *dir, size_t victim, bool leave_out, size_t dim0, enum ash_dtype dtype)
{
    struct ash_model *model = golden_open("llama-gqa");
    size_t count = ash_model_param_count(model), kept = 0;
    struct ash_tensor_spec *specs = calloc(count, sizeof(*specs));
    struct ash_err err = {0};

    if (ash_model_save(model, dir, ASH_F32, 0, NULL, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++) {
        const struct ash_param *p = ash_model_param(model, i);
        if (i == victim && leave_out) continue;
        specs[kept] = (struct ash_tensor_spec){.name = p->name,
                                               .dtype = p->dtype,
                                               .dim_count = p->dim_count,
                                               .dims = {p->dims[0], p->dims[1]},
                                               .data = p->data};
        if (i == victim) {
            specs[kept].dims[0] = dim0;
            specs[kept].dtype = dtype;
        }
        kept++;
    }
    if (ash_safetensors_write_folder(dir, specs, kept, 0, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    free(specs);
    ash_model_close(model);
}

static void expect_refusal(const char *dir, const char *says)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    assert_true(ash_model_open(dir, &model, &err) < 0);
    assert_null(model);
    if (strstr(err.text, says) == NULL) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void test_broken_folders(void **state)
{
    char dir[512], path[1024];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/missing", scratch);
    write_damaged(dir, 3, true, 0, ASH_F32);
    expect_refusal(dir, "lack tensor 'model.layers.0.self_attn.k_proj.weight'");
    snprintf(dir, sizeof(dir), "%s/shape", scratch);
    write_damaged(dir, 3, false, 8, ASH_F32);
    expect_refusal(dir, "is [8, 32] but config.json makes it [16, 32]");
    snprintf(dir, sizeof(dir), "%s/dtype", scratch);
    write_damaged(dir, 3, false, 16, ASH_I32);
    expect_refusal(dir, "is I32");
    snprintf(dir, sizeof(dir), "%s/nowhere", scratch);
    expect_refusal(dir, "there is no model folder or .gguf file");
    expect_refusal(scratch, "it takes a folder with a config.json");
    snprintf(dir, sizeof(dir), "%s/one-file", scratch);
    snprintf(path, sizeof(path), "%s/model.gguf", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(mkdir(path, 0700), 0);     /* anything of that name */
    expect_refusal(dir, "one-file/model.gguf"); /* it is what the folder means */
    snprintf(dir, sizeof(dir), "%s/no-weights", scratch);
    write_damaged(dir, 3, false, 16, ASH_F32);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    expect_refusal(dir, "model.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_create_is_pure),
        cmocka_unit_test(test_broken_folders),
    };

    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
