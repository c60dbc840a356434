/* ashlar eval --task arithmetic: right answers to generated problems. */
#include "cmd/eval_priv.h"

#include <stdio.h>

#include "base/json.h"
#include "post/eval/arithmetic.h"
#include "post/search/shares.h"

static struct ash_share_interval wilson(struct ash_arithmetic_tally tally)
{
    return ash_wilson((double)tally.right, (double)tally.asked);
}

static double share(struct ash_arithmetic_tally tally)
{
    return tally.asked > 0 ? (double)tally.right / (double)tally.asked : 0.0;
}

static void print_tally(const char *name, struct ash_arithmetic_tally tally)
{
    struct ash_share_interval interval = wilson(tally);

    printf("%-10s %6.2f %%  (%zu of %zu; 95 %% between %.2f and %.2f)\n", name, 100.0 * share(tally), tally.right,
           tally.asked, 100.0 * interval.low, 100.0 * interval.high);
}

static void print_score(const struct ash_arithmetic_score *score)
{
    print_tally("accuracy", score->all);
    for (size_t i = 0; i < ASH_ARITHMETIC_OPERATORS; i++) {
        char name[] = {' ', ' ', ash_arithmetic_operator(i), '\0'};

        if (score->by_operator[i].asked > 0) print_tally(name, score->by_operator[i]);
    }
    for (size_t i = 0; i < score->wrong_count; i++)
        printf("wrong: %s%s, should be %s\n", score->wrong[i].problem.prompt, score->wrong[i].text,
               score->wrong[i].problem.answer);
}

static json_t *tally_json(struct ash_arithmetic_tally tally)
{
    struct ash_share_interval interval = wilson(tally);

    return json_pack("{s:f, s:I, s:I, s:[f, f]}", "accuracy", share(tally), "right", (json_int_t)tally.right, "asked",
                     (json_int_t)tally.asked, "interval", interval.low, interval.high);
}

static void print_score_json(const struct ash_arithmetic_score *score)
{
    json_t *json = tally_json(score->all), *by_operator = json_object(), *wrong = json_array();

    for (size_t i = 0; i < ASH_ARITHMETIC_OPERATORS; i++) {
        char name[] = {ash_arithmetic_operator(i), '\0'};

        if (score->by_operator[i].asked > 0) json_object_set_new(by_operator, name, tally_json(score->by_operator[i]));
    }
    for (size_t i = 0; i < score->wrong_count; i++)
        json_array_append_new(wrong, json_pack("{s:s, s:s, s:s}", "prompt", score->wrong[i].problem.prompt, "text",
                                               score->wrong[i].text, "answer", score->wrong[i].problem.answer));
    json_object_set_new(json, "by_operator", by_operator);
    json_object_set_new(json, "wrong", wrong);
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
}

int ash_eval_arithmetic(struct ash_eval *eval, struct ash_err *err)
{
    struct ash_eval_watch watch;
    const struct ash_arithmetic_eval opts = {.engine = eval->engine,
                                             .problems = &eval->arithmetic,
                                             .count = (size_t)eval->count,
                                             .batch = (size_t)eval->batch,
                                             .show = (size_t)eval->show,
                                             .progress = ash_eval_watch_start(&watch, "problems")};
    struct ash_arithmetic_score score;
    int rc = ash_arithmetic_measure(&opts, &score, err);

    ash_progress_bar_clear(&watch.bar);
    if (rc == 0 && eval->json)
        print_score_json(&score);
    else if (rc == 0)
        print_score(&score);
    ash_arithmetic_score_fini(&score);
    return rc;
}
