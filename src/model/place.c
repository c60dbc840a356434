/* place: a model's weights in the memory of a device, which the host cannot read. Owned values move there; mapped ones
 * are copied as the file has them. */
#include "model/place.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define PLACE_ALIGN ((size_t)256) /* what a device's wide loads want */

/* Take a buffer of the exec's memory with the bytes of a host buffer, and free that. */
static int move_buffer(struct ash_buffer *buffer, const struct ash_exec *exec, const char *what, struct ash_err *err)
{
    struct ash_buffer moved = {0};
    int rc = ash_buffer_init(&moved, exec->memory, buffer->size_bytes, what, err);

    if (rc < 0) return rc;
    rc = buffer->size_bytes > 0 ? exec->memory->copy(moved.data, buffer->data, buffer->size_bytes) : 0;
    if (rc < 0) {
        ash_buffer_fini(&moved);
        return ash_err_set(err, rc, "cannot copy %s to the memory of '%s'", what, exec->memory->name);
    }
    ash_buffer_fini(buffer);
    *buffer = moved;
    return 0;
}

static size_t placed_bytes(const struct ash_param *param)
{
    return ash_round_up(ash_dtype_size(param->dtype, param->count), PLACE_ALIGN);
}

/* Copy what is mapped. A tied output matrix is the embedding: parameters with the same data stay one. */
static int copy_mapped(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    size_t total = 0;
    char *at;
    int rc;

    for (size_t i = 0; i < model->param_count; i++)
        total += placed_bytes(&model->params[i]);
    rc = ash_buffer_init(&model->placed, exec->memory, total, "weights", err);
    if (rc < 0) return rc;
    at = model->placed.data;
    for (size_t i = 0; i < model->param_count; i++) {
        struct ash_param *param = &model->params[i];

        rc = exec->memory->copy(at, param->data, ash_dtype_size(param->dtype, param->count));
        if (rc < 0)
            return ash_err_set(err, rc, "cannot copy %s to the memory of '%s'", param->name, exec->memory->name);
        param->mapped = param->data;
        param->data = at;
        at += placed_bytes(param);
    }
    return 0;
}

size_t ash_model_unplaced_bytes(const struct ash_model *model)
{
    size_t total = model->vectors.size_bytes;

    if (model->exec != NULL) return 0;
    if (model->values.data != NULL) return total + model->values.size_bytes;
    for (size_t i = 0; i < model->param_count; i++)
        total += placed_bytes(&model->params[i]);
    return total;
}

int ash_model_place(struct ash_model *model, struct ash_exec *exec, struct ash_err *err)
{
    int rc;

    if (model->exec == exec || (model->exec == NULL && exec->memory->host_visible)) return 0;
    if (model->exec != NULL)
        return ash_err_set(err, -EINVAL, "the weights are in the memory of '%s' already", model->exec->memory->name);
    ash_model_unpack(model);
    ash_prefetcher_finish(model->prefetcher); /* the copy below reads all there is */
    model->prefetcher = NULL;
    rc = move_buffer(&model->vectors, exec, "norms and biases", err);
    if (rc < 0) return rc;
    rc = model->values.data == NULL ? ash_model_bring(model, err) : 0;
    if (rc < 0) return rc;
    rc = model->values.data != NULL ? move_buffer(&model->values, exec, "weights", err) : copy_mapped(model, exec, err);
    if (rc < 0) return rc;
    model->exec = exec;
    if (model->values.data != NULL) ash_model_bind_owned(model);
    return 0;
}

/* Of owned values float32 is there, on the device; of mapped ones the file. */
void ash_model_refresh_placed(struct ash_model *model, size_t index, float *copy)
{
    const struct ash_param *param = &model->params[index];
    struct ash_exec *exec = model->exec;
    float *host;
    int rc;

    if (model->values.data != NULL) {
        const float *values = (const float *)model->values.data + param->offset;

        if (model->round_bf16)
            exec->ops->row->round_bf16(exec, values, param->count, copy);
        else
            exec->ops->row->copy(exec, &(struct ash_copy_args){.rows = 1,
                                                               .blocks = 1,
                                                               .cols = param->count,
                                                               .src = values,
                                                               .src_row = param->count,
                                                               .dst = copy,
                                                               .dst_dtype = ASH_F32,
                                                               .dst_row = param->count});
        return;
    }
    host = malloc(param->count * sizeof(*host));
    ash_assert(host != NULL);
    ash_weights_to_f32(param->mapped, param->dtype, 0, param->count, host);
    for (size_t j = 0; model->round_bf16 && j < param->count; j++)
        host[j] = ash_bf16_round(host[j]);
    rc = exec->memory->copy(copy, host, param->count * sizeof(*host));
    ash_assert(rc == 0 || exec->cuda != NULL); /* a GPU keeps its failure until it is asked for */
    free(host);
}

int ash_model_unplace(struct ash_model *model, struct ash_err *err)
{
    int rc;

    if (model->exec == NULL) return 0;
    ash_assert(model->values.data == NULL);
    ash_buffer_fini(&model->placed);
    ash_buffer_fini(&model->vectors);
    model->exec = NULL;
    for (size_t i = 0; i < model->param_count; i++) {
        model->params[i].data = model->params[i].mapped;
        model->params[i].mapped = NULL;
    }
    rc = ash_model_open_vectors(model, err);
    if (rc == 0) ash_model_refresh(model);
    return rc;
}
