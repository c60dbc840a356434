/* acts: the memory of activations, and the rows of a batch that are this rank's in what lies among the rows of
 * others. */
#include "model/pass/acts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/acts_layout.h"

/* ---- size -------------------------------------------------------------------------------------------------------- */

/* Of the memory that ranks share, a rank has its part. */
static size_t rank_bytes(const struct ash_acts_layout *l)
{
    return ash_acts_layout_space_bytes(l, ASH_SPACE_PRIVATE) +
           ash_acts_layout_space_bytes(l, ASH_SPACE_TP) / l->axes->tp.size +
           ash_acts_layout_space_bytes(l, ASH_SPACE_CP) / l->axes->cp.size +
           ash_acts_layout_space_bytes(l, ASH_SPACE_NODE) / l->axes->node.size;
}

int ash_acts_measure(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes,
                     size_t *bytes_out, struct ash_err *err)
{
    struct ash_acts acts = {0};
    struct ash_acts_layout l = ash_acts_layout_init(model, opts, axes, &acts);

    acts.layers = calloc(model->config.layers, sizeof(*acts.layers));
    if (acts.layers == NULL) return ash_err_set(err, -ENOMEM, "out of memory to measure a pass");
    ash_acts_layout_run(&l);
    *bytes_out = rank_bytes(&l);
    free(acts.layers);
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* *bytes becomes the most that any of those who share memory has. */
static int agree_on_most(const struct ash_axis *node, size_t *bytes, struct ash_err *err)
{
    const size_t unit = (size_t)1 << 20; /* floats hold whole numbers up to there */
    size_t lines = *bytes / ASH_ACTS_ALIGN, high = lines / unit, most = 0,
           *counts = calloc(node->size, sizeof(*counts));
    float *halves = calloc(2 * node->size, sizeof(*halves));
    int rc = -ENOMEM;

    if (counts == NULL || halves == NULL) {
        ash_err_set(err, rc, "out of memory for %zu ranks", node->size);
        goto end;
    }
    for (size_t r = 0; r < node->size; r++)
        counts[r] = 2;
    halves[2 * node->rank] = (float)high;
    halves[2 * node->rank + 1] = (float)(lines % unit);
    rc = node->ops->all_gather(node->ctx, halves, counts, err);
    if (rc < 0) goto end;
    for (size_t r = 0; r < node->size; r++)
        most = ash_max(most, (size_t)halves[2 * r] * unit + (size_t)halves[2 * r + 1]);
    *bytes = most * ASH_ACTS_ALIGN;

end:
    free(counts);
    free(halves);
    return rc;
}

/* The memory of the ranks of a node: ASH_SPACE_TP of each tp group, ASH_SPACE_CP of each tp rank, ASH_SPACE_NODE,
 * then ASH_SPACE_PRIVATE of each rank if those of tp see it. base_out[space]: where this rank's begins; NULL
 * if it has none. */
static int open_shared(const struct ash_acts_layout *measured, struct ash_axes *axes, char *base_out[ASH_SPACES],
                       struct ash_err *err)
{
    const struct ash_axis *node = &axes->node;
    size_t own = axes->tp.same_node ? ash_acts_layout_space_bytes(measured, ASH_SPACE_PRIVATE) : 0,
           tp = ash_acts_layout_space_bytes(measured, ASH_SPACE_TP),
           cp = ash_acts_layout_space_bytes(measured, ASH_SPACE_CP),
           all = ash_acts_layout_space_bytes(measured, ASH_SPACE_NODE), groups = node->size / axes->tp.size;
    int rc = agree_on_most(node, &own, err);
    char *memory;

    if (rc < 0) return rc;
    rc = agree_on_most(node, &cp, err);
    if (rc < 0) return rc;
    rc = node->ops->shared_open(node->ctx, (groups * tp + axes->tp.size * cp + all + node->size * own) / sizeof(float),
                                &axes->shared, err);
    if (rc < 0) return rc;
    memory = (char *)axes->shared.data;
    base_out[ASH_SPACE_TP] = memory + node->rank / axes->tp.size * tp;
    base_out[ASH_SPACE_CP] = memory + groups * tp + axes->tp.rank * cp;
    base_out[ASH_SPACE_NODE] = memory + groups * tp + axes->tp.size * cp;
    if (axes->tp.same_node) base_out[ASH_SPACE_PRIVATE] = base_out[ASH_SPACE_NODE] + all + node->rank * own;
    return 0;
}

static int open_memory(const struct ash_acts_layout *measured, struct ash_acts *acts, const struct ash_exec *exec,
                       struct ash_axes *axes, char *base_out[ASH_SPACES], struct ash_err *err)
{
    int rc;

    if (!axes->tp.same_node) {
        rc = ash_buffer_init(&acts->memory, exec->memory, ash_acts_layout_space_bytes(measured, ASH_SPACE_PRIVATE),
                             "activations", err);
        if (rc < 0) return rc;
        base_out[ASH_SPACE_PRIVATE] = acts->memory.data;
    }
    if (!axes->tp.same_node && !axes->cp.same_node) return 0;
    return open_shared(measured, axes, base_out, err);
}

int ash_acts_open(struct ash_acts *acts, const struct ash_model *model, const struct ash_exec *exec,
                  const struct ash_pass_opts *opts, struct ash_axes *axes, struct ash_err *err)
{
    struct ash_acts_layout measured = ash_acts_layout_init(model, opts, axes, acts), real = measured;
    char *base[ASH_SPACES] = {NULL};
    int rc;

    *acts = (struct ash_acts){0};
    acts->layers = calloc(model->config.layers, sizeof(*acts->layers));
    if (acts->layers == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a pass over %zu rows", opts->max_rows);
    ash_acts_layout_run(&measured);
    rc = open_memory(&measured, acts, exec, axes, base, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < ASH_SPACES; i++) {
        if (base[i] == NULL) continue;
        real.spaces[i].kept = base[i];
        real.spaces[i].reused = base[i] + measured.spaces[i].kept_bytes;
    }
    ash_acts_layout_run(&real);
    for (size_t i = 0; i < ASH_SPACES; i++)
        ash_assert(ash_acts_layout_space_bytes(&real, i) == ash_acts_layout_space_bytes(&measured, i));
    acts->size_bytes = rank_bytes(&measured);
    return 0;
}

void ash_acts_close(struct ash_acts *acts)
{
    ash_buffer_fini(&acts->memory);
    free(acts->layers);
    memset(acts, 0, sizeof(*acts));
}

/* ---- the rows of a batch ----------------------------------------------------------------------------------------- */

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
    if (s->djoin_all != NULL) s->djoin = s->djoin_all + in_group;
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
    if (s->logits_all != NULL)
        s->logits = s->logits_all + first_row * (model->config.labels > 0 ? model->config.labels : model->vocab.count);
    if (s->scaled_all != NULL) s->scaled = s->scaled_all + first_row * c->hidden;
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
    float *first;

    ash_assert(d.up != NULL && d.hidden != NULL);
    d.stride = d.gate != NULL ? 2 * width : width;
    first = (d.gate != NULL ? d.gate : d.up) + (axes->shared_grads ? first_row * d.stride : 0);
    if (d.gate != NULL) d.gate = first;
    d.up = d.gate != NULL ? first + width : first;
    return d;
}
