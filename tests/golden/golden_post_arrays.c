/* golden_post: pure functions of rewards, log-probabilities and values, on arrays. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden_post.h"

#include "post/objective/advantages.h"
#include "post/objective/policy.h"

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

#define ANSWERS_MAX 256
#define CELLS_MAX 65536

static size_t answers, width, cell_count; /* of the folder at hand */

static const double *cells(const struct golden *g, const char *name)
{
    return post_tensor(g, name)->data;
}

static void compare_cells(struct golden *g, const char *name, const double *ours)
{
    const double *wanted = cells(g, name), *mask = cells(g, "mask");
    double worst = 0.0;

    for (size_t i = 0; i < cell_count; i++)
        if (mask[i] != 0) post_note(&worst, ours[i] - wanted[i]);
    golden_report(g, name, worst, 1e-12);
}

/* One value an answer, on all its tokens. */
static void compare_answers(struct golden *g, const char *name, const double *ours)
{
    const double *mask = cells(g, "mask");
    static double spread[CELLS_MAX];

    for (size_t i = 0; i < cell_count; i++)
        spread[i] = ours[i / width] * mask[i];
    compare_cells(g, name, spread);
}

static void check_array_advantages(struct golden *g)
{
    const double *mask = cells(g, "mask"), *scores = cells(g, "scores");
    const int64_t *index = post_tensor(g, "index")->data;
    const json_t *gae = json_object_get(g->json, "gae");
    double rewards[ANSWERS_MAX] = {0}, advantages[ANSWERS_MAX];
    static double table[CELLS_MAX], returns[CELLS_MAX], spread[CELLS_MAX];

    for (size_t i = 0; i < cell_count; i++)
        rewards[i / width] += scores[i];
    ash_advantages_group(rewards, index, answers, post_number(json_object_get(g->json, "grpo"), "eps"), true,
                         advantages);
    compare_answers(g, "grpo.advantages", advantages);
    ash_advantages_group(rewards, index, answers, 0, true, advantages);
    compare_answers(g, "dr_grpo.advantages", advantages);
    ash_advantages_rloo(rewards, index, answers, advantages);
    compare_answers(g, "rloo.advantages", advantages);
    ash_advantages_group(rewards, index, answers, 0, true, advantages);
    for (size_t i = 0; i < cell_count; i++)
        spread[i] = advantages[i / width] * mask[i];
    ash_advantages_whiten(spread, mask, cell_count, table);
    compare_cells(g, "reinforce_pp_baseline.advantages", table);
    ash_advantages_gae(&(struct ash_advantages_table){scores, cells(g, "values"), mask, answers, width},
                       post_number(gae, "gamma"), post_number(gae, "lam"), returns, table);
    compare_cells(g, "gae.returns", returns);
    compare_cells(g, "gae.advantages", table);
}

static void check_array_kl(struct golden *g)
{
    static const char *const names[] = {"k1", "k2", "k3", "abs"};
    const double *logps = cells(g, "logps"), *reference = cells(g, "ref_logps");
    static double values[CELLS_MAX], slopes[CELLS_MAX];
    char name[32];

    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < cell_count; i++)
            values[i] = ash_policy_kl((enum ash_kl_estimator)kind, logps[i] - reference[i], &slopes[i]);
        snprintf(name, sizeof(name), "kl.%s", names[kind]);
        compare_cells(g, name, values);
        snprintf(name, sizeof(name), "kl_grad.%s", names[kind]);
        if (ash_safetensors_find(g->tensors, name) != NULL) compare_cells(g, name, slopes);
    }
}

static double cell_weight(const char *kind, double total, double length)
{
    if (strcmp(kind, "token-mean") == 0) return 1 / total;
    if (strcmp(kind, "seq-mean-token-sum") == 0) return 1.0 / (double)answers;
    if (strcmp(kind, "seq-mean-token-mean") == 0) return 1 / ((double)answers * (length + 1e-8)); /* as veRL divides */
    return 1.0 / (double)width;
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
    static double slopes[CELLS_MAX];
    double total = 0.0;
    char name[64];

    for (size_t i = 0; i < cell_count; i++)
        total += mask[i];
    for (size_t k = 0; k < 4; k++) {
        double loss = 0.0;

        for (size_t a = 0; a < answers; a++) {
            struct ash_policy_answer answer = {
                .logps = logps + a * width, .old = old + a * width, .advantages = advantages + a * width};

            while (answer.count < width && mask[a * width + answer.count] != 0)
                answer.count++;
            answer.weight = cell_weight(kinds[k], total, (double)answer.count);
            loss += ash_policy_loss(&opts, &answer, slopes + a * width).loss;
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
    static double slopes[CELLS_MAX];
    double loss = 0.0, total = 0.0;

    for (size_t i = 0; i < cell_count; i++)
        total += mask[i];
    for (size_t i = 0; i < cell_count; i++) {
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
    const struct ash_tensor_view *mask = post_tensor(g, "mask");

    answers = mask->dims[0];
    width = mask->dims[1];
    cell_count = answers * width;
    if (answers > ANSWERS_MAX || cell_count > CELLS_MAX) {
        golden_report_equal(g, "sizes", false, "at most 256 answers of 65,536 tokens together");
        return;
    }
    check_array_advantages(g);
    check_array_kl(g);
    check_array_ppo(g);
    check_array_values(g);
}
