/* report: numbers as JSON inside the page of runs (record/page/). The page draws; this file only thins out. */
#include "train/run/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "record/page/page.h"
#include "base/str.h"

#define BUCKETS_MAX 800
#define POINTS_MAX 2000 /* validations, and skipped steps */

typedef float (*value_fn)(const struct ash_log_record *record);

static float loss_of(const struct ash_log_record *record)
{
    return record->loss;
}

static float lr_of(const struct ash_log_record *record)
{
    return record->lr;
}

static float norm_of(const struct ash_log_record *record)
{
    return record->grad_norm;
}

static float speed_of(const struct ash_log_record *record)
{
    return record->tokens_per_s;
}

/* JSON has no NaN: null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static size_t bucket_count(size_t records)
{
    return ash_min(records, BUCKETS_MAX);
}

/* First record of a bucket. */
static size_t bucket_begin(const struct ash_report *report, size_t bucket)
{
    return report->record_count * bucket / bucket_count(report->record_count);
}

/* Smallest, largest and mean finite value of a bucket, skipped steps left out; NaN if there is none. */
static void summarise(const struct ash_report *report, size_t bucket, value_fn value, double out[3])
{
    double sum = 0.0;
    size_t count = 0;

    out[0] = out[1] = out[2] = NAN;
    for (size_t i = bucket_begin(report, bucket); i < bucket_begin(report, bucket + 1); i++) {
        double v = (double)value(&report->records[i]);
        if (!isfinite(v) || report->records[i].skipped) continue;
        out[0] = fmin(out[0], v); /* fmin and fmax ignore a NaN */
        out[1] = fmax(out[1], v);
        sum += v;
        count++;
    }
    if (count > 0) out[2] = sum / (double)count;
}

/* {"mean": [...], "low": [...], "high": [...]}, low and high only where buckets hold more than one step. */
static json_t *encode_series(const struct ash_report *report, value_fn value)
{
    size_t buckets = bucket_count(report->record_count);
    bool bands = buckets < report->record_count;
    json_t *low = json_array(), *high = json_array(), *mean = json_array();

    for (size_t b = 0; b < buckets; b++) {
        double summary[3];
        summarise(report, b, value, summary);
        json_array_append_new(mean, number(summary[2]));
        if (!bands) continue;
        json_array_append_new(low, number(summary[0]));
        json_array_append_new(high, number(summary[1]));
    }
    return json_pack("{s:o, s:o, s:o}", "mean", mean, "low", low, "high", high);
}

static json_t *encode_steps(const struct ash_report *report)
{
    json_t *steps = json_array();

    for (size_t b = 0; b < bucket_count(report->record_count); b++)
        json_array_append_new(steps, json_integer((json_int_t)report->records[bucket_begin(report, b + 1) - 1].step));
    return steps;
}

/* Every n-th, so that at most POINTS_MAX are left; the last is always among them. */
static json_t *encode_validations(const struct ash_report *report)
{
    json_t *points = json_array();
    size_t total = 0, seen = 0;

    for (size_t i = 0; i < report->record_count; i++)
        total += isfinite((double)report->records[i].valid_loss) != 0;
    size_t stride = total / POINTS_MAX + 1;
    for (size_t i = 0; i < report->record_count; i++) {
        const struct ash_log_record *record = &report->records[i];
        if (!isfinite((double)record->valid_loss)) continue;
        seen++;
        if (seen % stride == 0 || seen == total)
            json_array_append_new(points,
                                  json_pack("[I, o]", (json_int_t)record->step, number((double)record->valid_loss)));
    }
    return points;
}

/* [step, loss, norm] of each. */
static json_t *encode_skipped(const struct ash_report *report)
{
    json_t *points = json_array();

    for (size_t i = 0; i < report->record_count && json_array_size(points) < POINTS_MAX; i++) {
        const struct ash_log_record *record = &report->records[i];
        if (!record->skipped) continue;
        json_array_append_new(points, json_pack("[I, o, o]", (json_int_t)record->step, number((double)record->loss),
                                                number((double)record->grad_norm)));
    }
    return points;
}

/* [kind, seconds] of each that has some. */
static json_t *encode_ledger(const struct ash_ledger *ledger)
{
    json_t *parts = json_array();

    for (size_t kind = 0; ledger != NULL && kind < ASH_LEDGER_KINDS; kind++)
        if (ledger->seconds[kind] > 0.0)
            json_array_append_new(parts, json_pack("[s, o]", ash_ledger_kind_name((enum ash_ledger_kind)kind),
                                                   number(ledger->seconds[kind])));
    return parts;
}

static json_t *encode(const struct ash_report *report)
{
    json_t *facts = json_array();

    for (size_t i = 0; i < report->fact_count; i++)
        json_array_append_new(facts, json_pack("[s, s]", report->facts[i].label, report->facts[i].value));
    return json_pack(
        "{s:[], s:[], s:[], s:[{s:s, s:s, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O?}]}", "nodes",
        "ranks", "servers", "runs", "name", report->title, "status", report->status, "running", (int)report->running,
        "total", (json_int_t)report->total_steps, "written", (json_int_t)ash_clock_wall_s(), "facts", facts, "ledger",
        encode_ledger(report->ledger), "step", encode_steps(report), "loss", encode_series(report, loss_of), "lr",
        encode_series(report, lr_of), "norm", encode_series(report, norm_of), "speed", encode_series(report, speed_of),
        "valid", encode_validations(report), "skipped", encode_skipped(report), "more", report->more);
}

int ash_report_write(const char *path, const struct ash_report *report, struct ash_err *err)
{
    struct ash_str page = {0};
    json_t *json = encode(report);
    char *text =
        json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL; /* more than a curve shows */
    int rc = text != NULL ? ash_page_write_frozen(text, &page) : -ENOMEM;

    json_decref(json);
    if (rc < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for the report, or a name in it is not UTF-8");
    else
        rc = ash_file_replace(path, page.data, page.size_bytes, err);
    free(text);
    ash_str_fini(&page);
    return rc;
}
