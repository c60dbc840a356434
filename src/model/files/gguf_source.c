/* The tensors of a GGUF file. They are parameters, but for four things that llama.cpp's converter does: it puts the
 * matrices of a layer's experts into one tensor, takes fused gates and ups apart, stores all matrices [out, in], and
 * adds the 1 of norms that lack it. The rows of q and k are reordered in some architectures (gguf_config.c). */
#include "model/files/gguf_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compute/mathf.h"
#include "model/weight.h"

struct lister {
    const struct ash_model *model;
    const struct ash_gguf_arch *arch;
    struct ash_gguf_source *sources;
    size_t count;
};

static bool is_rotated(enum ash_role role)
{
    return role == ASH_ROLE_Q || role == ASH_ROLE_K || role == ASH_ROLE_Q_BIAS || role == ASH_ROLE_K_BIAS;
}

static enum ash_gguf_order order_of(const struct lister *lister, enum ash_role role)
{
    if (is_rotated(role) && (lister->arch->traits & ASH_GGUF_PERMUTED)) return ASH_GGUF_ORDER_PERMUTED;
    if ((role == ASH_ROLE_QKV || role == ASH_ROLE_QKV_BIAS) && lister->model->config.form.qkv_by_head)
        return ASH_GGUF_ORDER_BY_HEAD;
    return ASH_GGUF_ORDER_SAME;
}

/* llama.cpp reads these as float32 alone. */
static bool is_small(enum ash_role role)
{
    return role == ASH_ROLE_ROUTER || role == ASH_ROLE_POSITION || role == ASH_ROLE_SEGMENT ||
           role == ASH_ROLE_STATE_CONV || role == ASH_ROLE_SHARED_SCALE;
}

/* Vectors of states that llama.cpp has in two dims. */
static void fold(const struct ash_model *model, const struct ash_param *param, enum ash_role role,
                 struct ash_gguf_source *source)
{
    const size_t groups = model->config.state.groups;

    source->is_rate = role == ASH_ROLE_STATE_DECAY;
    if (role == ASH_ROLE_STATE_CONV) memcpy(source->shape, param->dims, sizeof(source->shape));
    if (role == ASH_ROLE_STATE_DECAY || role == ASH_ROLE_STATE_SKIP) source->shape[0] = param->count;
    if (role == ASH_ROLE_STATE_DECAY || role == ASH_ROLE_STATE_SKIP) source->shape[1] = 1;
    if (role != ASH_ROLE_STATE_NORM) return;
    source->shape[0] = groups;
    source->shape[1] = param->count / groups;
}

/* Append a tensor of this role, made of parameter index; halved: it is one half of a fused one. */
static int add(struct lister *lister, size_t index, enum ash_role role, enum ash_gguf_order order, bool halved,
               struct ash_err *err)
{
    const struct ash_model *model = lister->model;
    const struct ash_param *param = &model->params[index];
    struct ash_gguf_source *source = &lister->sources[lister->count++];
    const char *name = ash_gguf_role_name(lister->arch, role);
    size_t rows = param->is_transposed ? param->dims[1] : param->dims[0];

    if (name == NULL) return ash_err_set(err, -ENOTSUP, "'%s' has no place in a GGUF file", param->name);
    *source = (struct ash_gguf_source){.param = index, .parts = 1, .order = order, .is_matrix = param->is_matrix};
    if (param->layer < 0)
        snprintf(source->name, sizeof(source->name), "%s", name);
    else
        snprintf(source->name, sizeof(source->name), "blk.%u.%s", model->layer_ids[param->layer], name);
    if (!param->is_matrix) rows = param->count;
    source->rows = halved ? rows / 2 : rows;
    source->cols = param->count / rows;
    source->stays_float = is_small(role);
    fold(model, param, role, source);
    if (!param->is_expert) return 0;
    source->parts = model->whole.expert.experts;
    source->has_parts = true;
    source->step = (size_t)model->layers[param->layer].expert_params;
    return 0;
}

/* A gate and an up that are one parameter. */
static int add_apart(struct lister *lister, size_t index, enum ash_role gate, enum ash_role up, struct ash_err *err)
{
    bool alternates = lister->model->config.form.expert.alternates;
    int rc = add(lister, index, gate, alternates ? ASH_GGUF_ORDER_EVEN : ASH_GGUF_ORDER_FIRST_HALF, true, err);

    return rc < 0 ? rc
                  : add(lister, index, up, alternates ? ASH_GGUF_ORDER_ODD : ASH_GGUF_ORDER_SECOND_HALF, true, err);
}

/* The matrix of latent attention that makes keys and values of compressed rows. */
static int add_latent(struct lister *lister, size_t index)
{
    const struct ash_model_config *c = &lister->model->config;
    unsigned layer = lister->model->layer_ids[lister->model->params[index].layer];
    struct ash_gguf_source *key = &lister->sources[lister->count++], *value = &lister->sources[lister->count++];

    *key = (struct ash_gguf_source){.param = index, .parts = c->heads, .has_parts = true, .is_matrix = true};
    *value = *key;
    key->order = ASH_GGUF_ORDER_K_UP;
    key->rows = value->cols = c->kv_rank;
    key->cols = c->nope_dim;
    value->order = ASH_GGUF_ORDER_V_UP;
    value->rows = c->v_dim;
    snprintf(key->name, sizeof(key->name), "blk.%u." ASH_GGUF_K_UP, layer);
    snprintf(value->name, sizeof(value->name), "blk.%u." ASH_GGUF_V_UP, layer);
    return 0;
}

