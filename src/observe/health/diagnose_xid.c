/* XIDs in scrapes: DCGM's gauge keeps the last code of a GPU for ever, the agent's counter has every one with its code.
 * The same new code on all of many nodes is the job's doing: its clean-up or its bug, and no node is blamed. */
#include "observe/health/diagnose_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "observe/health/xid.h"

#define CODES_MAX 10000
#define EVERYWHERE_NODES_MIN 3

const char *ash_diagnose_explain_xid(struct ash_finding *finding, int code, const char *line, size_t line_bytes)
{
    const struct ash_xid_setting setting = {.remaps_left = -1, .corrected_per_day = -1};
    struct ash_xid_gpu gpu = {.action = ASH_XID_ACTION_ABSENT, .seen = {{code, 1}}, .count = 1};
    struct ash_xid_log *log = line != NULL ? calloc(1, sizeof(*log)) : NULL;
    struct ash_xid_answer answer;

    if (log != NULL && ash_xid_log_parse(line, line_bytes, log, NULL) == 0 && log->gpu_count > 0) gpu = log->gpus[0];
    free(log);
    ash_xid_judge(&setting, &gpu, &answer);
    if (answer.verdict == ASH_XID_MONITOR) finding->severity = ASH_WATCH;
    if (answer.verdict != ASH_XID_UNKNOWN) {
        finding->means = answer.findings[0].meaning;
        finding->action = answer.findings[0].next;
    }
    return ash_xid_verdict_name(answer.verdict);
}

/* The code of a series, 0: none. */
static int code_of(const struct ash_rule *rule, const struct ash_series *series)
{
    double value =
        rule->kind == ASH_RULE_XID ? series->sample->value : strtod(ash_scrape_label_of(series->sample, "code"), NULL);

    return value > 0 && value < CODES_MAX ? (int)value : 0;
}

/* Was it there at the earlier scrape? A counter that was not there began at 0 since. */
static bool is_old(const struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series)
{
    const struct ash_series *before = ash_series_find(&diagnose->before, rule->metric, series);

    return before != NULL && before->sample->value == series->sample->value;
}

/* Do all nodes that have such series, and at least three, have this code as a new one? Series are sorted by node. */
static bool is_everywhere(const struct ash_diagnose *diagnose, const struct ash_rule *rule,
                          const struct ash_series *series, size_t count, int code)
{
    size_t nodes = 0, with = 0;
    bool has = false;

    for (size_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || ash_node_compare(series[i].node, series[i + 1].node) != 0;

        has = has || (code_of(rule, &series[i]) == code && !is_old(diagnose, rule, &series[i]));
        if (!is_last) continue;
        nodes++;
        with += has;
        has = false;
    }
    return nodes >= EVERYWHERE_NODES_MIN && with == nodes && nodes == diagnose->nodes;
}

static int report(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series, int code,
                  bool is_job)
{
    bool old = is_old(diagnose, rule, series);
    const char *when = old ? "there before the earlier scrape" : "new", *verdict;
    struct ash_finding finding = ash_finding_of(rule);

    if (diagnose->before.count == 0) when = "perhaps long ago: it is kept for ever";
    if (is_job) when = "new on all nodes at once: the job's doing, not theirs";
    verdict = ash_diagnose_explain_xid(&finding, code, NULL, 0);
    if (old || is_job) finding.severity = ASH_WATCH;
    snprintf(finding.value, sizeof(finding.value), "XID %d (%s), %s", code, verdict, when);
    ash_series_name(series, finding.where, sizeof(finding.where));
    return ash_diagnose_report(diagnose, &finding);
}

int ash_diagnose_judge_xid(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series,
                           size_t count)
{
    int last_code = 0;
    bool is_job = false;

    for (size_t i = 0; i < count; i++) {
        int code = code_of(rule, &series[i]);

        if (code == 0) continue;
        if (rule->kind == ASH_RULE_XID_COUNT && is_old(diagnose, rule, &series[i])) continue;
        if (code != last_code) is_job = is_everywhere(diagnose, rule, series, count, code);
        last_code = code;
        if (report(diagnose, rule, &series[i], code, is_job) < 0) return -ENOMEM;
    }
    return 0;
}
