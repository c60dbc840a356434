/* Latent attention in GGUF files. llama.cpp multiplies a query by the matrix that makes keys of compressed rows, so its
 * files have that matrix and the one of values apart, the first the other way round for each head. Here they are put
 * together again, in memory of their own: as they are stored if that is whole values, else as float32. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/gguf_reader.h"
#include "model/weight.h"
#include "storage/io/remote_file.h"

#define GROUPED_EXPERTS 256 /* of DeepSeek-V3, whose older files do not say that they are in groups */

int ash_gguf_add_latent(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    int64_t rope = 0, key = 0, value = 0;
    int rc = ash_gguf_get_int(reader, "rope.dimension_count", &rope, err);

    /* in older files of heads, in newer ones of the one that llama.cpp caches */
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.key_length", &key, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.value_length", &value, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.key_length_mla", &key, err);
    if (rc >= 0) rc = ash_gguf_get_int(reader, "attention.value_length_mla", &value, err);
    if (rc < 0) return rc;
    if (rope <= 0 || key <= rope || value <= 0)
        return ash_err_set(err, -EINVAL,
                           "the metadata do not give the widths of keys (%d, %d of them rotated) and values", (int)key,
                           (int)rope);
    json_object_set_new(json, "head_dim", json_integer(key));
    json_object_set_new(json, "qk_rope_head_dim", json_integer(rope));
    json_object_set_new(json, "qk_nope_head_dim", json_integer(key - rope));
    json_object_set_new(json, "v_head_dim", json_integer(value));
    json_object_del(json, "num_key_value_heads");
    if (json_object_get(json, "q_lora_rank") == NULL) json_object_set_new(json, "q_lora_rank", json_null());
    if (json_object_get(json, "n_group") != NULL || reader->experts == GROUPED_EXPERTS) return 0;
    json_object_set_new(json, "n_group", json_integer(1));
    json_object_set_new(json, "topk_group", json_integer(1));
    return 0;
}

/* The two halves of a layer's matrix, in memory; views_out: keys', values'. */
static int find_halves(const struct ash_model *model, struct ash_gguf *file, unsigned layer,
                       const struct ash_tensor_view *views_out[2], struct ash_err *err)
{
    static const char *const names[2] = {ASH_GGUF_K_UP, ASH_GGUF_V_UP};
    const struct ash_model_config *c = &model->whole;
    const size_t dims[2][3] = {{c->heads, c->kv_rank, c->nope_dim}, {c->heads, c->v_dim, c->kv_rank}};
    struct ash_direct_range ranges[2];
    char name[96];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "blk.%u.%s", layer, names[i]);
        views_out[i] = ash_gguf_find(file, name);
        if (views_out[i] == NULL) return ash_err_set(err, -ENOENT, "it lacks tensor '%s'", name);
        if (views_out[i]->dim_count != 3 || memcmp(views_out[i]->dims, dims[i], sizeof(dims[i])) != 0)
            return ash_err_set(err, -EINVAL, "tensor '%s' does not have the shape that the metadata give it", name);
        ranges[i] = (struct ash_direct_range){ash_gguf_map(file, views_out[i]->data), views_out[i]->data,
                                              views_out[i]->size_bytes};
    }
    return ash_remote_file_bring(ranges, 2, err);
}

static enum ash_dtype dtype_of(const struct ash_tensor_view *const views[2])
{
    return views[0]->dtype == views[1]->dtype && ash_dtype_block(views[0]->dtype) == 1 ? views[0]->dtype : ASH_F32;
}

/* Elements of 2 or 4 bytes, with a stride between those that are read. */
static void copy_column(const char *from, size_t stride, size_t count, size_t width, char *to)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * width, from + i * stride * width, width);
}

/* Of one head: its rows of keys, the file's columns, then those of values. wide has room for its larger half. */
static void join_head(const struct ash_model_config *c, const struct ash_tensor_view *const views[2], size_t head,
                      enum ash_dtype dtype, float *wide, char *out)
{
    size_t keys = c->nope_dim * c->kv_rank, values = c->v_dim * c->kv_rank, width = ash_dtype_bytes(dtype);
    const char *from[2];

    for (int i = 0; i < 2; i++) {
        size_t count = i == 0 ? keys : values;

        from[i] = (const char *)views[i]->data + ash_dtype_size(views[i]->dtype, head * count);
        if (views[i]->dtype != dtype) {
            ash_weights_to_f32(views[i]->data, views[i]->dtype, head * count, count, wide);
            from[i] = (const char *)wide;
        }
        if (i == 1) memcpy(out + keys * width, from[1], values * width);
        for (size_t row = 0; i == 0 && row < c->nope_dim; row++)
            copy_column(from[0] + row * width, c->nope_dim, c->kv_rank, width, out + row * c->kv_rank * width);
    }
}

/* The halves of all layers; at is NULL while they are only measured. */
struct joining {
    struct ash_model *model;
    struct ash_gguf *file;
    bool *used;
    char *at;
    float *wide;
};

static int join(const struct joining *joining, size_t *bytes_out, struct ash_err *err)
{
    struct ash_model *model = joining->model;
    struct ash_gguf *file = joining->file;
    const struct ash_model_config *c = &model->whole;
    char *at = joining->at;
    size_t bytes = 0;

    for (size_t i = 0; i < model->config.layers; i++) {
        int32_t index = model->layers[i].param[ASH_ROLE_KV_UP];
        const struct ash_tensor_view *views[2];
        size_t head_bytes;
        int rc;

        if (index == ASH_NO_PARAM || model->params[index].data != NULL) continue;
        rc = find_halves(model, file, model->layer_ids[i], views, err);
        if (rc < 0) return rc;
        head_bytes = ash_dtype_size(dtype_of(views), (c->nope_dim + c->v_dim) * c->kv_rank);
        for (size_t head = 0; at != NULL && head < c->heads; head++)
            join_head(c, views, head, dtype_of(views), joining->wide, at + bytes + head * head_bytes);
        if (at != NULL) {
            model->params[index].data = at + bytes;
            model->params[index].dtype = dtype_of(views);
            joining->used[views[0] - ash_gguf_at(file, 0)] = true;
            joining->used[views[1] - ash_gguf_at(file, 0)] = true;
        }
        bytes += c->heads * head_bytes;
    }
    *bytes_out = bytes;
    return 0;
}

int ash_gguf_join_latent(struct ash_model *model, struct ash_gguf *file, bool *used, struct ash_err *err)
{
    const struct ash_model_config *c = &model->whole;
    struct joining joining = {.model = model, .file = file, .used = used};
    size_t bytes = 0;
    int rc;

    if (c->attn != ASH_ATTN_LATENT) return 0;
    rc = join(&joining, &bytes, err);
    if (rc < 0 || bytes == 0) return rc;
    model->joined = malloc(bytes);
    joining.at = model->joined;
    joining.wide = malloc((c->nope_dim + c->v_dim) * c->kv_rank * sizeof(*joining.wide));
    if (model->joined == NULL || joining.wide == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for %zu bytes of latent attention's matrices", bytes);
    else
        rc = join(&joining, &bytes, err);
    free(joining.wide);
    return rc;
}
