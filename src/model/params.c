/* The list of a model's parameters: which tensors its config calls for, their names and shapes.
 * Everything that walks weights (loading, saving, gradients, the optimizer, hashes) walks this list. */
#include "model/model_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static bool role_is_top(enum ash_role role)
{
    return role <= ASH_ROLE_HEAD;
}

static int format_name(const struct ash_family *family, enum ash_role role, int layer, size_t expert, char *buf,
                       size_t buf_bytes)
{
    char local[64];
    const char *base = role == ASH_ROLE_HEAD ? "" : family->base_prefix;

    if (role >= ASH_ROLE_EXPERT_GATE) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(local, sizeof(local), family->names[role], expert);
#pragma GCC diagnostic pop
    } else {
        snprintf(local, sizeof(local), "%s", family->names[role]);
    }
    if (layer < 0) return snprintf(buf, buf_bytes, "%s%s", base, local);
    return snprintf(buf, buf_bytes, "%s%s%d.%s", base, family->layer_prefix, layer, local);
}

/* Append one parameter; cols 0 makes a vector. Returns its index or -ENOMEM. */
static int add(struct ash_model *model, enum ash_role role, int layer, size_t expert, size_t rows, size_t cols)
{
    struct ash_layer *owner = role_is_top(role) ? &model->top : &model->layers[layer];
    struct ash_param *param;

    ash_assert(model->config.family->names[role] != NULL);
    if (model->param_count == model->param_capacity) {
        size_t capacity = model->param_capacity == 0 ? 64 : 2 * model->param_capacity;
        struct ash_param *grown = realloc(model->params, capacity * sizeof(*grown));
        if (grown == NULL) return -ENOMEM;
        model->params = grown;
        model->param_capacity = capacity;
    }
    param = &model->params[model->param_count];
    *param = (struct ash_param){
        .layer = role_is_top(role) ? -1 : layer, .matrix = cols != 0, .trained = role != ASH_ROLE_ROUTER_BIAS};
    format_name(model->config.family, role, param->layer, expert, param->name, sizeof(param->name));
    param->dim_count = cols != 0 ? 2 : 1;
    param->dims[0] = rows;
    param->dims[1] = cols;
    param->count = rows * (cols != 0 ? cols : 1);
    param->offset = model->size;
    if (expert == 0) owner->param[role] = (int32_t)model->param_count;
    model->size += (param->count + ASH_PARAM_ALIGN - 1) / ASH_PARAM_ALIGN * ASH_PARAM_ALIGN;
    model->weight_count += param->count;
    return (int)model->param_count++;
}

/* A matrix of out rows and in columns, stored the family's way round, with a bias where has_bias. bias_role follows
 * role. */
static int add_linear(struct ash_model *model, enum ash_role role, int layer, size_t out, size_t in, bool has_bias)
{
    bool transposed = model->config.transposed;
    int rc = add(model, role, layer, 0, transposed ? in : out, transposed ? out : in);

    return rc < 0 || !has_bias ? rc : add(model, role + 1, layer, 0, out, 0);
}

static int add_norm(struct ash_model *model, enum ash_role role, int layer)
{
    int rc = add(model, role, layer, 0, model->config.hidden, 0);

    return rc < 0 || model->config.norm == ASH_NORM_RMS ? rc : add(model, role + 1, layer, 0, model->config.hidden, 0);
}

static int add_grouped_attention(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    int rc;

    if (c->family->names[ASH_ROLE_QKV] != NULL)
        return add_linear(model, ASH_ROLE_QKV, layer, q + 2 * kv, c->hidden, c->qkv_bias);
    if ((rc = add_linear(model, ASH_ROLE_Q, layer, q, c->hidden, c->qkv_bias)) < 0) return rc;
    if ((rc = add_linear(model, ASH_ROLE_K, layer, kv, c->hidden, c->qkv_bias)) < 0) return rc;
    if ((rc = add_linear(model, ASH_ROLE_V, layer, kv, c->hidden, c->qkv_bias)) < 0) return rc;
    if (!c->qk_norm) return 0;
    if ((rc = add(model, ASH_ROLE_Q_NORM, layer, 0, c->head_dim, 0)) < 0) return rc;
    return add(model, ASH_ROLE_K_NORM, layer, 0, c->head_dim, 0);
}

