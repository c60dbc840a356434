/* Right answers to arithmetic problems: the model continues "37+58=" greedily, many problems at a time, and its text
 * up to the end of text or line must be exactly the answer. */
#include "post/eval/arithmetic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "post/eval/problems.h"

#define CHUNKS_PER_SLOT 8 /* problems of one run, per sequence: how often progress is shown */

static const char operators[ASH_ARITHMETIC_OPERATORS] = {'+', '-', '*'};

static size_t operator_of(const struct ash_problem *problem)
{
    for (size_t i = 0; i < ASH_COUNT(operators); i++)
        if (strchr(problem->prompt + 1, operators[i]) != NULL) return i; /* a leading '-' is a sign */
    return 0;
}

static int keep_wrong(struct ash_arithmetic_score *score, const struct ash_problem *problem, const char *text)
{
    if (score->wrong_count == score->wrong_max) return 0;
    score->wrong[score->wrong_count].problem = *problem;
    score->wrong[score->wrong_count].text = strdup(text);
    if (score->wrong[score->wrong_count].text == NULL) return -ENOMEM;
    score->wrong_count++;
    return 0;
}

static int mark(struct ash_arithmetic_score *score, const struct ash_problem *problem,
                const struct ash_problem_answer *answer, struct ash_err *err)
{
    struct ash_arithmetic_tally *tally = &score->by_operator[operator_of(problem)];

    score->all.asked++;
    tally->asked++;
    score->all.right += answer->is_right;
    tally->right += answer->is_right;
    if (!answer->is_right && keep_wrong(score, problem, answer->text) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for a wrong answer");
    return 0;
}

int ash_arithmetic_measure(const struct ash_arithmetic_eval *eval, struct ash_arithmetic_score *score_out,
                           struct ash_err *err)
{
    const struct ash_problems_opts opts = {
        .engine = eval->engine, .problems = eval->problems, .samples = 1, .batch = ash_min(eval->count, eval->batch)};
    size_t chunk = eval->batch * CHUNKS_PER_SLOT;
    struct ash_problems problems;
    int rc = ash_problems_init(&problems, &opts, err);

    *score_out = (struct ash_arithmetic_score){.wrong_max = eval->show,
                                               .wrong = calloc(eval->show + 1, sizeof(*score_out->wrong))};
    if (rc == 0 && score_out->wrong == NULL)
        rc = ash_err_set(err, -ENOMEM, "no memory for %zu wrong answers", eval->show);
    for (size_t first = 0; rc == 0 && first < eval->count; first += chunk) {
        rc = ash_problems_answer(&problems, first, ash_min(eval->count - first, chunk), err);
        for (size_t i = 0; rc == 0 && i < problems.count; i++)
            rc = mark(score_out, &problems.items[i], &problems.answers[i], err);
        if (rc == 0) rc = ash_eval_progress_report(&eval->progress, score_out->all.asked, eval->count);
    }
    ash_problems_fini(&problems);
    return rc;
}

void ash_arithmetic_score_fini(struct ash_arithmetic_score *score)
{
    for (size_t i = 0; i < score->wrong_count; i++)
        free(score->wrong[i].text);
    free(score->wrong);
    *score = (struct ash_arithmetic_score){0};
}

char ash_arithmetic_operator(size_t index)
{
    ash_assert(index < ASH_COUNT(operators));
    return operators[index];
}
