/* ashlar plan constants and ashlar plan models: what the planner was told, and by whom. */
#include "cmd/plan_priv.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/json.h"
#include "plan/consts.h"
#include "plan/shape.h"

struct list_flags {
    bool json;
};

static const struct ash_opt list_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct list_flags, json), NULL, "print a JSON list", 0, 0, NULL},
};

static const struct ash_opt_table list_table = {
    .section = "", .help = "flags", .opts = list_opts, .count = ASH_COUNT(list_opts)};

static void print_json(json_t *list)
{
    json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(list);
}

static void print_constants(bool as_json)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ash_const_count(); i++) {
        struct ash_const c = ash_const_at(i);

        if (!as_json) printf("%-24s %-10.6g %s\n%36s%s\n", c.name, c.value, c.meaning, "", c.source);
        json_array_append_new(list, json_pack("{s:s, s:f, s:s, s:s}", "name", c.name, "value", c.value, "meaning",
                                              c.meaning, "source", c.source));
    }
    if (as_json)
        print_json(list);
    else
        json_decref(list);
}

static void print_models(bool as_json)
{
    json_t *list = json_array();

    if (!as_json)
        printf("%-26s %12s %12s %7s %7s %8s\n", "model", "parameters", "active", "layers", "width", "experts");
    for (size_t i = 0; i < ash_shape_count(); i++) {
        const struct ash_shape *s = ash_shape_at(i);
        double all = ash_shape_params(s) / 1e9, active = ash_shape_active_params(s) / 1e9;

        if (!as_json)
            printf("%-26s %10.2f B %10.2f B %7.0f %7.0f %8.0f\n", s->name, all, active, s->layers, s->hidden,
                   s->experts);
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", s->name, "params_b", all,
                                              "active_params_b", active, "layers", s->layers, "hidden", s->hidden));
    }
    if (as_json)
        print_json(list);
    else
        json_decref(list);
}

static int list(const struct ash_cmd_usage *usage, void (*print)(bool), int argc, char **argv)
{
    struct list_flags flags = {0};
    struct ash_opt_binding binding = {&list_table, &flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO) {
        print(flags.json);
        code = 0;
    }
    ash_opts_close(opts);
    return code;
}

static int run_constants(int argc, char **argv)
{
    static const struct ash_cmd_usage usage = {
        .synopsis = "ashlar plan constants [flags]",
        .about = "Lists every calibrated number of the cost model with its meaning and source. There are no others.",
        .examples = "  ashlar plan constants",
    };

    return list(&usage, print_constants, argc, argv);
}

static int run_models(int argc, char **argv)
{
    static const struct ash_cmd_usage usage = {
        .synopsis = "ashlar plan models [flags]",
        .about = "Lists the models that --model knows by name. Any Hugging Face folder with a config.json works too.",
        .examples = "  ashlar plan models",
    };

    return list(&usage, print_models, argc, argv);
}

const struct ash_cmd ash_cmd_plan_constants = {"constants", "the calibrated numbers of the cost model, with sources",
                                               run_constants};
const struct ash_cmd ash_cmd_plan_models = {"models", "the models that are known by name", run_models};
