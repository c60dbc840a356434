/* node_state - findings of a node and their consequence: one status with its evidence, kept in a file
 * across restarts. A finding that comes again and again keeps the node out for longer each time. One owner. */
#ifndef ASH_OBSERVE_HEALTH_NODE_STATE_H
#define ASH_OBSERVE_HEALTH_NODE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "observe/health/kernel_log.h"

#define ASH_NODE_FINDINGS_MAX 128
#define ASH_NODE_KEY_BYTES 128
#define ASH_NODE_TEXT_BYTES 256

enum ash_node_status {
    ASH_NODE_HEALTHY,
    ASH_NODE_DOUBTFUL,      /* something is wrong that needs no action yet */
    ASH_NODE_DRAIN_RESET,   /* take jobs off, reset its GPUs */
    ASH_NODE_DRAIN_REBOOT,  /* ... reboot */
    ASH_NODE_DRAIN_REPLACE, /* ... replace it */
    ASH_NODE_TO_CHECK,      /* was reset or rebooted; back when a check passes */
};

struct ash_node_finding {
    char key[ASH_NODE_KEY_BYTES];       /* the kind and the part: "xid 79 0000:3b:00" */
    char evidence[ASH_NODE_TEXT_BYTES]; /* the line or value */
    char means[ASH_NODE_TEXT_BYTES];
    char source[32]; /* "kernel log", "NVML", "metrics", "check" */
    enum ash_health_layer layer;
    enum ash_node_remedy remedy;
    double since_s, last_s; /* since 1970 */
    uint64_t count;         /* times, over all its returns */
    double window_start_s;  /* of the rate: 10 minutes */
    uint64_t window_count;
    uint32_t flaps; /* times that it was gone and came back */
    bool is_active;
};

struct ash_node_state {
    enum ash_node_status status;
    double since_s;                    /* of the status */
    char boot[64];                     /* the kernel's boot id */
    uint64_t kernel_number;            /* last record of the kernel log that was seen in this boot */
    uint64_t counts[ASH_KERNEL_KINDS]; /* events by kind, over all boots */
    bool needs_check;
    struct ash_node_finding findings[ASH_NODE_FINDINGS_MAX];
    size_t count;
};

/* Read path, or start empty if there is none. A damaged file is -EINVAL, and state is empty. */
int ash_node_state_load(struct ash_node_state *state, const char *path, struct ash_err *err);
/* The same from text. */
int ash_node_state_parse(struct ash_node_state *state, const char *text, size_t size_bytes, struct ash_err *err);
/* The active finding that decides the status, or NULL. Borrowed. */
const struct ash_node_finding *ash_node_state_reason(const struct ash_node_state *state);
/* Write it whole or not at all. */
int ash_node_state_save(const struct ash_node_state *state, const char *path, struct ash_err *err);
/* As JSON, for files, pages and programs. The caller owns it; NULL: no memory. */
json_t *ash_node_state_json(const struct ash_node_state *state);

/* The machine runs boot `boot`: another than before ends findings that a reset or a reboot cures, and requires a
 * check. */
void ash_node_state_boot(struct ash_node_state *state, const char *boot, double now_s);
/* Something was found: key, evidence, means, source, layer and remedy are taken. Returns whether the status changed. */
bool ash_node_state_note(struct ash_node_state *state, const struct ash_node_finding *finding, double now_s);
/* An event of the kernel log, or, if line is NULL, one from NVML alone. Returns whether the status changed. */
bool ash_node_state_event(struct ash_node_state *state, const struct ash_kernel_event *event, const char *line,
                          double now_s);
/* Time has passed: watched findings that have not recurred end. Returns whether the status changed. */
bool ash_node_state_tick(struct ash_node_state *state, double now_s);
/* An operator or a check has cleared it: every finding ends. */
void ash_node_state_clear(struct ash_node_state *state, double now_s);

/* "healthy", "doubtful", "drain for reset", ...: static. */
const char *ash_node_status_name(enum ash_node_status status);

#endif
