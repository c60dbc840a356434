/* collector - the sources of an agent. Each is read on its own thread (agent/sources.h), so it may take its time or
 * hang: that costs only its own families. Those below open, collect and close on one thread. */
#ifndef ASH_OBSERVE_COLLECT_COLLECTOR_H
#define ASH_OBSERVE_COLLECT_COLLECTOR_H

#include "ashlar/err.h"
#include "base/str.h"
#include "observe/collect/source.h"

struct ash_collector_ops {
    const char *name;  /* label of ashlar_collector_up */
    double deadline_s; /* a scrape waits no longer */
    const char *needs; /* rights that it needs beyond a plain user's, for people; NULL: none */
    /* Make *state_out. A negative errno if the source cannot be read; it is retried at the next scrape. */
    int (*open)(const struct ash_host_files *source, void **state_out, struct ash_err *err);
    /* Append families to out. Returns 0 (also if the machine has no such thing) or a negative errno. */
    int (*collect)(void *state, struct ash_str *out, struct ash_err *err);
    void (*close)(void *state); /* takes NULL */
};

/* /proc/stat, meminfo, load, pressure. */
extern const struct ash_collector_ops ash_collect_host;
/* Clocks, throttling and memory errors of processors. */
extern const struct ash_collector_ops ash_collect_chips;
/* /proc/net, /sys/class/net. */
extern const struct ash_collector_ops ash_collect_net;
/* /proc/diskstats. */
extern const struct ash_collector_ops ash_collect_disk;
/* File systems: room, and how long each takes to answer. */
extern const struct ash_collector_ops ash_collect_mounts;
/* InfiniBand and EFA devices. */
extern const struct ash_collector_ops ash_collect_rdma;
/* Jobs' control groups, and processes stuck in D. */
extern const struct ash_collector_ops ash_collect_jobs;
/* Lustre clients. */
extern const struct ash_collector_ops ash_collect_lustre;
/* NVMe health logs. */
extern const struct ash_collector_ops ash_collect_nvme;
/* NVIDIA GPUs, through NVML. */
extern const struct ash_collector_ops ash_collect_gpu;
/* Mapped pages of Ashlar's processes. */
extern const struct ash_collector_ops ash_collect_pages;

/* Slurm's queue, through squeue and sinfo. */
extern const struct ash_collector_ops ash_collect_queue;

/* All of them. */
extern const struct ash_collector_ops *const ash_collectors[];
extern const size_t ash_collector_count;

/* open and close of a collector that keeps nothing but its source. */
int ash_collector_open_plain(const struct ash_host_files *source, void **state_out, struct ash_err *err);
/* Forgets it; the source is its owner's. */
void ash_collector_close_plain(void *state);

/* ---- many small files: one family per file name over many devices ------------------------------------------------ */

struct ash_sys_file {
    const char *file; /* below the device's folder */
    const char *name, *type, *help;
    double scale;
};

/* A list of names. */
struct ash_names {
    char **items;
    size_t count, capacity;
};
/* Append a copy. Returns 0, -ENOMEM, or -E2BIG beyond 10,000. */
int ash_names_add(struct ash_names *names, const char *name);
/* In the order of strcmp. */
void ash_names_sort(struct ash_names *names);
/* Free all. A zeroed list is fine. */
void ash_names_fini(struct ash_names *names);
/* ash_host_list into names, sorted. */
void ash_names_list(const struct ash_host_files *source, const char *path, struct ash_names *names);
/* How many names ash_host_list gives. */
size_t ash_names_count(const struct ash_host_files *source, const char *path);

/* Devices: their folders, and the labels of each. */
struct ash_devices {
    struct ash_names folders, labels;
    int *open; /* descriptors of the first folders, once files were collected; below 0: it cannot be opened */
    size_t open_count;
    bool keeps; /* files are held open between two collections, which must read the same ones */
    int *kept;  /* descriptors [file][device] then; below 0: not open */
    size_t kept_count;
    uint64_t *marks; /* [device] of its folders when files were opened: removals and replacements change them */
};
/* Append one, before files are collected. On failure the list is as it was. */
int ash_devices_add(struct ash_devices *devices, const char *folder, const char *labels);
/* Free all. A zeroed list is fine. */
void ash_devices_fini(struct ash_devices *devices);
/* For every family, its sample of each device that has the file. */
void ash_collect_files(const struct ash_host_files *source, const struct ash_sys_file *files, size_t file_count,
                       struct ash_devices *devices, struct ash_str *out);

#endif
