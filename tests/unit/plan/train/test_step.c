/* Layouts, collectives, memory and time of a step: formulas, directions, and a few published facts. */
#include "unit/plan/facts.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "plan/train/comm.h"
#include "plan/train/layer.h"

static struct ash_plan_step step_of(const struct ash_plan_job *job, const char *text)
{
    struct ash_layout layout = layout_of(job, text);
    struct ash_plan_step step;

    ash_step_predict(&consts, job, &layout, true, &step);
    return step;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static void refuses(const struct ash_plan_job *job, const char *text, const char *words)
{
    struct ash_layout layout = plain_layout();
    struct ash_err err = {0};
    int rc = ash_layout_parse(text, &layout, &err);

    if (rc == 0) rc = ash_layout_check(job, &layout, &err);
    if (rc == 0) fail_msg("'%s' was taken", text);
    if (strstr(err.text, words) == NULL) fail_msg("'%s': '%s' does not say '%s'", text, err.text, words);
}

static void impossible_layouts_say_what_would_do(void **state)
{
    struct ash_plan_job dense = job_of("llama-3-70b", "64xp5.48xlarge", 1024, 8192);
    struct ash_plan_job sparse = job_of("qwen3-30b-a3b", "8xp4de.24xlarge", 256, 4096);

    (void)state;
    refuses(&dense, "tp=3", "does not divide 512 GPUs");
    refuses(&dense, "tp=8,dp=3", "dp would be 64");
    refuses(&dense, "tp=128", "does not divide 64 heads");
    refuses(&dense, "pp=128", "80 layers");
    refuses(&dense, "pp=16,vpp=8", "80 layers");
    refuses(&dense, "vpp=4", "need pp of 2");
    refuses(&dense, "ep=2", "no experts");
    refuses(&dense, "mbs=3,tp=8", "not whole micro-batches");
    refuses(&dense, "pp=4,vpp=5,tp=8,mbs=64", "multiples");
    refuses(&dense, "zero=4", "from 0 to 3");
    refuses(&dense, "gp=4", "there is no 'gp'");
    refuses(&dense, "tp", "needs a value");
    refuses(&dense, "schedule=gpipe", "1f1b, zb-h1 or dualpipe");
    refuses(&dense, "schedule=zb-h1", "need pp of 2");
    refuses(&dense, "tp=8,pp=4,vpp=5,schedule=zb-h1", "leave vpp at 1");
    refuses(&dense, "tp=8,pp=4,mbs=16,schedule=dualpipe", "at least 2 * pp");
    refuses(&dense, "recompute=some", "none, selective, full or fit");
    refuses(&sparse, "ep=48", "does not divide 128 experts");
    refuses(&sparse, "precision=fp8", "has no fp8");
}

/* Llama 3.1 405B ran with 126 layers, its embedding and its output as 128 pieces of 16 stages. */
static void edges_may_be_pieces(void **state)
{
    struct ash_plan_job job = job_of("llama-3.1-405b", "2048xp5.48xlarge", 2048, 8192);
    struct ash_plan_step pieces = step_of(&job, "tp=8,pp=16,vpp=8"), fewer = step_of(&job, "tp=8,pp=16,vpp=4");

    (void)state;
    assert_true(pieces.fits && pieces.time.bubble < fewer.time.bubble && pieces.tokens_s > fewer.tokens_s);
}

/* Table 4 of arXiv 2407.21783 has TFLOP/s and does not say whether it counts attention in full: tokens/s are between. */
static void llama_3_ran_as_fast_as_its_software_says(void **state)
{
    static const struct {
        const char *cluster;
        double tflops;
    } runs[] = {{"1024xp5.48xlarge", 430e12}, {"2048xp5.48xlarge", 400e12}};
    const double causal = 2524e9, full = 2625e9; /* FLOPs of a token */

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ash_plan_job job = job_of("llama-3.1-405b", runs[i].cluster, 2048, 8192);
        double megatron = step_of(&job, "tp=8,pp=16,vpp=8").tokens_s_gpu, own;

        job.stack = ash_stack_find("Meta internal (Llama 3)");
        assert_string_equal(job.stack->name, "llama3");
        own = step_of(&job, "tp=8,pp=16,vpp=8").tokens_s_gpu;
        assert_true(own > 0.95 * runs[i].tflops / full && own < 1.05 * runs[i].tflops / causal);
        assert_true(megatron > 1.1 * own);
    }
    assert_string_equal(ash_stack_find("Meta internal")->name, "eager");
}

