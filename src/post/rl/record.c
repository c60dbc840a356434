/* record: rollouts/step-N.jsonl, an answer a line. They are for people, and for a run that resumes: answers that older
 * weights sampled cannot be sampled again. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "post/rl/rl_priv.h"

int ash_rl_record_path(const struct ash_policy_run *rl, uint64_t number, bool is_part, char path[PATH_MAX])
{
    char name[64];

    snprintf(name, sizeof(name), "rollouts/step-%" PRIu64 "%s.jsonl", number * ash_rl_steps_per_rollout(&rl->shape) + 1,
             is_part ? ".part" : "");
    return ash_path_join(path, PATH_MAX, rl->dir, name);
}

/* The critic's values, as bits: a run that resumes needs those of now. */
static void add_values(json_t *json, const struct ash_answer_row *row)
{
    json_t *bits = json_array();

    for (size_t t = 0; t < row->count; t++) {
        uint32_t word;

        memcpy(&word, &row->values[t], sizeof(word));
        json_array_append_new(bits, json_integer(word));
    }
    json_object_set_new(json, "value_bits", bits);
}

/* Null where the server said nothing. */
static void add_sampled(json_t *json, const struct ash_answer_row *row)
{
    json_t *list = json_array();

    for (size_t t = 0; t < row->count; t++)
        json_array_append_new(list, isnan(row->sampled[t]) ? json_null() : json_real((double)row->sampled[t]));
    json_object_set_new(json, "sampler_logprobs", list);
}

/* Steps that the weights had done that drew each token. */
static void add_versions(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                         const struct ash_answer_row *row, json_t *json)
{
    uint64_t steps = ash_rl_steps_per_rollout(&rl->shape);
    json_t *versions = json_array();

    for (size_t t = 0; t < row->count; t++)
        json_array_append_new(versions,
                              json_integer((json_int_t)(ash_chunks_version(rl->job, rollout->number, t) * steps)));
    json_object_set_new(json, "versions", versions);
    if (!ash_chunks_is_whole(rl, rollout)) json_object_set_new(json, "drawn", json_integer((json_int_t)rollout->drawn));
}

json_t *ash_rl_row_json(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                        const struct ash_answer_row *row)
{
    const struct ash_prompt *prompt = &rollout->prompts[row->prompt];
    json_t *ids = json_array(), *logps = json_array(), *bits = json_array();
    struct ash_str text = {0};
    json_t *json;

    for (size_t t = 0; t < row->count; t++) {
        uint32_t word;

        memcpy(&word, &row->logps[t], sizeof(word));
        json_array_append_new(ids, json_integer(row->ids[t]));
        json_array_append_new(logps, json_real((double)row->logps[t]));
        json_array_append_new(bits, json_integer(word));
    }
    if (ash_rl_decode(rl, row, 0, &text, NULL) < 0) ash_str_clear(&text);
    json = json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:f, s:f, s:b, s:o, s:o, s:o}", "version",
                     (json_int_t)rollout->version, "prompt_index", (json_int_t)row->prompt, "prompt_number",
                     (json_int_t)rollout->prompt_numbers[row->prompt], "prompt", prompt->text, "answer",
                     text.data != NULL ? text.data : "", "wanted", prompt->answer, "reward", row->reward, "advantage",
                     row->advantage, "ended", (int)row->has_ended, "ids", ids, "logprobs", logps, "logprob_bits", bits);
    ash_str_fini(&text);
    if (rl->shape.has_critic && json != NULL) add_values(json, row);
    if (row->sampled != NULL && json != NULL) add_sampled(json, row);
    if (rl->job->rollout.chunk > 0 && json != NULL) add_versions(rl, rollout, row, json);
    if (row->given != NULL && json != NULL) json_object_set_new(json, "given", ash_rl_given_json(row));
    if (rl->shape.has_kept && json != NULL) json_object_set_new(json, "kept", ash_rl_kept_json(row));
    return json;
}

void ash_rl_record(const struct ash_policy_run *rl, const struct ash_rollout *rollout)
{
    struct ash_str all = {0};
    struct ash_err err = {0};
    char path[PATH_MAX], dir[PATH_MAX];
    int rc = ash_rl_record_path(rl, rollout->number, !ash_chunks_is_whole(rl, rollout), path);

    if (ash_group_rank(rl->group) != 0) return;
    for (size_t a = 0; rc == 0 && a < rl->shape.answers; a++) {
        json_t *json = ash_rl_row_json(rl, rollout, &rollout->answers[a]);
        char *line = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;

        rc = line == NULL || ash_str_adds(&all, line) < 0 || ash_str_adds(&all, "\n") < 0 ? -ENOMEM : 0;
        free(line);
        json_decref(json);
    }
    if (rc == 0) rc = ash_path_join(dir, sizeof(dir), rl->dir, "rollouts");
    if (rc == 0) rc = ash_dir_make(dir, &err);
    if (rc == 0) rc = ash_file_replace(path, all.data, all.size_bytes, &err);
    if (rc < 0) ash_log(ASH_LOG_WARN, "the answers of a step cannot be written: %s", err.text);
    ash_str_fini(&all);
}

