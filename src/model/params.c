/* The list of a model's parameters: which tensors its config calls for, their names and shapes.
 * Everything that walks weights (loading, saving, gradients, the optimizer, hashes) walks this list. */
#include "model/model_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/state_widths.h"

static bool role_is_top(enum ash_role role)
{
    return role <= ASH_ROLE_HEAD_BIAS;
}

/* What of a tensor is here: runs of its output or input dimension. No runs: all of it. */
struct cut {
    bool input; /* of a matrix: columns as the product y = x W^T sees them */
    size_t run_count;
    struct ash_range runs[3];
};
static const struct cut WHOLE;

/* The runs times width, as a cut; of a tensor that is not shared, none. */
static struct cut cut_of(const struct ash_model *model, bool input, struct ash_range run, size_t width)
{
    if (model->slice.tp_size == 1) return WHOLE;
    return (struct cut){.input = input, .run_count = 1, .runs[0] = {run.first * width, run.count * width}};
}

/* Of a matrix that adds to the stream: its inputs, or (slice.gathers) its outputs, which are those of the stream. */
static struct cut cut_to_stream(const struct ash_model *model, struct ash_range inputs, size_t width)
{
    if (!model->slice.gathers) return cut_of(model, true, inputs, width);
    return cut_of(model, false, ash_slice_hidden(&model->whole, &model->slice), 1);
}

static size_t runs_total(const struct cut *cut)
{
    size_t total = 0;

    for (size_t i = 0; i < cut->run_count; i++)
        total += cut->runs[i].count;
    return total;
}

/* Set what the tensor is whole, and what of it is here. */
static void set_shape(struct ash_param *param, size_t rows, size_t cols, int dim, const struct cut *cut)
{
    param->dim_count = cols != 0 ? 2 : 1;
    param->full[0] = param->dims[0] = rows;
    param->full[1] = param->dims[1] = cols;
    param->cut = cut->run_count == 0 ? -1 : dim;
    param->run_count = cut->run_count;
    memcpy(param->runs, cut->runs, sizeof(param->runs));
    if (param->cut >= 0) param->dims[param->cut] = runs_total(cut);
    param->count = param->dims[0] * (cols != 0 ? param->dims[1] : 1);
}

/* Append one parameter of rows x cols (cols 0 makes a vector), of which cut is here, along its dimension dim. layer is
 * the slice's; expert its number in the whole layer. Returns it. */
static struct ash_param *add_cut(struct ash_model *model, enum ash_role role, int layer, size_t expert, size_t rows,
                                 size_t cols, int dim, struct cut cut)
{
    struct ash_layer *owner = role_is_top(role) ? &model->top : &model->layers[layer];
    bool is_expert = role >= ASH_ROLE_EXPERT_GATE;
    const char *name = model->config.family->names[role];
    struct ash_param *param = &model->params[model->param_count];

    ash_assert(name != NULL && model->param_count < model->param_capacity);
    *param = (struct ash_param){.layer = role_is_top(role) ? -1 : layer,
                                .is_matrix = cols != 0,
                                .is_expert = is_expert,
                                .is_trained = role != ASH_ROLE_ROUTER_BIAS};
    ash_param_format_name(model->config.family, role, role_is_top(role) ? -1 : (int)model->layer_ids[layer], expert,
                          param->name, sizeof(param->name));
    set_shape(param, rows, cols, dim, &cut);
    param->parts = is_expert && strstr(name, "%zu") == NULL ? model->whole.expert.experts : 0;
    param->part = param->parts > 0 ? expert : 0;
    param->before_layers = role <= ASH_ROLE_EMBED_NORM_BIAS && (role != ASH_ROLE_EMBED || model->slice.embed);
    param->is_counted = param->cut >= 0 || is_expert || model->slice.tp_rank == 0;
    param->offset = model->dense_size;
    if (!is_expert || expert == model->experts.first) owner->param[role] = (int32_t)model->param_count;
    size_t padded = ash_round_up(param->count, ASH_PARAM_ALIGN);
    param->expert_offset = model->expert_size;
    if (is_expert)
        model->expert_size += padded;
    else
        model->dense_size += padded;
    model->weight_count += param->count;
    model->param_count++;
    return param;
}

