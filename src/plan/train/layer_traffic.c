/* The collectives of a layer: tensor-, context- and expert-parallel traffic, and how much of it is exposed. */
#include "plan/train/layer_priv.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "plan/train/comm.h"

/* Charge a collective to the level that decides it. */
static void add_comm(struct ash_plan_parts *parts, struct ash_comm comm, double exposed)
{
    if (comm.network_s > comm.nvlink_s)
        parts->network += comm.total_s * exposed;
    else
        parts->nvlink += comm.total_s * exposed;
}

static struct ash_group_place place_of(const struct ash_plan_layer_context *ctx, double ranks, double stride,
                                       double net_share)
{
    struct ash_group_place place = ash_group_place_of(&ctx->job->cluster, ranks, stride);

    place.net_share = net_share;
    return place;
}

void ash_plan_layer_add_tensor_traffic(const struct ash_plan_layer_context *ctx, const struct ash_plan_layer_part *part,
                                       double share, struct ash_plan_layer *layer)
{
    struct ash_group_place place = place_of(ctx, ctx->layout->tp, 1, ctx->job->net.tp);
    /* gather before and scatter after each half of a layer: the same bytes as an all-reduce */
    struct ash_comm comm = ash_comm_gather(ctx->consts, &ctx->job->cluster, place, part->tensor_bytes / 2);
    double exposed = (ctx->stack->overlap_tp ? ctx->consts->tp_exposed : 1) * share;

    if (ctx->layout->tp <= 1 || part->tensor_bytes <= 0) return;
    layer->forward.tp_bytes += 2 * share * comm.network_bytes;
    layer->backward.tp_bytes += 2 * share * comm.network_bytes;
    add_comm(&layer->forward, comm, 2 * exposed);
    add_comm(&layer->backward, comm, 2 * exposed);
    layer->tensor_s += comm.total_s * 4 * share;
}

void ash_plan_layer_add_context_traffic(const struct ash_plan_layer_context *ctx,
                                        const struct ash_plan_layer_part *part, double share,
                                        struct ash_plan_layer *layer)
{
    const struct ash_shape *s = &ctx->job->shape;
    const struct ash_layout *l = ctx->layout;
    double width = s->kv_rank > 0 ? s->heads * (s->nope_dim + s->rope_dim + s->v_dim) / l->tp
                                  : 2 * fmax(1, s->kv_heads / l->tp) * s->head_dim;
    struct ash_group_place place = place_of(ctx, l->cp, l->tp, ctx->job->net.cp);
    struct ash_comm comm;
    double hidden;

    if (l->cp <= 1) return;
    comm = ash_comm_gather(ctx->consts, &ctx->job->cluster, place,
                           ctx->tokens * l->cp * width * ASH_PLAN_ACTIVATION_BYTES);
    hidden = part->attention_s * (l->cp - 1) / l->cp;
    layer->forward.cp_bytes += share * comm.network_bytes;
    layer->backward.cp_bytes += 2 * share * comm.network_bytes;
    add_comm(&layer->forward, comm, share * fmax(0.1, 1 - hidden / comm.total_s));
    add_comm(&layer->backward, comm, 2 * share * fmax(0.1, 1 - 2 * hidden / comm.total_s));
}

static void set_host_sends(const struct ash_consts *consts, const char *network, struct ash_dispatch *dispatch)
{
    bool old;

    if (!ash_dispatch_is_host_sent(network)) return;
    old = strcasestr(network, "EFA v1") != NULL || strcasestr(network, "EFA v2") != NULL;
    dispatch->network_share = consts->dispatch_efa;
    dispatch->message_s = 1e-6 * (old ? consts->dispatch_message_v2_us : consts->dispatch_message_us);
}

void ash_plan_layer_dispatch(const struct ash_consts *consts, const struct ash_plan_job *job,
                             const struct ash_layout *layout, struct ash_dispatch_time *time_out)
{
    const struct ash_stack *stack = job->stack != NULL ? job->stack : ash_stack_find(NULL);
    bool is_fp8 = job->fp8_dispatch || (stack->fp8_dispatch && layout->precision == ASH_GPU_FP8);
    struct ash_dispatch dispatch = {
        .ranks = (double)layout->ep * layout->etp,
        .tokens = layout->micro_batch * job->seq_tokens / layout->cp / layout->tp,
        .hidden = job->shape.hidden,
        .choices = job->shape.choices,
        .groups = job->shape.groups,
        .group_choices = job->shape.group_choices,
        .element_bytes = is_fp8 ? ASH_DISPATCH_FP8_BYTES : ASH_PLAN_ACTIVATION_BYTES,
        .two_level = job->dedup_dispatch,
        .imbalance = ash_plan_imbalance(consts, job),
        .network_share = 1,
    };

    set_host_sends(consts, job->cluster.machine.network, &dispatch);
    if (job->net.ep > 0) dispatch.network_share *= job->net.ep;
    ash_dispatch_predict(consts, &job->cluster, &dispatch, time_out);
}

void ash_plan_layer_add_expert_traffic(const struct ash_plan_layer_context *ctx, double share,
                                       struct ash_plan_layer *layer)
{
    /* under DualPipe the pair of passes hides it, not the layer */
    bool overlap =
        (ctx->job->overlap_dispatch || ctx->stack->overlap_dispatch) && ctx->layout->schedule != ASH_PLAN_DUALPIPE;
    double exposed = (overlap ? ctx->consts->dispatch_exposed : 1) * share;
    struct ash_dispatch_time time;
    struct ash_comm comm;

    ash_plan_layer_dispatch(ctx->consts, ctx->job, ctx->layout, &time);
    comm = (struct ash_comm){.nvlink_s = time.inner_s, .network_s = time.outer_s, .total_s = time.total_s};
    add_comm(&layer->forward, comm, exposed);
    add_comm(&layer->backward, comm, exposed);
    if (ctx->job->dedup_dispatch && ash_dispatch_is_host_sent(ctx->job->cluster.machine.network) && time.outer_s > 0) {
        layer->forward.awaited += time.total_s * exposed;
        layer->backward.awaited += time.total_s * exposed;
    }
    layer->dispatch_s += 2 * time.total_s * share;
    layer->forward.ep_bytes += share * (time.outer_bytes + time.outer_back_bytes);
    layer->backward.ep_bytes += share * (time.outer_bytes + time.outer_back_bytes);
}
