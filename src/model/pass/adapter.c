/* adapter: two thin products forward, four backward. x A^T is recomputed in the backward pass: it costs little. */
#include "model/pass/adapter.h"

#include "base/assert.h"
#include "model/lora_priv.h"
#include "model/pass/linear_grads.h"

/* c [rows, N] = (add: +=) a [rows, K] w, w the matrix of param as [K, N]. */
static void product(const struct ash_model *model, struct ash_exec *exec, size_t rows, struct ash_mat a, int32_t param,
                    bool transposed, struct ash_mat c, bool add)
{
    const struct ash_param *w = &model->params[param];
    /* stored [out, in]: x W^T reads it as [in, out], dy W as it is */
    struct ash_mat b = transposed ? (struct ash_mat){w->data, w->dtype, 1, w->dims[1]}
                                  : (struct ash_mat){w->data, w->dtype, w->dims[1], 1};
    struct ash_gemm_args args = {.M = rows,
                                 .N = w->dims[transposed ? 0 : 1],
                                 .K = w->dims[transposed ? 1 : 0],
                                 .a = a,
                                 .b = b,
                                 .c = (float *)(uintptr_t)c.data,
                                 .c_stride = c.row_stride,
                                 .accumulate = add,
                                 .round_bf16 = model->round_bf16};

    exec->ops->matrix->gemm(exec, &args);
}

/* low [rows, rank] = scale * x A^T. */
static float *lower(const struct ash_model *model, struct ash_exec *exec, const struct ash_adapter *adapter,
                    const struct ash_linear_io *io)
{
    float *low = model->adapter_scratch.data;

    ash_assert(2 * io->rows * adapter->rank * sizeof(float) <= model->adapter_scratch.size_bytes);
    product(model, exec, io->rows, (struct ash_mat){io->x, ASH_F32, io->x_stride, 1}, adapter->a, true,
            (struct ash_mat){low, ASH_F32, adapter->rank, 1}, false);
    exec->ops->row->scale(exec, low, adapter->scale, io->rows * adapter->rank);
    return low;
}

/* The adapter that a document's rows go through at a weight of the model, or NULL. */
static const struct ash_adapter *doc_adapter(const struct ash_doc *doc, int32_t weight)
{
    if (doc->adapters == NULL) return NULL;
    return ash_model_adapter(doc->adapters, weight + (int32_t)doc->adapters->param_count);
}

bool ash_adapter_applies(const struct ash_pass_step *step, int32_t weight)
{
    if (!step->has_adapters) return false;
    for (size_t i = 0; i < step->batch->doc_count; i++)
        if (doc_adapter(&step->batch->docs[i], weight) != NULL) return true;
    return ash_model_adapter(step->model, weight) != NULL;
}

static void forward_rows(const struct ash_model *model, struct ash_exec *exec, const struct ash_adapter *adapter,
                         const struct ash_linear_io *io)
{
    float *low = lower(model, exec, adapter, io);

    product(model, exec, io->rows, (struct ash_mat){low, ASH_F32, adapter->rank, 1}, adapter->b, true,
            (struct ash_mat){io->y, ASH_F32, io->y_stride, 1}, true);
}

/* Neighbours with the same adapters are one product. */
static void forward_docs(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_batch *batch = step->batch;

    for (size_t i = 0, next; i < batch->doc_count; i = next) {
        const struct ash_doc *doc = &batch->docs[i];
        const struct ash_adapter *adapter = doc_adapter(doc, weight);
        struct ash_linear_io part = *io;

        part.rows = 0;
        for (next = i; next < batch->doc_count && batch->docs[next].adapters == doc->adapters; next++)
            part.rows += batch->docs[next].count;
        if (adapter == NULL) continue;
        ash_assert(io->rows == batch->rows && step->rows == batch->rows);
        part.x += doc->row * io->x_stride;
        part.y += doc->row * io->y_stride;
        forward_rows(doc->adapters, step->exec, adapter, &part);
    }
}

void ash_adapter_forward(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_adapter *adapter = ash_model_adapter(step->model, weight);

    if (io->rows == 0) return;
    if (adapter != NULL)
        forward_rows(step->model, step->exec, adapter, io);
    else
        forward_docs(step, weight, io);
}

/* dlow [rows, rank] = scale * dy B, beside low. */
static float *lower_gradient(const struct ash_model *model, struct ash_exec *exec, const struct ash_adapter *adapter,
                             const struct ash_linear_io *io)
{
    float *dlow = (float *)model->adapter_scratch.data + io->rows * adapter->rank;

    ash_assert(2 * io->rows * adapter->rank * sizeof(float) <= model->adapter_scratch.size_bytes);
    product(model, exec, io->rows, (struct ash_mat){io->dy, ASH_F32, io->dy_stride, 1}, adapter->b, false,
            (struct ash_mat){dlow, ASH_F32, adapter->rank, 1}, false);
    exec->ops->row->scale(exec, dlow, adapter->scale, io->rows * adapter->rank);
    return dlow;
}

void ash_adapter_input_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                            const struct ash_linear_io *io)
{
    const struct ash_adapter *adapter = ash_model_adapter(model, weight);
    const float *dlow;

    if (adapter == NULL || io->rows == 0) return;
    dlow = lower_gradient(model, exec, adapter, io);
    product(model, exec, io->rows, (struct ash_mat){dlow, ASH_F32, adapter->rank, 1}, adapter->a, false,
            (struct ash_mat){io->dx, ASH_F32, io->dx_stride, 1}, true);
}

void ash_adapter_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, int32_t weight,
                          const struct ash_linear_io *io)
{
    const struct ash_adapter *adapter = ash_model_adapter(step->model, weight);
    struct ash_linear_io part = {.rows = io->rows, .seq_rows = io->seq_rows};

    if (adapter == NULL || io->rows == 0) return;
    part.x = lower(step->model, step->exec, adapter, io);
    part.x_stride = adapter->rank;
    part.dy = io->dy;
    part.dy_stride = io->dy_stride;
    ash_linear_weight_backward(step, sink, adapter->b, adapter->b, &part);
    part.x = io->x;
    part.x_stride = io->x_stride;
    part.dy = lower_gradient(step->model, step->exec, adapter, io);
    part.dy_stride = adapter->rank;
    ash_linear_weight_backward(step, sink, adapter->a, adapter->a, &part);
}
