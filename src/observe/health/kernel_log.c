/* A table of patterns. A pattern is words that a line has in this order; the first that fits names the event. XIDs are
 * judged by their own table. */
#include "observe/health/kernel_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "observe/health/xid.h"

#define WORDS_MAX 3

struct pattern {
    enum ash_kernel_kind kind;
    enum ash_health_layer layer;
    enum ash_node_remedy remedy;
    const char *words[WORDS_MAX];
    const char *before; /* the word before this text is the part; NULL: none */
    const char *means;
};

static const struct pattern patterns[] = {
    {ASH_KERNEL_PCIE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REBOOT,
     {"AER:", "ncorrect", "Fatal"},
     NULL,
     "a fatal error of a PCIe device"},
    {ASH_KERNEL_PCIE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"PCIe Bus Error: severity=Corrected"},
     ": PCIe Bus Error",
     "a PCIe transfer was repeated"},
    {ASH_KERNEL_PCIE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REBOOT,
     {"PCIe Bus Error: severity=Uncorrected"},
     ": PCIe Bus Error",
     "a PCIe transfer failed for good"},
    {ASH_KERNEL_PCIE, ASH_HEALTH_HOST, ASH_REMEDY_REBOOT, {"pcieport", "Link Down"}, NULL, "a PCIe link went down"},
    {ASH_KERNEL_MCE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REPLACE,
     {"mce:", "[Hardware Error]", "Uncorrected"},
     NULL,
     "the processor met an error that it could not correct"},
    {ASH_KERNEL_MCE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REPLACE,
     {"Machine check", "Processor context corrupt"},
     NULL,
     "the processor's state is lost"},
    {ASH_KERNEL_MCE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REPLACE,
     {"Memory failure:", "recovery action", "Failed"},
     NULL,
     "memory failed and the page could not be given up"},
    {ASH_KERNEL_MCE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"mce: [Hardware Error]"},
     NULL,
     "the processor corrected an error"},
    {ASH_KERNEL_EDAC,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REPLACE,
     {"EDAC", " UE "},
     NULL,
     "memory has errors that cannot be corrected"},
    {ASH_KERNEL_EDAC,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"EDAC", " CE "},
     NULL,
     "memory had an error that was corrected"},
    {ASH_KERNEL_OOM,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"Memory cgroup out of memory"},
     NULL,
     "a job used more memory than it may: a process of it was killed"},
    {ASH_KERNEL_OOM,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"Out of memory: Kill"},
     NULL,
     "memory ran out: a process was killed"},
    {ASH_KERNEL_LOCKUP,
     ASH_HEALTH_HOST,
     ASH_REMEDY_REBOOT,
     {"hard LOCKUP"},
     NULL,
     "a core is stuck with interrupts off"},
    {ASH_KERNEL_LOCKUP, ASH_HEALTH_HOST, ASH_REMEDY_WATCH, {"soft lockup"}, NULL, "a core was stuck in the kernel"},
    {ASH_KERNEL_LOCKUP,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"rcu", "detected stall"},
     NULL,
     "a core did not come to rest for seconds"},
    {ASH_KERNEL_HUNG_TASK,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_WATCH,
     {"task", "blocked for more than"},
     NULL,
     "a process waits for storage without end"},
    {ASH_KERNEL_LUSTRE,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_WATCH,
     {"Lustre", "evicted"},
     NULL,
     "a Lustre server gave this client up: its locks are lost"},
    {ASH_KERNEL_LUSTRE, ASH_HEALTH_STORAGE, ASH_REMEDY_WATCH, {"LustreError"}, NULL, "an error of Lustre"},
    {ASH_KERNEL_NVME,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_REPLACE,
     {"nvme", "controller is down"},
     NULL,
     "a drive does not answer any more"},
    {ASH_KERNEL_NVME,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_REPLACE,
     {"nvme", "Removing after probe failure"},
     NULL,
     "a drive was given up"},
    {ASH_KERNEL_NVME, ASH_HEALTH_STORAGE, ASH_REMEDY_WATCH, {"nvme", "timeout"}, NULL, "a drive was slow to answer"},
    {ASH_KERNEL_NVME,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_WATCH,
     {"critical medium error, dev nvme"},
     NULL,
     "a drive could not read data back"},
    {ASH_KERNEL_FILE_SYSTEM,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_REPLACE,
     {"EXT4-fs error"},
     NULL,
     "a file system is damaged"},
    {ASH_KERNEL_FILE_SYSTEM,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_REPLACE,
     {"XFS", "Corruption"},
     NULL,
     "a file system is damaged"},
    {ASH_KERNEL_FILE_SYSTEM,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_REPLACE,
     {"Remounting filesystem read-only"},
     NULL,
     "a file system is damaged and read-only now"},
    {ASH_KERNEL_FILE_SYSTEM,
     ASH_HEALTH_STORAGE,
     ASH_REMEDY_WATCH,
     {"I/O error, dev"},
     NULL,
     "a block device failed to read or write"},
    {ASH_KERNEL_LINK,
     ASH_HEALTH_NETWORK,
     ASH_REMEDY_WATCH,
     {"mlx5_core", "Link down"},
     NULL,
     "a network link went down"},
    {ASH_KERNEL_LINK, ASH_HEALTH_NETWORK, ASH_REMEDY_WATCH, {"NIC Link is Down"}, NULL, "a network link went down"},
    {ASH_KERNEL_LINK, ASH_HEALTH_NETWORK, ASH_REMEDY_WATCH, {"efa ", "Reset"}, NULL, "an EFA device was reset"},
    {ASH_KERNEL_THROTTLE,
     ASH_HEALTH_HOST,
     ASH_REMEDY_WATCH,
     {"temperature above threshold, cpu clock throttled"},
     NULL,
     "the processor is hot and runs slower"},
};

