/* Memory of the fullest GPU, by part. Formulas follow Korthikanti et al. 2022 (arXiv 2205.05198) without the scores
 * that flash attention never keeps. */
#include <math.h>

#include "base/assert.h"

#include "plan/train/step_priv.h"

#define BF16_BYTES 2.0
#define FP32_BYTES 4.0
#define OPTIMIZER_BYTES 12.0 /* fp32 weights and two moments */

void ash_step_params_of(const struct ash_plan_job *job, const struct ash_layout *l, struct ash_step_params *out)
{
    const struct ash_shape *s = &job->shape;
    bool dual = l->schedule == ASH_PLAN_DUALPIPE; /* a rank has the stage of its mirror image, too */
    double edge = (ash_shape_embed_params(s) + (l->pp == 1 || dual ? ash_shape_head_params(s) : 0)) / l->tp;
    double dense = s->attn_layers * ash_shape_attn_params(s) + s->dense_layers * ash_shape_dense_params(s) +
                   s->ssm_layers * ash_shape_ssm_params(s) + s->sparse_layers * ash_shape_shared_params(s);
    double stage_share = ceil(s->layers / l->pp) / s->layers * (dual ? 2 : 1); /* of the fullest rank */

    out->layers = dense / l->tp * stage_share;
    out->edge = edge;
    out->experts = s->sparse_layers * s->experts * ash_shape_expert_params(s) / ((double)l->ep * l->etp) * stage_share;
    out->shard = l->zero > 0 ? (l->shard > 0 ? l->shard : (double)l->dp * l->cp * (dual ? 2 : 1)) : 1;
    out->expert_shard = l->zero > 0 ? fmax(1, out->shard * l->tp / ((double)l->ep * l->etp)) : 1;
    ash_assert(out->shard >= 1 && out->expert_shard >= 1);
    out->one_layer = dense / s->layers / l->tp +
                     s->sparse_layers / s->layers * s->experts * ash_shape_expert_params(s) / ((double)l->ep * l->etp);
}

/* Elements of one token that attention keeps over all heads: queries, keys, values and its result. Selective
 * recomputation of latent attention repeats the up-projections and keeps what they read (DeepSeek-V3, section 3.2.3:
 * arXiv 2412.19437; Megatron's mla_up_proj). */
static double attention_elements(const struct ash_shape *s, enum ash_plan_recompute recompute)
{
    double latent = s->q_rank + s->kv_rank;

    if (s->kv_rank == 0) return (2 * s->heads + 2 * s->kv_heads) * s->head_dim;
    if (recompute == ASH_PLAN_RECOMPUTE_SELECTIVE && s->q_rank > 0) return s->heads * s->v_dim + latent + s->rope_dim;
    return s->heads * (2 * s->nope_dim + 2 * s->rope_dim + 2 * s->v_dim) + latent;
}

/* Bytes of one element of an MLP's width: the inputs of its activation and, where nothing is recomputed, the result. */
static double mlp_bytes(const struct ash_shape *s, const struct ash_layout *l, enum ash_plan_recompute recompute)
{
    double result = l->precision == ASH_GPU_BF16 ? BF16_BYTES : 1;

    return (s->gated ? 2 : 1) * BF16_BYTES + (recompute == ASH_PLAN_RECOMPUTE_NONE ? result : 0);
}

/* The same of experts, whose inputs are kept in fp8 where the result is recomputed in fp8 training (DeepSeek-V3,
 * section 3.3.3: arXiv 2412.19437; Megatron's moe_act with activation-func-fp8-input-store). */
static double expert_bytes(const struct ash_shape *s, const struct ash_layout *l, enum ash_plan_recompute recompute)
{
    if (recompute == ASH_PLAN_RECOMPUTE_NONE || l->precision == ASH_GPU_BF16) return mlp_bytes(s, l, recompute);
    return s->gated ? 2 : 1;
}

/* Bytes that one micro-batch leaves in one layer for the backward pass. */
static double layer_activations(const struct ash_plan_job *job, const struct ash_layout *l,
                                enum ash_plan_recompute recompute)
{
    const struct ash_shape *s = &job->shape;
    const struct ash_stack *stack = job->stack != NULL ? job->stack : ash_stack_find(NULL);
    double tokens = l->micro_batch * job->seq_tokens / l->cp, tp = l->tp;
    double split = stack->sequence_parallel ? tp : 1, kept = recompute == ASH_PLAN_RECOMPUTE_NONE ? 1 : 0;
    double input = l->precision == ASH_GPU_BF16 ? BF16_BYTES : 1; /* of a product, kept for its weights' gradient */
    double heads = attention_elements(s, recompute), mlp = mlp_bytes(s, l, recompute);
    double expert = expert_bytes(s, l, recompute);
    double attn, dense, sparse, ssm, copies = tokens / tp * s->choices * l->etp;

