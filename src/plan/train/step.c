/* One training step: layers through the pipeline, what data-parallel traffic the compute does not hide, the optimizer,
 * and the wait for the slowest machine. */
#include "plan/train/step_priv.h"

#include <math.h>
#include <stdlib.h>

#include "plan/train/comm.h"
#include "plan/train/kernel.h"
#include "plan/train/layer.h"
#include "plan/train/pipeline.h"

#define ADAM_BYTES 30.0 /* per weight: gradient 4, master, two moments read and written 24, bf16 copy 2 */

struct world {
    const struct ash_consts *consts;
    const struct ash_plan_job *job;
    const struct ash_layout *layout;
    const struct ash_stack *stack;
    const struct ash_gpu *gpu;
    struct ash_step_params params;
    struct ash_layer layer, head;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Ranks that hold copies of the same weights; under DualPipe a rank and its mirror image hold the same two stages. */
static double copies_of(const struct ash_layout *l)
{
    return (double)l->dp * l->cp * (l->schedule == ASH_SCHEDULE_DUALPIPE ? 2 : 1);
}

/* ---- data-parallel traffic --------------------------------------------------------------------------------------- */

static struct ash_comm sum(struct ash_comm a, struct ash_comm b)
{
    return (struct ash_comm){a.nvlink_s + b.nvlink_s, a.network_s + b.network_s, a.total_s + b.total_s,
                             a.network_bytes + b.network_bytes};
}

/* Gather (or scatter) of dense and of expert weights, each over the ranks that hold copies of the same; copies of dense
 * ones are tp apart, of experts ep * etp. */
static struct ash_comm sweep(const struct world *w, double copies, double dense, double experts, double bytes_each)
{
    const struct ash_layout *l = w->layout;
    double spread = (double)l->ep * l->etp, expert_copies = larger(1, copies * l->tp / spread);
    struct ash_group_place all = ash_group_place(&w->job->cluster, copies, l->tp);
    struct ash_group_place few = ash_group_place(&w->job->cluster, expert_copies, spread);

    all.net_share = few.net_share = w->job->net.dp;
    return sum(ash_comm_gather(w->consts, &w->job->cluster, all, dense * bytes_each),
               ash_comm_gather(w->consts, &w->job->cluster, few, experts * bytes_each));
}

static void charge(struct ash_step_time *time, const struct ash_comm *comm, double seconds)
{
    if (comm->network_s > comm->nvlink_s)
        time->network += seconds;
    else
        time->nvlink += seconds;
}

/* Gradients to their owners, weights back (ZeRO 0 to 2). Weights go once per step, beside the first forward pass.
 * Gradients go once beside the last backward pass; ZeRO 2 keeps no more than its own part of their sum, so they go
 * beside every one. What is hidden slows the compute that hides it. */
static void add_data_parallel(const struct world *w, double forward_s, double backward_s, int micro_batches,
                              struct ash_plan_step *step)
{
    double dense = w->params.layers + w->params.edge, times = w->layout->zero == 2 ? micro_batches : 1;
    struct ash_comm comm = sweep(w, copies_of(w->layout), dense, w->params.experts, 2);
    double hidden_f = 0, hidden_b = 0, tail = comm.total_s / w->job->shape.layers;

    if (w->job->tuning == ASH_TUNING_LORA || comm.total_s <= 0) return;
    if (w->stack->overlap_dp) {
        hidden_b = fmin(larger(0, comm.total_s - tail), backward_s);
        hidden_f = fmin(larger(0, comm.total_s - tail), forward_s);
    }
    step->traffic.dp += (1 + times) * comm.network_bytes;
    charge(&step->time, &comm,
           (1 + times) * comm.total_s - (hidden_f + times * hidden_b) * (1 - w->consts->interference));
}

/* Ranks that share one copy of the state. */
static double sharers(const struct ash_layout *l)
{
    return l->shard > 0 ? l->shard : copies_of(l);
}

/* The weights of one layer to all ranks that share them. */
static struct ash_comm gather_layer(const struct world *w)
{
    double held = ceil(w->job->shape.layers / w->layout->pp);

