/* The state's hash against its definition, whatever the slices; it sees every value, name, kind and counter. */
#include "unit/train/tiny.h"

#include "base/hash.h"
#include "train/trainer.h"

static struct tiny tiny;
static struct ash_trainer *trainer;

static int open_trainer(void **state)
{
    struct ash_step step;

    if (tiny_setup(state) != 0) return -1;
    tiny_open(&tiny, SETTINGS("runtime.threads=3", "model.hidden=24", "model.ffn=36"));
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ash_trainer_step(trainer, &step, NULL), 0);
    return 0;
}

static int close_trainer(void **state)
{
    ash_trainer_close(trainer);
    tiny_close(&tiny);
    return scratch_close(state);
}

/* One tensor in slices of a length that divides nothing. */
static uint64_t hash_sliced(const char *kind, const struct ash_param *param, const float *values)
{
    char name[128];
    uint64_t sum = 0;

    snprintf(name, sizeof(name), "%s/%s", kind, param->name);
    for (size_t first = 0; first < param->count; first += 37) {
        size_t count = param->count - first < 37 ? param->count - first : 37;
        uint32_t words[37];
        memcpy(words, values + param->offset + first, count * sizeof(float));
        sum += ash_hash_words(words, count, first, ash_hash_str(name));
    }
    return sum;
}

static void test_any_slicing_gives_the_same_sum(void **unused)
{
    const struct ash_state *state = ash_trainer_state(trainer);
    uint64_t sum = 0;

    (void)unused;
    for (size_t i = ash_model_param_count(state->model); i-- > 0;) { /* backwards, too */
        const struct ash_param *param = ash_model_param(state->model, i);
        sum += hash_sliced("v", param, state->v.data);
        sum += hash_sliced("weights", param, ash_model_values(state->model));
        sum += hash_sliced("m", param, state->m.data);
    }
    sum = ash_hash_mix(sum ^ ash_hash_mix(state->step ^ ash_hash_mix(state->updates)));
    assert_int_equal(ash_state_hash(state), sum);
}

static void swap(float *a, float *b)
{
    float kept = *a;

    *a = *b;
    *b = kept;
}

static void test_it_sees_every_value(void **unused)
{
    struct ash_state *state = ash_trainer_state(trainer);
    float *buffers[] = {ash_model_values(state->model), state->m.data, state->v.data};
    uint64_t before = ash_state_hash(state);

    (void)unused;
    for (size_t i = 0; i < ash_model_param_count(state->model); i++) {
        const struct ash_param *param = ash_model_param(state->model, i);
        for (int b = 0; b < 3; b++) {
            float *last = buffers[b] + param->offset + param->count - 1, kept = *last;
            *last = -kept - 1.0f;
            assert_int_not_equal(ash_state_hash(state), before);
            *last = kept;
        }
        assert_int_equal(ash_state_hash(state), before);
    }
}

static void test_it_sees_places_kinds_and_counters(void **unused)
{
    struct ash_state *state = ash_trainer_state(trainer);
    float *weights = ash_model_values(state->model), *m = state->m.data, *v = state->v.data;
    uint64_t before = ash_state_hash(state);

    (void)unused;
    assert_true(weights[0] != weights[1] && m[0] != v[0]);
    swap(&weights[0], &weights[1]);
    assert_int_not_equal(ash_state_hash(state), before);
    swap(&weights[0], &weights[1]);
    swap(&m[0], &v[0]);
    assert_int_not_equal(ash_state_hash(state), before);
    swap(&m[0], &v[0]);
    state->step++;
    assert_int_not_equal(ash_state_hash(state), before);
    state->step--;
    state->updates++;
    assert_int_not_equal(ash_state_hash(state), before);
    state->updates--;
    assert_int_equal(ash_state_hash(state), before);
}

static void test_padding_does_not_count(void **unused)
{
    struct ash_state *state = ash_trainer_state(trainer);
    uint64_t before = ash_state_hash(state);
    size_t padding = 0;

    (void)unused;
    for (size_t p = 0; p + 1 < ash_model_param_count(state->model); p++) {
        const struct ash_param *param = ash_model_param(state->model, p), *next = ash_model_param(state->model, p + 1);
        for (size_t i = param->offset + param->count; i < next->offset; i++, padding++)
            ash_model_values(state->model)[i] = 1.0f;
    }
    assert_true(padding > 0);
    assert_int_equal(ash_state_hash(state), before);
}

/* Another trainer of the same job takes over the state's memory, and trains on as this one would have. */
static void test_a_state_is_taken_over_without_a_copy(void **unused)
{
    struct ash_state *state = ash_trainer_state(trainer), *other;
    const float *values = ash_model_values(state->model), *m = state->m.data;
    uint64_t before = ash_state_hash(state), after;
    struct ash_trainer *second = NULL;
    struct ash_step step;

    (void)unused;
    assert_int_equal(ash_trainer_open(&tiny.job, NULL, NULL, NULL, &second, NULL), 0);
    other = ash_trainer_state(second);
    assert_true(ash_state_take(other, state));
    assert_int_equal(ash_state_renew(other, NULL), 0);
    assert_ptr_equal(ash_model_values(other->model), values);
    assert_ptr_equal(other->m.data, m);
    assert_int_equal(ash_state_hash(other), before);
    assert_int_equal(ash_trainer_step(second, &step, NULL), 0);
    after = ash_state_hash(other);
    assert_true(ash_state_take(state, other)); /* and back: it continues from there */
    assert_int_equal(ash_state_renew(state, NULL), 0);
    assert_int_equal(ash_state_hash(state), after);
    assert_int_equal(step.step, state->step);
    ash_trainer_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_slicing_gives_the_same_sum),       cmocka_unit_test(test_it_sees_every_value),
        cmocka_unit_test(test_it_sees_places_kinds_and_counters),    cmocka_unit_test(test_padding_does_not_count),
        cmocka_unit_test(test_a_state_is_taken_over_without_a_copy),
    };
    return cmocka_run_group_tests(tests, open_trainer, close_trainer);
}