static int read_row(struct ash_policy_run *rl, const json_t *json, struct ash_rollout *rollout, size_t a,
                    struct ash_err *err)
{
    struct ash_answer_row *row = &rollout->answers[a];
    const json_t *ids = json_object_get(json, "ids"), *bits = json_object_get(json, "logprob_bits"),
                 *values = json_object_get(json, "value_bits");

    if ((rl->shape.has_critic && json_array_size(values) != json_array_size(ids)) ||
        json_array_size(ids) > rl->shape.max_tokens || json_array_size(ids) != json_array_size(bits) ||
        !json_is_number(json_object_get(json, "reward")))
        return ash_err_set(err, -EBADMSG, "answer %zu is damaged", a);
    row->count = json_array_size(ids);
    row->has_ended = json_is_true(json_object_get(json, "ended"));
    row->reward = json_number_value(json_object_get(json, "reward"));
    rollout->version = (uint64_t)json_integer_value(json_object_get(json, "version"));
    rollout->drawn = (uint64_t)json_integer_value(json_object_get(json, "drawn"));
    rollout->prompt_numbers[row->prompt] = (uint64_t)json_integer_value(json_object_get(json, "prompt_number"));
    for (size_t t = 0; t < row->count; t++) {
        uint32_t word = (uint32_t)json_integer_value(json_array_get(bits, t));

        row->ids[t] = (int32_t)json_integer_value(json_array_get(ids, t));
        memcpy(&row->logps[t], &word, sizeof(word));
        if (!rl->shape.has_critic) continue;
        word = (uint32_t)json_integer_value(json_array_get(values, t));
        memcpy(&row->values[t], &word, sizeof(word));
    }
    for (size_t t = 0; row->sampled != NULL && t < row->count; t++) {
        const json_t *said = json_array_get(json_object_get(json, "sampler_logprobs"), t);

        row->sampled[t] = json_is_number(said) ? (float)json_number_value(said) : NAN;
    }
    if (row->given != NULL && ash_rl_given_read(json_object_get(json, "given"), row) < 0)
        return ash_err_set(err, -EBADMSG, "answer %zu is damaged: its turns do not fit its tokens", a);
    if (rl->shape.has_kept && ash_rl_kept_read(json_object_get(json, "kept"), row) < 0)
        return ash_err_set(err, -EBADMSG, "answer %zu is damaged: its kept ids do not fit its tokens", a);
    return 0;
}

/* Is a recorded answer this one? */
static bool is_row(const json_t *json, const struct ash_answer_row *row, uint64_t prompt_number, uint64_t version)
{
    const json_t *ids = json_object_get(json, "ids");

    if (json_array_size(ids) != row->count || !json_is_number(json_object_get(json, "reward")) ||
        (uint64_t)json_integer_value(json_object_get(json, "prompt_number")) != prompt_number ||
        (uint64_t)json_integer_value(json_object_get(json, "version")) != version)
        return false;
    for (size_t t = 0; t < row->count; t++)
        if (json_integer_value(json_array_get(ids, t)) != row->ids[t]) return false;
    return true;
}

bool ash_rl_recall(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t round)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    size_t a = 0;
    bool is_same = round == 0 && rl->job->rl.sampling_rounds == 1 && !ash_rewards_is_pure(rl->rewards) &&
                   ash_rl_record_path(rl, rollout->number, false, path) == 0 && ash_path_exists(path) &&
                   ash_map_open(path, &map, NULL) == 0;

    for (size_t at = 0; is_same && at < map.size_bytes && a < rl->shape.answers; a++) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;
        struct ash_answer_row *row = &rollout->answers[a];
        json_t *json = NULL;

        is_same = ash_json_parse_line(text, size, path, a + 1, &json, NULL) == 0 &&
                  is_row(json, row, rollout->prompt_numbers[row->prompt], rollout->version);
        if (is_same) row->reward = json_number_value(json_object_get(json, "reward"));
        json_decref(json);
        at += size + 1;
    }
    ash_map_close(&map);
    return is_same && a == rl->shape.answers;
}

int ash_rl_reread(struct ash_policy_run *rl, uint64_t number, bool is_part, struct ash_rollout *rollout,
                  struct ash_err *err)
{
    struct ash_map map = {0};
    char path[PATH_MAX];
    size_t a = 0;
    int rc = ash_rl_record_path(rl, number, is_part, path);

    if (rc < 0 || !ash_path_exists(path)) return 0;
    rc = ash_map_open(path, &map, err);
    for (size_t at = 0; rc == 0 && at < map.size_bytes && a < rl->shape.answers; a++) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;
        json_t *json = NULL;

        rc = ash_json_parse_line(text, size, path, a + 1, &json, err);
        if (rc == 0) rc = read_row(rl, json, rollout, a, err);
        json_decref(json);
        at += size + 1;
    }
    ash_map_close(&map);
    if (rc == 0 && a < rl->shape.answers)
        rc = ash_err_set(err, -EBADMSG, "%s has %zu answers of %zu", path, a, rl->shape.answers);
    rollout->number = number;
    return rc < 0 ? rc : 1;
}
