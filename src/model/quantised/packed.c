/* Integers of 2 to 8 bits, packed into words of 32 as one stream of bits, with a scale and a zero point for each group
 * of inputs: compressed-tensors [output, input], GPTQ and AWQ [input, output]. A weight is (code - zero) * scale. */
#include <errno.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/quantised/quantised_priv.h"

#define WORD_BITS 32

/* Code index of a run of words: `step` words lie between neighbours of the stream. */
static unsigned code_at(const uint32_t *words, size_t step, size_t bits, size_t index)
{
    size_t bit = index * bits, word = bit / WORD_BITS, shift = bit % WORD_BITS;
    uint64_t pair = words[word * step];

    if (shift + bits > WORD_BITS) pair |= (uint64_t)words[(word + 1) * step] << WORD_BITS;
    return (unsigned)(pair >> shift & ((1u << bits) - 1));
}

static const uint32_t *words_of(const struct ash_quant_tensor *tensor, enum ash_quant_part part)
{
    return tensor->parts[part]->data;
}

/* Groups of the inputs, and the scales of each: in the order of inputs, or of outputs first. */
static int bind_groups(struct ash_quant_tensor *tensor, const struct ash_tensor_view *scales, bool is_output_major,
                       struct ash_err *err)
{
    int rc;

    if (tensor->group == 0) tensor->group = tensor->cols;
    tensor->block_rows = 1;
    tensor->block_cols = tensor->group;
    rc = ash_quant_scales_bind(tensor, scales, err);
    if (is_output_major) return rc;
    tensor->scale_row_step = 1;
    tensor->scale_col_step = tensor->rows;
    return rc;
}

static size_t group_count(const struct ash_quant_tensor *tensor)
{
    return ash_div_up(tensor->cols, tensor->group);
}

/* ---- compressed-tensors ------------------------------------------------------------------------------------------ */

/* If groups of modules differ in bits, the words of a row say how many there are; scales say how many groups. */
static int choose_sizes(const struct ash_quant_scheme *scheme, struct ash_quant_tensor *tensor,
                        const struct ash_tensor_view *codes, const struct ash_tensor_view *scales, struct ash_err *err)
{
    size_t groups = scales != NULL && scales->dim_count == 2 ? scales->dims[1] : 1;

    if (codes->dim_count != 2 || codes->dims[1] > tensor->cols / 4 + 1)
        return ash_err_set(err, -EINVAL, "tensor '%.120s' is no matrix of packed codes", codes->name);
    tensor->bits = scheme->bits > 0 ? scheme->bits : codes->dims[1] * WORD_BITS / tensor->cols;
    if (tensor->bits < 2 || tensor->bits > 8 || groups == 0 || tensor->cols % groups != 0)
        return ash_err_set(err, -EINVAL, "tensor '%.120s': %zu bits in %zu groups cannot be read", codes->name,
                           tensor->bits, groups);
    tensor->group = tensor->cols / groups;
    return ash_quant_part_check(tensor, codes, ASH_I32, tensor->rows,
                                ash_div_up(tensor->cols * tensor->bits, WORD_BITS), err);
}

static int bind_packed(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                       struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".weight_packed");
    const struct ash_tensor_view *scales = ash_quant_part_find(files, tensor, ".weight_scale");
    const struct ash_tensor_view *zeros = ash_quant_part_find(files, tensor, ".weight_zero_point");
    const struct ash_tensor_view *groups = ash_quant_part_find(files, tensor, ".weight_g_idx");
    int rc;

    if (codes == NULL || codes->dtype != ASH_I32) return 0;
    rc = choose_sizes(scheme, tensor, codes, scales, err);
    if (rc == 0) rc = bind_groups(tensor, scales, true, err);
    if (rc == 0 && zeros != NULL)
        rc = ash_quant_part_check(tensor, zeros, ASH_I32, ash_div_up(tensor->rows * tensor->bits, WORD_BITS),
                                  group_count(tensor), err);
    if (rc == 0 && groups != NULL) rc = ash_quant_part_check(tensor, groups, ASH_I32, tensor->cols, 0, err);
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_ZEROS] = zeros;
    tensor->parts[ASH_PART_GROUPS] = groups;
    return rc < 0 ? rc : 1;
}

