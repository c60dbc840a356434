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
    assert_true(ash_serve_split_find(&consts, &job, points, count, &split));
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
    assert_true(ash_serve_split_find(&consts, &job, points, count, &strict));
    assert_true(strict.itl_s <= 0.02 && strict.tokens_s_gpu <= split.tokens_s_gpu);
    job = make_job("llama-3.1-8b", "1xg6e.xlarge");
    count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    assert_false(ash_serve_split_find(&consts, &job, points, count, &split));
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
    assert_true(ash_serve_split_find(&consts, &job, points, count, &split));
    gpus = ash_infer_gpus(&split.prompt.infer);
    assert_true(split.prompt.requests_s / gpus > points[0].requests_s / ash_infer_gpus(&points[0].infer));
    one.answer_tokens = 1;
    assert_true(ash_serve_search(&consts, &one, single, POINTS_MAX) > 0);
    assert_true(single[0].itl_s == 0 && single[0].stall_s == 0);
    assert_false(ash_serve_split_find(&consts, &one, single, 1, &split));
    assert_true(ash_serve_split_find(&consts, &job, points, count, &split));
    assert_true(split.prompt.requests_s / gpus > 0.7 * single[0].requests_s / ash_infer_gpus(&single[0].infer));
}

/* The advice is the better of the two, for the whole cluster, and says what arrivals need of what it advises. */
static void test_advice(void **state)
{
    static struct ash_serve_point points[POINTS_MAX];
    struct ash_serve_job job = make_job("llama-3.1-70b", "2xp5.48xlarge");
    struct ash_serve_advice advice;
    struct ash_serve_split split;
    size_t count;

    (void)state;
    job.itl_limit_s = 0.04;
    job.arrivals_s = 1000;
    count = ash_serve_search(&consts, &job, points, POINTS_MAX);
    assert_true(ash_serve_split_find(&consts, &job, points, count, &split));
    ash_serve_advise(&job, &points[0], &split, &advice);
    assert_true(advice.is_disaggregated && advice.meets && advice.split_gain > 0.1);
    assert_float_equal(advice.tokens_s, split.tokens_s, 1e-6);
    assert_true(advice.tokens_s > floor(16.0 / ash_infer_gpus(&points[0].infer)) * points[0].tokens_s);
    assert_true(advice.replicas_needed * split.decode.requests_s >= 1000);
    assert_true(advice.prompt_replicas_needed * split.prompt.requests_s >= 1000);
    assert_float_equal(advice.machines_needed, ceil(advice.gpus_needed / 8), 1e-9);
    ash_serve_advise(&job, &points[0], NULL, &advice);
    assert_true(!advice.is_disaggregated && advice.replicas_needed * points[0].requests_s >= 1000);
    assert_float_equal(advice.gpus_needed, advice.replicas_needed * ash_infer_gpus(&points[0].infer), 1e-9);
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
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
