/* The trainer: a step depends on nothing but state, number and batch. Threads, micro-batches and recomputation leave
 * every bit alone, in float32 and bf16 and in every family; bad steps leave the weights alone; learning happens. */
#include "unit/train/tiny.h"

#include <errno.h>
#include <math.h>

#include "train/trainer.h"

#define STEPS 5

struct outcome {
    uint64_t hash;
    float losses[STEPS];
    double valid_loss;
};

static struct outcome train(const char *const *settings)
{
    struct outcome outcome = {0};
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct ash_step step;
    struct tiny tiny;

    tiny_open(&tiny, settings);
    if (ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, &err) < 0) fail_msg("%s", err.text);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(ash_trainer_step(trainer, &step, &err), 0);
        assert_int_equal(step.verdict, ASH_GUARD_OK);
        outcome.losses[i] = (float)step.loss;
    }
    assert_int_equal(ash_trainer_validate(trainer, &outcome.valid_loss, NULL, &err), 0);
    outcome.hash = ash_state_hash(ash_trainer_state(trainer));
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return outcome;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_int_equal(a->hash, b->hash);
    assert_memory_equal(a->losses, b->losses, sizeof(a->losses));
    assert_true(a->valid_loss == b->valid_loss);
}

static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16"};

static void test_threads_leave_every_bit_alone(void **state)
{
    static const char *const threads[] = {"runtime.threads=2", "runtime.threads=3", "runtime.threads=5"};

    (void)state;
    for (size_t p = 0; p < 2; p++) {
        struct outcome one = train(SETTINGS(precisions[p], "runtime.threads=1"));
        for (size_t t = 0; t < 3; t++) {
            struct outcome many = train(SETTINGS(precisions[p], threads[t]));
            assert_same(&one, &many);
        }
    }
}

static void test_micro_batches_leave_every_bit_alone(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        struct outcome whole = train(SETTINGS(precisions[p], "train.micro_batch=4"));
        struct outcome half = train(SETTINGS(precisions[p], "train.micro_batch=2"));
        struct outcome single = train(SETTINGS(precisions[p], "train.micro_batch=1"));
        assert_same(&whole, &half);
        assert_same(&whole, &single);
    }
}

/* Sequences that are not whole groups of k, and experts, whose tokens end anywhere. */
static void test_odd_sequences_leave_every_bit_alone(void **state)
{
    static const char *const lengths[] = {"data.seq=13", "data.seq=3", "data.seq=22"};

    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < 3; i++) {
            const char *type = i == 1 ? "model.type=mixtral" : "model.type=llama";
            struct outcome whole =
                train(SETTINGS(precisions[p], lengths[i], type, "model.experts=4", "train.micro_batch=4"));
            struct outcome single = train(SETTINGS(precisions[p], lengths[i], type, "model.experts=4",
                                                   "train.micro_batch=1", "runtime.threads=3", "train.recompute=full"));
            assert_same(&whole, &single);
        }
}

static void test_recomputation_leaves_every_bit_alone(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        struct outcome none = train(SETTINGS(precisions[p], "train.recompute=none"));
        struct outcome selective = train(SETTINGS(precisions[p], "train.recompute=selective"));
        struct outcome full = train(SETTINGS(precisions[p], "train.recompute=full"));
        assert_same(&none, &selective);
        assert_same(&none, &full);
    }
}

static void test_every_family_trains_to_the_same_bits(void **state)
{
    static const char *const types[] = {"model.type=llama", "model.type=mistral", "model.type=qwen2",
                                        "model.type=qwen3", "model.type=mixtral", "model.type=qwen3_moe"};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct outcome plain = train(SETTINGS(types[i], "model.experts=4", "runtime.threads=1", "train.micro_batch=4"));
        struct outcome other = train(
            SETTINGS(types[i], "model.experts=4", "runtime.threads=3", "train.micro_batch=1", "train.recompute=full"));
        assert_same(&plain, &other);
    }
    struct outcome plain = train(SETTINGS("model.type=gpt2", "model.kv_heads=0", "train.micro_batch=4", "model.ffn=0"));
    struct outcome other = train(SETTINGS("model.type=gpt2", "model.kv_heads=0", "train.micro_batch=2", "model.ffn=0",
                                          "runtime.threads=5", "train.recompute=selective"));
    assert_same(&plain, &other);
    plain = train(SETTINGS("model.tied=true", "train.micro_batch=4"));
    other = train(SETTINGS("model.tied=true", "train.micro_batch=1", "runtime.threads=3"));
    assert_same(&plain, &other);
}

/* The hash must be able to tell runs apart, or the tests above say nothing. */
static void test_what_counts_changes_the_hash(void **state)
{
    static const char *const changes[] = {"train.seed=2",
                                          "optimizer.lr=0.0101",
                                          "optimizer.decay=all",
                                          "train.precision=bf16",
                                          "optimizer.weight_decay=0.2",
                                          "schedule.warmup=4",
                                          "optimizer.clip=0.01",
                                          "train.grains=12"};
    struct outcome base = train(NULL);

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        struct outcome other = train(SETTINGS(changes[i]));
        assert_int_not_equal(base.hash, other.hash);
    }
}