static struct ash_param *add(struct ash_model *model, enum ash_role role, int layer, size_t expert, size_t rows,
                             size_t cols)
{
    return add_cut(model, role, layer, expert, rows, cols, 0, WHOLE);
}

/* A matrix of out rows and in columns, stored as the family does, with a bias where has_bias. bias_role follows
 * role; it is cut like the output. */
static void add_linear(struct ash_model *model, enum ash_role role, int layer, size_t out, size_t in, bool has_bias,
                       struct cut cut)
{
    bool transposed = model->config.form.transposed;

    add_cut(model, role, layer, 0, transposed ? in : out, transposed ? out : in, cut.input == transposed ? 0 : 1, cut)
        ->is_transposed = transposed;
    if (has_bias) add_cut(model, role + 1, layer, 0, out, 0, 0, cut.input ? WHOLE : cut);
}

/* The weight of a norm. */
static void add_norm_weight(struct ash_model *model, enum ash_role role, int layer, size_t width)
{
    struct ash_param *param = add_cut(model, role, layer, 0, width, 0, 0, WHOLE);

    param->has_one = model->config.form.unit_norm;
}

/* A norm over the stream, where the family has it. */
static void add_norm(struct ash_model *model, enum ash_role role, int layer)
{
    const struct ash_model_form *form = &model->config.form;

    if (model->config.family->names[role] == NULL) return;
    add_norm_weight(model, role, layer, model->config.hidden);
    if (form->norm == ASH_NORM_LAYER && !form->bare_norm) add(model, role + 1, layer, 0, model->config.hidden, 0);
}

static void add_qk_norms(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    bool all = c->form.qk_norm == ASH_QK_NORM_ALL;

    if (c->form.qk_norm == ASH_QK_NORM_NONE || c->form.qk_norm == ASH_QK_NORM_BARE) return;
    add_norm_weight(model, ASH_ROLE_Q_NORM, layer, all ? c->heads * c->head_dim : c->head_dim);
    add_norm_weight(model, ASH_ROLE_K_NORM, layer, all ? c->kv_heads * c->head_dim : c->head_dim);
}

static void add_grouped_attention(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, group = c->heads / c->kv_heads;
    size_t in = c->is_eagle ? 2 * c->hidden : c->hidden;
    struct ash_range heads = ash_slice_kv_heads(c, &model->slice);
    struct cut q_cut = cut_of(model, false, heads, group * c->head_dim),
               kv_cut = cut_of(model, false, heads, c->head_dim);

    ash_assert(c->kv_heads > 0);
    ash_assert(c->heads % c->kv_heads == 0);
    if (c->family->names[ASH_ROLE_QKV] != NULL) {
        struct cut cut = c->form.qkv_by_head ? cut_of(model, false, heads, 3 * c->head_dim) : q_cut;
        if (cut.run_count > 0 && !c->form.qkv_by_head) {
            cut.run_count = 3;
            cut.runs[1] = (struct ash_range){q + kv_cut.runs[0].first, kv_cut.runs[0].count};
            cut.runs[2] = (struct ash_range){q + kv + kv_cut.runs[0].first, kv_cut.runs[0].count};
        }
        add_linear(model, ASH_ROLE_QKV, layer, q + 2 * kv, c->hidden, c->form.qkv_bias, cut);
        return;
    }
    add_linear(model, ASH_ROLE_Q, layer, c->form.out_gate ? 2 * q : q, in, c->form.qkv_bias, q_cut);
    add_linear(model, ASH_ROLE_K, layer, kv, in, c->form.qkv_bias, kv_cut);
    add_linear(model, ASH_ROLE_V, layer, kv, in, c->form.qkv_bias, kv_cut);
    add_qk_norms(model, layer);
}

