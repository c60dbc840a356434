/* Training and sampling on one cluster: what must hold between splits, whatever the constants. */
#include "unit/plan/facts.h"

#include <math.h>
#include <string.h>

#include "plan/rl/rl.h"

static struct ash_rl_job job_for(const char *model, const char *cluster)
{
    struct ash_rl_job job = {.prompts = 512};

    job.serve = (struct ash_serve_job){.shape = shape_of(model),
                                       .cluster = cluster_of(cluster),
                                       .in_tokens = 1024,
                                       .answer_tokens = 3072,
                                       .samples = 8,
                                       .usd_gpu_hour = 5};
    job.search = (struct ash_search){.precision = ASH_GPU_BF16, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    return job;
}

static struct ash_rl plan(const struct ash_rl_job *job)
{
    struct ash_err err = {0};
    struct ash_rl rl;

    if (ash_rl_plan(&consts, job, &rl, &err) < 0) fail_msg("%s", err.text);
    return rl;
}

static void splits_add_up(void **state)
{
    struct ash_rl_job job = job_for("qwen3-32b", "16xp5.48xlarge");
    struct ash_rl rl = plan(&job);

    (void)state;
    assert_true(rl.count >= 4 && rl.splits[0].turns && rl.best < rl.count);
    for (size_t i = 0; i < rl.count; i++) {
        const struct ash_rl_split *split = &rl.splits[i];
        double work = split->turns ? split->train_s + split->sample_s : fmax(split->train_s, split->sample_s);

        assert_true(fabs(split->step_s - work - split->handover_s - split->swap_s) < 1e-9 * split->step_s);
        assert_true(split->step_s >= rl.splits[rl.best].step_s);
        assert_true(fabs(split->usd_step - split->step_s * 128 * 5 / 3600) < 1e-6);
        assert_true(split->turns || split->train_machines + split->sample_machines == 16);
        if (i > 1) assert_true(split->train_s < rl.splits[i - 1].train_s); /* more machines train faster */
    }
    assert_true(rl.splits[rl.count - 1].sample_s > rl.splits[1].sample_s);
}

/* 64 GB of bf16 weights over 3.2 Tbit/s at 80 %: 0.2 s, whatever the number of machines. */
static void weights_travel_once(void **state)
{
    struct ash_rl_job job = job_for("qwen3-32b", "16xp5.48xlarge");
    struct ash_rl rl = plan(&job);

    (void)state;
    assert_true(fabs(rl.splits[0].handover_s - 65.5e9 / (0.8 * 400e9)) < 0.02);
    job = job_for("qwen3-32b", "4xp5.48xlarge");
    assert_true(fabs(plan(&job).splits[0].handover_s - rl.splits[0].handover_s) < 0.05);
}

static void longer_answers_take_samplers(void **state)
{
    struct ash_rl_job job = job_for("qwen3-32b", "16xp5.48xlarge");
    struct ash_rl brief = plan(&job), thoughtful;

    (void)state;
    job.serve.thinking_tokens = 12000;
    thoughtful = plan(&job);
    assert_true(thoughtful.splits[0].sample_s > 3 * brief.splits[0].sample_s);
    assert_true(thoughtful.leave_s > brief.leave_s && thoughtful.reuse_share < brief.reuse_share);
    job.serve.samples = 1;
    assert_true(plan(&job).reuse_share == 0);
}

static void what_does_not_fit_says_so(void **state)
{
    struct ash_rl_job job = job_for("llama-3.1-405b", "p5.48xlarge");
    struct ash_err err = {0};
    struct ash_rl rl;

    (void)state;
    assert_true(ash_rl_plan(&consts, &job, &rl, &err) < 0);
    assert_non_null(strstr(err.text, "does not fit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_add_up),
        cmocka_unit_test(weights_travel_once),
        cmocka_unit_test(longer_answers_take_samplers),
        cmocka_unit_test(what_does_not_fit_says_so),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