/* Gradients in float32 are kept and travel twice as large. */
static void wide_gradients_travel_and_stay(void **state)
{
    struct ash_plan_job job = job_of("llama-3-70b", "64xp5.48xlarge", 512, 8192);
    struct ash_stack wide = *ash_stack_find("fused");
    struct ash_plan_step half = step_of(&job, "tp=8,pp=4"), whole;

    (void)state;
    wide.wide_gradients = true;
    job.stack = &wide;
    whole = step_of(&job, "tp=8,pp=4");
    assert_float_equal(whole.memory.gradients, 2 * half.memory.gradients, 1);
    assert_float_equal(whole.traffic.dp, 1.5 * half.traffic.dp, 1e-3 * half.traffic.dp); /* weights stay as they were */
    assert_true(whole.time.network > half.time.network);
}

static void layouts_read_back(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "128xp5.48xlarge", 8192, 4096);
    struct ash_layout layout = layout_of(&job, "tp=2,pp=8,vpp=4,ep=64,mbs=1,precision=fp8");
    char text[128];

    (void)state;
    assert_int_equal(layout.dp, 64);
    assert_string_equal(ash_layout_text(&layout, text, sizeof(text)), "tp2 pp8x4 ep64 dp64 zero1 mbs1 fp8");
}

/* Zero bubble idles less for the same memory; DualPipe hides expert traffic and keeps two stages per rank. */
static void schedules_trade_idle_time_for_memory(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "256xp5en.48xlarge", 15360, 4096);
    const char *layouts[] = {"pp=16,ep=16,precision=fp8,recompute=full",
                             "pp=16,ep=16,precision=fp8,recompute=full,schedule=zb-h1",
                             "pp=16,ep=16,precision=fp8,recompute=full,schedule=dualpipe"};
    struct ash_plan_step usual = step_of(&job, layouts[0]), zb = step_of(&job, layouts[1]);
    struct ash_plan_step dual = step_of(&job, layouts[2]);
    struct ash_layout layout = layout_of(&job, layouts[2]);
    char text[128];

    (void)state;
    assert_true(zb.time.bubble < 0.85 * usual.time.bubble && dual.time.bubble < usual.time.bubble);
    assert_float_equal(zb.memory.total, usual.memory.total, 1);
    assert_true(dual.time.network + dual.time.nvlink < usual.time.network + usual.time.nvlink);
    assert_true(dual.memory.weights > 1.9 * usual.memory.weights);
    assert_float_equal(dual.memory.optimizer, usual.memory.optimizer, 0.02 * usual.memory.optimizer);
    assert_non_null(strstr(ash_layout_text(&layout, text, sizeof(text)), " pp16-dualpipe "));
}

/* Experts: one kernel for all of them needs less than one each; biases cost passes; and scores that no kernel keeps to
 * itself cost most. */
static void kernels_that_exist_are_faster(void **state)
{
    struct ash_plan_job job = job_of("gpt-oss-120b", "8xp6-b200.48xlarge", 1280, 4096), plain = job, old;
    const char *layout = "ep=8,mbs=4,precision=fp8,recompute=selective";
    struct ash_plan_step fused, single;

    (void)state;
    job.stack = ash_stack_find("captured");
    fused = step_of(&job, layout);
    single = step_of(&plain, layout);
    assert_true(fused.tokens_s > 1.2 * single.tokens_s);
    plain.shape.expert_bias = false;
    assert_true(step_of(&plain, layout).time.memory < 0.9 * single.time.memory);
    plain.no_flash = true;
    assert_true(step_of(&plain, layout).tokens_s < 0.8 * single.tokens_s);
    old = plain;
    old.stack = ash_stack_find_on("Megatron-Bridge 26.06", job.cluster.machine.gpu, ASH_GPU_BF16);
    assert_string_equal(old.stack->name, "fused");
    old.stack = ash_stack_find_on("Megatron-Bridge 26.06", job.cluster.machine.gpu, ASH_GPU_FP8);
    assert_string_equal(old.stack->name, "captured");
    assert_string_equal(ash_stack_find_on("HAI-LLM", cluster_of("p5.48xlarge").machine.gpu, ASH_GPU_FP8)->name,
                        "deepseek");
}

