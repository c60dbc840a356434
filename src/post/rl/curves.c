/* curves: curves.jsonl, a line a step: reward, lengths, entropy, divergence, shares of clipped tokens, seconds by part.
 * Each step is in it once: a run that resumes drops what came after the step that it resumes from. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "post/rl/rl_priv.h"

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
    rl->curves = fopen(path, "ae");
    return rl->curves == NULL ? ash_err_set(err, -errno, "%s: %s", path, strerror(errno)) : 0;
}

static json_t *line_of(const struct ash_policy_run *rl, uint64_t step, double eval)
{
    json_t *json = json_pack("{s:I}", "step", (json_int_t)step);

    if (step > 0) {
        struct ash_policy_run *run = (struct ash_policy_run *)(uintptr_t)rl;
        const struct ash_rollout *rollout = ash_rl_rollout_of(run, step - 1);
        double tokens = rl->counts[ASH_RL_WEIGHED] > 0 ? rl->counts[ASH_RL_WEIGHED] : 1.0;
        json_t *more = json_pack(
            "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f}", "reward", rollout->mean_reward, "length",
            rollout->mean_length, "ended", rollout->ended_share, "entropy", rollout->entropy, "kl", rollout->kl,
            "clipped_low", rl->counts[ASH_RL_CLIPPED_LOW] / tokens, "clipped_high",
            rl->counts[ASH_RL_CLIPPED_HIGH] / tokens, "same_groups", (json_int_t)rollout->same_groups,
            "replaced_groups", (json_int_t)rollout->replaced, "rollout_s", rl->seconds[0], "reward_s", rl->seconds[1]);

        json_object_update(json, more);
        json_decref(more);
        if (rl->has_critic) json_object_set_new(json, "value_loss", json_real(rl->value_loss));
    }
    if (!isnan(eval)) json_object_set_new(json, "eval", json_real(eval));
    return json;
}

void ash_rl_add_curves(struct ash_policy_run *rl, uint64_t step, double eval)
{
    struct ash_err why = {0};
    json_t *json;
    char *line;
    int rc = 0;

    if (rl->group != NULL && ash_group_rank(rl->group) != 0) return;
    if (rl->curves == NULL) rc = open_curves(rl, step, &why);
    json = rc == 0 ? line_of(rl, step, eval) : NULL;
    line = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    if (line != NULL && (fprintf(rl->curves, "%s\n", line) < 0 || fflush(rl->curves) != 0))
        rc = ash_err_set(&why, -errno, "%s", strerror(errno));
    if (rc < 0) ash_log(ASH_LOG_WARN, "curves.jsonl cannot be written: %s", why.text);
    free(line);
    json_decref(json);
}
