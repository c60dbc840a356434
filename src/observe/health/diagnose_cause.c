/* Findings that are another finding's doing. */
#include <string.h>

#include "base/assert.h"
#include "observe/health/diagnose_priv.h"

#define METRICS_MAX 4

static const struct {
    const char *causes[METRICS_MAX], *effects[METRICS_MAX];
    bool is_of_runs; /* the effect is a run's, not a node's: any node of it may be the cause */
} relations[] = {
    /* A job short of memory waits for the drive that its pages are read from. */
    {.causes = {"ashlar_job_refault_bytes_total", "ashlar_job_pressure_memory_stalled_seconds_total",
                "node_pressure_memory_stalled_seconds_total"},
     .effects = {"node_pressure_io_stalled_seconds_total", "node_pressure_io_waiting_seconds_total",
                 "ashlar_job_pressure_io_stalled_seconds_total"}},
    /* A rank that waits for a core computes for longer, and all others wait for it. */
    {.causes = {"node_pressure_cpu_waiting_seconds_total", "ashlar_job_cpu_throttled_seconds_total"},
     .effects = {"compute_s by step", "comm_s by step"},
     .is_of_runs = true},
    /* What is exchanged while a rank computes takes its cores for as long as the link needs; all others wait. */
    {.causes = {"ashlar_rank_slow_link"}, .effects = {"compute_s by step", "comm_s by step"}, .is_of_runs = true},
};

static bool is_one_of(const char *metric, const char *const *metrics)
{
    for (size_t i = 0; i < METRICS_MAX && metrics[i] != NULL; i++)
        if (strcmp(metric, metrics[i]) == 0) return true;
    return false;
}

/* Both begin with the node's name, which a part may follow. */
static bool is_same_node(const struct ash_finding *a, const struct ash_finding *b)
{
    size_t bytes = strcspn(a->where, " ");

    return bytes == strcspn(b->where, " ") && memcmp(a->where, b->where, bytes) == 0;
}

static bool is_caused_by(const struct ash_diagnose *diagnose, const struct ash_finding *effect, size_t relation)
{
    ash_assert(relation < ASH_COUNT(relations));
    if (!is_one_of(effect->metric, relations[relation].effects)) return false;
    for (size_t i = 0; i < diagnose->finding_count; i++) {
        const struct ash_finding *cause = &diagnose->findings[i];

        if (is_one_of(cause->metric, relations[relation].causes) &&
            (relations[relation].is_of_runs || is_same_node(cause, effect)))
            return true;
    }
    return false;
}

static bool is_caused(const struct ash_diagnose *diagnose, const struct ash_finding *effect)
{
    for (size_t i = 0; i < ASH_COUNT(relations); i++)
        if (is_caused_by(diagnose, effect, i)) return true;
    return false;
}

static bool is_found(const struct ash_diagnose *diagnose, const char *metric)
{
    for (size_t i = 0; i < diagnose->finding_count; i++)
        if (strcmp(diagnose->findings[i].metric, metric) == 0) return true;
    return false;
}

/* A check whose findings are all gone. */
static void mark_check(const struct ash_diagnose *diagnose, struct ash_check *check)
{
    for (size_t i = 0; i < ASH_COUNT(relations); i++)
        if (check->state == ASH_CHECK_FOUND && is_one_of(check->rule->metric, relations[i].effects) &&
            !is_found(diagnose, check->rule->metric))
            check->state = ASH_CHECK_CAUSED;
}

void ash_diagnose_excuse(struct ash_diagnose *diagnose)
{
    size_t kept = 0;

    /* A finding moves over an effect or over itself: causes that come later are still where they were. */
    for (size_t i = 0; i < diagnose->finding_count; i++)
        if (!is_caused(diagnose, &diagnose->findings[i])) diagnose->findings[kept++] = diagnose->findings[i];
    diagnose->finding_count = kept;
    for (size_t i = 0; i < diagnose->check_count; i++)
        mark_check(diagnose, &diagnose->checks[i]);
    for (size_t i = 0; i < diagnose->note_count; i++)
        mark_check(diagnose, &diagnose->notes[i]);
}
