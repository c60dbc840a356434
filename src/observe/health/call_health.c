/* Collective calls as findings: the results of `ashlar flight`, in a line each. */
#include "observe/health/rank_health.h"

#include <stdio.h>

#include "base/assert.h"
#include "observe/flight/flight.h"

static const struct ash_rule call_rule = {.layer = ASH_HEALTH_STEP,
                                          .kind = ASH_RULE_OTHER,
                                          .severity = ASH_BROKEN,
                                          .metric = "collective calls",
                                          .normal = "all ranks make the same calls, and none waits for long",
                                          .action = "ashlar flight has every rank's last calls",
                                          .source = "flight recorder"};

static const char *means_of(enum ash_flight_fault fault)
{
    static const char *const texts[] = {
        "ranks make different calls: their programs or jobs differ",
        "a rank's process is stopped, by a signal or a debugger: the others wait for it",
        "a rank has not come to a call that others wait in: it hangs or is stopped",
        "a rank ended in the middle of a call: it was killed or it crashed",
        "all ranks are in a call that does not end: the network between them"};

    ash_assert((size_t)fault < ASH_COUNT(texts));
    return texts[fault];
}

/* "rank 3", "rank 3, 5 and 6 more". */
static void name_ranks(const struct ash_flight_finding *found, char *buf, size_t buf_bytes)
{
    size_t used = (size_t)snprintf(buf, buf_bytes, "rank");

    for (size_t i = 0; i < found->named_count && i < 8 && used < buf_bytes; i++)
        used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%u", i > 0 ? ", " : " ", found->named[i]);
    if (found->all_count > found->named_count && used < buf_bytes)
        snprintf(buf + used, buf_bytes - used, "%s %zu that left no record", found->named_count > 0 ? " and" : "",
                 found->all_count - found->named_count);
}

static int report(const struct ash_flight_finding *found, struct ash_diagnose *diagnose)
{
    struct ash_finding finding = {.layer = found->fault == ASH_FLIGHT_SLOW ? ASH_HEALTH_NETWORK : ASH_HEALTH_STEP,
                                  .severity = ASH_BROKEN,
                                  .metric = call_rule.metric,
                                  .normal = call_rule.normal,
                                  .means = means_of(found->fault),
                                  .action = call_rule.action,
                                  .source = call_rule.source,
                                  .excess = found->since_s};
    char call[56], other[56];

    if (found->fault == ASH_FLIGHT_SLOW)
        snprintf(finding.where, sizeof(finding.where), "group %s of %zu ranks", found->group, found->size);
    else
        name_ranks(found, finding.where, sizeof(finding.where));
    ash_flight_call_text(found->call, call, sizeof(call));
    if (found->fault == ASH_FLIGHT_DIFFERS && found->other != NULL)
        snprintf(finding.value, sizeof(finding.value), "%s call %llu: %s; the others: %s", found->group,
                 (unsigned long long)found->sequence, ash_flight_call_text(found->other, other, sizeof(other)), call);
    else
        snprintf(finding.value, sizeof(finding.value), "%s call %llu, %s; waited for: %.1f s", found->group,
                 (unsigned long long)found->sequence, call, found->since_s);
    return ash_diagnose_report(diagnose, &finding);
}

int ash_calls_judge(const char *dir, const char *job, const char *run_id, struct ash_diagnose *diagnose)
{
    struct ash_flight_report report_of_calls = {0};
    struct ash_flight_set set = {0};
    int rc;

    if (ash_flight_set_load(&set, dir, job, run_id, NULL) < 0) return 0;
    rc = ash_flight_compare(&set, &report_of_calls);
    /* Only the first: later ones are consequences. */
    if (rc == 0 && report_of_calls.count > 0) rc = report(&report_of_calls.findings[0], diagnose);
    if (rc == 0)
        ash_diagnose_note(diagnose, &call_rule, report_of_calls.count > 0 ? ASH_CHECK_FOUND : ASH_CHECK_NORMAL,
                          set.count);
    ash_flight_report_fini(&report_of_calls);
    ash_flight_set_fini(&set);
    return rc;
}
