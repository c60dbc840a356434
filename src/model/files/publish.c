/* A folder of quantised weights. A tensor of the model becomes several in the files: codes, scales, perhaps a global
 * scale. */
#include "model/files/publish.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/math.h"
#include "base/workers.h"
#include "model/files/publish_priv.h"
#include "model/model_priv.h"
#include "model/stored.h"
#include "model/weight.h"
#include "storage/safetensors/safetensors.h"

#define CHUNK 4096 /* plain weights converted at a time */

/* A tensor of the files. */
struct entry {
    size_t param; /* the first of those that are parts of it */
    enum { PLAIN, CODES, SCALES, ZEROS, GLOBAL } what;
    char name[160];
};

struct publisher {
    struct ash_publish_encoder encoder;
    const struct ash_save_watch *watch;
    enum ash_dtype plain;
    struct entry *entries;
    size_t done, total; /* weights, for watch */
};

/* ---- the files --------------------------------------------------------------------------------------------------- */

static int fill_plain(struct publisher *publisher, size_t first_param, size_t first_byte, char *buf, size_t size_bytes)
{
    size_t width = ash_dtype_bytes(publisher->plain), count = size_bytes / width, first = first_byte / width, part;
    float values[CHUNK];

    for (size_t done = 0; done < count; done += part) {
        size_t each = publisher->encoder.model->params[first_param].count, at = (first + done) % each;
        size_t param = first_param + (first + done) / each;
        uint16_t *half = (uint16_t *)(void *)(buf + done * width);

        part = ash_min(ash_min(count - done, (size_t)CHUNK), each - at);
        ash_publish_read(publisher->encoder.model, &publisher->encoder.factors, param, at, part, values);
        for (size_t i = 0; i < part; i++)
            half[i] = publisher->plain == ASH_F16 ? ash_f32_to_f16(values[i]) : ash_f32_to_bf16(values[i]);
        publisher->done += part;
    }
    return 0;
}

/* Bytes of a matrix's codes, scales or zero points in the files. */
static size_t encoded_bytes(const struct ash_encoding *encoding, const struct entry *entry, size_t rows, size_t cols)
{
    size_t scales = ash_encoding_scales(encoding, cols);

    if (entry->what == CODES) return rows * ash_encoding_code_bytes(encoding, cols);
    return entry->what == SCALES ? rows * ash_dtype_size(encoding->scales_dtype, scales) : rows * scales / 2;
}

/* Codes, scales or zero points of the matrices that are parts of a tensor, one after the other. */
static int fill_encoded(struct publisher *publisher, const struct entry *entry, size_t first_byte, char *buf,
                        size_t size_bytes)
{
    const struct ash_encoding *encoding = publisher->encoder.encoding;
    const struct ash_publish_matrix *matrix = &publisher->encoder.matrix;
    size_t rows, cols, each, part;

    ash_publish_shape(&publisher->encoder.model->params[entry->param], &rows, &cols);
    each = encoded_bytes(encoding, entry, rows, cols);
    for (size_t done = 0; done < size_bytes; done += part) {
        size_t at = (first_byte + done) % each;
        int rc = ash_publish_encode(&publisher->encoder, entry->param + (first_byte + done) / each);

        if (rc < 0) return rc;
        part = ash_min(size_bytes - done, each - at);
        memcpy(buf + done,
               (entry->what == CODES    ? matrix->codes
                : entry->what == SCALES ? matrix->scales
                                        : matrix->zeros) +
                   at,
               part);
        if (entry->what == CODES) publisher->done += part * 8 / encoding->code_bits;
    }
    return 0;
}

static int fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    struct publisher *publisher = ctx;
    const struct entry *entry = &publisher->entries[index];
    int rc = 0;

    if (entry->what == PLAIN)
        rc = fill_plain(publisher, entry->param, first_byte, buf, size_bytes);
    else if (entry->what == GLOBAL)
        memcpy(buf, (const char *)&publisher->encoder.globals[entry->param] + first_byte, size_bytes);
    else
        rc = fill_encoded(publisher, entry, first_byte, buf, size_bytes);
    if (rc == 0 && publisher->watch != NULL)
        publisher->watch->saved(publisher->watch->ctx, publisher->done, publisher->total);
    return rc;
}

