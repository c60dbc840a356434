/* Ranks of one job as a table of steps by ranks, for straggler.h. */
#include "observe/health/rank_health.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "observe/ranks/rank_steps.h"
#include "observe/ranks/run_id.h"
#include "observe/ranks/straggler.h"

#define STRAGGLERS_MAX 16
#define STEPS_MAX 4096
#define STEPS_MIN 8
#define RANKS_MAX 65536
#define RUN_SLACK_S 120.0 /* a log and its ranks may be that far apart: a step can take a while */
#define STEP_NUMBER_MAX 1e15

static const struct ash_rule work_rule = {.layer = ASH_HEALTH_STEP,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_SLOW,
                                          .metric = "own work by step",
                                          .normal = "as its peers, within 5 %",
                                          .source = "change points of every rank's own work"};

/* ---- the list ---------------------------------------------------------------------------------------------------- */

void ash_rank_list_fini(struct ash_rank_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->records[i].points);
    free(list->records);
    *list = (struct ash_rank_list){0};
}

int ash_rank_list_add(struct ash_rank_list *list, const struct ash_rank_record *record)
{
    struct ash_rank_record *records = realloc(list->records, (list->count + 1) * sizeof(*records));
    struct ash_rank_point *points;

    if (records == NULL) return -ENOMEM;
    list->records = records;
    points = malloc((record->count + 1) * sizeof(*points));
    if (points == NULL) return -ENOMEM;
    if (record->count > 0) memcpy(points, record->points, record->count * sizeof(*points));
    records[list->count] = *record;
    records[list->count++].points = points;
    return 0;
}

/* A rank's ring, with room for its points. */
static int add_ring(struct ash_rank_list *list, const struct ash_rank_steps *rank, const char *node)
{
    struct ash_rank_record record = {.rank = rank->rank, .count = rank->view.count};
    int rc;

    record.points = malloc((record.count + 1) * sizeof(*record.points));
    if (record.points == NULL) return -ENOMEM;
    snprintf(record.job, sizeof(record.job), "%s", rank->job);
    snprintf(record.run, sizeof(record.run), "%s", rank->run);
    snprintf(record.run_id, sizeof(record.run_id), "%s", rank->run_id);
    snprintf(record.node, sizeof(record.node), "%s", node);
    for (size_t i = 0; i < record.count; i++) {
        const struct ash_step_record *step = ash_rank_step(rank, i);

        record.points[i] = (struct ash_rank_point){
            step->step, (double)(step->ns[ASH_METER_COMPUTE] + step->ns[ASH_METER_DATA]) * 1e-9,
            (double)step->ns[ASH_METER_DATA] * 1e-9, (double)step->ns[ASH_METER_COMM] * 1e-9, (double)step->grains};
    }
    if (record.count > 0) {
        const struct ash_step_record *last = ash_rank_step(rank, record.count - 1);

        record.end_s =
            (double)((int64_t)last->start_ns + rank->view.wall_ns) * 1e-9 + record.points[record.count - 1].own_s;
    }
    rc = ash_rank_list_add(list, &record);
    free(record.points);
    return rc;
}

int ash_rank_list_add_dir(struct ash_rank_list *list, const char *dir, const char *node, struct ash_err *err)
{
    struct ash_rank_set set = {0};
    int rc = ash_rank_set_load(&set, dir, err);

    for (size_t i = 0; rc == 0 && i < set.count; i++)
        if (add_ring(list, &set.ranks[i], node) < 0)
            rc = ash_err_set(err, -ENOMEM, "no memory for the ranks of '%s'", dir);
    ash_rank_set_fini(&set);
    return rc;
}

static double number_at(const json_t *row, size_t index)
{
    const json_t *value = json_array_get(row, index);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A text of a board, cut to fit. */
static void copy_text(const json_t *object, const char *key, char *buf, size_t buf_bytes)
{
    const char *text = json_string_value(json_object_get(object, key));

    snprintf(buf, buf_bytes, "%s", text != NULL ? text : "");
}

static int add_board_rank(struct ash_rank_list *list, const json_t *rank, const char *node)
{
    const json_t *steps = json_object_get(rank, "steps");
    struct ash_rank_record record = {.rank = (size_t)json_integer_value(json_object_get(rank, "rank"))};
    size_t rows = json_array_size(steps);
    int rc;

    record.points = malloc((rows + 1) * sizeof(*record.points));
    if (record.points == NULL) return -ENOMEM;
    copy_text(rank, "job", record.job, sizeof(record.job));
    copy_text(rank, "run", record.run, sizeof(record.run));
    copy_text(rank, ASH_RUN_ID_LABEL, record.run_id, sizeof(record.run_id));
    snprintf(record.node, sizeof(record.node), "%s", node);
    for (size_t i = 0; i < rows; i++) {
        const json_t *row = json_array_get(steps, i);
        double step = number_at(row, 0), data_ms = number_at(row, 2);

        if (step >= 0 && step < STEP_NUMBER_MAX)
            record.points[record.count++] =
                (struct ash_rank_point){(uint64_t)step, (number_at(row, 1) + data_ms) * 1e-3, data_ms * 1e-3,
                                        number_at(row, 3) * 1e-3, number_at(row, 6)};
    }
    rc = ash_rank_list_add(list, &record);
    free(record.points);
    return rc;
}

int ash_rank_list_add_board(struct ash_rank_list *list, const json_t *ranks, const char *node)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(ranks) && list->count < RANKS_MAX; i++)
        rc = add_board_rank(list, json_array_get(ranks, i), node);
    return rc;
}

