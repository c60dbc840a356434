/* Matrices as codes, scales and zero points: a matrix is encoded as a whole, row by row on all threads, and kept until
 * another one is. */
#include "model/files/publish_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define CHUNK 4096    /* weights looked at together */
#define FUSED_NEAR 12 /* parameters between layers that share a global scale, at most */
#define NO_PARAM SIZE_MAX

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static void read_row(const struct ash_publish_encoder *encoder, size_t row, size_t cols, float *out)
{
    const struct ash_param *param = &encoder->model->params[encoder->matrix.param];

    if (!param->is_transposed) {
        ash_publish_read(encoder->model, &encoder->factors, encoder->matrix.param, row * cols, cols, out);
        return;
    }
    for (size_t c = 0; c < cols; c++)
        ash_weights_to_f32(param->data, param->dtype, c * param->dims[1] + row, 1, out + c);
}

static void encode_rows(void *ctx, size_t begin, size_t end, int worker)
{
    struct ash_publish_encoder *encoder = ctx;
    const struct ash_encoding *encoding = encoder->encoding;
    struct ash_publish_matrix *matrix = &encoder->matrix;
    const float *ins = encoder->factors.ins[matrix->param];
    size_t code_bytes = encoding->has_zeros ? matrix->cols : ash_encoding_code_bytes(encoding, matrix->cols);
    size_t scales = ash_encoding_scales(encoding, matrix->cols);
    size_t scale_bytes = ash_dtype_size(encoding->scales_dtype, scales);
    float *x = encoder->scratch + 2 * encoder->scratch_cols * (size_t)worker, *decoded = x + encoder->scratch_cols;

    for (size_t row = begin; row < end; row++) {
        double error = 0.0;

        const struct ash_encoded_row out = {matrix->codes + row * code_bytes, matrix->scales + row * scale_bytes,
                                            matrix->zeros + row * scales, decoded};

        read_row(encoder, row, matrix->cols, x);
        encoding->row(encoding, x, matrix->cols, encoder->globals[matrix->param], &out);
        for (size_t i = 0; i < matrix->cols; i++)
            error += pow(((double)x[i] - (double)decoded[i]) / (ins != NULL ? (double)ins[i] : 1.0), 2);
        matrix->errors[row] = error;
    }
}

static void matrix_free(struct ash_publish_matrix *matrix)
{
    free(matrix->codes);
    free(matrix->scales);
    free(matrix->zeros);
    free(matrix->errors);
    *matrix = (struct ash_publish_matrix){.param = NO_PARAM};
}

void ash_publish_shape(const struct ash_param *param, size_t *rows_out, size_t *cols_out)
{
    *rows_out = param->dims[param->is_transposed ? 1 : 0];
    *cols_out = param->dims[param->is_transposed ? 0 : 1];
}

/* AWQ's order: columns first. */
static int turn_columns(struct ash_publish_matrix *matrix, size_t groups)
{
    uint16_t *scales = (uint16_t *)(void *)matrix->scales, *turned = malloc(matrix->rows * groups * sizeof(*turned));
    uint32_t *codes = malloc(matrix->rows * matrix->cols / 2), *zeros = malloc(matrix->rows * groups / 2);

    if (turned == NULL || codes == NULL || zeros == NULL) {
        free(turned);
        free(codes);
        free(zeros);
        return -ENOMEM;
    }
    ash_encode_columns(matrix->codes, matrix->rows, matrix->cols, codes);
    ash_encode_columns(matrix->zeros, matrix->rows, groups, zeros);
    for (size_t g = 0; g < groups; g++)
        for (size_t row = 0; row < matrix->rows; row++)
            turned[g * matrix->rows + row] = scales[row * groups + g];
    free(matrix->codes);
    free(matrix->scales);
    free(matrix->zeros);
    matrix->codes = (uint8_t *)codes;
    matrix->scales = (uint8_t *)turned;
    matrix->zeros = (uint8_t *)zeros;
    return 0;
}

