/* ashlar plan validate: how far the planner is from published measurements. */
#include "cmd/plan_priv.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/json.h"
#include "cmd/catalog_priv.h"
#include "plan/validate.h"

struct validate_flags {
    bool json, rows;
    struct ash_opt_list set;
};

#define FIELD(name) offsetof(struct validate_flags, name)

static const struct ash_opt validate_opts[] = {
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object: groups and every row", 0, 0, NULL},
    {"rows", ASH_OPT_BOOL, FIELD(rows), NULL, "list every row, not only the groups", 0, 0, NULL},
    {"set", ASH_OPT_LIST, FIELD(set), NULL, "name=value of a constant of the cost model (ashlar plan constants)", 0, 0,
     NULL},
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
    printf("%-40s %6s %12s %9s %9s\n", "group", "rows", "median |err|", "p90 |err|", "median");
    for (size_t i = 0; i < ash_validate_group_count(validate); i++) {
        const struct ash_validate_group *group = ash_validate_group(validate, i);

        if (group->rows == 0)
            printf("%-40s %6d %12s %9s %9s\n", group->name, 0, "-", "-", "-");
        else
            printf("%-40s %6zu %11.1f%% %8.1f%% %+8.1f%%\n", group->name, group->rows, percent(group->median_abs_err),
                   percent(group->p90_abs_err), percent(group->median_err));
    }
}

static void print_rows(const struct ash_validate *validate, bool all)
{
    size_t missing = 0;

    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        const struct ash_validate_row *row = ash_validate_row(validate, i);

        missing += !row->predicted;
        if (all && row->predicted)
            printf("%-8s %-26s %-28s %-12s %12.5g %12.5g %+7.1f%%\n", row->id, row->source, row->model, row->gpu,
                   row->measured, row->expected, percent(row->error));
    }
    printf("\n%zu of %zu rows could not be predicted\n", missing, ash_validate_row_count(validate));
    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        const struct ash_validate_row *row = ash_validate_row(validate, i);
        if (!row->predicted) printf("  %-8s %-26s %s\n", row->id, row->model, row->reason);
    }
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
    } else {
        json_object_set_new(json, "reason", json_string(row->reason));
    }
    return json;
}

static void print_json(const struct ash_validate *validate)
{
    json_t *groups = json_array(), *rows = json_array(), *all;
    size_t missing = 0;

    for (size_t i = 0; i < ash_validate_group_count(validate); i++) {
        const struct ash_validate_group *group = ash_validate_group(validate, i);
        json_array_append_new(groups,
                              json_pack("{s:s, s:I, s:f, s:f}", "name", group->name, "rows", (json_int_t)group->rows,
                                        "median_abs_err", group->median_abs_err, "p90_abs_err", group->p90_abs_err));
    }
    for (size_t i = 0; i < ash_validate_row_count(validate); i++) {
        missing += !ash_validate_row(validate, i)->predicted;
        json_array_append_new(rows, row_json(ash_validate_row(validate, i)));
    }
    all = json_pack("{s:o, s:o, s:I}", "groups", groups, "rows", rows, "not_predicted", (json_int_t)missing);
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(all);
}

static int validate(const struct ash_catalog_flags *files, const struct validate_flags *flags, const char *path)
{
    struct ash_consts consts = ash_consts_default();
    struct ash_catalog *catalog = NULL;
    struct ash_validate *result = NULL;
    struct ash_err err = {0};
    int rc = ash_consts_set_all(&consts, flags->set.items, flags->set.count, &err);

    if (rc == 0) rc = ash_cmd_catalog_open(files, &catalog, &err);
    if (rc == 0) rc = ash_validate_open(&consts, catalog, path, &result, &err);
    if (rc == 0 && flags->json) print_json(result);
    if (rc == 0 && !flags->json) {
        print_groups(result);
        print_rows(result, flags->rows);
    }
    ash_validate_close(result);
    ash_catalog_close(catalog);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct validate_flags flags = {0};
    struct ash_catalog_flags files = {0};
    struct ash_opt_binding bindings[] = {{&validate_table, &flags}, {&ash_catalog_table, &files}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *path[1] = {NULL};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, path, 1, &count);
    if (code == ASH_CMD_GO)
        code = count == 1 ? validate(&files, &flags, path[0]) : ash_cmd_misuse("plan validate", "which file?");
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_plan_validate = {"validate", "predict measured runs and print how far off it is", run};
