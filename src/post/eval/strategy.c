/* What more computing at test time brings: many answers to each arithmetic problem, of which one counts. A prompt is
 * computed once for all of its answers. An answer is a function of (seed, problem, sample). */
#include "post/eval/strategy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "post/eval/problems.h"
#include "post/search/shares.h"
#include "post/search/verifier.h"

#define PROBLEMS_AT_ONCE 16

struct study {
    const struct ash_strategy_eval *eval;
    struct ash_problems problems;
    struct ash_verifier *verifier; /* NULL: none */
    struct ash_strategy_point *points;
    size_t point_count;
};

/* What the verifier says of an answer, as it would to a user: it does not know which one is right, unless it compares
 * with that. */
static int weigh(const struct study *study, const struct ash_problem *problem, const struct ash_ids *prompt,
                 const struct ash_problem_answer *answer, double *weight_out, struct ash_err *err)
{
    struct ash_rewarded rewarded = {.prompt = problem->prompt,
                                    .text = answer->text,
                                    .answer = problem->answer,
                                    .prompt_ids = prompt->data,
                                    .prompt_tokens = prompt->count,
                                    .ids = answer->ids,
                                    .tokens = answer->count,
                                    .own_tokens = answer->count,
                                    .has_ended = answer->request.end.finish == ASH_FINISH_EOS,
                                    .may_have_work = study->eval->problems->work};
    int rc = ash_verifier_weigh(study->verifier, &rewarded, weight_out, err);

    return rc < 0 ? ash_err_prefix(err, rc, "the verifier, of '%s%s'", problem->prompt, answer->text) : 0;
}

/* Add what the answers to problem i say. */
static int count_problem(struct study *study, size_t i, struct ash_err *err)
{
    const struct ash_problems *problems = &study->problems;
    size_t samples = problems->opts.samples, right = 0;
    const struct ash_problem_answer *answers = &problems->answers[i * samples];
    struct ash_vote *votes = calloc(samples, sizeof(*votes));
    int rc = votes == NULL ? ash_err_set(err, -ENOMEM, "out of memory for votes") : 0;

    ash_assert(i < problems->count);
    for (size_t s = 0; rc == 0 && s < samples; s++) {
        votes[s] = (struct ash_vote){answers[s].text, exp(answers[s].logprob / (double)ash_max(1, answers[s].count))};
        if (study->eval->strategy == ASH_STRATEGY_BEST) votes[s].weight = answers[s].is_right; /* a perfect checker */
        if (study->verifier != NULL)
            rc = weigh(study, &problems->items[i], &problems->prompts[i], &answers[s], &votes[s].weight, err);
        right += answers[s].is_right;
    }
    for (size_t p = 0; rc == 0 && p < study->point_count; p++) {
        struct ash_strategy_point *point = &study->points[p];

        point->right += answers[ash_votes_choose(votes, point->n, study->eval->strategy)].is_right;
        point->pass += ash_pass_at(samples, right, point->n);
        for (size_t s = 0; s < point->n; s++)
            point->tokens += (double)answers[s].tokens + 1.0; /* with its end */
    }
    free(votes);
    return rc;
}

static int open_verifier(struct study *study, struct ash_err *err)
{
    const struct ash_verifier_opts opts = {.engine = study->eval->engine,
                                           .exec = ash_engine_exec(study->eval->engine),
                                           .max_tokens = ash_core_max_tokens(study->problems.core),
                                           .knows_answers = true};

    if (study->eval->verifier->count == 0) return 0;
    return ash_verifier_open(study->eval->verifier, &opts, &study->verifier, err);
}

int ash_strategy_measure(const struct ash_strategy_eval *eval, struct ash_strategy_point *points, size_t count,
                         struct ash_err *err)
{
    const struct ash_problems_opts opts = {.engine = eval->engine,
                                           .problems = eval->problems,
                                           .samples = points[count - 1].n,
                                           .batch = eval->batch,
                                           .temperature = eval->temperature,
                                           .think_min = eval->think_min,
                                           .think_max = eval->think_max};
    struct study study = {.eval = eval, .points = points, .point_count = count};
    int rc = ash_problems_init(&study.problems, &opts, err);

    if (rc == 0) rc = open_verifier(&study, err);
    for (size_t at = 0; rc == 0 && at < eval->count; at += PROBLEMS_AT_ONCE) {
        size_t chunk = ash_min(PROBLEMS_AT_ONCE, eval->count - at);

        rc = ash_problems_answer(&study.problems, at, chunk, err);
        for (size_t i = 0; rc == 0 && i < chunk; i++)
            rc = count_problem(&study, i, err);
        if (rc == 0) rc = ash_eval_progress_report(&eval->progress, at + chunk, eval->count);
    }
    ash_verifier_close(study.verifier);
    ash_problems_fini(&study.problems);
    return rc;
}
