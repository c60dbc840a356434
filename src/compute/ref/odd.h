/* odd - what the models of bf16 instructions share. Sums of doubles rounded to odd: truncated, and the last bit set
 * where anything was cut off. What is rounded so can be rounded once more, to a float32, as if the exact sum were. */
#ifndef ASH_COMPUTE_ODD_H
#define ASH_COMPUTE_ODD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ASH_ODD_DROPPED_BITS 29 /* of a float64's fraction that a float32 has no place for */

/* Zero in place of what is no normal float32. */
static inline float odd_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* x + y; an infinity or NaN as usual. */
static inline double odd_add(double x, double y)
{
    double sum = x + y, part = sum - x;
    double lost = (x - (sum - part)) + (y - part); /* sum + lost is the exact sum */
    uint64_t bits;

    if (!isfinite(sum) || lost == 0.0) return sum;
    memcpy(&bits, &sum, sizeof(bits));
    if ((bits & 1) == 0)
        bits += (lost > 0.0) == (sum > 0.0) ? 1 : -1ull; /* the odd neighbour on the side of the truth */
    memcpy(&sum, &bits, sizeof(sum));
    return sum;
}

#endif
