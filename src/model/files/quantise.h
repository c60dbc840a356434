/* quantise - rows of weights as blocks of quantised numbers, as files have them (base/dtype.h). */
#ifndef ASH_MODEL_FILES_QUANTISE_H
#define ASH_MODEL_FILES_QUANTISE_H

#include <stddef.h>
#include <stdint.h>
#include "base/dtype.h"

/* count finite numbers, a row of whole blocks, none beyond the range of f16. dtype: ASH_Q8_0, ASH_Q8_W or ASH_Q4_0. */
void ash_quantise_row(const float *x, size_t count, enum ash_dtype dtype, uint8_t *out);

#endif
