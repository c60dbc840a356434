/* evaluate: held-out prompts, answered greedily. Every rank answers all of them; programs and reward models are run by
 * the first one for all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/rl/rl_priv.h"

/* Held-out prompts that are answered greedily, each with its row. */
struct evaluation {
    struct ash_prompt *prompts;
    struct ash_answer_row *rows;
    struct ash_asked **asked;
    size_t count, asked_count;
};

static void close_asked(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->asked_count; i++)
        ash_rl_unask(evaluation->asked[i]);
    evaluation->asked_count = 0;
}

static void close_evaluation(struct evaluation *evaluation)
{
    for (size_t i = 0; evaluation->prompts != NULL && evaluation->rows != NULL && i < evaluation->count; i++) {
        ash_prompt_fini(&evaluation->prompts[i]);
        free(evaluation->rows[i].ids);
        free(evaluation->rows[i].logps);
        free(evaluation->rows[i].given);
    }
    close_asked(evaluation);
    free(evaluation->asked);
    free(evaluation->prompts);
    free(evaluation->rows);
}

static int open_held_out(struct ash_policy_run *rl, struct evaluation *evaluation, size_t i, struct ash_err *err)
{
    struct ash_answer_row *row = &evaluation->rows[i];
    int rc = ash_prompts_get(rl->prompts, 0, i, true, &evaluation->prompts[i], err);

    if (rc < 0) return rc;
    row->ids = calloc(rl->shape.max_tokens, sizeof(int32_t));
    row->logps = calloc(rl->shape.max_tokens, sizeof(float));
    row->given = calloc(rl->shape.max_tokens, sizeof(*row->given));
    return row->ids == NULL || row->logps == NULL || row->given == NULL ? -ENOMEM : 0;
}

/* One turn of all that begin or go on; *goes_on_out: does any go on after it? */
static int run_turn(struct ash_policy_run *rl, struct evaluation *evaluation, uint64_t salt, size_t turn,
                    bool *goes_on_out, struct ash_err *err)
{
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    bool is_last = turn + 1 >= (size_t)rl->job->rl.turns;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < evaluation->count; i++) {
        struct ash_answer_row *row = &evaluation->rows[i];

        if (row->count > 0 && !ash_rl_goes_on(row)) continue;
        evaluation->asked[evaluation->asked_count] = ash_rl_ask(rl, &evaluation->prompts[i], row, &sampler, salt);
        if (evaluation->asked[evaluation->asked_count] == NULL)
            rc = -ENOMEM;
        else
            evaluation->asked_count++;
    }
    if (rc == 0) rc = ash_rl_answer_all(rl, evaluation->asked, evaluation->asked_count, err);
    close_asked(evaluation);
    *goes_on_out = false;
    for (size_t i = 0; rc == 0 && !is_last && i < evaluation->count; i++) {
        struct ash_answer_row *row = &evaluation->rows[i];

        if (row->has_ended) rc = ash_rl_hear(rl, &evaluation->prompts[i], row, turn, err);
        *goes_on_out |= ash_rl_goes_on(row);
    }
    return rc;
}

/* Answer all of them, and add up their rewards. */
static int run_evaluation(struct ash_policy_run *rl, struct evaluation *evaluation, uint64_t salt, double *sum_out,
                          struct ash_err *err)
{
    bool goes_on = true;
    int rc = evaluation->prompts != NULL && evaluation->rows != NULL && evaluation->asked != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < evaluation->count; i++)
        rc = open_held_out(rl, evaluation, i, err);
    for (size_t turn = 0; rc == 0 && goes_on; turn++)
        rc = run_turn(rl, evaluation, salt, turn, &goes_on, err);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "out of memory for an evaluation");
    for (size_t i = 0; rc == 0 && i < evaluation->count; i++) {
        rc = ash_rl_reward(rl, &evaluation->prompts[i], &evaluation->rows[i], err);
        *sum_out += evaluation->rows[i].reward;
    }
    return rc;
}

/* All ranks get the first one's sum, or a word that it failed. */
static int share_sum(const struct ash_policy_run *rl, int code, double *sum, struct ash_err *err)
{
    int32_t words[1 + sizeof(*sum) / sizeof(int32_t)] = {code};
    int rc;

    memcpy(words + 1, sum, sizeof(*sum));
    rc = ash_group_all_reduce(rl->group, words, words, ASH_COUNT(words), ASH_COLL_I32, ASH_COLL_SUM, err);
    if (rc < 0 || code < 0) return rc < 0 ? rc : code;
    memcpy(sum, words + 1, sizeof(*sum));
    return words[0] < 0 ? ash_err_set(err, words[0], "the first rank could not evaluate the policy") : 0;
}

int ash_rl_evaluate(struct ash_policy_run *rl, struct ash_trainer *trainer, size_t count, double *share_out,
                    struct ash_err *err)
{
    struct evaluation evaluation = {.prompts = calloc(count, sizeof(*evaluation.prompts)),
                                    .rows = calloc(count, sizeof(*evaluation.rows)),
                                    .asked = calloc(count, sizeof(struct ash_asked *)),
                                    .count = count};
    bool is_asked = rl->job->rl.environment != NULL || !ash_rewards_is_pure(rl->rewards);
    bool is_shared = rl->group != NULL && is_asked, is_first = !is_shared || ash_group_rank(rl->group) == 0;
    double sum = 0.0;
    int rc = ash_rl_open_core(rl, trainer, err), code = 0; /* together: ranks gather the weights that they split */

    if (rc == 0 && is_first) code = run_evaluation(rl, &evaluation, ash_trainer_state(trainer)->step + 1, &sum, err);
    close_evaluation(&evaluation);
    if (rc == 0) rc = is_shared ? share_sum(rl, code, &sum, err) : code;
    if (rc == 0) *share_out = sum / (double)count;
    return rc;
}
