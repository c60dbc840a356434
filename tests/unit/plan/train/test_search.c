/* The search: finds what published presets use, is fast, says what would be possible where nothing is. */
#include "unit/plan/facts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "plan/train/search.h"

#define PLANS 16

static size_t search(const struct ash_plan_job *job, int precision, struct ash_plan *plans)
{
    struct ash_search wanted = {.precision = precision, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_search_result result;
    struct ash_err err = {0};

    if (ash_search_run(&consts, job, &wanted, plans, PLANS, &result, &err) < 0) fail_msg("%s", err.text);
    return result.count;
}

static void plans_fit_and_descend(void **state)
{
    struct ash_plan_job job = job_of("llama-3-70b", "8xp5.48xlarge", 128, 8192);
    struct ash_plan plans[PLANS];
    size_t count = search(&job, -1, plans);

    (void)state;
    assert_true(count > 4);
    for (size_t i = 0; i < count; i++) {
        struct ash_layout layout = plans[i].layout;
        assert_true(plans[i].step.fits);
        assert_int_equal(ash_layout_check(&job, &layout, NULL), 0);
        if (i > 0) assert_true(plans[i].step.tokens_s <= plans[i - 1].step.tokens_s);
    }
}

/* Schedules that few frameworks have are tried only where they are asked for, and then some plan uses them. */
static void schedules_are_tried_where_allowed(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "256xp5en.48xlarge", 15360, 4096);
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_search_result result;
    struct ash_plan usual, best;

    (void)state;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, &usual, 1, &result, NULL), 0);
    assert_int_equal(usual.layout.schedule, ASH_PLAN_1F1B);
    wanted.schedules = 1u << ASH_PLAN_ZB_H1 | 1u << ASH_PLAN_DUALPIPE;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, &best, 1, &result, NULL), 0);
    assert_true(best.layout.schedule != ASH_PLAN_1F1B && best.step.tokens_s > usual.step.tokens_s);
}

/* What a search prunes by is never more than what it would have found. */
static void least_is_never_more(void **state)
{
    static const char *const layouts[] = {"pp=8,ep=8",          "tp=2,pp=4,vpp=4,ep=16", "tp=4,cp=2,ep=32,zero=3",
                                          "ep=64,zero=3",       "pp=16,schedule=zb-h1",  "pp=16,ep=8,schedule=dualpipe",
                                          "tp=8,recompute=full"};
    struct ash_plan_job job = job_of("qwen3-30b-a3b", "32xp5.48xlarge", 4096, 4096);

    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct ash_layout layout = layout_of(&job, layouts[i]);
        struct ash_plan_step guessed, simulated;
        double least = ash_step_least(&consts, &job, &layout, NULL);

        ash_step_predict(&consts, &job, &layout, false, &guessed);
        ash_step_predict(&consts, &job, &layout, true, &simulated);
        if (least <= 0 || least > guessed.time.total || least > simulated.time.total)
            fail_msg("%s: %g is not below %g and %g", layouts[i], least, guessed.time.total, simulated.time.total);
        assert_true(guessed.bubble_least <= simulated.time.bubble * (1 + 1e-9));
    }
}

/* Whatever the number of layers and stages: layers that do not divide, with the ends counted as layers and without. */
static void least_is_never_more_of_any_pipeline(void **state)
{
    struct ash_plan_job job = job_of("kimi-k2", "96xp5.48xlarge", 4608, 4096);
    struct ash_layout layout = plain_layout();
    size_t seen = 0;

    (void)state;
    for (job.shape.layers = 59; job.shape.layers <= 64; job.shape.layers++) {
        job.shape.attn_layers = job.shape.layers;
        job.shape.sparse_layers = job.shape.layers - job.shape.dense_layers;
        for (layout.pp = 1; layout.pp <= 48; layout.pp++) {
            for (layout.chunks = 1; layout.chunks <= 6; layout.chunks++) {
                struct ash_layout cut = layout;
                struct ash_plan_step simulated;
                double least;

                cut.dp = cut.etp = 0;
                if (ash_layout_check(&job, &cut, NULL) < 0) continue;
                ash_step_predict(&consts, &job, &cut, true, &simulated);
                least = ash_step_least(&consts, &job, &cut, NULL);
                if (least > simulated.time.total)
                    fail_msg("pp %d x %d, %g layers: %g of %g", cut.pp, cut.chunks, job.shape.layers, least,
                             simulated.time.total);
                seen++;
            }
        }
    }
    assert_true(seen > 100);
}

/* Layers that a search remembers are those that a single prediction makes. */
static void remembered_layers_are_the_same(void **state)
{
    struct ash_plan_job job = job_of("qwen3-30b-a3b", "8xp5.48xlarge", 256, 4096);
    struct ash_plan plans[PLANS];
    size_t count = search(&job, -1, plans);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct ash_plan_step step;

        ash_step_predict(&consts, &job, &plans[i].layout, true, &step);
        assert_memory_equal(&step.time, &plans[i].step.time, sizeof(step.time));
    }
}