static int compare(const void *a, const void *b)
{
    const struct ash_rank_record *left = a, *right = b;
    int order = strcmp(left->job, right->job);

    if (order == 0) order = strcmp(left->run, right->run);
    if (order == 0) order = strcmp(left->run_id, right->run_id);
    if (order != 0) return order;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Keep record `index` of those that are kept so far, or free it. */
static void keep_if(struct ash_rank_list *list, size_t index, bool is_wanted, size_t *kept)
{
    ash_assert(*kept <= index && index < list->count); /* records only move down */
    if (is_wanted)
        list->records[(*kept)++] = list->records[index];
    else
        free(list->records[index].points);
}

void ash_rank_list_keep(struct ash_rank_list *list, const char *job, const char *run_id)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct ash_rank_record *record = &list->records[i];

        keep_if(list, i,
                (job == NULL || strcmp(record->job, job) == 0) &&
                    (run_id == NULL || strcmp(record->run_id, run_id) == 0),
                &kept);
    }
    list->count = kept;
}

/* The ranks of one job and run from `from` on: where they end. */
static size_t end_of_job(const struct ash_rank_list *list, size_t from)
{
    size_t end = from + 1;

    ash_assert(from < list->count);
    while (end < list->count && strcmp(list->records[end].job, list->records[from].job) == 0 &&
           strcmp(list->records[end].run, list->records[from].run) == 0 &&
           strcmp(list->records[end].run_id, list->records[from].run_id) == 0)
        end++;
    return end;
}

void ash_rank_list_keep_last(struct ash_rank_list *list, uint64_t step, double end_s)
{
    size_t kept = 0;

    if (list->count > 1) qsort(list->records, list->count, sizeof(*list->records), compare);
    for (size_t from = 0, end; from < list->count; from = end) {
        double newest_s = 0;
        uint64_t last = 0;

        end = end_of_job(list, from);
        for (size_t i = from; i < end; i++) {
            const struct ash_rank_record *record = &list->records[i];

            newest_s = fmax(newest_s, record->end_s);
            if (record->count > 0 && record->points[record->count - 1].step > last)
                last = record->points[record->count - 1].step;
        }
        for (size_t i = from; i < end; i++)
            keep_if(list, i, last + 1 >= step && (newest_s == 0 || fabs(newest_s - end_s) < RUN_SLACK_S), &kept);
    }
    list->count = kept;
}

/* ---- one job ----------------------------------------------------------------------------------------------------- */

/* Own work and data of the ranks of a job: [steps][ranks], NaN where a rank has no such step. */
struct table {
    size_t ranks, steps;
    uint64_t *numbers; /* [steps] */
    double *own, *data;
};

static void fini_table(struct table *table)
{
    free(table->numbers);
    free(table->own);
    free(table->data);
}

/* The first and last step that any rank has; of many steps, the last ones. Returns whether there is one. */
static bool find_range(const struct ash_rank_record *records, size_t count, uint64_t *first_out, uint64_t *last_out)
{
    uint64_t first = UINT64_MAX, last = 0;

    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < records[r].count; i++) {
            first = records[r].points[i].step < first ? records[r].points[i].step : first;
            last = records[r].points[i].step > last ? records[r].points[i].step : last;
        }
    if (first > last) return false;
    *first_out = last - first >= STEPS_MAX ? last - STEPS_MAX + 1 : first;
    *last_out = last;
    return true;
}

/* The grains of all ranks of each step: a sum, 0 or NaN if those of one are not known. */
static double *sum_grains(const struct ash_rank_record *records, size_t count, uint64_t first, size_t steps,
                          size_t *seen)
{
    double *sums = calloc(steps, sizeof(*sums));

    for (size_t r = 0; sums != NULL && r < count; r++)
        for (size_t i = 0; i < records[r].count; i++) {
            const struct ash_rank_point *point = &records[r].points[i];

            if (point->step < first) continue;
            ash_assert(point->step - first < steps);
            sums[point->step - first] += point->grains > 0 ? point->grains : NAN;
            seen[point->step - first]++;
        }
    return sums;
}

