/* back: rollback of a run whose policy has collapsed; other answers are drawn from there. backs.jsonl has the first
 * rollout of each rollback, a line each, so that a resumed run draws the same ones. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/math.h"
#include "base/str.h"
#include "post/rl/rl_priv.h"

static int backs_path(const struct ash_policy_run *rl, char path[PATH_MAX])
{
    return ash_path_join(path, PATH_MAX, rl->dir, "backs.jsonl");
}

int ash_rl_read_backs(struct ash_policy_run *rl, struct ash_err *err)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    size_t at = 0;
    int rc = backs_path(rl, path);

    if (rc < 0 || !ash_path_exists(path)) return 0;
    rc = ash_map_open(path, &map, err);
    while (rc == 0 && at < map.size_bytes && rl->rollbacks.count < ASH_JOB_BACKS_MAX) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t line = end != NULL ? (size_t)(end - text) : map.size_bytes - at;
        json_t *json = NULL;
        int64_t first = 0;

        rc = ash_json_parse_line(text, line, "backs.jsonl", rl->rollbacks.count + 1, &json, err);
        if (rc == 0) rc = ash_json_int(json, "rollout", 0, INT64_MAX, &first, err);
        if (rc == 0)
            rc = ash_err_set(err, -EINVAL, "line %zu has no rollout", rl->rollbacks.count + 1);
        else if (rc > 0)
            rl->rollbacks.first[rl->rollbacks.count++] = (uint64_t)first;
        if (rc > 0) rc = 0;
        json_decref(json);
        at += line + 1;
    }
    ash_map_close(&map);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}

uint64_t ash_rl_draws(const struct ash_rl_rollbacks *rollbacks, uint64_t number)
{
    for (size_t i = rollbacks->count; i > 0; i--)
        if (rollbacks->first[i - 1] <= number) return i;
    return 0;
}

/* First rank, all of it or nothing: a partial file would draw other answers. If it cannot be written, a resumed run
 * collapses once more, and rolls back. */
static void write_backs(const struct ash_policy_run *rl)
{
    struct ash_err err = {0};
    struct ash_str text = {0};
    char path[PATH_MAX];
    int rc = backs_path(rl, path);

    for (size_t i = 0; rc == 0 && i < rl->rollbacks.count; i++)
        rc = ash_str_addf(&text, "{\"rollout\":%" PRIu64 "}\n", rl->rollbacks.first[i]);
    if (rc == 0) rc = ash_file_replace(path, text.data, text.size_bytes, &err);
    if (rc < 0)
        ash_log(ASH_LOG_WARN, "backs.jsonl cannot be written: %s", err.text[0] != '\0' ? err.text : strerror(-rc));
    ash_str_fini(&text);
}

void ash_rl_take_back(struct ash_policy_run *rl, uint64_t step)
{
    bool is_back = rl->rollbacks.collapsed_step > 0 && step < rl->rollbacks.collapsed_step;
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape);

    rl->rollbacks.collapsed_step = 0;
    if (!is_back || rl->rollbacks.count == ASH_JOB_BACKS_MAX) return;
    rl->rollbacks.first[rl->rollbacks.count++] =
        step == 0 ? 0 : ash_div_up(step, steps) + (uint64_t)rl->job->rollout.lag;
    for (size_t i = 0; i < rl->rollout_count; i++)
        rl->rollouts[i].number = UINT64_MAX; /* some are of steps that never were */
    ash_rl_close_curves(rl);
    if (ash_group_rank(rl->group) != 0) return;
    write_backs(rl);
    ash_critic_forget(rl, step);
}
