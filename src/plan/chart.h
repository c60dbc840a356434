/* chart - lines over a logarithmic axis as one self-contained SVG. */
#ifndef ASH_PLAN_CHART_H
#define ASH_PLAN_CHART_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_CHART_LINES_MAX 8

struct ash_chart_line {
    const char *name;
    const double *y; /* one per x */
};

/* A measured point among the lines. */
struct ash_chart_mark {
    double x, y;
    const char *label;
};

struct ash_chart {
    const char *title, *x_label, *y_label;
    const double *x; /* ascending, positive */
    size_t count;    /* of x, at least 2 */
    const struct ash_chart_line *lines;
    size_t line_count; /* at most ASH_CHART_LINES_MAX */
    const struct ash_chart_mark *marks;
    size_t mark_count;
    double here;         /* a vertical line at this x; 0: none */
    double y_min, y_max; /* y_min < y_max */
    double y_scale;      /* ticks show y times this: 100 for per cent */
};

/* Draw to path, replacing an older file in one step. */
int ash_chart_write(const char *path, const struct ash_chart *chart, struct ash_err *err);

#endif
