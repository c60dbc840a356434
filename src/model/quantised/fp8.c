/* FP8 weights: a code of e4m3 for each, and a scale for each block, row or tensor (DeepSeek, compressed-tensors,
 * ModelOpt, FBGEMM). Integers of 8 bits have the same layout. */
#include <errno.h>

#include "base/fp8.h"
#include "model/quantised/quantised_priv.h"

/* How many scales there are says what shares one: everything, a row, or a block of the size in config.json. */
static int choose_block(const struct ash_quant_scheme *scheme, struct ash_quant_tensor *tensor,
                        const struct ash_tensor_view *scales, struct ash_err *err)
{
    size_t count = ash_tensor_count(scales);

    tensor->block_rows = tensor->rows;
    tensor->block_cols = tensor->cols;
    if (scheme->block[0] > 0) {
        tensor->block_rows = scheme->block[0];
        tensor->block_cols = scheme->block[1];
    } else if (count == tensor->rows) {
        tensor->block_rows = 1;
    } else if (count != 1) {
        return ash_err_set(err, -EINVAL, "tensor '%.120s' has %zu scales for %zu rows, and config.json names no block",
                           scales->name, count, tensor->rows);
    }
    return 0;
}

static int bind_scaled(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                       struct ash_quant_tensor *tensor, enum ash_dtype dtype, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".weight");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight_scale_inv");
    int rc;

    if (codes == NULL || codes->dtype != dtype) return 0;
    if (scales == NULL) scales = ash_quant_part_find(files, tensor, ".weight_scale");
    if (scales == NULL)
        return ash_err_set(err, -EINVAL, "tensor '%s' is %s but has no scales ('.weight_scale' or '.weight_scale_inv')",
                           tensor->name, ash_dtype_name(dtype));
    rc = ash_quant_part_check(tensor, codes, dtype, tensor->rows, tensor->cols, err);
    if (rc == 0) rc = choose_block(scheme, tensor, scales, err);
    if (rc == 0) rc = ash_quant_scales_bind(tensor, scales, err);
    tensor->parts[ASH_PART_CODES] = codes;
    return rc < 0 ? rc : 1;
}

static int bind_fp8(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                    struct ash_quant_tensor *tensor, struct ash_err *err)
{
    return bind_scaled(scheme, files, tensor, ASH_F8_E4M3, err);
}

/* bitsandbytes has scales of another name. */
static int bind_int8(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                     struct ash_quant_tensor *tensor, struct ash_err *err)
{
    return bind_scaled(scheme, files, tensor, ASH_I8, err);
}

static void decode_fp8(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint8_t *codes = (const uint8_t *)tensor->parts[ASH_PART_CODES]->data + row * tensor->cols + first;

    for (size_t i = 0; i < count; i++)
        out[i] = ash_e4m3_to_f32(codes[i]);
    ash_quant_scale_row(tensor, row, first, count, out);
}

static void decode_int8(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const int8_t *codes = (const int8_t *)tensor->parts[ASH_PART_CODES]->data + row * tensor->cols + first;

    for (size_t i = 0; i < count; i++)
        out[i] = codes[i];
    ash_quant_scale_row(tensor, row, first, count, out);
}

const struct ash_stored_layout ash_quant_fp8 = {
    "FP8 with scales", ASH_QUANT_FP8 | ASH_QUANT_FBGEMM_FP8 | ASH_QUANT_COMPRESSED | ASH_QUANT_MODELOPT, bind_fp8, NULL,
    decode_fp8};
const struct ash_stored_layout ash_quant_int8 = {"INT8 with scales", ASH_QUANT_COMPRESSED, bind_int8, NULL,
                                                 decode_int8};
