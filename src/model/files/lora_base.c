/* lora_base: the frozen base of adapters, whose matrices may be held quantised. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/math.h"
#include "base/workers.h"
#include "compute/quant.h"
#include "model/files/lora_files_priv.h"
#include "model/files/open_priv.h"
#include "model/files/part.h"
#include "model/files/quantise.h"
#include "model/weight.h"

#define F16_MAX 65504.0f

/* ---- the values -------------------------------------------------------------------------------------------------- */

/* The most parts, at most `parts`, that inputs can be cut into in whole groups. */
static size_t parts_that_would_do(size_t inputs, size_t group, size_t parts)
{
    while (parts > 1 && (inputs % parts != 0 || inputs / parts % group != 0))
        parts--;
    return parts;
}

/* Can a matrix of blocks be cut where this rank's part of its inputs begins and ends? Its rows are whole anyway. */
static int check_cut(const struct ash_model *model, const struct ash_param *param, enum ash_dtype dtype,
                     struct ash_err *err)
{
    size_t group = ash_quant_group(dtype), end;

    for (size_t i = 0; param->cut == 1 && i < param->run_count; i++) {
        end = ash_range_end(param->runs[i]);
        if (param->runs[i].first % group == 0 && (end % group == 0 || end == param->full[1])) continue;
        return ash_err_set(err, -ENOTSUP,
                           "'%s' is quantised in groups of %zu of its %zu inputs, which mesh.tp=%zu would cut: "
                           "mesh.tp=%zu would do, or another model.quant (q8 has groups of %d)",
                           param->name, group, param->full[1], model->slice.tp_size,
                           parts_that_would_do(param->full[1], group, model->slice.tp_size), ASH_QUANT_BLOCK);
    }
    return 0;
}

static int check_part(const struct ash_model *model, const struct ash_param *param, const struct ash_param *source,
                      struct ash_err *err)
{
    const char *dir = model->config.lora->base_dir;

    if (source == NULL || source->count != ash_param_full_count(param))
        return ash_err_set(err, -EINVAL, "%s has no tensor '%s' of %zu elements", dir, param->name,
                           ash_param_full_count(param));
    return ash_dtype_block(source->dtype) > 1 ? check_cut(model, param, source->dtype, err) : 0;
}

static int bind_parts(struct ash_model *model, const struct ash_model *base, struct ash_err *err)
{
    size_t bytes = 0;
    char *at;

    for (size_t i = 0; i < model->base_count; i++) {
        const struct ash_param *param = &model->params[model->param_count + i],
                               *source = ash_model_find(base, param->name);
        int rc = check_part(model, param, source, err);

        if (rc < 0) return rc;
        bytes += ash_part_bytes(param, source->dtype);
    }
    model->base_parts = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && model->base_parts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for a rank's %zu bytes of the adapters' base", bytes);
    at = model->base_parts;
    for (size_t i = 0; i < model->base_count; i++) {
        struct ash_param *param = &model->params[model->param_count + i];
        const struct ash_param *source = ash_model_find(base, param->name);

        ash_part_bind(param, source->data, source->dtype, &at);
    }
    return 0;
}

int ash_lora_bind_base(struct ash_model *model, struct ash_err *err)
{
    const struct ash_lora *lora = model->config.lora;
    int rc;

    if (lora->base != NULL) return 0; /* documents go through the adapters alone: the base is the pass's */
    rc = ash_model_open_base(lora->base_dir, &model->base, err);
    if (rc < 0) return ash_err_prefix(err, rc, "the adapters' base");
    if (!lora->follows_rows && ash_model_rows_permuted(model->base))
        return ash_err_set(err, -ENOTSUP,
                           "%s: this file has the rows of q and k in another order than PEFT's modules: name the "
                           "Hugging Face folder, with model.quant if it shall be small",
                           lora->base_dir);
    rc = bind_parts(model, model->base, err);
    if (rc < 0) return rc;
    rc = lora->quant != ASH_F32 ? ash_lora_quantise_base(model, err) : 0;
    if (rc < 0) return rc;
    ash_model_refresh(model);
    return 0;
}

