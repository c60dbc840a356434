/* acts_scratch: places buffers that belong to no single layer: gradients, temporaries, buffers of exchanges along tp.
 * */
#include "base/math.h"
#include "model/lora.h"
#include "model/pass/acts_layout.h"
#include "model/pass/reduce.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"

#define HEAD_ROWS_MIN ASH_K_GROUP

/* Aim for the logits of a few rows. Each piece of a backward pass reads and writes the whole output matrix's gradient,
 * so there pieces are larger. */
#define HEAD_LOGITS_BYTES ((size_t)16 << 20)
#define HEAD_LOGITS_BACKWARD_BYTES ((size_t)64 << 20)
#define HEAD_LOGITS_ORDERED_BYTES ((size_t)512 << 20) /* along cp: pieces would wait for all of the rank before */
#define LOGITS_APART_BYTES ((size_t)256 << 20)        /* where their gradients are apart */

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static uint16_t *back_bf16(struct ash_acts_layout *l, size_t count)
{
    return (void *)ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, ash_div_up(count, 2));
}

/* Gradients of q, k, v and attention's output, of this rank's rows; or, where ranks of cp share memory, of all. */
static void lay_attn_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_acts *acts = l->acts;
    struct ash_scratch *s = &acts->scratch;
    enum ash_space space = l->axes->cp.same_node ? ASH_SPACE_CP : ASH_SPACE_PRIVATE;
    size_t rows = l->axes->cp.same_node ? l->batch_rows : l->rows;

    if (acts->is_bf16)
        s->dattn_out_bf16 = back_bf16(l, rows * c->heads * acts->v_dim);
    else
        s->dattn.out = ash_acts_layout_back_floats(l, space, rows * c->heads * acts->v_dim);
    s->dattn.q = ash_acts_layout_back_floats(l, space, rows * acts->q_stride);
    if (c->attn == ASH_ATTN_GROUPED) {
        s->dattn.k = ash_acts_layout_columns(s->dattn.q, c->heads * c->head_dim);
        s->dattn.v = ash_acts_layout_columns(s->dattn.k, c->kv_heads * c->head_dim);
    } else {
        s->dattn.k = ash_acts_layout_back_floats(l, space, rows * acts->k_stride);
        s->dattn.v = ash_acts_layout_back_floats(l, space, rows * acts->v_stride);
    }
    if (l->axes->cp.same_node) {
        s->dattn_all = s->dattn;
    } else if (l->axes->cp.size > 1) {
        size_t kv_heads = ash_split_heads_cp(l->model, l->axes, l->axes->cp.rank).count;

        s->dattn_all.q =
            ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->batch_rows * ash_acts_layout_qkv_width(l, kv_heads));
        s->dattn_all.out = ash_acts_layout_back_floats(
            l, ASH_SPACE_PRIVATE, l->batch_rows * kv_heads * (c->heads / c->kv_heads) * acts->v_dim);
    }
}

/* Of what the projections to q, k and v make on the way. */
static void lay_qkv_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    bool is_shared = l->axes->shared_grads;

    if (l->acts->is_bf16 && c->attn == ASH_ATTN_GROUPED && !c->form.qk_norm)
        s->dqkv_bf16 = back_bf16(l, l->rows * l->acts->q_stride);
    if (c->form.qk_norm)
        s->dqk_raw = s->dqk_raw_all =
            ash_acts_layout_back_floats(l, is_shared ? ASH_SPACE_CP : ASH_SPACE_PRIVATE,
                                        (is_shared ? l->batch_rows : l->rows) * (c->heads + c->kv_heads) * c->head_dim);
    if (c->attn != ASH_ATTN_LATENT) return;
    s->dq_low = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->rows * c->q_rank);
    s->dq_low_norm = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->own * c->q_rank);
    s->dkv_low = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->rows * (c->kv_rank + c->rope_dim));
    s->dkv_low_norm = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->own * c->kv_rank);
    s->dkey = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->own * c->rope_dim);
    s->dkv_up = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->rows * c->heads * (c->nope_dim + c->v_dim));
}

/* Of blocks' outputs, where they are not the stream's, and of a feed-forward beside attention. */
static void lay_join_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_form *form = &l->model->config.form;
    const char *const *names = l->model->config.family->names;
    struct ash_scratch *s = &l->acts->scratch;
    size_t hidden = l->model->config.hidden;

    bool has_scale = form->residual_scale != 0;

    for (size_t i = 0; i < ASH_BLOCKS; i++)
        has_scale = has_scale || form->block_scale[i] != 0;
    if (form->parallel || form->mixes_both)
        s->dparallel = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * hidden);
    if (names[ASH_ROLE_POST1] == NULL && !has_scale) return;
    if (l->axes->tp.same_node)
        s->djoin_all = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows * hidden);
    else
        s->djoin = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * hidden);
}

