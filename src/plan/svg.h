/* svg - a drawing as SVG text that grows; the first error is kept, so that drawing functions need not check. */
#ifndef ASH_PLAN_SVG_H
#define ASH_PLAN_SVG_H

#include "ashlar/err.h"
#include "base/str.h"

/* Zero-initialise. */
struct ash_svg {
    struct ash_str text;
    int rc; /* 0, or the first error: then nothing more is added */
};

/* Append as printf. */
void ash_svg_addf(struct ash_svg *svg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Append text with < and & escaped. */
void ash_svg_add_escaped(struct ash_svg *svg, const char *text);
/* Replace the file at path by the drawing, atomically, and free the drawing. Returns 0, -ENOMEM or the file's error. */
int ash_svg_write(struct ash_svg *svg, const char *path, struct ash_err *err);

#endif
