/* unused: answers that were sampled for later steps than those that are done (rollout.lag, rl.epochs, rl.minibatches)
 * are part of the run's state: its hash covers them with their rewards, and a checkpoint holds them, so that it can be
 * continued where the run's folder is gone. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/range.h"
#include "base/str.h"
#include "post/rl/rl_priv.h"

/* More would not fit into a manifest: such a checkpoint needs the run's folder. About 40 bytes of JSON are a token. */
#define HELD_TOKENS_MAX 1000000

/* Numbers of the rollouts that steps after `step` learn from, and that were sampled before. */
static struct ash_range unused_rollouts(const struct ash_policy_run *rl, uint64_t step)
{
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape);

    if (step == 0) return (struct ash_range){0, 0};
    return (struct ash_range){(size_t)(step / steps), (size_t)rl->job->rollout.lag + (step % steps != 0)};
}

static uint64_t hash_rollout(const struct ash_policy_run *rl, const struct ash_rollout *rollout, uint64_t seed)
{
    uint64_t words[2] = {rollout->number, rollout->version};
    uint64_t hash = ash_hash_bytes(words, sizeof(words), seed);

    hash = ash_hash_bytes(rollout->prompt_numbers, rl->shape.prompts * sizeof(*rollout->prompt_numbers), hash);
    for (size_t a = 0; a < rl->shape.answers; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        hash = ash_hash_bytes(row->ids, row->count * sizeof(*row->ids), hash + row->has_ended);
        hash = ash_hash_bytes(row->logps, row->count * sizeof(*row->logps), hash);
        if (row->sampled != NULL) hash = ash_hash_bytes(row->sampled, row->count * sizeof(*row->sampled), hash);
        hash = ash_hash_bytes(&row->reward, sizeof(row->reward), hash);
    }
    return hash;
}

/* Samplers in other processes draw some of them still. */
static int await_unused(struct ash_policy_run *rl, struct ash_group *group, struct ash_range unused, uint64_t step,
                        struct ash_err *err)
{
    int rc = 0;

    if (rl->apart == NULL) return 0;
    rl->group = group;
    for (size_t i = 0; rc == 0 && i < unused.count; i++) {
        uint64_t number = unused.first + i, due = ash_chunks_due(rl, number, step);

        rc = due > ash_chunks_last(rl->job, number) ? ash_apart_have(rl, number, err)
                                                    : ash_apart_have_part(rl, number, due, err);
    }
    return rc == -ENOTRECOVERABLE ? -ENODATA : rc; /* nothing is prepared here that could go back */
}

int ash_rl_hash_unused(void *ctx, struct ash_group *group, uint64_t step, uint64_t *hash_out, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    struct ash_range unused = unused_rollouts(rl, step);
    uint64_t hash = *hash_out;
    int rc = await_unused(rl, group, unused, step, err);

    for (size_t i = 0; rc == 0 && i < unused.count; i++) {
        uint64_t number = unused.first + i;
        struct ash_rollout *rollout = &rl->rollouts[number % rl->rollout_count];
        bool is_here = rollout->number == number;

        /* a rank that has just come: the record has it; prepare() reads it again, with its prompts */
        if (!is_here && ash_chunks_reread(rl, number, ash_chunks_due(rl, number, step), NULL) <= 0) continue;
        hash = hash_rollout(rl, rollout, hash);
        if (!is_here) rollout->number = UINT64_MAX;
    }
    if (rc == 0) *hash_out = hash;
    return rc;
}

static size_t count_tokens(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    size_t tokens = 0;

    for (size_t a = 0; a < rl->shape.answers; a++)
        tokens += rollout->answers[a].count;
    return tokens;
}

static json_t *rollout_json(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    json_t *answers = json_array();

    for (size_t a = 0; a < rl->shape.answers; a++)
        json_array_append_new(answers, ash_rl_row_json(rl, rollout, &rollout->answers[a]));
    return json_pack("{s:I, s:o}", "rollout", (json_int_t)rollout->number, "answers", answers);
}

json_t *ash_rl_save_unused(void *ctx, uint64_t step)
{
    const struct ash_policy_run *rl = ctx;
    struct ash_range unused = unused_rollouts(rl, step);
    json_t *kept = unused.count > 0 ? json_array() : NULL;
    size_t tokens = 0;

    for (size_t i = 0; i < unused.count; i++) {
        const struct ash_rollout *rollout = &rl->rollouts[(unused.first + i) % rl->rollout_count];

        if (rollout->number != unused.first + i || rollout->drawn < ash_chunks_due(rl, rollout->number, step))
            continue; /* it is in its record */
        tokens += count_tokens(rl, rollout);
        if (tokens <= HELD_TOKENS_MAX) json_array_append_new(kept, rollout_json(rl, rollout));
    }
    if (tokens > HELD_TOKENS_MAX)
        ash_log(ASH_LOG_WARN, "a checkpoint does not hold all answers of later steps: keep rollouts/ with it");
    return kept;
}

/* Write the record of one. An existing one of all its answers is at least as new, and has their rewards. */
static int load_rollout(const struct ash_policy_run *rl, const json_t *json, struct ash_err *err)
{
    struct ash_str all = {0};
    char path[PATH_MAX], dir[PATH_MAX];
    json_t *answers = json_object_get(json, "answers"), *answer;
    bool is_part = json_object_get(json_array_get(answers, 0), "drawn") != NULL;
    size_t i;
    int rc = ash_rl_record_path(rl, (uint64_t)json_integer_value(json_object_get(json, "rollout")), is_part, path);

    if (rc < 0 || (!is_part && ash_path_exists(path))) return rc;
    json_array_foreach(answers, i, answer) {
        char *line = json_dumps(answer, JSON_COMPACT);

        if (rc == 0 && (line == NULL || ash_str_adds(&all, line) < 0 || ash_str_adds(&all, "\n") < 0))
            rc = ash_err_set(err, -ENOMEM, "out of memory for answers");
        free(line);
    }
    if (rc == 0) rc = ash_path_join(dir, sizeof(dir), rl->dir, "rollouts");
    if (rc == 0) rc = ash_dir_make(dir, err);
    if (rc == 0) rc = ash_file_replace(path, all.data, all.size_bytes, err);
    ash_str_fini(&all);
    return rc;
}

int ash_rl_load_unused(void *ctx, const json_t *kept, struct ash_err *err)
{
    const struct ash_policy_run *rl = ctx;
    json_t *one;
    size_t i;
    int rc = 0;

    if (ash_group_rank(rl->group) != 0) return 0;
    json_array_foreach((json_t *)(uintptr_t)kept, i, one)
        if (rc == 0) rc = load_rollout(rl, one, err);
    return rc;
}
