/* SVG text: errors are kept until the drawing is written. */
#include "plan/svg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

void ash_svg_addf(struct ash_svg *svg, const char *fmt, ...)
{
    char *piece = NULL;
    va_list args;
    int size;

    if (svg->rc < 0) return;
    va_start(args, fmt);
    size = vasprintf(&piece, fmt, args);
    va_end(args);
    if (size < 0) {
        svg->rc = -ENOMEM;
        return;
    }
    svg->rc = ash_str_add(&svg->text, piece, (size_t)size);
    free(piece);
}

void ash_svg_add_escaped(struct ash_svg *svg, const char *text)
{
    for (; *text != '\0' && svg->rc == 0; text++) {
        if (*text == '<')
            svg->rc = ash_str_adds(&svg->text, "&lt;");
        else if (*text == '&')
            svg->rc = ash_str_adds(&svg->text, "&amp;");
        else
            svg->rc = ash_str_add(&svg->text, text, 1);
    }
}

int ash_svg_write(struct ash_svg *svg, const char *path, struct ash_err *err)
{
    int rc = svg->rc < 0 ? ash_err_set(err, svg->rc, "out of memory for the drawing")
                         : ash_file_replace(path, svg->text.data, svg->text.size_bytes, err);

    ash_str_fini(&svg->text);
    return rc;
}
