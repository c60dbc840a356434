/* The drawing: a bar of parts on top, one lane per pipeline rank below. Plain SVG text, no scripts, no outside fonts.
 */
#include "plan/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/str.h"

#define WIDTH 1200.0
#define LEFT 90.0
#define LANE 18.0
#define LANES_MAX 64

struct part {
    const char *name, *color;
    double seconds;
};

static void bar(struct ash_str *svg, const struct ash_plan_step *step)
{
    const struct ash_step_time *t = &step->time;
    const struct part parts[] = {
        {"compute", "#2a6f97", t->compute},     {"HBM", "#61a5c2", t->memory},      {"host", "#adb5bd", t->host},
        {"NVLink", "#f4a259", t->nvlink},       {"network", "#bc4b51", t->network}, {"bubble", "#e9ecef", t->bubble},
        {"optimizer", "#8cb369", t->optimizer}, {"data", "#ced4da", t->data},       {"jitter", "#868e96", t->jitter},
    };
    double x = LEFT, scale = (WIDTH - LEFT - 20) / t->total, label = LEFT;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        double width = parts[i].seconds * scale;

        ash_str_addf(svg, "<rect x='%.2f' y='46' width='%.2f' height='26' fill='%s'><title>%s %.4g s</title></rect>\n",
                     x, width, parts[i].color, parts[i].name, parts[i].seconds);
        x += width;
        if (parts[i].seconds < 0.001 * t->total) continue;
        ash_str_addf(svg,
                     "<rect x='%.0f' y='80' width='10' height='10' fill='%s'/><text x='%.0f' y='89'>%s %.1f%%</text>\n",
                     label, parts[i].color, label + 14, parts[i].name, 100 * parts[i].seconds / t->total);
        label += 120;
    }
}

static void lanes(struct ash_str *svg, const struct ash_layout *l, const struct ash_pipeline_event *events, int each,
                  double total)
{
    double scale = (WIDTH - LEFT - 20) / total;
    int shown = l->pp < LANES_MAX ? l->pp : LANES_MAX;

    for (int stage = 0; stage < shown; stage++) {
        double y = 120 + stage * LANE;

        ash_str_addf(svg, "<text x='10' y='%.0f'>stage %d</text>\n", y + 12, stage);
        for (int i = 0; i < each; i++) {
            const struct ash_pipeline_event *e = &events[stage * each + i];

            ash_str_addf(
                svg,
                "<rect x='%.2f' y='%.1f' width='%.2f' height='%.0f' fill='%s' fill-opacity='%.2f' "
                "stroke='#fff' stroke-width='0.4'><title>%s of micro-batch %d, chunk %d: %.4g s</title></rect>\n",
                LEFT + e->start_s * scale, y, (e->end_s - e->start_s) * scale, LANE - 3,
                e->backward ? "#2d6a4f" : "#4895ef", 1 - 0.6 * e->chunk / (double)l->chunks,
                e->backward ? "backward" : "forward", e->micro_batch, e->chunk, e->end_s - e->start_s);
        }
    }
}

/* Play a short step and draw its lanes; nothing where there is no pipeline. */
static int draw_pipeline(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                         struct ash_str *svg)
{
    const struct ash_layout *l = &plan->layout;
    int micro = plan->step.micro_batches < 2 * l->pp + 8 ? plan->step.micro_batches : 2 * l->pp + 8;
    int each;
    struct ash_pipeline_event *events;
    double total;

    if (l->pp == 1) return 0;
    if (l->chunks > 1) micro = micro / l->pp * l->pp;
    each = 2 * l->chunks * micro;
    events = calloc((size_t)each * (size_t)l->pp, sizeof(*events));
    if (events == NULL) return -ENOMEM;
    total = ash_step_timeline(consts, job, l, micro, events);
    ash_str_addf(svg, "<text x='%.0f' y='112'>%d of %d micro-batches, forward blue, backward green, %.4g s</text>\n",
                 LEFT, micro, plan->step.micro_batches, total);
    if (total > 0) lanes(svg, l, events, each, total);
    free(events);
    return 0;
}

int ash_timeline_write(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                       const char *path, struct ash_err *err)
{
    struct ash_str svg = {0};
    int shown = plan->layout.pp < LANES_MAX ? plan->layout.pp : LANES_MAX, rc;
    double height = 130 + (plan->layout.pp > 1 ? shown * LANE : 0);
    char layout[128];

    ash_str_addf(&svg,
                 "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' font-family='sans-serif' "
                 "font-size='11'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n",
                 WIDTH, height);
    ash_str_addf(&svg, "<text x='%.0f' y='22' font-size='15'>%s on %d x %s: %s, %.4g s per step</text>\n", LEFT,
                 job->shape.name, job->cluster.machines, job->cluster.machine.name,
                 ash_layout_text(&plan->layout, layout, sizeof(layout)), plan->step.time.total);
    bar(&svg, &plan->step);
    rc = draw_pipeline(consts, job, plan, &svg);
    if (rc == 0) rc = ash_str_adds(&svg, "</svg>\n");
    if (rc < 0)
        ash_err_set(err, rc, "out of memory");
    else
        rc = ash_file_replace(path, svg.data, svg.size_bytes, err);
    ash_str_fini(&svg);
    return rc;
}
