/* One training step: layers through the pipeline, what data-parallel traffic the compute does not hide, the optimizer,
 * and the wait for the slowest machine. */
#include "plan/train/step_priv.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "plan/number.h"
#include "plan/train/comm.h"
#include "plan/train/kernel.h"
#include "plan/train/layer.h"
#include "plan/train/pipeline.h"

#define SMS 132         /* of a GPU whose multiprocessors are not known: Hopper's */
#define ADAM_BYTES 30.0 /* per weight: gradient 4, master, two moments read and written 24, bf16 copy 2 */

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

/* Layers of virtual stage v: even, or with the embedding and the output counted as layers if that divides. */
static double layers_of(double layers, int virtual_stages, int v)
{
    double even = floor(layers / virtual_stages), rest = layers - even * virtual_stages;
    bool edges = rest > 0 && ash_divides(virtual_stages, layers + 2);

    if (edges) return (layers + 2) / virtual_stages - (v == 0) - (v == virtual_stages - 1);
    return even + (v < rest ? 1 : 0);
}

/* What a forward pass of the mean stage saves by overlapping a backward pass (DualPipe): expert traffic of one overlaps
 * with the other's compute, which meanwhile does without the multiprocessors that forward the traffic. */
static double pair_saving(const struct ash_step_context *ctx)
{
    const struct ash_plan_parts *f = &ctx->layer.forward, *b = &ctx->layer.backward;
    double left = 1 - fmin(0.5, ctx->consts->dispatch_sms / ash_larger(1, ctx->gpu->sms > 0 ? ctx->gpu->sms : SMS));
    double work = f->compute + f->memory + b->compute + b->memory, hidden = fmin(ctx->layer.dispatch_s, work / left);

    if (ctx->layout->schedule != ASH_PLAN_DUALPIPE) return 0;
    return ctx->job->shape.layers / ctx->layout->pp * hidden * left;
}

/* One micro-batch's activations to the next stage. */
static struct ash_comm send(const struct ash_step_context *ctx)
{
    const struct ash_layout *l = ctx->layout;
    double tokens = l->micro_batch * ctx->job->seq_tokens / l->cp;
    double bytes = tokens * ctx->job->shape.hidden * 2 / (ctx->stack->sequence_parallel ? l->tp : 1);

    return ash_comm_send(ctx->consts, &ctx->job->cluster, (double)l->tp * l->cp * l->dp, ctx->job->net.pp, bytes);
}

/* Seconds of one micro-batch on one virtual stage, and in each layer and the output. */
struct pass {
    double layer, head;
};

static struct pass pass_of(const struct ash_step_context *ctx, bool backward)
{
    return (struct pass){ash_plan_parts_sum(backward ? &ctx->layer.backward : &ctx->layer.forward),
                         ash_plan_parts_sum(backward ? &ctx->head.backward : &ctx->head.forward)};
}

/* The pipeline of a step with the times of its stages, which the caller frees as forward_s; NULL: memory is short. */
static struct ash_plan_pipeline pipeline_of(const struct ash_step_context *ctx, int micro_batches, double p2p_s)
{
    const struct ash_layout *l = ctx->layout;
    int count = l->pp * l->chunks;
    struct pass forward = pass_of(ctx, false), backward = pass_of(ctx, true);
    double *times = malloc((size_t)count * 3 * sizeof(*times));

    for (int v = 0; v < count && times != NULL; v++) {
        double layers = layers_of(ctx->job->shape.layers, count, v), head = v == count - 1 ? 1 : 0;

        times[v] = layers * forward.layer + head * forward.head;
        times[count + v] = layers * backward.layer + head * backward.head;
        times[2 * count + v] = layers * ctx->layer.weight_s + head * ctx->head.weight_s;
    }
    return (struct ash_plan_pipeline){.schedule = l->schedule,
                                      .stages = l->pp,
                                      .chunks = l->chunks,
                                      .micro_batches = micro_batches,
                                      .forward_s = times,
                                      .backward_s = times != NULL ? times + count : NULL,
                                      .weight_s = times != NULL ? times + 2 * count : NULL,
                                      .saved_s = pair_saving(ctx),
                                      .p2p_s = p2p_s};
}

