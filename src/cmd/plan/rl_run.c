/* ashlar plan rl --run: how should the processes of a run be divided into those that train and those that sample? */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/assert.h"
#include "base/table.h"
#include "cmd/plan/rl_run.h"
#include "plan/rl/split.h"
#include "train/run/control.h"

#define RANKS_MAX 1000000

/* The last line of curves.jsonl. */
static int read_last(const char *dir, json_t **json_out, struct ash_err *err)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    const char *text, *line = NULL;
    size_t size, first;
    int rc = ash_path_join(path, sizeof(path), dir, "curves.jsonl");

    if (rc == 0 && !ash_path_exists(path))
        return ash_err_set(err, -ENOENT, "%s has no curves.jsonl: it is no run of ashlar rl", dir);
    if (rc == 0) rc = ash_map_open(path, &map, err);
    if (rc < 0) return rc;
    text = (const char *)map.base;
    size = map.size_bytes;
    while (size > 0 && text[size - 1] != '\n') /* a line that is being written */
        size--;
    first = size > 0 ? size - 1 : 0;
    while (first > 0 && text[first - 1] != '\n')
        first--;
    line = text + first;
    rc = size > first + 1 ? ash_json_parse_line(line, size - 1 - first, path, 0, json_out, err)
                          : ash_err_set(err, -ENODATA, "%s has no steps yet", path);
    ash_map_close(&map);
    return rc;
}

/* The product of the axes that split one copy of the model: "tp=2 dp=4" is 2. */
static int unit_of(const char *mesh)
{
    static const char *const axes[] = {"tp=", "pp=", "cp="};
    long unit = 1;

    for (size_t i = 0; i < ASH_COUNT(axes); i++) {
        const char *at = strstr(mesh, axes[i]);
        long value = at != NULL ? strtol(at + 3, NULL, 10) : 1;

        if (value > 0 && value <= RANKS_MAX && unit <= RANKS_MAX) unit *= value;
    }
    return (int)unit;
}

/* A share of a side, 0 to 1. */
static int read_share(const json_t *line, const char *side, const char *key, double *share, struct ash_err *err)
{
    int rc = ash_json_double(json_object_get(line, side), key, 0, 1, share, err);

    return rc == 0 ? ash_err_set(err, -ENODATA,
                                 "the run has no %s of its %s: it samples and trains in the same processes, or has not "
                                 "drawn yet (rollout.mode=apart is what this compares)",
                                 key, side)
                   : rc;
}

static int measure(const char *dir, struct ash_rl_measured *measured, struct ash_err *err)
{
    struct ash_run_status status;
    json_t *line = NULL;
    double steps = 0, rewards = 0, publishes = 0, draw = 0, take = 0;
    int64_t trainers = 0, samplers = 0, lag = 0;
    int rc = read_last(dir, &line, err);

    if (rc == 0) rc = read_share(line, "trainer", "steps", &steps, err);
    if (rc > 0) rc = read_share(line, "trainer", "rewards", &rewards, err);
    if (rc > 0) rc = read_share(line, "trainer", "publishes_weights", &publishes, err);
    if (rc > 0) rc = read_share(line, "samplers", "draw", &draw, err);
    if (rc > 0) rc = read_share(line, "samplers", "take_weights", &take, err);
    if (rc > 0) rc = ash_json_int(line, "train_ranks", 1, RANKS_MAX, &trainers, err);
    if (rc > 0) rc = ash_json_int(line, "sampler_ranks", 1, RANKS_MAX, &samplers, err);
    if (rc > 0) rc = ash_json_double(line, "step_s", 1e-9, 1e9, &measured->step_s, err);
    if (rc > 0) rc = ash_json_int(line, "lag", 0, 1000, &lag, err);
    json_decref(line);
    if (rc == 0) rc = ash_err_set(err, -ENODATA, "%s is of a version that did not write ranks into curves.jsonl", dir);
    if (rc > 0) rc = ash_run_status_read(dir, &status, err);
    if (rc < 0) return rc;
    measured->trainers = (int)trainers;
    measured->samplers = (int)samplers;
    measured->unit = unit_of(status.mesh);
    measured->turns = lag == 0;
    measured->compute_s = steps * measured->step_s;
    measured->fixed_s = (rewards + publishes) * measured->step_s;
    measured->draw_s = draw * measured->step_s;
    measured->take_s = take * measured->step_s;
    return 0;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void print(const char *dir, const struct ash_rl_measured *measured, const struct ash_rl_division *divisions,
                  size_t count, size_t best)
{
    struct ash_table table = {.heads = ">train|>sample|>train s|>sample s|>step s|>trainer waits|>samplers wait|"};

    printf(
        "%s: %d train, %d sample; a step takes %.3g s, of which the trainer computes %.3g and a sampler draws %.3g\n\n",
        dir, measured->trainers, measured->samplers, measured->step_s, measured->compute_s, measured->draw_s);
    for (size_t i = 0; i < count; i++) {
        const struct ash_rl_division *division = &divisions[i];
        bool is_now = division->trainers == measured->trainers && division->samplers == measured->samplers;

        ash_table_row(&table, "%d|%d|%.3g|%.3g|%.3g|%.0f %%|%.0f %%|%s%s", division->trainers, division->samplers,
                      division->train_s, division->sample_s, division->step_s, 100 * division->trainer_waits,
                      100 * division->samplers_wait, i == best ? "best" : "", is_now ? " now" : "");
    }
    ash_table_print(&table, stdout);
    printf("verdict: %d train and %d sample (rollout.procs=%d): %.3g s a step, measured %.3g with %d and %d\n",
           divisions[best].trainers, divisions[best].samplers, divisions[best].samplers, divisions[best].step_s,
           measured->step_s, measured->trainers, measured->samplers);
}

static json_t *encode(const struct ash_rl_measured *measured, const struct ash_rl_division *divisions, size_t count,
                      size_t best)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "train", divisions[i].trainers, "sample",
                                        divisions[i].samplers, "train_s", divisions[i].train_s, "sample_s",
                                        divisions[i].sample_s, "step_s", divisions[i].step_s, "trainer_waits",
                                        divisions[i].trainer_waits, "samplers_wait", divisions[i].samplers_wait));
    return json_pack("{s:i, s:i, s:f, s:o, s:i}", "train", measured->trainers, "sample", measured->samplers, "step_s",
                     measured->step_s, "divisions", list, "best", (int)best);
}

int ash_plan_rl_run(const char *dir, int64_t procs, bool is_json, struct ash_err *err)
{
    struct ash_rl_division divisions[ASH_RL_DIVISIONS_MAX];
    struct ash_rl_measured measured = {0};
    size_t count, best = 0;
    int rc = measure(dir, &measured, err), all = procs > 0 ? (int)procs : measured.trainers + measured.samplers;

    if (rc < 0) return rc;
    count = ash_rl_divide(&measured, all, divisions, &best);
    if (count == 0)
        return ash_err_set(err, -EINVAL, "%d processes are too few: one copy of the model takes %d, and one samples",
                           all, measured.unit);
    if (is_json) return ash_cmd_print_json(encode(&measured, divisions, count, best), err);
    print(dir, &measured, divisions, count, best);
    return 0;
}