static void add_latent_attention(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    size_t q = c->heads * c->head_dim, up = c->nope_dim + c->v_dim;
    struct ash_range heads = ash_slice_kv_heads(c, &model->slice);
    struct cut q_cut = cut_of(model, false, heads, c->head_dim), kv_cut = cut_of(model, false, heads, up);

    if (c->q_rank == 0) {
        add_linear(model, ASH_ROLE_Q, layer, q, c->hidden, false, q_cut);
    } else {
        add_linear(model, ASH_ROLE_Q_DOWN, layer, c->q_rank, c->hidden, c->form.qkv_bias, WHOLE);
        add(model, ASH_ROLE_Q_DOWN_NORM, layer, 0, c->q_rank, 0);
        add_linear(model, ASH_ROLE_Q_UP, layer, q, c->q_rank, false, q_cut);
    }
    add_linear(model, ASH_ROLE_KV_DOWN, layer, c->kv_rank + c->rope_dim, c->hidden, c->form.qkv_bias, WHOLE);
    add(model, ASH_ROLE_KV_DOWN_NORM, layer, 0, c->kv_rank, 0);
    add_linear(model, ASH_ROLE_KV_UP, layer, c->heads * up, c->kv_rank, false, kv_cut);
}

static void add_feed_forward(struct ash_model *model, int layer, size_t width)
{
    const struct ash_model_config *c = &model->whole;
    struct ash_range columns = ash_slice_columns(c, width, &model->slice);
    struct cut out = cut_of(model, false, columns, 1), in = cut_to_stream(model, columns, 1);

    if (c->family->names[ASH_ROLE_GATE_UP] != NULL) {
        if (out.run_count > 0) {
            out.run_count = 2;
            out.runs[1] = (struct ash_range){width + columns.first, columns.count};
        }
        add_cut(model, ASH_ROLE_GATE_UP, layer, 0, 2 * width, c->hidden, 0, out);
        add_linear(model, ASH_ROLE_DOWN, layer, c->hidden, width, false, in);
        return;
    }
    if (ash_mlp_is_gated(c->form.mlp)) add_linear(model, ASH_ROLE_GATE, layer, width, c->hidden, c->form.mlp_bias, out);
    add_linear(model, ASH_ROLE_UP, layer, width, c->hidden, c->form.mlp_bias, out);
    add_linear(model, ASH_ROLE_DOWN, layer, c->hidden, width, c->form.mlp_bias, in);
}

/* A constant of each expert; ernie4_5_moe stores a row of them. */
static void add_router_bias(struct ash_model *model, int layer, size_t experts)
{
    bool is_row = model->config.form.expert.bias_is_row;
    struct ash_param *param =
        add_cut(model, ASH_ROLE_ROUTER_BIAS, layer, 0, is_row ? 1 : experts, is_row ? experts : 0, 0, WHOLE);

    param->is_matrix = false;
}

/* With slice.gathers: this rank's outputs of an expert's tensor, unless whole experts are spread. Else: all of it. */
static struct cut expert_cut(const struct ash_model *model, enum ash_role role)
{
    const struct ash_model_config *c = &model->whole;
    struct ash_range columns = ash_slice_columns(c, c->expert.ffn, &model->slice);
    struct cut cut;

    if (!model->slice.gathers || model->slice.expert_size > 1) return WHOLE;
    if (role == ASH_ROLE_EXPERT_DOWN || role == ASH_ROLE_EXPERT_DOWN_BIAS)
        return cut_of(model, false, ash_slice_hidden(c, &model->slice), 1);
    if (role < ASH_ROLE_EXPERT_GATE_UP) return cut_of(model, false, columns, 1);
    if (c->form.expert.alternates) return cut_of(model, false, columns, 2);
    cut = cut_of(model, false, columns, 1);
    if (cut.run_count == 0) return cut;
    cut.run_count = 2;
    cut.runs[1] = (struct ash_range){c->expert.ffn + columns.first, columns.count};
    return cut;
}

