/* curves: curves.jsonl, a line a step: reward, lengths, entropy, divergence, shares of clipped tokens, seconds by part.
 * Each step is in it once: a resumed run drops the lines after its first step. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "post/rl/rl_priv.h"

#define EVENT_SCALARS_MAX 32 /* of a line */

/* How many bytes of a file's lines belong to steps before `step`. */
static size_t kept_bytes(const char *text, size_t size, uint64_t step)
{
    size_t at = 0;

    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t line = end != NULL ? (size_t)(end - (text + at)) : 0;
        json_t *json = NULL;
        bool is_kept = end != NULL && ash_json_parse_line(text + at, line, "curves.jsonl", 0, &json, NULL) == 0 &&
                       json_integer_value(json_object_get(json, "step")) < (json_int_t)step;

        json_decref(json);
        if (!is_kept) break;
        at += line + 1;
    }
    return at;
}

static int open_curves(struct ash_policy_run *rl, uint64_t step, struct ash_err *err)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    size_t kept = 0;
    int rc = ash_path_join(path, sizeof(path), rl->dir, "curves.jsonl");

    if (rc == 0 && ash_path_exists(path) && ash_map_open(path, &map, NULL) == 0) {
        kept = kept_bytes((const char *)map.base, map.size_bytes, step);
        rc = ash_file_replace(path, map.base, kept, err);
        ash_map_close(&map);
    }
    if (rc < 0) return rc;
    rl->curves.file = fopen(path, "ae");
    return rl->curves.file == NULL ? ash_err_set(err, -errno, "%s: %s", path, strerror(errno)) : 0;
}

static int open_events(struct ash_policy_run *rl, uint64_t step, struct ash_err *err)
{
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), rl->job->log.tensorboard, "rl");

    return rc < 0 ? ash_err_set(err, rc, "log.tensorboard is too long a path")
                  : ash_event_file_open(path, step, ash_clock_wall_s(), &rl->curves.events, err);
}

/* A line's numbers for TensorBoard, if the job wants them. */
static void add_events(struct ash_policy_run *rl, uint64_t step, json_t *line)
{
    struct ash_event_scalar scalars[EVENT_SCALARS_MAX];
    struct ash_err why = {0};
    size_t count = 0;
    const char *key;
    json_t *value;
    int rc;

    if (rl->job->log.tensorboard == NULL) return;
    json_object_foreach(line, key, value)
        if (strcmp(key, "step") != 0 && json_is_number(value) && count < EVENT_SCALARS_MAX)
            scalars[count++] = (struct ash_event_scalar){key, (float)json_number_value(value)};
    rc = rl->curves.events == NULL ? open_events(rl, step, &why) : 0;
    if (rc == 0) rc = ash_event_file_add(rl->curves.events, step, ash_clock_wall_s(), scalars, count, &why);
    if (rc < 0) ash_log(ASH_LOG_WARN, "TensorBoard's events of rewards cannot be written: %s", why.text);
}

void ash_rl_close_curves(struct ash_policy_run *rl)
{
    if (rl->curves.file != NULL) fclose(rl->curves.file);
    rl->curves.file = NULL;
    ash_event_file_close(rl->curves.events);
    rl->curves.events = NULL;
}

static void add_fields(json_t *json, json_t *more)
{
    json_object_update(json, more);
    json_decref(more);
}

/* How far servers and trainer are apart. */
static void add_mismatch(json_t *json, const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    struct ash_mismatch mismatch = ash_external_mismatch(rl, rollout);

    add_fields(json, json_pack("{s:f, s:f, s:f}", "mismatch_kl", mismatch.kl, "mismatch_max_ratio", mismatch.max_ratio,
                               "mismatch_cut", mismatch.cut));
}

/* Figures of the rollout that a step trained on. */
static void add_rollout(json_t *json, struct ash_policy_run *rl, uint64_t step)
{
    const struct ash_rollout *rollout = ash_rl_rollout_of(rl, step - 1);

    if (rollout->number != (step - 1) / ash_rl_steps_per_rollout(&rl->shape)) return; /* this rank has not seen it */
    add_fields(json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "reward", rollout->mean_reward, "length",
                               rollout->mean_length, "ended", rollout->ended_share, "entropy", rollout->entropy, "kl",
                               rollout->kl, "age", rollout->age, "oldest", rollout->oldest));
    if (rl->external != NULL) add_mismatch(json, rl, rollout);
}

