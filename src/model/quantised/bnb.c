/* bitsandbytes. 4 bits: codes of a table of 16 values (nf4, fp4), two in a byte, the high half first, and the largest
 * size of each 64 weights, which may itself be codes of a table. 8 bits: integers and the largest size of each row. */
#include <errno.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/quantised/quantised_priv.h"

#define CODES 16
#define SCALE_CODES 256
#define BLOCK_MAX ((int64_t)1 << 20)
#define INT8_STEP 7.874015718698502e-3f /* 1 / 127, as bitsandbytes has it */

/* ---- 4 bits ------------------------------------------------------------------------------------------------------ */

static int bind_nested(const struct ash_safetensors *files, struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight.nested_absmax");
    const struct ash_tensor_view *map = ash_quant_part_find(files, tensor, ".weight.nested_quant_map");
    int rc = ash_quant_part_check(tensor, map, ASH_F32, SCALE_CODES, 0, err);

    if (rc < 0) return rc;
    tensor->parts[ASH_PART_SCALE_MAP] = map;
    tensor->parts[ASH_PART_SCALE_SCALES] = scales;
    return ash_quant_part_check(tensor, scales, ASH_F32, scales != NULL ? ash_tensor_count(scales) : 0, 0, err);
}

static int bind_bnb4(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                     struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".weight");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight.absmax");
    const struct ash_tensor_view *map = ash_quant_part_find(files, tensor, ".weight.quant_map");
    const struct ash_tensor_view *state = ash_quant_part_find(files, tensor, ".weight.quant_state.bitsandbytes__nf4");
    int rc;

    (void)scheme;
    if (codes == NULL || codes->dtype != ASH_U8) return 0;
    if (state == NULL) state = ash_quant_part_find(files, tensor, ".weight.quant_state.bitsandbytes__fp4");
    rc = ash_quant_part_check(tensor, codes, ASH_U8, ash_div_up(tensor->rows * tensor->cols, 2), 0, err);
    if (rc == 0) rc = ash_quant_part_check(tensor, map, ASH_F32, CODES, 0, err);
    if (rc == 0) rc = ash_quant_part_check(tensor, state, ASH_U8, state != NULL ? ash_tensor_count(state) : 0, 0, err);
    if (rc == 0)
        rc = ash_quant_part_check(tensor, scales, scales != NULL && scales->dtype == ASH_U8 ? ASH_U8 : ASH_F32,
                                  scales != NULL ? ash_tensor_count(scales) : 0, 0, err);
    if (rc == 0 && scales->dtype == ASH_U8) rc = bind_nested(files, tensor, err);
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_SCALES] = scales;
    tensor->parts[ASH_PART_MAP] = map;
    tensor->parts[ASH_PART_STATE] = state;
    return rc < 0 ? rc : 1;
}

static int read_state(struct ash_quant_tensor *tensor, const json_t *json, struct ash_err *err)
{
    int64_t block = 0, nested = 256;
    double offset = 0;
    int rc = ash_json_int(json, "blocksize", 1, BLOCK_MAX, &block, err);

    if (rc == 0) return ash_err_set(err, -EINVAL, "it has no 'blocksize'");
    if (rc > 0) rc = ash_json_int(json, "nested_blocksize", 1, BLOCK_MAX, &nested, err);
    if (rc >= 0) rc = ash_json_double(json, "nested_offset", -1e30, 1e30, &offset, err);
    if (rc < 0) return rc;
    tensor->state_block = (size_t)block;
    tensor->scale_block = (size_t)nested;
    tensor->state_offset = (float)offset;
    return 0;
}

/* Sizes of blocks are in a text among the tensors, so whether there are enough scales is known here. */
static int check_bnb4(struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *state = tensor->parts[ASH_PART_STATE], *nested = tensor->parts[ASH_PART_SCALE_SCALES];
    size_t scales = ash_tensor_count(tensor->parts[ASH_PART_SCALES]);
    json_t *json = NULL;
    int rc = ash_json_parse(state->data, ash_tensor_count(state), state->name, &json, err);

    if (rc < 0) return rc;
    rc = read_state(tensor, json, err);
    json_decref(json);
    if (rc < 0) return ash_err_prefix(err, rc, "tensor '%.120s'", state->name);
    if (scales != ash_div_up(tensor->rows * tensor->cols, tensor->state_block) ||
        (nested != NULL && ash_tensor_count(nested) != ash_div_up(scales, tensor->scale_block)))
        return ash_err_set(err, -EINVAL, "quantised tensor '%s' does not have a scale for each %zu weights",
                           tensor->name, tensor->state_block);
    return 0;
}

/* Of weights [block * state_block, ...). */
static float absmax_of(const struct ash_quant_tensor *tensor, size_t block)
{
    const struct ash_tensor_view *scales = tensor->parts[ASH_PART_SCALES];
    const float *map;

    if (scales->dtype == ASH_F32) return ((const float *)scales->data)[block];
    map = tensor->parts[ASH_PART_SCALE_MAP]->data;
    return map[((const uint8_t *)scales->data)[block]] *
               ((const float *)tensor->parts[ASH_PART_SCALE_SCALES]->data)[block / tensor->scale_block] +
           tensor->state_offset;
}

/* Blocks run over the ends of rows. */
static void decode_bnb4(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint8_t *codes = tensor->parts[ASH_PART_CODES]->data;
    const float *map = tensor->parts[ASH_PART_MAP]->data;
    size_t from = row * tensor->cols + first, part;

    ash_assert(row < tensor->rows && first + count <= tensor->cols);
    for (size_t at = 0; at < count; at += part) {
        size_t block = (from + at) / tensor->state_block;
        float absmax = absmax_of(tensor, block);

        part = ash_min((block + 1) * tensor->state_block - (from + at), count - at);
        for (size_t i = from + at; i < from + at + part; i++)
            out[i - from] = map[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * absmax;
    }
}

/* ---- 8 bits ------------------------------------------------------------------------------------------------------ */

static int bind_bnb8(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                     struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".weight");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".SCB");
    int rc;

    (void)scheme;
    if (codes == NULL || codes->dtype != ASH_I8) return 0;
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_SCALES] = scales;
    rc = ash_quant_part_check(tensor, codes, ASH_I8, tensor->rows, tensor->cols, err);
    if (rc == 0) rc = ash_quant_part_check(tensor, scales, ASH_F32, tensor->rows, 0, err);
    return rc < 0 ? rc : 1;
}

static void decode_bnb8(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const int8_t *codes = (const int8_t *)tensor->parts[ASH_PART_CODES]->data + row * tensor->cols + first;
    float scale = ash_quant_float_at(tensor->parts[ASH_PART_SCALES], row);

    ash_assert(row < tensor->rows && first + count <= tensor->cols);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)codes[i] * scale * INT8_STEP;
}

const struct ash_stored_layout ash_quant_bnb4 = {"bitsandbytes, 4 bits", ASH_QUANT_BNB, bind_bnb4, check_bnb4,
                                                 decode_bnb4};
const struct ash_stored_layout ash_quant_bnb8 = {"bitsandbytes, 8 bits", ASH_QUANT_BNB, bind_bnb8, NULL, decode_bnb8};
