/* golden_post: pure functions of rewards, log-probabilities and values, on arrays. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden_post.h"

#include "post/objective/advantages.h"
#include "post/objective/policy.h"

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

#define ANSWERS 8
#define WIDTH 12
#define CELLS (ANSWERS * WIDTH)

static const double *cells(const struct golden *g, const char *name)
{
    return post_tensor(g, name)->data;
}

static void compare_cells(struct golden *g, const char *name, const double *ours)
{
    const double *wanted = cells(g, name), *mask = cells(g, "mask");
    double worst = 0.0;

    for (size_t i = 0; i < CELLS; i++)
        if (mask[i] != 0) post_note(&worst, ours[i] - wanted[i]);
    golden_report(g, name, worst, 1e-12);
}

/* One value an answer, on all its tokens. */
static void compare_answers(struct golden *g, const char *name, const double *ours)
{
    const double *mask = cells(g, "mask");
    double spread[CELLS];

    for (size_t i = 0; i < CELLS; i++)
        spread[i] = ours[i / WIDTH] * mask[i];
    compare_cells(g, name, spread);
}

static void check_array_advantages(struct golden *g)
{
    const double *mask = cells(g, "mask"), *scores = cells(g, "scores");
    const int64_t *index = post_tensor(g, "index")->data;
    double rewards[ANSWERS] = {0}, advantages[ANSWERS], table[CELLS], returns[CELLS], spread[CELLS];

    for (size_t i = 0; i < CELLS; i++)
        rewards[i / WIDTH] += scores[i];
    ash_advantages_group(rewards, index, ANSWERS, 1e-6, true, advantages);
    compare_answers(g, "grpo.advantages", advantages);
    ash_advantages_group(rewards, index, ANSWERS, 0, true, advantages);
    compare_answers(g, "dr_grpo.advantages", advantages);
    ash_advantages_rloo(rewards, index, ANSWERS, advantages);
    compare_answers(g, "rloo.advantages", advantages);
    ash_advantages_reinforce(&(struct ash_advantages_table){scores, NULL, mask, ANSWERS, WIDTH}, 0.98, returns, table);
    compare_cells(g, "reinforce_pp.returns", returns);
    compare_cells(g, "reinforce_pp.advantages", table);
    ash_advantages_group(rewards, index, ANSWERS, 0, true, advantages);
    for (size_t i = 0; i < CELLS; i++)
        spread[i] = advantages[i / WIDTH] * mask[i];
    ash_advantages_whiten(spread, mask, CELLS, table);
    compare_cells(g, "reinforce_pp_baseline.advantages", table);
    ash_advantages_gae(&(struct ash_advantages_table){scores, cells(g, "values"), mask, ANSWERS, WIDTH}, 0.99, 0.95,
                       returns, table);
    compare_cells(g, "gae.returns", returns);
    compare_cells(g, "gae.advantages", table);
}

static void check_array_kl(struct golden *g)
{
    static const char *const names[] = {"k1", "k2", "k3", "abs"};
    const double *logps = cells(g, "logps"), *reference = cells(g, "ref_logps");
    double values[CELLS], slopes[CELLS];
    char name[32];

    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < CELLS; i++)
            values[i] = ash_policy_kl((enum ash_kl_estimator)kind, logps[i] - reference[i], &slopes[i]);
        snprintf(name, sizeof(name), "kl.%s", names[kind]);
        compare_cells(g, name, values);
    }
}

static double cell_weight(const char *kind, double total, double length)
{
    if (strcmp(kind, "token-mean") == 0) return 1 / total;
    if (strcmp(kind, "seq-mean-token-sum") == 0) return 1.0 / ANSWERS;
    if (strcmp(kind, "seq-mean-token-mean") == 0) return 1 / (ANSWERS * (length + 1e-8)); /* as veRL divides */
    return 1.0 / WIDTH;
}

static void check_array_ppo(struct golden *g)
{
    static const char *const kinds[] = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                        "seq-mean-token-sum-norm"};
    const double *mask = cells(g, "mask"), *logps = cells(g, "logps"), *old = cells(g, "old_logps"),
                 *advantages = cells(g, "gae.advantages");
    const json_t *ppo = json_object_get(g->json, "ppo");
    struct ash_policy_opts opts = {
        .clip_low = post_number(ppo, "lo"), .clip_high = post_number(ppo, "hi"), .dual = post_number(ppo, "c")};
    double total = 0.0, slopes[CELLS] = {0};
    char name[64];

    for (size_t i = 0; i < CELLS; i++)
        total += mask[i];
    for (size_t k = 0; k < 4; k++) {
        double loss = 0.0;

        for (size_t a = 0; a < ANSWERS; a++) {
            struct ash_policy_answer answer = {
                .logps = logps + a * WIDTH, .old = old + a * WIDTH, .advantages = advantages + a * WIDTH};

            while (answer.count < WIDTH && mask[a * WIDTH + answer.count] != 0)
                answer.count++;
            answer.weight = cell_weight(kinds[k], total, (double)answer.count);
            loss += ash_policy_loss(&opts, &answer, slopes + a * WIDTH).loss;
        }
        snprintf(name, sizeof(name), "ppo.%s", kinds[k]);
        golden_report(g, name,
                      fabs(loss - post_number(json_object_get(json_object_get(g->json, "results"), name), "loss")),
                      1e-9);
        snprintf(name, sizeof(name), "ppo_grad.%s", kinds[k]);
        compare_cells(g, name, slopes);
    }
}

static void check_array_values(struct golden *g)
{
    const double *mask = cells(g, "mask"), *predicted = cells(g, "value_predictions"), *before = cells(g, "values"),
                 *returns = cells(g, "gae.returns");
    const json_t *value = json_object_get(json_object_get(g->json, "results"), "value");
    double loss = 0.0, total = 0.0, slopes[CELLS] = {0};

    for (size_t i = 0; i < CELLS; i++)
        total += mask[i];
    for (size_t i = 0; i < CELLS; i++) {
        double one =
            ash_policy_value_loss(predicted[i], before[i], returns[i], post_number(value, "cliprange"), &slopes[i]);

        loss += mask[i] * one / total;
        slopes[i] *= mask[i] / total;
    }
    golden_report(g, "value loss", fabs(loss - post_number(value, "loss")), 1e-9);
    compare_cells(g, "value_grad", slopes);
}

void post_check_arrays(struct golden *g)
{
    check_array_advantages(g);
    check_array_kl(g);
    check_array_ppo(g);
    check_array_values(g);
}
