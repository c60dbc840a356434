/* What `ashlar plan audit` found, as tables, as JSON and as a picture. */
#include "cmd/plan/audit_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/table.h"
#include "cmd/cmd.h"
#include "plan/chart.h"

#define DRAWN_MAX ASH_AUDIT_DEGREES_MAX

static void add_row(struct ash_table *table, const struct ash_audit_row *row)
{
    if (!row->possible) {
        ash_table_row(table, "%s|does not divide", row->name);
        return;
    }
    ash_table_row(table, "%s|%.1f%%|%.0f|%.0f|%.0f|%.1f%%|%.3f|%.0f|%.1f|%s%s", row->name, 100 * row->layer.leaving,
                  row->inner_s * 1e3, row->outer_s * 1e3, row->exposed_s * 1e3, 100 * row->share, row->step_s,
                  row->tokens_s_gpu, row->memory_bytes * 1e-9, ash_plan_recompute_name(row->recompute),
                  row->fits ? "" : ", does not fit");
}

#define COLUMNS "|>leaving|>inside ms|>across ms|>exposed|>of step|>step s|>tok/s/GPU|>GB/GPU|recompute"

static void print_passes(const struct ash_audit *audit)
{
    static const int shares[ASH_AUDIT_SHARES] = {10, 30, 50};

    for (int i = 0; i < ASH_AUDIT_SHARES; i++) {
        printf("%s%d %% of the step", i == 0 ? "exposed dispatch passes " : ", ", shares[i]);
        if (audit->passes_at[i] > 0)
            printf(" at EP%d", audit->passes_at[i]);
        else
            printf(" at no EP here");
    }
    printf("\n");
}

void ash_audit_print_table(const struct ash_audit_answer *answer)
{
    const struct ash_audit_job *job = &answer->job;
    const struct ash_audit *audit = &answer->audit;
    const char *limit;
    struct ash_table degrees = {.heads = "GPUs that share the experts" COLUMNS};
    struct ash_table changes = {.heads = "what changes it" COLUMNS};
    char text[256];

    printf("%s on %d x %s (%d GPUs, NVLink domains of %d): %s, %g sequences of %g tokens a step\n", job->job.shape.name,
           job->job.cluster.machines, job->job.cluster.machine.name, job->job.cluster.gpus,
           job->job.cluster.domain_gpus, ash_layout_text(&job->layout, text, sizeof(text)), job->job.global_batch,
           job->job.seq_tokens);
    printf("%g of %g experts per token, %.3g MB per rank and layer, %s%s, %s\n", job->job.shape.choices,
           job->job.shape.experts, (audit->now.layer.inner_bytes + audit->now.layer.outer_bytes) * 1e-6,
           job->two_level ? "two-level" : "plain", job->fp8_dispatch ? " fp8" : " bf16",
           job->counts != NULL ? "routing as measured" : "even routing");
    for (size_t i = 0; i < audit->degree_count; i++)
        add_row(&degrees, &audit->degrees[i]);
    printf("\n");
    ash_table_print(&degrees, stdout);
    print_passes(audit);
    if (audit->fastest > 0) printf("the shortest step that fits into memory is that of EP%d\n", audit->fastest);
    add_row(&changes, &audit->now);
    for (size_t i = 0; i < audit->change_count; i++)
        add_row(&changes, &audit->changes[i]);
    printf("\n");
    ash_table_print(&changes, stdout);
    printf("\n");
    for (size_t i = 0; (limit = ash_audit_limit(job, audit, i)) != NULL; i++)
        printf("limit: %s\n", limit);
    printf("try first: %s: a guess until it is measured on the target\n", ash_audit_dispatcher(job));
    printf("verdict: %s\n", ash_audit_verdict(job, audit, text, sizeof(text)));
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *encode_row(const struct ash_audit_row *row)
{
    return json_pack("{s:s, s:i, s:b, s:b, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name", row->name,
                     "ep", row->layout.ep, "possible", (int)row->possible, "fits", (int)row->fits, "recompute",
                     ash_plan_recompute_name(row->recompute), "leaving", row->layer.leaving, "inner_bytes",
                     row->layer.inner_bytes, "outer_bytes", row->layer.outer_bytes, "inner_s", row->inner_s, "outer_s",
                     row->outer_s, "exposed_s", row->exposed_s, "share", row->share, "step_s", row->step_s,
                     "tokens_s_gpu", row->tokens_s_gpu, "memory_bytes", row->memory_bytes);
}

static json_t *encode_rows(const struct ash_audit_row *rows, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, encode_row(&rows[i]));
    return list;
}

