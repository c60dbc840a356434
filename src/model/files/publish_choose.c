/* Which weights of a model are written as codes, and which of them go together. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/files/publish_priv.h"
#include "model/model_priv.h"

#define ROWS_OF_WORD 8 /* of AWQ */

static bool is_router(const struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];

    return param->layer >= 0 && model->layers[param->layer].param[ASH_ROLE_ROUTER] == (int32_t)index;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);

    return length >= end && strcmp(name + length - end, suffix) == 0;
}

bool ash_publish_is_linear(const struct ash_model *model, size_t index)
{
    const struct ash_param *param = &model->params[index];

    return param->is_matrix && param->dim_count == 2 && param->parts == 0 && ends_with(param->name, ".weight") &&
           model->top.param[ASH_ROLE_EMBED] != (int32_t)index;
}

bool ash_publish_has_stacked(const struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i].is_matrix && model->params[i].parts > 0) return true;
    return false;
}

bool ash_publish_is_quantised(const struct ash_model *model, const struct ash_encoding *encoding, size_t index)
{
    const struct ash_param *param = &model->params[index];

    if (ash_publish_has_stacked(model)) return param->is_matrix && param->parts > 0;
    return ash_publish_is_linear(model, index) && param->layer >= 0 && !is_router(model, index) &&
           (encoding->block == 0 || param->dims[1] % encoding->block == 0) &&
           (!encoding->has_zeros || param->dims[0] % ROWS_OF_WORD == 0);
}

int ash_publish_check(const struct ash_model *model, const struct ash_encoding *encoding, struct ash_err *err)
{
    const char *type = model->config.family->type;

    if (model->gguf != NULL)
        return ash_err_set(err, -ENOTSUP, "a model from a GGUF file cannot be written as a folder");
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        bool is_stacked = param->is_matrix && param->parts > 0;

        if (is_stacked && (strcmp(type, "gpt_oss") != 0 || encoding != &ash_encoding_mxfp4))
            return ash_err_set(err, -ENOTSUP,
                               "the experts of %s share a tensor, which cannot be written as %s (gpt_oss as mxfp4 can)",
                               type, encoding->name);
        if (is_stacked && param->dims[0] % encoding->block != 0)
            return ash_err_set(err, -ENOTSUP, "'%s' has %zu inputs, which are no blocks of %zu", param->name,
                               param->dims[0], encoding->block);
        if (!is_stacked && param->is_matrix && param->is_transposed)
            return ash_err_set(err, -ENOTSUP, "%s stores its layers transposed, which %s cannot say", type,
                               encoding->name);
    }
    return 0;
}

/* The kind of layer whose products others compute as one, and the length of the name before it; 0: none. */
static size_t fused_stem(const char *name, int *kind_out)
{
    static const struct {
        const char *suffix;
        int kind;
    } fused[] = {{"q_proj.weight", 1},  {"k_proj.weight", 1}, {"v_proj.weight", 1}, {"gate_proj.weight", 2},
                 {"up_proj.weight", 2}, {"w1.weight", 2},     {"w3.weight", 2}};

    for (size_t i = 0; i < ASH_COUNT(fused); i++) {
        if (!ends_with(name, fused[i].suffix)) continue;
        *kind_out = fused[i].kind;
        return strlen(name) - strlen(fused[i].suffix);
    }
    return 0;
}

bool ash_publish_are_fused(const char *a, const char *b)
{
    int kind_a = 0, kind_b = 0;
    size_t stem_a = fused_stem(a, &kind_a), stem_b = fused_stem(b, &kind_b);

    return stem_a > 0 && stem_a == stem_b && kind_a == kind_b && strncmp(a, b, stem_a) == 0;
}
