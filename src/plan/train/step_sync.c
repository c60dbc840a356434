/* Data-parallel traffic of a step: gradients and weights of ZeRO 0 to 3, and what compute hides of it. */
#include <math.h>

#include "plan/number.h"
#include "plan/train/step_priv.h"

/* Ranks that hold copies of the same weights; under DualPipe a rank and its mirror image hold the same two stages. */
double ash_step_copies(const struct ash_layout *l)
{
    return (double)l->dp * l->cp * (l->schedule == ASH_PLAN_DUALPIPE ? 2 : 1);
}

static struct ash_comm sum(struct ash_comm a, struct ash_comm b)
{
    return (struct ash_comm){a.nvlink_s + b.nvlink_s, a.network_s + b.network_s, a.total_s + b.total_s,
                             a.network_bytes + b.network_bytes};
}

/* Gather (or scatter) of dense and of expert weights, each over the ranks that hold copies of the same; copies of dense
 * ones are tp apart, of experts ep * etp. */
static struct ash_comm sweep(const struct ash_step_context *ctx, double copies, double dense, double experts,
                             double bytes_each)
{
    const struct ash_layout *l = ctx->layout;
    double spread = (double)l->ep * l->etp, expert_copies = ash_larger(1, copies * l->tp / spread);
    struct ash_group_place all = ash_group_place_of(&ctx->job->cluster, copies, l->tp);
    struct ash_group_place few = ash_group_place_of(&ctx->job->cluster, expert_copies, spread);

    all.net_share = few.net_share = ctx->job->net.dp;
    return sum(ash_comm_gather(ctx->consts, &ctx->job->cluster, all, dense * bytes_each),
               ash_comm_gather(ctx->consts, &ctx->job->cluster, few, experts * bytes_each));
}

static void charge(struct ash_step_time *time, const struct ash_comm *comm, double seconds)
{
    if (comm->network_s > comm->nvlink_s)
        time->network += seconds;
    else
        time->nvlink += seconds;
}

/* Bytes of a gradient that travels. */
static double gradient_bytes(const struct ash_step_context *ctx)
{
    return ctx->stack->wide_gradients ? 4 : 2;
}

/* Gradients to their owners, weights back (ZeRO 0 to 2). Weights go once per step, during the first forward pass.
 * Gradients go once during the last backward pass; ZeRO 2 keeps no more than its own part of their sum, so they go
 * during every one. Overlapped traffic slows the compute that hides it. */
static void add_data_parallel(const struct ash_step_context *ctx, double forward_s, double backward_s,
                              int micro_batches, struct ash_plan_step *step)
{
    double dense = ctx->params.layers + ctx->params.edge, times = ctx->layout->zero == 2 ? micro_batches : 1;
    struct ash_comm weights = sweep(ctx, ash_step_copies(ctx->layout), dense, ctx->params.experts, 2), gradients;
    double hidden_f = 0, hidden_b = 0,
           but_one = 1 - 1 / ctx->job->shape.layers; /* one layer's has nothing to hide in */

    if (ctx->job->tuning == ASH_TUNING_LORA || weights.total_s <= 0) return;
    gradients = sweep(ctx, ash_step_copies(ctx->layout), dense, ctx->params.experts, gradient_bytes(ctx));
    if (ctx->stack->overlap_dp) {
        hidden_b = fmin(gradients.total_s * but_one, backward_s);
        hidden_f = fmin(weights.total_s * but_one, forward_s);
    }
    step->traffic.dp += weights.network_bytes + times * gradients.network_bytes;
    charge(&step->time, &weights,
           weights.total_s + times * gradients.total_s -
               (hidden_f + times * hidden_b) * (1 - ctx->consts->interference));
}

/* Ranks that share one copy of the state. */
static double sharers(const struct ash_layout *l)
{
    return l->shard > 0 ? l->shard : ash_step_copies(l);
}

/* The weights of one layer to all ranks that share them. */
struct ash_comm ash_step_gather_layer(const struct ash_step_context *ctx)
{
    double held = ceil(ctx->job->shape.layers / ctx->layout->pp);

    return sweep(ctx, sharers(ctx->layout), ctx->params.layers / held, ctx->params.experts / held, 2);
}

/* Gathers of weights and scatters of gradients in a backward pass. */
double ash_step_backward_gathers(const struct ash_step_context *ctx)
{
    return (ctx->layout->zero == 3 ? 1 : 0) + (ctx->job->tuning == ASH_TUNING_LORA ? 0 : 1);
}

/* Weights that are gathered layer by layer (ZeRO 3): seconds that one pass of one micro-batch waits for them. */
static void add_sharded(const struct ash_step_context *ctx, const struct ash_plan_parts *pass, double gathers,
                        double micro_batches, struct ash_plan_step *step)
{
    const struct ash_layout *l = ctx->layout;
    double ranks = sharers(l), layers = ctx->job->shape.layers / l->pp;
    struct ash_comm one = ash_step_gather_layer(ctx);
    struct ash_comm edge = sweep(ctx, ranks, ctx->params.edge, 0, 2);
    double comm = one.total_s * gathers, work = ash_plan_parts_sum(pass);
    double waits = ash_larger(0, comm - work) + ctx->consts->interference * fmin(comm, work);

    if (!ctx->stack->overlap_dp) waits = comm;
    step->traffic.dp += (one.network_bytes * layers + edge.network_bytes * 0.5) * gathers * micro_batches;
    charge(&step->time, &one, (waits * layers + one.total_s + edge.total_s * gathers * 0.5) * micro_batches);
}

/* Replicas of sharded groups add their gradients up once per step. */
static void add_replicas(const struct ash_step_context *ctx, struct ash_plan_step *step)
{
    const struct ash_layout *l = ctx->layout;
    double shard = sharers(l), replicas = ash_step_copies(l) / shard;
    struct ash_group_place place = ash_group_place_of(&ctx->job->cluster, replicas, l->tp * shard);
    double own = (ctx->params.layers + ctx->params.edge + ctx->params.experts) / shard;
    struct ash_comm comm;

    if (replicas <= 1) return;
    place.net_share = ctx->job->net.dp;
    comm = ash_comm_reduce(ctx->consts, &ctx->job->cluster, place, own * gradient_bytes(ctx));
    step->traffic.dp += comm.network_bytes;
    charge(&step->time, &comm, comm.total_s * 0.5);
}

void ash_step_add_parallel(const struct ash_step_context *ctx, int micro_batches, struct ash_plan_step *step)
{
    double layers = ctx->job->shape.layers / ctx->layout->pp;

    if (ash_step_copies(ctx->layout) <= 1) return;
    if (ctx->layout->zero < 2 || (ctx->layout->zero == 2 && ctx->stack->fused)) {
        add_data_parallel(ctx, layers * ash_plan_parts_sum(&ctx->layer.forward),
                          layers * ash_plan_parts_sum(&ctx->layer.backward), micro_batches, step);
        return;
    }
    add_sharded(ctx, &ctx->layer.forward, 1, micro_batches, step);
    add_sharded(ctx, &ctx->layer.backward, ash_step_backward_gathers(ctx), micro_batches, step);
    add_replicas(ctx, step);
}