/* Of input i. */
static size_t group_of(const struct ash_quant_tensor *tensor, size_t i)
{
    const struct ash_tensor_view *groups = tensor->parts[ASH_PART_GROUPS];

    return groups != NULL ? (size_t)((const int32_t *)groups->data)[i] : i / tensor->group;
}

/* Groups of act-order follow no rule: each is looked up, so each must be there. compressed-tensors writes -1 for all
 * without such an order. */
static int check_groups(struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *view = tensor->parts[ASH_PART_GROUPS];
    const int32_t *groups = view != NULL ? view->data : NULL;
    size_t count = group_count(tensor);

    if (view == NULL) return 0;
    if (groups[0] == -1) {
        tensor->parts[ASH_PART_GROUPS] = NULL;
        return 0;
    }
    for (size_t i = 0; i < tensor->cols; i++)
        if (groups[i] < 0 || (size_t)groups[i] >= count)
            return ash_err_set(err, -EINVAL, "tensor '%.120s' names group %d of %zu", view->name, groups[i], count);
    return 0;
}

/* Codes less zeros become weights. */
static void scale_groups(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    if (tensor->parts[ASH_PART_GROUPS] == NULL) {
        ash_quant_scale_row(tensor, row, first, count, out);
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] *=
            ash_quant_float_at(tensor->parts[ASH_PART_SCALES],
                               row * tensor->scale_row_step + group_of(tensor, first + i) * tensor->scale_col_step);
}

/* Without zero points codes are offset by half their range. */
static void decode_packed(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint32_t *codes = words_of(tensor, ASH_PART_CODES) + row * tensor->parts[ASH_PART_CODES]->dims[1];
    const struct ash_tensor_view *zeros = tensor->parts[ASH_PART_ZEROS];
    size_t groups = group_count(tensor), known = SIZE_MAX;
    int zero = 1 << (tensor->bits - 1);

    for (size_t i = 0; i < count; i++) {
        size_t group = zeros != NULL ? group_of(tensor, first + i) : known;

        if (group != known) zero = (int)code_at(words_of(tensor, ASH_PART_ZEROS) + group, groups, tensor->bits, row);
        known = group;
        out[i] = (float)((int)code_at(codes, 1, tensor->bits, first + i) - zero);
    }
    scale_groups(tensor, row, first, count, out);
}

/* ---- GPTQ -------------------------------------------------------------------------------------------------------- */

static int bind_gptq(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                     struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".qweight");
    const struct ash_tensor_view *groups = ash_quant_part_find(files, tensor, ".g_idx");
    const struct ash_tensor_view *zeros = ash_quant_part_find(files, tensor, ".qzeros");
    size_t row_bits = tensor->cols * scheme->bits;
    int rc;

    if (codes == NULL) return 0;
    tensor->bits = scheme->bits;
    tensor->group = scheme->group;
    tensor->zeros_are_less_one = scheme->zeros_are_less_one;
    rc = ash_quant_part_check(tensor, codes, ASH_I32, ash_div_up(row_bits, WORD_BITS), tensor->rows, err);
    if (rc == 0) rc = bind_groups(tensor, ash_quant_part_find(files, tensor, ".scales"), false, err);
    if (rc == 0)
        rc = ash_quant_part_check(tensor, zeros, ASH_I32, group_count(tensor),
                                  ash_div_up(tensor->rows * tensor->bits, WORD_BITS), err);
    if (rc == 0 && groups != NULL) rc = ash_quant_part_check(tensor, groups, ASH_I32, tensor->cols, 0, err);
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_ZEROS] = zeros;
    tensor->parts[ASH_PART_GROUPS] = groups;
    return rc < 0 ? rc : 1;
}

