/* evaluate: held-out prompts, answered greedily. Every rank answers all of them. */
#include <errno.h>
#include <stdlib.h>

#include "post/rl/rl_priv.h"

/* Held-out prompts that are answered greedily, each with its row. */
struct evaluation {
    struct ash_prompt *prompts;
    struct ash_answer_row *rows;
    struct ash_asked **asked;
    size_t count, asked_count;
};

static void close_evaluation(struct evaluation *evaluation)
{
    for (size_t i = 0; evaluation->prompts != NULL && evaluation->rows != NULL && i < evaluation->count; i++) {
        ash_prompt_fini(&evaluation->prompts[i]);
        free(evaluation->rows[i].ids);
        free(evaluation->rows[i].logps);
    }
    for (size_t i = 0; i < evaluation->asked_count; i++)
        free(evaluation->asked[i]);
    free(evaluation->asked);
    free(evaluation->prompts);
    free(evaluation->rows);
}

static int ask_held_out(struct ash_policy_run *rl, struct evaluation *evaluation, size_t i, uint64_t salt,
                        struct ash_err *err)
{
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    struct ash_answer_row *row = &evaluation->rows[i];
    int rc = ash_prompts_get(rl->prompts, 0, i, true, &evaluation->prompts[i], err);

    if (rc < 0) return rc;
    row->ids = calloc(rl->max_tokens, sizeof(int32_t));
    row->logps = calloc(rl->max_tokens, sizeof(float));
    if (row->ids == NULL || row->logps == NULL) return -ENOMEM;
    evaluation->asked[i] = ash_rl_ask(rl, &evaluation->prompts[i], row, &sampler, salt);
    if (evaluation->asked[i] == NULL) return -ENOMEM;
    evaluation->asked_count++;
    return 0;
}

/* Answer all of them, and add up their rewards. */
static int run_evaluation(struct ash_policy_run *rl, struct evaluation *evaluation, uint64_t salt, double *sum_out,
                          struct ash_err *err)
{
    int rc = evaluation->prompts != NULL && evaluation->rows != NULL && evaluation->asked != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < evaluation->count; i++)
        rc = ask_held_out(rl, evaluation, i, salt, err);
    if (rc == -ENOMEM) return ash_err_set(err, rc, "out of memory for an evaluation");
    if (rc == 0) rc = ash_rl_answer_all(rl, evaluation->asked, evaluation->asked_count, err);
    for (size_t i = 0; rc == 0 && i < evaluation->count; i++) {
        rc = ash_rl_reward(rl, &evaluation->prompts[i], &evaluation->rows[i], err);
        *sum_out += evaluation->rows[i].reward;
    }
    return rc;
}

int ash_rl_evaluate(struct ash_policy_run *rl, struct ash_trainer *trainer, size_t count, double *share_out,
                    struct ash_err *err)
{
    struct evaluation evaluation = {.prompts = calloc(count, sizeof(*evaluation.prompts)),
                                    .rows = calloc(count, sizeof(*evaluation.rows)),
                                    .asked = calloc(count, sizeof(struct ash_asked *)),
                                    .count = count};
    double sum = 0.0;
    int rc = ash_rl_open_core(rl, trainer, err);

    if (rc == 0) rc = run_evaluation(rl, &evaluation, ash_trainer_state(trainer)->step + 1, &sum, err);
    close_evaluation(&evaluation);
    if (rc == 0) *share_out = sum / (double)count;
    return rc;
}
