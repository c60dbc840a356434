/* range - neighbouring indices of something that is numbered. */
#ifndef ASH_BASE_RANGE_H
#define ASH_BASE_RANGE_H

#include <stddef.h>

/* Indices first ... first + count - 1. */
struct ash_range {
    size_t first, count;
};

/* One past the last index. */
static inline size_t ash_range_end(struct ash_range range)
{
    return range.first + range.count;
}

#endif
