/* gpus - which GPU each rank computes on. A GPU is one rank's, or that of a few neighbours. Ranks of a host take the
 * GPUs that they see in order; where a launcher shows each rank its own (Slurm's GRES, a device plugin,
 * CUDA_VISIBLE_DEVICES), that one. */
#ifndef ASH_PARALLEL_GPUS_H
#define ASH_PARALLEL_GPUS_H

#include "ashlar/err.h"
#include "collective/group.h"
#include "compute/backends/backends.h"

/* How ranks may share GPUs, and how a user says so. */
struct ash_gpus_sharing {
    size_t per_gpu;           /* ranks of a host that may have one GPU */
    const char *backend_word; /* before the backend that was asked for: "--backend " */
    const char *per_gpu_word; /* before the number of ranks: "--ranks-per-gpu " */
};

/* Give the rank the GPU that is its own, where its choice is any GPU. All ranks of group call it with the choice of a
 * process that is alone. Those that chose by themselves take GPUs if each has one, else all the CPU. Returns 0, the
 * group's error, -ENODEV (there is no such GPU), or on every rank -EBADE: more ranks have the same GPU than may, or
 * GPUs are of different kinds. */
int ash_gpus_share(const struct ash_gpus_sharing *sharing, struct ash_group *group, struct ash_backend_choice *choice,
                   struct ash_err *err);
/* Take the GPU for process `local` of this host, if any will do. */
void ash_gpus_take(size_t per_gpu, size_t local, struct ash_backend_choice *choice);

#endif
