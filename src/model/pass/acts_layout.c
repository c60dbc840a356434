/* acts_layout: places the batch, the layers and the head. */
#include "model/pass/acts_layout.h"

#include "base/math.h"
#include "model/lora_priv.h"
#include "model/pass/split.h"

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* An activation of a layer, for as long as its kind asks. */
static void *act_bytes(struct ash_acts_layout *l, enum ash_space space, enum ash_keep keep, size_t size_bytes)
{
    return ash_acts_keeps(l->opts, keep) ? ash_acts_layout_keep_bytes(l, space, size_bytes)
                                         : ash_acts_layout_reuse_bytes(l, space, size_bytes);
}

static float *act_in(struct ash_acts_layout *l, enum ash_space space, enum ash_keep keep, size_t count)
{
    return act_bytes(l, space, keep, count * sizeof(float));
}

static float *act(struct ash_acts_layout *l, enum ash_keep keep, size_t count)
{
    return act_in(l, ASH_SPACE_PRIVATE, keep, count);
}

/* Rows that the backward pass recomputes in every mode: a kernel over rows does. */
static uint16_t *recomputed_bf16(struct ash_acts_layout *l, size_t count)
{
    return ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE, count * sizeof(uint16_t));
}

/* An activation that only products read. */
static uint16_t *act_bf16(struct ash_acts_layout *l, enum ash_keep keep, size_t count)
{
    return act_bytes(l, ASH_SPACE_PRIVATE, keep, count * sizeof(uint16_t));
}

static int32_t *act_ints(struct ash_acts_layout *l, enum ash_keep keep, size_t count)
{
    return act_bytes(l, ASH_SPACE_PRIVATE, keep, count * sizeof(int32_t));
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* only_products: nothing else reads the rows. */
static void lay_norm(struct ash_acts_layout *l, struct ash_norm_acts *norm, bool only_products)
{
    const struct ash_model_config *c = &l->model->config;

    if (l->acts->is_bf16 && only_products)
        norm->out_bf16 = recomputed_bf16(l, l->own * c->hidden);
    else if (l->axes->shared_grads)
        norm->out_all = act_in(l, ASH_SPACE_NODE, ASH_KEEP_CHEAP, l->batch_rows * c->hidden);
    else if (l->axes->tp.same_node)
        norm->out_all = act_in(l, ASH_SPACE_TP, ASH_KEEP_CHEAP, l->rows * c->hidden);
    else
        norm->out = act(l, ASH_KEEP_CHEAP, l->own * c->hidden);
    norm->rstd = act(l, ASH_KEEP_COSTLY, l->own);
    norm->mean = c->form.norm == ASH_NORM_LAYER ? act(l, ASH_KEEP_COSTLY, l->own) : NULL;
}

/* Along cp attention reads other rows, by heads: of all ranks where they lie, or after an exchange. */
static float *act_qkv(struct ash_acts_layout *l, size_t width)
{
    if (l->axes->cp.same_node) return act_in(l, ASH_SPACE_CP, ASH_KEEP_COSTLY, l->batch_rows * width);
    if (l->axes->cp.size > 1) return ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE, l->rows * width * sizeof(float));
    return act(l, ASH_KEEP_COSTLY, l->rows * width);
}

static void lay_grouped(struct ash_acts_layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;
    size_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    if (l->acts->is_bf16) {
        a->qkv_bf16 = act_bf16(l, ASH_KEEP_COSTLY, l->rows * (q + 2 * kv));
        if (c->form.qk_norm)
            a->rows.q = ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE, l->rows * (q + 2 * kv) * sizeof(float));
    } else {
        a->rows.q = act_qkv(l, q + 2 * kv);
    }
    a->rows.k = ash_acts_layout_columns(a->rows.q, q);
    a->rows.v = ash_acts_layout_columns(a->rows.k, kv);
    if (!c->form.qk_norm) return;
    a->qk_raw = act(l, ASH_KEEP_COSTLY, l->rows * (q + kv));
    a->q_rstd = act(l, ASH_KEEP_COSTLY, l->rows * c->heads);
    a->k_rstd = act(l, ASH_KEEP_COSTLY, l->rows * c->kv_heads);
}

