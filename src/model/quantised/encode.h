/* encode - float weights as the codes and scales of published formats; quantised.h reads them back. */
#ifndef ASH_MODEL_QUANTISED_ENCODE_H
#define ASH_MODEL_QUANTISED_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/dtype.h"

/* Where a row goes. */
struct ash_encoded_row {
    uint8_t *codes, *scales;
    uint8_t *zeros; /* of formats that have them: a byte for each scale */
    float *decoded; /* [cols]: what a reader makes of them */
};

/* A format: a row becomes codes, and a scale for each block of columns. */
struct ash_encoding {
    const char *name;
    size_t block;     /* columns that share a scale; 0: a whole row */
    size_t code_bits; /* of a weight in the files */
    enum ash_dtype codes_dtype, scales_dtype;
    float tensor_top; /* the largest weight over it is the tensor's global scale; 0: there is none */
    bool has_zeros;   /* zero points; codes take a byte each until ash_encode_columns */
    /* cols finite weights, whole blocks. global: what scales are multiplied by before they are rounded (1 without). */
    void (*row)(const struct ash_encoding *encoding, const float *x, size_t cols, float global,
                const struct ash_encoded_row *out);
};

/* e4m3, a bf16 scale for each row: 448 is the largest weight. */
extern const struct ash_encoding ash_encoding_fp8;
/* e2m1, a power of two for 32 columns: of the two that the largest weight is near, the one with the least squared
 * error. */
extern const struct ash_encoding ash_encoding_mxfp4;
/* e2m1, a scale of e4m3 for 16 columns and a factor for the tensor: the largest weight of a block becomes 6 or 4,
 * whichever has the least squared error. */
extern const struct ash_encoding ash_encoding_nvfp4;
/* Integers of 0 to 15 with a scale of f16 and a zero point for 32, 64 or 128 columns, the range of a block and 0. */
extern const struct ash_encoding ash_encoding_awq32, ash_encoding_awq64, ash_encoding_awq128;

/* AWQ's order: words of eight codes of neighbouring rows, 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on, column by
 * column. bytes [rows, cols], a code each, become words [cols, rows / 8]; rows are a multiple of 8. */
void ash_encode_columns(const uint8_t *bytes, size_t rows, size_t cols, uint32_t *words);

/* The same format with the largest block that divides cols, of those that it has. */
const struct ash_encoding *ash_encoding_fit(const struct ash_encoding *encoding, size_t cols);
/* Bytes of the codes of a row of cols. */
size_t ash_encoding_code_bytes(const struct ash_encoding *encoding, size_t cols);
/* Scales of a row of cols. */
size_t ash_encoding_scales(const struct ash_encoding *encoding, size_t cols);

#endif
