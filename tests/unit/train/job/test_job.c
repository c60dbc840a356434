/* Jobs: what is refused with which words, which numbers are used where a setting says "choose", YAML and back, and that
 * every model type gives a config.json that the model code takes. */
#include "unit/train/tiny.h"

#include <errno.h>

#include "base/assert.h"

static struct ash_err err;

static void expect_refusal(const char *const *settings, const char *part)
{
    struct tiny tiny;

    err = (struct ash_err){0};
    assert_int_equal(tiny_try(&tiny, settings, &err), -EINVAL);
    if (strstr(err.text, part) == NULL) fail_msg("'%s' does not say '%s'", err.text, part);
}

static void test_contradictions_are_named(void **state)
{
    (void)state;
    expect_refusal(SETTINGS("train.steps=0"), "give train.steps or train.tokens");
    expect_refusal(SETTINGS("train.steps=5", "train.tokens=1000000"), "contradict each other");
    expect_refusal(SETTINGS("train.grains=5"), "train.grains=5 does not divide train.global_batch=12");
    expect_refusal(SETTINGS("train.micro_batch=3"), "train.micro_batch=3 does not divide a grain of 4");
    expect_refusal(SETTINGS("schedule.warmup=21"), "schedule.warmup=21 is longer than the run of 20");
    expect_refusal(SETTINGS("schedule.kind=wsd", "schedule.warmup=10", "schedule.decay_steps=11"),
                   "do not fit into 20 steps");
    expect_refusal(SETTINGS("model.kv_heads=3"), "model.kv_heads=3 does not divide model.heads=4");
    expect_refusal(SETTINGS("model.hidden=18"), "model.heads=4 does not divide model.hidden=18");
    expect_refusal(SETTINGS("model.head_dim=7"), "model.head_dim=7 must be even");
    expect_refusal(SETTINGS("model.hidden=4000"), "a head of 1000");
    expect_refusal(SETTINGS("model.type=gpt2"), "gpt2 has neither");
    expect_refusal(SETTINGS("model.max_positions=15"), "data.seq=16 is longer than model.max_positions=15");
}

static void test_adapters_without_a_rank_are_refused(void **state)
{
    (void)state;
    expect_refusal(SETTINGS("lora.targets=q_proj,v_proj"), "lora.targets is given");
    expect_refusal(SETTINGS("lora.alpha=32"), "set lora.rank");
    expect_refusal(SETTINGS("lora.dropout=0.1"), "lora.dropout");
    expect_refusal(SETTINGS("lora.rslora=true"), "lora.rslora");
    expect_refusal(SETTINGS("lora.modules_to_save=lm_head"), "lora.modules_to_save");
    expect_refusal(SETTINGS("lora.rank_pattern=q_proj:4"), "lora.rank_pattern");
}

static void test_groups_of_one_answer_are_refused(void **state)
{
    (void)state;
    expect_refusal(SETTINGS("train.method=rl", "rl.samples=1", "data.seq=1024"), "rl.samples=1");
    expect_refusal(SETTINGS("train.method=rl", "rl.samples=1", "data.seq=1024", "rl.algorithm=rloo"), "rl.samples=1");
}

static void test_no_validation_is_an_empty_word(void **state)
{
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, SETTINGS("data.valid="));
    assert_null(tiny.job.data.valid);
    tiny_close(&tiny);
}

static void test_data_are_needed(void **state)
{
    struct ash_job job;
    struct ash_opts *opts = NULL;
    const char *yaml = "train: {steps: 5}\n";

    (void)state;
    assert_int_equal(ash_job_parse(yaml, strlen(yaml), "j", &job, &opts, &err), -EINVAL);
    assert_non_null(strstr(err.text, "data.train"));
    assert_null(opts);
}

static void test_choices_are_made(void **state)
{
    static const struct {
        const char *batch;
        int64_t grains;
    } cases[] = {{"train.global_batch=64", 8},
                 {"train.global_batch=12", 4},
                 {"train.global_batch=6", 2},
                 {"train.global_batch=7", 1}};
    struct tiny tiny;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        tiny_open(&tiny, SETTINGS(cases[i].batch, "train.grains=0"));
        assert_int_equal(tiny.job.train.grains, cases[i].grains);
        tiny_close(&tiny);
    }
    tiny_open(&tiny, SETTINGS("train.steps=0", "train.tokens=1000")); /* a step has 192 */
    assert_int_equal(tiny.job.train.steps, 6);
    assert_int_equal(tiny.job.train.micro_batch, 4);
    tiny_close(&tiny);
    tiny_open(&tiny, SETTINGS("data.seq=1024", "train.global_batch=36",
                              "train.grains=3")); /* 12 sequences a grain, 4 fill a pass */
    assert_int_equal(tiny.job.train.micro_batch, 4);
    tiny_close(&tiny);
    tiny_open(&tiny, SETTINGS("schedule.kind=wsd", "schedule.decay_share=0.25", "model.ffn=0", "model.kv_heads=0"));
    assert_int_equal(tiny.job.schedule.decay_steps, 5);
    assert_int_equal(tiny.job.model.ffn, 64);
    assert_int_equal(tiny.job.model.kv_heads, 4);
    assert_int_equal(tiny.job.model.head_dim, 4);
    assert_int_equal(tiny.job.model.max_positions, 2048);
    tiny_close(&tiny);
}

