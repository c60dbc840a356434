/* guard: a running mean of loss and gradient norm, and the rule that leaves a bad step out. */
#include "train/state/guard.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#define FORGET 0.02 /* weight of a new value once there are 1 / FORGET of them */

static enum ash_guard_verdict judge(const struct ash_guard_opts *opts, const struct ash_guard_stats *stats,
                                    uint64_t targets, double loss, double norm)
{
    if (targets == 0) return ASH_GUARD_NO_TARGETS;
    if (!isfinite(loss) || !isfinite(norm)) return ASH_GUARD_NOT_FINITE;
    if (stats->accepted == 0 || stats->accepted < opts->warmup_steps) return ASH_GUARD_OK;
    if (opts->norm_factor > 0.0 && norm > opts->norm_floor && norm > opts->norm_factor * stats->norm_mean)
        return ASH_GUARD_NORM_SPIKE;
    if (opts->loss_factor > 0.0 && loss > opts->loss_factor * stats->loss_mean &&
        loss > stats->loss_mean + ASH_GUARD_LOSS_RISE)
        return ASH_GUARD_LOSS_SPIKE;
    return ASH_GUARD_OK;
}

enum ash_guard_verdict ash_guard_check(const struct ash_guard_opts *opts, struct ash_guard_stats *stats,
                                       uint64_t targets, double loss, double norm)
{
    enum ash_guard_verdict verdict = judge(opts, stats, targets, loss, norm);

    if (verdict != ASH_GUARD_OK) {
        stats->skipped++;
        stats->skipped_in_row++;
        return verdict;
    }
    stats->accepted++;
    stats->skipped_in_row = 0;
    double weight = fmax(1.0 / (double)stats->accepted, FORGET);
    stats->norm_mean += weight * (norm - stats->norm_mean);
    stats->loss_mean += weight * (loss - stats->loss_mean);
    return verdict;
}

int ash_guard_limit(const struct ash_guard_opts *opts, const struct ash_guard_stats *stats,
                    enum ash_guard_verdict verdict, struct ash_err *err)
{
    if (verdict == ASH_GUARD_OK) return 0;
    if (verdict == ASH_GUARD_NOT_FINITE && opts->nan == ASH_GUARD_NAN_STOP)
        return ash_err_set(err, -ECANCELED,
                           "the loss or gradient norm is not finite and guard.nan is stop; lower optimizer.lr, or set "
                           "guard.nan=skip to leave such steps out");
    if (opts->max_skips > 0 && stats->skipped_in_row >= opts->max_skips)
        return ash_err_set(
            err, -ECANCELED,
            "%llu steps in a row were left out by the guard; lower optimizer.lr or lengthen schedule.warmup "
            "(guard.max_skips sets the limit)",
            (unsigned long long)stats->skipped_in_row);
    return 0;
}

const char *ash_guard_describe(enum ash_guard_verdict verdict, const struct ash_guard_stats *stats, double loss,
                               double norm, char *buf, size_t buf_bytes)
{
    switch (verdict) {
    case ASH_GUARD_OK:
        snprintf(buf, buf_bytes, "accepted");
        break;
    case ASH_GUARD_NO_TARGETS:
        snprintf(buf, buf_bytes, "the batch has no targets");
        break;
    case ASH_GUARD_NOT_FINITE:
        snprintf(buf, buf_bytes, "loss %.4g or gradient norm %.4g is not finite", loss, norm);
        break;
    case ASH_GUARD_NORM_SPIKE:
        snprintf(buf, buf_bytes, "gradient norm %.4g is %.1f times its running mean", norm, norm / stats->norm_mean);
        break;
    case ASH_GUARD_LOSS_SPIKE:
        snprintf(buf, buf_bytes, "loss %.4g is %.1f times its running mean", loss, loss / stats->loss_mean);
        break;
    }
    return buf;
}

json_t *ash_guard_encode(const struct ash_guard_stats *stats)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f}", "accepted", (json_int_t)stats->accepted, "skipped",
                     (json_int_t)stats->skipped, "skipped_in_row", (json_int_t)stats->skipped_in_row, "norm_mean",
                     stats->norm_mean, "loss_mean", stats->loss_mean);
}

int ash_guard_decode(const json_t *json, struct ash_guard_stats *stats_out, struct ash_err *err)
{
    int64_t accepted = 0, skipped = 0, in_row = 0;
    double norm_mean = 0.0, loss_mean = 0.0;
    int rc;

    rc = ash_json_int(json, "accepted", 0, INT64_MAX, &accepted, err);
    if (rc < 0) return rc;
    rc = ash_json_int(json, "skipped", 0, INT64_MAX, &skipped, err);
    if (rc < 0) return rc;
    rc = ash_json_int(json, "skipped_in_row", 0, INT64_MAX, &in_row, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "norm_mean", 0.0, DBL_MAX, &norm_mean, err);
    if (rc < 0) return rc;
    rc = ash_json_double(json, "loss_mean", -DBL_MAX, DBL_MAX, &loss_mean, err);
    if (rc < 0) return rc;
    *stats_out = (struct ash_guard_stats){.accepted = (uint64_t)accepted,
                                          .skipped = (uint64_t)skipped,
                                          .skipped_in_row = (uint64_t)in_row,
                                          .norm_mean = norm_mean,
                                          .loss_mean = loss_mean};
    return 0;
}
