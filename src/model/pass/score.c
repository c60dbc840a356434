/* score: what a classifier with one label makes of one token's state, or of their mean. Sums are in float32, in the
 * order of the columns, whatever computes the layers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "compute/gelu.h"
#include "compute/mathf.h"
#include "model/load.h"
#include "model/pass/pass_priv.h"

/* Element i of a parameter as a float. */
static float read_value(const struct ash_param *param, size_t i)
{
    const uint16_t *half = param->data;

    if (param->dtype == ASH_F32) return ((const float *)param->data)[i];
    return param->dtype == ASH_BF16 ? ash_bf16_to_f32(half[i]) : ash_f16_to_f32(half[i]);
}

/* y [rows] = W x + b; bias ASH_NO_PARAM: without. */
static void multiply(const struct ash_model *model, int32_t weight, int32_t bias, const float *x, float *y)
{
    const struct ash_param *matrix = &model->params[weight];

    ash_load_wait_rows(model->load, weight);
    if (bias != ASH_NO_PARAM) ash_load_wait_rows(model->load, bias);
    for (size_t r = 0; r < matrix->dims[0]; r++) {
        float sum = 0.0f;

        for (size_t i = 0; i < matrix->dims[1]; i++)
            sum = fmaf(x[i], read_value(matrix, r * matrix->dims[1] + i), sum);
        y[r] = bias != ASH_NO_PARAM ? sum + read_value(&model->params[bias], r) : sum;
    }
}

/* The activation between both layers: tanh, or where a norm follows gelu. */
static void activate(const struct ash_model *model, float *x)
{
    const struct ash_model_config *c = &model->config;
    int32_t norm = model->top.param[ASH_ROLE_POOL_NORM];
    double sum = 0, squares = 0;

    if (norm == ASH_NO_PARAM) {
        for (size_t i = 0; i < c->hidden; i++)
            x[i] = ash_tanhf(x[i]);
        return;
    }
    ash_load_wait_rows(model->load, norm);
    for (size_t i = 0; i < c->hidden; i++) {
        x[i] = 0.5f * x[i] * (1.0f + ash_erff(x[i] * ASH_GELU_SQRT_HALF));
        sum += (double)x[i];
    }
    for (size_t i = 0; i < c->hidden; i++) {
        double d = (double)x[i] - sum / (double)c->hidden;
        squares += d * d;
    }
    for (size_t i = 0; i < c->hidden; i++)
        x[i] = (float)(((double)x[i] - sum / (double)c->hidden) / sqrt(squares / (double)c->hidden + c->norm_eps)) *
               read_value(&model->params[norm], i);
}

int ash_pass_score(const struct ash_pass *pass, float *state, struct ash_err *err)
{
    const struct ash_model *model = pass->model;
    const int32_t *param = model->top.param;
    float *pooled;

    ash_assert(model->config.labels == 1 && param[ASH_ROLE_HEAD] != ASH_NO_PARAM);
    if (!pass->exec->memory->host_visible)
        return ash_err_set(err, -ENOTSUP, "scores are computed on the CPU: --backend cpu");
    pooled = malloc(model->config.hidden * sizeof(*pooled));
    if (pooled == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a score");
    memcpy(pooled, state, model->config.hidden * sizeof(*pooled));
    if (param[ASH_ROLE_POOL] != ASH_NO_PARAM) {
        multiply(model, param[ASH_ROLE_POOL], param[ASH_ROLE_POOL_BIAS], state, pooled);
        activate(model, pooled);
    }
    multiply(model, param[ASH_ROLE_HEAD], param[ASH_ROLE_HEAD_BIAS], pooled, state);
    free(pooled);
    return 0;
}
