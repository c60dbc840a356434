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

/* What part `part` (of `parts`, not 0) gets of count things, in whole units of `unit` (not 0) if there are enough for
 * all parts. Parts are in order and cover everything once. */
static inline struct ash_range ash_range_split(size_t count, size_t unit, size_t part, size_t parts)
{
    size_t step = count >= unit * parts ? unit : 1, units = count / step;
    size_t first = units * part / parts * step, end = part + 1 == parts ? count : units * (part + 1) / parts * step;

    return (struct ash_range){first, end - first};
}

/* The indices that both have; of none, an empty range. */
static inline struct ash_range ash_range_overlap(struct ash_range a, struct ash_range b)
{
    size_t first = a.first > b.first ? a.first : b.first;
    size_t end = ash_range_end(a) < ash_range_end(b) ? ash_range_end(a) : ash_range_end(b);

    return (struct ash_range){first, end > first ? end - first : 0};
}

#endif