int ash_publish_encode(struct ash_publish_encoder *encoder, size_t index)
{
    const struct ash_encoding *encoding = encoder->encoding;
    struct ash_publish_matrix *matrix = &encoder->matrix;
    size_t scales;
    double error = 0.0;

    if (matrix->param == index) return 0;
    matrix_free(matrix);
    ash_publish_shape(&encoder->model->params[index], &matrix->rows, &matrix->cols);
    scales = ash_encoding_scales(encoding, matrix->cols);
    matrix->codes =
        malloc(matrix->rows * (encoding->has_zeros ? matrix->cols : ash_encoding_code_bytes(encoding, matrix->cols)));
    matrix->scales = malloc(matrix->rows * ash_dtype_size(encoding->scales_dtype, scales));
    matrix->zeros = malloc(matrix->rows * scales);
    matrix->errors = calloc(matrix->rows, sizeof(*matrix->errors));
    if (matrix->codes == NULL || matrix->scales == NULL || matrix->zeros == NULL || matrix->errors == NULL) {
        matrix_free(matrix);
        return -ENOMEM;
    }
    matrix->param = index;
    ash_workers_run(encoder->workers, matrix->rows, 8, encode_rows, encoder);
    for (size_t row = 0; row < matrix->rows; row++)
        error += matrix->errors[row];
    encoder->errors[index] = error;
    return encoding->has_zeros ? turn_columns(matrix, scales) : 0;
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

static int find_globals(struct ash_publish_encoder *encoder, struct ash_err *err)
{
    const struct ash_model *model = encoder->model;
    float tensor_top = encoder->encoding->tensor_top, *tops = calloc(model->param_count, sizeof(*tops));
    int rc = tops != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < model->param_count; i++)
        if (ash_publish_is_quantised(model, encoder->encoding, i)) rc = find_top(&model->params[i], &tops[i], err);
    for (size_t i = 0; rc == 0 && i < model->param_count; i++) {
        size_t first = i > FUSED_NEAR ? i - FUSED_NEAR : 0, end = ash_min(i + FUSED_NEAR + 1, model->param_count);
        float top = tops[i];

        for (size_t j = first; tops[i] > 0 && j < end; j++)
            if (ash_publish_are_fused(model->params[i].name, model->params[j].name)) top = fmaxf(top, tops[j]);
        encoder->globals[i] = tensor_top > 0 && top > 0 && isfinite(tensor_top / top) ? tensor_top / top : 1.0f;
    }
    free(tops);
    return rc;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_publish_encoder_open(struct ash_publish_encoder *encoder, const struct ash_inputs *inputs, struct ash_err *err)
{
    const struct ash_model *model = encoder->model;
    int rc = ash_workers_open(0, &encoder->workers, err);

    if (rc < 0) return rc;
    encoder->matrix.param = NO_PARAM;
    for (size_t i = 0; i < model->param_count; i++)
        encoder->scratch_cols =
            ash_max(encoder->scratch_cols, ash_max(model->params[i].dims[0], model->params[i].dims[1]));
    encoder->globals = calloc(model->param_count, sizeof(*encoder->globals));
    encoder->errors = calloc(model->param_count, sizeof(*encoder->errors));
    encoder->scratch = calloc(2 * encoder->scratch_cols * (size_t)ash_workers_count(encoder->workers), sizeof(float));
    if (encoder->globals == NULL || encoder->errors == NULL || encoder->scratch == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for quantising");
    rc = find_globals(encoder, err);
    if (rc < 0) return rc;
    return ash_publish_find_factors(model, encoder->encoding, inputs, encoder->workers, &encoder->factors, err);
}

void ash_publish_encoder_close(struct ash_publish_encoder *encoder)
{
    matrix_free(&encoder->matrix);
    ash_publish_factors_fini(&encoder->factors);
    free(encoder->scratch);
    free(encoder->errors);
    free(encoder->globals);
    ash_workers_close(encoder->workers);
}
