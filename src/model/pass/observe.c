/* Observing: wraps an exec's table of products, as compute/profile does, and adds up the rows that they read. */
#include "model/pass/observe.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/compare.h"
#include "model/pass/pass.h"

struct observer {
    struct ash_exec exec;
    const struct ash_ops *inner;
    struct ash_ops ops;
    struct ash_matrix_ops matrix;
    const struct ash_model *model;
    struct ash_inputs *inputs;
    size_t *rows; /* [parameters] */
    bool lacks_memory;
};

/* Rows of a product. */
struct rows {
    const float *x;
    size_t count, stride, cols;
    const float *norm; /* weights of an RMS norm that they go through first, or NULL */
    double eps;
};

static size_t find_param(const struct ash_model *model, const void *data)
{
    size_t count = ash_model_param_count(model);

    for (size_t i = 0; i < count; i++)
        if (ash_model_param(model, i)->data == data) return i;
    return count;
}

static void add_rows(struct observer *observer, const void *weight, const struct rows *rows)
{
    size_t index = find_param(observer->model, weight);
    struct ash_inputs *inputs;

    if (index == ash_model_param_count(observer->model) || rows->x == NULL) return;
    inputs = &observer->inputs[index];
    if (inputs->sizes == NULL) {
        *inputs =
            (struct ash_inputs){rows->cols, calloc(rows->cols, sizeof(double)), calloc(rows->cols, sizeof(double))};
        observer->lacks_memory |= inputs->sizes == NULL || inputs->squares == NULL;
    }
    ash_assert(inputs->count == rows->cols);
    for (size_t r = 0; r < rows->count && !observer->lacks_memory; r++) {
        const float *row = rows->x + r * rows->stride;
        double sum = 0.0, factor = 1.0;

        for (size_t c = 0; rows->norm != NULL && c < rows->cols; c++)
            sum += (double)row[c] * (double)row[c];
        if (rows->norm != NULL) factor = 1.0 / sqrt(sum / (double)rows->cols + rows->eps);
        for (size_t c = 0; c < rows->cols; c++) {
            double value = (double)row[c] * factor * (rows->norm != NULL ? (double)rows->norm[c] : 1.0);

            inputs->sizes[c] += fabs(value);
            inputs->squares[c] += value * value;
        }
    }
    observer->rows[index] += rows->count;
}

/* The exec of an observer is its first member. An op has its own table until it is done. */
static void observed_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct observer *observer = (struct observer *)exec;
    const struct rows rows = {args->x, args->M, args->x_stride, args->K, args->norm, (double)args->norm_eps};

    for (size_t i = 0; i < args->out_count; i++)
        add_rows(observer, args->outs[i].w.mat.data, &rows);
    exec->ops = observer->inner;
    observer->inner->matrix->project(exec, args);
    exec->ops = &observer->ops;
}

static void observed_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    struct observer *observer = (struct observer *)exec;
    bool is_plain = args->a.dtype == ASH_F32 && args->a.col_stride == 1;
    const struct rows rows = {is_plain ? args->a.data : NULL, args->M, args->a.row_stride, args->K, NULL, 0};

    add_rows(observer, args->b.data, &rows);
    exec->ops = observer->inner;
    observer->inner->matrix->gemm(exec, args);
    exec->ops = &observer->ops;
}

static int read_all(struct observer *observer, struct ash_pass *pass, const int32_t *ids, size_t count,
                    struct ash_err *err)
{
    size_t most = ash_min(ash_model_get_config(observer->model)->max_positions, (size_t)ASH_PASS_TEXT_ROWS), part;

    for (size_t at = 0; at < count; at += part) {
        struct ash_doc doc;
        struct ash_batch batch = {.docs = &doc, .doc_count = 1, .ids = ids + at};
        int rc;

        part = ash_min(count - at, most);
        doc = (struct ash_doc){.count = part};
        batch.rows = part;
        rc = ash_pass_infer_layers(pass, &batch, NULL, err);
        if (rc < 0) return rc;
    }
    return observer->lacks_memory ? ash_err_set(err, -ENOMEM, "out of memory for the inputs of layers") : 0;
}

static void make_means(struct observer *observer)
{
    for (size_t i = 0; i < ash_model_param_count(observer->model); i++)
        for (size_t c = 0; c < observer->inputs[i].count; c++) {
            observer->inputs[i].sizes[c] /= (double)observer->rows[i];
            observer->inputs[i].squares[c] /= (double)observer->rows[i];
        }
}

static int observe(struct observer *observer, struct ash_model *model, const int32_t *ids, size_t count,
                   struct ash_err *err)
{
    const struct ash_pass_opts opts = {.max_rows = ASH_PASS_TEXT_ROWS};
    struct ash_pass *pass = NULL;
    int rc;

    observer->inner = observer->exec.ops;
    observer->ops = *observer->inner;
    observer->matrix = *observer->inner->matrix;
    observer->matrix.project = observed_project;
    observer->matrix.gemm = observed_gemm;
    observer->ops.matrix = &observer->matrix;
    rc = ash_pass_open(model, &observer->exec, &opts, &pass, err);
    observer->exec.ops = &observer->ops;
    if (rc == 0) rc = read_all(observer, pass, ids, count, err);
    observer->exec.ops = observer->inner;
    ash_pass_close(pass);
    if (rc == 0) make_means(observer);
    return rc;
}

int ash_pass_observe(struct ash_model *model, const int32_t *ids, size_t count, struct ash_inputs *inputs,
                     struct ash_err *err)
{
    struct observer observer = {.model = model, .inputs = inputs};
    int rc;

    if (count < 2) return ash_err_set(err, -EINVAL, "the text has %zu tokens: two are needed", count);
    observer.rows = calloc(ash_model_param_count(model), sizeof(*observer.rows));
    if (observer.rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = ash_exec_init(&observer.exec, NULL, 0, err);
    if (rc == 0) {
        rc = observe(&observer, model, ids, count, err);
        ash_exec_fini(&observer.exec);
    }
    free(observer.rows);
    return rc;
}
