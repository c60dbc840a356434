/* The agent's life, and the metrics of its verdicts. */
#include "observe/agent/agent_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "observe/collect/exposition.h"

/* The kernel's boot id: another one is another boot. */
static void read_boot(struct ash_agent *agent)
{
    char boot[64] = "unknown";

    ash_host_line(&agent->opts.source, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    ash_node_state_boot(&agent->state, boot, ash_clock_wall_s());
}

static void load_state(struct ash_agent *agent)
{
    struct ash_err err = {0};

    if (agent->opts.state_file != NULL && ash_node_state_load(&agent->state, agent->opts.state_file, &err) < 0)
        ash_log(ASH_LOG_WARN, "%s; the node's history starts empty", err.text);
    read_boot(agent);
}

int ash_agent_open(const struct ash_agent_opts *opts, struct ash_agent **agent_out, struct ash_err *err)
{
    struct ash_agent *agent = calloc(1, sizeof(*agent));
    int rc;

    if (agent == NULL) return ash_err_set(err, -ENOMEM, "no memory for the agent");
    agent->opts = *opts;
    pthread_mutex_init(&agent->lock, NULL);
    agent->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = agent->wake_fd < 0 ? ash_err_set(err, -errno, "no event descriptor: %s", strerror(errno)) : 0;
    if (rc == 0) load_state(agent);
    if (rc == 0) rc = ash_sources_open(ash_collectors, ash_collector_count, &agent->opts.source, &agent->sources, err);
    if (rc == 0) rc = ash_agent_serve(agent, err);
    if (rc < 0) goto fail;
    ash_agent_start_log(agent);
    rc = ash_thread_start(&agent->judge, ash_agent_judge, agent);
    agent->has_judge = rc == 0;
    if (rc < 0) {
        ash_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
        goto fail;
    }
    ash_agent_trim();
    *agent_out = agent;
    return 0;

fail:
    ash_agent_close(agent);
    return rc;
}

void ash_agent_close(struct ash_agent *agent)
{
    uint64_t one = 1;

    if (agent == NULL) return;
    atomic_store(&agent->is_stopping, true);
    if (agent->wake_fd >= 0 && write(agent->wake_fd, &one, sizeof(one)) < 0)
        ash_log(ASH_LOG_DEBUG, "the judge is awake");
    if (agent->has_judge) pthread_join(agent->judge, NULL);
    ash_http_close(agent->http);
    ash_agent_drop_listeners(agent);
    ash_keys_close(agent->keys);
    ash_sources_close(agent->sources);
    ash_kmsg_close(agent->kmsg);
    if (agent->wake_fd >= 0) close(agent->wake_fd);
    free(agent->before);
    pthread_mutex_destroy(&agent->lock);
    free(agent);
}

int ash_agent_port(const struct ash_agent *agent)
{
    return ash_http_port(agent->http);
}

/* XIDs by code and GPU, from the kernel log or NVML; DCGM's gauge keeps the last code for ever. */
static void write_codes(const struct ash_node_state *state, struct ash_str *out)
{
    char labels[256];
    bool has_head = false;

    for (size_t i = 0; i < state->count; i++) {
        const struct ash_node_finding *finding = &state->findings[i];
        char part[64] = "", code[16] = "";

        if (sscanf(finding->key, "xid %15s %63s", code, part) < 1) continue;
        if (!has_head)
            ash_exp_family(out, "ashlar_xid_total", "counter",
                           "XIDs that the kernel log or NVML told, each once, by code and PCI address.");
        has_head = true;
        ash_exp_labels(labels, sizeof(labels), "code", code, "pci_bus_id", part, (char *)NULL);
        ash_exp_count(out, "ashlar_xid_total", labels, finding->count);
    }
}

void ash_agent_write_state(struct ash_agent *agent, struct ash_str *out)
{
    char labels[256];

    pthread_mutex_lock(&agent->lock);
    ash_exp_family(out, "ashlar_node_status", "gauge", "1 for the node's status, 0 for all others.");
    for (int status = 0; status <= ASH_NODE_TO_CHECK; status++) {
        ash_exp_labels(labels, sizeof(labels), "status", ash_node_status_name((enum ash_node_status)status),
                       (char *)NULL);
        ash_exp_value(out, "ashlar_node_status", labels, (int)agent->state.status == status);
    }
    ash_exp_family(out, "ashlar_kernel_events_total", "counter", "Events in the kernel log, by kind.");
    for (int kind = 1; kind < ASH_KERNEL_KINDS; kind++) {
        ash_exp_labels(labels, sizeof(labels), "kind", ash_kernel_kind_name((enum ash_kernel_kind)kind), (char *)NULL);
        ash_exp_count(out, "ashlar_kernel_events_total", labels, agent->state.counts[kind]);
    }
    write_codes(&agent->state, out);
    ash_exp_family(out, "ashlar_kernel_log_lost_total", "counter",
                   "Records of the kernel log that were overwritten before they were read.");
    ash_exp_count(out, "ashlar_kernel_log_lost_total", NULL, agent->lost);
    ash_exp_single(out, "ashlar_kernel_log_up", "gauge", "Whether the kernel log can be read.", agent->is_log_read);
    pthread_mutex_unlock(&agent->lock);
}

int ash_agent_scrape(struct ash_agent *agent, struct ash_str *out)
{
    int rc = ash_sources_scrape(agent->sources, out);

    if (rc == 0) ash_agent_write_state(agent, out);
    return rc;
}
