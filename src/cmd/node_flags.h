/* node_flags - the flags of commands for one node: paths of its files, and its expected hardware. */
#ifndef ASH_CMD_NODE_FLAGS_H
#define ASH_CMD_NODE_FLAGS_H

#include "base/opts.h"

/* Bind it next to the command's own table: `{&ash_node_table, &flags.node}`. */
struct ash_node_flags {
    const char *root, *kernel_log, *nvml, *machine;
    int64_t gpus;
};

extern const struct ash_opt_table ash_node_table;

/* Expected hardware of the node. */
struct ash_node_marks {
    int64_t gpus;            /* of --gpus, or of the machine that --machine names; -1 if neither is set */
    int64_t network_devices; /* for RDMA, of the machine; 0: not known */
    bool has_efa;            /* they are EFA's */
    double network_rate;     /* of the machine, bytes/s; 0: not known */
};

/* Read them. Returns 0, or an error for a machine that the catalog does not have. */
int ash_node_flags_read(const struct ash_node_flags *flags, struct ash_node_marks *marks_out, struct ash_err *err);

#endif
