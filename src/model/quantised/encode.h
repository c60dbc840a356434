/* encode - float weights as the codes and scales of published formats; quantised.h reads them back. */
#ifndef ASH_MODEL_QUANTISED_ENCODE_H
#define ASH_MODEL_QUANTISED_ENCODE_H

#include <stddef.h>
#include <stdint.h>
#include "base/dtype.h"

/* A format: a row becomes codes, and a scale for each block of columns. */
struct ash_encoding {
    const char *name;
    size_t block;     /* columns that share a scale; 0: a whole row */
    size_t code_bits; /* of a weight */
    enum ash_dtype codes_dtype, scales_dtype;
    float tensor_top; /* the largest weight over it is the tensor's global scale; 0: there is none */
    /* cols finite weights, whole blocks. global: what scales are multiplied by before they are rounded (1 without).
     * decoded gets what a reader makes of them. */
    void (*row)(const float *x, size_t cols, float global, uint8_t *codes, uint8_t *scales, float *decoded);
};

/* e4m3, a bf16 scale for each row: 448 is the largest weight. */
extern const struct ash_encoding ash_encoding_fp8;
/* e2m1, a power of two for 32 columns: of the two that the largest weight is near, the one with the least squared
 * error. */
extern const struct ash_encoding ash_encoding_mxfp4;
/* e2m1, a scale of e4m3 for 16 columns and a factor for the tensor: the largest weight of a block becomes 6 or 4,
 * whichever has the least squared error. */
extern const struct ash_encoding ash_encoding_nvfp4;

/* Bytes of the codes of a row of cols. */
size_t ash_encoding_code_bytes(const struct ash_encoding *encoding, size_t cols);
/* Scales of a row of cols. */
size_t ash_encoding_scales(const struct ash_encoding *encoding, size_t cols);

#endif
