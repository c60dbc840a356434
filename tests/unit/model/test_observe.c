/* What layers read: the first layer's q reads normed embeddings, and other layers read as much as there are rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/files/open.h"
#include "model/pass/observe.h"

#define COUNT 300 /* more than a window */

static size_t find(const struct ash_model *model, const char *name)
{
    for (size_t i = 0; i < ash_model_param_count(model); i++)
        if (strcmp(ash_model_param(model, i)->name, name) == 0) return i;
    fail_msg("no %s", name);
    return 0;
}

static void test_the_first_layer_reads_normed_embeddings(void **state)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    struct ash_inputs *inputs;
    int32_t ids[COUNT];
    double sizes[64] = {0}, squares[64] = {0};
    const float *embed, *norm;
    size_t q, down;

    (void)state;
    assert_int_equal(ash_model_open(TEST_DATA "/golden/llama-gqa", &model, &err), 0);
    inputs = calloc(ash_model_param_count(model), sizeof(*inputs));
    embed = ash_model_param(model, find(model, "model.embed_tokens.weight"))->data;
    norm = ash_model_param(model, find(model, "model.layers.0.input_layernorm.weight"))->data;
    q = find(model, "model.layers.0.self_attn.q_proj.weight");
    down = find(model, "model.layers.1.mlp.down_proj.weight");
    for (size_t i = 0; i < COUNT; i++) {
        size_t hidden = ash_model_get_config(model)->hidden;
        const float *row;
        double sum = 0;

        assert_true(hidden <= 64);
        ids[i] = (int32_t)ash_rng_below(1, 0, i, ash_model_get_config(model)->vocab);
        row = embed + (size_t)ids[i] * hidden;
        for (size_t c = 0; c < hidden; c++)
            sum += (double)row[c] * (double)row[c];
        for (size_t c = 0; c < hidden; c++) {
            double x =
                (double)row[c] * (double)norm[c] / sqrt(sum / (double)hidden + ash_model_get_config(model)->norm_eps);

            sizes[c] += fabs(x) / COUNT;
            squares[c] += x * x / COUNT;
        }
    }
    assert_int_equal(ash_pass_observe(model, ids, COUNT, inputs, &err), 0);
    assert_int_equal(inputs[q].count, ash_model_get_config(model)->hidden);
    for (size_t c = 0; c < inputs[q].count; c++) {
        assert_true(fabs(inputs[q].sizes[c] - sizes[c]) < 1e-6 * (1 + sizes[c]));
        assert_true(fabs(inputs[q].squares[c] - squares[c]) < 1e-5 * (1 + squares[c]));
    }
    assert_int_equal(inputs[down].count, ash_model_get_config(model)->ffn);
    assert_int_equal(ash_pass_observe(model, ids, 1, inputs, &err), -22);
    ash_inputs_free(inputs, ash_model_param_count(model));
    free(inputs);
    ash_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_first_layer_reads_normed_embeddings)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
