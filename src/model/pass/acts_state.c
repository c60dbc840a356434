/* acts_state: places of recurrent states, and of the gates of families that have them. */
#include "base/math.h"
#include "compute/ops_state.h"
#include "model/pass/acts_layout.h"
#include "model/state_widths.h"

/* Rows that live until the backward pass, unless the layer is recomputed. */
static float *kept(struct ash_acts_layout *l, size_t count)
{
    return ash_acts_keeps(l->opts, ASH_KEEP_COSTLY)
               ? ash_acts_layout_keep_floats(l, ASH_SPACE_PRIVATE, count)
               : ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE, count * sizeof(float));
}

static float *back(struct ash_acts_layout *l, size_t count)
{
    return ash_acts_layout_back_floats(l, ASH_SPACE_PRIVATE, count);
}

void ash_acts_layout_state(struct ash_acts_layout *l, struct ash_state_acts *state)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_state_widths widths = ash_state_widths_of(c);
    size_t inner = l->rows * widths.inner, each = c->state.heads * c->state.head_dim * c->state.size;

    state->all = kept(l, l->rows * widths.all);
    state->xbc = kept(l, l->rows * widths.channels);
    state->gate = kept(l, inner);
    state->y = kept(l, inner);
    state->gated = kept(l, inner);
    state->normed = kept(l, inner);
    state->rstd = kept(l, l->rows * ash_max(c->state.norm_groups, 1));
    if (c->state.is_delta)
        state->product = ash_acts_layout_reuse_bytes(l, ASH_SPACE_PRIVATE,
                                                     l->rows * (widths.inner + widths.channels) * sizeof(float));
    if (l->opts->backward) state->kept = kept(l, ash_div_up(l->rows, ASH_STATE_ROWS) * each);
}

void ash_acts_layout_state_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_state_acts *d = &l->acts->scratch.dstate;
    struct ash_state_widths widths = ash_state_widths_of(c);

    d->all = back(l, l->rows * widths.all);
    d->xbc = back(l, l->rows * widths.channels);
    d->gate = back(l, l->rows * widths.inner);
    d->y = back(l, l->rows * widths.inner);
    d->normed = back(l, l->rows * widths.inner);
    d->rstd = back(l, l->rows * 2 * c->state.heads);
    d->kept = back(l, l->rows * 2 * c->state.heads * c->state.size);
    if (c->state.is_delta) d->product = back(l, l->rows * (widths.inner + widths.channels));
}

void ash_acts_layout_out_gate(struct ash_acts_layout *l, struct ash_attn_acts *attn)
{
    const struct ash_model_config *c = &l->model->config;

    if (!c->form.out_gate) return;
    attn->q_gate = kept(l, l->rows * 2 * c->heads * c->head_dim);
    attn->gated = kept(l, l->rows * c->heads * c->head_dim);
}

void ash_acts_layout_shared_gate(struct ash_acts_layout *l, struct ash_moe_acts *moe)
{
    const struct ash_model_config *c = &l->model->config;

    if (c->family->names[ASH_ROLE_SHARED_SCALE] == NULL) return;
    moe->shared_gate = kept(l, l->rows);
    moe->shared_y = kept(l, l->rows * c->hidden);
}

void ash_acts_layout_gate_gradients(struct ash_acts_layout *l)
{
    const struct ash_model_config *c = &l->model->config;
    struct ash_scratch *s = &l->acts->scratch;

    if (c->form.out_gate) s->dq_gate = back(l, l->rows * 2 * c->heads * c->head_dim);
    if (c->family->names[ASH_ROLE_SHARED_SCALE] == NULL) return;
    s->dshared = back(l, l->rows * c->hidden);
    s->dshared_gate = back(l, l->rows);
}
