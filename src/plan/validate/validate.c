/* Rows in, errors and groups out. Groups: one pass over the rows per value of source, GPU and kind. */
#include "plan/validate/validate_priv.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/assert.h"
#include "plan/validate/infer_row.h"

struct ash_validate {
    struct ash_csv *csv;
    struct ash_validate_row *rows;
    size_t row_count;
    struct ash_validate_group *groups;
    size_t group_count, group_capacity;
    double *errors; /* room for sorting */
};

int ash_validate_refuse(struct ash_validate_row *row, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(row->reason, sizeof(row->reason), fmt, args);
    va_end(args);
    return -EINVAL;
}

const char *ash_validate_kind(const struct ash_shape *shape)
{
    return shape->sparse_layers > 0 ? "moe" : shape->ssm_layers > 0 ? "hybrid" : "dense";
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    double rest = at - (double)below;

    ash_assert(count > 0 && share >= 0 && share <= 1);
    return below + 1 < count ? sorted[below] * (1 - rest) + sorted[below + 1] * rest : sorted[below];
}

enum group_kind { BY_ALL, BY_PRIMARY, BY_ARCH, BY_PRIMARY_ARCH, BY_SOURCE, BY_GPU, GROUP_KINDS };

/* The kind that the row names, or that its model has. */
static const char *arch_of(const struct ash_validate_row *row)
{
    if (strcasestr(row->arch, "moe") != NULL) return "moe";
    if (strcasestr(row->arch, "hybrid") != NULL || strcasestr(row->arch, "ssm") != NULL) return "hybrid";
    if (strcasecmp(row->arch, "dense") == 0 || row->kind == NULL) return "dense";
    return row->kind;
}

/* The value by which a row is grouped, or NULL where the row is not in this kind of group. */
static const char *group_value(const struct ash_validate_row *row, enum group_kind kind)
{
    switch (kind) {
    case BY_ALL:
        return "all";
    case BY_PRIMARY:
        return row->primary ? "primary" : NULL;
    case BY_ARCH:
        return arch_of(row);
    case BY_PRIMARY_ARCH:
        return row->primary ? arch_of(row) : NULL;
    case BY_SOURCE:
        return row->source[0] != '\0' ? row->source : NULL;
    default:
        return row->gpu;
    }
}

static int add_group(struct ash_validate *v, enum group_kind kind, const char *value)
{
    static const char *const prefixes[GROUP_KINDS] = {"", "", "", "primary ", "source ", "gpu "};
    struct ash_validate_group group = {0};

    if (ash_array_reserve(&v->groups, &v->group_capacity, v->group_count + 1, sizeof(*v->groups)) < 0) return -ENOMEM;
    snprintf(group.name, sizeof(group.name), "%s%s", prefixes[kind], value);
    for (size_t i = 0; i < v->row_count; i++) {
        const char *own = group_value(&v->rows[i], kind);
        if (own != NULL && v->rows[i].predicted && strcmp(own, value) == 0) v->errors[group.rows++] = v->rows[i].error;
    }
    if (group.rows > 0) {
        qsort(v->errors, group.rows, sizeof(double), compare);
        group.median_err = quantile(v->errors, group.rows, 0.5);
        for (size_t i = 0; i < group.rows; i++)
            v->errors[i] = fabs(v->errors[i]);
        qsort(v->errors, group.rows, sizeof(double), compare);
        group.median_abs_err = quantile(v->errors, group.rows, 0.5);
        group.p90_abs_err = quantile(v->errors, group.rows, 0.9);
    }
    ash_assert(group.rows <= v->row_count && v->group_count < v->group_capacity);
    v->groups[v->group_count++] = group;
    return 0;
}

