/* A bias of the logits (phimoe's lm_head_bias): logits are higher by it, and its gradient is that of a softmax. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/pass.h"

#define ROWS 70
#define VOCAB 96

static const char config_text[] =
    "{'model_type':'phimoe','vocab_size':96,'hidden_size':32,'num_hidden_layers':2,'num_attention_heads':4,"
    "'num_key_value_heads':2,'intermediate_size':40,'num_local_experts':4,'lm_head_bias':true,'attention_bias':true}";

struct fixture {
    struct ash_model *model;
    struct ash_exec exec;
    struct ash_pass *pass;
    int32_t ids[ROWS], targets[ROWS];
    struct ash_doc doc;
    struct ash_batch batch;
};

static void fixture_open(struct fixture *f, size_t head_rows)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true, .head_rows = head_rows};
    struct ash_model_config config;
    struct ash_err err = {0};
    char text[sizeof(config_text)];
    json_t *json = NULL;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = config_text[i] == '\'' ? '"' : config_text[i];
    *f = (struct fixture){.doc = {.count = ROWS}};
    for (size_t i = 0; i < ROWS; i++) {
        f->ids[i] = (int32_t)ash_rng_below(7, 1, i, VOCAB);
        f->targets[i] = (int32_t)ash_rng_below(7, 2, i, VOCAB);
    }
    f->batch = (struct ash_batch){.rows = ROWS, .ids = f->ids, .targets = f->targets, .docs = &f->doc, .doc_count = 1};
    if (ash_json_parse(text, sizeof(text) - 1, "config", &json, &err) < 0 ||
        ash_model_config_parse(json, &config, &err) < 0 || ash_model_create(&config, 1, &f->model, &err) < 0 ||
        ash_exec_init(&f->exec, NULL, 2, &err) < 0 || ash_pass_open(f->model, &f->exec, &opts, &f->pass, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(json);
}

static void fixture_close(struct fixture *f)
{
    ash_pass_close(f->pass);
    ash_exec_fini(&f->exec);
    ash_model_close(f->model);
}

static void get_logits(struct fixture *f, float *logits)
{
    size_t wanted[ROWS];
    struct ash_err err = {0};

    for (size_t i = 0; i < ROWS; i++)
        wanted[i] = i;
    if (ash_pass_infer(f->pass, &f->batch, NULL, wanted, ROWS, logits, &err) < 0) fail_msg("%s", err.text);
}

static void test_forward(void **state)
{
    static float before[ROWS * VOCAB], after[ROWS * VOCAB];
    struct fixture f;

    (void)state;
    fixture_open(&f, 0);
    float *bias = ash_model_values(f.model) + ash_model_find(f.model, "lm_head.bias")->offset;
    get_logits(&f, before);
    for (size_t v = 0; v < VOCAB; v++)
        bias[v] = (float)v / 8;
    ash_model_refresh(f.model);
    get_logits(&f, after);
    for (size_t i = 0; i < ROWS * VOCAB; i++)
        assert_true(fabs((double)after[i] - (double)before[i] - (double)(i % VOCAB) / 8) < 1e-5);
    fixture_close(&f);
}

/* head_rows: of a piece; several add up. */
static void check_gradient(size_t head_rows)
{
    static float logits[ROWS * VOCAB];
    double want[VOCAB] = {0};
    float losses[ROWS];
    struct fixture f;
    struct ash_err err = {0};

    fixture_open(&f, head_rows);
    float *sums = calloc(ash_model_grad_size(f.model), sizeof(*sums));
    get_logits(&f, logits);
    for (size_t r = 0; r < ROWS; r++) {
        double all = 0;

        for (size_t v = 0; v < VOCAB; v++)
            all += exp((double)logits[r * VOCAB + v]);
        for (size_t v = 0; v < VOCAB; v++)
            want[v] += exp((double)logits[r * VOCAB + v]) / all - (f.targets[r] == (int32_t)v);
    }
    if (ash_pass_train(f.pass, &f.batch, 1, &(struct ash_pass_grads){.sums = sums}, losses, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t v = 0; v < VOCAB; v++) {
        double got = (double)sums[ash_model_find(f.model, "lm_head.bias")->offset + v];

        if (fabs(got - want[v]) > 1e-5) fail_msg("token %zu: %g, want %g", v, got, want[v]);
    }
    free(sums);
    fixture_close(&f);
}

static void test_gradient(void **state)
{
    (void)state;
    check_gradient(0);
    check_gradient(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_gradient)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
