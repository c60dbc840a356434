/* Serving plans: what must hold between batch sizes, cuts, samples and splits, whatever the constants. */
#include "unit/plan/facts.h"

#include <math.h>
#include <string.h>

#include "plan/serve/serve.h"

#define POINTS_MAX 128

static struct ash_serve_job make_job(const char *model, const char *cluster)
{
    struct ash_serve_job job = {.shape = shape_of(model),
                                .cluster = cluster_of(cluster),
                                .weights = ASH_GPU_FP8,
                                .cache = ASH_GPU_FP8,
                                .compute = ASH_GPU_FP8,
                                .in_tokens = 1000,
                                .answer_tokens = 500,
                                .samples = 1,
                                .usd_gpu_hour = 4};
    struct ash_err err = {0};

    if (ash_serve_check(&consts, &job, &err) < 0) fail_msg("%s", err.text);
    return job;
}

static void test_search_keeps_the_limits(void **state)
{
    static struct ash_serve_point free_points[POINTS_MAX], points[POINTS_MAX];
    struct ash_serve_job job = make_job("llama-3.1-70b", "2xp5.48xlarge");
    size_t free_count = ash_serve_search(&consts, &job, free_points, POINTS_MAX), count;

    (void)state;
    assert_true(free_count >= 4);
    job.itl_limit_s = 0.03;
    job.ttft_limit_s = 0.3;
    count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    assert_true(count == free_count && points[0].meets);
    assert_true(points[0].itl_s <= 0.03 && points[0].ttft_s <= 0.3);
    assert_true(points[0].tokens_s_gpu < free_points[0].tokens_s_gpu); /* latency is paid for */
    for (size_t i = 1; i < count; i++)
        assert_true(points[i - 1].meets || !points[i].meets);
    for (size_t i = 0; i < count; i++) {
        assert_true(points[i].batch <= points[i].capacity);
        assert_true(fabs(points[i].usd_million / (4.0 / 3600 / points[i].tokens_s_gpu * 1e6) - 1) < 1e-9);
    }
}

static void test_experts_are_spread(void **state)
{
    static struct ash_serve_point points[POINTS_MAX];
    struct ash_serve_job job = make_job("deepseek-v3", "8xp5en.48xlarge");
    bool spread = false;

    (void)state;
    for (size_t i = 0, count = ash_serve_search(&consts, &job, points, POINTS_MAX); i < count; i++) {
        assert_true(ash_infer_gpus(&points[i].infer) >= 8); /* 671 GB */
        if (points[i].infer.attn_dp > 1) spread = true;
    }
    assert_true(spread);
}

/* n answers share a prompt: cheaper than n requests, and the cache of a long prompt is held once. */
static void test_samples_share_the_prompt(void **state)
{
    struct ash_serve_job job = make_job("llama-3.1-70b", "p5.48xlarge");
    static struct ash_serve_point one[POINTS_MAX], eight[POINTS_MAX];

    (void)state;
    job.in_tokens = 8000;
    job.tp = 8;
    job.pp = 1;
    assert_int_equal(ash_serve_search(&consts, &job, one, POINTS_MAX), 1);
    job.samples = 8;
    assert_int_equal(ash_serve_search(&consts, &job, eight, POINTS_MAX), 1);
    assert_true(eight[0].usd_request < 8 * one[0].usd_request && eight[0].usd_request > one[0].usd_request);
    assert_true(eight[0].capacity > 3 * one[0].capacity);
    job.verify_passes = 2;
    assert_int_equal(ash_serve_search(&consts, &job, one, POINTS_MAX), 1);
    assert_true(one[0].usd_request > eight[0].usd_request && one[0].request_s > eight[0].ttft_s);
    job.thinking_tokens = 8000;
    assert_int_equal(ash_serve_search(&consts, &job, eight, POINTS_MAX), 1);
    assert_true(eight[0].request_s > 2 * one[0].request_s);
}

/* The best split of the whole cluster. */
static bool find_split(const struct ash_serve_job *job, const struct ash_serve_point *points, size_t count,
                       struct ash_serve_split *split)
{
    static struct ash_serve_kinds found;

    ash_serve_kinds_find(&consts, job, points, count, &found);
    return ash_serve_split_find(&consts, job, &found, job->cluster.gpus, split);
}