/* ZeRO 2 keeps only its part of the gradients' sum, so they travel after every micro-batch; ZeRO 1 once per step. */
/* Scores that are not kept are recomputed, all of them; flash attention has none. */
static void scores_are_recomputed(void **state)
{
    static const char *const stacks[] = {"fused", "early"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ash_plan_job job = job_of("megatron-gpt-1t", "128xdgx-a100", 1024, 2048);
        struct ash_plan_step none, selective, full;
        double again, all;

        job.stack = ash_stack_find(stacks[i]);
        none = step_of(&job, "tp=8,pp=64,recompute=none");
        selective = step_of(&job, "tp=8,pp=64,recompute=selective");
        full = step_of(&job, "tp=8,pp=64,recompute=full");
        again = selective.time.compute - none.time.compute;
        all = full.time.compute - none.time.compute;
        assert_true(i == 0 ? again == 0 : again > 0.01 * all && again < all);
        assert_true(selective.time.memory > none.time.memory && selective.time.memory < full.time.memory);
    }
}

static void sharded_gradients_travel_every_time(void **state)
{
    struct ash_plan_job job = job_of("llama-3-8b", "8xp5.48xlarge", 512, 8192);
    struct ash_plan_step one = step_of(&job, "tp=2,zero=1,mbs=1"), two = step_of(&job, "tp=2,zero=2,mbs=1");
    double half = one.traffic.dp / 2; /* gradients there; weights back */

    (void)state;
    assert_int_equal(two.micro_batches, 16);
    assert_float_equal(two.traffic.dp, half * (1 + 16), 1e-6 * half);
    assert_true(two.time.total > one.time.total && two.memory.gradients < one.memory.gradients);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

static void collectives_follow_the_slower_level(void **state)
{
    struct ash_plan_job job = job_of("llama-3-8b", "4xp5.48xlarge", 64, 8192);
    struct ash_group_place inside = ash_group_place_of(&job.cluster, 8, 1),
                           all = ash_group_place_of(&job.cluster, 32, 1);
    struct ash_comm near = ash_comm_gather(&consts, &job.cluster, inside, 8e9);
    struct ash_comm far = ash_comm_gather(&consts, &job.cluster, all, 8e9);

    (void)state;
    assert_float_equal(inside.domains, 1, 0);
    assert_float_equal(all.domains, 4, 0);
    assert_float_equal(near.nvlink_s, 8e9 * 7 / 8 / (450e9 * consts.nvlink_share) + consts.nvlink_latency, 1e-9);
    assert_float_equal(near.network_s, 0, 0);
    /* p5: 400 GB/s per machine against 450 per GPU: 8 GB over 4 machines takes 15 ms at line rate */
    assert_true(far.network_s > 0.015 && far.network_s < 0.025);
    assert_float_equal(ash_comm_gather(&consts, &job.cluster, ash_group_place_of(&job.cluster, 1, 1), 1e9).total_s, 0,
                       0);
}

/* Copies for one machine travel once; a group inside a domain sends nothing over the network. */
static void dispatch_counts_what_crosses(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "16xp5.48xlarge", 128, 4096);
    struct ash_layout wide = layout_of(&job, "ep=64"), narrow = layout_of(&job, "ep=8");
    struct ash_dispatch_time once, plain, inside;

    (void)state;
    ash_plan_layer_dispatch(&consts, &job, &wide, &once);
    ash_plan_layer_dispatch(&consts, &job, &narrow, &inside);
    job.dedup_dispatch = false;
    ash_plan_layer_dispatch(&consts, &job, &wide, &plain);
    assert_true(once.outer_bytes < 0.8 * plain.outer_bytes);
    assert_float_equal(inside.outer_s, 0, 0);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void state_is_16_bytes_a_weight_and_shards(void **state)
{
    struct ash_plan_job job = job_of("llama-3-8b", "8xp5.48xlarge", 64, 8192);
    double params;
    struct ash_step_memory zero0, zero1, zero3;
    struct ash_layout layout = layout_of(&job, "zero=0");

    (void)state;
    params = ash_shape_params(&job.shape);
    ash_step_memory_of(&consts, &job, &layout, ASH_PLAN_RECOMPUTE_FULL, &zero0);
    layout = layout_of(&job, "zero=1");
    ash_step_memory_of(&consts, &job, &layout, ASH_PLAN_RECOMPUTE_FULL, &zero1);
    layout = layout_of(&job, "zero=3");
    ash_step_memory_of(&consts, &job, &layout, ASH_PLAN_RECOMPUTE_FULL, &zero3);
    assert_float_equal(zero0.weights / params, 2, 1e-6);
    assert_float_equal(zero0.optimizer / params, 12, 1e-6);
    assert_float_equal(zero1.optimizer * 64, zero0.optimizer, 1);
    assert_float_equal(zero1.weights, zero0.weights, 1);
    assert_float_equal(zero3.weights * 64, zero0.weights, 1);
    assert_float_equal(zero3.gradients * 64, zero0.gradients, 1);
}

/* Korthikanti et al. 2022: 34 bytes per token and element of width without scores, for a 4h MLP and no dropout masks 31
 * or so; full recomputation keeps 2. */
static void activations_are_the_published_ones(void **state)
{
    struct ash_plan_job job = job_of("gpt3-175b", "128xH100", 64, 2048);
    struct ash_layout layout = layout_of(&job, "tp=8");
    struct ash_step_memory none, full;
    double unit = 2048.0 * 12288 / 8 * 96;

    (void)state;
    ash_step_memory_of(&consts, &job, &layout, ASH_PLAN_RECOMPUTE_NONE, &none);
    ash_step_memory_of(&consts, &job, &layout, ASH_PLAN_RECOMPUTE_FULL, &full);
    assert_true(none.activations / unit > 26 && none.activations / unit < 34);
    assert_true(full.activations / unit > 2 && full.activations / unit < 2.5);
}

/* DeepSeek-V3 was trained on H800 in this layout with norms and up-projections recomputed, and took this
 * long (arXiv 2412.19437). */
static void deepseek_fits_as_published(void **state)
{
    struct ash_plan_job job = job_of("deepseek-v3", "256xhgx-h800", 15360, 4096);
    struct ash_plan_step step =
        step_of(&job, "pp=16,ep=64,zero=1,mbs=1,schedule=dualpipe,precision=fp8,recompute=selective");

    (void)state;
    assert_float_equal(cluster_of("1xhgx-h800").machine.gpu->memory_bytes,
                       cluster_of("1xdgx-h100").machine.gpu->memory_bytes, 1);
    assert_true(step.fits && step.memory.total > 60e9);
    assert_true(fabs(step.time.total / 19.907 - 1) < 0.12); /* 180,000 GPU-hours per 1e12 tokens */
    job.stack = ash_stack_find("HAI-LLM");
    assert_string_equal(job.stack->name, "deepseek");
    step = step_of(&job, "pp=16,ep=64,zero=1,mbs=1,schedule=dualpipe,precision=fp8,recompute=selective");
    assert_true(fabs(step.time.total / 19.907 - 1) < 0.08);
    step = step_of(&job, "pp=16,ep=64,zero=1,mbs=1,schedule=dualpipe,precision=fp8,recompute=none");
    assert_false(step.fits);
}

/* Layouts are read as tables print them. */
static void printed_layouts_are_read(void **state)
{
    struct ash_plan_job job = job_of("llama-3-70b", "8xp5.48xlarge", 128, 8192);
    struct ash_layout layout = layout_of(&job, "pp=4-zb-h1,offload=1");

    (void)state;
    assert_true(layout.pp == 4 && layout.schedule == ASH_PLAN_ZB_H1 && layout.offload);
    layout = layout_of(&job, "pp=4x5,offload=no");
    assert_true(layout.pp == 4 && layout.chunks == 5 && !layout.offload);
    layout = layout_of(&job, "tp4 pp4x5 cp2 dp2 zero1/2 mbs1 fp8 offload");
    assert_true(layout.tp == 4 && layout.pp == 4 && layout.chunks == 5 && layout.cp == 2 && layout.dp == 2);
    assert_true(layout.zero == 1 && layout.shard == 2 && layout.precision == ASH_GPU_FP8 && layout.offload);
    assert_int_equal(ash_layout_parse("tp", &layout, NULL), -EINVAL);
    assert_int_equal(ash_layout_parse("8", &layout, NULL), -EINVAL);
    assert_int_equal(ash_layout_parse("xp8", &layout, NULL), -EINVAL);
    assert_int_equal(ash_layout_parse("pp=4-zigzag", &layout, NULL), -EINVAL);
    assert_int_equal(ash_layout_parse("offload=maybe", &layout, NULL), -EINVAL);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void parts_add_up(void **state)
{
    struct ash_plan_job job = job_of("llama-3.1-405b", "128xp5.48xlarge", 512, 8192);
    struct ash_plan_step step = step_of(&job, "tp=8,pp=8,vpp=8,cp=2,precision=fp8");
    const struct ash_step_time *t = &step.time;

    (void)state;
    assert_float_equal(t->compute + t->memory + t->host + t->nvlink + t->network + t->bubble + t->optimizer + t->data +
                           t->jitter,
                       t->total, 1e-9 * t->total);
    assert_float_equal(step.tokens_s * t->total, 512 * 8192.0, 1);
    assert_true(step.mfu > 0.1 && step.mfu < 0.5); /* published: 0.84 of the bf16 peak, half of that in fp8, on H100 */
}

/* Without simulation the answer is close: searches rank by it. */
static void the_closed_form_is_near(void **state)
{
    struct ash_plan_job job = job_of("llama-3-70b", "8xp5.48xlarge", 128, 8192);
    struct ash_layout layout = layout_of(&job, "tp=4,pp=4,vpp=5,cp=2");
    struct ash_plan_step simulated, formula;

    (void)state;
    ash_step_predict(&consts, &job, &layout, true, &simulated);
    ash_step_predict(&consts, &job, &layout, false, &formula);
    assert_float_equal(formula.time.total / simulated.time.total, 1, 0.03);
}

static void more_of_anything_is_not_slower(void **state)
{
    struct ash_plan_job job = job_of("llama-3-70b", "16xp5.48xlarge", 256, 8192), faster = job;
    struct ash_gpu gpu = *job.cluster.machine.gpu;
    struct ash_plan_step base = step_of(&job, "tp=8,pp=2"), step;

    (void)state;
    faster.cluster.machine.net_bandwidth *= 4;
    step = step_of(&faster, "tp=8,pp=2");
    assert_true(step.time.total <= base.time.total);
    gpu.memory_bandwidth *= 2;
    faster.cluster.machine.gpu = &gpu;
    step = step_of(&faster, "tp=8,pp=2");
    assert_true(step.time.total < base.time.total);
    gpu.nvlink_bandwidth *= 2;
    assert_true(step_of(&faster, "tp=8,pp=2").time.total < step.time.total);
    assert_true(step_of(&job, "tp=8,pp=2,recompute=full").time.total >
                step_of(&job, "tp=8,pp=2,recompute=none").time.total);
    assert_true(step_of(&job, "tp=8,pp=2,precision=fp8").time.total < base.time.total);
}

/* A domain of 72 takes expert traffic off the network. */
static void experts_like_wide_domains(void **state)
{
    struct ash_plan_job narrow = job_of("deepseek-v3", "32xp6-b200.48xlarge", 2048, 4096), wide = narrow;
    struct ash_plan_step a, b;

    (void)state;
    wide.cluster.machine.domain_gpus = wide.cluster.domain_gpus = 72;
    a = step_of(&narrow, "pp=4,ep=64");
    b = step_of(&wide, "pp=4,ep=64");
    assert_true(a.time.network > 2 * b.time.network);
    assert_true(b.tokens_s > 1.1 * a.tokens_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_layouts_say_what_would_do),
        cmocka_unit_test(edges_may_be_pieces),
        cmocka_unit_test(layouts_read_back),
        cmocka_unit_test(schedules_trade_idle_time_for_memory),
        cmocka_unit_test(scores_are_recomputed),
        cmocka_unit_test(sharded_gradients_travel_every_time),
        cmocka_unit_test(kernels_that_exist_are_faster),
        cmocka_unit_test(collectives_follow_the_slower_level),
        cmocka_unit_test(dispatch_counts_what_crosses),
        cmocka_unit_test(state_is_16_bytes_a_weight_and_shards),
        cmocka_unit_test(activations_are_the_published_ones),
        cmocka_unit_test(deepseek_fits_as_published),
        cmocka_unit_test(printed_layouts_are_read),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(llama_3_ran_as_fast_as_its_software_says),
        cmocka_unit_test(wide_gradients_travel_and_stay),
        cmocka_unit_test(the_closed_form_is_near),
        cmocka_unit_test(more_of_anything_is_not_slower),
        cmocka_unit_test(experts_like_wide_domains),
    };

    return cmocka_run_group_tests(tests, open_facts, close_facts);
}