static void test_a_warm_up_that_nobody_asked_for_fits_the_run(void **state)
{
    static const struct {
        const char *steps, *kind;
        int64_t warmup;
    } cases[] = {{"train.steps=1000", "cosine", 100}, {"train.steps=120", "cosine", 12},
                 {"train.steps=99", "cosine", 9},     {"train.steps=20", "cosine", 2},
                 {"train.steps=1", "cosine", 0},      {"train.steps=110", "wsd", 8}}; /* 22 of 110 steps decay */
    struct tiny tiny;
    char kind[32];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        snprintf(kind, sizeof(kind), "schedule.kind=%s", cases[i].kind);
        tiny_open(&tiny, SETTINGS(cases[i].steps, kind, "schedule.warmup=-1"));
        assert_int_equal(tiny.job.schedule.warmup, cases[i].warmup);
        tiny_close(&tiny);
    }
}

static void test_settings_that_have_no_effect_are_named(void **state)
{
    struct tiny tiny;
    char names[256];

    (void)state;
    tiny_open(&tiny, SETTINGS("model.layers=3"));
    assert_string_equal(ash_job_unused(&tiny.job, names, sizeof(names)), "");
    tiny_close(&tiny);
    tiny_open(&tiny, SETTINGS("model.from=there", "model.hidden=256", "model.layers=3", "model.heads=4",
                              "model.kv_heads=0", "model.ffn=0", "model.init_std=0.1"));
    assert_string_equal(ash_job_unused(&tiny.job, names, sizeof(names)), "model.layers=3, model.init_std=0.1");
    tiny_close(&tiny);
}

/* Compare two jobs as a resume does. */
static int resume_with(const char *const *before, const char *const *now)
{
    struct tiny old, new;
    int rc;

    tiny_open(&old, before);
    tiny_open(&new, now);
    rc = ash_job_compare(&old.job, &new.job, &err);
    tiny_close(&old);
    tiny_close(&new);
    return rc;
}

static void test_a_resume_may_change_what_changes_no_bit(void **state)
{
    (void)state;
    assert_int_equal(resume_with(NULL, SETTINGS("runtime.pin=off", "runtime.threads=1", "train.save_every=3",
                                                "train.save_wait=1", "mesh.tp=2", "train.micro_batch=1")),
                     0);
    assert_int_equal(resume_with(SETTINGS("optimizer.lr=0.003"), SETTINGS("optimizer.lr=0.01")), -EINVAL);
    assert_string_equal(err.text, "optimizer.lr was 0.003 when the checkpoint was made and is 0.01 now");
    assert_int_equal(resume_with(NULL, SETTINGS("train.seed=2")), -EINVAL);
}

static void test_yaml_and_back(void **state)
{
    struct ash_job again;
    struct ash_opts *opts = NULL;
    struct tiny tiny;
    char *first = NULL, *second = NULL;

    (void)state;
    tiny_open(&tiny, SETTINGS("optimizer.lr=0.1", "optimizer.eps=1.0000000000000002e-9", "train.precision=bf16"));
    assert_int_equal(ash_job_print(&tiny.job, &first, &err), 0);
    assert_int_equal(ash_job_parse(first, strlen(first), "printed", &again, &opts, &err), 0);
    assert_int_equal(ash_job_print(&again, &second, &err), 0);
    assert_string_equal(first, second);
    assert_true(again.optimizer.eps == tiny.job.optimizer.eps && again.optimizer.lr == 0.1);
    assert_int_equal(ash_job_compare(&tiny.job, &again, &err), 0);
    again.optimizer.lr = 0.2;
    assert_int_equal(ash_job_compare(&tiny.job, &again, &err), -EINVAL);
    assert_non_null(strstr(err.text, "optimizer.lr"));
    again.optimizer.lr = 0.1;
    again.train.micro_batch = 1;
    again.runtime.threads = 77;
    assert_int_equal(ash_job_compare(&tiny.job, &again, &err), 0);
    ash_opts_close(opts);
    tiny_close(&tiny);
    free(first);
    free(second);
}

