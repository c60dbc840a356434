/* Biases that are trained with adapters: gradients are those of training the whole model, PEFT's names in the file,
 * what PEFT leaves out, and merging; and gradients of factors. */
#include <errno.h>
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

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/lora.h"
#include "model/lora_priv.h"
#include "model/model_priv.h"
#include "model/pass/pass.h"
#include "storage/safetensors/safetensors.h"

#define BASE TEST_DATA "/golden/gpt2-default"
#define ROWS 24

struct fixture {
    struct ash_exec exec;
    struct ash_lora *lora;
    struct ash_model *adapted, *whole;
    char dir[64];
};

/* Adapters of the attention's first product, with these biases; and the base with all weights to be trained. */
static void open_fixture(struct fixture *f, enum ash_lora_bias bias)
{
    static const char *const targets[] = {"c_attn"};
    struct ash_lora_opts opts = {
        .base_dir = BASE, .rank = 2, .alpha = 4, .targets = targets, .target_count = 1, .bias = bias};
    struct ash_model_config config = {0};
    struct ash_err err = {0};
    int rc;

    memset(f, 0, sizeof(*f));
    assert_int_equal(ash_exec_init(&f->exec, NULL, 2, NULL), 0);
    rc = ash_lora_open(&opts, &f->lora, &err);
    if (rc == 0) rc = ash_model_config_load(BASE, &config, &err);
    config.lora = f->lora;
    if (rc == 0) rc = ash_model_blank_slice(&config, NULL, &f->adapted, &err);
    if (rc == 0) rc = ash_lora_init(f->adapted, 1, &err);
    if (rc == 0) rc = ash_model_open(BASE, &f->whole, &err);
    if (rc == 0) rc = ash_model_own(f->whole, &err);
    if (rc < 0) fail_msg("%s", err.text);
    snprintf(f->dir, sizeof(f->dir), "/tmp/ashlar-test-bias-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
}

static void close_fixture(struct fixture *f)
{
    assert_int_equal(ash_dir_remove(f->dir, NULL), 0);
    ash_model_close(f->adapted);
    ash_model_close(f->whole);
    ash_lora_close(f->lora);
    ash_exec_fini(&f->exec);
}

/* The gradients of a drawn batch. The caller frees them. */
static float *gradients(struct fixture *f, struct ash_model *model)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_doc doc = {.count = ROWS};
    int32_t ids[ROWS], targets[ROWS];
    struct ash_batch batch = {.rows = ROWS, .ids = ids, .targets = targets, .docs = &doc, .doc_count = 1};
    float losses[ROWS], *sums = calloc(ash_model_grad_size(model), sizeof(*sums));
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    for (size_t r = 0; r < ROWS; r++) {
        ids[r] = (int32_t)ash_rng_below(5, 1, r, ash_model_get_config(model)->vocab);
        targets[r] = (int32_t)ash_rng_below(5, 2, r, ash_model_get_config(model)->vocab);
    }
    if (ash_pass_open(model, &f->exec, &opts, &pass, &err) < 0 ||
        ash_pass_train(pass, &batch, 1.0f, &(struct ash_pass_grads){.sums = sums}, losses, &err) < 0)
        fail_msg("%s", err.text);
    ash_pass_close(pass);
    return sums;
}

/* While B is 0, its gradient is A's product with that of the base's matrix, which GPT-2 stores [in, out]. */
static void check_factor(const struct fixture *f, int32_t b, const float *adapted, const float *whole)
{
    const struct ash_param *up = &f->adapted->params[b], *down = up - 1, *same;
    const float *a = (const float *)f->adapted->values.data + down->offset;
    size_t rank = down->dims[0], in = down->dims[1], out = up->dims[0];
    char name[96];

    ash_lora_base_name(up, name);
    snprintf(strstr(name, ".lora_B"), sizeof(".weight"), ".weight");
    same = ash_model_find(f->whole, name);
    assert_non_null(same);
    for (size_t o = 0; o < out; o++)
        for (size_t r = 0; r < rank; r++) {
            double sum = 0, found = (double)adapted[up->grad_offset + o * rank + r];

            for (size_t i = 0; i < in; i++)
                sum += (double)whole[same->grad_offset + i * out + o] * (double)a[r * in + i];
            sum *= 2; /* alpha / rank */
            if (fabs(found - sum) > 1e-4 * (fabs(sum) + 1e-3)) fail_msg("%s: %g instead of %g", up->name, found, sum);
        }
}