/* Who waited for whom, since the process began. */
static void add_shares(json_t *json, const struct ash_policy_run *rl)
{
    struct ash_apart_shares shares = ash_apart_get_shares(rl);

    if (shares.step_s > 0)
        add_fields(json, json_pack("{s:I, s:I, s:I, s:f}", "lag", (json_int_t)rl->job->rollout.lag, "train_ranks",
                                   (json_int_t)ash_group_size(rl->group), "sampler_ranks", (json_int_t)shares.samplers,
                                   "step_s", shares.step_s));
    add_fields(json, json_pack("{s:{s:f, s:f, s:f, s:f}, s:{s:f, s:f, s:f}}", "trainer", "steps", shares.steps,
                               "waits_for_answers", shares.answers, "rewards", shares.rewards, "publishes_weights",
                               shares.publishing, "samplers", "draw", shares.drawing, "wait_for_work", shares.waiting,
                               "take_weights", shares.taking));
}

/* Sums of the step's ranks. */
static void add_counts(json_t *json, struct ash_policy_run *rl, uint64_t step)
{
    const struct ash_rollout *rollout = ash_rl_rollout_of(rl, step - 1);
    double tokens = rl->counts[ASH_RL_WEIGHED] > 0 ? rl->counts[ASH_RL_WEIGHED] : 1.0;

    add_fields(json,
               json_pack("{s:f, s:f, s:I, s:I, s:f, s:f, s:f}", "clipped_low", rl->counts[ASH_RL_CLIPPED_LOW] / tokens,
                         "clipped_high", rl->counts[ASH_RL_CLIPPED_HIGH] / tokens, "same_groups",
                         (json_int_t)rollout->same_groups, "replaced_groups", (json_int_t)rollout->replaced,
                         "rollout_s", rl->seconds[ASH_RL_SAMPLING], "reward_s", rl->seconds[ASH_RL_REWARDING],
                         "handover_s", rl->seconds[ASH_RL_HANDOVER]));
    if (rl->shape.has_critic) json_object_set_new(json, "value_loss", json_real(rl->critic.value_loss));
    if (rl->apart != NULL) add_shares(json, rl);
}

static json_t *line_of(struct ash_policy_run *rl, uint64_t step, bool has_counts, double eval)
{
    json_t *json = json_pack("{s:I}", "step", (json_int_t)step);

    if (json == NULL) return NULL;
    if (step > 0) add_rollout(json, rl, step);
    if (step > 0 && has_counts) add_counts(json, rl, step);
    if (!isnan(eval)) json_object_set_new(json, "eval", json_real(eval));
    return json;
}

/* First rank: a line for a step. has_counts: its ranks have reduced their counts. */
static void write_line(struct ash_policy_run *rl, uint64_t step, bool has_counts, double eval)
{
    struct ash_err why = {0};
    json_t *json = line_of(rl, step, has_counts, eval);
    char *line = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    int rc = rl->curves.file == NULL ? open_curves(rl, step, &why) : 0;

    rl->curves.next_step = step + 1;
    if (json != NULL) add_events(rl, step, json);
    if (rc == 0 && line != NULL && (fprintf(rl->curves.file, "%s\n", line) < 0 || fflush(rl->curves.file) != 0))
        rc = ash_err_set(&why, -errno, "%s", strerror(errno));
    if (rc < 0) ash_log(ASH_LOG_WARN, "curves.jsonl cannot be written: %s", why.text);
    free(line);
    json_decref(json);
}

void ash_rl_add_curves(struct ash_policy_run *rl, uint64_t step, double eval)
{
    if (ash_group_rank(rl->group) == 0) write_line(rl, step, true, eval);
}

/* The step of the last line, plus 1. */
static uint64_t steps_told(const struct ash_policy_run *rl)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    uint64_t steps = 0;
    size_t kept;

    if (rl->curves.file != NULL) return rl->curves.next_step;
    if (ash_path_join(path, sizeof(path), rl->dir, "curves.jsonl") < 0 || ash_map_open(path, &map, NULL) < 0) return 0;
    kept = kept_bytes((const char *)map.base, map.size_bytes, UINT64_MAX >> 1);
    for (size_t i = 0; i < kept; i++) {
        json_t *json = NULL;
        const char *line = (const char *)map.base + i;
        size_t length = (size_t)((const char *)memchr(line, '\n', kept - i) - line);

        if (ash_json_parse_line(line, length, "curves.jsonl", 0, &json, NULL) == 0)
            steps = (uint64_t)json_integer_value(json_object_get(json, "step")) + 1;
        json_decref(json);
        i += length;
    }
    ash_map_close(&map);
    return steps;
}

void ash_rl_mend_curves(struct ash_policy_run *rl, uint64_t step)
{
    if (ash_group_rank(rl->group) != 0) return;
    if (step > 0 && steps_told(rl) == step) write_line(rl, step, false, NAN); /* the line of step - 1 is the last */
}
