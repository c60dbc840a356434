/* ashlar eval --strategy: what more computing at test time brings. */
#include "cmd/eval_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/number.h"
#include "cmd/cmd.h"
#include "plan/chart.h"
#include "post/eval/strategy.h"
#include "post/search/shares.h"

#define SIZES_MAX 32
#define SAMPLES_MAX 4096

struct study {
    const struct ash_eval *eval;
    struct ash_strategy_point points[SIZES_MAX];
    size_t point_count;
};

static int draw(const struct study *study, struct ash_err *err)
{
    double x[SIZES_MAX], right[SIZES_MAX], pass[SIZES_MAX], count = (double)study->eval->count, least = 1.0;
    const struct ash_chart_line lines[] = {{ash_strategy_names[study->eval->strategy], right}, {"pass@n", pass}};
    struct ash_chart chart = {.title = "Accuracy over tokens of answers",
                              .x_label = "tokens per problem",
                              .y_label = "accuracy, per cent",
                              .x = x,
                              .count = study->point_count,
                              .lines = lines,
                              .line_count = ASH_COUNT(lines),
                              .y_max = 1.0,
                              .y_scale = 100.0};

    if (study->point_count < 2) return ash_err_set(err, -EINVAL, "--plot needs at least two numbers of answers in --n");
    for (size_t p = 0; p < study->point_count; p++) {
        x[p] = study->points[p].tokens / count;
        right[p] = study->points[p].right / count;
        pass[p] = study->points[p].pass / count;
        least = fmin(least, fmin(right[p], pass[p]));
    }
    chart.y_min = floor(10.0 * fmin(least, 0.9)) / 10.0;
    return ash_chart_write(study->eval->plot, &chart, err);
}

static json_t *point_json(const struct study *study, const struct ash_strategy_point *point)
{
    double count = (double)study->eval->count;
    struct ash_share_interval interval = ash_wilson(point->right, count);

    return json_pack("{s:I, s:f, s:[f, f], s:f, s:f}", "n", (json_int_t)point->n, "accuracy", point->right / count,
                     "interval", interval.low, interval.high, "pass", point->pass / count, "tokens",
                     point->tokens / count);
}

static int print_study(const struct study *study, struct ash_err *err)
{
    json_t *json, *points = json_array();
    double count = (double)study->eval->count;

    for (size_t p = 0; p < study->point_count; p++) {
        const struct ash_strategy_point *point = &study->points[p];
        struct ash_share_interval interval = ash_wilson(point->right, count);

        json_array_append_new(points, point_json(study, point));
        if (!study->eval->json)
            printf("%-9s of %-4zu %6.2f %%  (95 %% between %.2f and %.2f)  pass@%zu %.2f %%  %.1f tokens\n",
                   ash_strategy_names[study->eval->strategy], point->n, 100 * point->right / count, 100 * interval.low,
                   100 * interval.high, point->n, 100 * point->pass / count, point->tokens / count);
    }
    json = json_pack("{s:s, s:I, s:o}", "strategy", ash_strategy_names[study->eval->strategy], "asked",
                     (json_int_t)study->eval->count, "points", points);
    if (study->eval->json) return ash_cmd_print_json(json, err);
    json_decref(json);
    return 0;
}

static int read_sizes(struct study *study, struct ash_err *err)
{
    const struct ash_opt_list *list = &study->eval->n;

    if (list->count == 0 || list->count > SIZES_MAX)
        return ash_err_set(err, -EINVAL, "--n needs one to %d numbers of answers", SIZES_MAX);
    for (size_t i = 0; i < list->count; i++) {
        int64_t n = 0;

        if (ash_number_parse_whole(list->items[i], &n) < 0 || n < 1 || n > SAMPLES_MAX ||
            (i > 0 && (size_t)n <= study->points[i - 1].n))
            return ash_err_set(err, -EINVAL, "--n: '%s' is none of ascending numbers from 1 to %d", list->items[i],
                               SAMPLES_MAX);
        study->points[study->point_count++].n = (size_t)n;
    }
    return 0;
}

int ash_eval_strategy(struct ash_eval *eval, struct ash_err *err)
{
    struct ash_eval_watch watch;
    const struct ash_strategy_eval opts = {.engine = eval->engine,
                                           .problems = &eval->arithmetic,
                                           .strategy = (enum ash_strategy)eval->strategy,
                                           .count = (size_t)eval->count,
                                           .batch = (size_t)eval->batch,
                                           .temperature = eval->temperature,
                                           .think_min = (size_t)eval->think_min,
                                           .think_max = (size_t)eval->think_max,
                                           .verifier = &eval->verifier,
                                           .progress = ash_eval_watch_start(&watch, "problems")};
    struct study study = {.eval = eval};
    int rc = read_sizes(&study, err);

    if (rc == 0) rc = ash_strategy_measure(&opts, study.points, study.point_count, err);
    ash_progress_bar_clear(&watch.bar);
    if (rc == 0) rc = print_study(&study, err);
    if (rc == 0 && eval->plot != NULL) rc = draw(&study, err);
    return rc;
}
