/* acts: the rows of a batch that are this rank's, in what lies among the rows of others. */
#include "model/pass/acts.h"

#include "base/assert.h"
#include "model/pass/split.h"

/* Norms, and the gradients of the stream and of a norm. skip: floats before this rank's rows of the stream. */
static void bind_stream(struct ash_acts *acts, const struct ash_model *model, const struct ash_axes *axes,
                        size_t first_row, size_t own_first)
{
    size_t hidden = model->config.hidden, in_group = own_first * hidden;
    size_t skip = axes->shared_grads ? in_group + first_row * hidden : in_group;
    struct ash_scratch *s = &acts->scratch;

    for (size_t i = 0; i < model->config.layers; i++) {
        struct ash_layer_acts *layer = &acts->layers[i];

        layer->attn.norm.out = layer->attn.norm.out_all + skip;
        layer->ffn_norm.out = layer->ffn_norm.out_all + skip;
    }
    if (acts->final_norm.out_all != NULL) acts->final_norm.out = acts->final_norm.out_all + skip;
    s->dx_buffer = 0;
    if (s->dx_buffers[0] != NULL) s->dx = s->dx_buffers[0] + skip;
    if (s->dx_all != NULL) s->dx = s->dx_all + skip;
    if (s->dnorm_all != NULL) s->dnorm = s->dnorm_all + in_group;
}

static struct ash_attn_rows rows_from(const struct ash_acts *acts, const struct ash_attn_rows *all, size_t first_row,
                                      size_t out_width)
{
    return (struct ash_attn_rows){.q = all->q + first_row * acts->q_stride,
                                  .k = all->k + first_row * acts->k_stride,
                                  .v = all->v + first_row * acts->v_stride,
                                  .out = all->out + first_row * out_width};
}

static void bind_attn(struct ash_acts *acts, const struct ash_model *model, size_t first_row)
{
    const struct ash_model_config *c = &model->config;
    struct ash_scratch *s = &acts->scratch;
    size_t out_width = c->heads * acts->v_dim;

    for (size_t i = 0; i < c->layers; i++)
        acts->layers[i].attn.rows = rows_from(acts, &acts->layers[i].attn.all, first_row, out_width);
    if (s->dattn_all.q != NULL) s->dattn = rows_from(acts, &s->dattn_all, first_row, out_width);
}

/* What ranks of cp that share gradients read of each other besides the stream and attention. */
static void bind_grad_rows(struct ash_acts *acts, const struct ash_model *model, size_t first_row)
{
    const struct ash_model_config *c = &model->config;
    struct ash_scratch *s = &acts->scratch;

    if (s->dqk_raw_all != NULL) s->dqk_raw = s->dqk_raw_all + first_row * (c->heads + c->kv_heads) * c->head_dim;
    if (s->logits_all != NULL) s->logits = s->logits_all + first_row * model->vocab.count;
    for (size_t i = 0; i < c->layers; i++) {
        struct ash_ffn_acts *ffn = &acts->layers[i].ffn, *shared = &acts->layers[i].moe.shared;

        if (ffn->hidden_all != NULL) ffn->hidden = ffn->hidden_all + first_row * c->ffn;
        if (shared->hidden_all != NULL) shared->hidden = shared->hidden_all + first_row * c->expert.shared_ffn;
    }
}

void ash_acts_bind(struct ash_acts *acts, const struct ash_model *model, const struct ash_axes *axes, size_t first_row,
                   size_t own_first)
{
    if (axes->tp.same_node || axes->shared_grads) bind_stream(acts, model, axes, first_row, own_first);
    if (axes->cp.same_node) bind_attn(acts, model, first_row);
    if (axes->shared_grads) bind_grad_rows(acts, model, first_row);
}

struct ash_ffn_acts ash_acts_dffn(const struct ash_acts *acts, const struct ash_axes *axes, size_t first_row,
                                  size_t width)
{
    struct ash_ffn_acts d = acts->scratch.dffn;
    size_t skip = axes->shared_grads ? first_row * width : 0;

    ash_assert(d.up != NULL && d.hidden != NULL);
    if (d.gate != NULL) d.gate += skip;
    d.up += skip;
    return d;
}