/* Megatron-Bridge's presets: DeepSeek-V3 on 256 B200 is tp1 pp16 ep8, Llama-3.1-405B on 1,024 H100 tp8 pp8x8 cp2. */
static void presets_are_among_the_best(void **state)
{
    struct ash_plan_job sparse = job_of("deepseek-v3", "256xB200", 4096, 4096);
    struct ash_plan_job dense = job_of("llama-3.1-405b", "1024xH100", 512, 8192);
    struct ash_plan plans[PLANS];
    size_t count = search(&sparse, ASH_GPU_FP8, plans);
    bool found = false;

    (void)state;
    for (size_t i = 0; i < count; i++)
        found |= plans[i].layout.pp == 16 && plans[i].layout.ep == 8 && plans[i].layout.tp == 1;
    assert_true(found);
    count = search(&dense, ASH_GPU_BF16, plans);
    found = false;
    for (size_t i = 0; i < count; i++)
        found |= plans[i].layout.tp == 8 && plans[i].layout.pp == 8 && plans[i].layout.cp == 2;
    assert_true(found);
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The limit of a second of one core leaves room for sanitizers. */
static void a_trillion_on_4096_is_fast(void **state)
{
    struct ash_plan_job job = job_of("kimi-k2", "512xp5.48xlarge", 8192, 4096);
    struct ash_plan plans[PLANS];
    double start = cpu_seconds();

    (void)state;
    assert_true(search(&job, -1, plans) > 0);
    assert_true(cpu_seconds() - start < 1.0);
}

static void too_little_says_how_much(void **state)
{
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_plan_job job = job_of("llama-3.1-405b", "2xp5.48xlarge", 64, 8192);
    struct ash_search_result result;
    struct ash_plan plans[PLANS];
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "p5.48xlarge would do"));
    job = job_of("llama-3-8b", "3xp5.48xlarge", 7, 8191);
    job.shape.heads = job.shape.kv_heads = 7;
    assert_true(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err) < 0);
}

/* What an error says would do does. */
static void what_would_do_does(void **state)
{
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_plan_job job = job_of("llama-3.1-405b", "p5.48xlarge", 1024, 8192);
    struct ash_search_result result;
    struct ash_plan plans[PLANS];
    struct ash_err err = {0};
    int machines = 0, below = 0, above = 0;
    char cluster[64];

    (void)state;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "per host")); /* offloaded state has to go somewhere too */
    assert_int_equal(sscanf(strrchr(err.text, ';'), "; %dxp5.48xlarge would do", &machines), 1);
    snprintf(cluster, sizeof(cluster), "%dxp5.48xlarge", machines);
    job = job_of("llama-3.1-405b", cluster, 1024, 8192);
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), 0);
    job = job_of("llama-3.1-70b", "100xp5.48xlarge", 1024, 8192);
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), -EINVAL);
    assert_int_equal(sscanf(strrchr(err.text, ':'), ": a global batch of %d or %d would do", &below, &above), 2);
    assert_true(below < 1024 && above > 1024);
    job.global_batch = below;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), 0);
    job.global_batch = above;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, &err), 0);
}

/* Copies of the state among neighbours are tried, and win where the network is slow. */
static void shards_stay_near_on_slow_networks(void **state)
{
    struct ash_search wanted = {.precision = ASH_GPU_BF16, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = 3};
    struct ash_plan_job job = job_of("llama-3-8b", "64xp5.48xlarge", 1024, 8192);
    struct ash_search_result result;
    struct ash_plan plans[PLANS];

    (void)state;
    job.cluster.machine.net_bandwidth /= 16;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, NULL), 0);
    assert_true(plans[0].layout.shard > 0 && plans[0].layout.shard < 512);
}

/* State that does not fit goes to the host, unless that is forbidden. */
static void offload_is_the_last_resort(void **state)
{
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_plan_job job = job_of("llama-3-70b", "p5.48xlarge", 64, 8192);
    struct ash_search_result result;
    struct ash_plan plans[PLANS];

    (void)state;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, NULL), 0);
    assert_true(plans[0].layout.offload && plans[0].step.memory.host > 0);
    wanted.no_offload = true;
    assert_int_equal(ash_search_run(&consts, &job, &wanted, plans, PLANS, &result, NULL), -ENOSPC);
}

