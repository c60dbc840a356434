/* One micro-batch through one layer. Every product and pass over memory of the layer is listed once here, its
 * collectives in layer_traffic.c; kernel.c and comm.c know what they cost. */
#include "plan/train/layer.h"

#include <math.h>

#include "plan/train/kernel.h"
#include "plan/train/layer_priv.h"

#define SCAN_CHUNK 128.0 /* tokens, as Megatron's mixer cuts them */
#define SCAN_GROUPS 8.0  /* of heads that share B and C */
#define BIAS_PASSES 10   /* over rows of experts whose biases are scaled, added and joined one by one in float32 */
#define CLAMP_PASSES 6   /* over gates that are cut off, joined again and, backward, masked and joined one by one */
/* Of a layer's element-wise traffic: norms and activations, which cost little to repeat. That of experts is so large
 * that the share covers the up-projections of latent attention, too (training set: rows with mla_up_proj). */
#define CHEAP_PASSES 0.6
#define EXPERT_STREAMS 4 /* products of single experts that run side by side (Transformer Engine) */
#define UNALIGNED 8      /* heads that are not whole 16-byte words miss the fast path of the tensor cores */

double ash_plan_parts_sum(const struct ash_plan_parts *parts)
{
    return parts->compute + parts->memory + parts->host + parts->nvlink + parts->network;
}

void ash_plan_parts_add(struct ash_plan_parts *into, const struct ash_plan_parts *more, double times)
{
    into->compute += more->compute * times;
    into->memory += more->memory * times;
    into->host += more->host * times;
    into->nvlink += more->nvlink * times;
    into->network += more->network * times;
    into->awaited += more->awaited * times;
    into->tp_bytes += more->tp_bytes * times;
    into->cp_bytes += more->cp_bytes * times;
    into->ep_bytes += more->ep_bytes * times;
}

static struct ash_plan_layer_context context_of(const struct ash_consts *consts, const struct ash_plan_job *job,
                                                const struct ash_layout *layout)
{
    struct ash_plan_layer_context ctx = {.consts = consts,
                                         .job = job,
                                         .layout = layout,
                                         .stack = job->stack != NULL ? job->stack : ash_stack_find(NULL),
                                         .gpu = job->cluster.machine.gpu,
                                         .tokens = layout->micro_batch * job->seq_tokens / layout->cp};

    ctx.norm_split = ctx.stack->sequence_parallel ? layout->tp : 1;
    return ctx;
}

/* One kernel for all experts of a rank, with their activation in it. */
static bool fuses_experts(const struct ash_plan_layer_context *ctx)
{
    return ctx->stack->fused_experts && ctx->layout->precision != ASH_GPU_BF16;
}

/* A weight [k, n] applied to m rows, forward, and backward to inputs and (unless frozen) weights. */
static void add_product(const struct ash_plan_layer_context *ctx, struct ash_plan_layer_part *part,
                        enum ash_gpu_precision precision, double groups, double m, double n, double k)
{
    double at_once = fuses_experts(ctx) ? groups : EXPERT_STREAMS;

    part->forward_gemm_s += ash_kernel_gemm(ctx->consts, ctx->gpu, precision, groups, at_once, m, n, k);
    part->backward_gemm_s += ash_kernel_gemm(ctx->consts, ctx->gpu, precision, groups, at_once, m, k, n);
    if (ctx->job->tuning == ASH_TUNING_ALL) {
        double weight_s = ash_kernel_gemm(ctx->consts, ctx->gpu, precision, groups, at_once, k, n, m);

        part->weight_gemm_s += weight_s;
        part->backward_gemm_s += weight_s;
    }
}

static void add_linear(const struct ash_plan_layer_context *ctx, struct ash_plan_layer_part *part, double n, double k)
{
    add_product(ctx, part, ctx->layout->precision, 1, ctx->tokens, n, k);
    part->cast_elements += ctx->tokens * k;
}

/* ---- the parts of a layer ---------------------------------------------------------------------------------------- */

/* Mean number of keys that a query sees, over layers with attention. */
static double mean_keys(const struct ash_shape *shape, double seq)
{
    double windowed = shape->window > 0 && shape->window < seq ? shape->window_layers / shape->attn_layers : 0;
    double short_keys = shape->window - shape->window * shape->window / (2 * seq);

    return (1 - windowed) * seq / 2 + windowed * short_keys;
}

