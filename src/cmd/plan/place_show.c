/* What `ashlar plan place` found, for people and for programs. */
#include "cmd/plan/place_priv.h"

#include <stdio.h>

#include "base/table.h"
#include "cmd/cmd.h"

#define SHOWN_MAX 8   /* hosts in a table */
#define MATTERS 0.005 /* of a step: less is below the model's accuracy */

static const char *name_of(const struct ash_placement_answer *answer, int node)
{
    return answer->topology->nodes[node].name;
}

static int layer_of(const struct ash_placement_answer *answer, int node)
{
    return answer->topology->nodes[node].height;
}

/* Seconds of a step that a better one saves, over the step. */
static double saved(double step_s, double better_s)
{
    return step_s > 0 ? (step_s - better_s) / step_s : 0;
}

static bool fits(const struct ash_placement_answer *answer)
{
    return (answer->queued ? &answer->place_best : &answer->given)->step.fits;
}

static double bytes_between_hosts(const struct ash_placement *place)
{
    double sum = 0;

    for (int axis = 0; axis < ASH_PLACEMENT_AXES; axis++)
        sum += place->axis[axis].bytes;
    return sum;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void judge_running(const struct ash_placement_answer *answer, char *buf, size_t bytes)
{
    const struct ash_placement *given = &answer->given;
    double lost = saved(given->step.time.total, given->flat_s);
    double gain = saved(given->step.time.total, answer->reordered.step.time.total);

    if (bytes_between_hosts(given) <= 0)
        snprintf(buf, bytes, "placement does not matter: no traffic leaves a host");
    else if (lost < MATTERS)
        snprintf(buf, bytes, "placement does not matter here: compute hides what the links take (%.1f %% of the step)",
                 100 * lost);
    else if (gain >= MATTERS)
        snprintf(buf, bytes,
                 "reorder the ranks: %.1f %% less time per step on the same hosts (placement costs %.1f %%)",
                 100 * gain, 100 * lost);
    else
        snprintf(buf, bytes, "placement costs %.1f %% of the step and no other order of these hosts helps: %s",
                 100 * lost,
                 layer_of(answer, answer->span) > layer_of(answer, answer->best.domain)
                     ? "hosts that are nearer to each other would"
                     : "no smaller domain would hold them");
}

static void judge_queued(const struct ash_placement_answer *answer, char *buf, size_t bytes)
{
    double lost = saved(answer->place_now.step.time.total, answer->place_best.step.time.total);

    if (answer->now.domain < 0)
        snprintf(buf, bytes, "cannot start: %d of %d hosts are free", answer->free_count,
                 answer->job.job.cluster.machines);
    else if (answer->best.missing == 0)
        snprintf(buf, bytes, "start now: no domain that is large enough is smaller");
    else if (lost < MATTERS)
        snprintf(buf, bytes, "start now: waiting would save %.1f %% of a step, which is nothing", 100 * lost);
    else if (answer->worth_minutes <= 0)
        snprintf(buf, bytes, "starting now costs %.1f %% of every step; --tokens says how long to wait for that",
                 100 * lost);
    else if (answer->wait_minutes <= 0)
        snprintf(buf, bytes, "wait if it takes less than %.0f minutes; starting now costs %.1f %% of every step",
                 answer->worth_minutes, 100 * lost);
    else if (answer->wait_minutes < answer->worth_minutes)
        snprintf(buf, bytes, "wait: %.0f minutes save %.0f", answer->wait_minutes, answer->worth_minutes);
    else
        snprintf(buf, bytes, "start now: waiting %.0f minutes would save only %.0f", answer->wait_minutes,
                 answer->worth_minutes);
}

const char *ash_place_verdict(const struct ash_placement_answer *answer, char *buf, size_t buf_bytes)
{
    (answer->queued ? judge_queued : judge_running)(answer, buf, buf_bytes);
    return buf;
}

/* ---- people ------------------------------------------------------------------------------------------------------ */

/* The first few, and the end of the line. */
static void print_names(const struct ash_placement_answer *answer, const int *hosts, int count)
{
    for (int i = 0; i < count && i < SHOWN_MAX; i++)
        printf(" %s", name_of(answer, hosts[i]));
    printf("%s\n", count > SHOWN_MAX ? " ... (--json lists all)" : "");
}

static void print_axes(const struct ash_placement *place)
{
    struct ash_table table = {.heads = "axis|>GB/step and host|>hops, mean|>farthest|>network left"};

    printf("\n");
    for (int axis = 0; axis < ASH_PLACEMENT_AXES; axis++) {
        const struct ash_placement_traffic *t = &place->axis[axis];

        if (t->bytes <= 0) continue;
        ash_table_row(&table, "%s|%.2f|%.1f|%d|%.0f%%", ash_placement_axis_name((enum ash_placement_axis)axis),
                      t->bytes / 1e9, t->hops, t->hops_max, 100 * t->net_share);
    }
    ash_table_print(&table, stdout);
}

static void print_layers(const struct ash_placement *place)
{
    printf("\nGB per step that turn around in each layer of switches (1: the one above the hosts)\n");
    for (int layer = 1; layer <= ASH_TOPOLOGY_HEIGHT_MAX; layer++)
        if (place->layer_bytes[layer] > 0) printf("  layer %-2d %14.2f\n", layer, place->layer_bytes[layer] / 1e9);
}

static void print_worst(const struct ash_placement_answer *answer)
{
    const struct ash_placement *place = &answer->given;
    int gpus = answer->job.job.cluster.machine.gpus, shown = 0, more = 0;

    if (place->worst_link < 0) return;
    printf("\nbusiest link: above %s, %.2f GB and %.3f s per step before overlap; ranks that use it:\n",
           name_of(answer, place->worst_link), place->worst_bytes / 1e9, place->worst_s);
    for (int i = 0; i < answer->job.job.cluster.machines; i++) {
        if (!answer->crossing[i]) continue;
        if (shown < SHOWN_MAX)
            printf("  %-24s ranks %d to %d\n", name_of(answer, answer->hosts[i]), i * gpus, (i + 1) * gpus - 1);
        shown < SHOWN_MAX ? shown++ : more++;
    }
    if (more > 0) printf("  and %d hosts more (--json lists all)\n", more);
}

static void print_running(const struct ash_placement_answer *answer)
{
    const struct ash_placement *given = &answer->given;
    double step_s = given->step.time.total, better_s = answer->reordered.step.time.total;

    printf("hosts span %s (layer %d); as many would fit below %s (layer %d)\n", name_of(answer, answer->span),
           layer_of(answer, answer->span), name_of(answer, answer->best.domain), layer_of(answer, answer->best.domain));
    print_axes(given);
    print_layers(given);
    print_worst(answer);
    printf("\nstep %.3f s so placed, %.3f s in the best order of the same hosts, %.3f s on a flat network\n", step_s,
           better_s, given->flat_s);
    if (saved(step_s, better_s) < MATTERS) return;
    printf("better order:");
    print_names(answer, answer->order, answer->job.job.cluster.machines);
}

static void print_missing(const struct ash_placement_answer *answer)
{
    printf("waits for %d more host%s of %s (layer %d, %d hosts), then a step takes %.3f s\n", answer->best.missing,
           answer->best.missing == 1 ? "" : "s", name_of(answer, answer->best.domain),
           layer_of(answer, answer->best.domain), answer->topology->nodes[answer->best.domain].hosts,
           answer->place_best.step.time.total);
    printf("  of these:");
    print_names(answer, answer->busy_hosts, answer->busy_count);
}

static void print_queued(const struct ash_placement_answer *answer)
{
    int wanted = answer->job.job.cluster.machines;

    printf("%d hosts wanted, %d free\n", wanted, answer->free_count);
    if (answer->now.domain >= 0) {
        printf("best domain now: %s (layer %d), a step takes %.3f s; hosts in the order of ranks:\n ",
               name_of(answer, answer->now.domain), layer_of(answer, answer->now.domain),
               answer->place_now.step.time.total);
        print_names(answer, answer->hosts, wanted);
    }
    if (answer->best.missing > 0) print_missing(answer);
    if (answer->worth_minutes > 0) printf("waiting pays up to %.0f minutes\n", answer->worth_minutes);
}

void ash_placement_print_table(const struct ash_placement_answer *answer)
{
    const struct ash_plan_job *job = &answer->job.job;
    char layout[128], verdict[256];

    printf("%s on %dx%s, %s, %.3g of a host's network across each layer of switches\n", job->shape.name,
           job->cluster.machines, job->cluster.machine.name,
           ash_layout_text(&answer->job.layout, layout, sizeof(layout)), answer->job.uplink_share);
    (answer->queued ? print_queued : print_running)(answer);
    if (!fits(answer)) printf("note: this layout does not fit into the GPUs' memory (ashlar plan train)\n");
    printf("verdict: %s\n", ash_place_verdict(answer, verdict, sizeof(verdict)));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_names(const struct ash_placement_answer *answer, const int *hosts, int count)
{
    json_t *names = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(names, json_string(name_of(answer, hosts[i])));
    return names;
}

static json_t *encode_axes(const struct ash_placement *place)
{
    json_t *axes = json_array();

    for (int axis = 0; axis < ASH_PLACEMENT_AXES; axis++) {
        const struct ash_placement_traffic *t = &place->axis[axis];

        if (t->bytes > 0)
            json_array_append_new(axes, json_pack("{s:s, s:f, s:f, s:i, s:f}", "axis",
                                                  ash_placement_axis_name((enum ash_placement_axis)axis), "host_bytes",
                                                  t->bytes, "hops", t->hops, "hops_max", t->hops_max, "net_share",
                                                  t->net_share));
    }
    return axes;
}

static json_t *encode_layers(const struct ash_placement *place)
{
    json_t *layers = json_array();

    for (int layer = 1; layer <= ASH_TOPOLOGY_HEIGHT_MAX; layer++)
        if (place->layer_bytes[layer] > 0)
            json_array_append_new(layers, json_pack("{s:i, s:f}", "layer", layer, "bytes", place->layer_bytes[layer]));
    return layers;
}

static json_t *encode_worst(const struct ash_placement_answer *answer)
{
    const struct ash_placement *place = &answer->given;
    int gpus = answer->job.job.cluster.machine.gpus;
    json_t *ranks;

    if (place->worst_link < 0) return json_null();
    ranks = json_array();
    for (int i = 0; i < answer->job.job.cluster.machines; i++)
        if (answer->crossing[i])
            json_array_append_new(ranks, json_pack("{s:s, s:i, s:i}", "host", name_of(answer, answer->hosts[i]),
                                                   "first_rank", i * gpus, "last_rank", (i + 1) * gpus - 1));
    return json_pack("{s:s, s:f, s:f, s:o}", "above", name_of(answer, place->worst_link), "bytes", place->worst_bytes,
                     "seconds", place->worst_s, "ranks", ranks);
}

static json_t *encode_running(const struct ash_placement_answer *answer, const char *verdict)
{
    double step_s = answer->given.step.time.total, better_s = answer->reordered.step.time.total;
    int count = answer->job.job.cluster.machines;

    return json_pack("{s:s, s:b, s:s, s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:s}", "state", "running",
                     "fits", (int)fits(answer), "span", name_of(answer, answer->span), "span_layer",
                     layer_of(answer, answer->span), "smallest_domain", name_of(answer, answer->best.domain),
                     "smallest_layer", layer_of(answer, answer->best.domain), "step_s", step_s, "flat_s",
                     answer->given.flat_s, "reordered_s", better_s, "reorder_gain", saved(step_s, better_s), "axes",
                     encode_axes(&answer->given), "layers", encode_layers(&answer->given), "worst_link",
                     encode_worst(answer), "order", encode_names(answer, answer->order, count), "verdict", verdict);
}

/* Its hosts if it starts now; null if it cannot. */
static json_t *encode_now(const struct ash_placement_answer *answer)
{
    if (answer->now.domain < 0) return json_null();
    return json_pack("{s:s, s:i, s:f, s:o}", "domain", name_of(answer, answer->now.domain), "layer",
                     layer_of(answer, answer->now.domain), "step_s", answer->place_now.step.time.total, "hosts",
                     encode_names(answer, answer->hosts, answer->job.job.cluster.machines));
}

static json_t *encode_queued(const struct ash_placement_answer *answer, const char *verdict)
{
    json_t *best = json_pack("{s:s, s:i, s:i, s:f, s:o}", "domain", name_of(answer, answer->best.domain), "layer",
                             layer_of(answer, answer->best.domain), "missing", answer->best.missing, "step_s",
                             answer->place_best.step.time.total, "busy",
                             encode_names(answer, answer->busy_hosts, answer->busy_count));

    return json_pack("{s:s, s:b, s:i, s:i, s:o, s:o, s:f, s:s}", "state", "queued", "fits", (int)fits(answer), "wanted",
                     answer->job.job.cluster.machines, "free", answer->free_count, "now", encode_now(answer), "best",
                     best, "worth_minutes", answer->worth_minutes, "verdict", verdict);
}

int ash_placement_print_json(const struct ash_placement_answer *answer, struct ash_err *err)
{
    char verdict[256];

    ash_place_verdict(answer, verdict, sizeof(verdict));
    return ash_cmd_print_json((answer->queued ? encode_queued : encode_running)(answer, verdict), err);
}