static void test_a_misspelt_key_is_answered_with_the_right_one(void **state)
{
    struct ash_job job;
    struct ash_opts *opts = NULL;
    const char *yaml = "train:\n  stepz: 5\n";

    (void)state;
    assert_int_equal(ash_job_parse(yaml, strlen(yaml), "j.yaml", &job, &opts, &err), -ENOENT);
    assert_non_null(strstr(err.text, "j.yaml:2"));
    assert_non_null(strstr(err.text, "'train.steps'"));
}

/* Every job file written before the setting was removed has it. */
static void test_removed_settings(void **state)
{
    struct tiny tiny;
    struct ash_job again;
    struct ash_opts *opts = NULL;
    char text[1 << 16], *printed = NULL, *runtime = NULL;

    (void)state;
    tiny_open(&tiny, SETTINGS("runtime.threads=3"));
    assert_int_equal(ash_job_print(&tiny.job, &printed, &err), 0);
    runtime = strstr(printed, "\nruntime:\n");
    assert_non_null(runtime);
    snprintf(text, sizeof(text), "%.*s\nruntime:\n  mode: exact\n%s", (int)(runtime - printed), printed,
             runtime + strlen("\nruntime:\n"));
    if (ash_job_parse(text, strlen(text), "old", &again, &opts, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(again.runtime.threads, 3);
    assert_int_equal(ash_job_compare(&tiny.job, &again, &err), 0);
    ash_opts_close(opts);
    memcpy(strstr(text, "exact"), "other", strlen("other"));
    assert_int_equal(ash_job_parse(text, strlen(text), "old", &again, &opts, &err), -ENOENT);
    assert_non_null(strstr(err.text, "there is no setting 'runtime.mode'"));
    free(printed);
    tiny_close(&tiny);
}

static void test_every_type_gives_a_config(void **state)
{
    (void)state;
    for (size_t i = 0; ash_job_model_types[i] != NULL; i++) {
        bool gpt2 = strcmp(ash_job_model_types[i], "gpt2") == 0;
        struct ash_model_config config;
        struct tiny tiny;
        json_t *json = NULL;
        char type[64];

        snprintf(type, sizeof(type), "model.type=%s", ash_job_model_types[i]);
        tiny_open(&tiny, SETTINGS(type, gpt2 ? "model.kv_heads=0" : "model.head_dim=6", "model.experts=6",
                                  "model.expert_ffn=24", "model.experts_per_token=3", "model.rope_theta=5000",
                                  "model.init_std=0.5"));
        assert_int_equal(ash_job_config(&tiny.job.model, 300, 7, &json, &err), 0);
        if (ash_model_config_parse(json, &config, &err) < 0) fail_msg("%s: %s", type, err.text);
        assert_int_equal(config.vocab, 300);
        assert_int_equal(config.hidden, 16);
        assert_int_equal(config.layers, 2);
        assert_int_equal(config.heads, 4);
        assert_int_equal(config.kv_heads, gpt2 ? 4 : 2);
        assert_int_equal(config.head_dim, gpt2 ? 4 : 6);
        assert_int_equal(config.eos_count, 1);
        assert_int_equal(config.eos[0], 7);
        assert_int_equal(config.bos, -1);
        assert_true(config.init_std == 0.5);
        assert_true(gpt2 || config.rope.theta == 5000.0);
        assert_int_equal(config.max_positions, gpt2 ? 16 : 2048);
        assert_int_equal(config.window[0], 0);
        if (strstr(type, "mixtral") != NULL || strstr(type, "moe") != NULL) {
            assert_int_equal(config.expert.experts, 6);
            assert_int_equal(config.expert.choices, 3);
            assert_int_equal(config.expert.ffn, 24);
            assert_true(config.sparse[0] == 1 && config.sparse[1] == 1);
        } else {
            assert_int_equal(config.ffn, 32);
        }
        ash_model_config_fini(&config);
        json_decref(json);
        tiny_close(&tiny);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contradictions_are_named),
        cmocka_unit_test(test_adapters_without_a_rank_are_refused),
        cmocka_unit_test(test_groups_of_one_answer_are_refused),
        cmocka_unit_test(test_no_validation_is_an_empty_word),
        cmocka_unit_test(test_data_are_needed),
        cmocka_unit_test(test_choices_are_made),
        cmocka_unit_test(test_a_warm_up_that_nobody_asked_for_fits_the_run),
        cmocka_unit_test(test_settings_that_have_no_effect_are_named),
        cmocka_unit_test(test_a_resume_may_change_what_changes_no_bit),
        cmocka_unit_test(test_yaml_and_back),
        cmocka_unit_test(test_a_misspelt_key_is_answered_with_the_right_one),
        cmocka_unit_test(test_removed_settings),
        cmocka_unit_test(test_every_type_gives_a_config),
    };
    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