static void add_projections(const struct ash_plan_layer_context *ctx, struct ash_plan_layer_part *part)
{
    const struct ash_shape *s = &ctx->job->shape;
    double tp = ctx->layout->tp;

    if (s->kv_rank == 0) {
        add_linear(ctx, part, (s->heads / tp + 2 * fmax(1, s->kv_heads / tp)) * s->head_dim, s->hidden);
        add_linear(ctx, part, s->hidden, s->heads * s->head_dim / tp);
        return;
    }
    if (s->q_rank > 0) add_linear(ctx, part, s->q_rank, s->hidden);
    add_linear(ctx, part, s->heads / tp * (s->nope_dim + s->rope_dim), s->q_rank > 0 ? s->q_rank : s->hidden);
    add_linear(ctx, part, s->kv_rank + s->rope_dim, s->hidden);
    add_linear(ctx, part, s->heads / tp * (s->nope_dim + s->v_dim), s->kv_rank);
    add_linear(ctx, part, s->hidden, s->heads * s->v_dim / tp);
}

static struct ash_plan_layer_part attention_part(const struct ash_plan_layer_context *ctx)
{
    const struct ash_shape *s = &ctx->job->shape;
    double tp = ctx->layout->tp, tokens = ctx->tokens, seq = ctx->job->seq_tokens;
    double qk = s->kv_rank > 0 ? s->nope_dim + s->rope_dim : s->head_dim;
    double v = s->kv_rank > 0 ? s->v_dim : s->head_dim;
    double keys = mean_keys(s, seq);
    struct ash_plan_layer_part part = {.host_layers = 0.5,
                                       .tensor_bytes = 2 * tokens * s->hidden * ASH_PLAN_ACTIVATION_BYTES};

    add_projections(ctx, &part);
    part.elements = 5 * tokens * s->hidden / ctx->norm_split + 2 * tokens * (s->heads * qk + s->kv_heads * qk) / tp;
    if (ash_plan_flash(ctx->job)) {
        part.attention_s = ash_kernel_attention(ctx->consts, ctx->gpu, ctx->stack->new_attention,
                                                2 * tokens * keys * s->heads / tp * (qk + v), seq, v);
    } else { /* the whole square of scores is made, written and read: product, mask + softmax, dropout, product */
        double scores = tokens * seq * s->heads / tp;
        part.attention_s =
            ash_kernel_gemm(ctx->consts, ctx->gpu, ASH_GPU_BF16, ctx->layout->micro_batch * s->heads / tp,
                            ctx->layout->micro_batch * s->heads / tp, seq, seq, qk) *
            (fmod(qk, 8) != 0 ? 2 * UNALIGNED : 2);
        part.scores = 6 * scores;
        part.elements += part.scores;
    }
    return part;
}

static struct ash_plan_layer_part mlp_part(const struct ash_plan_layer_context *ctx, double width)
{
    const struct ash_shape *s = &ctx->job->shape;
    double tp = ctx->layout->tp, tokens = ctx->tokens;
    struct ash_plan_layer_part part = {.host_layers = 0.5,
                                       .tensor_bytes = 2 * tokens * s->hidden * ASH_PLAN_ACTIVATION_BYTES};

    add_linear(ctx, &part, (s->gated ? 2 : 1) * width / tp, s->hidden);
    add_linear(ctx, &part, s->hidden, width / tp);
    part.elements = 5 * tokens * s->hidden / ctx->norm_split + (s->gated ? 3 : 2) * tokens * width / tp;
    return part;
}

/* A state-space mixer (Mamba-2): projections, a short convolution, and a scan by chunks. Inside a chunk the scan is
 * attention without softmax; between chunks states are written, passed on and read back as float32. */
static struct ash_plan_layer_part ssm_part(const struct ash_plan_layer_context *ctx)
{
    const struct ash_shape *s = &ctx->job->shape;
    double tp = ctx->layout->tp, tokens = ctx->tokens, states = s->ssm_state / SCAN_GROUPS;
    double flops = 2 * SCAN_CHUNK * (s->ssm_state + s->ssm_inner) + 4 * states * s->ssm_inner;
    struct ash_plan_layer_part part = {.host_layers = 0.7,
                                       .tensor_bytes = 2 * tokens * s->hidden * ASH_PLAN_ACTIVATION_BYTES};

