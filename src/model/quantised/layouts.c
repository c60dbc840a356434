/* The layouts of quantised weights, and what several of them share: finding parts, checking shapes, scales. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/fp8.h"
#include "base/math.h"
#include "model/quantised/quantised_priv.h"

const struct ash_stored_layout *const ash_stored_layouts[] = {&ash_quant_fp8,
                                                              &ash_quant_int8,
                                                              &ash_quant_nvfp4,
                                                              &ash_quant_mxfp4,
                                                              &ash_quant_mxfp4_experts,
                                                              &ash_quant_packed,
                                                              &ash_quant_awq,
                                                              &ash_quant_gptq,
                                                              &ash_quant_bnb4,
                                                              &ash_quant_bnb8,
                                                              NULL};

#define WEIGHT_SUFFIX ".weight"

const struct ash_tensor_view *ash_quant_part_find(const struct ash_safetensors *files,
                                                  const struct ash_quant_tensor *tensor, const char *suffix)
{
    size_t length = strlen(tensor->name), end = strlen(WEIGHT_SUFFIX);
    char name[192];

    if (length >= end && strcmp(tensor->name + length - end, WEIGHT_SUFFIX) == 0) length -= end;
    if (snprintf(name, sizeof(name), "%.*s%s", (int)length, tensor->name, suffix) >= (int)sizeof(name)) return NULL;
    return ash_safetensors_find(files, name);
}

static bool has_shape(const struct ash_tensor_view *view, size_t rows, size_t cols)
{
    if (cols == 0) return ash_tensor_count(view) == rows;
    return view->dim_count == 2 && view->dims[0] == rows && view->dims[1] == cols;
}

int ash_quant_part_check(const struct ash_quant_tensor *tensor, const struct ash_tensor_view *view,
                         enum ash_dtype dtype, size_t rows, size_t cols, struct ash_err *err)
{
    if (view == NULL)
        return ash_err_set(err, -EINVAL, "quantised tensor '%s' lacks a part (%s): is the folder complete?",
                           tensor->name, tensor->layout->name);
    if (view->dtype != dtype)
        return ash_err_set(err, -EINVAL, "tensor '%.120s' is %s but should be %s (%s)", view->name,
                           ash_dtype_name(view->dtype), ash_dtype_name(dtype), tensor->layout->name);
    if (!has_shape(view, rows, cols))
        return ash_err_set(err, -EINVAL, "tensor '%.120s' does not have the shape that config.json gives it (%s)",
                           view->name, tensor->layout->name);
    return 0;
}

static bool is_float(enum ash_dtype dtype)
{
    return dtype == ASH_F32 || dtype == ASH_BF16 || dtype == ASH_F16 || dtype == ASH_F8_E4M3;
}

int ash_quant_scales_bind(struct ash_quant_tensor *tensor, const struct ash_tensor_view *view, struct ash_err *err)
{
    size_t cols = ash_div_up(tensor->cols, tensor->block_cols),
           rows = ash_div_up(tensor->rows, tensor->block_rows) * cols;
    enum ash_dtype dtype = view != NULL && is_float(view->dtype) ? view->dtype : ASH_F32;

    tensor->scale_row_step = cols;
    tensor->scale_col_step = 1;
    tensor->parts[ASH_PART_SCALES] = view;
    return ash_quant_part_check(tensor, view, dtype, rows, 0, err);
}

float ash_quant_float_at(const struct ash_tensor_view *view, size_t index)
{
    switch (view->dtype) {
    case ASH_BF16:
        return ash_bf16_to_f32(((const uint16_t *)view->data)[index]);
    case ASH_F16:
        return ash_f16_to_f32(((const uint16_t *)view->data)[index]);
    case ASH_F8_E4M3:
        return ash_e4m3_to_f32(((const uint8_t *)view->data)[index]);
    case ASH_U8:
        return ash_e8m0_to_f32(((const uint8_t *)view->data)[index]);
    default:
        return ((const float *)view->data)[index];
    }
}

void ash_quant_scale_row(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    size_t base = row / tensor->block_rows * tensor->scale_row_step, part;
    const struct ash_tensor_view *scales = tensor->parts[ASH_PART_SCALES], *global = tensor->parts[ASH_PART_GLOBAL];
    float factor = global != NULL ? ash_quant_float_at(global, 0) : 1.0f;

    ash_assert(row < tensor->rows && first + count <= tensor->cols);
    for (size_t at = 0; at < count; at += part) {
        size_t block = (first + at) / tensor->block_cols;
        float scale = ash_quant_float_at(scales, base + block * tensor->scale_col_step);

        if (global != NULL) scale = tensor->divides_global ? scale / factor : scale * factor;
        part = ash_min((block + 1) * tensor->block_cols - (first + at), count - at);
        for (size_t i = 0; i < part; i++)
            out[at + i] *= scale;
    }
}
