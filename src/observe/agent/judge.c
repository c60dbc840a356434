/* The judge: one thread that waits for the kernel log and looks at the machine's own metrics now and then. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/agent/agent_priv.h"
#include "observe/collect/gpu_xids.h"
#include "observe/health/diagnose.h"

#define LOOKS_BETWEEN_ACTS 4
#define SAVE_S 5.0 /* the last record's number is saved at least that often while records come */

static void save(struct ash_agent *agent)
{
    struct ash_err err = {0};

    if (agent->opts.state_file != NULL && ash_node_state_save(&agent->state, agent->opts.state_file, &err) < 0)
        ash_log(ASH_LOG_WARN, "%s; the node's history is not kept", err.text);
}

static void act(struct ash_agent *agent)
{
    uint64_t pause_ns = (uint64_t)(agent->opts.judge_seconds * 1e9) * LOOKS_BETWEEN_ACTS;

    agent->act_again_ns = 0;
    if (agent->opts.act == NULL ||
        agent->opts.act(agent->opts.ctx, &agent->state, ash_node_state_reason(&agent->state)))
        return;
    agent->act_again_ns = ash_clock_ns() + pause_ns;
}

/* Retry actions that were refused or failed before. */
static void retry(struct ash_agent *agent)
{
    if (agent->act_again_ns != 0 && ash_clock_ns() >= agent->act_again_ns) act(agent);
}

/* After a change: save it before any action, notify listeners, act. The lock is not held. */
static void publish(struct ash_agent *agent, bool has_new_status)
{
    const struct ash_node_finding *reason;

    save(agent); /* the judge alone writes the state */
    pthread_mutex_lock(&agent->lock);
    agent->changes++;
    ash_agent_tell(agent);
    pthread_mutex_unlock(&agent->lock);
    if (!has_new_status) return;
    reason = ash_node_state_reason(&agent->state);
    ash_log(ASH_LOG_INFO, "node %s: %s%s%s", agent->opts.node, ash_node_status_name(agent->state.status),
            reason != NULL ? ": " : "", reason != NULL ? reason->key : "");
    act(agent);
}

/* ---- the kernel log ---------------------------------------------------------------------------------------------- */

void ash_agent_start_log(struct ash_agent *agent)
{
    char path[PATH_MAX];
    const char *log = agent->opts.kernel_log;
    struct ash_err err = {0};

    if (log != NULL && log[0] == '\0') return;
    if (log == NULL) log = ash_host_path(&agent->opts.source, "/dev/kmsg", path, sizeof(path));
    agent->is_log_read = log != NULL && ash_kmsg_open(log, agent->state.kernel_number, &agent->kmsg, &err) == 0;
    if (agent->is_log_read) return;
    ash_log(ASH_LOG_WARN, "%s; XIDs and other kernel events are not seen", err.text);
    snprintf(agent->log_error, sizeof(agent->log_error), "%s", err.text);
}

/* One record. Returns whether there was an event. */
static bool take_record(struct ash_agent *agent, const char *line, uint64_t number, bool *changed)
{
    struct ash_kernel_event event;
    bool is_event = ash_kernel_log_judge(line, &event), is_new = is_event;

    if (is_event && event.kind == ASH_KERNEL_XID) is_new = ash_xid_pairs_line(&agent->xids, event.code, event.part);
    pthread_mutex_lock(&agent->lock);
    agent->state.kernel_number = number;
    agent->lost = ash_kmsg_lost(agent->kmsg);
    if (is_new)
        *changed = ash_node_state_event(&agent->state, &event, line, ash_clock_wall_s()) || *changed;
    else if (is_event)
        agent->state.counts[event.kind]++; /* NVML was faster: a line, but no other event */
    pthread_mutex_unlock(&agent->lock);
    return is_event;
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

/* The remedy of a rule's finding. Rates and peers make a node doubtful; broken memory and a lost GPU take it out. */
static enum ash_node_remedy remedy_of(const struct ash_finding *finding)
{
    static const struct {
        const char *metric;
        enum ash_node_remedy remedy;
    } hard[] = {{"DCGM_FI_DEV_ROW_REMAP_FAILURE", ASH_REMEDY_REPLACE},
                {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ASH_REMEDY_RESET},
                {"ashlar_nvme_critical_warning", ASH_REMEDY_REPLACE}};

    if (strcmp(finding->metric, "ashlar_nvme_critical_warning") == 0 && strcmp(finding->value, "2") == 0)
        return ASH_REMEDY_WATCH; /* the bit for heat alone: the drive is hot, not dead */
    for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]); i++)
        if (strcmp(finding->metric, hard[i].metric) == 0) return hard[i].remedy;
    return ASH_REMEDY_WATCH;
}