    add_linear(ctx, &part, (2 * s->ssm_inner + 2 * s->ssm_state) / tp, s->hidden);
    add_linear(ctx, &part, s->hidden, s->ssm_inner / tp);
    part.attention_s = tokens * flops / tp / (ctx->gpu->flops[ASH_GPU_BF16] * ctx->consts->scan_share);
    part.elements = 5 * tokens * s->hidden / ctx->norm_split +
                    tokens * (s->ssm_inner * (12 + 8 * states / SCAN_CHUNK) + 8 * s->ssm_state) / tp;
    return part;
}

/* Of a layer with experts: the shared one and the router. */
static struct ash_plan_layer_part shared_part(const struct ash_plan_layer_context *ctx)
{
    const struct ash_shape *s = &ctx->job->shape;
    struct ash_plan_layer_part part = {.host_layers = 0};

    if (s->shared_ffn > 0) part = mlp_part(ctx, s->shared_ffn);
    add_product(ctx, &part, ASH_GPU_BF16, 1, ctx->tokens / ctx->layout->tp, s->experts, s->hidden);
    return part;
}

/* And the rows that one rank's experts see, their products and the two permutations. */
static struct ash_plan_layer_part sparse_part(const struct ash_plan_layer_context *ctx,
                                              const struct ash_plan_layer_part *shared)
{
    const struct ash_shape *s = &ctx->job->shape;
    const struct ash_layout *l = ctx->layout;
    double tokens = ctx->tokens / l->tp, local = s->experts / l->ep;
    double copies = tokens * s->choices * l->etp * ash_plan_imbalance(ctx->consts, ctx->job);
    bool fused = fuses_experts(ctx);
    double traffic = ctx->stack->fused_routing ? ctx->consts->elem_moe_fused : ctx->consts->elem_moe;
    double ffn = s->expert_ffn / l->etp, activation = fused ? 0 : (s->gated ? 3 : 2) * ffn;
    struct ash_plan_layer_part part = *shared;

    add_product(ctx, &part, l->precision, local, copies / local, (s->gated ? 2 : 1) * ffn, s->hidden);
    add_product(ctx, &part, l->precision, local, copies / local, s->hidden, ffn);
    part.elements += 5 * tokens * s->hidden + traffic * copies * (6 * s->hidden + activation);
    if (s->expert_bias && !fused) part.elements += copies * (BIAS_PASSES * s->hidden + CLAMP_PASSES * ffn);
    part.cast_elements += copies * (s->hidden + (fused ? 0 : ffn));
    if (s->shared_ffn == 0) part.tensor_bytes = 0;
    return part;
}

/* ---- putting a layer together ------------------------------------------------------------------------------------ */

/* share of the model's layers have this part. */
static void add_part(const struct ash_plan_layer_context *ctx, const struct ash_plan_layer_part *part, double share,
                     struct ash_plan_layer *layer)
{
    const struct ash_consts *c = ctx->consts;
    double traffic = ctx->stack->fused ? c->elem_fused : c->elem_eager;
    double bytes = part->elements * ASH_PLAN_ACTIVATION_BYTES * traffic;
    /* read once in bf16, written once as it is and once transposed */
    double cast = ctx->layout->precision != ASH_GPU_BF16 ? part->cast_elements * 4 : 0;
    double host = part->host_layers * (ctx->stack->fused ? c->host_layer_fused : c->host_layer_eager);

    layer->forward.compute += share * (part->forward_gemm_s + part->attention_s);
    layer->backward.compute += share * (part->backward_gemm_s + 2.5 / c->attn_backward * part->attention_s);
    layer->weight_s += share * part->weight_gemm_s;
    if (part->scores > 0) {
        layer->core_compute += share * part->attention_s;
        layer->core_memory +=
            share * ash_kernel_memory(c, ctx->gpu, part->scores * ASH_PLAN_ACTIVATION_BYTES * traffic);
    }
    layer->forward.memory += share * ash_kernel_memory(c, ctx->gpu, bytes + cast);
    layer->backward.memory += share * ash_kernel_memory(c, ctx->gpu, 2 * bytes + cast);
    if (!ctx->stack->graphs && !ctx->job->graphs) {
        layer->forward.host += share * host;
        layer->backward.host += share * host;
    }
    ash_plan_layer_add_tensor_traffic(ctx, part, share, layer);
}

/* What recomputation repeats in the backward pass: everything, or the cheap parts and, if attention writes its scores,
 * all of that (arXiv 2205.05198). */