static void lay_latent(struct ash_acts_layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;

    a->rows.q = act_qkv(l, l->acts->q_stride);
    a->rows.k = act_qkv(l, l->acts->k_stride);
    a->rows.v = act_qkv(l, l->acts->v_stride);
    if (c->q_rank != 0) {
        a->q_low = act(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_norm = act(l, ASH_KEEP_COSTLY, l->rows * c->q_rank);
        a->q_low_rstd = act(l, ASH_KEEP_COSTLY, l->rows);
    }
    a->kv_low = act(l, ASH_KEEP_COSTLY, l->rows * (c->kv_rank + c->rope_dim));
    a->kv_low_norm = act(l, ASH_KEEP_COSTLY, l->rows * c->kv_rank);
    a->kv_low_rstd = act(l, ASH_KEEP_COSTLY, l->rows);
    /* copied into k and v at once */
    a->kv_up = ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE,
                                           l->rows * c->heads * (c->nope_dim + c->v_dim) * sizeof(float));
}

size_t ash_acts_layout_qkv_width(const struct ash_acts_layout *l, size_t kv_heads)
{
    const struct ash_model_config *c = &l->model->config;

    return kv_heads * ((c->heads / c->kv_heads + 1) * c->head_dim + l->acts->v_dim);
}

/* Rows of the whole batch along cp: of all heads where they lie, or of this rank's part of the heads. */
static void lay_attn_all(struct ash_acts_layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;
    size_t kv_heads = ash_split_heads_cp(l->model, l->axes, l->axes->cp.rank).count;
    size_t heads = kv_heads * (c->heads / c->kv_heads);

    if (l->axes->cp.same_node) {
        a->all = a->rows;
        a->all.out = act_in(l, ASH_SPACE_CP, ASH_KEEP_COSTLY, l->batch_rows * c->heads * l->acts->v_dim);
    } else {
        a->all.q = act(l, ASH_KEEP_COSTLY, l->batch_rows * ash_acts_layout_qkv_width(l, kv_heads));
        a->all.out = act(l, ASH_KEEP_COSTLY, l->batch_rows * heads * l->acts->v_dim);
    }
    a->lse = l->opts->backward ? act(l, ASH_KEEP_COSTLY, l->batch_rows * heads) : NULL;
}

static void lay_attn(struct ash_acts_layout *l, struct ash_attn_acts *a)
{
    const struct ash_model_config *c = &l->model->config;

    ash_acts_layout_out_gate(l, a);
    if (c->attn == ASH_ATTN_LATENT)
        lay_latent(l, a);
    else
        lay_grouped(l, a);
    if (l->acts->is_bf16)
        a->out_bf16 = act_bf16(l, ASH_KEEP_COSTLY, l->rows * c->heads * l->acts->v_dim);
    else if (!l->axes->cp.same_node)
        a->rows.out = act(l, ASH_KEEP_COSTLY, l->rows * c->heads * l->acts->v_dim);
    if (l->axes->cp.size > 1)
        lay_attn_all(l, a);
    else
        a->lse = l->opts->backward || c->family->names[ASH_ROLE_SINKS] != NULL
                     ? act(l, ASH_KEEP_COSTLY, l->rows * c->heads)
                     : NULL;
}

/* Experts' gate and up are two matrices, whose rows are found without F; or one. */
static void lay_expert(struct ash_acts_layout *l, struct ash_ffn_acts *ffn, size_t rows, size_t width)
{
    ffn->stride = ash_acts_expert_stride(&l->model->config);
    if (ffn->stride > width) {
        ffn->gate = act(l, ASH_KEEP_COSTLY, rows * ffn->stride);
        ffn->up = ash_acts_layout_columns(ffn->gate, l->model->config.form.expert.alternates ? 1 : width);
    } else {
        ffn->gate = ash_mlp_is_gated(l->model->config.form.mlp) ? act(l, ASH_KEEP_COSTLY, rows * width) : NULL;
        ffn->up = act(l, ASH_KEEP_COSTLY, rows * width);
    }
    ffn->hidden = act(l, ASH_KEEP_CHEAP, rows * width);
}

/* gate and up of all tokens: columns of one matrix, so that one product makes both. */
static void lay_inner(struct ash_acts_layout *l, struct ash_ffn_acts *ffn, size_t width)
{
    bool is_gated = ash_mlp_is_gated(l->model->config.form.mlp);

    ffn->stride = is_gated ? 2 * width : width;
    ffn->up = act(l, ASH_KEEP_COSTLY, l->rows * ffn->stride);
    if (!is_gated) return;
    ffn->gate = ffn->up;
    ffn->up = ash_acts_layout_columns(ffn->gate, width);
}