static bool note_rule(struct ash_agent *agent, const struct ash_finding *rule)
{
    struct ash_node_finding finding = {.layer = rule->layer, .remedy = remedy_of(rule), .source = "metrics"};

    if (rule->severity == ASH_WATCH || strcmp(rule->metric, "DCGM_FI_DEV_XID_ERRORS") == 0) return false;
    snprintf(finding.key, sizeof(finding.key), "%s %.80s", rule->metric, rule->where);
    snprintf(finding.evidence, sizeof(finding.evidence), "%s (normal: %s)", rule->value, rule->normal);
    snprintf(finding.means, sizeof(finding.means), "%s", rule->means);
    return ash_node_state_note(&agent->state, &finding, ash_clock_wall_s());
}

/* XIDs without a line in the kernel log, which may not be readable. */
static bool note_xids(struct ash_agent *agent, const struct ash_scrape *scrape)
{
    bool changed = false;

    for (size_t i = 0; i < ash_scrape_count(scrape); i++) {
        const struct ash_scrape_sample *sample = ash_scrape_at(scrape, i);
        struct ash_kernel_event event;
        uint64_t fresh;

        if (strcmp(sample->name, ASH_METRIC_NVML_XIDS) != 0 || !(sample->value > 0)) continue;
        ash_kernel_xid_judge((int)strtol(ash_scrape_label_of(sample, "code"), NULL, 10),
                             ash_scrape_label_of(sample, "pci_bus_id"), &event);
        fresh = ash_xid_pairs_told(&agent->xids, event.code, event.part, (uint64_t)sample->value);
        for (; fresh > 0; fresh--)
            changed = ash_node_state_event(&agent->state, &event, NULL, ash_clock_wall_s()) || changed;
    }
    return changed;
}

/* Fewer GPUs or network cards than the machine has. */
static bool note_missing(struct ash_agent *agent, const char *text)
{
    struct ash_missing missing[ASH_MISSING_MAX];
    size_t count = ash_missing_find(text, &agent->opts.wanted, missing);
    bool changed = false;

    ash_assert(count <= ASH_MISSING_MAX);
    for (size_t i = 0; i < count; i++) {
        struct ash_node_finding finding = {.layer = missing[i].layer, .remedy = ASH_REMEDY_REBOOT, .source = "metrics"};

        snprintf(finding.key, sizeof(finding.key), "%s", missing[i].key);
        snprintf(finding.evidence, sizeof(finding.evidence), "%s", missing[i].evidence);
        snprintf(finding.means, sizeof(finding.means), "%s", missing[i].means);
        changed = ash_node_state_note(&agent->state, &finding, ash_clock_wall_s()) || changed;
    }
    return changed;
}

/* Hold the rules against a scrape and the one before. Returns whether the status changed. */
static bool judge_text(struct ash_agent *agent, const char *text, size_t size_bytes, double now_s)
{
    struct ash_diagnose *diagnose = NULL;
    struct ash_scrape *scrape = NULL, *before = NULL;
    bool changed = false;
    int rc = ash_diagnose_open(&diagnose, NULL);

    if (rc == 0) rc = ash_scrape_parse(text, size_bytes, agent->opts.node, &scrape, NULL);
    if (rc == 0) rc = ash_diagnose_add(diagnose, scrape, agent->opts.node, false, NULL);
    if (rc == 0 && agent->before != NULL &&
        ash_scrape_parse(agent->before, agent->before_bytes, agent->opts.node, &before, NULL) == 0)
        rc = ash_diagnose_add(diagnose, before, agent->opts.node, true, NULL);
    if (rc == 0) rc = ash_diagnose_run(diagnose, agent->before != NULL ? now_s - agent->before_s : 0, NULL);
    pthread_mutex_lock(&agent->lock);
    for (size_t i = 0; rc == 0 && i < ash_diagnose_finding_count(diagnose); i++)
        changed = note_rule(agent, ash_diagnose_finding(diagnose, i)) || changed;
    if (rc == 0) changed = note_xids(agent, scrape) || changed;
    changed = note_missing(agent, text) || changed;
    changed = ash_node_state_tick(&agent->state, now_s) || changed;
    pthread_mutex_unlock(&agent->lock);
    ash_diagnose_close(diagnose);
    return changed;
}