    return sweep(w, sharers(w->layout), w->params.layers / held, w->params.experts / held, 2);
}

/* Gathers of weights and scatters of gradients in a backward pass. */
static double backward_gathers(const struct world *w)
{
    return (w->layout->zero == 3 ? 1 : 0) + (w->job->tuning == ASH_TUNING_LORA ? 0 : 1);
}

/* Weights that are gathered layer by layer (ZeRO 3): seconds that one pass of one micro-batch waits for them. */
static void add_sharded(const struct world *w, const struct ash_parts *pass, double gathers, double micro_batches,
                        struct ash_plan_step *step)
{
    const struct ash_layout *l = w->layout;
    double ranks = sharers(l), layers = w->job->shape.layers / l->pp;
    struct ash_comm one = gather_layer(w);
    struct ash_comm edge = sweep(w, ranks, w->params.edge, 0, 2);
    double comm = one.total_s * gathers, work = ash_parts_sum(pass);
    double waits = larger(0, comm - work) + w->consts->interference * fmin(comm, work);

    if (!w->stack->overlap_dp) waits = comm;
    step->traffic.dp += (one.network_bytes * layers + edge.network_bytes * 0.5) * gathers * micro_batches;
    charge(&step->time, &one, (waits * layers + one.total_s + edge.total_s * gathers * 0.5) * micro_batches);
}

/* Replicas of sharded groups add their gradients up once per step. */
static void add_replicas(const struct world *w, struct ash_plan_step *step)
{
    const struct ash_layout *l = w->layout;
    double shard = sharers(l), replicas = copies_of(l) / shard;
    struct ash_group_place place = ash_group_place(&w->job->cluster, replicas, l->tp * shard);
    double own = (w->params.layers + w->params.edge + w->params.experts) / shard;
    struct ash_comm comm;

    if (replicas <= 1) return;
    place.net_share = w->job->net.dp;
    comm = ash_comm_reduce(w->consts, &w->job->cluster, place, own * 2);
    step->traffic.dp += comm.network_bytes;
    charge(&step->time, &comm, comm.total_s * 0.5);
}

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

/* Layers of virtual stage v: even, or with the embedding and the output counted as layers where that divides. */
static double layers_of(double layers, int virtual_stages, int v)
{
    double even = floor(layers / virtual_stages), rest = layers - even * virtual_stages;
    bool edges = rest > 0 && ash_divides(virtual_stages, layers + 2);

    if (edges) return (layers + 2) / virtual_stages - (v == 0) - (v == virtual_stages - 1);
    return even + (v < rest ? 1 : 0);
}

/* What a forward pass of the mean stage saves beside a backward pass (DualPipe): expert traffic of one runs beside the
 * other's compute, at the price of slowing it. */
static double pair_saving(const struct world *w)
{
    const struct ash_parts *f = &w->layer.forward, *b = &w->layer.backward;
    double work = f->compute + f->memory + b->compute + b->memory, hidden = fmin(w->layer.dispatch_s, work);

    if (w->layout->schedule != ASH_SCHEDULE_DUALPIPE) return 0;
    return w->job->shape.layers / w->layout->pp * hidden * (1 - w->consts->interference);
}

/* One micro-batch's activations to the next stage. */
static struct ash_comm send(const struct world *w)
{
    const struct ash_layout *l = w->layout;
    double tokens = l->micro_batch * w->job->seq_tokens / l->cp;
    double bytes = tokens * w->job->shape.hidden * 2 / (w->stack->sequence_parallel ? l->tp : 1);

    return ash_comm_send(w->consts, &w->job->cluster, (double)l->tp * l->cp * l->dp, w->job->net.pp, bytes);
}

/* Seconds of one micro-batch on one virtual stage, and in each layer and the output. */
struct pass {
    double layer, head;
};

static struct pass pass_of(const struct world *w, bool backward)
{
    return (struct pass){ash_parts_sum(backward ? &w->layer.backward : &w->layer.forward),
                         ash_parts_sum(backward ? &w->head.backward : &w->head.forward)};
}

/* The pipeline of a step with the times of its stages, which the caller frees as forward_s; NULL: memory is short. */
static struct ash_pipeline pipeline_of(const struct world *w, int micro_batches, double p2p_s)
{
    const struct ash_layout *l = w->layout;
    int count = l->pp * l->chunks;
    struct pass forward = pass_of(w, false), backward = pass_of(w, true);
    double *times = malloc((size_t)count * 3 * sizeof(*times));