static void add_recompute(enum ash_plan_recompute recompute, struct ash_plan_layer *layer)
{
    struct ash_plan_parts again = layer->forward;

    if (recompute == ASH_PLAN_RECOMPUTE_FULL) ash_plan_parts_add(&layer->backward, &again, 1);
    if (recompute == ASH_PLAN_RECOMPUTE_SELECTIVE) {
        layer->backward.memory += CHEAP_PASSES * (again.memory - layer->core_memory) + layer->core_memory;
        layer->backward.compute += layer->core_compute;
    }
}

/* Launches only cost what the GPU's own work does not cover; while the host waits it launches nothing. */
static void settle_host(struct ash_plan_parts *parts)
{
    double work = parts->compute + parts->memory + parts->nvlink + parts->network - parts->awaited;

    parts->host = fmax(0, parts->host - work);
}

void ash_plan_layer_prepare(const struct ash_consts *consts, const struct ash_plan_job *job,
                            const struct ash_layout *layout, struct ash_plan_layer_common *common_out)
{
    struct ash_plan_layer_context ctx = context_of(consts, job, layout);
    const struct ash_shape *s = &job->shape;

    *common_out = (struct ash_plan_layer_common){.attention = attention_part(&ctx)};
    if (s->dense_layers > 0) common_out->dense = mlp_part(&ctx, s->ffn);
    if (s->ssm_layers > 0) common_out->ssm = ssm_part(&ctx);
    if (s->sparse_layers > 0) common_out->shared = shared_part(&ctx);
    ash_plan_head_predict(consts, job, layout, &common_out->head);
}

void ash_plan_layer_assemble(const struct ash_consts *consts, const struct ash_plan_job *job,
                             const struct ash_layout *layout, const struct ash_plan_layer_common *common,
                             struct ash_plan_layer *layer_out)
{
    struct ash_plan_layer_context ctx = context_of(consts, job, layout);
    const struct ash_shape *s = &job->shape;
    struct ash_plan_layer layer = {0};

    add_part(&ctx, &common->attention, s->attn_layers / s->layers, &layer);
    ash_plan_layer_add_context_traffic(&ctx, &common->attention, s->attn_layers / s->layers, &layer);
    if (s->dense_layers > 0) add_part(&ctx, &common->dense, s->dense_layers / s->layers, &layer);
    if (s->ssm_layers > 0) add_part(&ctx, &common->ssm, s->ssm_layers / s->layers, &layer);
    if (s->sparse_layers > 0) {
        double share = s->sparse_layers / s->layers;
        struct ash_plan_layer_part part = sparse_part(&ctx, &common->shared);

        add_part(&ctx, &part, share, &layer);
        ash_plan_layer_add_expert_traffic(&ctx, share, &layer);
        if (!ctx.stack->graphs && !job->graphs) {
            double host = share * consts->host_layer_moe * (1 + (layout->tp > 1 ? consts->host_moe_tp : 0));

            layer.forward.host += host;
            layer.backward.host += host;
        }
    }
    *layer_out = layer;
}

void ash_plan_layer_finish(enum ash_plan_recompute recompute, struct ash_plan_layer *layer)
{
    add_recompute(recompute, layer);
    settle_host(&layer->forward);
    settle_host(&layer->backward);
}

void ash_plan_layer_predict(const struct ash_consts *consts, const struct ash_plan_job *job,
                            const struct ash_layout *layout, enum ash_plan_recompute recompute,
                            struct ash_plan_layer *layer_out)
{
    struct ash_plan_layer_common common;

    ash_plan_layer_prepare(consts, job, layout, &common);
    ash_plan_layer_assemble(consts, job, layout, &common, layer_out);
    ash_plan_layer_finish(recompute, layer_out);
}

void ash_plan_head_predict(const struct ash_consts *consts, const struct ash_plan_job *job,
                           const struct ash_layout *layout, struct ash_plan_layer *head_out)
{
    struct ash_plan_layer_context ctx = context_of(consts, job, layout);
    double vocab = job->shape.vocab / layout->tp;
    struct ash_plan_layer_part part = {.host_layers = 0};
    struct ash_plan_layer head = {0};

    add_product(&ctx, &part, ASH_GPU_BF16, 1, ctx.tokens, vocab, job->shape.hidden);
    head.forward.compute = part.forward_gemm_s;
    head.backward.compute = part.backward_gemm_s;
    head.weight_s = part.weight_gemm_s;
    /* logits in bf16, to fp32, maximum and sum, then the gradient in place: about 10 bytes each way */
    head.forward.memory = ash_kernel_memory(consts, ctx.gpu, ctx.tokens * vocab * 10);
    head.backward.memory = head.forward.memory;
    *head_out = head;
}
