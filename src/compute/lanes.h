/* lanes - the canonical sum over a row: ASH_LANES interleaved partial sums, then halves added pairwise.
 * The order is fixed by the index alone, and a vector unit of 4, 8 or 16 floats walks it at full width. */
#ifndef ASH_COMPUTE_LANES_H
#define ASH_COMPUTE_LANES_H

#include "base/device_code.h"
#include "compute/ops.h"

/* Fold the partial sums into one: l with l + 8, then + 4, + 2, + 1. Destroys lanes. */
ASH_INLINE float ash_lanes_fold(float lanes[ASH_LANES])
{
    for (int half = ASH_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] + lanes[l + half];
    return lanes[0];
}

#endif
