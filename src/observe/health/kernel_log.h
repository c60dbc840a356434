/* kernel_log - events of the machine in a kernel log: XIDs, switches, PCIe, machine checks, memory errors,
 * out of memory, lockups, file systems, drives, links. Text may be anything. */
#ifndef ASH_OBSERVE_HEALTH_KERNEL_LOG_H
#define ASH_OBSERVE_HEALTH_KERNEL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "observe/health/diagnose.h"

enum ash_kernel_kind {
    ASH_KERNEL_NONE,
    ASH_KERNEL_XID,
    ASH_KERNEL_SXID,
    ASH_KERNEL_PCIE,
    ASH_KERNEL_MCE,
    ASH_KERNEL_EDAC,
    ASH_KERNEL_OOM,
    ASH_KERNEL_LOCKUP,
    ASH_KERNEL_HUNG_TASK,
    ASH_KERNEL_FILE_SYSTEM,
    ASH_KERNEL_NVME,
    ASH_KERNEL_LUSTRE,
    ASH_KERNEL_LINK,
    ASH_KERNEL_THROTTLE,
    ASH_KERNEL_KINDS,
};

/* What to do about a node, from nothing to everything. */
enum ash_node_remedy { ASH_REMEDY_NONE, ASH_REMEDY_WATCH, ASH_REMEDY_RESET, ASH_REMEDY_REBOOT, ASH_REMEDY_REPLACE };

struct ash_kernel_event {
    enum ash_kernel_kind kind;
    enum ash_health_layer layer;
    enum ash_node_remedy remedy;
    int code;          /* of an XID or SXid; 0: none */
    char part[64];     /* PCI address, device, or empty */
    const char *means; /* static */
};

/* One line, without its header. Returns whether it is an event. */
bool ash_kernel_log_judge(const char *line, struct ash_kernel_event *event_out);
/* An XID that came without a line, of the GPU at a PCI address ("0000:3b:00"). */
void ash_kernel_xid_judge(int code, const char *address, struct ash_kernel_event *event_out);
/* "xid", ...: static. */
const char *ash_kernel_kind_name(enum ash_kernel_kind kind);
/* The kind of a name of that many bytes, ASH_KERNEL_NONE if there is none. */
enum ash_kernel_kind ash_kernel_kind_named(const char *name, size_t bytes);
/* The severity of such an event for users of the node: faults that need repair are broken; of the rest, some happen to
 * healthy nodes and are only watched. */
enum ash_severity ash_kernel_severity(enum ash_kernel_kind kind, enum ash_node_remedy remedy);
/* "none", "watch", "reset", "reboot", "replace": static. */
const char *ash_node_remedy_name(enum ash_node_remedy remedy);

/* A record of /dev/kmsg: "6,339,5140900,-;text". */
struct ash_kernel_record {
    unsigned priority; /* with the facility */
    uint64_t sequence, us;
    const char *text; /* inside the record; up to the first line's end */
    size_t text_bytes;
};

/* Returns 0, or -EINVAL where the bytes are no such record: then text is the whole line. */
int ash_kernel_record_parse(const char *data, size_t size_bytes, struct ash_kernel_record *record_out);

#endif