    for (int v = 0; v < count && times != NULL; v++) {
        double layers = layers_of(w->job->shape.layers, count, v), head = v == count - 1 ? 1 : 0;

        times[v] = layers * forward.layer + head * forward.head;
        times[count + v] = layers * backward.layer + head * backward.head;
        times[2 * count + v] = layers * w->layer.weight_s + head * w->head.weight_s;
    }
    return (struct ash_pipeline){.schedule = l->schedule,
                                 .stages = l->pp,
                                 .chunks = l->chunks,
                                 .micro_batches = micro_batches,
                                 .forward_s = times,
                                 .backward_s = times != NULL ? times + count : NULL,
                                 .weight_s = times != NULL ? times + 2 * count : NULL,
                                 .saved_s = pair_saving(w),
                                 .p2p_s = p2p_s};
}

/* The pipeline's seconds; *least_out: that it takes at least. */
static double run_pipeline(const struct world *w, int micro_batches, bool simulate, struct ash_plan_step *step,
                           double *least_out)
{
    struct ash_pipeline pipeline;
    int shown = w->layout->pp * w->layout->chunks > 1 ? 1 : 0;
    double total = 0;

    *least_out = 0;
    if (w->layout->pp > 1) {
        struct ash_comm one = send(w);

        step->p2p = one.total_s;
        step->traffic.pp = 2 * one.network_bytes * w->layout->chunks * micro_batches; /* forward and backward */
    }
    pipeline = pipeline_of(w, micro_batches, step->p2p);
    if (pipeline.forward_s == NULL) return 0;
    step->stage_forward = pipeline.forward_s[shown];
    step->stage_backward = pipeline.backward_s[shown];
    if (simulate && w->layout->pp > 1) total = ash_pipeline_run(&pipeline, NULL);
    if (total <= 0) total = ash_pipeline_estimate(&pipeline);
    *least_out = ash_pipeline_least(&pipeline);
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
        ash_step_memory(consts, job, layout, (enum ash_plan_recompute)r, &memory);
        if (memory.total <= memory.capacity) return (enum ash_plan_recompute)r;
    }
    ash_step_memory(consts, job, layout, ASH_PLAN_RECOMPUTE_FULL, &memory);
    return memory.total <= memory.capacity ? ASH_PLAN_RECOMPUTE_FULL : ASH_PLAN_RECOMPUTE_NONE;
}

/* The share of a stage's layers that must be recomputed as a whole so that the rest fits with cheap parts recomputed; 1
 * where nothing less than all of them does. */
static double share_that_fits(const struct ash_consts *consts, const struct ash_plan_job *job,
                              const struct ash_layout *layout)
{
    struct ash_step_memory some, all;

    ash_step_memory(consts, job, layout, ASH_PLAN_RECOMPUTE_SELECTIVE, &some);
    ash_step_memory(consts, job, layout, ASH_PLAN_RECOMPUTE_FULL, &all);
    if (some.total <= all.total) return 1;
    return fmin(1, fmax(0, (some.total - some.capacity) / (some.total - all.total)));
}

/* The mean layer where a share of them is recomputed as a whole, the others in their cheap parts. */
static void mix_layers(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                       struct ash_layer *layer)
{
    double share = share_that_fits(consts, job, layout);
    struct ash_parts whole = layer->backward;
    struct ash_layer cheap;

    ash_layer_predict(consts, job, layout, ASH_PLAN_RECOMPUTE_SELECTIVE, &cheap);
    layer->backward = (struct ash_parts){0};
    ash_parts_add(&layer->backward, &whole, share);
    ash_parts_add(&layer->backward, &cheap.backward, 1 - share);
}

/* Take what pairs of passes hide off the traffic that they hide. */
static void hide_pairs(const struct world *w, int micro_batches, struct ash_step_time *time)
{
    struct ash_pipeline pipeline = {
        .schedule = w->layout->schedule, .stages = w->layout->pp, .micro_batches = micro_batches};
    double hidden = larger(0, ash_pipeline_pairs(&pipeline)) * pair_saving(w), traffic = time->network + time->nvlink;
    double left = traffic > 0 ? larger(0, 1 - hidden / traffic) : 1;

    time->network *= left;
    time->nvlink *= left;
}

