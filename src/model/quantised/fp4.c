/* FP4 weights: two codes of e2m1 in a byte, the low half first. NVFP4 has a scale of e4m3 for 16 inputs and one factor
 * for the tensor; MXFP4 a power of two for 32. The experts of gpt-oss are stored [expert, output, block of inputs, 16
 * bytes] and read as [expert, input, output]. */
#include <errno.h>

#include "base/assert.h"
#include "base/fp8.h"
#include "model/quantised/quantised_priv.h"

#define NVFP4_GROUP 16
#define MX_GROUP 32

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

static int bind_pairs(const struct ash_safetensors *files, struct ash_quant_tensor *tensor, const char *name,
                      size_t group, struct ash_err *err)
{
    if (tensor->cols % group != 0)
        return ash_err_set(err, -EINVAL, "quantised tensor '%s' has rows of %zu, which are no blocks of %zu",
                           tensor->name, tensor->cols, group);
    tensor->block_rows = 1;
    tensor->block_cols = group;
    tensor->parts[ASH_PART_CODES] = ash_quant_part_find(files, tensor, name);
    return ash_quant_part_check(tensor, tensor->parts[ASH_PART_CODES], ASH_U8, tensor->rows, tensor->cols / 2, err);
}

/* compressed-tensors divides by the factor of its name, ModelOpt multiplies by that of its own. */
static int bind_nvfp4(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                      struct ash_quant_tensor *tensor, struct ash_err *err)
{
    bool is_modelopt = scheme->method == ASH_QUANT_MODELOPT;
    const char *name = is_modelopt ? ".weight" : ".weight_packed";
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, name);
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight_scale");
    const struct ash_tensor_view *global =
        ash_quant_part_find(files, tensor, is_modelopt ? ".weight_scale_2" : ".weight_global_scale");
    int rc;

    if (codes == NULL || codes->dtype != ASH_U8 || scales == NULL || scales->dtype != ASH_F8_E4M3) return 0;
    rc = bind_pairs(files, tensor, name, NVFP4_GROUP, err);
    if (rc == 0) rc = ash_quant_scales_bind(tensor, scales, err);
    if (rc == 0) rc = ash_quant_part_check(tensor, global, ASH_F32, 1, 0, err);
    tensor->parts[ASH_PART_GLOBAL] = global;
    tensor->divides_global = !is_modelopt;
    return rc < 0 ? rc : 1;
}

static int bind_mxfp4(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                      struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".weight_packed");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight_scale");
    int rc;

    (void)scheme;
    if (codes == NULL || scales == NULL || scales->dtype != ASH_U8) return 0;
    rc = bind_pairs(files, tensor, ".weight_packed", MX_GROUP, err);
    tensor->parts[ASH_PART_SCALES] = scales;
    tensor->scale_row_step = tensor->cols / MX_GROUP;
    tensor->scale_col_step = 1;
    if (rc == 0) rc = ash_quant_part_check(tensor, scales, ASH_U8, tensor->rows, tensor->cols / MX_GROUP, err);
    return rc < 0 ? rc : 1;
}

static void decode_pairs(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint8_t *codes = (const uint8_t *)tensor->parts[ASH_PART_CODES]->data + row * (tensor->cols / 2);

    for (size_t i = 0; i < count; i++)
        out[i] = ash_e2m1_to_f32(codes[(first + i) / 2] >> ((first + i) % 2 * 4));
    ash_quant_scale_row(tensor, row, first, count, out);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static bool has_dims(const struct ash_tensor_view *view, size_t outer, size_t out, size_t groups)
{
    return view != NULL && view->dtype == ASH_U8 && view->dim_count >= 3 && view->dims[0] == outer &&
           view->dims[1] == out && view->dims[2] == groups;
}

static int bind_experts(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                        struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, "_blocks");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, "_scales");
    size_t inputs = tensor->rows / tensor->outer, groups = inputs / MX_GROUP;

    (void)scheme;
    if (codes == NULL) return 0;
    if (inputs % MX_GROUP != 0 || !has_dims(codes, tensor->outer, tensor->cols, groups) || codes->dim_count != 4 ||
        codes->dims[3] != MX_GROUP / 2 || !has_dims(scales, tensor->outer, tensor->cols, groups) ||
        scales->dim_count != 3)
        return ash_err_set(err, -EINVAL,
                           "'%s_blocks' and '_scales' are not blocks of %d inputs of %zu experts as config.json gives "
                           "them",
                           tensor->name, MX_GROUP, tensor->outer);
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_SCALES] = scales;
    return 1;
}

/* A row is an input of an expert, a column an output. */
static void decode_experts(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    size_t inputs = tensor->rows / tensor->outer, expert = row / inputs, input = row % inputs;
    size_t line = expert * tensor->cols + first; /* an output of an expert */
    const uint8_t *codes = (const uint8_t *)tensor->parts[ASH_PART_CODES]->data + line * (inputs / 2) + input / 2;
    const uint8_t *scales =
        (const uint8_t *)tensor->parts[ASH_PART_SCALES]->data + line * (inputs / MX_GROUP) + input / MX_GROUP;

    ash_assert(row < tensor->rows && first + count <= tensor->cols);
    for (size_t i = 0; i < count; i++)
        out[i] = ash_e2m1_to_f32(codes[i * (inputs / 2)] >> (input % 2 * 4)) *
                 ash_e8m0_to_f32(scales[i * (inputs / MX_GROUP)]);
}

const struct ash_stored_layout ash_quant_nvfp4 = {"NVFP4", ASH_QUANT_COMPRESSED | ASH_QUANT_MODELOPT, bind_nvfp4, NULL,
                                                  decode_pairs};
const struct ash_stored_layout ash_quant_mxfp4 = {"MXFP4", ASH_QUANT_COMPRESSED, bind_mxfp4, NULL, decode_pairs};
const struct ash_stored_layout ash_quant_mxfp4_experts = {"MXFP4 of gpt-oss", ASH_QUANT_MXFP4, bind_experts, NULL,
                                                          decode_experts};
