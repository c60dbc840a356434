/* pass_check: what a pass over a model needs of the backend and of the mesh. */
#include <errno.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/backends/state_ops.h"
#include "model/pass/pass_priv.h"

/* What ranks of cp and of ep do not know. */
static bool takes_neither(const struct ash_model_config *config)
{
    const char *const *names = config->family->names;

    return names[ASH_ROLE_SINKS] != NULL || names[ASH_ROLE_EXPERT_GATE_UP] != NULL || config->state.heads > 0;
}

/* An encoder is computed forward, by one rank. */
static int check_encoder(const struct ash_model *model, const struct ash_pass_opts *opts, struct ash_err *err)
{
    const char *type = model->config.family->type;

    if (opts->backward)
        return ash_err_set(err, -ENOTSUP, "%s models are encoders, which are not trained: serve them", type);
    if (model->slice.tp_size * ash_max(opts->cp.size, 1) > 1)
        return ash_err_set(err, -ENOTSUP, "%s models are encoders, which one rank computes: choose no tp and no cp",
                           type);
    return 0;
}

int ash_pass_check_axes(const struct ash_model *model, const struct ash_pass_opts *opts, struct ash_err *err)
{
    const struct ash_slice *slice = &model->slice;

    if (model->config.form.both_ways) return check_encoder(model, opts, err);
    if (slice->gathers && slice->tp_size > 1) {
        ash_assert(opts->outs.size == slice->tp_size && opts->outs.rank == slice->tp_rank && !opts->backward);
        return 0;
    }
    if (ash_max(opts->tp.size, 1) != slice->tp_size || opts->tp.rank != slice->tp_rank)
        return ash_err_set(err, -EINVAL,
                           "the model's slice is that of rank %zu of mesh.tp=%zu, but the pass is rank %zu of %zu",
                           slice->tp_rank, slice->tp_size, opts->tp.rank, opts->tp.size);
    if (opts->shared_grads && opts->cp.size > 1 && !ash_model_form_is_plain(&model->config))
        return ash_err_set(err, -ENOTSUP, "mesh.cp=%zu on one node does not train %s models: choose mesh.cp=1",
                           opts->cp.size, model->config.family->type);
    if (opts->cp.size * ash_max(opts->ep.size, 1) > 1 && takes_neither(&model->config))
        return ash_err_set(err, -ENOTSUP,
                           "mesh.cp=%zu mesh.ep=%zu: %s models take neither: choose mesh.fsdp or mesh.pp",
                           opts->cp.size, opts->ep.size, model->config.family->type);
    if (opts->cp.size <= model->config.kv_heads) return 0;
    return ash_err_set(err, -EINVAL, "mesh.cp=%zu wants more parts than there are key-value heads (%zu%s)",
                       opts->cp.size, model->config.kv_heads, model->slice.tp_size > 1 ? " on a rank of mesh.tp" : "");
}

/* Part of a form that a table without family ops lacks. */
static const char *family_part(const struct ash_model *model)
{
    const struct ash_model_form *form = &model->config.form;

    if (model->config.family->names[ASH_ROLE_SINKS] != NULL) return "sinks of attention";
    if (form->logit_cap != 0) return "caps of logits";
    return form->mlp > ASH_MLP_GELU_ERF ? "gates but silu" : NULL;
}

/* Part of a form that attention by tensor cores lacks, whose tables take bf16. */
static const char *attention_part(const struct ash_model *model)
{
    const struct ash_model_form *form = &model->config.form;

    if (form->chunked) return "chunks of attention";
    if (form->both_ways) return "attention both ways";
    return model->config.expert.tolerance > 0 ? "sparsemixer" : NULL;
}

int ash_pass_check_logits(const struct ash_model *model, struct ash_err *err)
{
    if (!model->config.form.both_ways) return 0;
    return ash_err_set(err, -ENOTSUP, "%s models are encoders: they give embeddings and scores, and write no text",
                       model->config.family->type);
}

int ash_pass_check_ops(const struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    const char *lacks = exec->ops->takes_bf16 ? attention_part(model) : NULL;

    if (lacks == NULL && model->config.state.heads > 0 && ash_state_ops_of(exec) == NULL) lacks = "recurrent states";
    if (lacks == NULL && exec->ops->family == NULL) lacks = family_part(model);
    if (lacks == NULL) return 0;
    return ash_err_set(err, -ENOTSUP, "'%s' cannot compute %s models: it has no %s; --backend cpu has", exec->ops->name,
                       model->config.family->type, lacks);
}