static int gptq_zero(const struct ash_quant_tensor *tensor, size_t row, size_t group)
{
    const struct ash_tensor_view *zeros = tensor->parts[ASH_PART_ZEROS];
    const uint32_t *words = (const uint32_t *)zeros->data + group * zeros->dims[1];
    unsigned zero = code_at(words, 1, tensor->bits, row);

    return (int)(tensor->zeros_are_less_one ? (zero + 1) & ((1u << tensor->bits) - 1) : zero);
}

static void decode_gptq(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint32_t *codes = words_of(tensor, ASH_PART_CODES) + row;
    size_t known = SIZE_MAX;
    int zero = 0;

    for (size_t i = 0; i < count; i++) {
        size_t group = group_of(tensor, first + i);

        if (group != known) zero = gptq_zero(tensor, row, group);
        known = group;
        out[i] = (float)((int)code_at(codes, tensor->rows, tensor->bits, first + i) - zero);
    }
    scale_groups(tensor, row, first, count, out);
}

/* ---- AWQ --------------------------------------------------------------------------------------------------------- */

#define AWQ_BITS 4
#define AWQ_CODES (WORD_BITS / AWQ_BITS) /* of a word */

static int bind_awq(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                    struct ash_quant_tensor *tensor, struct ash_err *err)
{
    const struct ash_tensor_view *codes = ash_quant_part_find(files, tensor, ".qweight");
    const struct ash_tensor_view *zeros = ash_quant_part_find(files, tensor, ".qzeros");
    int rc;

    if (codes == NULL) return 0;
    if (tensor->rows % AWQ_CODES != 0)
        return ash_err_set(err, -EINVAL, "quantised tensor '%s' has %zu outputs, which are no words of %d",
                           tensor->name, tensor->rows, AWQ_CODES);
    tensor->bits = scheme->bits;
    tensor->group = scheme->group;
    rc = ash_quant_part_check(tensor, codes, ASH_I32, tensor->cols, tensor->rows / AWQ_CODES, err);
    if (rc == 0) rc = bind_groups(tensor, ash_quant_part_find(files, tensor, ".scales"), false, err);
    if (rc == 0) rc = ash_quant_part_check(tensor, zeros, ASH_I32, group_count(tensor), tensor->rows / AWQ_CODES, err);
    tensor->parts[ASH_PART_CODES] = codes;
    tensor->parts[ASH_PART_ZEROS] = zeros;
    return rc < 0 ? rc : 1;
}

/* The words of a row of the file hold 8 outputs each: 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on. */
static int awq_code(const uint32_t *words, size_t step, size_t line, size_t row)
{
    static const unsigned shifts[AWQ_CODES] = {0, 16, 4, 20, 8, 24, 12, 28};

    return (int)(words[line * step + row / AWQ_CODES] >> shifts[row % AWQ_CODES] & 15u);
}

static void decode_awq(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out)
{
    const uint32_t *codes = words_of(tensor, ASH_PART_CODES), *zeros = words_of(tensor, ASH_PART_ZEROS);
    size_t step = tensor->rows / AWQ_CODES;

    ash_assert(row < tensor->rows && first + count <= tensor->cols);
    for (size_t i = 0; i < count; i++)
        out[i] =
            (float)(awq_code(codes, step, first + i, row) - awq_code(zeros, step, (first + i) / tensor->group, row));
    ash_quant_scale_row(tensor, row, first, count, out);
}

const struct ash_stored_layout ash_quant_packed = {"packed integers", ASH_QUANT_COMPRESSED, bind_packed, check_groups,
                                                   decode_packed};
const struct ash_stored_layout ash_quant_gptq = {"GPTQ", ASH_QUANT_GPTQ, bind_gptq, check_groups, decode_gptq};
const struct ash_stored_layout ash_quant_awq = {"AWQ", ASH_QUANT_AWQ, bind_awq, NULL, decode_awq};