/* Add a tensor; suffix in the place of ".weight". */
static struct ash_tensor_spec *add(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count,
                                   struct entry entry, const char *suffix)
{
    const struct ash_param *param = &publisher->encoder.model->params[entry.param];
    size_t length = param->parts > 0 ? strcspn(param->name, "[") : strlen(param->name);
    struct ash_tensor_spec *spec = &specs[*count];

    if (entry.what != PLAIN && param->parts == 0) length -= strlen(".weight");
    snprintf(entry.name, sizeof(entry.name), "%.*s%s", (int)length, param->name, suffix);
    publisher->entries[*count] = entry;
    spec->name = publisher->entries[*count].name;
    (*count)++;
    return spec;
}

static void add_plain(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count, size_t index)
{
    const struct ash_param *param = &publisher->encoder.model->params[index];
    struct ash_tensor_spec *spec = add(publisher, specs, count, (struct entry){.param = index, .what = PLAIN}, "");
    struct ash_stored stored = ash_param_stored(param, param->dims);

    spec->dtype = publisher->plain;
    spec->dim_count = stored.dim_count;
    memcpy(spec->dims, stored.dims, sizeof(stored.dims));
}

/* gpt-oss's experts: [experts, outputs, blocks of inputs, 16 bytes]. */
static void add_experts(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count, size_t index)
{
    const struct ash_param *param = &publisher->encoder.model->params[index];
    size_t block = publisher->encoder.encoding->block, rows, cols;
    struct ash_tensor_spec *spec;

    ash_publish_shape(param, &rows, &cols);
    spec = add(publisher, specs, count, (struct entry){.param = index, .what = CODES}, "_blocks");
    spec->dtype = ASH_U8;
    spec->dim_count = 4;
    memcpy(spec->dims, (size_t[]){param->parts, rows, cols / block, block / 2}, 4 * sizeof(size_t));
    spec = add(publisher, specs, count, (struct entry){.param = index, .what = SCALES}, "_scales");
    spec->dtype = ASH_U8;
    spec->dim_count = 3;
    memcpy(spec->dims, (size_t[]){param->parts, rows, cols / block}, 3 * sizeof(size_t));
}

static void add_layer(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count, size_t index)
{
    const struct ash_param *param = &publisher->encoder.model->params[index];
    const struct ash_encoding *encoding = publisher->encoder.encoding;
    size_t code_bytes = ash_encoding_code_bytes(encoding, param->dims[1]);
    struct ash_tensor_spec *spec = add(publisher, specs, count, (struct entry){.param = index, .what = CODES},
                                       encoding->code_bits == 8 ? ".weight" : ".weight_packed");

    spec->dtype = encoding->codes_dtype;
    spec->dim_count = 2;
    memcpy(spec->dims, (size_t[]){param->dims[0], code_bytes}, 2 * sizeof(size_t));
    spec = add(publisher, specs, count, (struct entry){.param = index, .what = SCALES}, ".weight_scale");
    spec->dtype = encoding->scales_dtype;
    spec->dim_count = 2;
    memcpy(spec->dims, (size_t[]){param->dims[0], ash_encoding_scales(encoding, param->dims[1])}, 2 * sizeof(size_t));
    if (encoding->tensor_top == 0) return;
    spec = add(publisher, specs, count, (struct entry){.param = index, .what = GLOBAL}, ".weight_global_scale");
    spec->dtype = ASH_F32;
    spec->dim_count = 1;
    spec->dims[0] = 1;
}

/* AWQ's: words [inputs, outputs / 8], and for each block of inputs. */
static void add_columns(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count, size_t index)
{
    const struct ash_param *param = &publisher->encoder.model->params[index];
    size_t rows = param->dims[0], groups = ash_encoding_scales(publisher->encoder.encoding, param->dims[1]);
    const struct {
        struct entry entry;
        const char *suffix;
        enum ash_dtype dtype;
        size_t dims[2];
    } parts[] = {{{.param = index, .what = CODES}, ".qweight", ASH_I32, {param->dims[1], rows / 8}},
                 {{.param = index, .what = ZEROS}, ".qzeros", ASH_I32, {groups, rows / 8}},
                 {{.param = index, .what = SCALES}, ".scales", ASH_F16, {groups, rows}}};

    for (size_t i = 0; i < ASH_COUNT(parts); i++) {
        struct ash_tensor_spec *spec = add(publisher, specs, count, parts[i].entry, parts[i].suffix);

        spec->dtype = parts[i].dtype;
        spec->dim_count = 2;
        memcpy(spec->dims, parts[i].dims, sizeof(parts[i].dims));
    }
}

