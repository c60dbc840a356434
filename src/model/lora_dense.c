/* lora_dense: quantised matrices of a base for passes that train. Products of the forward pass read them packed; those
 * of the backward pass, which only needs the gradient of the input, read them written out, one matrix at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "base/workers.h"
#include "compute/quant_open.h"
#include "model/lora_priv.h"
#include "model/weight.h"

/* Of a model's scratch: which matrix it has, then the values. */
struct dense {
    int32_t weight;
    bool is_bf16;
};
#define DENSE_HEADER_BYTES ((size_t)64)

/* On a device: float32 values, then the numbers of all rows. */
static int reserve_on_device(struct ash_model *model, const struct ash_exec *exec, size_t most, size_t most_rows,
                             struct ash_err *err)
{
    size_t bytes = most * sizeof(float) + most_rows * sizeof(int32_t);
    int32_t *numbers;
    int rc;

    if (bytes <= model->dense_scratch.size_bytes) return 0;
    numbers = malloc(most_rows * sizeof(*numbers));
    if (numbers == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the numbers of %zu rows", most_rows);
    for (size_t r = 0; r < most_rows; r++)
        numbers[r] = (int32_t)r;
    ash_buffer_fini(&model->dense_scratch);
    rc = ash_buffer_init(&model->dense_scratch, exec->memory, bytes, "a matrix written out", err);
    if (rc == 0)
        rc = exec->memory->copy((float *)model->dense_scratch.data + most, numbers, most_rows * sizeof(*numbers));
    model->dense_count = most;
    free(numbers);
    return rc;
}

int ash_lora_reserve_dense(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    size_t most = 0, most_rows = 0, bytes;
    int rc;

    for (size_t i = 0; i < model->base_count; i++) {
        const struct ash_param *param = &model->params[model->param_count + i];

        if (ash_dtype_block(param->dtype) == 1) continue;
        most = ash_max(most, param->count);
        most_rows = ash_max(most_rows, param->dims[0]);
    }
    if (most == 0) return 0;
    if (!exec->memory->host_visible) return reserve_on_device(model, exec, most, most_rows, err);
    bytes = most * (model->round_bf16 ? sizeof(uint16_t) : sizeof(float)) + DENSE_HEADER_BYTES;
    if (bytes <= model->dense_scratch.size_bytes) return 0;
    ash_buffer_fini(&model->dense_scratch);
    rc = ash_buffer_init(&model->dense_scratch, exec->memory, bytes, "a matrix written out", err);
    if (rc == 0) ((struct dense *)model->dense_scratch.data)->weight = ASH_NO_PARAM;
    return rc;
}

/* One matrix; f32 or bf16 is NULL. */
struct writing {
    const struct ash_param *param;
    float *f32;
    uint16_t *bf16;
};

/* Values as float32, or as bf16: what products in bf16 would round them to. */
static void write_out(const struct writing *work, size_t at, const float *values, size_t count)
{
    if (work->bf16 == NULL) {
        memcpy(work->f32 + at, values, count * sizeof(*values));
        return;
    }
    for (size_t i = 0; i < count; i++)
        work->bf16[at + i] = ash_f32_to_bf16(values[i]);
}

/* As ash_quant_to_f32, and faster for the types of model.quant: one scale, no sub-scales. */
static void open_block(const uint8_t *block, enum ash_dtype dtype, float *values)
{
    int8_t quants[ASH_QUANT_BLOCK];
    float scale;

    if (dtype != ASH_Q4_0 && dtype != ASH_Q8_0 && dtype != ASH_Q8_W) {
        ash_quant_to_f32(block, dtype, ash_dtype_block(dtype), values);
        return;
    }
    scale = ash_quant_scale(block);
    ash_quant_unpack(block, dtype, quants);
    for (size_t i = 0; i < ASH_QUANT_BLOCK; i++)
        values[i] = scale * (float)quants[i];
}

static void write_out_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct writing *work = ctx;
    enum ash_dtype dtype = work->param->dtype;
    size_t cols = work->param->dims[1], block = ash_dtype_block(dtype);
    float values[ASH_QUANT_GROUP];

    (void)worker;
    for (size_t at = begin * cols; at < end * cols; at += block) {
        open_block((const uint8_t *)work->param->data + ash_dtype_size(dtype, at), dtype, values);
        write_out(work, at, values, block);
    }
}

/* Products in bf16 round the values as they read them. */
static struct ash_mat write_out_on_device(const struct ash_model *model, struct ash_exec *exec,
                                          const struct ash_param *param)
{
    float *values = model->dense_scratch.data;
    const struct ash_embed_args rows = {.table = param->data,
                                        .dtype = param->dtype,
                                        .cols = param->dims[1],
                                        .rows = param->dims[0],
                                        .ids = (const void *)(values + model->dense_count),
                                        .out = values};

    ash_assert(param->count <= model->dense_count);
    exec->ops->embed->gather(exec, &rows);
    return (struct ash_mat){values, ASH_F32, param->dims[1], 1};
}

struct ash_mat ash_weight_dense(const struct ash_model *model, struct ash_exec *exec, int32_t weight)
{
    const struct ash_param *param = &model->params[weight];
    struct dense *dense = model->dense_scratch.data;
    bool is_bf16 = model->round_bf16;
    struct writing work = {.param = param};
    void *values;

    if (ash_dtype_block(param->dtype) == 1) return ash_weight_matrix(model, weight, true);
    if (!exec->memory->host_visible) return write_out_on_device(model, exec, param);
    values = (char *)model->dense_scratch.data + DENSE_HEADER_BYTES;
    work.f32 = is_bf16 ? NULL : values;
    work.bf16 = is_bf16 ? values : NULL;
    ash_assert(param->count * (is_bf16 ? sizeof(uint16_t) : sizeof(float)) + DENSE_HEADER_BYTES <=
               model->dense_scratch.size_bytes);
    if (dense->weight != weight || dense->is_bf16 != is_bf16)
        ash_workers_run(exec->workers, param->dims[0], 1, write_out_rows, &work);
    *dense = (struct dense){weight, is_bf16};
    return (struct ash_mat){values, is_bf16 ? ASH_BF16 : ASH_F32, param->dims[1], 1};
}