/* The work of the busiest stage, by part. */
static void add_work(const struct world *w, int micro_batches, struct ash_plan_step *step)
{
    struct ash_step_time *time = &step->time;
    struct ash_parts sum = {0};
    double layers = ceil(w->job->shape.layers / w->layout->pp);

    ash_parts_add(&sum, &w->layer.forward, layers * micro_batches);
    ash_parts_add(&sum, &w->layer.backward, layers * micro_batches);
    if (w->layout->pp == 1) {
        ash_parts_add(&sum, &w->head.forward, micro_batches);
        ash_parts_add(&sum, &w->head.backward, micro_batches);
    }
    time->compute += sum.compute;
    time->memory += sum.memory;
    time->host += sum.host;
    time->nvlink += sum.nvlink;
    time->network += sum.network;
    hide_pairs(w, micro_batches, time);
    step->traffic.tp = sum.tp_bytes;
    step->traffic.cp = sum.cp_bytes;
    step->traffic.ep = sum.ep_bytes;
}

static double optimizer_seconds(const struct world *w)
{
    const struct ash_step_params *p = &w->params;
    double own = (p->layers + p->edge) / p->shard + p->experts / p->expert_shard;

    if (w->job->tuning == ASH_TUNING_LORA) return 0;
    if (w->layout->offload) return own * 8 / larger(w->gpu->host_bandwidth, 1e9) + own * ADAM_BYTES / 40e9;
    return ash_kernel_memory(w->consts, w->gpu, own * ADAM_BYTES);
}

/* Gradients of every micro-batch are added to a buffer of their own; under DualPipe it passes one of two stages. */
static double accumulate_seconds(const struct world *w, int micro_batches)
{
    double stages = w->layout->schedule == ASH_SCHEDULE_DUALPIPE ? 2 : 1;
    double own = (w->params.layers + w->params.edge + w->params.experts) / stages;

    if (w->job->tuning == ASH_TUNING_LORA || w->layout->zero >= 3) return 0;
    return ash_kernel_memory(w->consts, w->gpu, own * (w->stack->fused ? 6 : 12)) * micro_batches;
}

static void add_parallel(const struct world *w, int micro_batches, struct ash_plan_step *step)
{
    double layers = w->job->shape.layers / w->layout->pp;

    if (copies_of(w->layout) <= 1) return;
    if (w->layout->zero < 2 || (w->layout->zero == 2 && w->stack->fused)) {
        add_data_parallel(w, layers * ash_parts_sum(&w->layer.forward), layers * ash_parts_sum(&w->layer.backward),
                          micro_batches, step);
        return;
    }
    add_sharded(w, &w->layer.forward, 1, micro_batches, step);
    add_sharded(w, &w->layer.backward, backward_gathers(w), micro_batches, step);
    add_replicas(w, step);
}

static void finish(const struct world *w, struct ash_plan_step *step)
{
    struct ash_step_time *t = &step->time;
    double busy = t->compute + t->memory + t->host + t->nvlink + t->network + t->bubble + t->optimizer, tokens;
    double peak = w->gpu->flops[w->layout->precision] * w->job->cluster.gpus;

    t->data = w->consts->step_overhead;
    t->jitter = busy * w->consts->jitter * log2(larger(1, w->job->cluster.machines));
    t->total = busy + t->data + t->jitter;
    tokens = w->job->global_batch * w->job->seq_tokens;
    step->tokens_s = tokens / t->total;
    step->tokens_s_gpu = step->tokens_s / w->job->cluster.gpus;
    step->model_flops = ash_shape_train_flops(&w->job->shape, w->job->seq_tokens);
    step->mfu = step->tokens_s * step->model_flops / peak;
}

static struct world world_of(const struct ash_consts *consts, const struct ash_plan_job *job,
                             const struct ash_layout *layout, enum ash_plan_recompute recompute,
                             struct ash_layer_memo *memo)
{
    struct world w = {.consts = consts,
                      .job = job,
                      .layout = layout,
                      .stack = job->stack != NULL ? job->stack : ash_stack_find(NULL),
                      .gpu = job->cluster.machine.gpu};

    ash_step_params(job, layout, &w.params);
    ash_layer_memo_predict(memo, consts, job, layout, recompute, &w.layer, &w.head);
    if (job->recompute_some && layout->recompute == ASH_PLAN_RECOMPUTE_FIT && recompute == ASH_PLAN_RECOMPUTE_FULL)
        mix_layers(consts, job, layout, &w.layer);
    return w;
}

/* Layers that a pipeline of so many micro-batches passes one after the other at least: those of a rank, of the last
 * among the fullest, all the time, and before and after those that the first micro-batch passes on its way there and
 * back. As layers_of deals them out. */