static void test_learning_happens(void **state)
{
    struct ash_trainer *trainer = NULL;
    struct ash_step step;
    struct tiny tiny;
    double first = 0.0, before = 0.0, after = 0.0;

    (void)state;
    tiny_open(&tiny, SETTINGS("train.steps=60", "model.hidden=32", "model.ffn=64"));
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, NULL), 0);
    assert_int_equal(ash_trainer_validate(trainer, &before, NULL, NULL), 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(ash_trainer_step(trainer, &step, NULL), 0);
        if (i == 0) first = step.loss;
        assert_int_equal(step.step, i + 1);
        assert_int_equal(step.tokens, 12 * 16);
        assert_in_range(step.targets, 12 * 16 * 3 / 4, 12 * 16 - 1); /* the last token of a document has none */
    }
    assert_int_equal(ash_trainer_validate(trainer, &after, NULL, NULL), 0);
    assert_true(fabs(first - log(TINY_VOCAB)) < 0.3); /* new weights know nothing */
    assert_true(fabs(before - log(TINY_VOCAB)) < 0.3);
    assert_true(after < 0.6 * before && step.loss < 0.6 * first);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
}

static void test_padding_stays_zero(void **state)
{
    struct ash_trainer *trainer = NULL;
    struct ash_step step;
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, SETTINGS("model.hidden=24", "model.ffn=36"));
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ash_trainer_step(trainer, &step, NULL), 0);
    struct ash_state *run = ash_trainer_state(trainer);
    const float *buffers[] = {ash_model_values(run->model), run->m.data, run->v.data};
    size_t at = 0, padding = 0;
    for (size_t p = 0; p <= ash_model_param_count(run->model); p++) {
        const struct ash_param *param = p < ash_model_param_count(run->model) ? ash_model_param(run->model, p) : NULL;
        for (; at < (param != NULL ? param->offset : ash_model_size(run->model)); at++, padding++)
            for (int b = 0; b < 3; b++)
                assert_true(buffers[b][at] == 0.0f);
        if (param != NULL) at += param->count;
    }
    assert_true(padding > 0);
    assert_int_equal(ash_model_size(run->model) - ash_model_weight_count(run->model), padding);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
}

static void test_a_bad_step_leaves_weights_and_moments_alone(void **state)
{
    struct ash_trainer *trainer = NULL;
    struct ash_step step;
    struct tiny tiny;
    int skipped = 0;

    (void)state;
    tiny_open(&tiny, SETTINGS("optimizer.lr=1e30", "schedule.kind=constant", "schedule.warmup=0"));
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, NULL), 0);
    struct ash_state *run = ash_trainer_state(trainer);
    size_t bytes = ash_model_size(run->model) * sizeof(float);
    float *weights = malloc(bytes), *m = malloc(bytes);
    assert_true(weights != NULL && m != NULL);
    for (int i = 0; i < 6; i++) {
        uint64_t updates = run->updates;
        memcpy(weights, ash_model_values(run->model), bytes);
        memcpy(m, run->m.data, bytes);
        assert_int_equal(ash_trainer_step(trainer, &step, NULL), 0);
        assert_int_equal(run->step, i + 1);
        if (step.verdict == ASH_GUARD_OK) continue;
        skipped++;
        assert_int_equal(step.verdict, ASH_GUARD_NOT_FINITE);
        assert_non_null(strstr(step.reason, "not finite"));
        assert_int_equal(run->updates, updates);
        assert_memory_equal(weights, ash_model_values(run->model), bytes);
        assert_memory_equal(m, run->m.data, bytes);
    }
    assert_true(skipped > 0);
    assert_int_equal(run->guard.skipped, skipped);
    free(weights);
    free(m);
    ash_trainer_close(trainer);
    tiny_close(&tiny);
}

static void expect_refusal(const char *const *settings, int code, const char *part)
{
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct tiny tiny;

    tiny_open(&tiny, settings);
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, &err), code);
    if (strstr(err.text, part) == NULL) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_null(trainer);
    tiny_close(&tiny);
}

static void test_mistakes_are_named(void **state)
{
    char data[PATH_MAX + 32], valid[PATH_MAX + 32], from[PATH_MAX + 32];

    (void)state;
    expect_refusal(SETTINGS("model.vocab=10"), -EINVAL, "ids up to 15 but the model's vocabulary has only 10");
    expect_refusal(SETTINGS("runtime.backend=abacus"), -EINVAL, "abacus");
    expect_refusal(SETTINGS("data.seq=100000", "train.valid_every=0"), -EINVAL, "data.train");
    snprintf(data, sizeof(data), "data.train=%s", scratch_path("nothing"));
    expect_refusal(SETTINGS(data), -ENOENT, "data.train");
    snprintf(valid, sizeof(valid), "data.valid=%s", scratch_path("nothing"));
    expect_refusal(SETTINGS(valid), -ENOENT, "data.valid");
    snprintf(from, sizeof(from), "model.from=%s", scratch_path("nothing"));
    expect_refusal(SETTINGS(from), -ENOENT, "nothing");
    snprintf(data, sizeof(data), "data.tokenizer=%s", scratch_path("nothing"));
    expect_refusal(SETTINGS(data), -ENOENT, "tokenizer.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_leave_every_bit_alone),
        cmocka_unit_test(test_micro_batches_leave_every_bit_alone),
        cmocka_unit_test(test_odd_sequences_leave_every_bit_alone),
        cmocka_unit_test(test_recomputation_leaves_every_bit_alone),
        cmocka_unit_test(test_every_family_trains_to_the_same_bits),
        cmocka_unit_test(test_what_counts_changes_the_hash),
        cmocka_unit_test(test_learning_happens),
        cmocka_unit_test(test_padding_stays_zero),
        cmocka_unit_test(test_a_bad_step_leaves_weights_and_moments_alone),
        cmocka_unit_test(test_mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