/* Sources find that splitting buys latency and costs throughput per GPU. */
static void test_split(void **state)
{
    static struct ash_serve_point points[POINTS_MAX];
    struct ash_serve_job job = make_job("llama-3.1-70b", "4xp5en.48xlarge");
    static struct ash_serve_split ratios[POINTS_MAX];
    struct ash_serve_split split, strict;
    size_t ratio_count;
    size_t count = ash_serve_search(&consts, &job, points, POINTS_MAX);

    (void)state;
    assert_true(find_split(&job, points, count, &split));
    assert_true(split.tokens_s_gpu < points[0].tokens_s_gpu);
    assert_true(split.itl_s < points[0].itl_s && split.itl_s < points[0].stall_s);
    assert_true(split.prompt_replicas * ash_infer_gpus(&split.prompt.infer) +
                    split.decode_replicas * ash_infer_gpus(&split.decode.infer) <=
                32);
    /* 2 * 80 layers * 8 heads * 128 at one byte, 1000 tokens */
    assert_true(fabs(split.cache_bytes - 163840.0 * 1000) < 1);
    /* more replicas for prompts and fewer for answers: first tokens come sooner, then answers are the limit */
    ratio_count = ash_serve_ratios(&consts, &job, &split, ratios, POINTS_MAX);
    assert_true(ratio_count >= 3);
    for (size_t i = 0; i < ratio_count; i++) {
        assert_true(ratios[i].tokens_s <= split.tokens_s * 1.001 && ratios[i].itl_s <= split.decode.itl_s * 1.001);
        if (i > 0) assert_true(ratios[i].decode_replicas <= ratios[i - 1].decode_replicas);
        if (i > 0 && !ratios[i].prompts_wait) assert_true(ratios[i].requests_s > ratios[i - 1].requests_s);
    }
    assert_true(ratios[0].itl_s < ratios[ratio_count - 1].itl_s && !ratios[0].prompts_wait);
    job.itl_limit_s = 0.02;
    count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    assert_true(find_split(&job, points, count, &strict));
    assert_true(strict.itl_s <= 0.02 && strict.tokens_s_gpu <= split.tokens_s_gpu);
    job = make_job("llama-3.1-8b", "1xg6e.xlarge");
    count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    assert_false(find_split(&job, points, count, &split));
}

/* A replica that only reads prompts reads at least as many as one that answers them, too, and as one whose answers have
 * a single token. */
static void test_prompt_replicas_read_together(void **state)
{
    static struct ash_serve_point points[POINTS_MAX], single[POINTS_MAX];
    struct ash_serve_job job = make_job("deepseek-v3", "12xp5en.48xlarge"),
                         one = make_job("deepseek-v3", "p5en.48xlarge");
    struct ash_serve_split split;
    size_t count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    double gpus;

    (void)state;
    assert_true(find_split(&job, points, count, &split));
    gpus = ash_infer_gpus(&split.prompt.infer);
    assert_true(split.prompt.requests_s / gpus > points[0].requests_s / ash_infer_gpus(&points[0].infer));
    one.answer_tokens = 1;
    assert_true(ash_serve_search(&consts, &one, single, POINTS_MAX) > 0);
    assert_true(single[0].itl_s == 0 && single[0].stall_s == 0);
    assert_false(find_split(&one, single, 1, &split));
    assert_true(find_split(&job, points, count, &split));
    assert_true(split.prompt.requests_s / gpus > 0.7 * single[0].requests_s / ash_infer_gpus(&single[0].infer));
}

static struct ash_serve_kinds kinds;

/* Search and advise; the best unified points are in points. */
static struct ash_serve_advice advise(const struct ash_serve_job *job, struct ash_serve_point *points)
{
    static struct ash_serve_advice advice;
    size_t count = ash_serve_search(&consts, job, points, POINTS_MAX);

    ash_serve_kinds_find(&consts, job, points, count, &kinds);
    assert_int_equal(ash_serve_advise(&consts, job, points, count, &kinds, &advice), 0);
    return advice;
}

