/* A folder of quantised weights. A tensor of the model becomes several in the files: codes, scales, perhaps a global
 * scale. A matrix is encoded as a whole when one of them is asked for, and kept until another matrix is. */
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
#include "model/weight.h"
#include "storage/safetensors/safetensors.h"

#define CHUNK 4096    /* plain weights converted at a time */
#define FUSED_NEAR 12 /* parameters between layers that share a global scale, at most */
#define NO_PARAM SIZE_MAX

/* A tensor of the files. */
struct entry {
    size_t param; /* the first of those that are parts of it */
    enum { PLAIN, CODES, SCALES, GLOBAL } what;
    char name[160];
};

/* A matrix as codes: rows are outputs. */
struct matrix {
    size_t param, rows, cols;
    uint8_t *codes, *scales;
    double *errors; /* [rows]: squared */
};

struct publisher {
    const struct ash_model *model;
    const struct ash_encoding *encoding;
    const struct ash_save_watch *watch;
    enum ash_dtype plain;
    struct ash_workers *workers;
    float *scratch; /* of each worker: a row, and what a reader makes of it */
    size_t scratch_cols;
    float *globals; /* [param_count]: what scales are multiplied by */
    double *errors; /* [param_count]: squared */
    struct entry *entries;
    struct matrix matrix;
    size_t done, total; /* weights, for watch */
};

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static void read_row(const struct ash_param *param, size_t row, size_t cols, float *out)
{
    if (!param->is_transposed) {
        ash_weights_to_f32(param->data, param->dtype, row * cols, cols, out);
        return;
    }
    for (size_t c = 0; c < cols; c++)
        ash_weights_to_f32(param->data, param->dtype, c * param->dims[1] + row, 1, out + c);
}

static void encode_rows(void *ctx, size_t begin, size_t end, int worker)
{
    struct publisher *publisher = ctx;
    const struct ash_encoding *encoding = publisher->encoding;
    struct matrix *matrix = &publisher->matrix;
    const struct ash_param *param = &publisher->model->params[matrix->param];
    size_t code_bytes = ash_encoding_code_bytes(encoding, matrix->cols);
    size_t scale_bytes = ash_dtype_size(encoding->scales_dtype, ash_encoding_scales(encoding, matrix->cols));
    float *x = publisher->scratch + 2 * publisher->scratch_cols * (size_t)worker,
          *decoded = x + publisher->scratch_cols;

    for (size_t row = begin; row < end; row++) {
        double error = 0.0;

        read_row(param, row, matrix->cols, x);
        encoding->row(x, matrix->cols, publisher->globals[matrix->param], matrix->codes + row * code_bytes,
                      matrix->scales + row * scale_bytes, decoded);
        for (size_t i = 0; i < matrix->cols; i++)
            error += pow((double)x[i] - (double)decoded[i], 2);
        matrix->errors[row] = error;
    }
}

static void matrix_free(struct matrix *matrix)
{
    free(matrix->codes);
    free(matrix->scales);
    free(matrix->errors);
    *matrix = (struct matrix){.param = NO_PARAM};
}

/* Rows and columns of a parameter as others store it: outputs, inputs. */
static void shape_of(const struct ash_param *param, size_t *rows_out, size_t *cols_out)
{
    *rows_out = param->dims[param->is_transposed ? 1 : 0];
    *cols_out = param->dims[param->is_transposed ? 0 : 1];
}

static int encode_param(struct publisher *publisher, size_t index)
{
    const struct ash_encoding *encoding = publisher->encoding;
    struct matrix *matrix = &publisher->matrix;
    double error = 0.0;

    if (matrix->param == index) return 0;
    matrix_free(matrix);
    shape_of(&publisher->model->params[index], &matrix->rows, &matrix->cols);
    matrix->codes = malloc(matrix->rows * ash_encoding_code_bytes(encoding, matrix->cols));
    matrix->scales =
        malloc(matrix->rows * ash_dtype_size(encoding->scales_dtype, ash_encoding_scales(encoding, matrix->cols)));
    matrix->errors = calloc(matrix->rows, sizeof(*matrix->errors));
    if (matrix->codes == NULL || matrix->scales == NULL || matrix->errors == NULL) {
        matrix_free(matrix);
        return -ENOMEM;
    }
    matrix->param = index;
    ash_workers_run(publisher->workers, matrix->rows, 8, encode_rows, publisher);
    for (size_t row = 0; row < matrix->rows; row++)
        error += matrix->errors[row];
    publisher->errors[index] = error;
    return 0;
}

