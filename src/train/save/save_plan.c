/* save_plan: the headers of a save's files. */
#include "train/save/save_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/lora_folder.h"
#include "model/lora.h"
#include "model/stored.h"
#include "train/save/saver.h"

/* Tensors to lay out, with room for their names. */
struct names {
    struct ash_tensor_spec *specs;
    char (*texts)[sizeof(((struct ash_param *)0)->name) + 2];
    size_t count;
};

static void add_name(struct names *names, const char *prefix, const struct ash_param *param)
{
    struct ash_tensor_spec *spec = &names->specs[names->count];

    snprintf(names->texts[names->count], sizeof(*names->texts), "%s%s", prefix, param->name);
    *spec =
        (struct ash_tensor_spec){.name = names->texts[names->count], .dtype = ASH_F32, .dim_count = param->dim_count};
    for (int d = 0; d < param->dim_count; d++)
        spec->dims[d] = param->full[d];
    names->count++;
}

/* Weights are files of a model: parameters that share a tensor there, which follow each other, share it here. */
static void add_weight(struct ash_save_plan *plan, struct names *names, const struct ash_model *outline, size_t index)
{
    const struct ash_param *param = ash_model_param(outline, index);
    struct ash_stored stored = ash_param_stored(param, param->full);
    struct ash_tensor_spec *spec = &names->specs[names->count];

    plan->firsts[index] = param->part * ash_param_full_count(param);
    if (param->part > 0) {
        ash_assert(names->count > 0);
        plan->weights[index] = names->count - 1;
        return;
    }
    snprintf(names->texts[names->count], sizeof(*names->texts), "%s", stored.name);
    *spec =
        (struct ash_tensor_spec){.name = names->texts[names->count], .dtype = ASH_F32, .dim_count = stored.dim_count};
    memcpy(spec->dims, stored.dims, (size_t)stored.dim_count * sizeof(stored.dims[0]));
    plan->weights[index] = names->count++;
}

static int lay_out(struct ash_save_plan *plan, const struct ash_model *outline, struct names *names,
                   struct ash_err *err)
{
    static const struct ash_metadata metadata[] = {{"format", "pt"}}; /* as transformers expects it */
    size_t params = ash_model_param_count(outline);
    int rc;

    for (size_t i = 0; i < params; i++)
        add_weight(plan, names, outline, i);
    rc = ash_safetensors_layout_init(&plan->layouts[ASH_SAVE_WEIGHTS], names->specs, names->count, metadata, 1, err);
    if (rc < 0) return rc;
    names->count = 0;
    for (size_t i = 0; i < params; i++) {
        plan->moments[i] = names->count;
        if (!ash_model_param(outline, i)->is_trained) continue;
        add_name(names, "m.", ash_model_param(outline, i));
        add_name(names, "v.", ash_model_param(outline, i));
    }
    return ash_safetensors_layout_init(&plan->layouts[ASH_SAVE_MOMENTS], names->specs, names->count, NULL, 0, err);
}

int ash_save_plan_init(struct ash_save_plan *plan, const struct ash_model *outline, struct ash_err *err)
{
    size_t params = ash_model_param_count(outline);
    struct names names = {0};
    int rc;

    *plan = (struct ash_save_plan){0};
    names.specs = calloc(2 * params + 1, sizeof(*names.specs));
    names.texts = calloc(2 * params + 1, sizeof(*names.texts));
    plan->moments = calloc(params + 1, sizeof(*plan->moments));
    plan->weights = calloc(params + 1, sizeof(*plan->weights));
    plan->firsts = calloc(params + 1, sizeof(*plan->firsts));
    if (names.specs == NULL || names.texts == NULL || plan->moments == NULL || plan->weights == NULL ||
        plan->firsts == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for the names of %zu tensors", 2 * params);
    else
        rc = lay_out(plan, outline, &names, err);
    free(names.specs);
    free(names.texts);
    if (rc < 0) {
        ash_save_plan_fini(plan);
        return rc;
    }
    plan->files[ASH_SAVE_WEIGHTS] = (struct ash_piece_file){
        ash_model_get_config(outline)->lora != NULL ? ASH_LORA_WEIGHTS_FILE : ASH_SAVER_WEIGHTS_FILE,
        plan->layouts[ASH_SAVE_WEIGHTS].size_bytes};
    plan->files[ASH_SAVE_MOMENTS] =
        (struct ash_piece_file){ASH_SAVER_MOMENTS_FILE, plan->layouts[ASH_SAVE_MOMENTS].size_bytes};
    return 0;
}

void ash_save_plan_fini(struct ash_save_plan *plan)
{
    for (size_t i = 0; i < ASH_SAVE_FILES; i++)
        ash_safetensors_layout_fini(&plan->layouts[i]);
    free(plan->moments);
    free(plan->weights);
    free(plan->firsts);
    *plan = (struct ash_save_plan){0};
}

size_t ash_save_plan_file(enum ash_holding_kind kind)
{
    return kind == ASH_HOLDING_WEIGHTS ? ASH_SAVE_WEIGHTS : ASH_SAVE_MOMENTS;
}

uint64_t ash_save_plan_offset(const struct ash_save_plan *plan, enum ash_holding_kind kind, size_t tensor,
                              size_t element)
{
    const struct ash_safetensors_layout *layout = &plan->layouts[ash_save_plan_file(kind)];
    size_t place =
        kind == ASH_HOLDING_WEIGHTS ? plan->weights[tensor] : plan->moments[tensor] + (kind == ASH_HOLDING_V);

    ash_assert(kind < ASH_HOLDING_KINDS);
    if (kind == ASH_HOLDING_WEIGHTS) element += plan->firsts[tensor];
    return layout->offsets[place] + element * sizeof(float);
}