static bool fits(const char *line, const struct pattern *pattern)
{
    for (size_t i = 0; i < WORDS_MAX && pattern->words[i] != NULL; i++) {
        line = strstr(line, pattern->words[i]);
        if (line == NULL) return false;
        line += strlen(pattern->words[i]);
    }
    return true;
}

/* The word that ends before `before`, or the first that looks like a device. */
static void find_part(const char *line, const struct pattern *pattern, char *buf, size_t buf_bytes)
{
    static const char *const devices[] = {"nvme", "mlx5_", "sd", "eth", "ens", "efa_", "EDAC MC"};
    const char *end = pattern->before != NULL ? strstr(line, pattern->before) : NULL, *start;

    buf[0] = '\0';
    if (end != NULL) {
        for (start = end; start > line && start[-1] != ' '; start--)
            ;
        snprintf(buf, buf_bytes, "%.*s", (int)(end - start), start);
        return;
    }
    for (size_t i = 0; i < ASH_COUNT(devices); i++)
        for (start = line; (start = strstr(start, devices[i])) != NULL; start++) {
            size_t bytes = strlen(devices[i]) + strcspn(start + strlen(devices[i]), " :,)]");

            if (start != line && strchr(" ([", start[-1]) == NULL) continue;
            if (strcspn(start, "0123456789") >= bytes) continue; /* "send" is no device */
            snprintf(buf, buf_bytes, "%.*s", (int)bytes, start);
            return;
        }
}

static enum ash_node_remedy remedy_of(enum ash_xid_verdict verdict)
{
    static const enum ash_node_remedy remedies[] = {[ASH_XID_UNKNOWN] = ASH_REMEDY_WATCH,
                                                    [ASH_XID_MONITOR] = ASH_REMEDY_WATCH,
                                                    [ASH_XID_RESET] = ASH_REMEDY_RESET,
                                                    [ASH_XID_REBOOT] = ASH_REMEDY_REBOOT,
                                                    [ASH_XID_ISOLATE] = ASH_REMEDY_REPLACE};

    return remedies[verdict];
}

