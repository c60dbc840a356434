/* golden_eval: scores of lm-evaluation-harness, and published fits of scaling laws. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

#include "base/file.h"
#include "model/files/open.h"
#include "post/eval/ask.h"
#include "post/scaling/law.h"

#define LOGLIKELIHOOD_LIMIT 1e-4
#define RUNS_MAX 1024

/* ---- the harness ------------------------------------------------------------------------------------------------- */

static const char choice_task[] = "task: choice\noutput_type: multiple_choice\ndoc_to_text: context\n"
                                  "doc_to_choice: choices\ndoc_to_target: gold\n";
static const char rolling_task[] = "task: rolling\noutput_type: loglikelihood_rolling\ndoc_to_text: ''\n"
                                   "doc_to_target: text\n";

static int open_model(struct golden *g, struct ash_task_model *model, struct ash_tokenizer **tokenizer,
                      struct ash_err *err)
{
    static const char *const places[] = {"../..", "../../models"};
    const char *name = json_string_value(json_object_get(g->json, "model")), *slash = strrchr(name, '/');
    struct ash_core_opts opts = {.max_seqs = 16};
    char path[4096];
    int rc = -1;

    for (size_t i = 0; rc < 0 && i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", g->dir, places[i], slash != NULL ? slash + 1 : name);
        if (ash_path_exists(path)) rc = ash_model_open(path, &g->model, err);
    }
    if (rc == 0) rc = ash_tokenizer_open(path, tokenizer, err);
    if (rc == 0) rc = ash_core_open(g->model, &g->exec, &opts, &model->core, err);
    model->tokenizer = *tokenizer;
    model->prefix = ash_model_get_config(g->model)->bos;
    return rc;
}

/* Every log-likelihood, and the results by their names. */
static void check_task(struct golden *g, const struct ash_task_model *model, const char *yaml, const json_t *wanted)
{
    json_t *docs = json_object_get(wanted, "docs"), *results = NULL, *value;
    struct ash_task_answers answers = {0};
    struct ash_task *task = NULL;
    struct ash_err err = {0};
    double worst = 0.0;
    const char *key;
    int rc = ash_task_parse(yaml, "task", &task, &err);

    if (rc == 0)
        rc = ash_task_ask(&(struct ash_task_asked){task, model, docs, docs, json_array_size(docs)}, &answers, &err);
    if (rc == 0) rc = ash_task_score(task, answers.answers, answers.count, &results, &err);
    if (rc < 0) golden_broken(g, yaml, &err);
    for (size_t i = 0; rc == 0 && i < answers.count; i++) {
        const json_t *list = json_object_get(json_array_get(docs, i), "loglikelihood");

        for (size_t c = 0; c < (json_is_array(list) ? json_array_size(list) : 1); c++)
            worst = fmax(worst, fabs(answers.answers[i].loglikelihoods[c] -
                                     json_number_value(json_is_array(list) ? json_array_get(list, c) : list)));
    }
    if (rc == 0) golden_report(g, "log-likelihoods", worst, LOGLIKELIHOOD_LIMIT);
    json_object_foreach((json_t *)(uintptr_t)wanted, key, value) {
        char name[64];

        snprintf(name, sizeof(name), "%s,none", key);
        if (rc == 0 && json_is_real(value))
            golden_report(g, key,
                          fabs(json_number_value(json_object_get(results, name)) / json_number_value(value) - 1), 1e-5);
    }
    json_decref(results);
    ash_task_answers_fini(&answers);
    ash_task_close(task);
}

void golden_check_eval(struct golden *g)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_task_model model = {0};
    struct ash_err err = {0};

    if (open_model(g, &model, &tokenizer, &err) < 0) {
        golden_broken(g, "model", &err);
    } else {
        check_task(g, &model, choice_task, json_object_get(g->json, "multiple_choice"));
        check_task(g, &model, rolling_task, json_object_get(g->json, "rolling"));
    }
    ash_core_close(model.core);
    ash_tokenizer_close(tokenizer);
}

/* ---- scaling laws ------------------------------------------------------------------------------------------------ */

static size_t read_runs(const struct golden *g, const char *name, struct ash_scaling_run *runs)
{
    char path[4096], line[512];
    size_t count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", g->dir, name);
    file = fopen(path, "r");
    while (file != NULL && count < RUNS_MAX && fgets(line, sizeof(line), file) != NULL) {
        double flops;

        if (sscanf(line, "%lf,%lf,%lf,%lf", &runs[count].params, &runs[count].tokens, &flops, &runs[count].loss) == 4)
            count++;
    }
    if (file != NULL) fclose(file);
    return count;
}

static int compare_runs(const void *a, const void *b)
{
    const struct ash_scaling_run *x = a, *y = b;

    return x->loss < y->loss ? -1 : x->loss > y->loss;
}

static void check_chinchilla(struct golden *g, struct ash_scaling_run *runs)
{
    const json_t *best = json_object_get(g->json, "best");
    struct ash_scaling_opts opts = {0};
    struct ash_scaling_fitted fit = {0};
    struct ash_err err = {0};
    size_t count = read_runs(g, "chinchilla.csv", runs);

    qsort(runs, count, sizeof(*runs), compare_runs);
    if (count < 5 || ash_scaling_fit(runs, count - 5, &opts, &fit, &err) < 0) {
        golden_broken(g, "chinchilla", &err);
        return;
    }
    golden_report(g, "objective", fit.objective, 0.00101828);
    golden_report(g, "E", fabs(exp(fit.law.e) - json_number_value(json_object_get(best, "E"))), 0.002);
    golden_report(g, "alpha", fabs(fit.law.alpha - json_number_value(json_object_get(best, "alpha"))), 0.002);
    golden_report(g, "beta", fabs(fit.law.beta - json_number_value(json_object_get(best, "beta"))), 0.002);
}

/* Fit below 1e9 parameters with tied exponents, predict above. */
static void check_testbed(struct golden *g, struct ash_scaling_run *runs)
{
    struct ash_scaling_opts opts = {.is_tied = true};
    struct ash_scaling_fitted fit = {0};
    struct ash_err err = {0};
    size_t count = read_runs(g, "testbed-rpj.csv", runs), small = 0;
    double worst = 0.0;

    for (size_t i = 0; i < count; i++) {
        struct ash_scaling_run run = runs[i];

        if (run.params >= 1e9) continue;
        runs[i] = runs[small];
        runs[small++] = run;
    }
    if (ash_scaling_fit(runs, small, &opts, &fit, &err) < 0) golden_broken(g, "testbed", &err);
    for (size_t i = small; i < count; i++)
        worst = fmax(worst, fabs(ash_scaling_loss(&fit.law, runs[i].params, runs[i].tokens) / runs[i].loss - 1.0));
    golden_report(g, "predicted above 1e9 parameters", worst, 0.01);
}

void golden_check_scaling(struct golden *g)
{
    struct ash_scaling_run *runs = calloc(RUNS_MAX, sizeof(*runs));

    check_chinchilla(g, runs);
    check_testbed(g, runs);
    free(runs);
}