/* A dense, gated feed-forward, all of it rounded. */
static void lay_dense(struct ash_acts_layout *l, struct ash_ffn_acts *ffn, size_t width)
{
    ffn->stride = 2 * width;
    ffn->gate_bf16 = act_bf16(l, ASH_KEEP_COSTLY, l->rows * ffn->stride);
    ffn->up_bf16 = ffn->gate_bf16 != NULL ? ffn->gate_bf16 + width : NULL;
    ffn->hidden_bf16 = recomputed_bf16(l, l->rows * width);
}

/* A feed-forward of all tokens. */
static void lay_ffn(struct ash_acts_layout *l, struct ash_ffn_acts *ffn, size_t width)
{
    lay_inner(l, ffn, width);
    if (l->axes->shared_grads)
        ffn->hidden = ffn->hidden_all = act_in(l, ASH_SPACE_CP, ASH_KEEP_CHEAP, l->batch_rows * width);
    else
        ffn->hidden = act(l, ASH_KEEP_CHEAP, l->rows * width);
}

static void lay_moe(struct ash_acts_layout *l, struct ash_moe_acts *moe)
{
    const struct ash_model_config *c = &l->model->config;
    size_t pairs = l->rows * c->expert.choices;

    moe->logits = act(l, ASH_KEEP_COSTLY, l->rows * c->expert.experts);
    moe->index = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->starts = act_ints(l, ASH_KEEP_COSTLY, c->expert.experts + 1);
    moe->weight = act(l, ASH_KEEP_COSTLY, pairs);
    moe->order = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->flat = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->where = act_ints(l, ASH_KEEP_COSTLY, pairs);
    moe->y = act_in(l, ash_split_shares_pairs(l->model, l->axes) ? ASH_SPACE_TP : ASH_SPACE_PRIVATE, ASH_KEEP_COSTLY,
                    pairs * c->hidden);
    if (l->axes->ep.size > 1) {
        moe->x = ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE,
                                             pairs * c->hidden * sizeof(float)); /* sent at once; see moe_exchange.h */
    } else {
        moe->x = act(l, ASH_KEEP_CHEAP, pairs * c->hidden);
        lay_expert(l, &moe->expert, pairs, c->expert.ffn);
    }
    if (c->expert.shared_ffn != 0) lay_ffn(l, &moe->shared, c->expert.shared_ffn);
    ash_acts_layout_shared_gate(l, moe);
}

/* The norm's output goes to a buffer that all blocks share. */
static void lay_join(struct ash_acts_layout *l, size_t layer, enum ash_role role, struct ash_join_acts *join)
{
    const struct ash_model_config *c = &l->model->config;

    if (!ash_layer_has(&l->model->layers[layer], role)) return;
    join->y = act(l, ASH_KEEP_COSTLY, l->own * c->hidden);
    join->norm.rstd = act(l, ASH_KEEP_COSTLY, l->own);
    join->norm.mean = c->form.norm == ASH_NORM_LAYER ? act(l, ASH_KEEP_COSTLY, l->own) : NULL;
}

static void lay_layer(struct ash_acts_layout *l, size_t index)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_layer_acts *acts = &l->acts->layers[index];

    acts->in = act(l, ASH_KEEP_INPUT, l->own * c->hidden);
    if (ash_config_has_ffn(c))
        acts->mid = l->opts->backward || c->form.parallel ? act(l, ASH_KEEP_COSTLY, l->own * c->hidden) : acts->in;
    lay_norm(l, &acts->attn.norm, c->attn == ASH_ATTN_GROUPED);
    if (ash_config_has_state(c, index)) ash_acts_layout_state(l, &acts->state);
    if (ash_config_attends(c, index)) lay_attn(l, &acts->attn);
    if (!ash_config_has_ffn(c)) {
        ash_acts_layout_reset(l);
        return;
    }
    lay_join(l, index, ASH_ROLE_POST1, &acts->attn_join);
    lay_join(l, index, ASH_ROLE_POST2, &acts->ffn_join);
    lay_norm(l, &acts->ffn_norm, !c->sparse[index]);
    if (c->sparse[index])
        lay_moe(l, &acts->moe);
    else if (l->acts->is_bf16 && c->form.mlp == ASH_MLP_GATED)
        lay_dense(l, &acts->ffn, c->ffn);
    else
        lay_ffn(l, &acts->ffn, c->ffn);
    ash_acts_layout_reset(l);
}