/* Of the stream, and of a norm over it. */
static void lay_stream_gradients(struct ash_acts_layout *l)
{
    struct ash_scratch *s = &l->acts->scratch;
    size_t hidden = l->model->config.hidden;

    for (size_t i = 0; l->axes->shared_grads && i < ASH_DX_BUFFERS; i++)
        s->dx_buffers[i] = ash_acts_layout_keep_floats(l, ASH_SPACE_NODE, l->batch_rows * hidden);
    if (l->axes->tp.same_node) {
        if (!l->axes->shared_grads) s->dx_all = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows * hidden);
        s->dnorm_all = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows * hidden);
    } else {
        if (!l->axes->shared_grads) s->dx = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * hidden);
        s->dnorm = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * hidden);
    }
    lay_join_gradients(l);
    if (l->acts->is_bf16)
        s->dx_bf16 = ash_acts_layout_keep_bytes(l, ASH_SPACE_PRIVATE, l->own * hidden * sizeof(*s->dx_bf16));
}

static void lay_ffn_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    size_t wide = ash_max(c->ffn, c->expert.shared_ffn);
    enum ash_space space = l->axes->shared_grads ? ASH_SPACE_CP : ASH_SPACE_PRIVATE;
    size_t rows = l->axes->shared_grads ? l->batch_rows : l->rows;

    s->dffn.up = ash_acts_layout_back_floats(l, space, rows * (ash_mlp_is_gated(c->form.mlp) ? 2 : 1) * wide);
    if (ash_mlp_is_gated(c->form.mlp)) s->dffn.gate = s->dffn.up;
    s->dffn.hidden = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->rows * wide);
}

static void lay_moe_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;
    size_t pairs = l->rows * c->expert.choices;

    if (c->expert.experts == 0) return;
    if (l->axes->ep.size == 1) {
        s->dexpert.stride = ash_acts_expert_stride(c);
        s->dexpert.gate = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, pairs * s->dexpert.stride);
        if (s->dexpert.stride == c->expert.ffn)
            s->dexpert.up = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, pairs * c->expert.ffn);
        else
            s->dexpert.up = ash_acts_layout_columns(s->dexpert.gate, c->form.expert.alternates ? 1 : c->expert.ffn);
        s->dexpert.hidden = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, pairs * c->expert.ffn);
    }
    s->dpair = ash_acts_layout_back_floats(
        l, ash_split_shares_pairs(l->model, l->axes) ? ASH_SPACE_TP : ASH_SPACE_PRIVATE, pairs * c->hidden);
    if (!c->expert.scales_input) s->pair_weight = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, pairs);
    s->dweight = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, pairs);
    s->dlogits = ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, l->rows * c->expert.experts);
}

void ash_acts_layout_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;

    lay_stream_gradients(l);
    if (c->state.heads > 0) ash_acts_layout_state_gradients(l);
    if (ash_config_count_attending(c, c->layers) > 0) {
        lay_attn_gradients(l);
        lay_qkv_gradients(l);
    }
    if (!ash_config_has_ffn(c)) return;
    ash_acts_layout_gate_gradients(l);
    lay_ffn_gradients(l);
    lay_moe_gradients(l);
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* Gradients of logits have a factor for each row apart, where ops do that: whole rows of a bf16 model. */
static void lay_factors(struct ash_acts_layout *l)
{
    struct ash_scratch *s = &l->acts->scratch;
    size_t hidden = l->model->config.hidden, rows = l->acts->head_rows;

    if (!l->opts->backward || !l->opts->bf16_acts || !l->model->round_bf16 || l->axes->tp.size > 1 ||
        l->model->config.labels > 0)
        return;
    s->factors = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows);
    if (l->acts->is_bf16)
        s->scaled_bf16 = ash_acts_layout_keep_bytes(l, ASH_SPACE_PRIVATE, rows * hidden * sizeof(*s->scaled_bf16));
    else if (l->axes->shared_grads && l->rows <= rows)
        s->scaled_all = ash_acts_layout_keep_floats(l, ASH_SPACE_CP, l->batch_rows * hidden);
    else
        s->scaled = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, rows * hidden);
}

/* Are gradients of logits apart? */
static bool is_apart(const struct ash_acts_layout *l)
{
    return l->acts->is_bf16 && l->model->config.labels == 0;
}

static void lay_dlogits(struct ash_acts_layout *l)
{
    struct ash_scratch *s = &l->acts->scratch;

    if (!is_apart(l)) return;
    s->dlogits_stride = ash_round_up(l->model->vocab.count, ASH_LOSS_GRAD_ALIGN);
    s->dlogits_bf16 =
        ash_acts_layout_shared_bytes(l, ASH_SPACE_PRIVATE, l->acts->head_rows * s->dlogits_stride * sizeof(uint16_t));
}

