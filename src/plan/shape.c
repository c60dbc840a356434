/* What follows from a model's sizes: parameters, FLOPs, cache bytes. Norms and biases count as parameters where they
 * matter for none of the planner's answers, so they are left out (under 0.1 %). */
#include "plan/shape.h"

#include <errno.h>

static double mlp(const struct ash_shape *shape, double width)
{
    return (shape->gated ? 3 : 2) * shape->hidden * width;
}

double ash_shape_attn_params(const struct ash_shape *shape)
{
    const struct ash_shape *s = shape;
    double q, kv;

    if (s->kv_rank == 0) return s->hidden * s->head_dim * (2 * s->heads + 2 * s->kv_heads);
    q = s->heads * (s->nope_dim + s->rope_dim);
    q = s->q_rank > 0 ? s->hidden * s->q_rank + s->q_rank * q : s->hidden * q;
    kv = s->hidden * (s->kv_rank + s->rope_dim) + s->kv_rank * s->heads * (s->nope_dim + s->v_dim);
    return q + kv + s->heads * s->v_dim * s->hidden;
}

double ash_shape_dense_params(const struct ash_shape *shape)
{
    return mlp(shape, shape->ffn);
}

double ash_shape_shared_params(const struct ash_shape *shape)
{
    return shape->hidden * shape->experts + mlp(shape, shape->shared_ffn);
}

double ash_shape_expert_params(const struct ash_shape *shape)
{
    return mlp(shape, shape->expert_ffn);
}

double ash_shape_ssm_params(const struct ash_shape *shape)
{
    return shape->hidden * (3 * shape->ssm_inner + 2 * shape->ssm_state);
}

double ash_shape_embed_params(const struct ash_shape *shape)
{
    return shape->hidden * (shape->vocab + shape->positions);
}

double ash_shape_head_params(const struct ash_shape *shape)
{
    return shape->tied ? 0 : shape->hidden * shape->vocab;
}

/* The layers, with this many routed experts in each sparse one. */
static double layer_params(const struct ash_shape *shape, double experts)
{
    return shape->attn_layers * ash_shape_attn_params(shape) + shape->dense_layers * ash_shape_dense_params(shape) +
           shape->ssm_layers * ash_shape_ssm_params(shape) +
           shape->sparse_layers * (ash_shape_shared_params(shape) + experts * ash_shape_expert_params(shape));
}

double ash_shape_params(const struct ash_shape *shape)
{
    return layer_params(shape, shape->experts) + ash_shape_embed_params(shape) + ash_shape_head_params(shape);
}

double ash_shape_active_params(const struct ash_shape *shape)
{
    return layer_params(shape, shape->choices) + ash_shape_embed_params(shape) + ash_shape_head_params(shape);
}

/* Keys that a token sees on average in a causal sequence, summed over layers. */
static double keys_seen(const struct ash_shape *shape, double seq_tokens)
{
    double window = shape->window, full = seq_tokens / 2;

    if (shape->window_layers == 0 || window <= 0 || window >= seq_tokens) return full * shape->attn_layers;
    return full * (shape->attn_layers - shape->window_layers) +
           (window - window * window / (2 * seq_tokens)) * shape->window_layers;
}

double ash_shape_train_flops(const struct ash_shape *shape, double seq_tokens)
{
    double qk = shape->kv_rank > 0 ? shape->nope_dim + shape->rope_dim : shape->head_dim;
    double v = shape->kv_rank > 0 ? shape->v_dim : shape->head_dim;
    double scan = 4 * shape->ssm_inner * shape->ssm_state / 8 * shape->ssm_layers; /* states per group of heads */

    return 3 * (2 * (layer_params(shape, shape->choices) + shape->hidden * shape->vocab) +
                2 * shape->heads * (qk + v) * keys_seen(shape, seq_tokens) + scan);
}

double ash_shape_cache_bytes(const struct ash_shape *shape, double element_bytes)
{
    double per_layer = shape->kv_rank > 0 ? shape->kv_rank + shape->rope_dim : 2 * shape->kv_heads * shape->head_dim;

    return per_layer * shape->attn_layers * element_bytes;
}

static bool within(double value, double min, double max)
{
    return value >= min && value <= max; /* false for NaN too */
}

/* Derive fields that are 0 from the rest. */
static void fill(struct ash_shape *s)
{
    if (s->kv_heads == 0) s->kv_heads = s->heads;
    if (s->head_dim == 0 && s->heads > 0) s->head_dim = s->hidden / s->heads;
    if (s->kv_rank > 0 && s->v_dim == 0) s->v_dim = s->head_dim;
    if (s->experts > 0 && s->sparse_layers == 0 && s->ssm_layers == 0) s->sparse_layers = s->layers - s->dense_layers;
    if (s->ssm_layers > 0) return;
    s->attn_layers = s->layers;
    s->dense_layers = s->layers - s->sparse_layers;
}

static bool has_sizes(const struct ash_shape *s)
{
    return within(s->layers, 1, 1e5) && within(s->hidden, 1, 1e6) && within(s->vocab, 1, 1e8) &&
           within(s->heads, 1, 1e5) && within(s->kv_heads, 1, s->heads) && within(s->head_dim, 1, 1e5);
}

static bool has_layers(const struct ash_shape *s)
{
    return within(s->sparse_layers, 0, s->layers) && within(s->dense_layers, 0, s->layers) &&
           (s->dense_layers == 0 || within(s->ffn, 1, 1e7));
}

static bool has_experts(const struct ash_shape *s)
{
    return within(s->experts, 1, 1e5) && within(s->choices, 1, s->experts) && within(s->expert_ffn, 1, 1e7);
}

int ash_shape_complete(struct ash_shape *shape, struct ash_err *err)
{
    struct ash_shape s = *shape;

    fill(&s);
    if (!has_sizes(&s))
        return ash_err_set(err, -EINVAL,
                           "model '%s' has sizes that cannot be: %g layers, width %g, %g heads of %g, a vocabulary of "
                           "%g",
                           s.name, s.layers, s.hidden, s.heads, s.head_dim, s.vocab);
    if (!has_layers(&s))
        return ash_err_set(err, -EINVAL, "model '%s' has %g dense layers of width %g and %g sparse ones", s.name,
                           s.dense_layers, s.ffn, s.sparse_layers);
    if (s.sparse_layers > 0 && !has_experts(&s))
        return ash_err_set(err, -EINVAL, "model '%s': %g of %g experts of width %g cannot be", s.name, s.choices,
                           s.experts, s.expert_ffn);
    *shape = s;
    return 0;
}
