/* The planner's memory of Ashlar's own trainer, compared with what the trainer itself says before it allocates. */
#include "unit/train/tiny.h"

#include <math.h>

#include "plan/own_memory.h"
#include "train/trainer.h"

#define TOLERANCE 0.03

static void compare_with_trainer(const char *const *settings, const struct ash_own_run *run, struct ash_shape shape)
{
    struct ash_trainer *trainer = NULL;
    struct ash_own_memory memory;
    struct ash_err err = {0};
    struct tiny tiny;
    double said;

    tiny_open(&tiny, settings);
    if (ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, &err) < 0) fail_msg("%s", err.text);
    struct ash_trainer_facts facts = ash_trainer_get_facts(trainer);
    said = (double)ash_train_memory_total(&facts.memory);
    assert_int_equal(ash_shape_complete(&shape, &err), 0);
    assert_true(ash_own_memory_of(&shape, run, &memory));
    print_message("trainer %.2f MB (state %.2f gradients %.2f activations %.2f), planner %.2f (%.2f %.2f %.2f)\n",
                  said * 1e-6, (double)facts.memory.state * 1e-6, (double)facts.memory.gradients * 1e-6,
                  (double)facts.memory.activations * 1e-6, memory.total * 1e-6, memory.state * 1e-6,
                  memory.gradients * 1e-6, memory.activations * 1e-6);
    if (fabs(memory.total / said - 1) > TOLERANCE) fail_msg("%.3f of what the trainer says", memory.total / said);
    ash_trainer_close(trainer);
    ash_opts_close(tiny.opts);
}

static struct ash_shape shape_of(double hidden, double layers, double ffn, double vocab)
{
    return (struct ash_shape){.layers = layers,
                              .hidden = hidden,
                              .heads = 4,
                              .kv_heads = 2,
                              .ffn = ffn,
                              .gated = true,
                              .vocab = vocab,
                              .tied = false};
}

static void test_formula_is_the_trainers(void **state)
{
    struct ash_own_run run = {.seq_tokens = 512, .micro_batch = 8, .grains = 1, .threads = 2};

    (void)state;
    compare_with_trainer(SETTINGS("model.hidden=128", "model.layers=4", "model.ffn=512", "data.seq=512",
                                  "train.global_batch=8", "train.grains=1", "train.micro_batch=8",
                                  "train.precision=fp32"),
                         &run, shape_of(128, 4, 512, TINY_VOCAB));
    run = (struct ash_own_run){.seq_tokens = 32, .micro_batch = 2, .grains = 4, .threads = 2, .bf16 = true};
    run.recompute = ASH_OWN_FULL;
    compare_with_trainer(SETTINGS("model.hidden=512", "model.layers=4", "model.ffn=2048", "data.seq=32",
                                  "train.global_batch=8", "train.grains=4", "train.micro_batch=2",
                                  "train.precision=bf16", "train.recompute=full"),
                         &run, shape_of(512, 4, 2048, TINY_VOCAB));
    run = (struct ash_own_run){.seq_tokens = 256, .micro_batch = 4, .grains = 2, .threads = 2, .bf16 = true};
    run.recompute = ASH_OWN_SELECTIVE;
    compare_with_trainer(SETTINGS("model.hidden=192", "model.layers=4", "model.ffn=768", "model.vocab=30000",
                                  "data.seq=256", "train.global_batch=8", "train.grains=2", "train.micro_batch=4",
                                  "train.precision=bf16", "train.recompute=selective"),
                         &run, shape_of(192, 4, 768, 30000));
}

static void test_what_it_does_not_know_is_said(void **state)
{
    struct ash_own_run run = {.seq_tokens = 16, .micro_batch = 1, .grains = 1, .threads = 1};
    struct ash_own_memory memory = {.total = 7};
    struct ash_shape shape;

    (void)state;
    assert_int_equal(ash_shape_find("deepseek-v3", &shape, NULL), 0);
    assert_false(ash_own_memory_of(&shape, &run, &memory));
    assert_float_equal(memory.total, 7, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula_is_the_trainers),
                                       cmocka_unit_test(test_what_it_does_not_know_is_said)};

    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