/* The pipeline's seconds; *least_out: that it takes at least. */
static double run_pipeline(const struct ash_step_context *ctx, int micro_batches, bool simulate,
                           struct ash_plan_step *step, double *least_out)
{
    struct ash_plan_pipeline pipeline;
    int shown = ctx->layout->pp * ctx->layout->chunks > 1 ? 1 : 0;
    double total = 0;

    *least_out = 0;
    if (ctx->layout->pp > 1) {
        struct ash_comm one = send(ctx);

        step->p2p = one.total_s;
        step->traffic.pp = 2 * one.network_bytes * ctx->layout->chunks * micro_batches; /* forward and backward */
    }
    pipeline = pipeline_of(ctx, micro_batches, step->p2p);
    if (pipeline.forward_s == NULL) return 0;
    step->stage_forward = pipeline.forward_s[shown];
    step->stage_backward = pipeline.backward_s[shown];
    if (simulate && ctx->layout->pp > 1) total = ash_plan_pipeline_run(&pipeline, NULL);
    if (total <= 0) total = ash_plan_pipeline_estimate(&pipeline);
    *least_out = ash_plan_pipeline_least(&pipeline);
    free((void *)pipeline.forward_s);
    return total;
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

enum ash_plan_recompute ash_step_recompute(const struct ash_consts *consts, const struct ash_plan_job *job,
                                           const struct ash_layout *layout)
{
    struct ash_step_memory memory;

    if (layout->recompute != ASH_PLAN_RECOMPUTE_FIT) return layout->recompute;
    for (int r = ASH_PLAN_RECOMPUTE_NONE; r < ASH_PLAN_RECOMPUTE_FULL; r++) {
        ash_step_memory_of(consts, job, layout, (enum ash_plan_recompute)r, &memory);
        if (memory.total <= memory.capacity) return (enum ash_plan_recompute)r;
    }
    ash_step_memory_of(consts, job, layout, ASH_PLAN_RECOMPUTE_FULL, &memory);
    return memory.total <= memory.capacity ? ASH_PLAN_RECOMPUTE_FULL : ASH_PLAN_RECOMPUTE_NONE;
}

/* The share of a stage's layers that must be recomputed as a whole so that the rest fits with cheap parts recomputed; 1
 * where nothing less than all of them does. */
static double share_that_fits(const struct ash_consts *consts, const struct ash_plan_job *job,
                              const struct ash_layout *layout)
{
    struct ash_step_memory some, all;

    ash_step_memory_of(consts, job, layout, ASH_PLAN_RECOMPUTE_SELECTIVE, &some);
    ash_step_memory_of(consts, job, layout, ASH_PLAN_RECOMPUTE_FULL, &all);
    if (some.total <= all.total) return 1;
    return fmin(1, fmax(0, (some.total - some.capacity) / (some.total - all.total)));
}

/* The mean layer where a share of them is recomputed as a whole, the others in their cheap parts. */
static void mix_layers(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                       struct ash_plan_layer *layer)
{
    double share = share_that_fits(consts, job, layout);
    struct ash_plan_parts whole = layer->backward;
    struct ash_plan_layer cheap;

    ash_plan_layer_predict(consts, job, layout, ASH_PLAN_RECOMPUTE_SELECTIVE, &cheap);
    layer->backward = (struct ash_plan_parts){0};
    ash_plan_parts_add(&layer->backward, &whole, share);
    ash_plan_parts_add(&layer->backward, &cheap.backward, 1 - share);
}

/* Take what pairs of passes hide off the traffic that they hide. */
static void hide_pairs(const struct ash_step_context *ctx, int micro_batches, struct ash_step_time *time)
{
    struct ash_plan_pipeline pipeline = {
        .schedule = ctx->layout->schedule, .stages = ctx->layout->pp, .micro_batches = micro_batches};
    double hidden = ash_larger(0, ash_plan_pipeline_pairs(&pipeline)) * pair_saving(ctx),
           traffic = time->network + time->nvlink;
    double left = traffic > 0 ? ash_larger(0, 1 - hidden / traffic) : 1;

    time->network *= left;
    time->nvlink *= left;
}

/* The work of the busiest stage, by part. */
static void add_work(const struct ash_step_context *ctx, int micro_batches, struct ash_plan_step *step)
{
    struct ash_step_time *time = &step->time;
    struct ash_plan_parts sum = {0};
    double layers = ceil(ctx->job->shape.layers / ctx->layout->pp);

    ash_plan_parts_add(&sum, &ctx->layer.forward, layers * micro_batches);
    ash_plan_parts_add(&sum, &ctx->layer.backward, layers * micro_batches);
    if (ctx->layout->pp == 1) {
        ash_plan_parts_add(&sum, &ctx->head.forward, micro_batches);
        ash_plan_parts_add(&sum, &ctx->head.backward, micro_batches);
    }
    time->compute += sum.compute;
    time->memory += sum.memory;
    time->host += sum.host;
    time->nvlink += sum.nvlink;
    time->network += sum.network;
    hide_pairs(ctx, micro_batches, time);
    step->traffic.tp = sum.tp_bytes;
    step->traffic.cp = sum.cp_bytes;
    step->traffic.ep = sum.ep_bytes;
}

static double optimizer_seconds(const struct ash_step_context *ctx)
{
    const struct ash_step_params *p = &ctx->params;
    double own = (p->layers + p->edge) / p->shard + p->experts / p->expert_shard;

    if (ctx->job->tuning == ASH_TUNING_LORA) return 0;
    if (ctx->layout->offload) return own * 8 / ash_larger(ctx->gpu->host_bandwidth, 1e9) + own * ADAM_BYTES / 40e9;
    return ash_kernel_memory(ctx->consts, ctx->gpu, own * ADAM_BYTES);
}

/* Gradients of every micro-batch are added to a buffer of their own; under DualPipe it passes one of two stages. */
static double accumulate_seconds(const struct ash_step_context *ctx, int micro_batches)
{
    double stages = ctx->layout->schedule == ASH_PLAN_DUALPIPE ? 2 : 1;
    double own = (ctx->params.layers + ctx->params.edge + ctx->params.experts) / stages;

    if (ctx->job->tuning == ASH_TUNING_LORA || ctx->layout->zero >= 3) return 0;
    return ash_kernel_memory(ctx->consts, ctx->gpu, own * (ctx->stack->fused ? 6 : 12)) * micro_batches;
}

static void finish(const struct ash_step_context *ctx, struct ash_plan_step *step)
{
    struct ash_step_time *t = &step->time;
    double busy = t->compute + t->memory + t->host + t->nvlink + t->network + t->bubble + t->optimizer, tokens;
    double peak = ctx->gpu->flops[ctx->layout->precision] * ctx->job->cluster.gpus;

    t->data = ctx->consts->step_overhead;
    t->jitter = busy * ctx->consts->jitter * log2(ash_larger(1, ctx->job->cluster.machines));
    t->total = busy + t->data + t->jitter;
    tokens = ctx->job->global_batch * ctx->job->seq_tokens;
    step->tokens_s = tokens / t->total;
    step->tokens_s_gpu = step->tokens_s / ctx->job->cluster.gpus;
    step->model_flops = ash_shape_train_flops(&ctx->job->shape, ctx->job->seq_tokens);
    step->mfu = step->tokens_s * step->model_flops / peak;
}

static struct ash_step_context context_of(const struct ash_consts *consts, const struct ash_plan_job *job,
                                          const struct ash_layout *layout, enum ash_plan_recompute recompute,
                                          struct ash_plan_layer_memo *memo)
{
    struct ash_step_context ctx = {.consts = consts,
                                   .job = job,
                                   .layout = layout,
                                   .stack = job->stack != NULL ? job->stack : ash_stack_find(NULL),
                                   .gpu = job->cluster.machine.gpu};

