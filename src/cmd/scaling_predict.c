/* ashlar scaling predict: the loss of a run before it is made, or the best run for a number of operations. */
#include "cmd/scaling_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/assert.h"
#include "post/scaling/study.h"

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar scaling predict RUNS.csv --params N --tokens D [flags]\n"
                "ashlar scaling predict RUNS.csv --flops C [flags]",
    .about = "Fits a law to a table of runs (see `ashlar scaling fit`) and says which loss a run will reach, with an\n"
             "interval: laws of resampled runs, and how far single runs are from their law. With --flops: the\n"
             "parameters and tokens that reach the lowest loss for that many operations (6 * params * tokens).",
    .examples = "  ashlar scaling predict runs.csv --tied --params 7e9 --tokens 140e9\n"
                "  ashlar scaling predict runs.csv --flops 1e21",
};

struct settings {
    struct ash_scaling_study_opts fit;
    bool json;
    double params, tokens, flops;
};

static const struct ash_opt own_opts[] = {
    {"params", ASH_OPT_DOUBLE, offsetof(struct settings, params), "0", "parameters of the run", 0, 1e18, NULL},
    {"tokens", ASH_OPT_DOUBLE, offsetof(struct settings, tokens), "0", "tokens that it learns from", 0, 1e18, NULL},
    {"flops", ASH_OPT_DOUBLE, offsetof(struct settings, flops), "0", "operations of the run; finds the best shape", 0,
     1e40, NULL},
    {"json", ASH_OPT_BOOL, offsetof(struct settings, json), NULL, "print one JSON object", 0, 0, NULL},
};

static int predict(const struct settings *settings, const char *path, struct ash_err *err)
{
    struct ash_scaling_study study = {0};
    struct ash_scaling_interval interval = {0};
    double params = settings->params, tokens = settings->tokens, loss = 0.0;
    int rc = ash_scaling_study_init(&study, &settings->fit, path, err);

    if (rc == 0) {
        if (settings->flops > 0) ash_scaling_optimum(&study.fit.law, settings->flops, &params, &tokens);
        loss = ash_scaling_loss(&study.fit.law, params, tokens);
        if (ash_scaling_study_interval(&study, &settings->fit, params, tokens, &interval) < 0)
            rc = ash_err_set(err, -ENOMEM, "out of memory for an interval");
    }
    if (rc == 0 && settings->json)
        rc = ash_cmd_print_json(json_pack("{s:f, s:f, s:f, s:[f, f]}", "params", params, "tokens", tokens, "loss", loss,
                                          "interval", interval.low, interval.high),
                                err);
    else if (rc == 0)
        printf("%.4g parameters, %.4g tokens: loss %.4f (%g %% between %.4f and %.4f)\n", params, tokens, loss,
               100 * settings->fit.share, interval.low, interval.high);
    ash_scaling_study_fini(&study);
    return rc;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct settings *settings = ctx;
    struct ash_err err = {0};

    (void)opts;
    if (settings->flops > 0 ? settings->params > 0 || settings->tokens > 0
                            : settings->params < 1 || settings->tokens < 1)
        return ash_cmd_misuse("scaling predict", "which run? give --params and --tokens, or --flops");
    return predict(settings, word, &err) < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table own = {"", "the run", own_opts, ASH_COUNT(own_opts)};
    const struct ash_opt_table table = {"", "the fit", ash_scaling_study_settings, ash_scaling_study_setting_count};
    struct settings settings = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&own, &settings}, {&table, &settings.fit}},
                                      .takes_word = true,
                                      .missing_word = "which table of runs?",
                                      .respond = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_scaling_predict = {"predict", "the loss that a run will reach", run};
