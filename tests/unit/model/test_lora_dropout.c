/* Dropout of adapters: what is left out depends on the sequence's number alone, and gradients are those of the loss
 * with the same inputs left out, as differences of losses say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/files/lora_folder.h"
#include "model/lora.h"
#include "model/model_priv.h"
#include "model/pass/pass.h"

#define POST TEST_DATA "/golden/post/"
#define SEQ 16
#define SEQUENCES 3
#define ROWS (SEQ * SEQUENCES)

struct fixture {
    struct ash_exec exec;
    struct ash_lora *lora;
    struct ash_model *model;
    struct ash_pass *pass;
    int32_t ids[ROWS], targets[ROWS];
    struct ash_doc docs[SEQUENCES];
    float losses[ROWS];
    float *sums; /* of gradients */
};

static void open_fixture(struct fixture *f, double dropout)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_err err = {0};
    size_t vocab;

    memset(f, 0, sizeof(*f));
    if (ash_exec_init(&f->exec, NULL, 2, &err) < 0) fail_msg("%s", err.text);
    if (ash_lora_open_model(POST "lora/llama-all-rslora", POST "models/llama", &f->lora, &f->model, &err) < 0)
        fail_msg("%s", err.text);
    f->lora->dropout = dropout;
    if (ash_pass_open(f->model, &f->exec, &opts, &f->pass, &err) < 0) fail_msg("%s", err.text);
    vocab = ash_model_get_config(f->model)->vocab;
    for (size_t r = 0; r < ROWS; r++) {
        f->ids[r] = (int32_t)ash_rng_below(1, 1, r, vocab);
        f->targets[r] = (int32_t)ash_rng_below(1, 2, r, vocab);
    }
    for (size_t s = 0; s < SEQUENCES; s++)
        f->docs[s] = (struct ash_doc){.row = s * SEQ, .count = SEQ};
    f->sums = calloc(ash_model_grad_size(f->model), sizeof(float));
}

static void close_fixture(struct fixture *f)
{
    free(f->sums);
    ash_pass_close(f->pass);
    ash_model_close(f->model);
    ash_lora_close(f->lora);
    ash_exec_fini(&f->exec);
}

/* The loss of some sequences from `first` on, with these numbers; its gradient is in f->sums. */
static double loss_of(struct fixture *f, size_t first, size_t count, const uint64_t *numbers)
{
    struct ash_batch batch = {.rows = count * SEQ,
                              .ids = f->ids + first * SEQ,
                              .targets = f->targets + first * SEQ,
                              .docs = f->docs,
                              .doc_count = count,
                              .seq_rows = SEQ,
                              .dropout = {.seed = 7, .numbers = numbers}};
    struct ash_pass_grads grads = {.sums = f->sums};
    struct ash_err err = {0};
    double loss = 0.0;

    memset(f->sums, 0, ash_model_grad_size(f->model) * sizeof(float));
    if (ash_pass_train(f->pass, &batch, 1.0f, &grads, f->losses, &err) < 0) fail_msg("%s", err.text);
    for (size_t r = 0; r < batch.rows; r++)
        loss += (double)f->losses[r];
    return loss;
}

static void test_numbers(void **state)
{
    const uint64_t numbers[SEQUENCES] = {40, 7, 1000003}, others[SEQUENCES] = {41, 8, 1000004};
    struct fixture f;
    float together[ROWS];
    double dropped, other, whole;

    (void)state;
    open_fixture(&f, 0.3);
    whole = loss_of(&f, 0, SEQUENCES, NULL);
    other = loss_of(&f, 0, SEQUENCES, others);
    dropped = loss_of(&f, 0, SEQUENCES, numbers);
    assert_true(dropped != whole && dropped != other && other != whole);
    memcpy(together, f.losses, sizeof(together));
    for (size_t s = 0; s < SEQUENCES; s++) {
        loss_of(&f, s, 1, &numbers[s]);
        assert_memory_equal(f.losses, together + s * SEQ, SEQ * sizeof(float));
    }
    close_fixture(&f);
    open_fixture(&f, 0.0);
    assert_true(loss_of(&f, 0, SEQUENCES, numbers) == whole);
    close_fixture(&f);
}

static void test_gradients(void **state)
{
    const uint64_t numbers[SEQUENCES] = {1, 2, 3};
    const float step = 1e-3f;
    struct fixture f;

    (void)state;
    open_fixture(&f, 0.4);
    for (size_t p = 0; p < f.model->param_count; p++) {
        const struct ash_param *param = &f.model->params[p];
        float *values = (float *)f.model->values.data + param->offset, *before = malloc(param->count * sizeof(float));
        double expected = 0.0, change[2];

        loss_of(&f, 0, SEQUENCES, numbers);
        memcpy(before, values, param->count * sizeof(float));
        for (size_t k = 0; k < param->count; k++)
            expected += (double)f.sums[param->grad_offset + k] * (ash_rng_uniform(3, p, k) - 0.5);
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < param->count; k++)
                values[k] = before[k] + (side == 0 ? step : -step) * (float)(ash_rng_uniform(3, p, k) - 0.5);
            ash_model_refresh(f.model);
            change[side] = loss_of(&f, 0, SEQUENCES, numbers);
        }
        memcpy(values, before, param->count * sizeof(float));
        ash_model_refresh(f.model);
        change[0] = (change[0] - change[1]) / (2.0 * (double)step);
        if (fabs(change[0] - expected) > 0.02 * fabs(expected) + 0.02)
            fail_msg("%s: %g by differences, %g by the pass", param->name, change[0], expected);
        free(before);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_gradients)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
