/* device - the deep check of devices: products compared with known bits, and memory written, read and timed. */
#ifndef ASH_PROBE_DEVICE_H
#define ASH_PROBE_DEVICE_H

#include <stdint.h>
#include "observe/check/check.h"

struct ash_device_check {
    const struct ash_check_opts *opts;
    const char *machine;  /* of the catalog; NULL: not known */
    int64_t fault_device; /* the one that gets wrong bits, to see that they are found; negative: none */
};

/* Check a device by its backend's name: "cuda" is every GPU, "none" nothing. Adds the results. */
void ash_probe_devices(const struct ash_device_check *check, const char *name, struct ash_check_report *report);

#endif