    ash_step_params_of(job, layout, &ctx.params);
    ash_plan_layer_memo_predict(memo, consts, job, layout, recompute, &ctx.layer, &ctx.head);
    if (job->recompute_some && layout->recompute == ASH_PLAN_RECOMPUTE_FIT && recompute == ASH_PLAN_RECOMPUTE_FULL)
        mix_layers(consts, job, layout, &ctx.layer);
    return ctx;
}

/* The least number of layers that a pipeline computes one after the other: those of the last of the fullest ranks for
 * every micro-batch, and those before that rank for the first micro-batch, forward and backward. Layers are split as
 * layers_of splits them. */
static double least_layers(double layers, int pp, int chunks, double micro_batches)
{
    double stages = (double)pp * chunks, even = (double)(int)(layers / stages), rest = layers - even * stages;
    double own = even * chunks, before = (pp - 1) * even;

    if (pp == 1) return layers * micro_batches;
    if (rest > 0 && ash_divides(stages, layers + 2)) { /* ends hold one layer less: the last but one */
        own = (even + 1) * chunks - (pp == 2 ? 1 : 0);
        before = ash_larger(0, (pp - 2) * (even + 1) - 1);
    } else if (rest > 0 && chunks == 1) {
        own = even + 1;
        before = (rest - 1) * (even + 1);
    }
    return ash_larger(layers / pp * micro_batches, own * micro_batches + before);
}

double ash_step_least(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      struct ash_plan_layer_memo *memo)
{
    bool fit = layout->recompute == ASH_PLAN_RECOMPUTE_FIT;
    double micro_batches = ash_layout_micro_batches(job, layout), dispatch_s;
    double work = ash_plan_layer_memo_work(memo, consts, job, layout, fit ? ASH_PLAN_RECOMPUTE_NONE : layout->recompute,
                                           &dispatch_s);

    if (layout->schedule == ASH_PLAN_DUALPIPE)
        work = ash_larger(0, work - dispatch_s); /* at best all of it is hidden */
    if (layout->schedule == ASH_PLAN_1F1B)
        return work * least_layers(job->shape.layers, layout->pp, layout->chunks, micro_batches);
    return job->shape.layers / layout->pp * work * micro_batches;
}

double ash_step_gathers(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_layout *layout)
{
    struct ash_step_context ctx = {.consts = consts, .job = job, .layout = layout};

    if (layout->zero < 3 || ash_step_copies(layout) <= 1) return 0;
    ash_step_params_of(job, layout, &ctx.params);
    return ash_step_gather_layer(&ctx).total_s * job->shape.layers / layout->pp * (1 + ash_step_backward_gathers(&ctx));
}

double ash_step_timeline(const struct ash_consts *consts, const struct ash_plan_job *job,
                         const struct ash_layout *layout, int micro_batches, struct ash_plan_pipeline_event *events_out)
{
    struct ash_step_context ctx = context_of(consts, job, layout, ash_step_recompute(consts, job, layout), NULL);
    struct ash_plan_pipeline pipeline = pipeline_of(&ctx, micro_batches, layout->pp > 1 ? send(&ctx).total_s : 0);
    double total = pipeline.forward_s != NULL ? ash_plan_pipeline_run(&pipeline, events_out) : 0;

    free((void *)pipeline.forward_s);
    return ash_larger(0, total);
}

void ash_step_predict(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      bool simulate, struct ash_plan_step *step_out)
{
    ash_step_predict_memo(consts, job, layout, simulate, NULL, step_out);
}

void ash_step_predict_memo(const struct ash_consts *consts, const struct ash_plan_job *job,
                           const struct ash_layout *layout, bool simulate, struct ash_plan_layer_memo *memo,
                           struct ash_plan_step *step_out)
{
    enum ash_plan_recompute recompute = ash_step_recompute(consts, job, layout);
    struct ash_step_context ctx = context_of(consts, job, layout, recompute, memo);
    struct ash_plan_step step = {.recompute = recompute};
    double pipeline, least, busy;

