/* create: a model whose weights are new. The base of adapters, which are all that is new then, comes from its files. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/assert.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/workers.h"
#include "model/files/lora_files_priv.h"
#include "model/files/open.h"

static bool role_is_residual_output(const struct ash_model *model, int32_t index)
{
    const struct ash_param *param = &model->params[index];
    const struct ash_layer *layer = param->layer < 0 ? NULL : &model->layers[param->layer];

    ash_assert(index >= 0);
    ash_assert((size_t)index < model->param_count);
    if (layer == NULL) return false;
    if (index == layer->param[ASH_ROLE_OUT] || index == layer->param[ASH_ROLE_STATE_OUT] ||
        index == layer->param[ASH_ROLE_DOWN])
        return true;
    if (index == layer->param[ASH_ROLE_SHARED_DOWN]) return true;
    int32_t first = layer->param[ASH_ROLE_EXPERT_DOWN];
    return first != ASH_NO_PARAM && index >= first && (index - first) % layer->expert_params == 0 &&
           (size_t)((index - first) / layer->expert_params) < model->experts.count;
}

#define INIT_VALUES_MIN 4096 /* that are worth waking a thread for */
#define INIT_VALUES_AT_ONCE 256

/* Values of a matrix that are drawn, each from its place in the whole one. */
struct init_piece {
    float *values;
    uint64_t seed, stream, first;
    double std;
};

static void draw_values(void *ctx, size_t begin, size_t end, int worker)
{
    const struct init_piece *piece = ctx;
    double normals[INIT_VALUES_AT_ONCE];

    (void)worker;
    for (size_t count; begin < end; begin += count) {
        count = ash_min(end - begin, INIT_VALUES_AT_ONCE);
        ash_rng_normals(piece->seed, piece->stream, piece->first + begin, normals, count);
        for (size_t i = 0; i < count; i++)
            piece->values[begin + i] = (float)(piece->std * normals[i]);
    }
}

/* What recurrent states start with: decays 1, 2, ..., steps between 0.001 and 0.1, taps of a small sum. Returns whether
 * the parameter is one of those; index: of the value in the whole one. */
static bool draw_state_value(const struct ash_model *model, int32_t param, uint64_t seed, size_t index, float *value)
{
    int layer = model->params[param].layer;
    const int32_t *role = layer >= 0 ? model->layers[layer].param : NULL;
    double normal;

    if (role == NULL || model->config.state.heads == 0) return false;
    ash_rng_normals(seed, ash_hash_str(model->params[param].name), index, &normal, 1);
    if (param == role[ASH_ROLE_STATE_DECAY])
        *value = (float)log((double)(index + 1));
    else if (param == role[ASH_ROLE_STATE_CONV])
        *value = (float)(normal / sqrt((double)(3 * model->config.state.taps)));
    else if (param == role[ASH_ROLE_STATE_STEP_BIAS])
        *value = (float)log(expm1(0.001 * pow(100, 0.5 + 0.5 * tanh(normal))));
    else
        return false;
    return true;
}

/* Norms start at 1, biases at 0, matrices normal; what feeds the residual stream is scaled down by its depth. */
static void init_param(struct ash_model *model, int32_t index, uint64_t seed, struct ash_workers *workers)
{
    const struct ash_param *param = &model->params[index];
    float *values = (float *)model->values.data + param->offset;
    uint64_t stream = ash_hash_str(param->name);
    double std = model->config.init_std;
    bool is_bias = strstr(param->name, "bias") != NULL;

    ash_assert(index >= 0);
    ash_assert((size_t)index < model->param_count);
    if (role_is_residual_output(model, index)) std /= sqrt(2.0 * (double)model->whole.layers);
    for (size_t p = 0; p < ash_param_piece_count(param); p++) {
        struct ash_piece piece = ash_model_held(model, param, p);
        struct init_piece draws = {values + piece.local, seed, stream, piece.full, std};

        if (param->is_matrix) ash_workers_run(workers, piece.count, INIT_VALUES_MIN, draw_values, &draws);
        for (size_t i = 0; !param->is_matrix && i < piece.count; i++)
            if (!draw_state_value(model, index, seed, piece.full + i, &values[piece.local + i]))
                values[piece.local + i] = is_bias || param->has_one ? 0 : 1;
    }
}

int ash_model_create(const struct ash_model_config *config, uint64_t seed, struct ash_model **model_out,
                     struct ash_err *err)
{
    return ash_model_create_slice(config, NULL, seed, NULL, model_out, err);
}

int ash_model_blank_slice(const struct ash_model_config *config, const struct ash_slice *slice,
                          struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    struct ash_model_config copy = *config;
    int rc;

    json_incref(copy.source); /* on failure the caller still owns config */
    rc = ash_model_alloc(&copy, slice, &model, err);
    if (rc < 0) return rc;
    rc = ash_model_open_values(model, err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    ash_model_bind_owned(model);
    rc = config->lora != NULL ? ash_lora_bind_base(model, err) : 0;
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    json_decref(config->source);
    *model_out = model;
    return 0;
}

int ash_model_create_slice(const struct ash_model_config *config, const struct ash_slice *slice, uint64_t seed,
                           struct ash_workers *workers, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_blank_slice(config, slice, &model, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < model->param_count; i++)
        init_param(model, (int32_t)i, seed, workers);
    ash_model_refresh(model);
    *model_out = model;
    return 0;
}
