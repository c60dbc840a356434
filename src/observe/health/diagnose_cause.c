/* Findings that are another finding's doing. */
#include <string.h>

#include "base/assert.h"
#include "observe/health/diagnose_priv.h"

/* Who is short of memory... */
static const char *const causes[] = {"ashlar_job_refault_bytes_total",
                                     "ashlar_job_pressure_memory_stalled_seconds_total",
                                     "node_pressure_memory_stalled_seconds_total"};
/* ...waits for the drive that its pages come back from. */
static const char *const effects[] = {"node_pressure_io_stalled_seconds_total",
                                      "node_pressure_io_waiting_seconds_total",
                                      "ashlar_job_pressure_io_stalled_seconds_total"};

static bool is_one_of(const char *metric, const char *const *metrics, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(metric, metrics[i]) == 0) return true;
    return false;
}

/* Both begin with the node's name, which a part may follow. */
static bool is_same_node(const struct ash_finding *a, const struct ash_finding *b)
{
    size_t bytes = strcspn(a->where, " ");

    return bytes == strcspn(b->where, " ") && memcmp(a->where, b->where, bytes) == 0;
}

static bool is_caused(const struct ash_diagnose *diagnose, const struct ash_finding *effect)
{
    if (!is_one_of(effect->metric, effects, ASH_COUNT(effects))) return false;
    for (size_t i = 0; i < diagnose->finding_count; i++)
        if (is_one_of(diagnose->findings[i].metric, causes, ASH_COUNT(causes)) &&
            is_same_node(&diagnose->findings[i], effect))
            return true;
    return false;
}

static bool is_found(const struct ash_diagnose *diagnose, const char *metric)
{
    for (size_t i = 0; i < diagnose->finding_count; i++)
        if (strcmp(diagnose->findings[i].metric, metric) == 0) return true;
    return false;
}

void ash_diagnose_excuse(struct ash_diagnose *diagnose)
{
    size_t kept = 0;

    /* A finding moves over an effect or over itself: causes that come later are still where they were. */
    for (size_t i = 0; i < diagnose->finding_count; i++)
        if (!is_caused(diagnose, &diagnose->findings[i])) diagnose->findings[kept++] = diagnose->findings[i];
    diagnose->finding_count = kept;
    for (size_t i = 0; i < diagnose->check_count; i++) {
        struct ash_check *check = &diagnose->checks[i];

        if (check->state == ASH_CHECK_FOUND && is_one_of(check->rule->metric, effects, ASH_COUNT(effects)) &&
            !is_found(diagnose, check->rule->metric))
            check->state = ASH_CHECK_CAUSED;
    }
}
