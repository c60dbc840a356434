/* ashlar plan constants and ashlar plan models: the planner's constants, and their sources. */
#include "cmd/plan/plan_priv.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/table.h"
#include "cmd/plan/text.h"
#include "plan/shape.h"

struct flags {
    bool json;
};

static const struct ash_opt list_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct flags, json), NULL, "print a JSON list", 0, 0, NULL},
};

static const struct ash_opt_table list_table = {
    .section = "", .help = "flags", .opts = list_opts, .count = ASH_COUNT(list_opts)};

/* ---- constants --------------------------------------------------------------------------------------------------- */

static json_t *encode_constants(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ash_const_count(); i++) {
        struct ash_const c = ash_const_at(i);

        json_array_append_new(list, json_pack("{s:s, s:f, s:s, s:s}", "name", c.name, "value", c.value, "meaning",
                                              c.meaning, "source", c.source));
    }
    return list;
}

static void print_constants(void)
{
    struct ash_table table = {.heads = "||"};

    for (size_t i = 0; i < ash_const_count(); i++) {
        struct ash_const c = ash_const_at(i);

        ash_table_row(&table, "%s|%.6g|%s", c.name, c.value, c.meaning);
        ash_table_row(&table, "||%s", c.source);
    }
    ash_table_print(&table, stdout);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static json_t *encode_models(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ash_shape_count(); i++) {
        const struct ash_shape *s = ash_shape_at(i);

        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "name", s->name, "params_b",
                                              ash_shape_params(s) / 1e9, "active_params_b",
                                              ash_shape_active_params(s) / 1e9, "layers", s->layers, "hidden",
                                              s->hidden, "experts", s->experts, "experts_per_token", s->choices));
    }
    return list;
}

static void print_models(void)
{
    struct ash_table table = {.heads = "model|>parameters|>active|>layers|>width|>experts"};

    for (size_t i = 0; i < ash_shape_count(); i++) {
        const struct ash_shape *s = ash_shape_at(i);
        char params[ASH_PLAN_TEXT_BYTES], active[ASH_PLAN_TEXT_BYTES];

        ash_table_row(&table, "%s|%s|%s|%.0f|%.0f|%.0f", s->name, ash_plan_text_count(ash_shape_params(s), params),
                      ash_plan_text_count(ash_shape_active_params(s), active), s->layers, s->hidden, s->experts);
    }
    ash_table_print(&table, stdout);
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static int respond(const void *ctx, json_t *(*encode)(void), void (*print)(void))
{
    const struct flags *flags = ctx;
    struct ash_err err = {0};

    if (flags->json) return ash_cmd_print_json(encode(), &err) < 0 ? ash_cmd_fail(&err) : 0;
    print();
    return 0;
}

static int respond_constants(const void *flags, const struct ash_opts *opts, const char *word)
{
    (void)opts, (void)word;
    return respond(flags, encode_constants, print_constants);
}

static int respond_models(const void *flags, const struct ash_opts *opts, const char *word)
{
    (void)opts, (void)word;
    return respond(flags, encode_models, print_models);
}

static int run_constants(int argc, char **argv)
{
    static const struct ash_cmd_usage usage = {
        .synopsis = "ashlar plan constants [flags]",
        .about = "Lists every calibrated number of the cost model with its meaning and source. There are no others.",
        .examples = "  ashlar plan constants",
    };
    struct flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&list_table, &flags}}, .respond = respond_constants, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

static int run_models(int argc, char **argv)
{
    static const struct ash_cmd_usage usage = {
        .synopsis = "ashlar plan models [flags]",
        .about = "Lists the models that --model knows by name. Any Hugging Face folder with a config.json works too.",
        .examples = "  ashlar plan models",
    };
    struct flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&list_table, &flags}}, .respond = respond_models, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_constants = {"constants", "the calibrated numbers of the cost model, with sources",
                                               run_constants};
const struct ash_cmd ash_cmd_plan_models = {"models", "the models that are known by name", run_models};
