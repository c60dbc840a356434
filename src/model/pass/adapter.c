/* adapter: two thin products forward, four backward. x A^T is recomputed in the backward pass: it costs little. */
#include "model/pass/adapter_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define ROWS_APART_FEW 4    /* rows of an adapter: more are one product of all threads */
#define ROWS_APART_MOST 512 /* at a time */
#define ROW_OUTPUTS ((size_t)8)

/* low [rank] = x A^T of one row, by few outputs at a time: rows of A that lie a multiple of a page apart are in the
 * same few lines of the first cache. */
static void lower_row(const struct ash_model *model, struct ash_exec *exec, const float *x, int32_t param, float *low)
{
    const struct ash_param *w = &model->params[param];
    size_t N = w->dims[0], K = w->dims[1], bytes = K * ash_dtype_bytes(w->dtype);

    for (size_t n = 0; n < N; n += ROW_OUTPUTS) {
        struct ash_gemm_args args = {.M = 1,
                                     .N = ash_min(N - n, ROW_OUTPUTS),
                                     .K = K,
                                     .a = {x, ASH_F32, K, 1},
                                     .b = {(const char *)w->data + n * bytes, w->dtype, 1, K},
                                     .c = low + n,
                                     .c_stride = N,
                                     .round_bf16 = model->round_bf16};

        exec->ops->matrix->gemm(exec, &args);
    }
}

void ash_adapter_product(const struct ash_model *model, struct ash_exec *exec, size_t rows, struct ash_mat a,
                         int32_t param, bool transposed, struct ash_mat c, bool add)
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

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

static bool drops(const struct ash_pass_step *step)
{
    return step->batch->dropout.numbers != NULL && ash_lora_drops(step->model);
}

/* to [rows, cols] = (add: +=) from with the inputs left out that the batch leaves out at this weight; rows: of the
 * step's. */
static void drop(const struct ash_pass_step *step, int32_t weight, struct ash_mat from, struct ash_mat to,
                 struct ash_range rows, bool add)
{
    const struct ash_param *a = &step->model->params[ash_model_adapter(step->model, weight)->a];
    const char *name = step->model->params[weight].name; /* not its number: that is the slice's */
    double share = step->model->config.lora->dropout;
    struct ash_drop_args args = {.rows = rows.count,
                                 .cols = a->dims[1],
                                 .x = from.data,
                                 .x_stride = from.row_stride,
                                 .out = (float *)(uintptr_t)to.data,
                                 .out_stride = to.row_stride,
                                 .add = add,
                                 .seed = ash_hash_bytes(name, strlen(name), step->batch->dropout.seed),
                                 .sequences = step->acts->block.sequences,
                                 .seq_rows = step->batch->seq_rows != 0 ? step->batch->seq_rows : step->batch->rows,
                                 .first_row = step->first_row + rows.first,
                                 .all_cols = a->full[1],
                                 .first_col = a->cut == 1 ? a->runs[0].first : 0,
                                 .threshold = (uint16_t)(share * 65536.0),
                                 .scale = (float)(1.0 / (1.0 - share))};

    ash_assert(args.sequences != NULL && step->first_row + ash_range_end(rows) <= step->batch->rows &&
               (a->cut < 0 || a->run_count == 1));
    step->exec->ops->row->drop(step->exec, &args);
}

