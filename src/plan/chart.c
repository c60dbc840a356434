/* chart: an SVG with axes, a legend and lines that need no script and no other file. */
#include "plan/chart.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "plan/svg.h"

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
    ash_assert(chart->count > 1 && chart->x[0] > 0 && x > 0); /* a logarithmic axis */
    double low = log(chart->x[0]), high = log(chart->x[chart->count - 1]);

    return LEFT + (log(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct ash_chart *chart, double y)
{
    double share = (fmin(fmax(y, chart->y_min), chart->y_max) - chart->y_min) / (chart->y_max - chart->y_min);

    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

static void add_text(struct ash_svg *svg, double x, double y, const char *anchor, const char *colour, const char *text)
{
    ash_svg_addf(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
    ash_svg_add_escaped(svg, text);
    ash_svg_addf(svg, "</text>\n");
}

static void add_rule(struct ash_svg *svg, double x1, double y1, double x2, double y2, const char *colour)
{
    ash_svg_addf(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
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

static void add_axes(struct ash_svg *svg, const struct ash_chart *chart)
{
    char text[32];

    for (int i = 0; i <= TICKS_Y; i++) {
        double value = chart->y_min + (chart->y_max - chart->y_min) * i / TICKS_Y, y = place_y(chart, value);

        snprintf(text, sizeof(text), "%g", round(value * chart->y_scale * 1e6) * 1e-6);
        add_rule(svg, LEFT, y, WIDTH - RIGHT, y, "#e4e4e4");
        add_text(svg, LEFT - 8, y + 4, "end", "#444", text);
    }
    for (double x = chart->x[0]; x <= chart->x[chart->count - 1] * 1.0001; x *= 2) {
        tick_text(x, text, sizeof(text));
        add_rule(svg, place_x(chart, x), HEIGHT - BOTTOM, place_x(chart, x), HEIGHT - BOTTOM + 5, "#444");
        add_text(svg, place_x(chart, x), HEIGHT - BOTTOM + 20, "middle", "#444", text);
    }
    add_text(svg, (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 15, "middle", "#222", chart->x_label);
    add_text(svg, LEFT - 50, TOP - 12, "start", "#222", chart->y_label);
}

static void add_line(struct ash_svg *svg, const struct ash_chart *chart, size_t index)
{
    const struct ash_chart_line *line = &chart->lines[index];
    double y = TOP + 20 * (double)index;

    ash_assert(index < chart->line_count && index < ASH_COUNT(colours));
    ash_svg_addf(svg, "<polyline fill=\"none\" stroke-width=\"2.5\" stroke=\"%s\" points=\"", colours[index]);
    for (size_t i = 0; i < chart->count; i++)
        ash_svg_addf(svg, "%.1f,%.1f ", place_x(chart, chart->x[i]), place_y(chart, line->y[i]));
    ash_svg_addf(svg, "\"/>\n");
    ash_svg_addf(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"22\" height=\"4\" fill=\"%s\"/>\n", WIDTH - RIGHT + 16, y,
                 colours[index]);
    add_text(svg, WIDTH - RIGHT + 44, y + 6, "start", "#222", line->name);
}

static void add_mark(struct ash_svg *svg, const struct ash_chart *chart, const struct ash_chart_mark *mark)
{
    double x = place_x(chart, mark->x), y = place_y(chart, mark->y);

    ash_svg_addf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"none\" stroke=\"#222\"/>\n", x, y);
    /* a white rim keeps the words readable on lines */
    ash_svg_addf(svg, "<g stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\">");
    add_text(svg, x - 9, y + 4, "end", "#222", mark->label);
    ash_svg_addf(svg, "</g>\n");
}

static void draw(struct ash_svg *svg, const struct ash_chart *chart)
{
    ash_svg_addf(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
                 "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 WIDTH, HEIGHT);
    add_text(svg, LEFT - 50, 22, "start", "#000", chart->title);
    add_axes(svg, chart);
    if (chart->here >= chart->x[0] && chart->here <= chart->x[chart->count - 1])
        add_rule(svg, place_x(chart, chart->here), TOP, place_x(chart, chart->here), HEIGHT - BOTTOM, "#999");
    for (size_t i = 0; i < chart->line_count; i++)
        add_line(svg, chart, i);
    for (size_t i = 0; i < chart->mark_count; i++)
        add_mark(svg, chart, &chart->marks[i]);
    ash_svg_addf(svg, "</svg>\n");
}

int ash_chart_write(const char *path, const struct ash_chart *chart, struct ash_err *err)
{
    struct ash_svg svg = {0};

    ash_assert(chart->count >= 2 && chart->line_count <= ASH_CHART_LINES_MAX && chart->y_min < chart->y_max);
    draw(&svg, chart);
    return ash_svg_write(&svg, path, err);
}