/* New adapters add nothing, so biases have the gradients, to the bit, that they have without adapters. */
static size_t compare_gradients(struct fixture *f)
{
    float *adapted = gradients(f, f->adapted), *whole = gradients(f, f->whole);
    size_t count = 0;

    for (size_t i = 0; i < f->adapted->param_count; i++) {
        const struct ash_param *param = &f->adapted->params[i], *same;
        char name[96];

        if (param->is_adapter) {
            if (strstr(param->name, ".lora_B") != NULL) check_factor(f, (int32_t)i, adapted, whole);
            continue;
        }
        ash_lora_base_name(param, name);
        same = ash_model_find(f->whole, name);
        assert_non_null(same);
        assert_int_equal(param->count, same->count);
        if (memcmp(adapted + param->grad_offset, whole + same->grad_offset, param->count * sizeof(float)) != 0)
            fail_msg("%s has another gradient than in the whole model", name);
        count++;
    }
    free(adapted);
    free(whole);
    return count;
}

/* Values that no base has, so that what is read back is what was written. */
static void draw_values(struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count; i++)
        for (size_t k = 0; k < model->params[i].count; k++)
            ((float *)model->values.data)[model->params[i].offset + k] = (float)ash_rng_uniform(9, i, k) - 0.5f;
    ash_model_refresh(model);
}

static void check_merge(struct fixture *f)
{
    for (size_t i = 0; i < f->whole->param_count; i++) {
        const struct ash_param *param = &f->whole->params[i];
        float *values = (float *)f->whole->values.data + param->offset, *before = malloc(param->count * sizeof(float));
        bool is_changed;

        memcpy(before, values, param->count * sizeof(float));
        ash_lora_merge(f->adapted, param->name, values);
        is_changed = memcmp(before, values, param->count * sizeof(float)) != 0;
        assert_int_equal(is_changed,
                         strstr(param->name, f->lora->bias == ASH_LORA_BIAS_ALL ? ".bias" : "c_attn.bias") ||
                             strstr(param->name, "c_attn.weight"));
        free(before);
    }
}