static int write_weights(struct publisher *publisher, const char *dir, size_t max_shard_bytes, struct ash_err *err)
{
    const struct ash_model *model = publisher->encoder.model;
    struct ash_tensor_spec *specs = calloc(3 * model->param_count, sizeof(*specs));
    size_t count = 0;
    int rc;

    publisher->entries = calloc(3 * model->param_count, sizeof(*publisher->entries));
    if (specs == NULL || publisher->entries == NULL) {
        free(specs);
        return ash_err_set(err, -ENOMEM, "out of memory for the list of tensors");
    }
    for (size_t i = 0; i < model->param_count; i++) {
        if (model->params[i].parts > 0 && model->params[i].part > 0) continue;
        if (!ash_publish_is_quantised(model, publisher->encoder.encoding, i))
            add_plain(publisher, specs, &count, i);
        else
            (model->params[i].parts > 0               ? add_experts
             : publisher->encoder.encoding->has_zeros ? add_columns
                                                      : add_layer)(publisher, specs, &count, i);
    }
    rc = ash_dir_make(dir, err);
    if (rc == 0) rc = ash_safetensors_write_folder(dir, specs, count, max_shard_bytes, fill, publisher, err);
    free(specs);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum ash_dtype plain_dtype(const struct ash_model *model)
{
    for (size_t i = 0; i < model->param_count; i++)
        if (model->params[i].is_matrix && model->params[i].dtype == ASH_F16) return ASH_F16;
    return ASH_BF16;
}

static double squares_of(const struct ash_param *param)
{
    float values[CHUNK];
    double sum = 0.0;

    for (size_t at = 0; at < param->count; at += CHUNK) {
        size_t count = ash_min(param->count - at, (size_t)CHUNK);

        ash_weights_to_f32(param->data, param->dtype, at, count, values);
        for (size_t i = 0; i < count; i++)
            sum += pow((double)values[i], 2);
    }
    return sum;
}

static void add_up(const struct publisher *publisher, struct ash_publish_cost *cost)
{
    const struct ash_encoding *encoding = publisher->encoder.encoding;
    double bits = 0.0, error = 0.0, size = 0.0;

    *cost = (struct ash_publish_cost){0};
    for (size_t i = 0; i < publisher->encoder.model->param_count; i++) {
        const struct ash_param *param = &publisher->encoder.model->params[i];
        size_t rows, cols;

        if (!ash_publish_is_quantised(publisher->encoder.model, encoding, i)) continue;
        ash_publish_shape(param, &rows, &cols);
        bits += 8.0 * (double)rows *
                (double)(ash_encoding_code_bytes(encoding, cols) +
                         ash_dtype_size(encoding->scales_dtype, ash_encoding_scales(encoding, cols)));
        if (encoding->tensor_top > 0) bits += 8.0 * sizeof(float);
        if (encoding->has_zeros) bits += 4.0 * (double)(rows * ash_encoding_scales(encoding, cols));
        error += publisher->encoder.errors[i];
        size += squares_of(param);
        cost->weights += param->count;
        if (param->part == 0) cost->tensors++;
    }
    cost->bits = cost->weights > 0 ? bits / (double)cost->weights : 0.0;
    cost->error = size > 0 ? sqrt(error / size) : 0.0;
}

int ash_model_publish(const struct ash_model *model, const struct ash_publish_opts *opts,
                      struct ash_publish_cost *cost_out, struct ash_err *err)
{
    const struct ash_encoding *encoding = ash_encoding_fit(opts->encoding, model->config.hidden);
    struct publisher publisher = {.encoder = {.model = model, .encoding = encoding},
                                  .watch = opts->watch,
                                  .plain = plain_dtype(model),
                                  .total = ash_model_weight_count(model)};
    int rc = ash_publish_check(model, encoding, err);

    if (rc < 0) return rc;
    rc = ash_publish_encoder_open(&publisher.encoder, opts->inputs, err);
    if (rc == 0) rc = write_weights(&publisher, opts->dir, opts->max_shard_bytes, err);
    if (rc == 0) rc = ash_model_save_config(model, opts->dir, publisher.plain, err);
    if (rc == 0) rc = ash_publish_write_config(model, encoding, opts->dir, err);
    if (rc == 0) add_up(&publisher, cost_out);
    ash_publish_encoder_close(&publisher.encoder);
    free(publisher.entries);
    return rc;
}