struct ash_linear_io ash_adapter_seen(const struct ash_pass_step *step, int32_t weight,
                                      const struct ash_adapter *adapter, const struct ash_linear_io *io)
{
    struct ash_linear_io part = *io;
    size_t cols = step->model->params[adapter->a].dims[1];
    float *kept = step->model->dropout_scratch.data;

    if (!drops(step)) return part;
    ash_assert(io->rows == step->rows && io->rows * cols * sizeof(float) <= step->model->dropout_scratch.size_bytes);
    drop(step, weight, (struct ash_mat){io->x, ASH_F32, io->x_stride, 1}, (struct ash_mat){kept, ASH_F32, cols, 1},
         (struct ash_range){0, step->rows}, false);
    part.x = kept;
    part.x_stride = cols;
    return part;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

float *ash_adapter_lower(const struct ash_model *model, struct ash_exec *exec, const struct ash_adapter *adapter,
                         const struct ash_linear_io *io)
{
    float *low = model->adapter_scratch.data;

    ash_assert(2 * io->rows * adapter->rank * sizeof(float) <= model->adapter_scratch.size_bytes);
    ash_adapter_product(model, exec, io->rows, (struct ash_mat){io->x, ASH_F32, io->x_stride, 1}, adapter->a, true,
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
    float *low = ash_adapter_lower(model, exec, adapter, io);

    ash_adapter_product(model, exec, io->rows, (struct ash_mat){low, ASH_F32, adapter->rank, 1}, adapter->b, true,
                        (struct ash_mat){io->y, ASH_F32, io->y_stride, 1}, true);
}

/* Rows that go through their adapters one by one, in one loop of the threads. */
struct rows_apart {
    struct ash_exec *exec;
    const struct ash_linear_io *io;
    size_t count;
    struct row_apart {
        const struct ash_model *model;
        const struct ash_adapter *adapter;
        size_t row;
    } rows[ROWS_APART_MOST];
};

/* A thread's rows: products of one row pack nothing, and an adapter stays in the cache for the next row. */
static void run_rows_apart(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rows_apart *apart = ctx;
    const struct ash_linear_io *io = apart->io;
    /* ops as of a machine with this thread alone, in its scratch memory */
    struct ash_exec alone = {
        .ops = apart->exec->ops, .memory = apart->exec->memory, .scratch = &apart->exec->scratch[worker]};

    for (size_t i = begin; i < end; i++) {
        const struct row_apart *at = &apart->rows[i];
        size_t rank = at->adapter->rank;
        float *low = (float *)at->model->adapter_scratch.data + at->row * rank;
        struct ash_mat down = {low, ASH_F32, rank, 1};
        struct ash_mat y = {io->y + at->row * io->y_stride, ASH_F32, io->y_stride, 1};

        ash_assert((at->row + 1) * rank * sizeof(float) <= at->model->adapter_scratch.size_bytes);
        lower_row(at->model, &alone, io->x + at->row * io->x_stride, at->adapter->a, low);
        alone.ops->row->scale(&alone, low, at->adapter->scale, rank);
        ash_adapter_product(at->model, &alone, 1, down, at->adapter->b, true, y, true);
    }
    ash_buffer_fini(&alone.shared);
    ash_buffer_fini(&alone.broadcast);
}

static int compare_rows(const void *a, const void *b)
{
    const struct row_apart *one = a, *other = b;
    uintptr_t first = (uintptr_t)one->model, second = (uintptr_t)other->model;

    if (first != second) return first < second ? -1 : 1;
    return (one->row > other->row) - (one->row < other->row);
}

static void flush_rows(struct rows_apart *apart)
{
    qsort(apart->rows, apart->count, sizeof(apart->rows[0]), compare_rows);
    if (apart->count > 0) ash_workers_run(apart->exec->workers, apart->count, 1, run_rows_apart, apart);
    apart->count = 0;
}

/* Few rows of many adapters, as when answers are written: a loop over rows instead of three over the parts of each. */
static bool takes_rows_apart(const struct ash_exec *exec, size_t rows)
{
    return rows <= ROWS_APART_FEW && exec->cuda == NULL && exec->memory->host_visible && exec->profile == NULL;
}

/* Neighbours with the same adapters are one product, unless they are few. */
static void forward_docs(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_batch *batch = step->batch;
    struct rows_apart apart = {.exec = step->exec, .io = io};

    for (size_t i = 0, next; i < batch->doc_count; i = next) {
        const struct ash_doc *doc = &batch->docs[i];
        const struct ash_adapter *adapter = doc_adapter(doc, weight);
        struct ash_linear_io part = *io;

        part.rows = 0;
        for (next = i; next < batch->doc_count && batch->docs[next].adapters == doc->adapters; next++)
            part.rows += batch->docs[next].count;
        if (adapter == NULL) continue;
        ash_assert(io->rows == batch->rows && step->rows == batch->rows);
        if (takes_rows_apart(step->exec, part.rows)) {
            if (apart.count + part.rows > ROWS_APART_MOST) flush_rows(&apart);
            for (size_t row = 0; row < part.rows; row++)
                apart.rows[apart.count++] = (struct row_apart){doc->adapters, adapter, doc->row + row};
            continue;
        }
        part.x += doc->row * io->x_stride;
        part.y += doc->row * io->y_stride;
        forward_rows(doc->adapters, step->exec, adapter, &part);
    }
    flush_rows(&apart);
}

void ash_adapter_forward(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_adapter *adapter = ash_model_adapter(step->model, weight);
    struct ash_linear_io part;

    if (io->rows == 0) return;
    if (adapter == NULL) {
        forward_docs(step, weight, io);
        return;
    }
    part = ash_adapter_seen(step, weight, adapter, io);
    forward_rows(step->model, step->exec, adapter, &part);
}

void ash_adapter_input_grad_rows(const struct ash_pass_step *step, int32_t weight, const float *dlow,
                                 struct ash_range rows, float *dx)
{
    const struct ash_model *model = step->model;
    const struct ash_adapter *adapter = ash_model_adapter(model, weight);
    size_t cols = model->params[adapter->a].dims[1];
    struct ash_mat low = {dlow + rows.first * adapter->rank, ASH_F32, adapter->rank, 1}, sums = {dx, ASH_F32, cols, 1},
                   kept = {model->dropout_scratch.data, ASH_F32, cols, 1};
    bool is_dropped = drops(step);

    ash_adapter_product(model, step->exec, rows.count, low, adapter->a, false, is_dropped ? kept : sums, !is_dropped);
    if (is_dropped) drop(step, weight, kept, sums, rows, true);
}

float *ash_adapter_lower_gradient(const struct ash_model *model, struct ash_exec *exec,
                                  const struct ash_adapter *adapter, const struct ash_linear_io *io)
{
    float *dlow = (float *)model->adapter_scratch.data + io->rows * adapter->rank;

    ash_assert(2 * io->rows * adapter->rank * sizeof(float) <= model->adapter_scratch.size_bytes);
    ash_adapter_product(model, exec, io->rows, (struct ash_mat){io->dy, ASH_F32, io->dy_stride, 1}, adapter->b, false,
                        (struct ash_mat){dlow, ASH_F32, adapter->rank, 1}, false);
    exec->ops->row->scale(exec, dlow, adapter->scale, io->rows * adapter->rank);
    return dlow;
}

void ash_adapter_input_grad(const struct ash_pass_step *step, int32_t weight, const struct ash_linear_io *io)
{
    const struct ash_model *model = step->model;
    const struct ash_adapter *adapter = ash_model_adapter(model, weight);
    struct ash_mat dx = {io->dx, ASH_F32, io->dx_stride, 1}, kept = {model->dropout_scratch.data, ASH_F32, 0, 1}, dlow;
    bool is_dropped;

    if (adapter == NULL || io->rows == 0) return;
    is_dropped = drops(step);
    kept.row_stride = model->params[adapter->a].dims[1];
    dlow = (struct ash_mat){ash_adapter_lower_gradient(model, step->exec, adapter, io), ASH_F32, adapter->rank, 1};
    ash_adapter_product(model, step->exec, io->rows, dlow, adapter->a, false, is_dropped ? kept : dx, !is_dropped);
    if (is_dropped) drop(step, weight, kept, dx, (struct ash_range){io->first, io->rows}, true);
}