    if (recompute == ASH_PLAN_RECOMPUTE_FULL) return tokens * s->hidden * BF16_BYTES / split;
    attn = tokens * ((BF16_BYTES + kept * input) * s->hidden / split + heads * BF16_BYTES / tp);
    if (!ash_plan_flash(job) && kept > 0) attn += 5 * tokens * job->seq_tokens * s->heads / tp;
    dense = tokens * ((BF16_BYTES + kept * input) * s->hidden / split + mlp * s->ffn / tp);
    sparse = tokens * ((BF16_BYTES + kept * input) * s->hidden / split + expert * s->shared_ffn / tp) +
             copies * (input * s->hidden + expert * s->expert_ffn / l->etp);
    ssm = tokens * ((BF16_BYTES + kept * input) * s->hidden / split + 4 * BF16_BYTES * s->ssm_inner / tp);
    return (attn * s->attn_layers + dense * s->dense_layers + sparse * s->sparse_layers + ssm * s->ssm_layers) /
           s->layers;
}

/* Micro-batches whose activations the first stage holds at once, in units of all its layers. */
static double in_flight(const struct ash_plan_job *job, const struct ash_layout *l)
{
    double micro_batches = fmax(1, job->global_batch / ((double)l->dp * l->micro_batch));
    double flight = l->chunks > 1 ? l->pp * (1 + (l->pp - 1.0) / ((double)l->pp * l->chunks)) : l->pp;

    if (l->schedule == ASH_PLAN_DUALPIPE) flight = l->pp + 1; /* DeepSeek-V3, table 2 */
    return fmin(flight, micro_batches);
}

static void state_bytes(const struct ash_plan_job *job, const struct ash_layout *l, struct ash_step_memory *memory)
{
    const struct ash_stack *stack = job->stack != NULL ? job->stack : ash_stack_find(NULL);
    double gradient = stack->fused && !stack->wide_gradients ? BF16_BYTES : FP32_BYTES,
           weight = l->precision == ASH_GPU_BF16 ? 2 : 3;
    struct ash_step_params p;
    double own, sharded;

    ash_step_params_of(job, l, &p);
    own = p.layers + p.edge + p.experts;
    sharded = (p.layers + p.edge) / p.shard + p.experts / p.expert_shard;
    memory->weights = (l->zero >= 3 ? sharded : own) * weight;
    /* the embedding and the output stay in bf16, without a second copy */
    memory->weights -= p.edge / (l->zero >= 3 ? p.shard : 1) * (weight - BF16_BYTES);
    if (l->zero >= 3) memory->buffers += 2 * p.one_layer * BF16_BYTES;
    if (job->tuning == ASH_TUNING_LORA) return; /* adapters are small compared with everything else */
    memory->gradients = (l->zero >= 2 ? sharded : own) * gradient;
    memory->optimizer = (l->zero >= 1 ? sharded : own) * OPTIMIZER_BYTES;
    if (l->offload) {
        memory->host = memory->optimizer;
        memory->optimizer = 0;
    }
}

void ash_step_memory_of(const struct ash_consts *consts, const struct ash_plan_job *job,
                        const struct ash_layout *layout, enum ash_plan_recompute recompute,
                        struct ash_step_memory *memory_out)
{
    struct ash_step_memory memory = {.buffers = consts->memory_buffers};
    double layers = ceil(job->shape.layers / layout->pp), tokens = layout->micro_batch * job->seq_tokens / layout->cp;

    ash_assert(recompute != ASH_PLAN_RECOMPUTE_FIT && layout->tp >= 1 && layout->pp >= 1 && layout->cp >= 1);
    state_bytes(job, layout, &memory);
    memory.activations = layer_activations(job, layout, recompute) * layers * in_flight(job, layout);
    if (recompute == ASH_PLAN_RECOMPUTE_FULL)
        memory.activations += layer_activations(job, layout, ASH_PLAN_RECOMPUTE_NONE);
    if (layout->pp == 1) memory.buffers += tokens * job->shape.vocab / layout->tp * (BF16_BYTES + FP32_BYTES);
    memory.total = memory.weights + memory.gradients + memory.optimizer + memory.activations + memory.buffers;
    memory.capacity = job->cluster.machine.gpu->memory_bytes * consts->memory_usable;
    *memory_out = memory;
}
