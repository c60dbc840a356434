/* The names of a model's parameters, as their files have them. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "model/model_priv.h"

/* Is the tensor the base model's? Heads are not, nor what is before them, but for bert's pooler. */
static bool has_prefix(enum ash_role role, const char *name)
{
    if (role == ASH_ROLE_HEAD || role == ASH_ROLE_HEAD_BIAS) return false;
    return role < ASH_ROLE_POOL || role > ASH_ROLE_POOL_NORM || strncmp(name, "pooler.", 7) == 0;
}

void ash_param_format_name(const struct ash_family *family, enum ash_role role, int layer, size_t expert, char *buf,
                           size_t buf_bytes)
{
    const char *name = family->names[role], *base = has_prefix(role, name) ? family->base_prefix : "";
    char local[64];

    ash_assert(family->names[role] != NULL);
    if (role < ASH_ROLE_EXPERT_GATE)
        snprintf(local, sizeof(local), "%s", name);
    else if (strstr(name, "%zu") == NULL)
        snprintf(local, sizeof(local), "%s[%zu]", name, expert);
    else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(local, sizeof(local), name, expert);
#pragma GCC diagnostic pop
    }
    if (layer < 0)
        snprintf(buf, buf_bytes, "%s%s", base, local);
    else if (family->form.one_layer)
        snprintf(buf, buf_bytes, "%s%s%s", base, family->layer_prefix, local);
    else
        snprintf(buf, buf_bytes, "%s%s%d.%s", base, family->layer_prefix, layer, local);
}

void ash_param_name_shared_norm(struct ash_model *model)
{
    const struct ash_family *family = model->config.family;
    struct ash_param *norm = &model->params[model->top.param[ASH_ROLE_FINAL_NORM]];

    ash_assert(model->config.fuses_states && model->config.layers == 1);
    snprintf(norm->name, sizeof(norm->name), "%s%s%u.shared_head.norm.weight", family->base_prefix,
             family->layer_prefix, model->layer_ids[0]);
}
