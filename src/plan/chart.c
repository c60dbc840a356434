/* chart: an SVG with axes, a legend and lines that need no script and no other file. */
#include "plan/chart.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/str.h"

#define WIDTH 1060.0
#define HEIGHT 520.0
#define LEFT 70.0
#define RIGHT 190.0 /* for the legend */
#define TOP 50.0
#define BOTTOM 60.0
#define TICKS_Y 10

static const char *const colours[ASH_CHART_LINES_MAX] = {"#b4432f", "#c98a1b", "#2f6fb4", "#2f8f5b",
                                                         "#7a4fb0", "#555555", "#0f8f8f", "#b02f7a"};

static double place_x(const struct ash_chart *chart, double x)
{
    double low = log(chart->x[0]), high = log(chart->x[chart->count - 1]);

    return LEFT + (log(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct ash_chart *chart, double y)
{
    double share = (fmin(fmax(y, chart->y_min), chart->y_max) - chart->y_min) / (chart->y_max - chart->y_min);

    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

static int add_escaped(struct ash_str *svg, const char *text)
{
    int rc = 0;

    for (; *text != '\0' && rc == 0; text++) {
        if (*text == '<')
            rc = ash_str_adds(svg, "&lt;");
        else if (*text == '&')
            rc = ash_str_adds(svg, "&amp;");
        else
            rc = ash_str_add(svg, text, 1);
    }
    return rc;
}

static int add_text(struct ash_str *svg, double x, double y, const char *anchor, const char *colour, const char *text)
{
    int rc = ash_str_addf(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);

    if (rc == 0) rc = add_escaped(svg, text);
    return rc == 0 ? ash_str_adds(svg, "</text>\n") : rc;
}

static int add_rule(struct ash_str *svg, double x1, double y1, double x2, double y2, const char *colour)
{
    return ash_str_addf(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
                        colour);
}

/* 65536 -> "65,536", 0.25 -> "0.25". */
static void tick_text(double value, char *buf, size_t bytes)
{
    if (value >= 1e6)
        snprintf(buf, bytes, "%gM", value * 1e-6);
    else if (value >= 1000)
        snprintf(buf, bytes, "%d,%03d", (int)value / 1000, (int)value % 1000);
    else
        snprintf(buf, bytes, "%g", value);
}

static int add_axes(struct ash_str *svg, const struct ash_chart *chart)
{
    char text[32];
    int rc = 0;

    for (int i = 0; i <= TICKS_Y && rc == 0; i++) {
        double value = chart->y_min + (chart->y_max - chart->y_min) * i / TICKS_Y, y = place_y(chart, value);

        snprintf(text, sizeof(text), "%g", round(value * chart->y_scale * 1e6) * 1e-6);
        rc = add_rule(svg, LEFT, y, WIDTH - RIGHT, y, "#e4e4e4");
        if (rc == 0) rc = add_text(svg, LEFT - 8, y + 4, "end", "#444", text);
    }
    for (double x = chart->x[0]; x <= chart->x[chart->count - 1] * 1.0001 && rc == 0; x *= 2) {
        tick_text(x, text, sizeof(text));
        rc = add_rule(svg, place_x(chart, x), HEIGHT - BOTTOM, place_x(chart, x), HEIGHT - BOTTOM + 5, "#444");
        if (rc == 0) rc = add_text(svg, place_x(chart, x), HEIGHT - BOTTOM + 20, "middle", "#444", text);
    }
    if (rc == 0) rc = add_text(svg, (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 15, "middle", "#222", chart->x_label);
    if (rc == 0) rc = add_text(svg, LEFT - 50, TOP - 12, "start", "#222", chart->y_label);
    return rc;
}

static int add_line(struct ash_str *svg, const struct ash_chart *chart, size_t index)
{
    const struct ash_chart_line *line = &chart->lines[index];
    int rc = ash_str_addf(svg, "<polyline fill=\"none\" stroke-width=\"2.5\" stroke=\"%s\" points=\"", colours[index]);
    double y = TOP + 20 * (double)index;

    for (size_t i = 0; i < chart->count && rc == 0; i++)
        rc = ash_str_addf(svg, "%.1f,%.1f ", place_x(chart, chart->x[i]), place_y(chart, line->y[i]));
    if (rc == 0) rc = ash_str_adds(svg, "\"/>\n");
    if (rc == 0)
        rc = ash_str_addf(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"22\" height=\"4\" fill=\"%s\"/>\n",
                          WIDTH - RIGHT + 16, y, colours[index]);
    return rc == 0 ? add_text(svg, WIDTH - RIGHT + 44, y + 6, "start", "#222", line->name) : rc;
}

static int add_mark(struct ash_str *svg, const struct ash_chart *chart, const struct ash_chart_mark *mark)
{
    double x = place_x(chart, mark->x), y = place_y(chart, mark->y);
    int rc = ash_str_addf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"none\" stroke=\"#222\"/>\n", x, y);

    /* a white rim keeps the words readable on lines */
    if (rc == 0) rc = ash_str_adds(svg, "<g stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\">");
    if (rc == 0) rc = add_text(svg, x - 9, y + 4, "end", "#222", mark->label);
    return rc == 0 ? ash_str_adds(svg, "</g>\n") : rc;
}

static int draw(struct ash_str *svg, const struct ash_chart *chart)
{
    int rc =
        ash_str_addf(svg,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
                     "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                     WIDTH, HEIGHT);

    if (rc == 0) rc = add_text(svg, LEFT - 50, 22, "start", "#000", chart->title);
    if (rc == 0) rc = add_axes(svg, chart);
    if (rc == 0 && chart->here >= chart->x[0] && chart->here <= chart->x[chart->count - 1])
        rc = add_rule(svg, place_x(chart, chart->here), TOP, place_x(chart, chart->here), HEIGHT - BOTTOM, "#999");
    for (size_t i = 0; i < chart->line_count && rc == 0; i++)
        rc = add_line(svg, chart, i);
    for (size_t i = 0; i < chart->mark_count && rc == 0; i++)
        rc = add_mark(svg, chart, &chart->marks[i]);
    return rc == 0 ? ash_str_adds(svg, "</svg>\n") : rc;
}

int ash_chart_write(const char *path, const struct ash_chart *chart, struct ash_err *err)
{
    struct ash_str svg = {0};
    int rc;

    ash_assert(chart->count >= 2 && chart->line_count <= ASH_CHART_LINES_MAX && chart->y_min < chart->y_max);
    rc = draw(&svg, chart);
    if (rc < 0)
        rc = ash_err_set(err, rc, "no memory for the chart");
    else
        rc = ash_file_replace(path, svg.data, svg.size_bytes, err);
    ash_str_fini(&svg);
    return rc;
}