/* Times of a step as if all ranks had equally many grains: where they do not come out even, some have one more. */
static double evened(const struct ash_rank_point *point, double sum, size_t seen)
{
    return sum > 0 ? sum / ((double)seen * point->grains) : 1;
}

static int init_table(struct table *table, const struct ash_rank_record *records, size_t count, uint64_t first,
                      uint64_t last)
{
    size_t steps = (size_t)(last - first + 1), *seen = calloc(steps, sizeof(*seen));
    double *grains = seen != NULL ? sum_grains(records, count, first, steps, seen) : NULL;

    *table = (struct table){.ranks = count, .steps = steps};
    table->numbers = malloc(table->steps * sizeof(*table->numbers));
    table->own = malloc(count * table->steps * sizeof(*table->own));
    table->data = malloc(count * table->steps * sizeof(*table->data));
    if (grains == NULL || table->numbers == NULL || table->own == NULL || table->data == NULL) {
        free(grains);
        free(seen);
        return -ENOMEM;
    }
    for (size_t i = 0; i < table->steps; i++)
        table->numbers[i] = first + i;
    for (size_t i = 0; i < count * table->steps; i++)
        table->own[i] = table->data[i] = NAN;
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < records[r].count; i++) {
            const struct ash_rank_point *point = &records[r].points[i];

            size_t at;
            double scale;

            if (point->step < first) continue;
            at = (size_t)(point->step - first);
            ash_assert(at < steps);
            scale = evened(point, grains[at], seen[at]);
            table->own[at * count + r] = point->own_s * scale;
            table->data[at * count + r] = point->data_s * scale;
        }
    free(grains);
    free(seen);
    return 0;
}

static int report_straggler(const struct ash_straggler *found, const struct ash_rank_record *record,
                            struct ash_diagnose *diagnose)
{
    struct ash_finding finding = {.layer = ASH_HEALTH_STEP,
                                  .severity = ASH_SLOW,
                                  .metric = found->is_data ? ASH_METRIC_DATA_WAIT : work_rule.metric,
                                  .normal = work_rule.normal,
                                  .means = found->is_data ? "this rank waits for its data, and all others for it"
                                           : found->was_always
                                               ? "this rank has been slower than its peers from the start"
                                               : "this rank became slower, and all others wait for it",
                                  .action = found->is_data ? "look at the storage of its node, and at data.prefetch"
                                                           : "look at its node: ashlar check node --deep",
                                  .source = work_rule.source,
                                  .excess = found->slower};

    snprintf(finding.where, sizeof(finding.where), "%.60s%srank %zu%s%.60s", record->node,
             record->node[0] != '\0' ? " " : "", record->rank, record->run[0] != '\0' ? " of " : "", record->run);
    snprintf(finding.value, sizeof(finding.value), "%.0f %% slower since step %llu; %.3g s lost", found->slower * 100,
             (unsigned long long)found->since, found->lost_s);
    return ash_diagnose_report(diagnose, &finding);
}

static int judge_job(const struct ash_rank_record *records, size_t count, struct ash_diagnose *diagnose)
{
    struct ash_straggler found[STRAGGLERS_MAX];
    struct table table = {0};
    uint64_t first, last;
    int named = 0, rc;

    if (!find_range(records, count, &first, &last) || last - first + 1 < STEPS_MIN || count < 2) {
        ash_diagnose_note(diagnose, &work_rule, count < 2 ? ASH_CHECK_PEERS : ASH_CHECK_STEPS, 0);
        return 0;
    }
    rc = init_table(&table, records, count, first, last);
    if (rc == 0)
        named = ash_straggler_find(&(struct ash_work){.ranks = table.ranks,
                                                      .steps = table.steps,
                                                      .own = table.own,
                                                      .data = table.data,
                                                      .step = table.numbers},
                                   found, STRAGGLERS_MAX);
    for (int i = 0; rc == 0 && i < named; i++)
        rc = report_straggler(&found[i], &records[found[i].rank], diagnose);
    ash_diagnose_note(diagnose, &work_rule, named > 0 ? ASH_CHECK_FOUND : ASH_CHECK_NORMAL, count);
    fini_table(&table);
    return named < 0 ? named : rc;
}

int ash_rank_list_judge(struct ash_rank_list *list, struct ash_diagnose *diagnose)
{
    int rc = 0;

    if (list->count > 1) qsort(list->records, list->count, sizeof(*list->records), compare);
    for (size_t from = 0, end; rc == 0 && from < list->count; from = end) {
        end = end_of_job(list, from);
        rc = judge_job(list->records + from, end - from, diagnose);
    }
    return rc;
}
