/* ashlar plan validate: how far the planner is from published measurements. */
#include "cmd/plan/plan_priv.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/table.h"
#include "plan/validate/validate.h"

struct flags {
    bool json, rows;
    struct ash_plan_flags plan;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt validate_opts[] = {
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object: groups and every row", 0, 0, NULL},
    {"rows", ASH_OPT_BOOL, FIELD(rows), NULL, "list every row, not only the groups", 0, 0, NULL},
};

static const struct ash_opt_table validate_table = {
    .section = "", .help = "flags", .opts = validate_opts, .count = ASH_COUNT(validate_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar plan validate FILE.csv [flags]",
    .about = "Predicts every row of a file of measured runs and prints the distribution of the error in tokens per\n"
             "second, by source, GPU and kind of model. A file with the column tokens_s_gpu holds training runs, one\n"
             "with out_tok_s_total inference runs; docs/planning.md lists the columns. Rows that cannot be predicted\n"
             "are counted and named with the reason.",
    .examples = "  ashlar plan validate training.csv\n  ashlar plan validate mine.csv --catalog mine.yaml --json",
};

static double percent(double share)
{
    return 100 * share;
}

static void print_groups(const struct ash_validate *validate)
{
    struct ash_table table = {.heads = "group|>rows|>median abs. error|>p90 abs. error|>median error"};

    for (size_t i = 0; i < ash_validate_group_count(validate); i++) {
        const struct ash_validate_group *group = ash_validate_group_at(validate, i);

        if (group->rows == 0)
            ash_table_row(&table, "%s|0|-|-|-", group->name);
        else
            ash_table_row(&table, "%s|%zu|%.1f%%|%.1f%%|%+.1f%%", group->name, group->rows,
                          percent(group->median_abs_err), percent(group->p90_abs_err), percent(group->median_err));
    }
    ash_table_print(&table, stdout);
}

static void print_rows(const struct ash_validate *validate, bool all)
{
    struct ash_table table = {.heads = "|||||>|>|>|"}, reasons = {.heads = "||", .indent = 2};
    size_t missing = 0, over = 0;

    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        const struct ash_validate_row *row = ash_validate_row_at(validate, i);

        missing += !row->predicted;
        over += row->predicted && !row->fits;
        if (all && row->predicted)
            ash_table_row(&table, "%s|%s|%s|%s|%.5g|%.5g|%+.1f%%|%s", row->id, row->source, row->model, row->gpu,
                          row->measured, row->expected, percent(row->error), row->fits ? "" : "!");
        if (!row->predicted) ash_table_row(&reasons, "%s|%s|%s", row->id, row->model, row->reason);
    }
    ash_table_print(&table, stdout);
    if (over > 0)
        printf("\n%zu of %zu predicted rows would not fit by the planner's account of memory (! in --rows)\n", over,
               ash_validate_row_count(validate) - missing);
    printf("\n%zu of %zu rows could not be predicted\n", missing, ash_validate_row_count(validate));
    ash_table_print(&reasons, stdout);
}

static json_t *row_json(const struct ash_validate_row *row)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "row_id", row->id, "source_id", row->source, "model",
                             row->model, "gpu", row->gpu, "arch_type", row->arch, "primary", row->primary);

    if (json == NULL) json = json_object(); /* a cell that is not UTF-8 */
    if (row->predicted) {
        json_object_set_new(json, "measured", json_real(row->measured));
        json_object_set_new(json, "predicted", json_real(row->expected));
        json_object_set_new(json, "err", json_real(row->error));
        json_object_set_new(json, "fits", json_boolean(row->fits));
    } else {
        json_object_set_new(json, "reason", json_string(row->reason));
    }
    return json;
}

static int print_json(const struct ash_validate *validate, struct ash_err *err)
{
    json_t *groups = json_array(), *rows = json_array();
    size_t missing = 0;

    for (size_t i = 0; i < ash_validate_group_count(validate); i++) {
        const struct ash_validate_group *group = ash_validate_group_at(validate, i);
        json_array_append_new(groups,
                              json_pack("{s:s, s:I, s:f, s:f}", "name", group->name, "rows", (json_int_t)group->rows,
                                        "median_abs_err", group->median_abs_err, "p90_abs_err", group->p90_abs_err));
    }
    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        missing += !ash_validate_row_at(validate, i)->predicted;
        json_array_append_new(rows, row_json(ash_validate_row_at(validate, i)));
    }
    return ash_cmd_print_json(
        json_pack("{s:o, s:o, s:I}", "groups", groups, "rows", rows, "not_predicted", (json_int_t)missing), err);
}

static int answer_it(const void *ctx, const struct ash_plan_facts *facts, const char *path, struct ash_err *err)
{
    const struct flags *flags = ctx;
    struct ash_validate *result = NULL;
    int rc = ash_validate_open(&facts->consts, facts->catalog, path, &result, err);

    if (rc == 0 && flags->json) rc = print_json(result, err);
    if (rc == 0 && !flags->json) {
        print_groups(result);
        print_rows(result, flags->rows);
    }
    ash_validate_close(result);
    return rc;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *path)
{
    const struct flags *flags = ctx;

    (void)opts;
    return ash_plan_answer(&flags->plan, answer_it, flags, path);
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&validate_table, &flags}, {&ash_plan_table, &flags.plan}},
                                      .takes_word = true,
                                      .missing_word = "which file?",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_plan_validate = {"validate", "predict measured runs and print how far off it is", run};