static bool judge_xid(const char *line, struct ash_kernel_event *event)
{
    struct ash_xid_setting setting = {.remaps_left = -1, .corrected_per_day = -1};
    struct ash_xid_log *log = calloc(1, sizeof(*log));
    struct ash_xid_answer *answer = calloc(1, sizeof(*answer));
    bool is_xid = false;

    if (log != NULL && answer != NULL && ash_xid_log_parse(line, strlen(line), log, NULL) == 0 && log->gpu_count > 0) {
        const struct ash_xid_gpu *gpu = &log->gpus[0];

        ash_xid_judge(&setting, gpu, answer);
        *event = (struct ash_kernel_event){.kind = ASH_KERNEL_XID,
                                           .layer = ASH_HEALTH_GPU,
                                           .remedy = remedy_of(answer->verdict),
                                           .code = gpu->seen[0].code,
                                           .means = answer->findings[0].meaning};
        if (event->means == NULL) event->means = "a code that no public source lists";
        snprintf(event->part, sizeof(event->part), "%s", gpu->address);
        is_xid = true;
    }
    free(log);
    free(answer);
    return is_xid;
}

static bool judge_sxid(const char *line, struct ash_kernel_event *event)
{
    const char *at = strstr(line, "SXid (PCI:"), *end = at != NULL ? strstr(at, "): ") : NULL;
    bool is_fatal = strstr(line, "Non-fatal") == NULL && strstr(line, "Fatal") != NULL;

    if (end == NULL) return false;
    *event = (struct ash_kernel_event){.kind = ASH_KERNEL_SXID,
                                       .layer = ASH_HEALTH_NVLINK,
                                       .remedy = is_fatal ? ASH_REMEDY_REBOOT : ASH_REMEDY_WATCH,
                                       .code = (int)strtol(end + 3, NULL, 10),
                                       .means = is_fatal ? "a fatal error of an NVSwitch" : "an error of an NVSwitch"};
    snprintf(event->part, sizeof(event->part), "%.*s", (int)(end - at - 10), at + 10);
    return true;
}

bool ash_kernel_log_judge(const char *line, struct ash_kernel_event *event_out)
{
    if (strstr(line, "SXid (") != NULL) return judge_sxid(line, event_out);
    if (strstr(line, "Xid (") != NULL && judge_xid(line, event_out)) return true;
    for (size_t i = 0; i < ASH_COUNT(patterns); i++) {
        const struct pattern *pattern = &patterns[i];

        if (!fits(line, pattern)) continue;
        *event_out = (struct ash_kernel_event){
            .kind = pattern->kind, .layer = pattern->layer, .remedy = pattern->remedy, .means = pattern->means};
        find_part(line, pattern, event_out->part, sizeof(event_out->part));
        return true;
    }
    return false;
}

const char *ash_kernel_kind_name(enum ash_kernel_kind kind)
{
    static const char *const names[ASH_KERNEL_KINDS] = {"none", "xid",    "sxid",   "pcie",      "mce",
                                                        "edac", "oom",    "lockup", "hung_task", "file_system",
                                                        "nvme", "lustre", "link",   "throttle"};

    return names[kind];
}

const char *ash_node_remedy_name(enum ash_node_remedy remedy)
{
    static const char *const names[] = {"none", "watch", "reset", "reboot", "replace"};

    return names[remedy];
}

int ash_kernel_record_parse(const char *data, size_t size_bytes, struct ash_kernel_record *record_out)
{
    const char *semicolon = memchr(data, ';', size_bytes < 128 ? size_bytes : 128), *newline;
    struct ash_kernel_record record = {.text = data, .text_bytes = size_bytes};
    unsigned long long priority, sequence, us;
    char head[129];
    int rc = -EINVAL;

    if (semicolon != NULL) {
        snprintf(head, sizeof(head), "%.*s", (int)(semicolon - data), data);
        if (sscanf(head, "%llu,%llu,%llu", &priority, &sequence, &us) == 3) {
            record = (struct ash_kernel_record){.priority = (unsigned)priority,
                                                .sequence = sequence,
                                                .us = us,
                                                .text = semicolon + 1,
                                                .text_bytes = size_bytes - (size_t)(semicolon + 1 - data)};
            rc = 0;
        }
    }
    newline = memchr(record.text, '\n', record.text_bytes);
    if (newline != NULL) record.text_bytes = (size_t)(newline - record.text);
    *record_out = record;
    return rc;
}