/* The backward pass of a layer, beside what layers reuse. */
static void lay_gradients(struct ash_acts_layout *l)
{
    for (size_t i = 0; i < ASH_SPACES; i++)
        l->spaces[i].reused_bytes = l->spaces[i].reused_peak_bytes;
    ash_acts_layout_gradients(l);
    ash_acts_layout_reset(l);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Where others read a rank's activations, or adapters do, these are float32. */
static bool stores_bf16(const struct ash_acts_layout *l)
{
    return l->opts->bf16_acts && l->opts->backward && l->model->round_bf16 && l->axes->tp.size == 1 &&
           l->axes->cp.size == 1 && l->model->config.lora == NULL && ash_model_form_is_plain(&l->model->config);
}

static void set_strides(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;

    if (c->attn == ASH_ATTN_GROUPED) {
        acts->v_dim = c->head_dim;
        acts->q_stride = acts->k_stride = acts->v_stride = (c->heads + 2 * c->kv_heads) * c->head_dim;
    } else {
        acts->v_dim = c->v_dim;
        acts->q_stride = acts->k_stride = c->heads * c->head_dim;
        acts->v_stride = c->heads * c->v_dim;
    }
    ash_acts_layout_count_head_rows(l);
}

static void lay_batch(struct ash_acts_layout *l)
{
    struct ash_batch_block *block = &l->acts->block;

    block->ids = ash_acts_layout_keep_ints(l, l->rows);
    block->targets = ash_acts_layout_keep_ints(l, l->rows);
    block->positions = ash_acts_layout_keep_ints(l, l->rows);
    if (l->model->config.segments > 0) block->segments = ash_acts_layout_keep_ints(l, l->rows);
    if (l->model->config.fuses_states) {
        block->states = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * l->model->config.hidden);
        l->acts->scratch.fused =
            ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * 2 * l->model->config.hidden);
        l->acts->scratch.captured =
            ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * l->model->config.captured);
    }
    if (l->opts->capture_count > 0)
        l->acts->captured = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE,
                                                        l->rows * l->opts->capture_count * l->model->config.hidden);
    l->acts->losses = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->batch_rows);
    l->acts->entropies = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->batch_rows);
    block->few_targets = ash_acts_layout_keep_ints(l, l->rows);
    block->few_losses = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows);
    block->few_entropies = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows);
    if (!l->opts->backward) return;
    block->scales = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows);
    block->entropy_scales = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows);
    if (ash_lora_drops(l->model))
        block->sequences = ash_acts_layout_keep_bytes(l, ASH_SPACE_PRIVATE, l->rows * sizeof(*block->sequences));
}

void ash_acts_layout_run(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;

    acts->is_bf16 = stores_bf16(l);
    set_strides(l);
    lay_batch(l);
    if (l->axes->cp.size > 1 && !l->axes->cp.same_node)
        acts->scratch.packed =
            ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * ash_acts_layout_qkv_width(l, c->kv_heads));
    acts->scratch.residual = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * c->hidden);
    if (c->expert.scales_input)
        acts->scratch.pair_weight = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * c->expert.choices);
    if (c->form.qkv_by_head)
        acts->scratch.by_head = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * acts->q_stride);
    if (l->axes->tp.size > 1) ash_acts_layout_exchanges(l);
    if (l->axes->outs.size > 1 && c->form.qk_norm == ASH_QK_NORM_ALL) /* of whole rows, after their norm */
        acts->scratch.qk.raw =
            ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * l->model->whole.heads * c->head_dim);
    for (size_t i = 0; i < c->layers; i++)
        lay_layer(l, i);
    /* without a backward pass the stream is one buffer that every layer updates in place */
    acts->final_in =
        l->opts->backward ? ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * c->hidden) : acts->layers[0].in;
    if (l->opts->backward) lay_gradients(l);
    if (ash_split_has_head(l->model)) ash_acts_layout_head(l);
}

struct ash_acts_layout ash_acts_layout_init(const struct ash_model *model, const struct ash_pass_opts *opts,
                                            const struct ash_axes *axes, struct ash_acts *acts)
{
    return (struct ash_acts_layout){.model = model,
                                    .opts = opts,
                                    .axes = axes,
                                    .acts = acts,
                                    .rows = ash_split_max_rows(opts, axes),
                                    .own = ash_split_max_own_rows(opts, axes),
                                    .batch_rows = opts->max_rows};
}

size_t ash_acts_layout_space_bytes(const struct ash_acts_layout *l, enum ash_space space)
{
    return l->spaces[space].kept_bytes + l->spaces[space].reused_peak_bytes;
}
