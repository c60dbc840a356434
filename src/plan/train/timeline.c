/* The drawing: a bar of parts on top, one line per pipeline rank below. Plain SVG text, no scripts, no fonts. */
#include "plan/train/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "plan/svg.h"
#include "plan/train/parts.h"

#define WIDTH 1200.0
#define LEFT 90.0
#define LANE 18.0
#define LANES_MAX 64

#define LEGEND 150.0 /* from one entry to the next */
#define SHOWN 0.001  /* of the step, for an entry */

static void bar(struct ash_svg *svg, const struct ash_step_time *time, double checkpoint_s)
{
    struct ash_step_part parts[ASH_STEP_PARTS];
    double total = time->total + checkpoint_s, x = LEFT, scale = (WIDTH - LEFT - 20) / total, label = LEFT;
    int row = 0;

    ash_step_parts(time, checkpoint_s, parts);
    for (size_t i = 0; i < ASH_STEP_PARTS; i++) {
        const struct ash_step_part *part = &parts[i];
        double width = part->seconds * scale;

        ash_svg_addf(svg, "<rect x='%.2f' y='36' width='%.2f' height='26' fill='%s'><title>%s %.4g s</title></rect>\n",
                     x, width, part->colour, part->name, part->seconds);
        x += width;
        if (part->seconds < SHOWN * total) continue;
        ash_svg_addf(
            svg, "<rect x='%.0f' y='%d' width='10' height='10' fill='%s'/><text x='%.0f' y='%d'>%s %.1f%%</text>\n",
            label, 70 + 15 * row, part->colour, label + 14, 79 + 15 * row, part->name, 100 * part->seconds / total);
        label += LEGEND;
        if (label + LEGEND <= WIDTH) continue;
        label = LEFT;
        row++;
    }
}

/* How a kind of work is drawn. */
static const struct {
    const char *name, *colour;
} styles[] = {
    [ASH_PLAN_TASK_FORWARD] = {"forward", "#4895ef"},
    [ASH_PLAN_TASK_BACKWARD] = {"backward", "#2d6a4f"},
    [ASH_PLAN_TASK_INPUT] = {"backward to inputs", "#40916c"},
    [ASH_PLAN_TASK_WEIGHT] = {"gradients of weights", "#95d5b2"},
};

/* Passes that run side by side share the lane's height: forward above, backward below. */
static void draw_event(struct ash_svg *svg, const struct ash_layout *l, const struct ash_plan_pipeline_event *e,
                       double y, double scale)
{
    bool dual = l->schedule == ASH_PLAN_DUALPIPE;
    double height = e->paired ? (LANE - 3) / 2 : LANE - 3, shade = 0.6 * e->chunk / (dual ? 2.0 : l->chunks);

    ash_assert((size_t)e->kind < ASH_COUNT(styles) && e->end_s >= e->start_s);
    if (e->paired && e->kind != ASH_PLAN_TASK_FORWARD) y += height;
    ash_svg_addf(svg,
                 "<rect x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill='%s' fill-opacity='%.2f' "
                 "stroke='#fff' stroke-width='0.4'><title>%s of micro-batch %d, %s %d: %.4g s</title></rect>\n",
                 LEFT + e->start_s * scale, y, (e->end_s - e->start_s) * scale, height, styles[e->kind].colour,
                 1 - shade, styles[e->kind].name, e->micro_batch, dual ? "end" : "chunk", e->chunk,
                 e->end_s - e->start_s);
}

static void lanes(struct ash_svg *svg, const struct ash_layout *l, const struct ash_plan_pipeline_event *events,
                  size_t each, double total)
{
    double scale = (WIDTH - LEFT - 20) / total;
    int shown = l->pp < LANES_MAX ? l->pp : LANES_MAX;

    for (int stage = 0; stage < shown; stage++) {
        double y = 122 + stage * LANE;

        if (l->pp > 1)
            ash_svg_addf(svg, "<text x='10' y='%.0f'>stage %d</text>\n", y + 12, stage);
        else
            ash_svg_addf(svg, "<text x='10' y='%.0f'>each GPU</text>\n", y + 12);
        for (size_t i = 0; i < each; i++) {
            const struct ash_plan_pipeline_event *e = &events[(size_t)stage * each + i];

            if (e->end_s > e->start_s) draw_event(svg, l, e, y, scale);
        }
    }
}

/* Simulate a short step and draw its lanes: one for each stage of a pipeline, or the only one. */
static void draw_pipeline(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                          struct ash_svg *svg)
{
    const struct ash_layout *l = &plan->layout;
    const char *what = l->pp > 1 ? "stages of the pipeline" : "passes of a GPU";
    int micro = plan->step.micro_batches < 2 * l->pp + 8 ? plan->step.micro_batches : 2 * l->pp + 8;
    struct ash_plan_pipeline shape = {.schedule = l->schedule, .stages = l->pp, .chunks = l->chunks};
    struct ash_plan_pipeline_event *events;
    size_t each;
    double total;

    if (l->chunks > 1) micro = micro / l->pp * l->pp;
    shape.micro_batches = micro;
    each = ash_plan_pipeline_events(&shape);
    events = calloc(each * (size_t)l->pp, sizeof(*events));
    if (events == NULL) {
        svg->rc = -ENOMEM;
        return;
    }
    total = ash_step_timeline(consts, job, l, micro, events);
    ash_svg_addf(svg,
                 "<text x='%.0f' y='115'>%s: %d of %d micro-batches, forward blue, backward green%s, %.4g s</text>\n",
                 LEFT, what, micro, plan->step.micro_batches,
                 l->schedule != ASH_PLAN_1F1B ? " (light: gradients of weights that waited)" : "", total);
    if (total > 0) lanes(svg, l, events, each, total);
    free(events);
}

int ash_timeline_write(const struct ash_consts *consts, const struct ash_plan_job *job, const struct ash_plan *plan,
                       double checkpoint_s, const char *path, struct ash_err *err)
{
    struct ash_svg svg = {0};
    int shown = plan->layout.pp < LANES_MAX ? plan->layout.pp : LANES_MAX;
    double height = 132 + shown * LANE;
    char layout[128];

    ash_svg_addf(&svg,
                 "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' font-family='sans-serif' "
                 "font-size='11'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n",
                 WIDTH, height);
    ash_svg_addf(&svg, "<text x='%.0f' y='22' font-size='15'>%s on %d x %s: %s, %.4g s per step</text>\n", LEFT,
                 job->shape.name, job->cluster.machines, job->cluster.machine.name,
                 ash_layout_text(&plan->layout, layout, sizeof(layout)), plan->step.time.total + checkpoint_s);
    bar(&svg, &plan->step.time, checkpoint_s);
    draw_pipeline(consts, job, plan, &svg);
    ash_svg_addf(&svg, "</svg>\n");
    return ash_svg_write(&svg, path, err);
}
