/* report: answers on the page of a run: curves of curves.jsonl, and answers of the first and the last
 * rollout to read. Both come from files, so a resumed run shows all of them. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "post/rl/rl_priv.h"

#define POINTS_MAX 600  /* of a curve, besides evaluations */
#define ANSWERS_MAX 16u /* of a rollout: the first one to each prompt */

static const struct {
    const char *field, *title;
} curves[] = {{"reward", "Reward"},
              {"eval", "Held-out prompts, greedy"},
              {"entropy", "Entropy"},
              {"length", "Tokens of an answer"},
              {"kl", "Divergence from the reference"},
              {"age", "Age of tokens, in steps"},
              {"oldest", "Age of the oldest token"},
              {"mismatch_kl", "Divergence of servers from the trainer"},
              {"mismatch_max_ratio", "Largest ratio of trainer and server"},
              {"same_groups", "Groups that agree"},
              {"clipped_low", "Share clipped below"},
              {"clipped_high", "Share clipped above"},
              {"value_loss", "Loss of the critic"}};

/* The line at *at of a text, without its end; 0 at the end of the text, or where the last line has none. */
static size_t next_line(const struct ash_map *map, size_t *at, const char **line)
{
    const char *text, *end;

    if (*at >= map->size_bytes) return 0;
    text = (const char *)map->base + *at;
    end = memchr(text, '\n', map->size_bytes - *at);
    if (end == NULL) return 0;
    *line = text;
    *at += (size_t)(end - text) + 1;
    return (size_t)(end - text);
}

static size_t count_lines(const struct ash_map *map)
{
    const char *line;
    size_t at = 0, count = 0;

    while (next_line(map, &at, &line) > 0)
        count++;
    return count;
}

/* A curve of rows, objects of curves.jsonl; NULL: it has no value, or all are 0. */
static json_t *curve_json(const json_t *rows, size_t which)
{
    json_t *steps = json_array(), *values = json_array(), *row;
    bool is_flat = true;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        const json_t *value = json_object_get(row, curves[which].field);

        if (!json_is_number(value) || !isfinite(json_number_value(value))) continue;
        is_flat &= json_number_value(value) == 0.0;
        json_array_append(steps, json_object_get(row, "step"));
        json_array_append_new(values, json_real(json_number_value(value)));
    }
    if (!is_flat) return json_pack("{s:s, s:o, s:o}", "title", curves[which].title, "step", steps, "mean", values);
    json_decref(steps);
    json_decref(values);
    return NULL;
}

/* Lines of curves.jsonl: some of them, and all with an evaluation. */
static json_t *read_rows(const char *path)
{
    json_t *rows = json_array();
    struct ash_map map = {0};
    const char *line = NULL;
    size_t at = 0, size, count, stride;

    if (ash_map_open(path, &map, NULL) < 0) return rows;
    count = count_lines(&map);
    stride = count / POINTS_MAX + 1;
    for (size_t i = 0; (size = next_line(&map, &at, &line)) > 0; i++) {
        json_t *json = NULL;
        bool is_wanted = i % stride == 0 || i + 1 == count || memmem(line, size, "\"eval\":", 7) != NULL;

        if (is_wanted && ash_json_parse_line(line, size, path, i + 1, &json, NULL) == 0)
            json_array_append_new(rows, json);
    }
    ash_map_close(&map);
    return rows;
}

/* [prompt, answer, wanted, reward] of some answers of the rollout that a step learned from. */
static json_t *answers_json(const struct ash_policy_run *rl, uint64_t step)
{
    size_t samples = (size_t)rl->job->rl.samples, at = 0, size;
    json_t *list = json_array();
    struct ash_map map = {0};
    const char *line = NULL;
    char path[PATH_MAX];

    if (ash_rl_record_path(rl, (step - 1) / ash_rl_steps_per_rollout(&rl->shape), false, path) == 0)
        (void)ash_map_open(path, &map, NULL);
    for (size_t i = 0; i < samples * ANSWERS_MAX && (size = next_line(&map, &at, &line)) > 0; i++) {
        json_t *json = NULL;

        if (i % samples != 0 || ash_json_parse_line(line, size, path, i + 1, &json, NULL) < 0) continue;
        json_array_append_new(list, json_pack("[O, O, O, O]", json_object_get(json, "prompt"),
                                              json_object_get(json, "answer"), json_object_get(json, "wanted"),
                                              json_object_get(json, "reward")));
        json_decref(json);
    }
    ash_map_close(&map);
    return json_pack("{s:I, s:o}", "step", (json_int_t)step, "rows", list);
}

json_t *ash_rl_report(void *ctx)
{
    const struct ash_policy_run *rl = ctx;
    json_t *shown = json_array(), *answers = json_array(), *rows;
    char path[PATH_MAX];
    json_int_t last;

    if (ash_path_join(path, sizeof(path), rl->dir, "curves.jsonl") < 0) path[0] = '\0';
    rows = read_rows(path);
    for (size_t i = 0; i < ASH_COUNT(curves); i++) {
        json_t *curve = curve_json(rows, i);

        if (curve != NULL) json_array_append_new(shown, curve);
    }
    last = json_integer_value(json_object_get(json_array_get(rows, json_array_size(rows) - 1), "step"));
    if (last > 0) json_array_append_new(answers, answers_json(rl, 1));
    if (last > 1) json_array_append_new(answers, answers_json(rl, (uint64_t)last));
    json_decref(rows);
    return json_pack("{s:o, s:o}", "curves", shown, "answers", answers);
}
