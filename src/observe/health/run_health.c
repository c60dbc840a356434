/* A part of the steps is a series in units of the usual step. Constant levels are judged by a limit, changes by their
 * rise (straggler.h). Saves and validation lie between steps and touch neither. */
#include "observe/health/run_health.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "observe/ranks/run_log.h"
#include "observe/ranks/straggler.h"

#define STEPS_KEPT 65536
#define STEPS_MIN 40
#define LINE_BYTES_MAX 65536
#define LOG_BYTES_MAX ((size_t)8 << 30)
#define RISE_LEAST 0.10    /* of a step */
#define DATA_SHARE 0.10    /* of a step */
#define SINGLE_WAITS 2     /* for data, that are normal */
#define SAVE_SHARE 0.10    /* of the wall time */
#define LOSSLESS_STEPS 10  /* single steps without a loss are skipped, and the run continues */
#define LEDGER_WALL_S 10.0 /* a shorter run has no result for saves */

static const struct ash_rule data_rule = {.layer = ASH_HEALTH_STEP,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_SLOW,
                                          .metric = ASH_METRIC_DATA_STEP,
                                          .normal = "at most 10 % of a step",
                                          .means = "steps wait for their data",
                                          .action = "look at the storage of data.train, and at data.prefetch",
                                          .source = "log.jsonl"};
static const struct ash_rule comm_rule = {.layer = ASH_HEALTH_NETWORK,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_SLOW,
                                          .metric = "comm_s by step",
                                          .normal = "as at the run's start, within 10 % of a step",
                                          .means =
                                              "steps wait longer for other ranks, and no rank's own work explains it",
                                          .action = "ashlar check cluster finds the slow link",
                                          .source = "log.jsonl"};
static const struct ash_rule compute_rule = {.layer = ASH_HEALTH_STEP,
                                             .kind = ASH_RULE_OTHER,
                                             .severity = ASH_SLOW,
                                             .metric = "compute_s by step",
                                             .normal = "as at the run's start, within 10 % of a step",
                                             .means = "the first rank computes more slowly than when the run began",
                                             .action = "see its node's clocks and what else runs there; if comm_s "
                                                       "grew too, the links first (ashlar check cluster)",
                                             .source = "log.jsonl"};
static const struct ash_rule loss_rule = {.layer = ASH_HEALTH_STEP,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_BROKEN,
                                          .metric = "loss",
                                          .normal = "a number",
                                          .means = "the run has diverged",
                                          .action = "go back to an earlier checkpoint; lower the learning rate",
                                          .source = "log.jsonl"};
static const struct ash_rule save_rule = {.layer = ASH_HEALTH_STORAGE,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_SLOW,
                                          .metric = ASH_METRIC_SAVE,
                                          .normal = "at most 10 % of the wall time",
                                          .means = "steps wait for checkpoints to be written",
                                          .action = "save less often, or to faster storage",
                                          .source = "ledger.json"};