/* One group for each value that occurs, in the order of the file. */
static int add_groups(struct ash_validate *v, enum group_kind kind)
{
    for (size_t i = 0; i < v->row_count; i++) {
        const char *value = group_value(&v->rows[i], kind);
        bool seen = value == NULL;
        int rc;

        for (size_t j = 0; j < i && !seen; j++) {
            const char *other = group_value(&v->rows[j], kind);
            seen = other != NULL && strcmp(other, value) == 0;
        }
        if (seen) continue;
        rc = add_group(v, kind, value);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A latency counts as its inverse, so that a positive error always means that the model is too fast. */
static int predict_serving(const struct ash_validate_context *context, size_t index, struct ash_validate_row *row)
{
    struct ash_infer_row read;
    struct ash_err err = {0};

    if (ash_infer_row_read(context->catalog, context->csv, index, &read, &err) < 0)
        return ash_validate_refuse(row, "%.150s", err.text);
    if (ash_csv_field(context->csv, index, "spec_decode")[0] != '\0')
        return ash_validate_refuse(row, "speculative decoding: its acceptance rate is not given");
    row->kind = ash_validate_kind(&read.infer.shape);
    row->measured = read.measured;
    row->expected = ash_infer_row_predict(context->consts, &read);
    row->fits = true; /* what does not fit gives no speed */
    if (row->expected <= 0) return ash_validate_refuse(row, "weights and one request do not fit into the GPUs");
    if (read.metric != ASH_INFER_TOKENS_S) {
        row->measured = 1 / row->measured;
        row->expected = 1 / row->expected;
    }
    return 0;
}

static bool is_yes(const char *text)
{
    return strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0;
}

static void predict_row(const struct ash_validate_context *context, size_t index, bool training,
                        struct ash_validate_row *row)
{
    const struct ash_csv *csv = context->csv;
    int rc;

    snprintf(row->number, sizeof(row->number), "row %zu", index + 1);
    row->id = ash_csv_field(csv, index, "row_id");
    if (row->id[0] == '\0') row->id = row->number;
    row->source = ash_csv_field(csv, index, "source_id");
    row->model = ash_csv_field(csv, index, "model");
    row->gpu = ash_csv_field(csv, index, "gpu");
    row->arch = ash_csv_field(csv, index, "arch_type");
    row->primary = !ash_csv_has(csv, "primary") || is_yes(ash_csv_field(csv, index, "primary"));
    rc = training ? ash_validate_training(context, index, row) : predict_serving(context, index, row);
    if (rc == 0 && !(row->expected > 0 && isfinite(row->expected)))
        rc = ash_validate_refuse(row, "the model gives no speed for it");
    row->predicted = rc == 0;
    if (row->predicted) row->error = row->expected / row->measured - 1;
}

int ash_validate_open(const struct ash_consts *consts, const struct ash_catalog *catalog, const char *path,
                      struct ash_validate **validate_out, struct ash_err *err)
{
    struct ash_validate *v = calloc(1, sizeof(*v));
    struct ash_validate_context context = {.consts = consts, .catalog = catalog};
    bool training = false;
    int rc = v == NULL ? ash_err_set(err, -ENOMEM, "out of memory") : ash_csv_load(path, &v->csv, err);

    if (rc < 0) goto fail;
    rc = ash_validate_form(v->csv, path, &training, err);
    if (rc < 0) goto fail;
    context.csv = v->csv;
    v->row_count = ash_csv_rows(v->csv);
    v->rows = calloc(v->row_count + 1, sizeof(*v->rows));
    v->errors = calloc(v->row_count + 1, sizeof(*v->errors));
    rc = v->rows == NULL || v->errors == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < v->row_count && rc == 0; i++)
        predict_row(&context, i, training, &v->rows[i]);
    for (int kind = 0; kind < GROUP_KINDS && rc == 0; kind++)
        rc = add_groups(v, (enum group_kind)kind);
    if (rc < 0) {
        ash_err_set(err, rc, "out of memory");
        goto fail;
    }
    *validate_out = v;
    return 0;

fail:
    ash_validate_close(v);
    return rc;
}

void ash_validate_close(struct ash_validate *validate)
{
    if (validate == NULL) return;
    ash_csv_close(validate->csv);
    free(validate->rows);
    free(validate->groups);
    free(validate->errors);
    free(validate);
}

size_t ash_validate_row_count(const struct ash_validate *validate)
{
    return validate->row_count;
}

const struct ash_validate_row *ash_validate_row_at(const struct ash_validate *validate, size_t index)
{
    return index < validate->row_count ? &validate->rows[index] : NULL;
}

size_t ash_validate_group_count(const struct ash_validate *validate)
{
    return validate->group_count;
}

const struct ash_validate_group *ash_validate_group_at(const struct ash_validate *validate, size_t index)
{
    return index < validate->group_count ? &validate->groups[index] : NULL;
}