/* ---- quantising -------------------------------------------------------------------------------------------------- */

/* One matrix on its way. */
struct quantising {
    const struct ash_param *param;
    enum ash_dtype dtype;
    size_t cols;
    float *rows; /* [workers, cols] */
    uint8_t *out;
    atomic_bool has_overflow; /* a weight that no block can hold */
};

static void quantise_rows(void *ctx, size_t begin, size_t end, int worker)
{
    struct quantising *work = ctx;
    float *values = work->rows + (size_t)worker * work->cols;
    size_t row_bytes = ash_dtype_size(work->dtype, work->cols);

    for (size_t row = begin; row < end; row++) {
        bool fits = true;

        ash_weights_to_f32(work->param->data, work->param->dtype, row * work->cols, work->cols, values);
        for (size_t c = 0; c < work->cols; c++)
            fits &= fabsf(values[c]) <= F16_MAX;
        if (fits)
            ash_quantise_row(values, work->cols, work->dtype, work->out + row * row_bytes);
        else
            atomic_store_explicit(&work->has_overflow, true, memory_order_relaxed);
    }
}

/* Matrices of layers; embeddings and heads stay as they are. */
static bool is_quantised(const struct ash_model *model, const struct ash_param *param)
{
    return param->layer >= 0 && param->is_matrix && param->dim_count == 2 &&
           param->full[1] % ash_dtype_block(model->config.lora->quant) == 0;
}

static int check_quantised(const struct ash_model *model, struct ash_err *err)
{
    if (model->config.form.transposed || model->config.expert.experts > 0)
        return ash_err_set(err, -ENOTSUP, "model.quant: a base of this family cannot be held quantised: leave it out");
    for (size_t i = 0; i < model->base_count; i++)
        if (ash_dtype_block(model->params[model->param_count + i].dtype) > 1)
            return ash_err_set(err, -EINVAL, "model.quant: the base is quantised already: leave it out");
    return 0;
}

static int quantise_all(struct ash_model *model, struct ash_workers *workers, float *rows, struct ash_err *err)
{
    struct quantising work = {.dtype = model->config.lora->quant, .rows = rows, .out = model->base_quant};

    for (size_t i = 0; i < model->base_count; i++) {
        struct ash_param *param = &model->params[model->param_count + i];

        if (!is_quantised(model, param)) continue;
        work.param = param;
        work.cols = param->dims[1];
        ash_workers_run(workers, param->dims[0], 1, quantise_rows, &work);
        if (work.has_overflow)
            return ash_err_set(err, -ERANGE, "model.quant: '%s' has a weight that is not finite, or too large",
                               param->name);
        ash_map_drop(param->data, ash_dtype_size(param->dtype, param->count)); /* it is not read again */
        param->data = work.out;
        param->dtype = work.dtype;
        work.out += ash_dtype_size(work.dtype, param->count);
    }
    return 0;
}

int ash_lora_quantise_base(struct ash_model *model, struct ash_err *err)
{
    struct ash_workers *workers = NULL;
    size_t bytes = 0, cols = 0;
    float *rows = NULL;
    int rc = check_quantised(model, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < model->base_count; i++) {
        const struct ash_param *param = &model->params[model->param_count + i];

        if (!is_quantised(model, param)) continue;
        rc = check_cut(model, param, model->config.lora->quant, err);
        if (rc < 0) return rc;
        bytes += ash_dtype_size(model->config.lora->quant, param->count);
        cols = ash_max(cols, param->dims[1]);
    }
    if (bytes == 0)
        return ash_err_set(err, -ENOTSUP, "model.quant: no matrix of the base has rows of whole blocks: leave it out");
    rc = ash_workers_open(0, &workers, err);
    if (rc < 0) return rc;
    model->base_quant = malloc(bytes);
    rows = malloc((size_t)ash_workers_count(workers) * cols * sizeof(*rows));
    rc = model->base_quant == NULL || rows == NULL
             ? ash_err_set(err, -ENOMEM, "out of memory for a quantised base of %zu bytes", bytes)
             : quantise_all(model, workers, rows, err);
    free(rows);
    ash_workers_close(workers);
    return rc;
}
