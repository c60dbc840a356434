/* Packing a model's matrices: from the file's layout to the one that a backend's GEMM reads fastest, in one block of
 * memory. Chunk by chunk that memory is written and the file's pages are released, so the two copies are never in
 * memory at once. */
#include <stdlib.h>

#include "base/file.h"
#include "base/math.h"
#include "model/load.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define CHUNK_BYTES ((size_t)8 << 20) /* of a weight, about: bytes in memory twice */

/* The memory of remote and quantised weights would be empty afterwards: no file is behind it. */
static void release(const struct ash_model *model, const void *data, size_t size_bytes)
{
    const struct ash_map *map = ash_model_map(model, data);

    if (map == NULL || map->remote == NULL) ash_map_drop(data, size_bytes);
}

static void pack_param(const struct ash_model *model, struct ash_exec *exec, int32_t index, void *packed)
{
    size_t in, row_bytes = ash_dtype_size(model->params[index].dtype, model->params[index].dims[1]);
    struct ash_weight w = ash_weight_stored(model, index, &in);
    size_t rows = ash_round_up(CHUNK_BYTES / row_bytes + 1, ASH_PACK_ROWS);

    for (size_t first = 0; first < w.N; first += rows) {
        size_t count = ash_min(w.N - first, rows);

        exec->ops->matrix->pack(exec, &w, in, first, count, packed);
        release(model, (const char *)w.mat.data + first * row_bytes, count * row_bytes);
    }
}

int ash_model_pack(struct ash_model *model, struct ash_exec *exec, struct ash_err *err)
{
    int rc;

    if (model->load != NULL) return ash_load_finish(model->load, err);
    if (model->packed_for != NULL || model->values.data != NULL || !ash_model_packs_on_host(exec)) return 0;
    ash_prefetcher_finish(model->prefetcher); /* it would read again the pages released below */
    model->prefetcher = NULL;
    rc = ash_model_bring(model, err);
    if (rc == 0) rc = ash_model_place_packed(model, exec, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i].packed != NULL)
            pack_param(model, exec, (int32_t)i, (void *)(uintptr_t)model->params[i].packed);
    return 0;
}

int ash_model_pack_base(struct ash_model *model, struct ash_exec *exec, struct ash_err *err)
{
    size_t total = 0, end = model->param_count + model->base_count;
    char *at;
    int rc;

    if (model->packed_for != NULL || !ash_model_packs_on_host(exec)) return 0;
    for (size_t i = model->param_count; i < end; i++)
        if (ash_dtype_block(model->params[i].dtype) > 1) total += ash_model_packed_bytes(model, exec, (int32_t)i);
    if (total == 0) return 0;
    rc = ash_buffer_init(&model->packed, exec->memory, total, "a packed base", err);
    if (rc < 0) return rc;
    at = model->packed.data;
    for (size_t i = model->param_count, in; i < end; i++) {
        bool is_quantised = ash_dtype_block(model->params[i].dtype) > 1;
        size_t bytes = is_quantised ? ash_model_packed_bytes(model, exec, (int32_t)i) : 0;
        struct ash_weight w;

        if (bytes == 0) continue;
        w = ash_weight_stored(model, (int32_t)i, &in);
        exec->ops->matrix->pack(exec, &w, in, 0, w.N, at);
        model->params[i].packed = at;
        at += bytes;
    }
    model->packed_for = exec->ops->matrix;
    model->packed_bf16 = model->round_bf16;
    return 0;
}

void ash_model_unpack(struct ash_model *model)
{
    ash_load_close(model->load); /* it writes there */
    model->load = NULL;
    ash_model_drop_packed(model);
}

/* ---- reading ahead ----------------------------------------------------------------------------------------------- */

/* Parameters are listed in the order of use, but for an embedding: a few of its rows are looked up first, and all of it
 * is read last if it is the output matrix too. */
static void start_prefetch(struct ash_model *model)
{
    size_t embed = (size_t)model->top.param[ASH_ROLE_EMBED], count = 0;
    struct ash_prefetch_range *ranges;

    ranges = calloc(model->param_count, sizeof(*ranges));
    if (ranges == NULL) return;
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];

        if (i != embed)
            ranges[count++] = (struct ash_prefetch_range){param->data, ash_dtype_size(param->dtype, param->count)};
    }
    if (ash_layer_has(&model->top, ASH_ROLE_EMBED) && !ash_layer_has(&model->top, ASH_ROLE_HEAD)) {
        const struct ash_param *param = &model->params[embed];

        ranges[count++] = (struct ash_prefetch_range){param->data, ash_dtype_size(param->dtype, param->count)};
    }
    model->prefetcher = ash_prefetcher_start(ranges, count);
    free(ranges);
}

int ash_model_prefetch(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err)
{
    bool can_pack = ash_model_packs_on_host(exec);

    if (model->values.data != NULL || model->prefetcher != NULL || model->packed_for != NULL) return 0;
    if (ash_model_is_remote(model)) {
        if (!can_pack) return ash_model_bring(model, err);
        return model->load != NULL ? 0 : ash_load_open(model, exec, &model->load, err);
    }
    if (can_pack && ash_load_wanted(model, exec) && ash_load_open(model, exec, &model->load, NULL) == 0) return 0;
    start_prefetch(model);
    return 0;
}