static const struct ash_rule recovery_rule = {.layer = ASH_HEALTH_STEP,
                                              .kind = ASH_RULE_OTHER,
                                              .severity = ASH_WATCH,
                                              .metric = "recoveries",
                                              .normal = "0",
                                              .means = "ranks were lost and the run continued without them",
                                              .action = "see the run's output for which",
                                              .source = "ledger.json"};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void ash_run_record_fini(struct ash_run_record *record)
{
    free(record->steps);
    ash_str_fini(&record->rest);
    *record = (struct ash_run_record){0};
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* Room for one more; of many steps the older half goes. */
static int make_room(struct ash_run_record *record)
{
    size_t wanted = record->capacity == 0 ? 256 : 2 * record->capacity;
    struct ash_run_step *steps;

    if (record->count < record->capacity) return 0;
    if (record->count == STEPS_KEPT) {
        memmove(record->steps, record->steps + STEPS_KEPT / 2, STEPS_KEPT / 2 * sizeof(*record->steps));
        record->count = STEPS_KEPT / 2;
        return 0;
    }
    steps = realloc(record->steps, wanted * sizeof(*steps));
    if (steps == NULL) return -ENOMEM;
    record->steps = steps;
    record->capacity = wanted;
    return 0;
}

static int take_line(struct ash_run_record *record, const char *line)
{
    double step = ash_run_log_number(line, "step"), comm_s;

    if (!(step >= 0 && step < 1e15)) return 0;
    while (record->count > 0 && record->steps[record->count - 1].step >= (uint64_t)step)
        record->count--; /* a run that went back to a checkpoint */
    if (make_room(record) < 0) return -ENOMEM;
    ash_assert(record->count < record->capacity);
    comm_s = positive(ash_run_log_number(line, "comm_s"));
    record->steps[record->count++] = (struct ash_run_step){(uint64_t)step,
                                                           positive(ash_run_log_number(line, "compute_s")),
                                                           comm_s,
                                                           positive(ash_run_log_number(line, "data_s")),
                                                           positive(ash_run_log_number(line, "idle_s")),
                                                           comm_s};
    record->skipped += strstr(line, "\"skipped\":true") != NULL;
    record->lossless = isnan(ash_run_log_number(line, "loss")) ? record->lossless + 1 : 0;
    return 0;
}

int ash_run_record_take(struct ash_run_record *record, const char *text, size_t size_bytes)
{
    const char *end = text + size_bytes;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((newline != NULL ? newline : end) - text);

        if (record->rest.size_bytes + bytes <= LINE_BYTES_MAX && ash_str_add(&record->rest, text, bytes) < 0)
            return -ENOMEM;
        if (newline == NULL) return 0;
        if (record->rest.data != NULL && take_line(record, record->rest.data) < 0) return -ENOMEM;
        ash_str_clear(&record->rest);
        text = newline + 1;
    }
    return 0;
}

static double seconds_of(const json_t *ledger, const char *key)
{
    double value = json_number_value(json_object_get(ledger, key));

    return value > 0 && value < 1e15 ? value : 0;
}

static void read_ledger(struct ash_run_record *record, const char *dir)
{
    static const char *const lost[] = {"detect_s", "reform_s", "transfer_s", "redone_s"};
    char path[4200];
    json_t *ledger = NULL;

    snprintf(path, sizeof(path), "%s/ledger.json", dir);
    if (ash_json_load(path, &ledger, NULL) < 0) return;
    record->has_ledger = json_is_object(ledger);
    record->wall_s = seconds_of(ledger, "wall_s");
    record->save_s = seconds_of(ledger, "save_s");
    record->recoveries = (uint64_t)seconds_of(ledger, "recoveries");
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
        record->lost_s += seconds_of(ledger, lost[i]);
    json_decref(ledger);
}