static void check_round(struct fixture *f, const char *const *names, size_t count)
{
    struct ash_lora *lora = NULL;
    struct ash_model *read = NULL;
    struct ash_safetensors *file = NULL;
    struct ash_err err = {0};
    char path[128];

    draw_values(f->adapted);
    if (ash_model_save(f->adapted, f->dir, ASH_F32, 0, NULL, &err) < 0 ||
        ash_lora_open_model(f->dir, BASE, &lora, &read, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(read->size, f->adapted->size);
    assert_int_equal(lora->bias, f->lora->bias);
    assert_memory_equal(read->values.data, f->adapted->values.data, read->size * sizeof(float));
    snprintf(path, sizeof(path), "%s/" ASH_LORA_WEIGHTS_FILE, f->dir);
    assert_int_equal(ash_safetensors_open(path, &file, NULL), 0);
    for (size_t i = 0; i < count; i++)
        if (ash_safetensors_find(file, names[i]) == NULL) fail_msg("the file lacks '%s'", names[i]);
    ash_safetensors_close(file);
    ash_model_close(read);
    ash_lora_close(lora);
    check_merge(f);
}

#define OF_LAYER ASH_LORA_PREFIX "transformer.h.1."

static void test_adapted(void **state)
{
    static const char *const names[] = {OF_LAYER "attn.c_attn.base_layer.bias", OF_LAYER "attn.c_attn.lora_A.weight"};
    struct fixture f;

    (void)state;
    open_fixture(&f, ASH_LORA_BIAS_ADAPTED);
    assert_int_equal(compare_gradients(&f), f.whole->config.layers);
    check_round(&f, names, 2);
    close_fixture(&f);
}

static void test_all(void **state)
{
    static const char *const names[] = {OF_LAYER "attn.c_attn.base_layer.bias", OF_LAYER "attn.c_proj.bias",
                                        OF_LAYER "ln_1.bias", OF_LAYER "mlp.c_fc.bias",
                                        ASH_LORA_PREFIX "transformer.ln_f.bias"};
    struct fixture f;

    (void)state;
    open_fixture(&f, ASH_LORA_BIAS_ALL);
    assert_int_equal(compare_gradients(&f), f.whole->config.layers * 6 + 1);
    check_round(&f, names, 5);
    close_fixture(&f);
}

/* Write the adapters' tensors with other names: `from` in a name becomes `to`; to NULL: without those that have it. */
static void rewrite(struct fixture *f, const char *from, const char *to)
{
    struct ash_model *model = f->adapted;
    struct ash_param *before = malloc(model->param_count * sizeof(*before));
    size_t kept = 0, count = model->param_count;

    memcpy(before, model->params, count * sizeof(*before));
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(before[i].name, from);

        if (at != NULL && to == NULL) continue;
        model->params[kept] = before[i];
        if (at != NULL)
            snprintf(model->params[kept].name, sizeof(before->name), "%.*s%s%s", (int)(at - before[i].name),
                     before[i].name, to, at + strlen(from));
        kept++;
    }
    model->param_count = kept;
    assert_int_equal(ash_model_save(model, f->dir, ASH_F32, 0, NULL, NULL), 0);
    model->param_count = count;
    memcpy(model->params, before, count * sizeof(*before));
    free(before);
}

/* The first bias of the adapters in the fixture's folder, or its error. */
static int read_first_bias(struct fixture *f, float *value_out, struct ash_err *err)
{
    struct ash_lora *lora = NULL;
    struct ash_model *read = NULL;
    int rc = ash_lora_open_model(f->dir, BASE, &lora, &read, err);

    for (size_t i = 0; rc == 0 && i < read->param_count; i++)
        if (strstr(read->params[i].name, "h.0.attn.c_attn.base_layer.bias") != NULL)
            *value_out = ((const float *)read->values.data)[read->params[i].offset];
    ash_model_close(read);
    ash_lora_close(lora);
    return rc;
}

static void test_peft_versions(void **state)
{
    const struct ash_param *bias;
    struct fixture f;
    struct ash_err err = {0};
    float value = 0.0f, drawn;

    (void)state;
    for (enum ash_lora_bias kind = ASH_LORA_BIAS_ADAPTED; kind <= ASH_LORA_BIAS_ALL; kind++) {
        open_fixture(&f, kind);
        draw_values(f.adapted);
        bias = ash_model_find(f.adapted, ASH_LORA_PREFIX "transformer.h.0.attn.c_attn.base_layer.bias");
        drawn = ((const float *)f.adapted->values.data)[bias->offset];
        rewrite(&f, ".base_layer", ""); /* as before PEFT 0.6 */
        if (read_first_bias(&f, &value, &err) < 0) fail_msg("%s", err.text);
        assert_true(value == drawn);
        rewrite(&f, ".base_layer.bias", NULL); /* lora_only since then */
        if (kind == ASH_LORA_BIAS_ADAPTED) {
            bias = ash_model_find(f.whole, "transformer.h.0.attn.c_attn.bias");
            if (read_first_bias(&f, &value, &err) < 0) fail_msg("%s", err.text);
            assert_true(value == ((const float *)f.whole->values.data)[bias->offset]);
        } else {
            assert_int_equal(read_first_bias(&f, &value, &err), -EINVAL);
            assert_non_null(strstr(err.text, "c_attn.base_layer.bias"));
        }
        close_fixture(&f);
    }
}

/* Adapters of documents share a base, so no bias of it can be theirs. */
static void test_attach(void **state)
{
    struct ash_lora_set set = {0};
    struct ash_model *base = NULL;
    struct ash_err err = {0};
    struct fixture f;

    (void)state;
    open_fixture(&f, ASH_LORA_BIAS_ADAPTED);
    assert_int_equal(ash_model_save(f.adapted, f.dir, ASH_F32, 0, NULL, NULL), 0);
    assert_int_equal(ash_model_open(BASE, &base, NULL), 0);
    assert_int_equal(ash_lora_attach(f.dir, base, &f.exec, ROWS, &set, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "ashlar model merge"));
    ash_model_close(base);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_adapted), cmocka_unit_test(test_all),
                                       cmocka_unit_test(test_peft_versions), cmocka_unit_test(test_attach)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