int ash_audit_print_json(const struct ash_audit_answer *answer, struct ash_err *err)
{
    const struct ash_audit_job *job = &answer->job;
    const struct ash_audit *audit = &answer->audit;
    json_t *limits = json_array(), *json;
    char layout[128], verdict[256];
    const char *limit;

    for (size_t i = 0; (limit = ash_audit_limit(job, audit, i)) != NULL; i++)
        json_array_append_new(limits, json_string(limit));
    json = json_pack(
        "{s:s, s:s, s:i, s:i, s:s, s:o, s:o, s:o, s:[i,i,i], s:i, s:f, s:f, s:f, s:o, s:s, s:s}", "model",
        job->job.shape.name, "machine", job->job.cluster.machine.name, "gpus", job->job.cluster.gpus, "domain_gpus",
        job->job.cluster.domain_gpus, "layout", ash_layout_text(&job->layout, layout, sizeof(layout)), "now",
        encode_row(&audit->now), "degrees", encode_rows(audit->degrees, audit->degree_count), "changes",
        encode_rows(audit->changes, audit->change_count), "passes_10_30_50", audit->passes_at[0], audit->passes_at[1],
        audit->passes_at[2], "fastest_ep", audit->fastest, "fastest_s", audit->fastest_s, "bandwidth_gb_s",
        audit->bandwidth * 1e-9, "flip_gb_s", audit->flip_bandwidth * 1e-9, "limits", limits, "try_first",
        ash_audit_dispatcher(job), "verdict", ash_audit_verdict(job, audit, verdict, sizeof(verdict)));
    return ash_cmd_print_json(json, err);
}

/* ---- picture and check ------------------------------------------------------------------------------------------- */

int ash_audit_draw(const struct ash_audit_answer *answer, const char *path, struct ash_err *err)
{
    double x[DRAWN_MAX], y[2][DRAWN_MAX];
    const struct ash_chart_line lines[] = {{"plain all-to-all", y[0]}, {"two-level dispatch", y[1]}};
    struct ash_chart chart = {
        .title = "share of the step that waits for expert traffic, by number of GPUs that share the experts",
        .x_label = "EP",
        .y_label = "exposed, % of the step",
        .x = x,
        .count = answer->audit.degree_count,
        .lines = lines,
        .line_count = 2,
        .here = answer->job.layout.ep,
        .y_max = 1,
        .y_scale = 100,
    };

    if (chart.count < 2) return ash_err_set(err, -EINVAL, "only one EP degree divides: nothing to draw");
    for (int two_level = 0; two_level < 2; two_level++) {
        struct ash_audit_job job = answer->job;
        struct ash_audit audit;
        int rc;

        job.two_level = two_level == 1;
        rc = ash_audit_run(&answer->consts, &job, &audit, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < chart.count; i++) {
            x[i] = audit.degrees[i].layout.ep;
            y[two_level][i] = audit.degrees[i].share;
        }
    }
    return ash_chart_write(path, &chart, err);
}

static double check_error(const struct ash_dispatch_check *check)
{
    return check->predicted / check->measured - 1;
}

static void print_check_table(const struct ash_consts *consts, const struct ash_catalog *catalog)
{
    struct ash_table table = {.heads = "machine|what|>ranks|>measured|>predicted|>error"};
    struct ash_dispatch_check check;
    double sum = 0;
    size_t count = 0;

    for (; ash_dispatch_check_at(consts, catalog, count, &check); count++) {
        const char *unit = check.us ? "us  " : "GB/s";

        ash_table_row(&table, "%s|%s|%.0f|%.4g %s|%.4g %s|%+.0f%%", check.machine, check.what, check.ranks,
                      check.measured, unit, check.predicted, unit, 100 * check_error(&check));
        sum += fabs(check_error(&check));
    }
    ash_table_print(&table, stdout);
    if (count > 0) printf("mean error %.0f %% of %zu measurements\n", 100 * sum / (double)count, count);
}

static json_t *encode_check(const struct ash_consts *consts, const struct ash_catalog *catalog)
{
    json_t *list = json_array();
    struct ash_dispatch_check check;

    for (size_t i = 0; ash_dispatch_check_at(consts, catalog, i, &check); i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:s, s:f}", "machine", check.machine,
                                              "what", check.what, "source", check.source, "ranks", check.ranks,
                                              "measured", check.measured, "predicted", check.predicted, "unit",
                                              check.us ? "us" : "GB/s", "err", check_error(&check)));
    return list;
}

int ash_audit_print_check(const struct ash_consts *consts, const struct ash_catalog *catalog, bool as_json,
                          struct ash_err *err)
{
    if (as_json) return ash_cmd_print_json(encode_check(consts, catalog), err);
    print_check_table(consts, catalog);
    return 0;
}
