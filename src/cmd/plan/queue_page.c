/* A page of charts: use and waiting jobs over time, waits by size, GPU hours lost; one file without scripts. */
#include "cmd/plan/queue_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "plan/svg.h"

#define WIDTH 900.0
#define HEIGHT 260.0
#define LEFT 70.0
#define RIGHT 150.0
#define TOP 30.0
#define BOTTOM 34.0

static const char *const colours[] = {"#2f6fb4", "#b4432f", "#2f8f5b", "#c98a1b", "#7a4fb0", "#555555",
                                      "#0f8f8f", "#b02f7a", "#8a6d3b", "#3b5b8a", "#5b8a3b", "#8a3b5b"};

static const char *colour_of(int which)
{
    return colours[(size_t)which % ASH_COUNT(colours)];
}

/* A frame with a title, labels of the lowest and highest value, and a legend. */
static void begin_chart(struct ash_svg *svg, const struct ash_queue_answer *answer, const char *title, const char *low,
                        const char *high)
{
    ash_svg_addf(svg, "<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", title, WIDTH,
                 HEIGHT, title);
    ash_svg_addf(svg, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" stroke=\"#ccc\"/>\n",
                 LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", LEFT - 6, TOP + 6, high);
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", LEFT - 6, HEIGHT - BOTTOM, low);
    for (int i = 0; i < answer->count; i++) {
        ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">", WIDTH - RIGHT + 10, TOP + 12 + 18 * i,
                     colour_of(i));
        ash_svg_add_escaped(svg, answer->conf[i].name);
        ash_svg_addf(svg, "</text>\n");
    }
}