/* The advice is at least as good as unified replicas and as a split of the whole cluster, and sums up to its parts. */
static void test_advice(void **state)
{
    static struct ash_serve_point points[POINTS_MAX];
    struct ash_serve_job job = make_job("llama-3.1-70b", "2xp5.48xlarge");
    static struct ash_serve_advice advice;
    struct ash_serve_split split;
    double rate = 0, gpus = 0;

    (void)state;
    job.itl_limit_s = 0.04;
    job.arrivals_s = 1000;
    advice = advise(&job, points);
    assert_true(ash_serve_split_find(&consts, &job, &kinds, job.cluster.gpus, &split));
    assert_true(advice.whole.meets && advice.split_gain > 0.1);
    assert_true(advice.whole.tokens_s >= split.tokens_s);
    assert_true(advice.whole.tokens_s >= floor(16.0 / ash_infer_gpus(&points[0].infer)) * points[0].tokens_s);
    for (size_t i = 0; i < advice.whole.count; i++) {
        rate += advice.whole.parts[i].requests_s;
        gpus += advice.whole.parts[i].gpus;
    }
    assert_float_equal(advice.whole.requests_s, rate, 1e-6);
    assert_true(advice.whole.gpus == gpus && gpus <= 16 && advice.whole.machines == 2);
    assert_true(fabs(advice.whole.usd_million / (16 * 4.0 / 3600 / advice.whole.tokens_s * 1e6) - 1) < 1e-9);
    assert_true(advice.needed.requests_s >= 1000 && advice.needed.gpus > 16);
    assert_float_equal(advice.needed.machines, ceil(advice.needed.gpus / 8), 1e-9);
}

/* More machines give at least the sum of what fewer give, and what arrivals need does not depend on the offer. */
static void test_more_machines_are_not_worse(void **state)
{
    static const struct {
        const char *model, *machine;
    } cases[] = {{"llama-3.1-405b", "p5en.48xlarge"},
                 {"llama-3.1-405b", "p6-b300.48xlarge"},
                 {"deepseek-v3", "p5en.48xlarge"},
                 {"llama-3.1-70b", "p5.48xlarge"}};
    static struct ash_serve_point points[POINTS_MAX];
    (void)state;

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        double rates[9] = {0}, needed = 0;

        for (int machines = 1; machines <= 8; machines++) {
            struct ash_serve_advice advice;
            struct ash_serve_job job;
            char cluster[64];

            snprintf(cluster, sizeof(cluster), "%dx%s", machines, cases[c].machine);
            job = make_job(cases[c].model, cluster);
            job.itl_limit_s = 0.05;
            job.arrivals_s = 1;
            advice = advise(&job, points);
            rates[machines] = advice.whole.tokens_s;
            if (machines == 1) needed = advice.needed.gpus;
            if (advice.needed.gpus != needed || advice.needed.machines != 1)
                fail_msg("%s on %s: 1 request/s needs %g GPUs", cases[c].model, cluster, advice.needed.gpus);
            for (int part = 1; part < machines; part++)
                if (rates[machines] < (rates[part] + rates[machines - part]) * (1 - 1e-6))
                    fail_msg("%s on %s: %g tok/s, but %d and %d machines give %g", cases[c].model, cluster,
                             rates[machines], part, machines - part, rates[part] + rates[machines - part]);
        }
    }
}

/* Weights that leave no room for buffers do not fit, as in training: 84.1 of 85.9 GB. */
static void test_memory_as_in_training(void **state)
{
    struct ash_serve_job job = make_job("deepseek-v3", "2xp5.48xlarge");
    struct ash_err err = {0};

    (void)state;
    job.cluster = cluster_of("p5.48xlarge");
    assert_true(ash_serve_check(&consts, &job, &err) < 0);
    assert_non_null(strstr(err.text, "about 16 GPUs"));
    job.cluster = cluster_of("p5en.48xlarge");
    assert_int_equal(ash_serve_check(&consts, &job, &err), 0);
}

static void test_refusals(void **state)
{
    struct ash_serve_job job = make_job("llama-3.1-70b", "p5.48xlarge");
    struct ash_err err = {0};

    (void)state;
    job.tp = 16;
    assert_true(ash_serve_check(&consts, &job, &err) < 0);
    assert_non_null(strstr(err.text, "cluster of 8"));
    job.tp = 0;
    job.in_tokens = 1e8;
    assert_true(ash_serve_check(&consts, &job, &err) < 0);
    assert_non_null(strstr(err.text, "shorter requests"));
    job = make_job("mixtral-8x7b", "p5.48xlarge");
    job.ep = 3;
    assert_true(ash_serve_check(&consts, &job, &err) < 0);
    assert_non_null(strstr(err.text, "does not divide the 8 experts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_keeps_the_limits),
        cmocka_unit_test(test_experts_are_spread),
        cmocka_unit_test(test_samples_share_the_prompt),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_prompt_replicas_read_together),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_more_machines_are_not_worse),
        cmocka_unit_test(test_memory_as_in_training),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
