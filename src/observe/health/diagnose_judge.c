/* One rule against all series. Peers are compared by median and median distance: a mean would move with the very
 * outlier that is looked for. */
#include "observe/health/diagnose_priv.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PEERS_MIN 4
#define BUSY_PERCENT 50
#define MAD_TO_SIGMA 1.4826 /* of a normal distribution */
#define SIGMAS 5

struct point {
    const struct ash_series *series;
    const char *group; /* only like is compared with like */
    double value;
};

/* The points that a rule judges. */
struct points {
    struct point *items;
    size_t count;
    enum ash_check_state missing; /* why the others are not here */
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* only is "label=value|value", or "label!start|start": the label's value begins with none of them. */
static bool concerns(const char *only, const struct ash_scrape_sample *sample)
{
    size_t label_bytes = only == NULL ? 0 : strcspn(only, "=!"), bytes;
    bool is_barred;
    char label[32];
    const char *value;

    if (only == NULL) return true;
    is_barred = only[label_bytes] == '!';
    snprintf(label, sizeof(label), "%.*s", (int)label_bytes, only);
    value = ash_scrape_label_of(sample, label);
    bytes = strlen(value);
    for (const char *at = only + label_bytes; *at != '\0'; at += 1 + strcspn(at + 1, "|")) {
        size_t wanted = strcspn(at + 1, "|");

        if ((wanted == bytes || (is_barred && wanted < bytes)) && memcmp(at + 1, value, wanted) == 0) return !is_barred;
    }
    return is_barred;
}

/* Is a GPU idle, or, for series of other parts, every GPU of the node? Without GPUs: has it no rank, while others have?
 * A spare node sends little, and may. */
static bool is_idle(const struct ash_diagnose *diagnose, const struct ash_series *series)
{
    const struct ash_series *use = ash_series_find(&diagnose->now, "DCGM_FI_DEV_GPU_UTIL", series);
    size_t count = 0, ranks = 0;

    if (use != NULL) return use->sample->value < BUSY_PERCENT;
    if (ash_scrape_label_of(series->sample, "gpu")[0] != '\0') return false;
    use = ash_series_of_node(&diagnose->now, "DCGM_FI_DEV_GPU_UTIL", series->node, &count);
    for (size_t i = 0; i < count; i++)
        if (!(use[i].sample->value < BUSY_PERCENT)) return false;
    if (count > 0) return true;
    ash_series_of_node(&diagnose->now, "ashlar_rank_step", series->node, &ranks);
    return ranks == 0 && ash_series_has(&diagnose->now, "ashlar_rank_step");
}

/* Has the part of a series never been active, by the rule, and are there too few peers to judge it by? */
static bool is_unused(const struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series)
{
    const struct ash_series *use;

    if (rule->used == NULL) return false;
    use = ash_series_find(&diagnose->now, rule->used, series);
    return diagnose->nodes >= PEERS_MIN || use == NULL || !(use->sample->value > 0);
}

/* A counter's growth; one that restarted at 0 grew by its value. */
static bool growth_of(const struct ash_diagnose *diagnose, const struct ash_series *series, double *growth_out)
{
    const struct ash_series *before = ash_series_find(&diagnose->before, series->sample->name, series);
    double growth;

    if (before == NULL || !isfinite(before->sample->value)) return false;
    growth = series->sample->value - before->sample->value;
    *growth_out = growth < 0 ? series->sample->value : growth;
    return true;
}

static bool is_counter(const char *metric)
{
    size_t bytes = strlen(metric);

    return bytes > 6 && strcmp(metric + bytes - 6, "_total") == 0;
}

/* A share of another metric; of two counters (the sum and count of a histogram), between the scrapes if both grew. */
static enum ash_check_state share_of(const struct ash_diagnose *diagnose, const struct ash_rule *rule,
                                     const struct ash_series *series, double *value_out)
{
    const struct ash_series *per = ash_series_find(&diagnose->now, rule->per, series);
    double above = series->sample->value, below, growth_above, growth_below;

    if (per == NULL || !isfinite(per->sample->value)) return ASH_CHECK_UNPAIRED;
    below = per->sample->value;
    if ((rule->kind == ASH_RULE_PEER_HIGH || is_counter(series->sample->name)) &&
        growth_of(diagnose, series, &growth_above) && growth_of(diagnose, per, &growth_below) && growth_below > 0) {
        above = growth_above;
        below = growth_below;
    }
    if (!(below > 0)) return ASH_CHECK_IDLE;
    *value_out = above / below;
    return ASH_CHECK_NORMAL;
}

/* How often a counter grows by another metric's value, in a second. */
static enum ash_check_state turnover_of(const struct ash_diagnose *diagnose, const struct ash_rule *rule,
                                        const struct ash_series *series, double *value_out)
{
    const struct ash_series *per = ash_series_find(&diagnose->now, rule->per, series);
    double growth;

    if (per == NULL || !(per->sample->value > 0)) return ASH_CHECK_UNPAIRED;
    if (!growth_of(diagnose, series, &growth)) return ASH_CHECK_SECOND;
    if (diagnose->seconds <= 0) return ASH_CHECK_SECONDS;
    *value_out = growth / per->sample->value / diagnose->seconds;
    return ASH_CHECK_NORMAL;
}

static bool takes_growth(enum ash_rule_kind kind)
{
    return kind == ASH_RULE_GROWTH || kind == ASH_RULE_SHARE || kind == ASH_RULE_RATE_LOW || kind == ASH_RULE_RATE_HIGH;
}

/* The number that a rule judges of a series, or why there is none. */
static enum ash_check_state value_of(const struct ash_diagnose *diagnose, const struct ash_rule *rule,
                                     const struct ash_series *series, double *value_out)
{
    double value = series->sample->value;

    if (!isfinite(value)) return ASH_CHECK_ABSENT;
    if ((rule->busy && is_idle(diagnose, series)) || is_unused(diagnose, rule, series)) return ASH_CHECK_IDLE;
    if (rule->kind == ASH_RULE_TURNOVER) return turnover_of(diagnose, rule, series, value_out);
    if (rule->per != NULL) return share_of(diagnose, rule, series, value_out);
    if (rule->kind == ASH_RULE_MIN && value == 0) return ASH_CHECK_IDLE;
    if (takes_growth(rule->kind) && !growth_of(diagnose, series, &value)) return ASH_CHECK_SECOND;
    if (rule->kind == ASH_RULE_SHARE && diagnose->seconds <= 0) return ASH_CHECK_SECONDS;
    *value_out = rule->kind == ASH_RULE_SHARE ? value / diagnose->seconds : value;
    return ASH_CHECK_NORMAL;
}

static void collect(const struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series,
                    size_t count, struct points *points)
{
    points->missing = ASH_CHECK_ABSENT;
    for (size_t i = 0; i < count; i++) {
        struct point *point = &points->items[points->count];
        enum ash_check_state state;

        if (!concerns(rule->only, series[i].sample)) continue;
        state = value_of(diagnose, rule, &series[i], &point->value);
        if (state != ASH_CHECK_NORMAL) {
            points->missing = state;
            continue;
        }
        point->series = &series[i];
        point->group = ash_scrape_label_of(series[i].sample, rule->peers != NULL ? rule->peers : "modelName");
        points->count++;
    }
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Do steps wait for data or saves? Runs and ranks are judged before counters. */
static bool has_waits(const struct ash_diagnose *diagnose)
{
    static const char *const metrics[] = {ASH_METRIC_DATA_STEP, ASH_METRIC_DATA_WAIT, ASH_METRIC_SAVE};

    for (size_t i = 0; i < diagnose->finding_count; i++)
        for (size_t m = 0; m < ASH_COUNT(metrics); m++)
            if (strcmp(diagnose->findings[i].metric, metrics[m]) == 0) return true;
    return false;
}

/* Report a point whose value is text already. */
static int report_point(struct ash_diagnose *diagnose, struct ash_finding *finding, const struct point *point)
{
    ash_series_name(point->series, finding->where, sizeof(finding->where));
    return ash_diagnose_report(diagnose, finding);
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static void say_value(const struct ash_diagnose *diagnose, const struct ash_rule *rule, double value, char *text,
                      size_t text_bytes)
{
    if (rule->kind == ASH_RULE_BITS) {
        snprintf(text, text_bytes, "0x%llx", (unsigned long long)value);
    } else if (rule->kind == ASH_RULE_SHARE) {
        snprintf(text, text_bytes, "%.1f %% of the time", 100 * value);
    } else if (rule->kind == ASH_RULE_TURNOVER) {
        snprintf(text, text_bytes, "all of it %.3g times a second", value);
    } else if (rule->kind == ASH_RULE_GROWTH && diagnose->seconds > 0) {
        snprintf(text, text_bytes, "grew by %.6g in %.4g s", value, diagnose->seconds);
    } else if (rule->kind == ASH_RULE_GROWTH) {
        snprintf(text, text_bytes, "grew by %.6g", value);
    } else if (rule->per != NULL && strstr(rule->metric, "_seconds_") != NULL) {
        snprintf(text, text_bytes, "%.3g s each", value);
    } else if (rule->per != NULL) {
        snprintf(text, text_bytes, "%.2f %%", 100 * value);
    } else {
        snprintf(text, text_bytes, "%.6g", value);
    }
}

/* A value's excess over the normal range; 0 or less: none. */
static double excess_of(const struct ash_rule *rule, double value)
{
    switch (rule->kind) {
    case ASH_RULE_MIN:
        return rule->limit - value;
    case ASH_RULE_ZERO:
        return value == 0;
    case ASH_RULE_BITS:
        return value >= 0 && value < 0x1p63 && ((uint64_t)value & (uint64_t)rule->limit) != 0;
    default:
        return value - rule->limit;
    }
}

/* Each point by itself. */
static int judge_limit(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct points *points)
{
    for (size_t i = 0; i < points->count; i++) {
        double value = points->items[i].value;
        double excess = excess_of(rule, value);
        struct ash_finding finding = ash_finding_of(rule);

        if (!(excess > 0) || (rule->is_hint && !has_waits(diagnose))) continue;
        finding.excess = rule->limit > 0 ? excess / rule->limit : excess;
        say_value(diagnose, rule, value, finding.value, sizeof(finding.value));
        if (report_point(diagnose, &finding, &points->items[i]) < 0) return -ENOMEM;
    }
    return 0;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof(values[0]), compare_doubles);
    return count % 2 == 1 ? values[count / 2] : values[count / 2 - 1] / 2 + values[count / 2] / 2;
}

/* Points of one group. scratch has room for count numbers. */
static int judge_group(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct point *points,
                       size_t count, double *scratch)
{
    bool low = rule->kind == ASH_RULE_PEER_LOW || rule->kind == ASH_RULE_RATE_LOW;
    double median, bound;

    ash_assert(count >= PEERS_MIN);
    for (size_t i = 0; i < count; i++)
        scratch[i] = points[i].value;
    median = median_of(scratch, count);
    for (size_t i = 0; i < count; i++)
        scratch[i] = fabs(points[i].value - median);
    bound = fmax(fmax(SIGMAS * MAD_TO_SIGMA * median_of(scratch, count), rule->limit * fabs(median)), rule->floor);
    for (size_t i = 0; i < count; i++) {
        double distance = low ? median - points[i].value : points[i].value - median;
        struct ash_finding finding = ash_finding_of(rule);

        if (!(distance > bound)) continue;
        finding.excess = bound > 0 ? distance / bound : distance;
        snprintf(finding.value, sizeof(finding.value), "%s%.6g; the median of %zu peers is %.6g",
                 takes_growth(rule->kind) ? "grew by " : "", points[i].value, count, median);
        if (report_point(diagnose, &finding, &points[i]) < 0) return -ENOMEM;
    }
    return 0;
}

static int compare_groups(const void *left, const void *right)
{
    const struct point *a = left, *b = right;

    return strcmp(a->group, b->group);
}

/* Group by group. *judged_out is how many points had enough peers. */
static int judge_peers(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct points *points,
                       size_t *judged_out)
{
    double *scratch = calloc(points->count, sizeof(*scratch));
    int rc = scratch == NULL ? -ENOMEM : 0;

    *judged_out = 0;
    qsort(points->items, points->count, sizeof(points->items[0]), compare_groups);
    for (size_t first = 0, end; first < points->count && rc == 0; first = end) {
        for (end = first + 1; end < points->count; end++) {
            if (strcmp(points->items[end].group, points->items[first].group) != 0) break;
        }
        if (end - first < PEERS_MIN) continue;
        rc = judge_group(diagnose, rule, points->items + first, end - first, scratch);
        *judged_out += end - first;
    }
    free(scratch);
    return rc;
}

/* ---- a rule ------------------------------------------------------------------------------------------------------ */

static int judge_points(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct points *points,
                        struct ash_check *check)
{
    int rc;

    check->series = points->count;
    check->state = points->count > 0 ? ASH_CHECK_NORMAL : points->missing;
    if (points->count == 0) return 0;
    if (rule->kind < ASH_RULE_PEER_LOW) return judge_limit(diagnose, rule, points);
    rc = judge_peers(diagnose, rule, points, &check->series);
    if (check->series == 0) check->state = ASH_CHECK_PEERS;
    return rc;
}

int ash_diagnose_judge(struct ash_diagnose *diagnose, const struct ash_rule *rule, struct ash_check *check_out)
{
    size_t count, findings = diagnose->finding_count;
    const struct ash_series *series = ash_series_range(&diagnose->now, rule->metric, &count);
    struct ash_check check = {.rule = rule, .state = ASH_CHECK_ABSENT};
    struct points points = {0};
    int rc;

    if (rule->kind == ASH_RULE_COUNT) {
        rc = ash_diagnose_judge_count(diagnose, rule, series, count, &check);
        if (count == 0) check.state = ASH_CHECK_ABSENT;
    } else if (rule->kind == ASH_RULE_XID || rule->kind == ASH_RULE_XID_COUNT) {
        bool is_blind = rule->kind == ASH_RULE_XID_COUNT && diagnose->before.count == 0;

        rc = is_blind ? 0 : ash_diagnose_judge_xid(diagnose, rule, series, count);
        check.series = count;
        check.state = count == 0 ? ASH_CHECK_ABSENT : is_blind ? ASH_CHECK_SECOND : ASH_CHECK_NORMAL;
    } else {
        points.items = calloc(count + 1, sizeof(points.items[0]));
        if (points.items == NULL) return -ENOMEM;
        collect(diagnose, rule, series, count, &points);
        rc = judge_points(diagnose, rule, &points, &check);
        free(points.items);
    }
    if (diagnose->finding_count > findings) check.state = ASH_CHECK_FOUND;
    *check_out = check;
    return rc;
}