static int add_latent_attention(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config;
    size_t q = c->heads * c->head_dim;
    int rc;

    if (c->q_rank == 0) {
        if ((rc = add_linear(model, ASH_ROLE_Q, layer, q, c->hidden, false)) < 0) return rc;
    } else {
        if ((rc = add_linear(model, ASH_ROLE_Q_DOWN, layer, c->q_rank, c->hidden, c->qkv_bias)) < 0) return rc;
        if ((rc = add(model, ASH_ROLE_Q_DOWN_NORM, layer, 0, c->q_rank, 0)) < 0) return rc;
        if ((rc = add_linear(model, ASH_ROLE_Q_UP, layer, q, c->q_rank, false)) < 0) return rc;
    }
    if ((rc = add_linear(model, ASH_ROLE_KV_DOWN, layer, c->kv_rank + c->rope_dim, c->hidden, c->qkv_bias)) < 0)
        return rc;
    if ((rc = add(model, ASH_ROLE_KV_DOWN_NORM, layer, 0, c->kv_rank, 0)) < 0) return rc;
    return add_linear(model, ASH_ROLE_KV_UP, layer, c->heads * (c->nope_dim + c->v_dim), c->kv_rank, false);
}

static int add_dense(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config;
    int rc;

    if (c->mlp == ASH_MLP_GATED && (rc = add_linear(model, ASH_ROLE_GATE, layer, c->ffn, c->hidden, c->mlp_bias)) < 0)
        return rc;
    if ((rc = add_linear(model, ASH_ROLE_UP, layer, c->ffn, c->hidden, c->mlp_bias)) < 0) return rc;
    return add_linear(model, ASH_ROLE_DOWN, layer, c->hidden, c->ffn, c->mlp_bias);
}

static int add_sparse(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config;
    const struct ash_expert_config *x = &c->expert;
    int rc;

    if ((rc = add(model, ASH_ROLE_ROUTER, layer, 0, x->experts, c->hidden)) < 0) return rc;
    if (x->choice_bias && (rc = add(model, ASH_ROLE_ROUTER_BIAS, layer, 0, x->experts, 0)) < 0) return rc;
    for (size_t e = 0; e < x->experts; e++) {
        if ((rc = add(model, ASH_ROLE_EXPERT_GATE, layer, e, x->ffn, c->hidden)) < 0) return rc;
        if ((rc = add(model, ASH_ROLE_EXPERT_UP, layer, e, x->ffn, c->hidden)) < 0) return rc;
        if ((rc = add(model, ASH_ROLE_EXPERT_DOWN, layer, e, c->hidden, x->ffn)) < 0) return rc;
    }
    if (x->shared_ffn == 0) return 0;
    if ((rc = add(model, ASH_ROLE_SHARED_GATE, layer, 0, x->shared_ffn, c->hidden)) < 0) return rc;
    if ((rc = add(model, ASH_ROLE_SHARED_UP, layer, 0, x->shared_ffn, c->hidden)) < 0) return rc;
    return add(model, ASH_ROLE_SHARED_DOWN, layer, 0, c->hidden, x->shared_ffn);
}

static int add_layer(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config;
    size_t v_dim = c->attn == ASH_ATTN_LATENT ? c->v_dim : c->head_dim;
    int rc;

    if ((rc = add_norm(model, ASH_ROLE_NORM1, layer)) < 0) return rc;
    rc = c->attn == ASH_ATTN_LATENT ? add_latent_attention(model, layer) : add_grouped_attention(model, layer);
    if (rc < 0) return rc;
    if ((rc = add_linear(model, ASH_ROLE_OUT, layer, c->hidden, c->heads * v_dim, c->out_bias)) < 0) return rc;
    if ((rc = add_norm(model, ASH_ROLE_NORM2, layer)) < 0) return rc;
    return c->sparse[layer] ? add_sparse(model, layer) : add_dense(model, layer);
}

static int add_all(struct ash_model *model)
{
    const struct ash_model_config *c = &model->config;
    int rc;

    if ((rc = add(model, ASH_ROLE_EMBED, -1, 0, c->vocab, c->hidden)) < 0) return rc;
    if (c->rope.kind == ASH_ROPE_NONE && (rc = add(model, ASH_ROLE_POSITION, -1, 0, c->max_positions, c->hidden)) < 0)
        return rc;
    for (size_t i = 0; i < c->layers; i++)
        if ((rc = add_layer(model, (int)i)) < 0) return rc;
    if ((rc = add_norm(model, ASH_ROLE_FINAL_NORM, -1)) < 0) return rc;
    return c->tied ? 0 : add(model, ASH_ROLE_HEAD, -1, 0, c->vocab, c->hidden);
}

int ash_model_list_params(struct ash_model *model, struct ash_err *err)
{
    size_t layers = model->config.layers;

    model->layers = malloc(layers * sizeof(*model->layers));
    if (model->layers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu layers", layers);
    memset(&model->top, 0xff, sizeof(model->top));
    memset(model->layers, 0xff, layers * sizeof(*model->layers));
    if (add_all(model) < 0) return ash_err_set(err, -ENOMEM, "out of memory for the list of parameters");
    return 0;
}