int ash_run_record_read(struct ash_run_record *record, const char *dir, struct ash_err *err)
{
    const char *slash = strrchr(dir, '/');
    struct ash_map map = {0};
    struct stat facts;
    char path[4200];
    int rc;

    snprintf(path, sizeof(path), "%s/log.jsonl", dir);
    rc = ash_map_open(path, &map, err);
    if (rc < 0) return rc;
    if (map.size_bytes > LOG_BYTES_MAX)
        rc = ash_err_set(err, -EFBIG, "%s: more than %zu GB", path, LOG_BYTES_MAX >> 30);
    else if (ash_run_record_take(record, (const char *)map.base, map.size_bytes) < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for the steps of '%s'", dir);
    ash_map_close(&map);
    if (stat(path, &facts) == 0) record->end_s = (double)facts.st_mtim.tv_sec + (double)facts.st_mtim.tv_nsec * 1e-9;
    snprintf(record->name, sizeof(record->name), "%.120s", slash != NULL && slash[1] != '\0' ? slash + 1 : dir);
    if (rc == 0) read_ledger(record, dir);
    return rc;
}

/* The place of a step, or NULL. */
static struct ash_run_step *find_step(struct ash_run_record *record, uint64_t number)
{
    size_t low = 0, high = record->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (record->steps[middle].step < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < record->count && record->steps[low].step == number ? &record->steps[low] : NULL;
}

void ash_run_record_share(struct ash_run_record *record, const struct ash_rank_list *ranks)
{
    for (size_t r = 0; r < ranks->count; r++)
        for (size_t i = 0; i < ranks->records[r].count; i++) {
            const struct ash_rank_point *point = &ranks->records[r].points[i];
            struct ash_run_step *step = find_step(record, point->step);

            if (step != NULL) step->shared_s = fmin(step->shared_s, positive(point->comm_s));
        }
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* The middle of a step's time over all steps; buf has room for them. */
static double usual_step(const struct ash_run_record *record, double *buf)
{
    ash_assert(record->count > 0); /* there is a middle one */
    for (size_t i = 0; i < record->count; i++) {
        const struct ash_run_step *step = &record->steps[i];

        buf[i] = step->compute_s + step->comm_s + step->data_s + step->idle_s;
    }
    qsort(buf, record->count, sizeof(*buf), compare);
    return buf[record->count / 2];
}

static int report(const struct ash_run_record *record, const struct ash_rule *rule, enum ash_severity severity,
                  const char *value, struct ash_diagnose *diagnose)
{
    struct ash_finding finding = {.layer = rule->layer,
                                  .severity = severity,
                                  .metric = rule->metric,
                                  .normal = rule->normal,
                                  .means = rule->means,
                                  .action = rule->action,
                                  .source = rule->source};

    snprintf(finding.where, sizeof(finding.where), "run %.120s", record->name);
    snprintf(finding.value, sizeof(finding.value), "%s", value);
    ash_diagnose_note(diagnose, rule, severity > ASH_WATCH ? ASH_CHECK_FOUND : ASH_CHECK_NORMAL, record->count);
    return ash_diagnose_report(diagnose, &finding);
}

/* Is there already a rank or a node that explains slow steps? */
static bool is_explained(const struct ash_diagnose *diagnose)
{
    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        if (ash_diagnose_finding(diagnose, i)->severity > ASH_WATCH) return true;
    return false;
}

static double compute_of(const struct ash_run_step *step)
{
    return step->compute_s;
}

static double shared_of(const struct ash_run_step *step)
{
    return step->shared_s;
}

struct series {
    const struct ash_rule *rule;
    double (*value)(const struct ash_run_step *step);
};

/* A part that rose and stays up. memory: room for twice the steps. */
static int judge_rise(const struct ash_run_record *record, const struct series *series, double usual, double *memory,
                      struct ash_diagnose *diagnose)
{
    struct ash_rise rise;
    char value[120];

    ash_assert(usual > 0); /* a divisor */
    for (size_t i = 0; i < record->count; i++)
        memory[i] = series->value(&record->steps[i]) / usual;
    rise = ash_rise_find(memory, record->count, RISE_LEAST, memory + record->count);
    if (!rise.is_found || is_explained(diagnose)) {
        ash_diagnose_note(diagnose, series->rule, rise.is_found ? ASH_CHECK_CAUSED : ASH_CHECK_NORMAL, record->count);
        return 0;
    }
    snprintf(value, sizeof(value), "more by %.0f %% of a step since step %llu", 100 * rise.excess,
             (unsigned long long)record->steps[rise.since].step);
    /* With fewer ranks each computes more: a recovery explains it. */
    return report(record, series->rule, series->rule == &compute_rule && record->recoveries > 0 ? ASH_WATCH : ASH_SLOW,
                  value, diagnose);
}

/* The share of data in the last half of the steps: of a usual step, or of their time if loaders fetch for several steps
 * at once, so that only some of them wait. Single waits are ignored. */
static double data_share(const struct ash_run_record *record, double usual, double *buf)
{
    size_t from = record->count / 2, count = record->count - from;
    double waits = 0, others = 0;

    ash_assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        const struct ash_run_step *step = &record->steps[from + i];

        buf[i] = step->data_s;
        others += step->compute_s + step->comm_s + step->idle_s;
    }
    qsort(buf, count, sizeof(*buf), compare);
    for (size_t i = 0; i + SINGLE_WAITS < count; i++)
        waits += buf[i];
    return fmax(buf[count / 2] / usual, waits > 0 ? waits / (waits + others) : 0);
}

static int judge_data(const struct ash_run_record *record, double usual, double *buf, struct ash_diagnose *diagnose)
{
    double share = data_share(record, usual, buf);
    char value[120];

    if (!(share > DATA_SHARE) || is_explained(diagnose)) {
        ash_diagnose_note(diagnose, &data_rule, share > DATA_SHARE ? ASH_CHECK_CAUSED : ASH_CHECK_NORMAL,
                          record->count);
        return 0;
    }
    snprintf(value, sizeof(value), "%.0f %% of a step", 100 * share);
    return report(record, &data_rule, ASH_SLOW, value, diagnose);
}

static int judge_steps(const struct ash_run_record *record, struct ash_diagnose *diagnose)
{
    static const struct series parts[] = {{&compute_rule, compute_of}, {&comm_rule, shared_of}};
    double *memory, usual;
    int rc = 0;

    if (record->count < STEPS_MIN) {
        ash_diagnose_note(diagnose, &data_rule, ASH_CHECK_STEPS, 0);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            ash_diagnose_note(diagnose, parts[i].rule, ASH_CHECK_STEPS, 0);
        return 0;
    }
    memory = malloc(2 * record->count * sizeof(*memory));
    if (memory == NULL) return -ENOMEM;
    usual = usual_step(record, memory);
    if (usual > 0) rc = judge_data(record, usual, memory, diagnose);
    for (size_t i = 0; usual > 0 && rc == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        rc = judge_rise(record, &parts[i], usual, memory, diagnose);
    free(memory);
    return rc;
}

static int judge_ledger(const struct ash_run_record *record, struct ash_diagnose *diagnose)
{
    double share = record->wall_s > 0 ? record->save_s / record->wall_s : 0;
    char value[120];
    int rc = 0;

    if (!record->has_ledger || record->wall_s < LEDGER_WALL_S) {
        ash_diagnose_note(diagnose, &save_rule, record->has_ledger ? ASH_CHECK_STEPS : ASH_CHECK_ABSENT, 0);
    } else if (share > SAVE_SHARE) {
        snprintf(value, sizeof(value), "%.0f %% of the wall time, %.3g s", 100 * share, record->save_s);
        rc = report(record, &save_rule, ASH_SLOW, value, diagnose);
    } else {
        ash_diagnose_note(diagnose, &save_rule, ASH_CHECK_NORMAL, 1);
    }
    if (rc < 0 || record->recoveries == 0) return rc;
    snprintf(value, sizeof(value), "%llu, which cost %.3g s", (unsigned long long)record->recoveries, record->lost_s);
    return report(record, &recovery_rule, ASH_WATCH, value, diagnose);
}

int ash_run_record_judge(const struct ash_run_record *record, struct ash_diagnose *diagnose)
{
    int rc = judge_steps(record, diagnose);
    char value[120];

    if (rc == 0) rc = judge_ledger(record, diagnose);
    if (rc < 0) return rc;
    if (record->count > 0 && record->lossless >= LOSSLESS_STEPS) {
        snprintf(value, sizeof(value), "none at step %llu; steps that were skipped: %llu",
                 (unsigned long long)record->steps[record->count - 1].step, (unsigned long long)record->skipped);
        return report(record, &loss_rule, ASH_BROKEN, value, diagnose);
    }
    ash_diagnose_note(diagnose, &loss_rule, record->count > 0 ? ASH_CHECK_NORMAL : ASH_CHECK_STEPS, record->count);
    return 0;
}