static double least_layers(double layers, int pp, int chunks, double micro_batches)
{
    double stages = (double)pp * chunks, even = (double)(int)(layers / stages), rest = layers - even * stages;
    double own = even * chunks, before = (pp - 1) * even;

    if (pp == 1) return layers * micro_batches;
    if (rest > 0 && ash_divides(stages, layers + 2)) { /* ends hold one layer less: the last but one */
        own = (even + 1) * chunks - (pp == 2 ? 1 : 0);
        before = larger(0, (pp - 2) * (even + 1) - 1);
    } else if (rest > 0 && chunks == 1) {
        own = even + 1;
        before = (rest - 1) * (even + 1);
    }
    return larger(layers / pp * micro_batches, own * micro_batches + before);
}

double ash_step_least(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      struct ash_layer_memo *memo)
{
    bool fit = layout->recompute == ASH_PLAN_RECOMPUTE_FIT;
    double micro_batches = ash_layout_micro_batches(job, layout), dispatch_s;
    double work =
        ash_layer_memo_work(memo, consts, job, layout, fit ? ASH_PLAN_RECOMPUTE_NONE : layout->recompute, &dispatch_s);

    if (layout->schedule == ASH_SCHEDULE_DUALPIPE)
        work = larger(0, work - dispatch_s); /* at best all of it is hidden */
    if (layout->schedule == ASH_SCHEDULE_1F1B)
        return work * least_layers(job->shape.layers, layout->pp, layout->chunks, micro_batches);
    return job->shape.layers / layout->pp * work * micro_batches;
}

double ash_step_gathers(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_layout *layout)
{
    struct world w = {.consts = consts, .job = job, .layout = layout};

    if (layout->zero < 3 || copies_of(layout) <= 1) return 0;
    ash_step_params(job, layout, &w.params);
    return gather_layer(&w).total_s * job->shape.layers / layout->pp * (1 + backward_gathers(&w));
}

double ash_step_timeline(const struct ash_consts *consts, const struct ash_plan_job *job,
                         const struct ash_layout *layout, int micro_batches, struct ash_pipeline_event *events_out)
{
    struct world w = world_of(consts, job, layout, ash_step_recompute(consts, job, layout), NULL);
    struct ash_pipeline pipeline = pipeline_of(&w, micro_batches, layout->pp > 1 ? send(&w).total_s : 0);
    double total = pipeline.forward_s != NULL ? ash_pipeline_run(&pipeline, events_out) : 0;

    free((void *)pipeline.forward_s);
    return larger(0, total);
}

void ash_step_predict(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_layout *layout,
                      bool simulate, struct ash_plan_step *step_out)
{
    ash_step_predict_memo(consts, job, layout, simulate, NULL, step_out);
}

void ash_step_predict_memo(const struct ash_consts *consts, const struct ash_plan_job *job,
                           const struct ash_layout *layout, bool simulate, struct ash_layer_memo *memo,
                           struct ash_plan_step *step_out)
{
    enum ash_plan_recompute recompute = ash_step_recompute(consts, job, layout);
    struct world w = world_of(consts, job, layout, recompute, memo);
    struct ash_plan_step step = {.recompute = recompute};
    double pipeline, least, busy;

    ash_step_memory(consts, job, layout, step.recompute, &step.memory);
    step.fits = step.memory.total <= step.memory.capacity;
    step.micro_batches = ash_layout_micro_batches(job, layout);
    pipeline = run_pipeline(&w, step.micro_batches, simulate, &step, &least);
    add_work(&w, step.micro_batches, &step);
    busy = step.time.compute + step.time.memory + step.time.host + step.time.nvlink + step.time.network;
    step.time.bubble = larger(0, pipeline - busy);
    step.bubble_least = larger(0, least - busy);
    step.time.memory += accumulate_seconds(&w, step.micro_batches);
    add_parallel(&w, step.micro_batches, &step);
    step.time.optimizer = optimizer_seconds(&w);
    finish(&w, &step);
    step.layer_forward = ash_parts_sum(&w.layer.forward);
    step.layer_backward = ash_parts_sum(&w.layer.backward);
    step.layer_dispatch = w.layer.dispatch_s;
    step.layer_tp = w.layer.tensor_s;
    *step_out = step;
}
