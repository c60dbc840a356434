/* ashlar scaling fit: the law of a table of runs, with intervals, and how well it predicts runs that it has not
 * seen. */
#include "cmd/scaling_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "post/scaling/study.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar scaling fit RUNS.csv [flags]",
    .about = "Fits loss = E + A / params^alpha + B / tokens^beta to a table with the columns params, tokens and loss:\n"
             "Huber losses of logarithms, the best of many starts. With --below-params it fits the smaller runs and\n"
             "says how far it is off for the larger ones.",
    .examples = "  ashlar scaling fit runs.csv\n"
                "  ashlar scaling fit runs.csv --tied --below-params 1e9",
};

struct flags {
    struct ash_scaling_study_opts study;
    bool json;
};

static const struct ash_opt own_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct flags, json), NULL, "print one JSON object", 0, 0, NULL},
};

struct value {
    const char *name;
    double of;
    struct ash_scaling_interval interval;
};
#define VALUE_COUNT 5

static double value_of(const struct ash_scaling_law *law, size_t index)
{
    const double values[VALUE_COUNT] = {exp(law->e), exp(law->a), exp(law->b), law->alpha, law->beta};

    ash_assert(index < VALUE_COUNT);
    return values[index];
}

static int find_values(const struct ash_scaling_study *study, double share, struct value values[VALUE_COUNT],
                       struct ash_err *err)
{
    static const char *const names[VALUE_COUNT] = {"E", "A", "B", "alpha", "beta"};
    double *drawn = calloc(study->law_count, sizeof(*drawn));

    if (drawn == NULL) return ash_err_set(err, -ENOMEM, "out of memory for intervals");
    for (size_t v = 0; v < VALUE_COUNT; v++) {
        for (size_t i = 0; i < study->law_count; i++)
            drawn[i] = value_of(&study->laws[i], v);
        values[v] =
            (struct value){names[v], value_of(&study->fit.law, v), ash_scaling_middle(drawn, study->law_count, share)};
    }
    free(drawn);
    return 0;
}

static double error_of(const struct ash_scaling_study *study, const struct ash_scaling_run *run)
{
    return ash_scaling_loss(&study->fit.law, run->params, run->tokens) / run->loss - 1.0;
}

static void print_text(const struct ash_scaling_study *study, double share, const struct value values[VALUE_COUNT])
{
    printf("runs       %zu fitted, %zu dropped, %zu left out\n", study->count, study->dropped, study->left_out);
    printf("objective  %.9g\n", study->fit.objective);
    for (size_t v = 0; v < VALUE_COUNT; v++)
        printf("%-10s %.6g  (%g %% between %.6g and %.6g)\n", values[v].name, values[v].of, 100 * share,
               values[v].interval.low, values[v].interval.high);
    for (size_t i = study->count; i < study->count + study->left_out; i++)
        printf("predicted  %.4g parameters, %.4g tokens: %.4f, measured %.4f (%+.2f %%)\n", study->runs[i].params,
               study->runs[i].tokens, ash_scaling_loss(&study->fit.law, study->runs[i].params, study->runs[i].tokens),
               study->runs[i].loss, 100 * error_of(study, &study->runs[i]));
}

static json_t *as_json(const struct ash_scaling_study *study, const struct value values[VALUE_COUNT])
{
    json_t *json = json_pack("{s:I, s:f}", "runs", (json_int_t)study->count, "objective", study->fit.objective),
           *intervals = json_object(), *predicted = json_array();

    for (size_t v = 0; v < VALUE_COUNT; v++) {
        json_object_set_new(json, values[v].name, json_real(values[v].of));
        json_object_set_new(intervals, values[v].name,
                            json_pack("[f, f]", values[v].interval.low, values[v].interval.high));
    }
    for (size_t i = study->count; i < study->count + study->left_out; i++)
        json_array_append_new(predicted, json_pack("{s:f, s:f, s:f, s:f}", "params", study->runs[i].params, "tokens",
                                                   study->runs[i].tokens, "loss", study->runs[i].loss, "error",
                                                   error_of(study, &study->runs[i])));
    json_object_set_new(json, "intervals", intervals);
    json_object_set_new(json, "predicted", predicted);
    return json;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    struct ash_scaling_study study = {0};
    struct value values[VALUE_COUNT];
    struct ash_err err = {0};
    int rc = ash_scaling_study_init(&study, &flags->study, word, &err);

    (void)opts;
    if (rc == 0) rc = find_values(&study, flags->study.share, values, &err);
    if (rc == 0 && flags->json)
        rc = ash_cmd_print_json(as_json(&study, values), &err);
    else if (rc == 0)
        print_text(&study, flags->study.share, values);
    ash_scaling_study_fini(&study);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table own = {"", "flags", own_opts, ASH_COUNT(own_opts)};
    const struct ash_opt_table study = {"", "the fit", ash_scaling_study_settings, ash_scaling_study_setting_count};
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&own, &flags}, {&study, &flags.study}},
                                      .takes_word = true,
                                      .missing_word = "which table of runs?",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_scaling_fit = {"fit", "the law of a table of runs", run};