/* ---- global scales ----------------------------------------------------------------------------------------------- */

/* The largest weight. */
static int find_top(const struct ash_param *param, float *top_out, struct ash_err *err)
{
    float values[CHUNK], top = 0.0f;

    for (size_t at = 0; at < param->count; at += CHUNK) {
        size_t count = ash_min(param->count - at, (size_t)CHUNK);

        ash_weights_to_f32(param->data, param->dtype, at, count, values);
        for (size_t i = 0; i < count; i++) {
            if (!isfinite(values[i]))
                return ash_err_set(err, -ERANGE, "tensor '%s' holds %g, which cannot be quantised", param->name,
                                   (double)values[i]);
            top = fmaxf(top, fabsf(values[i]));
        }
    }
    *top_out = top;
    return 0;
}

static int find_globals(struct publisher *publisher, struct ash_err *err)
{
    const struct ash_model *model = publisher->model;
    float tensor_top = publisher->encoding->tensor_top, *tops = calloc(model->param_count, sizeof(*tops));
    int rc = tops != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < model->param_count; i++)
        if (ash_publish_is_quantised(model, publisher->encoding, i)) rc = find_top(&model->params[i], &tops[i], err);
    for (size_t i = 0; rc == 0 && i < model->param_count; i++) {
        size_t first = i > FUSED_NEAR ? i - FUSED_NEAR : 0, end = ash_min(i + FUSED_NEAR + 1, model->param_count);
        float top = tops[i];

        for (size_t j = first; tops[i] > 0 && j < end; j++)
            if (ash_publish_are_fused(model->params[i].name, model->params[j].name)) top = fmaxf(top, tops[j]);
        publisher->globals[i] = tensor_top > 0 && top > 0 && isfinite(tensor_top / top) ? tensor_top / top : 1.0f;
    }
    free(tops);
    return rc;
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

static int fill_plain(struct publisher *publisher, size_t first_param, size_t first_byte, char *buf, size_t size_bytes)
{
    size_t width = ash_dtype_bytes(publisher->plain), count = size_bytes / width, first = first_byte / width, part;
    float values[CHUNK];

    for (size_t done = 0; done < count; done += part) {
        size_t each = publisher->model->params[first_param].count, at = (first + done) % each;
        const struct ash_param *param = &publisher->model->params[first_param + (first + done) / each];
        uint16_t *half = (uint16_t *)(void *)(buf + done * width);

        part = ash_min(ash_min(count - done, (size_t)CHUNK), each - at);
        ash_weights_to_f32(param->data, param->dtype, at, part, values);
        for (size_t i = 0; i < part; i++)
            half[i] = publisher->plain == ASH_F16 ? ash_f32_to_f16(values[i]) : ash_f32_to_bf16(values[i]);
        publisher->done += part;
    }
    return 0;
}

