/* turns: an environment that answers the policy, which continues. Its text becomes tokens of the answer once
 * and is never tokenised again; they are not trained on. The first rank sends, in the order of answers, so the program
 * gets the same lines in every layout. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "post/reward/turn.h"
#include "post/rl/rl_priv.h"

#define MARK "\x02answer\x03" /* stands for an answer while a template renders the text after one */

bool ash_rl_goes_on(const struct ash_answer_row *row)
{
    return row->count > 0 && ash_rl_is_given(row, row->count - 1);
}

size_t ash_rl_last_turn(const struct ash_answer_row *row)
{
    size_t first = row->count;

    while (first > 0 && !ash_rl_is_given(row, first - 1))
        first--;
    return first;
}

/* ---- replies of the environment
 * ----------------------------------------------------------------------------------- */

static int ask(struct ash_policy_run *rl, const struct ash_prompt *prompt, const struct ash_answer_row *row,
               size_t turn, struct ash_str *reply, struct ash_err *err)
{
    struct ash_str all = {0}, last = {0};
    json_t *json = NULL;
    char *line = NULL;
    int rc = ash_rl_decode(rl, row, 0, &all, err);

    if (rc == 0) rc = ash_rl_decode(rl, row, ash_rl_last_turn(row), &last, err);
    if (rc == 0) {
        json = json_pack("{s:s, s:I, s:s, s:s, s:s}", "prompt", prompt->text, "turn", (json_int_t)turn, "answer",
                         last.data, "transcript", all.data, "wanted", prompt->answer);
        line = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
        if (line == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for a turn");
    }
    if (rc == 0 && rl->environment == NULL) rc = ash_program_open(rl->job->rl.environment, NULL, &rl->environment, err);
    if (rc == 0) rc = ash_program_talk(rl->environment, line, reply, err);
    free(line);
    json_decref(json);
    ash_str_fini(&all);
    ash_str_fini(&last);
    return rc;
}

/* The template's text between an answer and the next one. */
static int render(const struct ash_policy_run *rl, const struct ash_turn *turn, struct ash_str *text,
                  struct ash_err *err)
{
    struct ash_str all = {0};
    json_t *variables;
    const char *mark;
    int rc;

    if (rl->text.template == NULL)
        return ash_err_set(err, -EINVAL, "the model has no chat template: the environment must say \"text\"");
    variables =
        json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:b}", "messages", "role", "user", "content", "x", "role",
                  "assistant", "content", MARK, "role", turn->role, "content", turn->text, "add_generation_prompt", 1);
    if (variables == NULL) return ash_err_set(err, -EINVAL, "what the environment says is not UTF-8");
    rc = ash_chat_template_render_json(rl->text.template, variables, &all, err);
    json_decref(variables);
    mark = rc == 0 && all.data != NULL ? strstr(all.data, MARK) : NULL;
    if (rc == 0 && mark == NULL) rc = ash_err_set(err, -EINVAL, "the chat template does not write the answer");
    if (rc == 0 && ash_str_adds(text, mark + strlen(MARK)) < 0) rc = ash_err_set(err, -ENOMEM, "out of memory");
    ash_str_fini(&all);
    return rc;
}

static int encode(const struct ash_policy_run *rl, const struct ash_turn *turn, struct ash_ids *ids,
                  struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = turn->role != NULL                    ? render(rl, turn, &text, err)
             : ash_str_adds(&text, turn->text) < 0 ? ash_err_set(err, -ENOMEM, "out of memory")
                                                   : 0;

    if (rc == 0) rc = ash_tokenizer_encode(rl->text.tokenizer, text.data, text.size_bytes, false, ids, err);
    ash_str_fini(&text);
    return rc;
}

/* Put the tokens of a turn after the answer. Where they leave no room for another word, the answer has no end. */
static int append(const struct ash_policy_run *rl, struct ash_answer_row *row, const struct ash_ids *ids,
                  struct ash_err *err)
{
    size_t skip = ids->count > 0 && row->count > 0 && ids->data[0] == row->ids[row->count - 1]; /* the end is there */
    int rc = 0;

    if (ids->count == skip) return 0; /* no tokens: an empty reply */
    row->has_ended = false;
    if (row->count + ids->count - skip >= rl->shape.max_tokens) return 0;
    for (size_t i = skip; rc == 0 && i < ids->count; i++) {
        if (row->kept.ends != NULL) rc = ash_rl_kept_add(row, row->count, NULL, 0);
        row->ids[row->count] = ids->data[i];
        row->logps[row->count] = 0.0f;
        row->given[row->count++] = 1;
    }
    return rc < 0 ? ash_err_set(err, rc, "out of memory for a turn") : 0;
}

int ash_rl_hear(struct ash_policy_run *rl, const struct ash_prompt *prompt, struct ash_answer_row *row, size_t turn,
                struct ash_err *err)
{
    struct ash_turn said = {0};
    struct ash_str reply = {0};
    struct ash_ids ids = {0};
    int rc = ask(rl, prompt, row, turn, &reply, err);

    if (rc == 0) rc = ash_turn_parse(reply.data != NULL ? reply.data : "", reply.size_bytes, &said, err);
    if (rc == 0 && said.text != NULL) rc = encode(rl, &said, &ids, err);
    if (rc == 0 && said.text != NULL) rc = append(rl, row, &ids, err);
    ash_str_fini(&reply);
    ash_ids_fini(&ids);
    ash_turn_fini(&said);
    return rc < 0 ? ash_err_prefix(err, rc, "rl.environment, turn %zu", turn + 1) : 0;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

json_t *ash_rl_given_json(const struct ash_answer_row *row)
{
    json_t *list = json_array();

    for (size_t t = 0; t < row->count; t++)
        json_array_append_new(list, json_integer(row->given[t]));
    return list;
}

int ash_rl_given_read(const json_t *list, struct ash_answer_row *row)
{
    if (json_array_size(list) != row->count) return -EBADMSG;
    for (size_t t = 0; t < row->count; t++) {
        json_int_t given = json_integer_value(json_array_get(list, t));

        if (given != 0 && given != 1) return -EBADMSG;
        row->given[t] = (uint8_t)given;
    }
    return ash_rl_goes_on(row) ? -EBADMSG : 0; /* the policy has the last word */
}