static int add_param(struct lister *lister, size_t index, struct ash_err *err)
{
    struct ash_gguf_role_at at = ash_gguf_role_of(lister->model, index);

    if (at.expert > 0) return 0; /* a part of the first one's tensor */
    if (at.role == ASH_ROLE_KV_UP) return add_latent(lister, index);
    if (at.role == ASH_ROLE_EXPERT_GATE_UP)
        return add_apart(lister, index, ASH_ROLE_EXPERT_GATE, ASH_ROLE_EXPERT_UP, err);
    if (at.role == ASH_ROLE_EXPERT_GATE_UP_BIAS)
        return add_apart(lister, index, ASH_ROLE_EXPERT_GATE_BIAS, ASH_ROLE_EXPERT_UP_BIAS, err);
    return add(lister, index, at.role, order_of(lister, at.role), false, err);
}

int ash_gguf_sources(const struct ash_model *model, const struct ash_gguf_arch *arch,
                     struct ash_gguf_source **sources_out, size_t *count_out, struct ash_err *err)
{
    struct lister lister = {.model = model, .arch = arch};

    lister.sources = calloc(2 * model->param_count, sizeof(*lister.sources));
    if (lister.sources == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the list of tensors");
    for (size_t i = 0; i < model->param_count; i++) {
        int rc = add_param(&lister, i, err);

        if (rc == 0) continue;
        free(lister.sources);
        return rc;
    }
    *sources_out = lister.sources;
    *count_out = lister.count;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static size_t source_row(const struct ash_model_config *c, const struct ash_gguf_source *source, size_t row)
{
    size_t dim = c->head_dim, width = c->heads * dim;

    switch (source->order) {
    case ASH_GGUF_ORDER_PERMUTED:
        return row - row % dim + row % dim / 2 + row % 2 * (dim / 2);
    case ASH_GGUF_ORDER_SECOND_HALF:
        return source->rows + row;
    case ASH_GGUF_ORDER_EVEN:
        return 2 * row;
    case ASH_GGUF_ORDER_ODD:
        return 2 * row + 1;
    case ASH_GGUF_ORDER_BY_HEAD:
        return row % width / dim * 3 * dim + row / width * dim + row % dim;
    default:
        return row;
    }
}

/* Of head h: row r of the compressed row's dims, as its keys see it; or row r of its values. */
static void latent_row(const struct ash_model *model, const struct ash_gguf_source *source, size_t row, float *out)
{
    const struct ash_model_config *c = &model->config;
    const struct ash_param *param = &model->params[source->param];
    size_t head = row / source->rows * (c->nope_dim + c->v_dim), r = row % source->rows;

    if (source->order == ASH_GGUF_ORDER_V_UP)
        ash_weights_to_f32(param->data, param->dtype, (head + c->nope_dim + r) * c->kv_rank, c->kv_rank, out);
    for (size_t i = 0; source->order == ASH_GGUF_ORDER_K_UP && i < c->nope_dim; i++)
        ash_weights_to_f32(param->data, param->dtype, (head + i) * c->kv_rank + r, 1, out + i);
}

void ash_gguf_source_row(const struct ash_model *model, const struct ash_gguf_source *source, size_t row, float *out)
{
    size_t from = source_row(&model->config, source, row % source->rows);
    const struct ash_param *param = &model->params[source->param + row / source->rows * source->step];
    const size_t stride = param->is_transposed ? param->dims[1] : 1;

    ash_assert(row < source->parts * source->rows);
    if (source->order >= ASH_GGUF_ORDER_K_UP) {
        latent_row(model, source, row, out);
        return;
    }
    if (param->is_transposed)
        for (size_t i = 0; i < source->cols; i++)
            ash_weights_to_f32(param->data, param->dtype, i * stride + from, 1, out + i);
    else
        ash_weights_to_f32(param->data, param->dtype, from * source->cols, source->cols, out);
    for (size_t i = 0; source->is_rate && i < source->cols; i++)
        out[i] = -ash_expf(out[i]);
    for (size_t i = 0; param->has_one && i < source->cols; i++)
        out[i] += 1;
}

void ash_gguf_source_spec(const struct ash_gguf_source *source, enum ash_dtype dtype, struct ash_tensor_spec *spec_out)
{
    bool takes = source->is_matrix && !source->stays_float && source->cols % ash_dtype_block(dtype) == 0;

    *spec_out = (struct ash_tensor_spec){.name = source->name, .dtype = takes ? dtype : ASH_F32};
    if (source->shape[1] > 0) {
        spec_out->dim_count = 2;
        memcpy(spec_out->dims, source->shape, sizeof(source->shape));
        return;
    }
    if (source->has_parts) spec_out->dims[spec_out->dim_count++] = source->parts;
    spec_out->dims[spec_out->dim_count++] = source->rows;
    if (source->is_matrix) spec_out->dims[spec_out->dim_count++] = source->cols;
}