/* Codes or scales of the matrices that are parts of a tensor, one after the other. */
static int fill_encoded(struct publisher *publisher, const struct entry *entry, size_t first_byte, char *buf,
                        size_t size_bytes)
{
    const struct ash_encoding *encoding = publisher->encoding;
    size_t rows, cols, each, part;

    shape_of(&publisher->model->params[entry->param], &rows, &cols);
    each = rows * (entry->what == CODES ? ash_encoding_code_bytes(encoding, cols)
                                        : ash_dtype_size(encoding->scales_dtype, ash_encoding_scales(encoding, cols)));
    for (size_t done = 0; done < size_bytes; done += part) {
        size_t at = (first_byte + done) % each;
        int rc = encode_param(publisher, entry->param + (first_byte + done) / each);

        if (rc < 0) return rc;
        part = ash_min(size_bytes - done, each - at);
        memcpy(buf + done, (entry->what == CODES ? publisher->matrix.codes : publisher->matrix.scales) + at, part);
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
        memcpy(buf, (const char *)&publisher->globals[entry->param] + first_byte, size_bytes);
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
    const struct ash_param *param = &publisher->model->params[entry.param];
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
    const struct ash_param *param = &publisher->model->params[index];
    struct ash_tensor_spec *spec = add(publisher, specs, count, (struct entry){.param = index, .what = PLAIN}, "");
    int first = param->parts > 0 ? 1 : 0;

    spec->dtype = publisher->plain;
    spec->dim_count = first + param->dim_count;
    spec->dims[0] = param->parts;
    for (int i = 0; i < param->dim_count; i++)
        spec->dims[first + i] = param->dims[i];
}

/* gpt-oss's experts: [experts, outputs, blocks of inputs, 16 bytes]. */
static void add_experts(struct publisher *publisher, struct ash_tensor_spec *specs, size_t *count, size_t index)
{
    const struct ash_param *param = &publisher->model->params[index];
    size_t block = publisher->encoding->block, rows, cols;
    struct ash_tensor_spec *spec;

    shape_of(param, &rows, &cols);
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
    const struct ash_param *param = &publisher->model->params[index];
    const struct ash_encoding *encoding = publisher->encoding;
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

static int write_weights(struct publisher *publisher, const char *dir, size_t max_shard_bytes, struct ash_err *err)
{
    const struct ash_model *model = publisher->model;
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
        if (!ash_publish_is_quantised(model, publisher->encoding, i))
            add_plain(publisher, specs, &count, i);
        else
            (model->params[i].parts > 0 ? add_experts : add_layer)(publisher, specs, &count, i);
    }
    rc = ash_dir_make(dir, err);
    if (rc == 0) rc = ash_safetensors_write_folder(dir, specs, count, max_shard_bytes, fill, publisher, err);
    free(specs);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int open_publisher(struct publisher *publisher, struct ash_err *err)
{
    const struct ash_model *model = publisher->model;
    int rc = ash_workers_open(0, &publisher->workers, err);

    if (rc < 0) return rc;
    publisher->matrix.param = NO_PARAM;
    publisher->plain = ASH_BF16;
    for (size_t i = 0; i < model->param_count; i++) {
        publisher->scratch_cols =
            ash_max(publisher->scratch_cols, ash_max(model->params[i].dims[0], model->params[i].dims[1]));
        if (model->params[i].is_matrix && model->params[i].dtype == ASH_F16) publisher->plain = ASH_F16;
    }
    publisher->total = ash_model_weight_count(model);
    publisher->globals = calloc(model->param_count, sizeof(*publisher->globals));
    publisher->errors = calloc(model->param_count, sizeof(*publisher->errors));
    publisher->scratch =
        calloc(2 * publisher->scratch_cols * (size_t)ash_workers_count(publisher->workers), sizeof(float));
    if (publisher->globals == NULL || publisher->errors == NULL || publisher->scratch == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for quantising");
    return find_globals(publisher, err);
}

static void close_publisher(struct publisher *publisher)
{
    matrix_free(&publisher->matrix);
    free(publisher->entries);
    free(publisher->scratch);
    free(publisher->errors);
    free(publisher->globals);
    ash_workers_close(publisher->workers);
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
    const struct ash_encoding *encoding = publisher->encoding;
    double bits = 0.0, error = 0.0, size = 0.0;

    *cost = (struct ash_publish_cost){0};
    for (size_t i = 0; i < publisher->model->param_count; i++) {
        const struct ash_param *param = &publisher->model->params[i];
        size_t rows, cols;

        if (!ash_publish_is_quantised(publisher->model, encoding, i)) continue;
        shape_of(param, &rows, &cols);
        bits += 8.0 * (double)rows *
                (double)(ash_encoding_code_bytes(encoding, cols) +
                         ash_dtype_size(encoding->scales_dtype, ash_encoding_scales(encoding, cols)));
        if (encoding->tensor_top > 0) bits += 8.0 * sizeof(float);
        error += publisher->errors[i];
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
    struct publisher publisher = {.model = model, .encoding = opts->encoding, .watch = opts->watch};
    int rc = ash_publish_check(model, opts->encoding, err);

    if (rc < 0) return rc;
    rc = open_publisher(&publisher, err);
    if (rc == 0) rc = write_weights(&publisher, opts->dir, opts->max_shard_bytes, err);
    if (rc == 0) rc = ash_model_save_config(model, opts->dir, publisher.plain, err);
    if (rc == 0) rc = ash_publish_write_config(model, opts->encoding, opts->dir, err);
    if (rc == 0) add_up(&publisher, cost_out);
    close_publisher(&publisher);
    return rc;
}