static double x_at(double share)
{
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_at(double share)
{
    return HEIGHT - BOTTOM - fmin(fmax(share, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

/* ---- over time --------------------------------------------------------------------------------------------------- */

static void add_line(struct ash_svg *svg, const struct ash_replay_report *report, bool is_waiting, double most,
                     const char *colour)
{
    ash_svg_addf(svg, "<polyline fill=\"none\" stroke=\"%s\" points=\"", colour);
    for (int i = 0; i < report->sample_count; i++) {
        const struct ash_replay_sample *sample = &report->samples[i];
        double value = is_waiting ? sample->waiting : sample->used;

        ash_svg_addf(svg, "%.1f,%.1f ", x_at(sample->time_s / fmax(report->submit_span_s, 1)), y_at(value / most));
    }
    ash_svg_addf(svg, "\"/>\n");
}

static void add_time_chart(struct ash_svg *svg, const struct ash_queue_answer *answer, bool is_waiting)
{
    double most = 1;
    char high[32];

    for (int i = 0; i < answer->count && is_waiting; i++)
        for (int k = 0; k < answer->report[i].sample_count; k++)
            most = fmax(most, answer->report[i].samples[k].waiting);
    snprintf(high, sizeof(high), is_waiting ? "%.0f" : "100%%", most);
    begin_chart(svg, answer, is_waiting ? "Jobs waiting" : "GPUs in use", is_waiting ? "0" : "0%", high);
    for (int i = 0; i < answer->count; i++)
        add_line(svg, &answer->report[i], is_waiting, most, colour_of(i));
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\">first submission</text>\n", LEFT, HEIGHT - 10);
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">last, %.1f days later</text>\n</svg>\n",
                 WIDTH - RIGHT, HEIGHT - 10, answer->report[0].submit_span_s / 86400);
}

/* ---- bars -------------------------------------------------------------------------------------------------------- */

static void add_bar(struct ash_svg *svg, double x, double width, double share, const char *colour, const char *label)
{
    ash_svg_addf(svg,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>%s</title></rect>\n", x,
                 y_at(share), width, HEIGHT - BOTTOM - y_at(share), colour, label);
}

/* Mean waits by size, over a logarithm: they differ by orders of magnitude. */
static void add_size_chart(struct ash_svg *svg, const struct ash_queue_answer *answer)
{
    double most = 60, slot = 1.0 / ASH_REPLAY_SIZES;
    char high[32];

    for (int i = 0; i < answer->count; i++)
        for (int k = 0; k < ASH_REPLAY_SIZES; k++)
            most = fmax(most, answer->report[i].by_size[k].mean_s);
    snprintf(high, sizeof(high), "%.3g h", most / 3600);
    begin_chart(svg, answer, "Mean wait by GPUs asked for (logarithmic)", "1 s", high);
    for (int k = 0; k < ASH_REPLAY_SIZES; k++) {
        for (int i = 0; i < answer->count; i++) {
            double mean = answer->report[i].by_size[k].mean_s;
            double width = slot * (WIDTH - LEFT - RIGHT) * 0.8 / answer->count;
            char label[64];

            snprintf(label, sizeof(label), "%.0f s", mean);
            if (mean > 1)
                add_bar(svg, x_at(k * slot + slot * 0.1) + i * width, width, log(mean) / log(most), colour_of(i),
                        label);
        }
        ash_svg_addf(svg, "<text x=\"%.1f\" y=\"%.0f\">%d</text>\n", x_at(k * slot + slot * 0.3), HEIGHT - 12, 1 << k);
    }
    ash_svg_addf(svg, "</svg>\n");
}

static double lost_hours(const struct ash_replay_report *report, int kind)
{
    const double hours[] = {report->stopped_hours, report->failed_hours, report->restart_hours, report->spread_hours};

    return hours[kind];
}

static void add_lost_chart(struct ash_svg *svg, const struct ash_queue_answer *answer)
{
    static const char *const kinds[] = {"preemption", "failures", "restarts", "far apart"};
    double most = 1, slot = 1.0 / ASH_COUNT(kinds);
    char high[32];

    for (int i = 0; i < answer->count; i++)
        for (int k = 0; k < (int)ASH_COUNT(kinds); k++)
            most = fmax(most, lost_hours(&answer->report[i], k));
    snprintf(high, sizeof(high), "%.3g", most);
    begin_chart(svg, answer, "GPU hours lost", "0", high);
    for (int k = 0; k < (int)ASH_COUNT(kinds); k++) {
        for (int i = 0; i < answer->count; i++) {
            double width = slot * (WIDTH - LEFT - RIGHT) * 0.8 / answer->count;
            char label[64];

            snprintf(label, sizeof(label), "%.0f GPU hours", lost_hours(&answer->report[i], k));
            add_bar(svg, x_at(k * slot + slot * 0.1) + i * width, width, lost_hours(&answer->report[i], k) / most,
                    colour_of(i), label);
        }
        ash_svg_addf(svg, "<text x=\"%.1f\" y=\"%.0f\">%s</text>\n", x_at(k * slot + slot * 0.1), HEIGHT - 12,
                     kinds[k]);
    }
    ash_svg_addf(svg, "</svg>\n");
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

static void add_fill_chart(struct ash_svg *svg, const struct ash_queue_answer *answer)
{
    begin_chart(svg, answer, "GPUs allocated as jobs arrive", "50%", "100%");
    for (int i = 0; i < answer->count; i++) {
        ash_svg_addf(svg, "<polyline fill=\"none\" stroke=\"%s\" points=\"", colour_of(i));
        for (int k = 50; k < ASH_QUEUE_FILL_STEPS; k++)
            ash_svg_addf(svg, "%.1f,%.1f ", x_at((k - 50) / 80.0), y_at(2 * answer->fill[i][k] - 1));
        ash_svg_addf(svg, "\"/>\n");
    }
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\">50%% asked for</text>\n", LEFT, HEIGHT - 10);
    ash_svg_addf(svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">130%%</text>\n</svg>\n", WIDTH - RIGHT,
                 HEIGHT - 10);
}

int ash_queue_write_page(const struct ash_queue_answer *answer, const char *path, struct ash_err *err)
{
    struct ash_svg page = {0};

    ash_svg_addf(&page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Queue</title>\n"
                        "<style>body{font:14px system-ui,sans-serif;max-width:900px;margin:2em auto;color:#222}"
                        "svg{width:100%%;font:12px system-ui,sans-serif}</style></head><body>\n");
    ash_svg_addf(&page, "<h1>%zu jobs on %d hosts, %.0f GPUs</h1>\n", answer->trace->count, answer->site.host_count,
                 ash_site_gpus(&answer->site));
    if (answer->is_fill) {
        add_fill_chart(&page, answer);
    } else {
        add_time_chart(&page, answer, false);
        add_time_chart(&page, answer, true);
        add_size_chart(&page, answer);
        add_lost_chart(&page, answer);
    }
    ash_svg_addf(&page, "</body></html>\n");
    return ash_svg_write(&page, path, err);
}