/* Better hardware under its best layout is worth at least what it is worth under the old one. */
static void searched_what_ifs_gain_no_less(void **state)
{
    struct ash_search wanted = {.precision = ASH_GPU_FP8, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_plan_job job = job_of("deepseek-v3", "32xp6-b200.48xlarge", 2048, 4096);
    struct ash_what_if fixed[ASH_WHAT_IFS_MAX], searched[ASH_WHAT_IFS_MAX];
    struct ash_plan plans[PLANS];
    size_t fixed_count, searched_count, more = 0;

    (void)state;
    search(&job, ASH_GPU_FP8, plans);
    fixed_count = ash_what_if_list(&consts, &job, NULL, &plans[0], fixed);
    searched_count = ash_what_if_list(&consts, &job, &wanted, &plans[0], searched);
    for (size_t k = 0; k < searched_count; k++) /* machines and memory mean something only with a search */
        more += strstr(searched[k].change, "memory per GPU") != NULL || strstr(searched[k].change, "machines") != NULL;
    assert_true(more >= 2);
    for (size_t i = 0; i < fixed_count; i++)
        for (size_t k = 0; k < searched_count; k++)
            if (strcmp(fixed[i].change, searched[k].change) == 0)
                assert_true(searched[k].gain >= fixed[i].gain - 0.005);
}

static void what_ifs_are_ordered_and_true(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "32xp6-b200.48xlarge", 4096, 4096);
    struct ash_what_if items[ASH_WHAT_IFS_MAX];
    struct ash_plan plans[PLANS];
    size_t count, kept = 0;

    (void)state;
    search(&job, ASH_GPU_BF16, plans);
    count = ash_what_if_list(&consts, &job, NULL, &plans[0], items);
    assert_true(count > 5);
    for (size_t i = 1; i < count; i++)
        assert_true(items[i].gain <= items[i - 1].gain);
    for (size_t i = 0; i < count; i++)
        kept += strstr(items[i].change, "(pp)") != NULL ||
                (items[i].layout.tp == plans[0].layout.tp && items[i].layout.pp == plans[0].layout.pp);
    assert_int_equal(kept, count);
    for (size_t i = 0; i < count; i++)
        if (strncmp(items[i].change, "twice the arithmetic", 20) == 0) assert_true(items[i].gain > 0.05);
}

/* A larger GPU keeps the layouts of a smaller one, offloaded ones too. */
static void more_memory_is_not_slower(void **state)
{
    struct ash_plan_job job = job_of("llama-3.1-8b", "1xH100", 64, 8192);
    struct ash_gpu larger = *job.cluster.machine.gpu;
    struct ash_what_if items[ASH_WHAT_IFS_MAX];
    struct ash_search wanted = {.precision = -1, .recompute = ASH_PLAN_RECOMPUTE_FIT, .zero = -1};
    struct ash_plan plans[PLANS];
    double small;

    (void)state;
    assert_true(search(&job, -1, plans) > 0);
    small = plans[0].step.tokens_s;
    for (size_t i = 0, count = ash_what_if_list(&consts, &job, &wanted, &plans[0], items); i < count; i++)
        if (strcmp(items[i].change, "twice the memory per GPU") == 0) assert_true(items[i].gain >= 0);
    larger.memory_bytes *= 2;
    job.cluster.machine.gpu = &larger;
    assert_true(search(&job, -1, plans) > 0);
    assert_true(plans[0].step.tokens_s >= small);
}

/* A given layout hears of its neighbours: here interleaving is worth more than half the speed. */
static void neighbours_of_a_layout(void **state)
{
    struct ash_plan_job job = job_of("llama-3.1-405b", "2048xp5.48xlarge", 2048, 8192);
    struct ash_plan plan = {.layout = layout_of(&job, "tp=8,pp=16")};
    struct ash_what_if items[ASH_WHAT_IFS_MAX];
    bool chunks = false, stages = false;

    (void)state;
    ash_step_predict(&consts, &job, &plan.layout, true, &plan.step);
    for (size_t i = 0, count = ash_what_if_list(&consts, &job, NULL, &plan, items); i < count; i++) {
        chunks = chunks || (items[i].layout.chunks > 1 && items[i].gain > 0.4 && items[i].fits);
        stages = stages || items[i].layout.pp == 8;
    }
    assert_true(chunks && stages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_fit_and_descend),
        cmocka_unit_test(schedules_are_tried_where_allowed),
        cmocka_unit_test(remembered_layers_are_the_same),
        cmocka_unit_test(least_is_never_more),
        cmocka_unit_test(least_is_never_more_of_any_pipeline),
        cmocka_unit_test(presets_are_among_the_best),
        cmocka_unit_test(a_trillion_on_4096_is_fast),
        cmocka_unit_test(too_little_says_how_much),
        cmocka_unit_test(offload_is_the_last_resort),
        cmocka_unit_test(what_ifs_are_ordered_and_true),
        cmocka_unit_test(what_would_do_does),
        cmocka_unit_test(shards_stay_near_on_slow_networks),
        cmocka_unit_test(searched_what_ifs_gain_no_less),
        cmocka_unit_test(more_memory_is_not_slower),
        cmocka_unit_test(neighbours_of_a_layout),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
