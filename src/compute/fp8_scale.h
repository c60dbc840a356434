/* fp8_scale - values that share a scale become e4m3: the rule of products of e4m3 in ops.h. */
#ifndef ASH_COMPUTE_FP8_SCALE_H
#define ASH_COMPUTE_FP8_SCALE_H

#include <math.h>
#include "base/fp8.h"

struct ash_fp8_scale {
    float scale, inverse; /* of codes; of values */
};

/* amax: the largest of |value|, infinite or NaN if any value is. */
static inline struct ash_fp8_scale ash_fp8_scale_of(float amax)
{
    float inverse = ASH_E4M3_MAX / amax;

    if (!isfinite(amax)) return (struct ash_fp8_scale){NAN, 0.0f};
    if (!isfinite(inverse)) return (struct ash_fp8_scale){0.0f, 0.0f};
    return (struct ash_fp8_scale){amax / ASH_E4M3_MAX, inverse};
}

/* The larger of amax and |value|; NaN and infinities stay. */
static inline float ash_fp8_widen(float amax, float value)
{
    float size = fabsf(value);

    return size > amax || isnan(size) ? (isnan(amax) ? amax : size) : amax;
}

/* The code of a value; 0 where its scale is 0 or NaN. */
static inline uint8_t ash_fp8_code(float value, struct ash_fp8_scale scale)
{
    return scale.inverse == 0.0f ? 0 : ash_f32_to_e4m3(value * scale.inverse);
}

#endif