/* The final norm, and logits: where all of a rank's are there at once, the others can see them. */
void ash_acts_layout_head(struct ash_acts_layout *l)
{
    struct ash_acts *acts = l->acts;
    struct ash_norm_acts *norm = &acts->final_norm;
    size_t hidden = l->model->config.hidden;
    size_t vocab = l->axes->outs.size > 1 ? l->model->whole.vocab : l->model->vocab.count;

    if (l->axes->shared_grads && l->rows <= acts->head_rows)
        acts->scratch.logits_all = ash_acts_layout_keep_floats(l, ASH_SPACE_CP, l->batch_rows * vocab);
    else
        acts->scratch.logits =
            ash_acts_layout_shared_bytes(l, ASH_SPACE_PRIVATE, acts->logit_rows * vocab * sizeof(float));
    lay_dlogits(l);
    if (l->model->config.form.logit_cap != 0 && l->opts->backward)
        acts->scratch.capped = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, acts->logit_rows * vocab);
    lay_factors(l);
    if (l->axes->shared_grads)
        norm->out_all = ash_acts_layout_keep_floats(l, ASH_SPACE_NODE, l->batch_rows * hidden);
    else if (l->axes->tp.same_node)
        norm->out_all = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows * hidden);
    else
        norm->out = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * hidden);
    norm->rstd = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own);
    norm->mean = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own);
    ash_acts_layout_reset(l);
}

/* The largest batch in pieces of equal size, rounded up to a multiple of HEAD_ROWS_MIN. */
static size_t head_rows(const struct ash_acts_layout *l)
{
    size_t bytes = !l->opts->backward     ? HEAD_LOGITS_BYTES
                   : l->axes->cp.size > 1 ? HEAD_LOGITS_ORDERED_BYTES
                                          : HEAD_LOGITS_BACKWARD_BYTES;
    size_t vocab = ash_div_up(l->model->whole.vocab, l->axes->tp.size); /* the same on all ranks */
    size_t most = ash_max(bytes / (vocab * sizeof(float)), HEAD_ROWS_MIN);

    if (l->opts->head_rows != 0) return ash_round_up(l->opts->head_rows, ASH_K_GROUP);
    return ash_round_up(ash_div_up(l->rows, ash_div_up(l->rows, most)), HEAD_ROWS_MIN);
}

static size_t logit_rows(const struct ash_acts_layout *l)
{
    size_t most = ash_max(LOGITS_APART_BYTES / (l->model->whole.vocab * sizeof(float)), HEAD_ROWS_MIN);

    if (!is_apart(l)) return l->acts->head_rows;
    if (l->opts->logit_rows != 0) most = l->opts->logit_rows;
    return ash_min(l->acts->head_rows, ash_round_up(most, ASH_K_GROUP));
}

void ash_acts_layout_count_head_rows(struct ash_acts_layout *l)
{
    l->acts->head_rows = head_rows(l);
    l->acts->logit_rows = logit_rows(l);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* What ranks of tp pass to each other in reductions. */
static void lay_reductions(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    const size_t cols[] = {c->hidden, c->q_rank, c->kv_rank, c->rope_dim, ASH_LANES}; /* of sums over the ranks */
    size_t tile = 0, posted_bytes = l->axes->tp.size * ASH_PROJECT_OUTS_MAX * sizeof(*l->acts->posted[0]);

    for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++)
        if (cols[i] > 0) tile = ash_max(tile, ash_reduce_tile_floats(l->own, cols[i]));
    for (size_t i = 0; c->lora != NULL && i < c->lora->count; i++)
        if (c->lora->modules[i].rank > 0)
            tile = ash_max(tile, ash_reduce_tile_floats(l->own, c->lora->modules[i].rank));
    if (!l->axes->tp.same_node) {
        l->acts->scratch.tile = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, tile);
        return;
    }
    for (size_t i = 0; i < 2; i++)
        l->acts->posted[i] = ash_acts_layout_keep_bytes(l, ASH_SPACE_TP, posted_bytes);
    l->acts->shared_losses = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows);
    l->acts->shared_entropies = ash_acts_layout_keep_floats(l, ASH_SPACE_TP, l->rows);
}

/* What else they exchange: rows of the stream, parts of losses, looked-up rows, heads. */
void ash_acts_layout_exchanges(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config, *whole = &l->model->whole;
    struct ash_scratch *s = &l->acts->scratch;
    struct ash_batch_block *block = &l->acts->block;
    size_t all_heads = (whole->heads + whole->kv_heads) * c->head_dim;

    lay_reductions(l);
    s->x_gathered = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * c->hidden);
    if (l->opts->backward && !l->axes->tp.same_node)
        s->dy_gathered = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * c->hidden);
    s->top = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * 2);
    s->lanes = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * ASH_LANES);
    s->moments = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * ASH_LANES);
    block->held_ids = ash_acts_layout_keep_ints(l, l->rows);
    block->held_rows = ash_acts_layout_keep_ints(l, l->rows);
    block->own_index = ash_acts_layout_keep_ints(l, l->own);
    if (!l->opts->backward || !c->form.qk_norm) return;
    s->qk.send =
        ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->rows * 2 * (c->heads + c->kv_heads) * c->head_dim);
    s->qk.recv = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * 2 * all_heads);
    s->qk.raw = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * all_heads);
    s->qk.grad = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * all_heads);
    s->qk.rstd = ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, l->own * whole->heads);
}