static bool judge_metrics(struct ash_agent *agent)
{
    struct ash_str text = {0};
    double now_s = ash_clock_wall_s();
    bool changed = false;

    if (ash_sources_scrape(agent->sources, &text) == 0 && text.data != NULL) {
        changed = judge_text(agent, text.data, text.size_bytes, now_s);
        free(agent->before);
        agent->before = text.data;
        agent->before_bytes = text.size_bytes;
        agent->before_s = now_s;
        return changed;
    }
    ash_str_fini(&text);
    return false;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static int wait_ms(uint64_t until_ns)
{
    uint64_t now_ns = ash_clock_ns();

    return now_ns >= until_ns ? 0 : (int)((until_ns - now_ns) / 1000000 + 1);
}

/* Records until there is a pause, or for a moment. */
static bool follow_log(struct ash_agent *agent, uint64_t until_ns, bool *changed)
{
    char line[ASH_KMSG_LINE_BYTES];
    bool has_event = false;
    uint64_t number;

    while (!atomic_load(&agent->is_stopping)) {
        int rc = ash_kmsg_next(agent->kmsg, has_event ? 0 : wait_ms(until_ns), agent->wake_fd, line, &number);

        if (rc <= 0) break;
        has_event = take_record(agent, line, number, changed) || has_event;
        if (ash_clock_ns() >= until_ns) break;
    }
    return has_event;
}

/* Handle requests after a wake-up, such as clearing the node. Returns whether the status changed. */
static bool take_wishes(struct ash_agent *agent)
{
    enum ash_node_status before = agent->state.status;
    uint64_t wakes;

    if (read(agent->wake_fd, &wakes, sizeof(wakes)) < 0 && !atomic_load(&agent->wants_clear)) return false;
    if (!atomic_exchange(&agent->wants_clear, false)) return false;
    pthread_mutex_lock(&agent->lock);
    ash_node_state_clear(&agent->state, ash_clock_wall_s());
    pthread_mutex_unlock(&agent->lock);
    return agent->state.status != before;
}

void *ash_agent_judge(void *arg)
{
    struct ash_agent *agent = arg;
    uint64_t next_ns = 0, saved_ns = ash_clock_ns(), period_ns = (uint64_t)(agent->opts.judge_seconds * 1e9);
    uint64_t saved_number = agent->state.kernel_number;

    if (agent->state.status != ASH_NODE_HEALTHY) publish(agent, true); /* decisions before a restart still hold */
    while (!atomic_load(&agent->is_stopping)) {
        bool changed = false, has_event = false;

        if (ash_clock_ns() >= next_ns) {
            changed = judge_metrics(agent);
            next_ns = ash_clock_ns() + period_ns;
            if (!changed) retry(agent);
        }
        if (!changed && agent->kmsg != NULL) has_event = follow_log(agent, next_ns, &changed);
        if (!changed && agent->kmsg == NULL)
            poll(&(struct pollfd){.fd = agent->wake_fd, .events = POLLIN}, 1, wait_ms(next_ns));
        changed = take_wishes(agent) || changed;
        if (changed || has_event) {
            publish(agent, changed);
            saved_number = agent->state.kernel_number;
        } else if (saved_number != agent->state.kernel_number && ash_clock_ns() - saved_ns > (uint64_t)(SAVE_S * 1e9)) {
            save(agent);
            saved_ns = ash_clock_ns();
            saved_number = agent->state.kernel_number;
        }
    }
    save(agent);
    return NULL;
}
