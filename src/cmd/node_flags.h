/* node_flags - the flags of commands that look at one node: where its files are, and what it must have. */
#ifndef ASH_CMD_NODE_FLAGS_H
#define ASH_CMD_NODE_FLAGS_H

#include "base/opts.h"

/* Bind it next to the command's own table: `{&ash_node_table, &flags.node}`. */
struct ash_node_flags {
    const char *root, *kernel_log, *nvml, *machine;
    int64_t gpus;
};

extern const struct ash_opt_table ash_node_table;

/* What the node must have. */
struct ash_node_marks {
    int64_t gpus;            /* as --gpus says, or the machine that --machine names; -1 where neither is given */
    int64_t network_devices; /* for RDMA, of the machine; 0: not known */
    bool has_efa;            /* they are EFA's */
    double network_rate;     /* of the machine, bytes/s; 0: not known */
};

/* Read them. Returns 0, or an error for a machine that the catalog does not have. */
int ash_node_flags_read(const struct ash_node_flags *flags, struct ash_node_marks *marks_out, struct ash_err *err);

#endif