/* The matrices of experts, one after the other; or, where experts share a tensor, all of one kind before the next. */
static void add_experts(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    const struct ash_expert_form *form = &c->form.expert;
    const size_t hidden = c->hidden, ffn = c->expert.ffn;
    const struct {
        enum ash_role role;
        size_t out, in;
    } roles[] = {{ASH_ROLE_EXPERT_GATE, ffn, hidden},        {ASH_ROLE_EXPERT_GATE_BIAS, ffn, 0},
                 {ASH_ROLE_EXPERT_UP, ffn, hidden},          {ASH_ROLE_EXPERT_UP_BIAS, ffn, 0},
                 {ASH_ROLE_EXPERT_GATE_UP, 2 * ffn, hidden}, {ASH_ROLE_EXPERT_GATE_UP_BIAS, 2 * ffn, 0},
                 {ASH_ROLE_EXPERT_DOWN, hidden, ffn},        {ASH_ROLE_EXPERT_DOWN_BIAS, hidden, 0}};
    bool is_shared = strstr(c->family->names[ASH_ROLE_EXPERT_DOWN], "%zu") == NULL;
    size_t count = ASH_COUNT(roles), outer = is_shared ? count : model->experts.count,
           inner = is_shared ? model->experts.count : count;

    ash_assert(model->experts.first + model->experts.count <= c->expert.experts);
    model->layers[layer].expert_params = is_shared ? 1 : 0;
    for (size_t r = 0; !is_shared && r < count; r++)
        model->layers[layer].expert_params += c->family->names[roles[r].role] != NULL;
    for (size_t i = 0; i < outer * inner; i++) {
        size_t r = is_shared ? i / inner : i % inner, e = model->experts.first + (is_shared ? i % inner : i / inner);
        bool swaps = form->is_transposed && roles[r].in > 0;

        if (c->family->names[roles[r].role] == NULL) continue;
        add_cut(model, roles[r].role, layer, e, swaps ? roles[r].in : roles[r].out, swaps ? roles[r].out : roles[r].in,
                swaps ? 1 : 0, expert_cut(model, roles[r].role))
            ->is_transposed = swaps;
    }
}

/* All ranks have the router; each expert is whole, on one rank. */
static void add_sparse(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    const struct ash_expert_config *x = &c->expert;
    struct ash_range columns = ash_slice_columns(c, x->shared_ffn, &model->slice);
    struct cut out = cut_of(model, false, columns, 1), in = cut_to_stream(model, columns, 1);

    add(model, ASH_ROLE_ROUTER, layer, 0, x->experts, c->hidden);
    if (x->choice_bias) add_router_bias(model, layer, x->experts);
    if (c->family->names[ASH_ROLE_ROUTER_ADD] != NULL) add(model, ASH_ROLE_ROUTER_ADD, layer, 0, x->experts, 0);
    add_experts(model, layer);
    if (x->shared_ffn == 0) return;
    if (c->family->names[ASH_ROLE_SHARED_GATE] == NULL) { /* it is the feed-forward of layers without experts */
        add_feed_forward(model, layer, x->shared_ffn);
        return;
    }
    if (c->family->names[ASH_ROLE_SHARED_SCALE] != NULL) add(model, ASH_ROLE_SHARED_SCALE, layer, 0, 1, c->hidden);
    add_cut(model, ASH_ROLE_SHARED_GATE, layer, 0, x->shared_ffn, c->hidden, 0, out);
    add_cut(model, ASH_ROLE_SHARED_UP, layer, 0, x->shared_ffn, c->hidden, 0, out);
    add_cut(model, ASH_ROLE_SHARED_DOWN, layer, 0, c->hidden, x->shared_ffn, in.input ? 1 : 0, in);
}

