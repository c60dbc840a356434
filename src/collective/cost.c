/* The cost model of all-reduces inside a node: two lines, and the file that holds them. */
#include "collective/cost.h"

#include <errno.h>

#include "base/json.h"

/* Measured on two Neoverse V1 cores. */
const struct ash_cost ash_cost_default = {.ways = {[ASH_COST_AT_ONCE] = {.latency_s = 0.2e-6, .bytes_per_s = 7.5e9},
                                                   [ASH_COST_SHARES] = {.latency_s = 0.85e-6, .bytes_per_s = 15e9}}};

const char *ash_cost_way_name(enum ash_cost_way way)
{
    static const char *const names[] = {"at_once", "shares"};

    return names[way];
}

double ash_cost_moved(enum ash_cost_way way, size_t ranks, size_t bytes)
{
    return way == ASH_COST_AT_ONCE ? (double)ranks * (double)bytes : (double)bytes;
}

enum ash_cost_way ash_cost_choose(const struct ash_cost *cost, size_t ranks, size_t bytes)
{
    double least = 0;
    enum ash_cost_way best = ASH_COST_AT_ONCE;

    for (enum ash_cost_way way = ASH_COST_AT_ONCE; way < ASH_COST_WAYS; way++) {
        double seconds = cost->ways[way].latency_s + ash_cost_moved(way, ranks, bytes) / cost->ways[way].bytes_per_s;

        if (way == ASH_COST_AT_ONCE || seconds < least) {
            least = seconds;
            best = way;
        }
    }
    return best;
}

/* Least squares of (latency + bytes * slope - seconds) / seconds. */
struct ash_cost_line ash_cost_fit(const double *moved_bytes, const double *seconds, size_t count)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0, slope, latency;

    for (size_t i = 0; i < count; i++) {
        double weight = 1 / (seconds[i] * seconds[i]);

        w += weight;
        wx += weight * moved_bytes[i];
        wxx += weight * moved_bytes[i] * moved_bytes[i];
        wy += weight * seconds[i];
        wxy += weight * moved_bytes[i] * seconds[i];
    }
    slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    latency = (wy - slope * wx) / w;
    if (latency < 0) { /* through the origin, then */
        latency = 0;
        slope = wxy / wxx;
    }
    return (struct ash_cost_line){.latency_s = latency, .bytes_per_s = slope > 1e-15 ? 1 / slope : 1e15};
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int read_line(const json_t *ways, enum ash_cost_way way, struct ash_cost_line *line, struct ash_err *err)
{
    const json_t *object = NULL;
    double latency_us = 0, gbps = 0;
    int rc = ash_json_object(ways, ash_cost_way_name(way), &object, err);

    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' is missing", ash_cost_way_name(way));
    if (rc > 0) rc = ash_json_double(object, "latency_us", 0, 1e9, &latency_us, err);
    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' has no 'latency_us'", ash_cost_way_name(way));
    if (rc > 0) rc = ash_json_double(object, "gb_per_s", 1e-6, 1e6, &gbps, err);
    if (rc == 0) return ash_err_set(err, -EINVAL, "'%s' has no 'gb_per_s'", ash_cost_way_name(way));
    if (rc < 0) return rc;
    *line = (struct ash_cost_line){.latency_s = latency_us * 1e-6, .bytes_per_s = gbps * 1e9};
    return 0;
}

int ash_cost_load(const char *path, struct ash_cost *cost_out, struct ash_err *err)
{
    struct ash_cost cost = {0};
    const json_t *ways = NULL;
    json_t *json = NULL;
    int rc = ash_json_load(path, &json, err);

    if (rc < 0) return rc;
    rc = ash_json_object(json, "all_reduce", &ways, err);
    if (rc == 0) rc = ash_err_set(err, -EINVAL, "'all_reduce' is missing");
    for (enum ash_cost_way way = ASH_COST_AT_ONCE; rc >= 0 && way < ASH_COST_WAYS; way++)
        rc = read_line(ways, way, &cost.ways[way], err);
    json_decref(json);
    if (rc < 0) return ash_err_prefix(err, rc, "%s (write it with `ashlar bench collective --tune`)", path);
    *cost_out = cost;
    return 0;
}

int ash_cost_save(const char *path, const struct ash_cost *cost, struct ash_err *err)
{
    const struct ash_cost_line *once = &cost->ways[ASH_COST_AT_ONCE], *shares = &cost->ways[ASH_COST_SHARES];
    json_t *json = json_pack("{s:{s:{s:f,s:f},s:{s:f,s:f}}}", "all_reduce", "at_once", "latency_us",
                             once->latency_s * 1e6, "gb_per_s", once->bytes_per_s * 1e-9, "shares", "latency_us",
                             shares->latency_s * 1e6, "gb_per_s", shares->bytes_per_s * 1e-9);
    int rc = json != NULL ? ash_json_save(path, json, err) : ash_err_set(err, -ENOMEM, "out of memory for '%s'", path);

    json_decref(json);
    return rc;
}
