/* gpu_xids - XID events of one GPU from NVML, counted by code. One owner. */
#ifndef ASH_OBSERVE_COLLECT_GPU_XIDS_H
#define ASH_OBSERVE_COLLECT_GPU_XIDS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define ASH_GPU_XIDS_MAX 64
#define ASH_METRIC_NVML_XIDS "ashlar_nvml_xid_total"

struct ash_gpu_xids {
    unsigned last;    /* 0: none yet */
    char address[32]; /* as the kernel log has it: "0000:3b:00" */
    struct {
        unsigned code; /* 0: free, as all after it */
        uint64_t count;
    } told[ASH_GPU_XIDS_MAX]; /* of codes beyond these only the last is known */
};

/* Those of the GPU at an address as NVML has it: "00000000:3B:00.0". */
void ash_gpu_xids_init(struct ash_gpu_xids *xids, const char *address);
/* One came. */
void ash_gpu_xids_add(struct ash_gpu_xids *xids, unsigned code);
/* Append them to the family ASH_METRIC_NVML_XIDS, whose head is written once: *has_head. */
void ash_gpu_xids_write(const struct ash_gpu_xids *xids, bool *has_head, struct ash_str *out);

#endif