/* Recurrent states: all of a layer is on every rank. */
static void add_state(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    struct ash_state_widths widths = ash_state_widths_of(c);
    struct ash_param *conv;

    add_linear(model, ASH_ROLE_STATE_IN, layer, c->state.is_delta ? widths.inner + widths.channels : widths.all,
               c->hidden, c->state.in_bias, WHOLE);
    if (c->state.is_delta) add(model, ASH_ROLE_STATE_STEPS, layer, 0, 2 * c->state.heads, c->hidden);
    conv = add(model, ASH_ROLE_STATE_CONV, layer, 0, widths.channels, c->state.taps);
    conv->is_matrix = false;
    conv->is_conv = true;
    if (c->state.conv_bias) add(model, ASH_ROLE_STATE_CONV_BIAS, layer, 0, widths.channels, 0);
    add(model, ASH_ROLE_STATE_STEP_BIAS, layer, 0, c->state.heads, 0);
    add(model, ASH_ROLE_STATE_DECAY, layer, 0, c->state.heads, 0);
    if (!c->state.is_delta) add(model, ASH_ROLE_STATE_SKIP, layer, 0, c->state.heads, 0);
    if (c->state.norm != ASH_STATE_NORM_NONE)
        add(model, ASH_ROLE_STATE_NORM, layer, 0, c->state.norm_shares_weight ? c->state.head_dim : widths.inner, 0);
    add_linear(model, ASH_ROLE_STATE_OUT, layer, c->hidden, widths.inner, c->state.out_bias, WHOLE);
}

static void add_attention(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->whole;
    size_t v_dim = c->attn == ASH_ATTN_LATENT ? c->v_dim : c->head_dim;
    struct cut in = cut_to_stream(model, ash_slice_kv_heads(c, &model->slice), c->heads / c->kv_heads * v_dim);

    if (c->attn == ASH_ATTN_LATENT)
        add_latent_attention(model, layer);
    else
        add_grouped_attention(model, layer);
    if (c->family->names[ASH_ROLE_SINKS] != NULL)
        add_cut(model, ASH_ROLE_SINKS, layer, 0, c->heads, 0, 0,
                cut_of(model, false, ash_slice_kv_heads(c, &model->slice), c->heads / c->kv_heads));
    add_linear(model, ASH_ROLE_OUT, layer, c->hidden, c->heads * v_dim, c->form.out_bias, in);
}

/* What a head for drafts has before its layer. */
static void add_fuse(struct ash_model *model, int layer)
{
    size_t hidden = model->config.hidden;

    add_norm_weight(model, ASH_ROLE_FUSE_STATE, layer, hidden);
    if (model->config.is_eagle) return; /* the norm of the token is the layer's first */
    add_norm_weight(model, ASH_ROLE_FUSE_TOKEN, layer, hidden);
    add_linear(model, ASH_ROLE_FUSE, layer, hidden, 2 * hidden, false, WHOLE);
}

static void add_layer(struct ash_model *model, int layer)
{
    const struct ash_model_config *c = &model->config; /* of the slice: layer is its own */

    ash_assert(layer >= 0 && (size_t)layer < c->layers);
    if (c->fuses_states) add_fuse(model, layer);
    if (!c->form.bare_first || model->layer_ids[layer] > 0) add_norm(model, ASH_ROLE_NORM1, layer);
    if (ash_config_has_state(c, (size_t)layer)) add_state(model, layer);
    if (ash_config_attends(c, (size_t)layer)) add_attention(model, layer);
    if (!ash_config_has_ffn(c)) return;
    add_norm(model, ASH_ROLE_POST1, layer);
    add_norm(model, ASH_ROLE_SUM1, layer);
    add_norm(model, ASH_ROLE_NORM2, layer);
    if (model->config.sparse[layer])
        add_sparse(model, layer);
    else
        add_feed_forward(model, layer, model->whole.ffn);
    add_norm(model, ASH_ROLE_POST2, layer);
    add_norm(model, ASH_ROLE_SUM2, layer);
}

/* Of an encoder that is a classifier: a layer over one token's state, and the outputs. */
static void add_classifier(struct ash_model *model)
{
    const struct ash_model_config *c = &model->whole;

    add(model, ASH_ROLE_POOL, -1, 0, c->hidden, c->hidden);
    if (c->pool_bias) add(model, ASH_ROLE_POOL_BIAS, -1, 0, c->hidden, 0);
    if (c->family->names[ASH_ROLE_POOL_NORM] != NULL) add(model, ASH_ROLE_POOL_NORM, -1, 0, c->hidden, 0);
    add(model, ASH_ROLE_HEAD, -1, 0, c->labels, c->hidden);
    add(model, ASH_ROLE_HEAD_BIAS, -1, 0, c->labels, 0);
}

