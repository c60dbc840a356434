/* cap - a soft limit: cap * tanh(x / cap). */
#ifndef ASH_COMPUTE_REF_CAP_H
#define ASH_COMPUTE_REF_CAP_H

#include "compute/mathf.h"

static inline float ash_cap(float x, float cap)
{
    return cap * ash_tanhf(x / cap);
}

/* The derivative where the cap made y. */
static inline float ash_cap_slope(float y, float cap)
{
    float t = y / cap;

    return 1.0f - t * t;
}

#endif
