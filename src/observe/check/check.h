/* check - is this node fit for work? Quick: counts, limits, clocks, mounts, the kernel log; two seconds at most. Deep:
 * matrix products and memory patterns on every core, compared to the bit with the known answer. */
#ifndef ASH_OBSERVE_CHECK_CHECK_H
#define ASH_OBSERVE_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "observe/collect/source.h"

enum ash_check_grade { ASH_GRADE_GOOD, ASH_GRADE_WARN, ASH_GRADE_BAD, ASH_GRADE_SKIPPED };

struct ash_check_result {
    const char *name;
    enum ash_check_grade grade;
    char found[200]; /* the observed value */
    char wanted[96]; /* the expected value; empty: none */
};

#define ASH_CHECK_RESULTS_MAX 64

struct ash_check_report {
    struct ash_check_result results[ASH_CHECK_RESULTS_MAX];
    size_t count;
    double seconds;
};

struct ash_check_opts {
    struct ash_host_files source;
    int64_t gpus;            /* that there must be; negative: not known */
    int64_t network_devices; /* for RDMA, that there must be; 0: not known */
    bool has_efa;            /* the network devices are EFA's */
    const char *kernel_log;  /* NULL: /dev/kmsg below the root */
    double network_rate;     /* that the network cards must have together, bytes/s; 0: not known */
    double deep_seconds;     /* of each deep check, on every core */
    /* for tests: the core whose product gets a wrong bit; negative: none */
    int64_t fault_core;
};

/* Add the quick checks. */
void ash_check_quick(const struct ash_check_opts *opts, struct ash_check_report *report);
/* Add GPUs: how many, memory, lanes, clocks, kernel modules, fabric manager. Part of the quick checks. */
void ash_check_gpus(const struct ash_check_opts *opts, struct ash_check_report *report);
/* Add the network interfaces: speed, packet size, errors. Part of the quick checks. */
void ash_check_network(const struct ash_check_opts *opts, struct ash_check_report *report);
/* Add links: NVLinks that are up and their errors, lanes and rates of RDMA devices. Part of the deep checks. */
void ash_check_links(const struct ash_check_opts *opts, struct ash_check_report *report);
/* Add the deep checks of this machine's cores and memory. */
void ash_check_deep(const struct ash_check_opts *opts, struct ash_check_report *report);

struct ash_disk_rates {
    double write_rate, read_rate; /* bytes per second; 0: it failed */
};

/* Write a file of at most 1 GiB into dir for at most deep_seconds, read it back and compare every word, around the page
 * cache if the file system supports that. Adds the results; the file is removed afterwards. */
void ash_check_disk(const struct ash_check_opts *opts, const char *dir, struct ash_check_report *report,
                    struct ash_disk_rates *rates_out);
/* Add a result; further ones than there is room for are dropped. */
void ash_check_add(struct ash_check_report *report, const char *name, enum ash_check_grade grade, const char *wanted,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The worst grade; skipped ones do not count. */
enum ash_check_grade ash_check_worst(const struct ash_check_report *report);
/* "good", "warn", "BAD", "skipped": static. */
const char *ash_check_grade_name(enum ash_check_grade grade);

#endif
