/* place: a model's weights in the memory of a device, which the host cannot read. Owned values move there; mapped ones,
 * those of the frozen base of adapters too, are copied as the file has them, or packed on the device on the way, if its
 * products read packed weights. */
#include "model/place.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define PLACE_ALIGN ((size_t)256)     /* what a device's wide loads want */
#define PACK_BYTES ((size_t)64 << 20) /* of a weight, about: on the device twice while it is packed */

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

/* Parameters that are mapped: all, or the base behind owned adapters. */
static struct ash_range mapped_params(const struct ash_model *model)
{
    if (model->values.data == NULL) return (struct ash_range){0, model->param_count};
    return (struct ash_range){model->param_count, model->base_count};
}

/* Floats stay as they are: whether their products read them packed depends on the precision, which may change. */
static size_t packed_bytes(const struct ash_model *model, const struct ash_exec *exec, size_t index)
{
    const struct ash_param *param = &model->params[index];

    ash_assert(index < model->param_count + model->base_count);
    if (param->data == NULL || ash_dtype_block(param->dtype) == 1) return 0;
    return ash_round_up(ash_model_packed_bytes(model, exec, (int32_t)index), PLACE_ALIGN);
}

/* Bytes that a parameter takes on the device as the file has it: none if only products read it, packed. Backward passes
 * read the frozen base of adapters written out, from there. */
static size_t plain_bytes(const struct ash_model *model, const struct ash_exec *exec, size_t index)
{
    const struct ash_param *param = &model->params[index];
    bool is_base = index >= model->param_count;
    bool is_read = is_base || (int32_t)index == model->top.param[ASH_ROLE_EMBED];

    ash_assert(index < model->param_count + model->base_count);
    if (param->data == NULL || (!is_read && packed_bytes(model, exec, index) > 0)) return 0;
    return ash_round_up(ash_dtype_size(param->dtype, param->count), PLACE_ALIGN);
}

/* Rows of a weight that are packed at a time. */
static size_t piece_rows(const struct ash_param *param)
{
    return ash_round_up(PACK_BYTES / ash_dtype_size(param->dtype, param->dims[1]) + 1, ASH_PACK_ROWS);
}

/* Bytes of the largest piece. */
static size_t piece_bytes(const struct ash_model *model, const struct ash_exec *exec)
{
    struct ash_range mapped = mapped_params(model);
    size_t most = 0;

    for (size_t i = mapped.first; i < ash_range_end(mapped); i++) {
        const struct ash_param *param = &model->params[i];

        if (packed_bytes(model, exec, i) == 0) continue;
        most = ash_max(most, ash_dtype_size(param->dtype, ash_min(piece_rows(param), param->dims[0]) * param->dims[1]));
    }
    return most;
}

/* Pack a weight to `packed`, piece by piece through `piece`. Returns 0 or why not. */
static int pack_mapped(const struct ash_model *model, struct ash_exec *exec, size_t index, void *piece, void *packed)
{
    size_t in, step = piece_rows(&model->params[index]), row_bytes;
    struct ash_weight w = ash_weight_stored(model, (int32_t)index, &in);
    const char *from = w.mat.data;
    int rc = 0;

    ash_assert(index < model->param_count + model->base_count);
    row_bytes = ash_dtype_size(w.mat.dtype, in);
    for (size_t first = 0; rc == 0 && first < w.N; first += step) {
        size_t count = ash_min(w.N - first, step);

        rc = exec->memory->copy(piece, from + first * row_bytes, count * row_bytes);
        if (rc < 0) break;
        w.mat.data = (const void *)((uintptr_t)piece - first * row_bytes); /* as if all rows were there */
        exec->ops->matrix->pack(exec, &w, in, first, count, packed);
        rc = ash_exec_wait(exec, NULL); /* the next piece takes its place */
    }
    return rc;
}

/* Copy a parameter to `at`, pack it to what follows, or both. Returns 0 or why not. */
static int place_param(struct ash_model *model, struct ash_exec *exec, size_t index, char *at, void *piece)
{
    struct ash_param *param = &model->params[index];
    size_t plain = plain_bytes(model, exec, index);
    bool is_packed = packed_bytes(model, exec, index) > 0;
    int rc = plain > 0 ? exec->memory->copy(at, param->data, ash_dtype_size(param->dtype, param->count)) : 0;

    ash_assert(index < model->param_count + model->base_count);
    if (rc == 0 && is_packed) rc = pack_mapped(model, exec, index, piece, at + plain);
    param->mapped = param->data;
    param->data = plain > 0 ? at : NULL;
    param->packed = is_packed ? at + plain : NULL;
    return rc;
}

static size_t mapped_bytes(const struct ash_model *model, const struct ash_exec *exec)
{
    struct ash_range mapped = mapped_params(model);
    size_t total = 0;

    for (size_t i = mapped.first; i < ash_range_end(mapped); i++)
        total += plain_bytes(model, exec, i) + packed_bytes(model, exec, i);
    return total;
}

/* Copy mapped parameters. A tied output matrix is the embedding: parameters with the same data stay one. A base that
 * another model has stays there. */
static int copy_mapped(struct ash_model *model, struct ash_exec *exec, struct ash_err *err)
{
    struct ash_range mapped = mapped_params(model);
    struct ash_buffer piece = {0};
    char *at;
    int rc = ash_buffer_init(&model->placed, exec->memory, mapped_bytes(model, exec), "weights", err);

    if (rc == 0) rc = ash_buffer_init(&piece, exec->memory, piece_bytes(model, exec), "weights to be packed", err);
    at = model->placed.data;
    for (size_t i = mapped.first; rc == 0 && i < ash_range_end(mapped); i++) {
        size_t bytes = plain_bytes(model, exec, i) + packed_bytes(model, exec, i);

        if (bytes == 0) continue;
        rc = place_param(model, exec, i, at, piece.data);
        if (rc < 0)
            ash_err_set(err, rc, "cannot copy %s to the memory of '%s'", model->params[i].name, exec->memory->name);
        at += bytes;
    }
    if (piece.size_bytes > 0) model->packed_for = exec->ops->matrix;
    ash_buffer_fini(&piece);
    return rc;
}

size_t ash_model_unplaced_bytes(const struct ash_model *model, const struct ash_exec *exec)
{
    if (model->exec != NULL) return 0;
    return model->vectors.size_bytes + model->values.size_bytes + mapped_bytes(model, exec) + piece_bytes(model, exec);
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
    rc = copy_mapped(model, exec, err);
    if (rc == 0 && model->values.data != NULL) rc = move_buffer(&model->values, exec, "weights", err);
    if (rc < 0) return rc;
    model->exec = exec;
    if (model->values.data != NULL) ash_model_bind_owned(model);
    return 0;
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
    ash_model_unpack(model);
    rc = ash_model_open_vectors(model, err);
    if (rc == 0) ash_model_refresh(model);
    return rc;
}