    ash_assert(layout->dp >= 1 && layout->micro_batch >= 1 && layout->chunks >= 1);
    ash_assert(job->cluster.gpus >= 1 && job->global_batch >= 1 && job->seq_tokens >= 1);
    ash_step_memory_of(consts, job, layout, step.recompute, &step.memory);
    step.fits = step.memory.total <= step.memory.capacity;
    step.micro_batches = ash_layout_micro_batches(job, layout);
    pipeline = run_pipeline(&ctx, step.micro_batches, simulate, &step, &least);
    add_work(&ctx, step.micro_batches, &step);
    busy = step.time.compute + step.time.memory + step.time.host + step.time.nvlink + step.time.network;
    step.time.bubble = ash_larger(0, pipeline - busy);
    step.bubble_least = ash_larger(0, least - busy);
    step.time.memory += accumulate_seconds(&ctx, step.micro_batches);
    ash_step_add_parallel(&ctx, step.micro_batches, &step);
    step.time.optimizer = optimizer_seconds(&ctx);
    finish(&ctx, &step);
    step.layer_forward = ash_plan_parts_sum(&ctx.layer.forward);
    step.layer_backward = ash_plan_parts_sum(&ctx.layer.backward);
    step.layer_dispatch = ctx.layer.dispatch_s;
    step.layer_tp = ctx.layer.tensor_s;
    *step_out = step;
}
