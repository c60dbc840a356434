/* check_priv - what `ashlar check node` and `ashlar check cluster` share. */
#ifndef ASH_CMD_CHECK_PRIV_H
#define ASH_CMD_CHECK_PRIV_H

#include <stdbool.h>
#include "cmd/check_cluster_links.h"
#include "collective/group.h"
#include "observe/check/check.h"

struct ash_cluster_check {
    const struct ash_check_opts *node;
    const struct ash_group_opts *group;
    const char *disk; /* folder whose disk is measured; NULL: none */
    double slow_share;
    enum ash_links_way links_way;
    bool is_deep, wants_json;
};

/* Check all nodes that a launcher started this on, once each: every node itself, then against each other. The first
 * prints. Returns the exit code: 0, 1 (a node is not fit, or an outlier), or a negative errno. */
int ash_cmd_check_cluster(const struct ash_cluster_check *check, struct ash_err *err);

struct ash_device_check {
    const struct ash_check_opts *opts;
    const char *machine;  /* of the catalog; NULL: not known */
    int64_t fault_device; /* the one that gets wrong bits, to see that they are found; negative: none */
};

/* The deep check of a device by its backend's name: "cuda" is every GPU, "none" nothing. Adds what came out. */
void ash_cmd_check_devices(const struct ash_device_check *check, const char *name, struct ash_check_report *report);
/* The deep check of copies between the GPUs of this machine: bits, and rates against marks (machine: of the catalog;
 * NULL: not known). Adds what came out; nothing where there is no GPU, or one. */
void ash_cmd_check_pairs(const char *machine, struct ash_check_report *report);

#endif