/* The output matrix: of a tied model the embedding, of which a stage without the embedding has a copy. */
static void add_head(struct ash_model *model)
{
    const struct ash_model_config *c = &model->whole;
    struct cut rows = cut_of(model, false, model->vocab, 1);
    enum ash_role role = c->tied ? ASH_ROLE_EMBED : ASH_ROLE_HEAD;
    struct ash_param *head;

    add_norm(model, ASH_ROLE_FINAL_NORM, -1);
    if (c->fuses_states && !c->is_eagle) ash_param_name_shared_norm(model);
    if (c->labels > 0 && c->form.both_ways) {
        add_classifier(model);
        return;
    }
    if (c->labels > 0) { /* one row: every rank of tp has it */
        head = add_cut(model, ASH_ROLE_HEAD, -1, 0, c->labels, c->hidden, 0, WHOLE);
        snprintf(head->name, sizeof(head->name), "score.weight");
        return;
    }
    if (c->form.head_bias) add_cut(model, ASH_ROLE_HEAD_BIAS, -1, 0, c->vocab, 0, 0, rows);
    if (c->tied && model->slice.embed && !model->slice.gathers) return;
    if (model->slice.gathers) role = ASH_ROLE_HEAD; /* of the embedding, which is whole, this rank's rows */
    head = add_cut(model, role, -1, 0, c->vocab, c->hidden, 0, rows);
    if (c->tied && model->slice.gathers)
        ash_param_format_name(c->family, ASH_ROLE_EMBED, -1, 0, head->name, sizeof(head->name));
    head->is_counted = head->is_counted && !c->tied;
    head->is_tied_copy = c->tied;
}

static void add_all(struct ash_model *model)
{
    const struct ash_model_config *c = &model->whole;
    struct cut rows = cut_of(model, false, model->vocab, 1);

    if (model->slice.embed) {
        add_cut(model, ASH_ROLE_EMBED, -1, 0, c->embed_vocab > 0 ? c->embed_vocab : c->vocab, c->hidden, 0,
                model->slice.gathers ? WHOLE : rows);
        if (c->captured > 0) add(model, ASH_ROLE_FUSE_CAPTURED, -1, 0, c->hidden, c->captured);
        if (c->rope.kind == ASH_ROPE_NONE)
            add(model, ASH_ROLE_POSITION, -1, 0, c->max_positions + c->first_position, c->hidden);
        if (c->segments > 0) add(model, ASH_ROLE_SEGMENT, -1, 0, c->segments, c->hidden);
        add_norm(model, ASH_ROLE_EMBED_NORM, -1);
    }
    for (size_t i = 0; i < model->config.layers; i++)
        add_layer(model, (int)i);
    if (model->slice.head) add_head(model);
}

/* Give back what the list did not need. */
static void trim(struct ash_model *model)
{
    struct ash_param *fitting = realloc(model->params, model->param_count * sizeof(*model->params));

    if (fitting == NULL) return;
    model->params = fitting;
    model->param_capacity = model->param_count;
}

int ash_model_list_params(struct ash_model *model, struct ash_err *err)
{
    size_t layers = model->config.layers;

    model->param_capacity = ASH_ROLE_COUNT + layers * (ASH_ROLE_COUNT + 6 * model->experts.count);
    model->params = calloc(model->param_capacity, sizeof(*model->params));
    model->layers = malloc(layers * sizeof(*model->layers));
    if (model->layers == NULL || model->params == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu layers", layers);
    memset(&model->top, 0xff, sizeof(model->top));
    memset(model->layers, 0xff, layers * sizeof(*model->layers));
    add_all(model);
    ash_model_place_experts(model);
    trim(model);
    return 0;
}
