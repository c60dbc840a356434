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
#define BANK_UNCORRECTED ((uint64_t)1 << 61) /* of a bank's status: UC */

struct pattern {
    enum ash_kernel_kind kind;
    enum ash_health_layer layer;
    enum ash_node_remedy remedy;
    const char *words[WORDS_MAX];
    const char *before; /* the word before this text is the part; NULL: none */
    const char *means;
};

static const struct pattern patterns[] = {
#include "observe/health/kernel_log_list.h"
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
    static const char *const devices[] = {"nvme", "mlx5_", "sd",   "eth",   "ens",
                                          "enp",  "eno",   "efa_", "rdmap", "EDAC MC"};
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
            if (strcspn(start + strlen(devices[i]), "0123456789") >= bytes - strlen(devices[i]))
                continue; /* "send" is no device, nor is mlx5_core */
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

    ash_assert((size_t)verdict < ASH_COUNT(remedies));
    return remedies[verdict];
}

static void judge_gpu(const struct ash_xid_gpu *gpu, struct ash_kernel_event *event)
{
    struct ash_xid_setting setting = {.remaps_left = -1, .corrected_per_day = -1};
    struct ash_xid_answer *answer = calloc(1, sizeof(*answer));

    *event = (struct ash_kernel_event){.kind = ASH_KERNEL_XID,
                                       .layer = ASH_HEALTH_GPU,
                                       .remedy = ASH_REMEDY_WATCH,
                                       .code = gpu->seen[0].code,
                                       .means = "a code that no public source lists"};
    snprintf(event->part, sizeof(event->part), "%s", gpu->address);
    if (answer == NULL) return;
    ash_xid_judge(&setting, gpu, answer);
    event->remedy = remedy_of(answer->verdict);
    if (answer->findings[0].meaning != NULL) event->means = answer->findings[0].meaning;
    free(answer);
}

static bool judge_xid(const char *line, struct ash_kernel_event *event)
{
    struct ash_xid_log *log = calloc(1, sizeof(*log));
    bool is_xid = log != NULL && ash_xid_log_parse(line, strlen(line), log, NULL) == 0 && log->gpu_count > 0;

    if (is_xid) judge_gpu(&log->gpus[0], event);
    free(log);
    return is_xid;
}

void ash_kernel_xid_judge(int code, const char *address, struct ash_kernel_event *event_out)
{
    struct ash_xid_gpu gpu = {.action = ASH_XID_ACTION_ABSENT, .seen = {{code, 1}}, .count = 1};

    snprintf(gpu.address, sizeof(gpu.address), "%s", address);
    judge_gpu(&gpu, event_out);
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

/* "CPU 3: Machine Check: 0 Bank 4: be00000000800400": the bank's status has a bit for corrected errors. */
static void judge_bank(const char *line, struct ash_kernel_event *event)
{
    const char *bank = strstr(line, " Bank "), *status = bank != NULL ? strstr(bank, ": ") : NULL;

    if (status == NULL || (strtoull(status + 2, NULL, 16) & BANK_UNCORRECTED) == 0) return;
    event->remedy = ASH_REMEDY_REPLACE;
    event->means = "the processor met an error that it could not correct";
}

/* Errors of a PCIe device belong to its layer: the driver's name stands before its address. */
static enum ash_health_layer layer_of_driver(const char *line)
{
    static const struct {
        const char *driver;
        enum ash_health_layer layer;
    } drivers[] = {{"nvidia ", ASH_HEALTH_GPU},
                   {"nvme ", ASH_HEALTH_STORAGE},
                   {"mlx5_core ", ASH_HEALTH_NETWORK},
                   {"efa ", ASH_HEALTH_NETWORK},
                   {"ena ", ASH_HEALTH_NETWORK},
                   {"bnxt_en ", ASH_HEALTH_NETWORK},
                   {"nvidia-nvswitch ", ASH_HEALTH_NVLINK}};

    for (size_t i = 0; i < ASH_COUNT(drivers); i++)
        if (strncmp(line, drivers[i].driver, strlen(drivers[i].driver)) == 0) return drivers[i].layer;
    return ASH_HEALTH_HOST;
}

enum ash_severity ash_kernel_severity(enum ash_kernel_kind kind, enum ash_node_remedy remedy)
{
    if (remedy > ASH_REMEDY_WATCH) return ASH_BROKEN;
    switch (kind) {
    case ASH_KERNEL_MCE:
    case ASH_KERNEL_OOM:
    case ASH_KERNEL_LOCKUP:
    case ASH_KERNEL_HUNG_TASK:
    case ASH_KERNEL_FILE_SYSTEM:
    case ASH_KERNEL_NVME:
    case ASH_KERNEL_LUSTRE:
    case ASH_KERNEL_THROTTLE:
        return ASH_SLOW;
    default: /* links go down at every boot; corrected errors are what correction is for */
        return ASH_WATCH;
    }
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
        if (pattern->kind == ASH_KERNEL_MCE) judge_bank(line, event_out);
        if (pattern->kind == ASH_KERNEL_PCIE && pattern->layer == ASH_HEALTH_HOST)
            event_out->layer = layer_of_driver(line);
        return true;
    }
    return false;
}

const char *ash_kernel_kind_name(enum ash_kernel_kind kind)
{
    static const char *const names[ASH_KERNEL_KINDS] = {"none", "xid",    "sxid",   "pcie",      "mce",
                                                        "edac", "oom",    "lockup", "hung_task", "file_system",
                                                        "nvme", "lustre", "link",   "throttle"};

    ash_assert(kind < ASH_KERNEL_KINDS);
    return names[kind];
}

enum ash_kernel_kind ash_kernel_kind_named(const char *name, size_t bytes)
{
    for (int kind = 1; kind < ASH_KERNEL_KINDS; kind++) {
        const char *one = ash_kernel_kind_name((enum ash_kernel_kind)kind);

        if (strlen(one) == bytes && memcmp(one, name, bytes) == 0) return (enum ash_kernel_kind)kind;
    }
    return ASH_KERNEL_NONE;
}

const char *ash_node_remedy_name(enum ash_node_remedy remedy)
{
    static const char *const names[] = {"none", "watch", "reset", "reboot", "replace"};

    ash_assert((size_t)remedy < ASH_COUNT(names));
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
